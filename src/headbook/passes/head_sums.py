"""Sums of head metrics over one batch, of all its sentences, of groups and of pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import HashSample, RatioSums, TopK
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.attention.maps import AttentionMaps, ConcatenatedMaps
from headbook.attention.masks import QueryKeyPairs, ViewMask
from headbook.attention.surface_rules import NOTHING, strongest_words
from headbook.attention.views import LayerAttention, ViewMasks, layer_views
from headbook.attention.word_pairs import asked_of_words
from headbook.inputs import NO_HEAD
from headbook.metrics import ids
from headbook.metrics.base import AttentionMetric
from headbook.model import attention_hook
from headbook.passes.batch_sums import BatchRatios, BucketAccumulator, head_columns
from headbook.schema import RELATIONS, UPOS, AttentionStack, SinkView
from headbook.study.corpus_sums import HeadSums, HeadTable, PositionSums, kept_positions
from headbook.study.groups import (
    PAIR,
    Facets,
    GroupSums,
    PairMembers,
    compared_keys,
    merge_groups,
    pair_key,
    rows_by_value,
    value_of,
)
from headbook.study.word_samples import LONGEST, StrongestWords
from headbook.text.batch import NO_RELATION, NO_TAG, Batch


class PositionAccumulator:
    """The first positions of one stack's maps over one batch, filled layer by layer."""

    def __init__(self, stack: AttentionStack, batch: Batch) -> None:
        side = kept_positions(stack)
        queries, keys = (batch.texts[each].valid[:, :side] for each in (stack.queries, stack.keys))
        self._there = queries[:, :, None] & keys[:, None, :]
        self._sums = PositionSums.zero(stack)
        rows, columns = self._there.shape[1:]
        self._sums.count[:rows, :columns] = self._there.sum(0).cpu().numpy()

    def add(self, layer: int, weights: torch.Tensor) -> None:
        """Take in one layer, weights as the model computed them: ``(sentence, head, query, key)``.

        Rows of padding are left out: a model may put anything there.
        """
        rows, columns = self._there.shape[1:]
        corner = weights[:, :, :rows, :columns].double()
        found = torch.where(self._there.unsqueeze(1), corner, 0).sum(0)
        self._sums.total[layer, : len(found), :rows, :columns] = found.cpu().numpy()

    def sums(self) -> PositionSums:
        """What survives."""
        return self._sums


MOST = 100_000  # words kept, a few thousand sentences
MAX_BYTES = 1 << 25  # bytes that their strongest words may take
BYTES = 2  # of a place in a sentence


