"""The second pass: measures that need several passes or all pairs of heads, on a few sentences.

The sentences are those with the smallest hashes of their content, so that the sample needs no seed
and two samples merge into the sample of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import CHOICE, Reservoir
from headbook.attention.frame import Scope
from headbook.attention.layerattention import LayerAttention, layer_attentions
from headbook.attention.maps import Maps
from headbook.attention.paircells import (
    NO_CELL,
    linked_cells,
    mass_by_cell,
    pairs_by_surface,
    pairs_in_cells,
)
from headbook.attention.scopes import Scopes
from headbook.metrics.base import SampledMetric
from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.model import Model
from headbook.passes.tables.affinitytable import AffinityTable, Items
from headbook.passes.tables.headtable import uniform
from headbook.passes.watch import PassResults, Watch
from headbook.study.summaries.finish import ABOUT, UNIFORM
from headbook.study.summaries.paircells import PairCells
from headbook.study.summaries.sums import CorpusSums, SampleColumn, SampleSums
from headbook.terms import Stack, View
from headbook.text.batch import Batch

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Sampler:
    """Takes statistics of batches; what to measure is fixed for a run.

    Attributes:
        size: how many sentences the sample has.
        items: by stack, the tokens and pairs of tokens that are summed; empty for none.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[SampledMetric, ...]
    size: int
    items: Mapping[str, Items] = field(default_factory=dict)

    def watch(self, batch: Batch) -> Watch:
        """The statistics of one batch."""
        stacks = {
            name: _Statistics(stack, self.metrics, batch)
            for name, stack in self.architecture.stacks.items()
        }
        affinities = {
            name: AffinityTable(self.architecture.stacks[name], batch, items, self.model.names)
            for name, items in self.items.items()
        }

        def attend(place: Call, attention: hook.Attention, scopes: Scopes) -> None:
            stacks[place.stack].add(place.layer, attention, scopes)
            if place.stack in affinities:
                scope = scopes.get(place.stack, attention)[View.NOSINK]
                affinities[place.stack].add(place.layer, attention.weights, scope)

        def found() -> PassResults:
            return PassResults(
                CorpusSums(
                    affinities={name: table.sums() for name, table in affinities.items()},
                    sampled={
                        name: SampleSums(
                            tuple(table.columns),
                            Reservoir.of(self.size, batch.content_hash, batch.index, table.whole),
                            table.cells(self.size),
                        )
                        for name, table in stacks.items()
                        if table.columns
                    },
                )
            )

        return Watch(found, attend)


class _Cells(NamedTuple):
    """Parts of `PairCells` of one layer and one batch."""

    mass: NDArray[np.float64]
    pairs: NDArray[np.float64]
    links: NDArray[np.uint16]


class _Statistics:
    """The statistics of one stack over one batch, filled layer by layer."""

    def __init__(self, stack: Stack, metrics: Sequence[SampledMetric], batch: Batch) -> None:
        self._stack, self._batch, self._sentences = stack, batch, len(batch.items)
        self._asked = [(m, view) for m in metrics if m.applies(stack) for view in m.views]
        self._even: dict[int, list[Floats]] = {}
        self._filled: dict[int, Floats] = {}
        self._cells: dict[int, _Cells] = {}
        self._even_mass: dict[int, Floats] = {}
        self.columns: list[SampleColumn] = []

    def add(self, layer: int, attention: hook.Attention, scopes: Scopes) -> None:
        """Measure one layer."""
        if not self._asked:
            return
        found = scopes.get(self._stack.name, attention)
        views = scopes.views(self._stack.name, attention)
        heads = self._measure(views)
        if id(found) not in self._even:
            maps = Maps(found[View.NOSINK], uniform(found))
            even_views = layer_attentions(found, maps)
            self._even[id(found)] = self._measure(even_views)
            if self._asks_cells:
                even_mass = mass_by_cell(even_views[View.NOSINK], self._choice(found))
                self._even_mass[id(found)] = even_mass
        if self._asks_cells:
            self._cells[layer] = self._cells_of(found, views[View.NOSINK])
        about, even = self._about(found), self._even[id(found)]
        tables = [self._table(*parts) for parts in zip(heads, even, about, strict=True)]
        self.columns = [
            SampleColumn(metric.id, view, table.shape[-1])
            for (metric, view), table in zip(self._asked, tables, strict=True)
        ]
        self._filled[layer] = np.concatenate(tables, -1)

    @property
    def _asks_cells(self) -> bool:
        return any(metric.expected_at is not None for metric, _ in self._asked)

    def _choice(self, scopes: Mapping[View, Scope]) -> NDArray[np.bool_]:
        """Return the sentences from which attention by surface is estimated."""
        counted = scopes[View.NOSINK].once(pairs_by_surface).counted.cpu().numpy()
        chosen: NDArray[np.bool_] = (self._batch.half == CHOICE) & counted
        return chosen

    def _cells_of(self, scopes: Mapping[View, Scope], view: LayerAttention) -> "_Cells":
        choice, scope = self._choice(scopes), scopes[View.NOSINK]
        mass = np.zeros((self._stack.n_heads + 1, self._even_mass[id(scopes)].shape[1]))
        own = mass_by_cell(view, choice)
        mass[: len(own)], mass[-1] = own, self._even_mass[id(scopes)][0]
        return _Cells(mass, pairs_in_cells(scope, choice), linked_cells(scope))

    def cells(self, size: int) -> PairCells | None:
        """Return attention by parts of speech and distance; None if no metric asks for it.

        Args:
            size: number of sentences in the sample.
        """
        if not self._cells:
            return None
        one = next(iter(self._cells.values()))
        nothing = np.full_like(one.links, NO_CELL)
        empty = _Cells(np.zeros_like(one.mass), np.zeros_like(one.pairs), nothing)
        layers = [self._cells.get(layer, empty) for layer in range(self._stack.n_layers)]
        mass, pairs, links = (np.stack(parts) for parts in zip(*layers, strict=True))
        batch = self._batch
        links = np.moveaxis(links, 0, 1)
        return PairCells(mass, pairs, Reservoir.of(size, batch.content_hash, batch.index, links))

    @property
    def whole(self) -> Floats:
        """*Shape:* ``(sentence, layer, head + 2, statistic)``; 0 in layers without attention."""
        empty = np.zeros_like(next(iter(self._filled.values())))
        return np.stack([self._filled.get(i, empty) for i in range(self._stack.n_layers)], 1)

    def _measure(self, views: Mapping[View, LayerAttention]) -> list[Floats]:
        return [metric.measure(views[view]).cpu().numpy() for metric, view in self._asked]

    def _about(self, scopes: Mapping[View, Scope]) -> list[Floats]:
        """What there is to say of the sentences. *Shape:* ``(sentence, statistic)`` each."""
        return [
            np.zeros((self._sentences, 0))
            if metric.about is None
            else metric.about(scopes[view]).cpu().numpy()
            for metric, view in self._asked
        ]

    def _table(self, heads: Floats, even: Floats, about: Floats) -> Floats:
        """One metric's statistics, one below the other, as wide as the widest."""
        n_heads = self._stack.n_heads
        width = max(heads.shape[-1], about.shape[-1])
        table = np.zeros((self._sentences, n_heads + 2, width), heads.dtype)
        table[:, : heads.shape[1], : heads.shape[2]] = heads
        table[:, n_heads + 2 + UNIFORM, : even.shape[2]] = even[:, 0]
        table[:, n_heads + 2 + ABOUT, : about.shape[1]] = about
        return table
