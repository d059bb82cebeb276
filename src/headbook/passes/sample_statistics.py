"""Statistics of sampled sentences, for metrics that need all sentences at once.

The sample has the sentences with the smallest hashes of their content, so that no seed is needed
and two samples merge into the sample of both corpora.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import SELECTION, HashSample
from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import ViewMask
from headbook.attention.surface_rules import (
    NO_CELL,
    linked_cells,
    mass_by_cell,
    pairs_by_surface,
    pairs_in_cells,
)
from headbook.attention.views import LayerAttention, ViewMasks, layer_views
from headbook.metrics.base import SampledMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.load import Model
from headbook.passes.head_sums import uniform_attention
from headbook.passes.observers import BatchObserver, PassResults
from headbook.passes.token_affinities import AffinityAccumulator, TrackedTokens
from headbook.schema import AttentionStack, SinkView
from headbook.study.corpus_sums import (
    SENTENCE_ROW,
    UNIFORM_ROW,
    CorpusSums,
    SampleColumn,
    SampleSums,
)
from headbook.study.sums.word_samples import PairCells
from headbook.text.batch import Batch

Floats = NDArray[np.floating]
FitKey = tuple[str, str, int | None, SinkView]  # metric, stack, layer, view
Fits = Mapping[FitKey, NDArray[np.float64] | None]


@dataclass(frozen=True, eq=False)
class SampleFits:
    """Observer that gathers what fits to the whole sample need, before statistics are measured."""

    architecture: Architecture
    metrics: tuple[SampledMetric, ...]
    _counts: dict[FitKey, list[object]] = field(default_factory=dict)

    def observe(self, _: Batch) -> BatchObserver:
        """Return a callback that gathers the counts of one batch."""

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            views = scopes.views(place.stack, attention)
            for metric in self.metrics:
                if metric.sample_fit and metric.applies(self.architecture.stacks[place.stack]):
                    for view in metric.views:
                        counts = metric.sample_fit.gather(views[view])
                        key = metric.id, place.stack, place.layer, view
                        self._counts.setdefault(key, []).extend(counts)

        return BatchObserver(PassResults, attend)

    def fits(self) -> Fits:
        """Return the fit of each metric, layer and view."""
        fit_of = {metric.id: metric.sample_fit.fit for metric in self.metrics if metric.sample_fit}
        return {place: fit_of[place[0]](counts) for place, counts in self._counts.items()}


@dataclass(frozen=True)
class SampleStatistics:
    """Observer that computes the statistics of sampled metrics for a run.

    Attributes:
        size: number of sentences in the sample.
        items: by stack, the tokens and pairs of tokens to sum; empty for none.
        fits: fits to the whole sample, for metrics that need one.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[SampledMetric, ...]
    size: int
    items: Mapping[str, TrackedTokens] = field(default_factory=dict)
    fits: Fits = field(default_factory=dict)

    def observe(self, batch: Batch) -> BatchObserver:
        """Return callbacks that compute the statistics of one batch."""
        stacks = {
            name: _Statistics(stack, self.metrics, batch, self.fits)
            for name, stack in self.architecture.stacks.items()
        }
        affinities = {
            name: AffinityAccumulator(
                self.architecture.stacks[name], batch, items, self.model.token_strings
            )
            for name, items in self.items.items()
        }

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            stacks[place.stack].add(place.layer, attention, scopes)
            if place.stack in affinities:
                scope = scopes.get(place.stack, attention)[SinkView.NOSINK]
                affinities[place.stack].add(place.layer, attention.weights, scope)

        def results() -> PassResults:
            return PassResults(
                CorpusSums(
                    affinities={name: table.sums() for name, table in affinities.items()},
                    sampled={
                        name: SampleSums(
                            tuple(table.columns),
                            HashSample.of(self.size, batch.content_hash, batch.index, table.whole),
                            table.cells(self.size),
                        )
                        for name, table in stacks.items()
                        if table.columns
                    },
                )
            )

        return BatchObserver(results, attend)


class _Cells(NamedTuple):
    """The arrays of `PairCells` for one layer and one batch."""

    mass: NDArray[np.float64]
    pairs: NDArray[np.float64]
    links: NDArray[np.uint16]