class RelationHitsAccumulator:
    """The strongest words of one stack in one batch, filled layer by layer.

    Sentences without annotation take no part, nor do texts of more than `LONGEST` words.
    """

    def __init__(self, stack: AttentionStack, batch: Batch) -> None:
        self._batch, self._stack = batch, stack
        self._texts = batch.texts[stack.queries]
        cells = (stack.n_layers, stack.n_heads)
        self._size = max(1, min(MOST, MAX_BYTES // (BYTES * int(np.prod(cells)))))
        self._strongest = np.full(
            (len(batch.items), self._texts.n_words, *cells), NOTHING, np.int16
        )
        self._asked: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None

    def add(self, layers: Mapping[int, slice], view: LayerAttention) -> None:
        """Take in some layers, seen without the sink.

        Args:
            layers: the heads of each.
        """
        if self._texts.n_words > LONGEST:
            return
        found = view.cached(strongest_words).cpu().numpy().transpose(0, 2, 1)
        for layer, heads in layers.items():
            self._strongest[:, :, layer, : heads.stop - heads.start] = found[..., heads]
        if self._asked is None:
            # The same for all layers; where some see less far than others, that of the first.
            self._asked = asked_of_words(view.scope).cpu().numpy().astype(np.uint8)

    def sums(self) -> StrongestWords:
        """Return the words of this batch that are kept."""
        texts, batch, scheme = self._texts, self._batch, self._texts.scheme
        there = (texts.tagged | texts.parsed).squeeze(1).cpu().numpy()
        if self._asked is None:
            self._asked = np.zeros((len(there), texts.n_words), np.uint8)
            there = np.zeros_like(there)
        lengths = np.where(there, texts.word.amax(1).cpu().numpy() + 1, 0)
        inside = np.arange(texts.n_words) < lengths[:, None]
        tag, relation, head = (
            texts.by_word(values, fill).cpu().numpy().astype(np.int16)[inside]
            for values, fill in (
                (texts.tag, NO_TAG), (texts.relation, NO_RELATION), (texts.head, NO_HEAD),
            )
        )  # fmt: skip
        kept = lengths > 0
        return StrongestWords(
            size=self._size,
            causal=self._stack.causal,
            content_hash=batch.content_hash[kept],
            index=batch.index[kept],
            lengths=lengths[kept].astype(np.int64),
            strongest=self._strongest[inside],
            tag=tag,
            relation=relation,
            head=head,
            asked=self._asked[inside],
            own_tags=scheme.tags[len(UPOS) :],
            own=scheme.relations[len(RELATIONS) :],
        ).smallest()


WORD_METRICS = (ids.RELATION_ACCURACY, ids.SURFACE_RULE)  # whose tests need words one by one
MOST_HEADS = 144  # that are measured together
MOST_BYTES = 1 << 26  # of maps that wait for that
RANKING_SAMPLE = 2000  # sentences among which quantiles of the ranking are found
MASSIVE = 2  # sentences that are kept by their mass off the sink
MOST_PAIRS = 1000  # pairs of sentences whose values are kept


@dataclass
class _PendingLayers:
    """Layers with one mask, until they are measured together.

    Attributes:
        pairs: those whose mass metrics ask for.
        layers: the heads of each layer, side by side.
        maps: theirs; before them, once, those of the control, which looks everywhere alike.
        uniform: its sums for each selection of sentences, when they are there.
    """

    scopes: Mapping[SinkView, ViewMask]
    pairs: tuple[QueryKeyPairs, ...]
    maps: list[AttentionMaps]
    layers: dict[int, slice] = field(default_factory=dict)
    uniform: list[Floats] = field(default_factory=list)

    @property
    def n_heads(self) -> int:
        """Heads that wait."""
        return sum(maps.attention.shape[1] for maps in self.maps)

    @property
    def full(self) -> bool:
        """Whether there is enough to measure."""
        size = sum(maps.attention.nbytes for maps in self.maps)
        return self.n_heads >= MOST_HEADS or size > MOST_BYTES

    def take(self, layer: int, maps: AttentionMaps) -> None:
        """Let a layer wait."""
        first = self.n_heads
        self.layers[layer] = slice(first, first + maps.attention.shape[1])
        self.maps.append(maps)


class _SentenceSubset:
    """Some of a batch's sentences and their sums.

    Attributes:
        column, value: what they share; empty for all sentences.
        where: their places in the batch; None for all.
    """

    def __init__(
        self, stack: AttentionStack, n_columns: int, column: str = "", value: str = "",
        where: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self.column, self.value, self.where = column, value, where
        cells = (stack.n_layers, stack.n_heads, n_columns)
        self.heads = RatioSums.zero(*cells).sums
        self.layers = RatioSums.zero(cells[0], cells[2]).sums
        self.uniform = RatioSums.zero(cells[0], cells[2]).sums

    def sums(
        self, parts: BatchRatios, half: Ints, starts: Sequence[int] = ()
    ) -> tuple[Floats, Floats]:
        """What `BatchRatios.sums` gives for these sentences."""
        if self.where is None:
            return parts.sums(half, starts)
        return parts.of_some(self.where).sums(half[self.where], starts)

    def group(self) -> GroupSums:
        """What survives, halves added up."""
        found = (self.heads, self.layers, self.uniform)
        kept = (RatioSums(sums.sum(1, keepdims=True)) for sums in found)
        return GroupSums(self.column, self.value, len(self.where or ()), *kept)


class HeadAccumulator:
    """The measures of one stack over one batch, filled layer by layer."""

    def __init__(
        self,
        stack: AttentionStack,
        metrics: tuple[AttentionMetric, ...],
        batch: Batch,
        facets: Facets,
        buckets: BucketAccumulator | None = None,
    ) -> None:
        self._stack, self._batch, self._facets = stack, batch, facets
        self._buckets = buckets
        self._metrics = [m for m in metrics if m.applies(stack)]
        self.columns = head_columns(self._metrics)
        self._n_labels = [len(m.labels) for m in self._metrics for _ in m.views]
        cells = (stack.n_layers, stack.n_heads)
        self._strongest = np.full((len(batch.items), *cells), -np.inf)
        self._massive = np.full((len(batch.items), *cells), -np.inf)
        self._waiting: dict[int, _PendingLayers] = {}
        asks = any(metric.id in WORD_METRICS for metric in self._metrics)
        self._strongest_words = RelationHitsAccumulator(stack, batch) if asks else None
        self._corners = PositionAccumulator(stack, batch)
        self._selections = [
            _SentenceSubset(stack, len(self.columns)),
            *(
                _SentenceSubset(stack, len(self.columns), column, value, where)
                for column in (facets.columns if self._metrics else ())
                for value, where in rows_by_value(self._of(column)).items()
            ),
        ]
        self._members = [index for index, pair in enumerate(self._of(PAIR)) if pair]
        self._places = compared_keys(self._metrics, self.columns, stack) if facets.paired else ()
        self._values = np.full((len(self._members), *cells, len(self._places)), np.nan, np.float32)

    def _of(self, column: str) -> list[str]:
        return [value_of(item.sentence, column) for item in self._batch.items]

    def add(self, layer: int, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Take in one layer; measure when enough have come together."""
        self._corners.add(layer, attention.weights)
        found = scopes.get(self._stack.name, attention)
        if id(found) not in self._waiting:
            self._waiting[id(found)] = self._begun(found)
        layers = self._waiting[id(found)]
        kept = replace(attention, module=None, query=None, key=None, output=None)
        layers.take(layer, AttentionMaps(found[SinkView.NOSINK], kept))
        if layers.full:
            self._measure(layers)

    def _begun(self, scopes: Mapping[SinkView, ViewMask]) -> _PendingLayers:
        """A mask's layers, none yet."""
        frame, scope = scopes[SinkView.RAW].frame, scopes[SinkView.NOSINK]
        asked = () if self._stack.crosses else self._metrics
        pairs = tuple(frame.cached(metric.pairs) for metric in asked if metric.pairs is not None)
        return _PendingLayers(scopes, pairs, [AttentionMaps(scope, uniform_attention(scopes))])

    def _measure(self, waiting: _PendingLayers) -> None:
        """All metrics in all their views, for the layers that wait."""
        if not waiting.layers:
            return
        maps = ConcatenatedMaps(waiting.scopes[SinkView.NOSINK], waiting.maps, waiting.pairs)
        views = layer_views(waiting.scopes, maps)
        best = views[SinkView.NOSINK].strongest.weight.amax(-1).cpu().numpy()
        queries = views[SinkView.NOSINK].frame.n_queries.double().cpu().numpy()
        mass = divide(views[SinkView.NOSINK].total.double().cpu().numpy(), queries)
        for layer, heads in waiting.layers.items():
            here = (slice(None), layer, slice(heads.stop - heads.start))
            self._strongest[here] = best[:, heads]
            self._massive[here] = np.where(queries > 0, mass[:, heads], -np.inf)
        if self._metrics:
            if self._strongest_words is not None:
                self._strongest_words.add(waiting.layers, views[SinkView.NOSINK])
            ratios = [m.measure(views[view]) for m in self._metrics for view in m.views]
            self._add_up(waiting, BatchRatios.of(ratios, self._n_labels, waiting.n_heads))
        waiting.layers.clear()
        waiting.maps.clear()

    def _add_up(self, waiting: _PendingLayers, parts: BatchRatios) -> None:
        """Sums of every selection, and the values of members of pairs."""
        first = not waiting.uniform
        starts = [heads.start for heads in waiting.layers.values()]
        starts = [*([0] if first else []), *starts, waiting.n_heads]
        own = self._chances(waiting.scopes) if first else None
        for number, selection in enumerate(self._selections):
            of_heads, of_layers = selection.sums(parts, self._batch.half, starts)
            if first:
                waiting.uniform.append(self._with_chance(of_layers[:, :, 0], own, selection))
                of_layers = of_layers[:, :, 1:]
            for index, (layer, heads) in enumerate(waiting.layers.items()):
                size = heads.stop - heads.start
                selection.heads[:, :, layer, :size] = of_heads[:, :, heads]
                selection.layers[:, :, layer] = of_layers[:, :, index]
                selection.uniform[:, :, layer] = waiting.uniform[number]
        if self._buckets is not None:
            self._buckets.add(waiting.layers, parts, self._batch.text_hash)
        if self._members and self._places:
            values = parts.values(self._members, self._places)
            for layer, heads in waiting.layers.items():
                self._values[:, layer, : heads.stop - heads.start] = values[:, heads]

    def _chances(self, scopes: Mapping[SinkView, ViewMask]) -> BatchRatios | None:
        """What metrics compute for the control in their own way."""
        asked = [(m.chance, view) for m in self._metrics for view in m.views]
        ratios = [chance(scopes[view]) for chance, view in asked if chance is not None]
        if not ratios:
            return None
        return BatchRatios.of(ratios, np.array(self._n_labels)[self._own].tolist(), 1)

    @property
    def _own(self) -> NDArray[np.bool_]:
        """The measures that do so."""
        return np.array([m.chance is not None for m in self._metrics for _ in m.views])

    def _with_chance(
        self, sums: Floats, own: BatchRatios | None, selection: _SentenceSubset
    ) -> Floats:
        """The control's sums, with those of metrics that have their own way."""
        if own is not None:
            _, found = selection.sums(own, self._batch.half)
            sums[..., np.repeat(self._own, self._n_labels)] = found[:, :, 0]
        return sums

    def sums(self, exemplars: int) -> HeadSums:
        """What survives."""
        for waiting in self._waiting.values():
            self._measure(waiting)
        batch, scores = self._batch, self._strongest
        every, *groups = self._selections
        return HeadSums(
            table=HeadTable(
                tuple(self.columns),
                RatioSums(every.heads),
                RatioSums(every.layers),
                RatioSums(every.uniform),
            ),
            strongest=TopK.of(exemplars, scores, batch.index, batch.content_hash),
            sample=HashSample.of(
                RANKING_SAMPLE, batch.content_hash, batch.index, scores.astype(np.float32)
            ),
            strongest_words=self._strongest_words.sums()
            if self._strongest_words is not None
            else None,
            groups=merge_groups(selection.group() for selection in groups),
            members=self._kept() if self._places else None,
            positions=self._corners.sums(),
            mass_off_sink=TopK.of(MASSIVE, self._massive, batch.index, batch.content_hash),
        )

    def _kept(self) -> PairMembers:
        """The members of pairs in this batch."""
        pairs, names = self._of(PAIR), self._facets.members
        return PairMembers(
            MOST_PAIRS,
            self._places,
            np.array([pair_key(pairs[member]) for member in self._members], np.uint64),
            self._batch.index[self._members],
            {name: tuple(self._of(name)[member] for member in self._members) for name in names},
            self._values,
        ).smallest()


def uniform_attention(scopes: Mapping[SinkView, ViewMask]) -> attention_hook.AttentionCall:
    """Attention that gives every key a query may see the same weight, for one head."""
    frame = scopes[SinkView.RAW].frame
    seen = frame.attention_mask.to(frame.dtype)
    weights = (seen / seen.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(1)
    return attention_hook.AttentionCall(None, None, None, None, None, weights, None)
