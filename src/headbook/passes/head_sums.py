"""Sums of head metrics over one batch: of all sentences, of groups, and of minimal pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import HashSample, RatioSums, TopK
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.attention.maps import AttentionMaps, ConcatenatedMaps
from headbook.attention.masks import QueryKeyPairs, ViewMask
from headbook.attention.surface_rules import NO_SELECTION, strongest_words
from headbook.attention.views import LayerAttention, ViewMasks, layer_views
from headbook.attention.word_pairs import testable_properties
from headbook.inputs import NO_HEAD
from headbook.metrics import ids
from headbook.metrics.base import AttentionMetric
from headbook.model import attention_hook
from headbook.passes.batch_sums import BatchRatios, BucketAccumulator, head_columns
from headbook.schema import RELATIONS, UPOS, AttentionStack, SinkView
from headbook.study.corpus_sums import HeadSums, HeadTable, PositionSums, kept_positions
from headbook.study.groups import (
    PAIR_COLUMN,
    Facets,
    GroupSums,
    PairMembers,
    compared_keys,
    merge_groups,
    pair_key,
    rows_by_value,
    value_of,
)
from headbook.study.sums.word_samples import MAX_SENTENCE_WORDS, StrongestWords
from headbook.text.batch import NO_RELATION, NO_TAG, Batch


class PositionAccumulator:
    """Sums of the first positions of one stack's attention maps over one batch, filled by layer."""

    def __init__(self, stack: AttentionStack, batch: Batch) -> None:
        n_positions = kept_positions(stack)
        queries, keys = (
            batch.texts[side].valid[:, :n_positions] for side in (stack.queries, stack.keys)
        )
        self._valid = queries[:, :, None] & keys[:, None, :]
        self._sums = PositionSums.zero(stack)
        rows, columns = self._valid.shape[1:]
        self._sums.count[:rows, :columns] = self._valid.sum(0).cpu().numpy()

    def add(self, layer: int, weights: torch.Tensor) -> None:
        """Add one layer's weights as the model computed them.

        *Shape:* ``(sentence, head, query, key)``.

        Rows of padding are left out, because a model may put any number there.
        """
        rows, columns = self._valid.shape[1:]
        corner = weights[:, :, :rows, :columns].double()
        sums = torch.where(self._valid.unsqueeze(1), corner, 0).sum(0)
        self._sums.total[layer, : len(sums), :rows, :columns] = sums.cpu().numpy()

    def sums(self) -> PositionSums:
        """Return the attention sums by position of this batch."""
        return self._sums


MAX_WORDS = 100_000  # whose strongest words are kept: those of a few thousand sentences
MAX_WORD_BYTES = 1 << 25  # of the strongest words of all heads
POSITION_BYTES = 2  # of a word's position in its sentence