class _Statistics:
    """The statistics of one stack over one batch, filled by layer."""

    def __init__(
        self, stack: AttentionStack, metrics: Sequence[SampledMetric], batch: Batch, fits: Fits
    ) -> None:
        self._stack, self._batch, self._sentences = stack, batch, len(batch.items)
        self._fits = fits
        self._measures = [
            (metric, view) for metric in metrics if metric.applies(stack) for view in metric.views
        ]
        self._even: dict[int, list[Floats]] = {}
        self._filled: dict[int, Floats] = {}
        self._cells: dict[int, _Cells] = {}
        self._even_mass: dict[int, Floats] = {}
        self.columns: list[SampleColumn] = []

    def add(self, layer: int, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Measure one layer."""
        if not self._measures:
            return
        masks = scopes.get(self._stack.name, attention)
        views = scopes.views(self._stack.name, attention)
        of_heads = self._measure(views, layer)
        if id(masks) not in self._even:
            maps = AttentionMaps(masks[SinkView.NOSINK], uniform_attention(masks))
            even_views = layer_views(masks, maps)
            self._even[id(masks)] = self._measure(even_views)
            if self._needs_cells:
                even_mass = mass_by_cell(even_views[SinkView.NOSINK], self._choice(masks))
                self._even_mass[id(masks)] = even_mass
        if self._needs_cells:
            self._cells[layer] = self._cells_of(masks, views[SinkView.NOSINK])
        of_sentences, uniform = self._about(masks), self._even[id(masks)]
        tables = [
            self._table(*parts) for parts in zip(of_heads, uniform, of_sentences, strict=True)
        ]
        self.columns = [
            SampleColumn(metric.id, view, table.shape[-1])
            for (metric, view), table in zip(self._measures, tables, strict=True)
        ]
        self._filled[layer] = np.concatenate(tables, -1)

    @property
    def _needs_cells(self) -> bool:
        return any(metric.expected_at is not None for metric, _ in self._measures)

    def _choice(self, scopes: Mapping[SinkView, ViewMask]) -> NDArray[np.bool_]:
        """Return the sentences from which attention by surface is estimated."""
        counted = scopes[SinkView.NOSINK].cached(pairs_by_surface).counted.cpu().numpy()
        chosen: NDArray[np.bool_] = (self._batch.half == SELECTION) & counted
        return chosen

    def _cells_of(self, scopes: Mapping[SinkView, ViewMask], view: LayerAttention) -> "_Cells":
        choice, scope = self._choice(scopes), scopes[SinkView.NOSINK]
        mass = np.zeros((self._stack.n_heads + 1, self._even_mass[id(scopes)].shape[1]))
        mass_of_heads = mass_by_cell(view, choice)
        mass[: len(mass_of_heads)], mass[-1] = mass_of_heads, self._even_mass[id(scopes)][0]
        return _Cells(mass, pairs_in_cells(scope, choice), linked_cells(scope))

    def cells(self, size: int) -> PairCells | None:
        """Return attention by parts of speech and distance; None if no metric asks for it.

        Args:
            size: number of sentences in the sample.
        """
        if not self._cells:
            return None
        any_layer = next(iter(self._cells.values()))
        no_links = np.full_like(any_layer.links, NO_CELL)
        empty = _Cells(np.zeros_like(any_layer.mass), np.zeros_like(any_layer.pairs), no_links)
        layers = [self._cells.get(layer, empty) for layer in range(self._stack.n_layers)]
        mass, pairs, links = (np.stack(parts) for parts in zip(*layers, strict=True))
        batch = self._batch
        links = np.moveaxis(links, 0, 1)
        return PairCells(mass, pairs, HashSample.of(size, batch.content_hash, batch.index, links))

    @property
    def whole(self) -> Floats:
        """Statistics of all layers; 0 in layers without attention.

        *Shape:* ``(sentence, layer, head + 2, statistic)``.
        """
        empty = np.zeros_like(next(iter(self._filled.values())))
        return np.stack([self._filled.get(i, empty) for i in range(self._stack.n_layers)], 1)

    def _measure(
        self, views: Mapping[SinkView, LayerAttention], layer: int | None = None
    ) -> list[Floats]:
        """Return the statistics of each metric and view; without a layer, of uniform attention."""
        stack = self._stack.name
        return [
            metric.statistics(views[view], self._fits.get((metric.id, stack, layer, view)))
            .cpu()
            .numpy()
            for metric, view in self._measures
        ]

    def _about(self, scopes: Mapping[SinkView, ViewMask]) -> list[Floats]:
        """Return the statistics of the sentences themselves, for each metric and view.

        *Shape:* ``(sentence, statistic)`` each.
        """
        return [
            np.zeros((self._sentences, 0))
            if metric.sentence_statistics is None
            else metric.sentence_statistics(scopes[view]).cpu().numpy()
            for metric, view in self._measures
        ]

    def _table(self, heads: Floats, uniform: Floats, of_sentences: Floats) -> Floats:
        """Return the statistics of heads, of uniform attention and of sentences in one table.

        *Shape:* ``(sentence, head + 2, statistic)``, as wide as the widest of the three.
        """
        n_heads = self._stack.n_heads
        width = max(heads.shape[-1], of_sentences.shape[-1])
        table = np.zeros((self._sentences, n_heads + 2, width), heads.dtype)
        table[:, : heads.shape[1], : heads.shape[2]] = heads
        table[:, n_heads + 2 + UNIFORM_ROW, : uniform.shape[2]] = uniform[:, 0]
        table[:, n_heads + 2 + SENTENCE_ROW, : of_sentences.shape[1]] = of_sentences
        return table
