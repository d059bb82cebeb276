"""Measures of head outputs on the sample, in two passes.

The first pass finds each head's similarity thresholds, the second computes the metrics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import RatioSums
from headbook.attention.head_outputs import HeadOutputs
from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import BatchMask, ViewMask
from headbook.attention.pair_cells import PairLimits
from headbook.attention.views import LayerAttention, ViewMasks, layer_views
from headbook.metrics.base import AnchorMetric, ContextMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.load import Model
from headbook.passes.anchors import AnchorAccumulator
from headbook.passes.batch_sums import BatchRatios, BucketAccumulator, head_columns
from headbook.passes.head_sums import uniform_attention
from headbook.passes.observers import BatchObserver, PassResults
from headbook.schema import AttentionStack, SinkView
from headbook.study.corpus_sums import CorpusSums, HeadTable
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence

MAX_TOKEN_PAIRS = 450_000  # pairs of tokens of each head from which thresholds are computed
MAX_SIMILARITIES = 2**26  # of all heads and views in memory to compute thresholds

Place = tuple[str, int, SinkView]  # stack, layer, view
Limits = Mapping[Place, PairLimits]


@dataclass(frozen=True)
class HeadOutputMeasures:
    """The metrics of head outputs for a run."""

    model: Model
    architecture: Architecture
    metrics: tuple[ContextMetric, ...]
    anchors: tuple[AnchorMetric, ...]
    seed: int

    def step(self, items: Iterable[TokenizedSentence]) -> int:
        """Return the sampling step: thresholds are computed from every n-th pair of tokens."""
        n_heads = sum(
            len(stack.attention_layers) * stack.n_heads
            for stack in self.architecture.stacks.values()
        )
        max_pairs = min(MAX_TOKEN_PAIRS, MAX_SIMILARITIES // (n_heads * len(self._views)))
        lengths = (max(int((~t.special).sum()) for t in item.tokens.values()) for item in items)
        n_pairs = sum(length * (length - 1) // 2 for length in lengths)
        return max(1, -(-n_pairs // max_pairs))

    @property
    def _views(self) -> list[SinkView]:
        needed = {view for metric in self.metrics for view in metric.views}
        needed |= {view for metric in self.anchors for view in metric.views}
        return [view for view in SinkView if view in needed]

    def heads(
        self, place: AttentionPlace, views: Mapping[SinkView, LayerAttention], known: Limits
    ) -> dict[SinkView, HeadOutputs]:
        """Return the head outputs of one layer in all views that metrics need."""
        limits = {view: known.get((place.stack, place.layer, view)) for view in self._views}
        return {view: HeadOutputs(views[view], limits[view]) for view in self._views}


@dataclass(frozen=True, eq=False)
class SimilarityThresholds:
    """Finds, for each head, the similarity above which a pair of tokens belongs to the top shares.

    Attributes:
        step: sampling step; every ``step``-th pair of tokens is used.
    """

    sampler: HeadOutputMeasures
    step: int
    _found: dict[Place, list[tuple[NDArray[np.float32], NDArray[np.bool_]]]] = field(
        default_factory=dict
    )
    _distances: dict[Place, NDArray[np.float64]] = field(default_factory=dict)

    def observe(self, _: Batch) -> BatchObserver:
        """Return a callback that keeps the similarities of one batch."""

        def attend(
            call: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            heads = self.sampler.heads(call, scopes.views(call.stack, attention), {})
            for view, head in heads.items():
                if head.outputs is not None:
                    place = call.stack, call.layer, view
                    self._found.setdefault(place, []).append(head.collected(self.step))
                    self._distances[place] = self._distances.get(place, 0.0) + head.distance_sums

        return BatchObserver(PassResults, attend)

    def limits(self) -> Limits:
        """Return the limits of all batches."""
        return {place: self._limits(place) for place in self._found}

    def _limits(self, place: Place) -> PairLimits:
        similarities, same = zip(*self._found[place], strict=True)
        joined = np.concatenate(similarities, 1), np.concatenate(same)
        return PairLimits.of(*joined, self._distances[place])


@dataclass(frozen=True, eq=False)
class HeadOutputSums:
    """Observer that computes the metrics of head outputs, given the similarity thresholds."""

    sampler: HeadOutputMeasures
    known: Limits
    buckets: Mapping[str, BucketAccumulator] = field(default_factory=dict)
    anchors: Mapping[str, AnchorAccumulator] = field(default_factory=dict)

    def observe(self, batch: Batch) -> BatchObserver:
        """Return callbacks that compute the sums of one batch."""
        stacks = self.sampler.architecture.stacks
        metrics = self.sampler.metrics
        tables = {
            name: _HeadOutputTable(stack, metrics, batch, self.buckets.get(name))
            for name, stack in stacks.items()
        }
        counts = {name: sums.batch_counts(batch) for name, sums in self.anchors.items()}

        def attend(
            call: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            views = scopes.views(call.stack, attention)
            heads = self.sampler.heads(call, views, self.known)
            tables[call.stack].add(call.layer, heads)
            if call.stack in counts:
                counts[call.stack].add(call.layer, heads)

        def results() -> PassResults:
            return PassResults(
                CorpusSums(
                    head_outputs={
                        name: table.sums() for name, table in tables.items() if table.columns
                    }
                )
            )

        return BatchObserver(results, attend)


class _HeadOutputTable:
    """Sums of the head-output metrics of one stack over one batch, filled by layer."""

    def __init__(
        self,
        stack: AttentionStack,
        metrics: Sequence[ContextMetric],
        batch: Batch,
        buckets: BucketAccumulator | None = None,
    ) -> None:
        self._half, self._text_hash = batch.half, batch.text_hash
        self._buckets = buckets
        self._metrics = [metric for metric in metrics if metric.applies(stack)]
        self.columns = head_columns([*self._metrics])
        self._n_labels = [len(metric.labels) for metric in self._metrics for _ in metric.views]
        cells = (stack.n_layers, stack.n_heads, len(self.columns))
        self._heads = RatioSums.zero(*cells).sums
        self._layers = RatioSums.zero(cells[0], cells[2]).sums
        self._uniform = RatioSums.zero(cells[0], cells[2]).sums
        self._known: dict[BatchMask, NDArray[np.float64]] = {}

    def add(self, layer: int, heads: Mapping[SinkView, HeadOutputs]) -> None:
        """Add one layer."""
        if not self._metrics:
            return
        n_heads = heads[self._metrics[0].views[0]].layer.attention.shape[1]
        of_heads, of_layer = self._sums(heads, n_heads, layer)
        self._heads[:, :, layer, :n_heads] = of_heads
        self._layers[:, :, layer] = of_layer
        self._uniform[:, :, layer] = self._even(heads[self._metrics[0].views[0]].frame)

    def _even(self, frame: BatchMask) -> NDArray[np.float64]:
        """Return a layer's sums under uniform attention, which has no values.

        All layers with one mask share the sums.
        """
        if frame not in self._known:
            scopes = {view: ViewMask(frame, view) for view in SinkView}
            views = layer_views(
                scopes, AttentionMaps(scopes[SinkView.NOSINK], uniform_attention(scopes))
            )
            heads = {view: HeadOutputs(layer) for view, layer in views.items()}
            self._known[frame] = self._sums(heads, 1)[1]
        return self._known[frame]

    def _sums(
        self, heads: Mapping[SinkView, HeadOutputs], n_heads: int, layer: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the sums of each head and of the layer; some metrics define their own layer value.

        Args:
            layer: index of the model's layer; None for uniform attention.
        """
        measures = [(metric, view) for metric in self._metrics for view in metric.views]
        ratios = [metric.measure(heads[view]) for metric, view in measures]
        parts = BatchRatios.of(ratios, self._n_labels, n_heads)
        if self._buckets is not None and layer is not None:
            self._buckets.add({layer: slice(0, n_heads)}, parts, self._text_hash)
        of_heads, of_layers = parts.sums(self._half)
        of_layer = of_layers[:, :, 0]
        start = 0
        for (metric, view), width in zip(measures, self._n_labels, strict=True):
            if metric.layer is not None:
                part = BatchRatios.of([metric.layer(heads[view])], [width], 1)
                of_layer[..., start : start + width] = part.sums(self._half)[1][:, :, 0]
            start += width
        return of_heads, of_layer

    def sums(self) -> HeadTable:
        """Return the table of head outputs of this batch."""
        sums = (RatioSums(array) for array in (self._heads, self._layers, self._uniform))
        return HeadTable(tuple(self.columns), *sums)
