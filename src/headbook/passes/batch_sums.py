"""Accumulators that turn the ratios of a batch into float64 sums.

Sums are kept for all columns side by side, by hash bucket, by token class and by token type.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, N_SPLITS, RatioSums
from headbook.analysis.arrays import Floats, divide
from headbook.attention import map_sums
from headbook.attention.token_states import token_classes
from headbook.metrics.base import HeadMetric, LayerwiseMetric, Ratio
from headbook.model.tokens.strings import TokenStrings
from headbook.schema import (
    CLASSES,
    COMPARED_CLASSES,
    NO_OUTLIERS,
    AttentionStack,
    EmbeddingSpace,
    HeadKey,
    ResidualPoint,
    TokenKey,
)
from headbook.study.corpus_sums import CorpusSums, TokenSums
from headbook.study.sums.buckets import (
    MAX_BUCKETS,
    MAX_HEADS_FINE_BUCKETS,
    MIN_BUCKETS,
    HeadBuckets,
    TokenBuckets,
    bucket_of,
)
from headbook.study.sums.token_sums import PATH_STATES, TokenTypeSums
from headbook.text.batch import Batch


class TokenTypeAccumulator:
    """Sums of a token metric by token type, filled by state.

    Args:
        names: printed form of vocabulary tokens.
    """

    def __init__(self, stack: AttentionStack, batch: Batch, names: TokenStrings) -> None:
        texts = batch.texts[stack.queries]
        self._chosen = texts.ordinary
        ids = texts.ids[self._chosen].cpu().numpy()
        self._ids, self._place = np.unique(ids, return_inverse=True)
        self._names = tuple(names.of(self._ids))
        rows = self._chosen.nonzero()[:, 0].cpu().numpy()
        once = np.unique(np.stack([rows, self._place]), axis=1)[1]
        self._sentences = np.bincount(once, minlength=len(self._ids))
        shape = (len(self._ids), stack.n_layers, len(PATH_STATES))
        self._total, self._squares = np.full(shape, np.nan), np.full(shape, np.nan)

    def add(self, layer: int, state: ResidualPoint, values: torch.Tensor) -> None:
        """Add the values of one state. *Shape:* ``(sentence, token)``."""
        token_values = values[self._chosen].double().cpu().numpy()
        n_types, cells = len(self._ids), (slice(None), layer, PATH_STATES.index(state))
        self._total[cells] = np.bincount(self._place, token_values, n_types)
        self._squares[cells] = np.bincount(self._place, token_values * token_values, n_types)

    def sums(self) -> TokenTypeSums:
        """Return the sums by token type of this batch."""
        count = np.bincount(self._place, minlength=len(self._ids))
        return TokenTypeSums(
            self._names, self._ids, count, self._sentences, self._total, self._squares
        )


@dataclass(frozen=True)
class BatchRatios:
    """Ratios of many metrics side by side.

    Labels of one metric often share a denominator, several metrics share one too, and most
    denominators are equal for all heads; each is kept once.

    Attributes:
        n: numerators, a column for each label that is given. *Shape:* ``(sentence, head, given)``.
        shared: denominators and events that are equal for all heads; the last column is 0.
            *Shape:* ``(sentence, column)``.
        own: denominators and events that differ by head. *Shape:* ``(sentence, head, column)``.
        given: positions of the columns of ``n`` among all labels.
        d_of, events_of: for each label, the column of ``shared`` followed by ``own``.
    """

    n: NDArray[np.floating]
    shared: Floats
    own: Floats
    given: NDArray[np.int64]
    d_of: NDArray[np.int64]
    events_of: NDArray[np.int64]

    @classmethod
    def of(cls, ratios: Sequence[Ratio], n_labels: Sequence[int], n_heads: int) -> "BatchRatios":
        """Put the ratios of several metrics side by side.

        Args:
            n_labels: number of labels of each metric, given or not.
        """
        numerators = [_columns(ratio.numerator, n_heads) for ratio in ratios]
        events = [ratio.denominator if ratio.events is None else ratio.events for ratio in ratios]
        denominators = [[ratio.denominator for ratio in ratios], events]
        parts_by_id = {id(ratio_part): ratio_part for parts in denominators for ratio_part in parts}
        shared = {
            key: ratio_part for key, ratio_part in parts_by_id.items() if ratio_part.shape[1] == 1
        }
        own = {key: ratio_part for key, ratio_part in parts_by_id.items() if key not in shared}
        tables = [[_columns(ratio_part, size) for ratio_part in parts.values()]
                  for parts, size in ((shared, 1), (own, n_heads))]  # fmt: skip
        zeros = numerators[0].new_zeros(len(numerators[0]), 1, 1)
        shared_columns = _beside([*tables[0], zeros]).squeeze(1)
        widths = [ratio_part.shape[2] for table in tables for ratio_part in table]
        widths.insert(len(shared), 1)
        spans = dict(zip([*shared, None, *own], _spans(widths), strict=True))
        labels = [
            np.arange(count) if ratio.labels is None else np.asarray(ratio.labels, np.int64)
            for ratio, count in zip(ratios, n_labels, strict=True)
        ]
        starts = [span.start for span in _spans(n_labels)]
        columns_of = [[spans[id(ratio_part)] for ratio_part in parts] for parts in denominators]
        return cls(
            torch.cat(numerators, -1).cpu().numpy(),
            shared_columns,
            _beside(tables[1]) if own else np.zeros((len(shared_columns), n_heads, 0)),
            np.concatenate([start + label for start, label in zip(starts, labels, strict=True)]),
            *(
                _label_columns(columns, labels, n_labels, shared_columns.shape[1] - 1)
                for columns in columns_of
            ),
        )

    def of_some(self, sentences: Sequence[int]) -> "BatchRatios":
        """Return the ratios of the sentences with these indices in the batch."""
        indices = [*sentences]
        return replace(self, n=self.n[indices], shared=self.shared[indices], own=self.own[indices])

    def values(self, sentences: Sequence[int], labels: Sequence[int]) -> Floats:
        """Return the ratios of single sentences; NaN if a sentence has denominator 0.

        *Shape:* ``(sentence, head, label)``.
        """
        chosen, ratios = self.of_some(sentences), []
        n_shared = self.shared.shape[1]
        for label in labels:
            column = self.d_of[label]
            differs_by_head = column >= n_shared
            denominators = (
                chosen.own[..., column - n_shared]
                if differs_by_head
                else chosen.shared[:, column, None]
            )
            positions = np.flatnonzero(self.given == label)
            numerators = chosen.n[..., positions].sum(-1, dtype=np.float64)
            ratios.append(
                divide(numerators, denominators)
                if len(positions)
                else np.full(numerators.shape, np.nan)
            )
        return np.stack(ratios, -1)

    def sums(self, half: NDArray[np.int64], starts: Sequence[int] = ()) -> tuple[Floats, Floats]:
        """Return the sums that `RatioSums` keeps, without sentences whose denominator is 0.

        Args:
            half: the split, 0 or 1, of each sentence.
            starts: the first head of each layer, and the number of heads; by default one layer.

        Returns:
            The sums of each head, *Shape:* ``(8, 2, head, label)``, and of each layer with its
            heads added up, ``(8, 2, layer, label)``.
        """
        n_heads, shape = self.n.shape[1], (len(FIELDS), N_SPLITS)
        ends = np.array(starts or (0, n_heads))
        tables = [np.zeros((*shape, size, len(self.d_of))) for size in (n_heads, len(ends) - 1)]
        columns = self.d_of[self.given]
        numerators = map_sums.label_sums(self.n, self.shared, self.own, columns, half, ends)
        for array, sums in zip(tables, numerators, strict=True):
            for field, part in zip((0, 2, 4, 7), sums, strict=True):
                array[field][..., self.given] = part
        for array, sums in zip(tables, self._below(half, ends), strict=True):
            for field, part in zip((1, 3, 5), sums, strict=True):
                array[field] = part[..., self.d_of]
            array[6] = sums[0][..., self.events_of]
        return tables[0], tables[1]

    def _below(self, half: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the sums of denominators, the sums of their squares, and the number above 0.

        *Shape:* ``(3, 2, head, column)``, and of each layer's heads added up
        ``(3, 2, layer, column)``.
        """
        shared = map_sums.power_sums(self.shared[:, None], half)
        own = map_sums.power_sums(self.own, half)
        heads = np.concatenate([np.repeat(shared, self.n.shape[1], 2), own], -1)
        of_layers = self.shared[:, None] * np.diff(starts)[:, None]
        own_of_layers = np.stack([self.own[:, a:b].sum(1) for a, b in pairwise(starts)], 1)
        by_layer = [map_sums.power_sums(part, half) for part in (of_layers, own_of_layers)]
        return heads, np.concatenate(by_layer, -1)