class RelationHitsAccumulator:
    """The word with the largest attention of every word and head of one stack, filled by layer.

    Sentences without annotation and texts of more than `MAX_SENTENCE_WORDS` words are left out.
    """

    def __init__(self, stack: AttentionStack, batch: Batch) -> None:
        self._batch, self._stack = batch, stack
        self._texts = batch.texts[stack.queries]
        cells = (stack.n_layers, stack.n_heads)
        self._size = max(
            1, min(MAX_WORDS, MAX_WORD_BYTES // (POSITION_BYTES * int(np.prod(cells))))
        )
        self._strongest = np.full(
            (len(batch.items), self._texts.n_words, *cells), NO_SELECTION, np.int16
        )
        self._asked: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None

    def add(self, layers: Mapping[int, slice], view: LayerAttention) -> None:
        """Add the strongest words of some layers, with the sink masked.

        Args:
            layers: the slice of heads of each layer.
        """
        if self._texts.n_words > MAX_SENTENCE_WORDS:
            return
        strongest = view.cached(strongest_words).cpu().numpy().transpose(0, 2, 1)
        for layer, heads in layers.items():
            self._strongest[:, :, layer, : heads.stop - heads.start] = strongest[..., heads]
        if self._asked is None:
            # Equal in all layers; if the layers' masks differ, the first layer's mask counts.
            self._asked = testable_properties(view.scope).cpu().numpy().astype(np.uint8)

    def sums(self) -> StrongestWords:
        """Return the strongest words of this batch that are kept."""
        texts, batch, scheme = self._texts, self._batch, self._texts.scheme
        annotated = (texts.tagged | texts.parsed).squeeze(1).cpu().numpy()
        if self._asked is None:
            self._asked = np.zeros((len(annotated), texts.n_words), np.uint8)
            annotated = np.zeros_like(annotated)
        lengths = np.where(annotated, texts.word.amax(1).cpu().numpy() + 1, 0)
        is_word = np.arange(texts.n_words) < lengths[:, None]
        tag, relation, head = (
            texts.by_word(values, fill).cpu().numpy().astype(np.int16)[is_word]
            for values, fill in (
                (texts.tag, NO_TAG), (texts.relation, NO_RELATION), (texts.head, NO_HEAD),
            )
        )  # fmt: skip
        has_words = lengths > 0
        return StrongestWords(
            size=self._size,
            causal=self._stack.causal,
            content_hash=batch.content_hash[has_words],
            index=batch.index[has_words],
            lengths=lengths[has_words].astype(np.int64),
            strongest=self._strongest[is_word],
            tag=tag,
            relation=relation,
            head=head,
            asked=self._asked[is_word],
            own_tags=scheme.tags[len(UPOS) :],
            own=scheme.relations[len(RELATIONS) :],
        ).smallest()


WORD_METRICS = (ids.RELATION_ACCURACY, ids.SURFACE_RULE)  # metrics whose tests need every word
MAX_PENDING_HEADS = 144  # heads that are kept until they are measured together
MAX_PENDING_BYTES = 1 << 26  # of maps that are kept until they are measured
RANKING_SAMPLE = 2000  # sentences from which quantiles of the largest weight are computed
N_MASSIVE_SENTENCES = 2  # sentences kept per head with the most attention outside the sink
MAX_MINIMAL_PAIRS = 1000  # minimal pairs whose values are kept


@dataclass
class _PendingLayers:
    """Layers with one attention mask that are kept until they are measured together.

    Attributes:
        scopes: the view masks of these layers.
        pairs: the kinds of query-key pairs whose attention mass metrics need.
        maps: the maps of these layers; the first, until it is measured, is uniform attention.
        layers: the slice of heads of each layer, side by side.
        uniform: the sums under uniform attention for each subset of sentences, once computed.
    """

    scopes: Mapping[SinkView, ViewMask]
    pairs: tuple[QueryKeyPairs, ...]
    maps: list[AttentionMaps]
    layers: dict[int, slice] = field(default_factory=dict)
    uniform: list[Floats] = field(default_factory=list)

    @property
    def n_heads(self) -> int:
        """Number of heads that are not yet measured."""
        return sum(maps.attention.shape[1] for maps in self.maps)

    @property
    def full(self) -> bool:
        """Whether enough heads or bytes have been collected to measure."""
        size = sum(maps.attention.nbytes for maps in self.maps)
        return self.n_heads >= MAX_PENDING_HEADS or size > MAX_PENDING_BYTES

    def take(self, layer: int, maps: AttentionMaps) -> None:
        """Add a layer that is measured later."""
        first = self.n_heads
        self.layers[layer] = slice(first, first + maps.attention.shape[1])
        self.maps.append(maps)


class _SentenceSubset:
    """Sums of a batch's sentences, of all or of a group.

    Attributes:
        column, value: metadata column and value of the group; empty for all sentences.
        where: rows of the sentences in the batch; None for all.
        heads, layers, uniform: sums of heads, of layers, and of uniform attention.
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
        """Return the sums of `BatchRatios.sums` over the sentences of this subset."""
        if self.where is None:
            return parts.sums(half, starts)
        return parts.of_some(self.where).sums(half[self.where], starts)

    def group(self) -> GroupSums:
        """Return the sums of this group, both halves of the sentences added up."""
        tables = (self.heads, self.layers, self.uniform)
        half_sums = (RatioSums(sums.sum(1, keepdims=True)) for sums in tables)
        return GroupSums(self.column, self.value, len(self.where or ()), *half_sums)


class HeadAccumulator:
    """Sums of the head metrics of one stack over one batch, filled by layer."""

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
        self._metrics = [metric for metric in metrics if metric.applies(stack)]
        self.columns = head_columns(self._metrics)
        self._n_labels = [len(metric.labels) for metric in self._metrics for _ in metric.views]
        cells = (stack.n_layers, stack.n_heads)
        self._strongest = np.full((len(batch.items), *cells), -np.inf)
        self._massive = np.full((len(batch.items), *cells), -np.inf)
        self._waiting: dict[int, _PendingLayers] = {}
        needs_words = any(metric.id in WORD_METRICS for metric in self._metrics)
        self._strongest_words = RelationHitsAccumulator(stack, batch) if needs_words else None
        self._corners = PositionAccumulator(stack, batch)
        self._selections = [
            _SentenceSubset(stack, len(self.columns)),
            *(
                _SentenceSubset(stack, len(self.columns), column, value, rows)
                for column in (facets.columns if self._metrics else ())
                for value, rows in rows_by_value(self._of(column)).items()
            ),
        ]
        self._members = [index for index, pair in enumerate(self._of(PAIR_COLUMN)) if pair]
        self._places = compared_keys(self._metrics, self.columns, stack) if facets.paired else ()
        self._values = np.full((len(self._members), *cells, len(self._places)), np.nan, np.float32)

    def _of(self, column: str) -> list[str]:
        return [value_of(item.sentence, column) for item in self._batch.items]

    def add(self, layer: int, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Add one layer, and measure all pending layers with this mask if there are enough."""
        self._corners.add(layer, attention.weights)
        masks = scopes.get(self._stack.name, attention)
        if id(masks) not in self._waiting:
            self._waiting[id(masks)] = self._begun(masks)
        layers = self._waiting[id(masks)]
        weights_only = replace(attention, module=None, query=None, key=None, output=None)
        layers.take(layer, AttentionMaps(masks[SinkView.NOSINK], weights_only))
        if layers.full:
            self._measure(layers)

    def _begun(self, scopes: Mapping[SinkView, ViewMask]) -> _PendingLayers:
        """Return an empty set of pending layers for a mask."""
        frame, scope = scopes[SinkView.RAW].frame, scopes[SinkView.NOSINK]
        metrics = () if self._stack.crosses else self._metrics
        pairs = tuple(frame.cached(metric.pairs) for metric in metrics if metric.pairs is not None)
        return _PendingLayers(scopes, pairs, [AttentionMaps(scope, uniform_attention(scopes))])

    def _measure(self, waiting: _PendingLayers) -> None:
        """Compute all metrics in all their views for the pending layers."""
        if not waiting.layers:
            return
        maps = ConcatenatedMaps(waiting.scopes[SinkView.NOSINK], waiting.maps, waiting.pairs)
        views = layer_views(waiting.scopes, maps)
        # A query with a single key left gives all it has to that key, whatever the head prefers.
        has_choice = views[SinkView.NOSINK].scope.has_choice.unsqueeze(1)
        weights = views[SinkView.NOSINK].strongest.weight.masked_fill(~has_choice, -torch.inf)
        strongest = weights.amax(-1).cpu().numpy()
        queries = views[SinkView.NOSINK].frame.n_queries.double().cpu().numpy()
        mass = divide(views[SinkView.NOSINK].total.double().cpu().numpy(), queries)
        for layer, heads in waiting.layers.items():
            cells = (slice(None), layer, slice(heads.stop - heads.start))
            self._strongest[cells] = strongest[:, heads]
            self._massive[cells] = np.where(queries > 0, mass[:, heads], -np.inf)
        if self._metrics:
            if self._strongest_words is not None:
                self._strongest_words.add(waiting.layers, views[SinkView.NOSINK])
            ratios = [
                metric.measure(views[view]) for metric in self._metrics for view in metric.views
            ]
            self._add_up(waiting, BatchRatios.of(ratios, self._n_labels, waiting.n_heads))
        waiting.layers.clear()
        waiting.maps.clear()

    def _add_up(self, waiting: _PendingLayers, parts: BatchRatios) -> None:
        """Add up the sums of every subset of sentences, and store the values of pair members."""
        is_first = not waiting.uniform
        starts = [heads.start for heads in waiting.layers.values()]
        starts = [*([0] if is_first else []), *starts, waiting.n_heads]
        own_ratios = self._chances(waiting.scopes) if is_first else None
        for number, selection in enumerate(self._selections):
            of_heads, of_layers = selection.sums(parts, self._batch.half, starts)
            if is_first:
                waiting.uniform.append(self._with_chance(of_layers[:, :, 0], own_ratios, selection))
                of_layers = of_layers[:, :, 1:]
            for index, (layer, heads) in enumerate(waiting.layers.items()):
                n_heads = heads.stop - heads.start
                selection.heads[:, :, layer, :n_heads] = of_heads[:, :, heads]
                selection.layers[:, :, layer] = of_layers[:, :, index]
                selection.uniform[:, :, layer] = waiting.uniform[number]
        if self._buckets is not None:
            self._buckets.add(waiting.layers, parts, self._batch.text_hash)
        if self._members and self._places:
            values = parts.values(self._members, self._places)
            for layer, heads in waiting.layers.items():
                self._values[:, layer, : heads.stop - heads.start] = values[:, heads]

    def _chances(self, scopes: Mapping[SinkView, ViewMask]) -> BatchRatios | None:
        """Return the ratios under uniform attention of metrics that define them, or None."""
        chances = [(metric.chance, view) for metric in self._metrics for view in metric.views]
        ratios = [chance(scopes[view]) for chance, view in chances if chance is not None]
        if not ratios:
            return None
        return BatchRatios.of(ratios, np.array(self._n_labels)[self._own].tolist(), 1)

    @property
    def _own(self) -> NDArray[np.bool_]:
        """Boolean mask of the metrics that define their own value under uniform attention."""
        return np.array(
            [metric.chance is not None for metric in self._metrics for _ in metric.views]
        )

    def _with_chance(
        self, sums: Floats, own_ratios: BatchRatios | None, selection: _SentenceSubset
    ) -> Floats:
        """Replace sums under uniform attention by those of metrics that define them."""
        if own_ratios is not None:
            _, of_layers = selection.sums(own_ratios, self._batch.half)
            sums[..., np.repeat(self._own, self._n_labels)] = of_layers[:, :, 0]
        return sums

    def sums(self, exemplars: int) -> HeadSums:
        """Return the head sums of this batch, with the given number of exemplars per head."""
        for waiting in self._waiting.values():
            self._measure(waiting)
        batch, scores = self._batch, self._strongest
        all_sentences, *groups = self._selections
        return HeadSums(
            table=HeadTable(
                tuple(self.columns),
                RatioSums(all_sentences.heads),
                RatioSums(all_sentences.layers),
                RatioSums(all_sentences.uniform),
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
            mass_off_sink=TopK.of(
                N_MASSIVE_SENTENCES, self._massive, batch.index, batch.content_hash
            ),
        )

    def _kept(self) -> PairMembers:
        """Return the values of the members of minimal pairs in this batch."""
        pairs, names = self._of(PAIR_COLUMN), self._facets.members
        return PairMembers(
            MAX_MINIMAL_PAIRS,
            self._places,
            np.array([pair_key(pairs[member]) for member in self._members], np.uint64),
            self._batch.index[self._members],
            {name: tuple(self._of(name)[member] for member in self._members) for name in names},
            self._values,
        ).smallest()


def uniform_attention(scopes: Mapping[SinkView, ViewMask]) -> attention_hook.AttentionCall:
    """Return uniform attention for one head: the same weight for every visible key."""
    frame = scopes[SinkView.RAW].frame
    seen = frame.attention_mask.to(frame.dtype)
    weights = (seen / seen.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(1)
    return attention_hook.AttentionCall(None, None, None, None, None, weights, None)
