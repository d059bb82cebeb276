"""The second pass: measures that need several passes or all pairs of heads, on a few sentences.

The sentences are those with the smallest hashes of their content, so that the sample needs no seed
and two samples merge into the sample of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Reservoir
from headbook.attention.frame import Scope
from headbook.attention.layerattention import LayerAttention, layer_attentions
from headbook.attention.maps import Maps
from headbook.attention.scopes import Scopes
from headbook.metrics.base import SampledMetric
from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.model import Model
from headbook.passes.tables.affinitytable import AffinityTable, Items
from headbook.passes.tables.headtable import uniform
from headbook.passes.watch import PassResults, Watch
from headbook.study.summaries.finish import ABOUT, UNIFORM
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
                        )
                        for name, table in stacks.items()
                        if table.columns
                    },
                )
            )

        return Watch(found, attend)


class _Statistics:
    """The statistics of one stack over one batch, filled layer by layer."""

    def __init__(self, stack: Stack, metrics: Sequence[SampledMetric], batch: Batch) -> None:
        self._stack, self._sentences = stack, len(batch.items)
        self._asked = [(m, view) for m in metrics if m.applies(stack) for view in m.views]
        self._even: dict[int, list[Floats]] = {}
        self._filled: dict[int, Floats] = {}
        self.columns: list[SampleColumn] = []

    def add(self, layer: int, attention: hook.Attention, scopes: Scopes) -> None:
        """Measure one layer."""
        if not self._asked:
            return
        found = scopes.get(self._stack.name, attention)
        heads = self._measure(scopes.views(self._stack.name, attention))
        if id(found) not in self._even:
            maps = Maps(found[View.NOSINK], uniform(found))
            self._even[id(found)] = self._measure(layer_attentions(found, maps))
        about, even = self._about(found), self._even[id(found)]
        tables = [self._table(*parts) for parts in zip(heads, even, about, strict=True)]
        self.columns = [
            SampleColumn(metric.id, view, table.shape[-1])
            for (metric, view), table in zip(self._asked, tables, strict=True)
        ]
        self._filled[layer] = np.concatenate(tables, -1)

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