def _label_columns(
    spans: Sequence[slice],
    labels: Sequence[NDArray[np.int64]],
    n_labels: Sequence[int],
    zero_column: int,
) -> NDArray[np.int64]:
    """Return the column of each label.

    Args:
        spans: columns of each metric.
        labels: labels of each metric that have a column.
        n_labels: number of labels of each metric.
        zero_column: column of labels without one of their own.
    """
    columns = []
    for span, positions, count in zip(spans, labels, n_labels, strict=True):
        width = span.stop - span.start
        label_columns = np.full(count, span.start if width == 1 else zero_column)
        if width > 1:
            label_columns[positions] = np.arange(span.start, span.stop)
        columns.append(label_columns)
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def _columns(part: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return a part with all of its dimensions. *Shape:* ``(sentence, head, label)``."""
    part = part.unsqueeze(-1) if part.ndim == 2 else part
    return part.expand(-1, n_heads, -1)


def _beside(tables: Iterable[torch.Tensor]) -> Floats:
    """Concatenate tables along the last dimension, in float64."""
    return torch.cat([*tables], -1).double().cpu().numpy()


def _spans(widths: Sequence[int]) -> list[slice]:
    """Return the slice of columns of each part, if the parts stand side by side."""
    ends = [*accumulate(widths)]
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]


def head_columns(metrics: Sequence[HeadMetric]) -> list[HeadKey]:
    """Return the columns of head metrics, in the order in which they are measured."""
    return [
        HeadKey(metric.id, view, label)
        for metric in metrics
        for view in metric.views
        for label in metric.labels
    ]


class BucketAccumulator:
    """Sums of one stack by hash bucket, filled by layer and batch.

    Sums over batches are added in place: adding tables would copy all of them for every batch.

    Args:
        once: whether the sentences are random sequences, which are equal in every study.
    """

    def __init__(
        self, stack: AttentionStack, metrics: Sequence[HeadMetric], *, once: bool = False
    ) -> None:
        applicable = [metric for metric in metrics if metric.applies(stack)]
        labels = {metric.id: metric.compared for metric in applicable}
        columns = head_columns(applicable)
        self._kept = np.array(
            [
                position
                for position, column in enumerate(columns)
                if column.label in labels[column.metric]
            ],
            np.int64,
        )
        self._columns = [columns[position] for position in self._kept]
        self._once = once
        self._size = (
            MAX_BUCKETS if stack.n_layers * stack.n_heads <= MAX_HEADS_FINE_BUCKETS else MIN_BUCKETS
        )
        shape = (self._size, stack.n_layers, stack.n_heads, len(self._kept))
        self._n = np.zeros(shape)
        self._shared = np.zeros((*shape[:2], 1, shape[3]))
        self._own = np.zeros(shape)  # denominators that differ by head
        self._is_own = np.zeros(len(self._kept), bool)
        self._there = np.zeros(self._size, bool)

    def add(
        self, layers: Mapping[int, slice], parts: BatchRatios, hashes: NDArray[np.uint64]
    ) -> None:
        """Add the layers of one batch.

        Args:
            layers: the slice of each layer's heads in ``parts``.
            hashes: hashes of the sentences' texts.
        """
        given_positions, columns = self._given(parts)
        d_of, width = parts.d_of[self._kept], parts.shared.shape[1]
        own = np.flatnonzero(d_of >= width)
        self._is_own[own] = True
        buckets = bucket_of(hashes, self._size)
        self._there[buckets] = True
        shared = np.where(d_of < width, parts.shared[:, np.minimum(d_of, width - 1)], 0)
        for layer, heads in layers.items():
            n_heads = heads.stop - heads.start
            d = np.zeros((len(buckets), n_heads, len(self._kept)))
            d[..., own] = parts.own[:, heads][..., d_of[own] - width]
            n = np.zeros(d.shape)
            # Odds have numerators in texts whose denominator is 0, as in the table of sums.
            n[..., columns] = parts.n[:, heads][..., given_positions]
            for sentence, bucket in enumerate(buckets):
                self._shared[bucket, layer, 0] += shared[sentence]
                self._own[bucket, layer, :n_heads] += d[sentence]
                self._n[bucket, layer, :n_heads] += n[sentence]

    def _given(self, parts: BatchRatios) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of kept numerators among those given, and their columns."""
        kept_position = np.full(len(parts.d_of), -1)
        kept_position[self._kept] = np.arange(len(self._kept))
        kept_columns = kept_position[parts.given]
        given_positions = np.flatnonzero(kept_columns >= 0)
        return given_positions, kept_columns[given_positions]

    def sums(self) -> tuple[HeadBuckets, ...]:
        """Return two tables of buckets: columns whose denominators all heads share, and others."""
        keys = np.flatnonzero(self._there)
        shared = self._part(keys, np.flatnonzero(~self._is_own), self._shared)
        if not self._is_own.any():
            return (shared,)
        return shared, self._part(keys, np.flatnonzero(self._is_own), self._own)

    def _part(self, keys: NDArray[np.int64], columns: NDArray[np.int64], d: Floats) -> HeadBuckets:
        return HeadBuckets(
            self._size,
            keys,
            self._n[keys][..., columns],
            d[keys][..., columns],
            self._once,
            tuple(self._columns[column] for column in columns),
        )


def bucket_sums(tables: Mapping[str, BucketAccumulator]) -> CorpusSums:
    """Return the bucket sums of all stacks as corpus sums."""
    return CorpusSums(buckets={name: table.sums() for name, table in tables.items()})


def spaces_of(
    metric: LayerwiseMetric, available: Sequence[EmbeddingSpace]
) -> Sequence[EmbeddingSpace | None]:
    """Return the embedding spaces of a metric; only None if the metric needs no vocabulary.

    Args:
        available: embedding spaces of the model.
    """
    return [space for space in available if space in metric.spaces] if metric.spaces else [None]


class TokenAccumulator:
    """Sums of token metrics by token class, filled by state.

    Args:
        spaces: embedding spaces of the model's vocabulary.
        members: mask of the sentences that count; by default all.
        reduced: metrics that are also measured without outlier dimensions.
    """

    def __init__(
        self,
        stack: AttentionStack,
        metrics: Sequence[LayerwiseMetric],
        batch: Batch,
        spaces: Sequence[EmbeddingSpace] = (),
        *,
        members: NDArray[np.bool_] | None = None,
        reduced: Sequence[LayerwiseMetric] = (),
    ) -> None:
        self._half, self._hashes = batch.half, batch.text_hash
        self._classes = token_classes(batch.texts[stack.queries])
        if members is not None:
            self._classes = (
                self._classes * torch.from_numpy(members).to(self._classes)[:, None, None]
            )
        self.columns = [
            TokenKey(metric.id, state, space, label)
            for metric in metrics
            for state in metric.states
            for space in spaces_of(metric, spaces)
            for label in CLASSES
        ]
        self.columns += [
            TokenKey(metric.id, state, space, NO_OUTLIERS)
            for metric in reduced
            for state in metric.states
            for space in spaces_of(metric, spaces)[:1]
        ]
        cells = (len(batch.items), stack.n_layers, len(self.columns))
        self._n, self._d = np.zeros(cells), np.zeros(cells)

    def add(
        self,
        metric: LayerwiseMetric,
        layer: int,
        state: ResidualPoint,
        space: EmbeddingSpace | None,
        values: torch.Tensor,
        *,
        labels: Sequence[str] = CLASSES,
    ) -> None:
        """Add the values of one state, summed by token class.

        Args:
            values: *Shape:* ``(sentence, token)``; NaN in the padding and if there is no value.
            labels: labels of the sums: of the first classes, or another name of all tokens.
        """
        start = self.columns.index(TokenKey(metric.id, state, space, labels[0]))
        place = slice(start, start + len(labels))
        values = metric.averaged.transform(values)
        classes = self._classes[..., : len(labels)]
        members = classes.to(values.dtype) * ~values.isnan().unsqueeze(-1)
        values = values.nan_to_num()
        self._n[:, layer, place] = (values.unsqueeze(1) @ members).squeeze(1).cpu().numpy()
        self._d[:, layer, place] = members.sum(1).cpu().numpy()

    def sums(self) -> TokenSums:
        """Return the sums by token class of this batch."""
        n, d = torch.from_numpy(self._n), torch.from_numpy(self._d)
        parts = BatchRatios.of([Ratio(n, d)], [n.shape[2]], n.shape[1])
        return TokenSums(tuple(self.columns), RatioSums(parts.sums(self._half)[0]))

    def buckets(self) -> tuple[TokenBuckets, ...]:
        """Return the sums by hash bucket, for paired tests; empty without columns to test."""
        tested = {*COMPARED_CLASSES, NO_OUTLIERS}
        kept = [n for n, column in enumerate(self.columns) if column.label in tested]
        if not kept:
            return ()
        columns = tuple(self.columns[n] for n in kept)
        return (TokenBuckets.of(columns, self._hashes, self._n[..., kept], self._d[..., kept]),)
