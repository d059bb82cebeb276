"""Statistics of sampled sentences, for metrics that need all sentences at once.

The sample has the sentences with the smallest hashes of their content, so that no seed is needed
and two samples merge into the sample of both corpora.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import N_SPLITS, HashSample
from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import ViewMask
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
from headbook.text.batch import Batch

Floats = NDArray[np.floating]
FitKey = tuple[str, str, int | None, SinkView]  # metric, stack, layer, view
Fits = Mapping[FitKey, NDArray[np.float64] | None]


@dataclass(frozen=True, eq=False)
class SampleFits:
    """Observer that gathers what fits to the whole sample need, before statistics are measured."""

    architecture: Architecture
    metrics: tuple[SampledMetric, ...]
    _counts: dict[FitKey, list[list[object]]] = field(default_factory=dict)

    def observe(self, batch: Batch) -> BatchObserver:
        """Return a callback that gathers the counts of one batch."""

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            views = scopes.views(place.stack, attention)
            for metric in self.metrics:
                if metric.sample_fit and metric.applies(self.architecture.stacks[place.stack]):
                    for view in metric.views:
                        key = metric.id, place.stack, place.layer, view
                        of_halves = self._counts.setdefault(key, [[] for _ in range(N_SPLITS)])
                        counts = metric.sample_fit.gather(views[view])
                        halves = batch.half if metric.sample_fit.crossed else [0] * len(counts)
                        for half, part in zip(halves, counts, strict=True):
                            of_halves[half].append(part)

        return BatchObserver(PassResults, attend)

    def fits(self) -> Fits:
        """Return the fit of each metric, layer and view.

        A crossed metric has a fit for each half. *Shape:* ``(half, …)``, NaN if a half has none.
        """
        fit_of = {metric.id: metric.sample_fit for metric in self.metrics if metric.sample_fit}
        return {
            place: _of_halves([fit_of[place[0]].fit(counts) for counts in of_halves])
            if fit_of[place[0]].crossed
            else fit_of[place[0]].fit(of_halves[0])
            for place, of_halves in self._counts.items()
        }


def _of_halves(fits: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    known = next((fit for fit in fits if fit is not None), None)
    if known is None:
        return None
    return np.stack([np.full_like(known, np.nan) if fit is None else fit for fit in fits])


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
                        )
                        for name, table in stacks.items()
                        if table.columns
                    },
                )
            )

        return BatchObserver(results, attend)


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
            self._even[id(masks)] = self._measure(layer_views(masks, maps))
        of_sentences, uniform = self._about(masks), self._even[id(masks)]
        tables = [
            self._table(*parts) for parts in zip(of_heads, uniform, of_sentences, strict=True)
        ]
        self.columns = [
            SampleColumn(metric.id, view, table.shape[-1], metric.labels)
            for (metric, view), table in zip(self._measures, tables, strict=True)
        ]
        self._filled[layer] = np.concatenate(tables, -1)

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
        return [
            metric.statistics(views[view], self._fit(metric, view, layer)).cpu().numpy()
            for metric, view in self._measures
        ]

    def _fit(
        self, metric: SampledMetric, view: SinkView, layer: int | None
    ) -> NDArray[np.float64] | None:
        """Return the fit of a metric; of a crossed one, the fit of the other half by sentence."""
        fit = self._fits.get((metric.id, self._stack.name, layer, view))
        if fit is None or metric.sample_fit is None or not metric.sample_fit.crossed:
            return fit
        return fit[1 - self._batch.half]

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
