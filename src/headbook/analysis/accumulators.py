"""Mergeable sums over sentences: ratios with intervals, top sentences and hash samples.

Each accumulator is immutable, made `of` a batch, starts at ``zero`` and is merged with ``+``. The
result does not depend on how the stream is split into batches or shards.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headbook.analysis import intervals
from headbook.analysis.arrays import MIN_NUMERATOR, Floats, Ints, divide
from headbook.analysis.intervals import MIN_EFFECTIVE, UNBOUNDED
from headbook.schema import IntervalRule

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

N_SPLITS = 2  # selection split and held-out split, each about half of the sentences
SELECTION, HELD_OUT = range(N_SPLITS)
FIELDS = ("n", "d", "nn", "dd", "nd", "sentences", "events", "present")
Sums = TypeVar("Sums", bound="DataclassInstance")


def add_fields(first: Sums, second: Sums, **overrides: Any) -> Sums:
    """Return the sum of two records of one class, field by field.

    Numbers, arrays and records of sums are added, mappings key by key. Tuples and strings describe
    the sums, and those of ``first`` stay. If a field is None in one record, that of the other one
    stays.

    Args:
        overrides: values of fields that are not added in this way.
    """
    names = [field.name for field in fields(first) if field.name not in overrides]
    added = {name: _add_values(getattr(first, name), getattr(second, name)) for name in names}
    return replace(first, **added, **overrides)


def _add_values(first: Any, second: Any) -> Any:
    """Return the sum of two values of one field of `add_fields`."""
    if first is None:
        return second
    if second is None:
        return first
    if isinstance(first, str | tuple):
        return first
    if isinstance(first, Mapping) and not isinstance(first, Counter):
        shared = {key: first[key] + second[key] for key in first if key in second}
        return {**first, **second, **shared}
    return first + second


def shift_fields(sums: Sums, by: int) -> Sums:
    """Return a copy of a record whose sentence indices are increased by ``by``.

    Fields with a method ``shifted`` are shifted, and mappings to values with this method.
    """
    shifted: dict[str, Any] = {}
    for field in fields(sums):
        value = getattr(sums, field.name)
        if hasattr(value, "shifted"):
            shifted[field.name] = value.shifted(by)
        elif isinstance(value, Mapping) and any(hasattr(v, "shifted") for v in value.values()):
            shifted[field.name] = {key: entry.shifted(by) for key, entry in value.items()}
    return replace(sums, **shifted)


@dataclass(frozen=True, eq=False)
class RatioSums:
    """Ratios of sums over sentences, with intervals clustered by sentence.

    Attributes:
        sums: the sums `FIELDS` of numerators n and denominators d, for each split of the
            sentences; ``present`` counts sentences whose numerator is not 0. *Shape:*
            ``(8, 2, *cells)``.
    """

    sums: Floats

    @classmethod
    def zero(cls, *cells: int) -> Self:
        """Return the sums of zero sentences."""
        return cls(np.zeros((len(FIELDS), N_SPLITS, *cells)))

    @classmethod
    def of(cls, n: Floats, d: Floats, events: Floats, split: Ints) -> Self:
        """Return the sums of a batch; sentences with denominator 0 take no part.

        Args:
            n, d: numerators and denominators. *Shape:* ``(sentence, *cells)``.
            events: numbers of observations. *Shape:* ``(sentence, *cells)``.
            split: split of each sentence, 0 or 1. *Shape:* ``(sentence,)``.
        """
        terms = np.stack(
            [n, d, n * n, d * d, n * d, d > 0, events, (np.abs(n) > MIN_NUMERATOR) & (d > 0)]
        )
        return cls(np.stack([terms[:, split == number].sum(1) for number in range(N_SPLITS)], 1))

    def __add__(self, other: "RatioSums") -> "RatioSums":
        return RatioSums(self.sums + other.sums)

    def __getitem__(self, cells: Any) -> "RatioSums":
        """Return the sums of some cells, selected by an index."""
        return RatioSums(self.sums[(slice(None), slice(None), *np.index_exp[cells])])

    def split(self, number: int) -> "RatioSums":
        """Return the sums over one split, with zeros for the other."""
        sums = np.zeros_like(self.sums)
        sums[:, number] = self.sums[:, number]
        return RatioSums(sums)

    @property
    def total(self) -> dict[str, Floats]:
        """Sums over both splits, by name of the field."""
        return dict(zip(FIELDS, self.sums.sum(1), strict=True))

    @property
    def value(self) -> Floats:
        """Sum of numerators over sum of denominators; NaN without denominators."""
        total = self.total
        return divide(total["n"], total["d"])

    def known(self, rules: ArrayLike) -> Floats:
        """Return `value`; NaN for comparisons of pairs in too few sentences."""
        return np.where(intervals.has_value(self.n_sentences, rules), self.value, np.nan)

    @property
    def n_sentences(self) -> Ints:
        """Number of sentences that take part."""
        return self.total["sentences"].astype(np.int64)

    @property
    def n_observations(self) -> Floats:
        """Number of observations."""
        return self.total["events"]

    @property
    def n_effective(self) -> Floats:
        """Effective number of sentences: as many of equal weight would have the same variance."""
        return intervals.effective(self.total)

    def variance(self, limits: intervals.Limits = UNBOUNDED) -> Floats:
        """Return the variance of the value, with sentences as clusters; NaN below two sentences."""
        total = self.total
        return intervals.variance(total) * intervals.error_factor(total, limits) ** 2

    def interval(
        self, limits: intervals.Limits = UNBOUNDED, rules: ArrayLike = IntervalRule.USUAL
    ) -> tuple[Floats, Floats]:
        """Return the 95 % confidence interval; NaN if there are too few sentences."""
        return intervals.interval(self.total, limits, rules)


def split_of(content_hash: NDArray[np.uint64]) -> Ints:
    """Return the split, 0 or 1, of each sentence by its hash; equal sentences share a split."""
    return (content_hash & np.uint64(1)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class TopK:
    """The k sentences with the highest scores, for each cell; equal texts count once.

    Ties go to the earlier sentence. Scores are compared to six decimals, so that the last bits,
    which depend on how sentences were batched, decide nothing.

    Attributes:
        score: *Shape:* ``(*cells, k)``, descending; -inf where there are fewer than k.
        index: positions of the sentences in the input; -1 beyond the last. *Shape:*
            ``(*cells, k)``.
        content_hash: hashes of the sentences; equal sentences have equal hashes. *Shape:*
            ``(*cells, k)``.
    """

    score: Floats
    index: Ints
    content_hash: NDArray[np.uint64]

    @classmethod
    def zero(cls, k: int, *cells: int) -> Self:
        """Return the top k of zero sentences."""
        shape = (*cells, k)
        return cls(np.full(shape, -np.inf), np.full(shape, -1), np.zeros(shape, dtype=np.uint64))

    @classmethod
    def of(cls, k: int, scores: Floats, index: Ints, content_hash: NDArray[np.uint64]) -> "TopK":
        """Return the k best sentences of a batch.

        Args:
            scores: *Shape:* ``(sentence, *cells)``.
            index, content_hash: *Shape:* ``(sentence,)``.
        """
        order = np.argsort(index, kind="stable")
        distinct = order[np.sort(np.unique(content_hash[order], return_index=True)[1])]
        rounded: Floats = scores[distinct].astype(np.float64).round(6)
        score = np.moveaxis(rounded, 0, -1)
        shape = score.shape
        indices = np.broadcast_to(index[distinct], shape)
        batch = cls(score, indices, np.broadcast_to(content_hash[distinct], shape))
        return batch._best(k)

    def __add__(self, other: "TopK") -> "TopK":
        joined = TopK(
            np.concatenate([self.score, other.score], -1),
            np.concatenate([self.index, other.index], -1),
            np.concatenate([self.content_hash, other.content_hash], -1),
        )
        equal_hash = joined.content_hash[..., :, None] == joined.content_hash[..., None, :]
        index, other_index = joined.index[..., :, None], joined.index[..., None, :]
        repeated = (equal_hash & (other_index >= 0) & (other_index < index)).any(-1)
        best = replace(joined, score=np.where(repeated, -np.inf, joined.score))
        return best._best(self.score.shape[-1])

    def shifted(self, by: int) -> "TopK":
        """Return a copy whose sentence indices are increased by ``by``."""
        return replace(self, index=np.where(self.index >= 0, self.index + by, self.index))

    def _sorted(self) -> "TopK":
        """Return the sentences in order of score, then of index."""
        order = np.lexsort((self.index, -self.score), axis=-1)
        return TopK(
            np.take_along_axis(self.score, order, -1),
            np.take_along_axis(self.index, order, -1),
            np.take_along_axis(self.content_hash, order, -1),
        )

    def _best(self, k: int) -> "TopK":
        """Return the k best sentences, padded if there are fewer."""
        ranked = self._sorted()
        missing = max(k - ranked.score.shape[-1], 0)
        pad = [(0, 0)] * (ranked.score.ndim - 1) + [(0, missing)]
        score = np.pad(ranked.score[..., :k], pad, constant_values=-np.inf)
        index = np.pad(ranked.index[..., :k], pad, constant_values=-1)
        index = np.where(np.isinf(score), -1, index)
        content_hash = np.pad(ranked.content_hash[..., :k], pad)
        return TopK(score, index, np.where(index < 0, np.uint64(0), content_hash))


@dataclass(frozen=True, eq=False)
class HashSample:
    """Sample of the sentences with the smallest hashes, which needs no seed and can be merged.

    Attributes:
        size: largest number of sentences in the sample.
        content_hash: hash of each sentence. *Shape:* ``(sentence,)``.
        index: position of each sentence in the input. *Shape:* ``(sentence,)``.
        payload: values stored for each sentence. *Shape:* ``(sentence, *cells)``.
    """

    size: int
    content_hash: NDArray[np.uint64]
    index: Ints
    payload: NDArray[Any]

    @property
    def half(self) -> Ints:
        """Split, 0 or 1, that each sentence belongs to."""
        return split_of(self.content_hash)

    @classmethod
    def zero(cls, size: int, *cells: int) -> Self:
        """Return an empty sample."""
        return cls(
            size, np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros((0, *cells), np.float32)
        )

    @classmethod
    def of(
        cls, size: int, content_hash: NDArray[np.uint64], index: Ints, payload: NDArray[Any]
    ) -> "HashSample":
        """Return the sample of a batch."""
        kept = np.lexsort((index, content_hash))[:size]
        return HashSample(size, content_hash[kept], index[kept], payload[kept])

    def __add__(self, other: "HashSample") -> "HashSample":
        content_hash = np.concatenate([self.content_hash, other.content_hash])
        index = np.concatenate([self.index, other.index])
        kept = np.lexsort((index, content_hash))[: self.size]
        from_self, from_other = kept < len(self.index), kept >= len(self.index)
        dtype = np.result_type(self.payload, other.payload)
        payload = np.empty((len(kept), *self.payload.shape[1:]), dtype)  # once: it may be large
        payload[from_self] = self.payload[kept[from_self]]
        payload[from_other] = other.payload[kept[from_other] - len(self.index)]
        return HashSample(self.size, content_hash[kept], index[kept], payload)

    def shifted(self, by: int) -> "HashSample":
        """Return a copy whose sentence indices are increased by ``by``."""
        return replace(self, index=self.index + by)

    def first(self, size: int) -> "HashSample":
        """Return a smaller sample of the same stream."""
        return self.of(size, self.content_hash, self.index, self.payload)


class Estimate(NamedTuple):
    r"""One value with interval and numbers of sentences and observations; NaN where missing.

    Attributes:
        value: the estimate.
        low, high: ends of the 95 % interval.
        sentences: number of sentences.
        events: number of observations.
        effective: effective number of sentences; NaN if unknown.
    """

    value: float
    low: float
    high: float
    sentences: int
    events: float
    effective: float = math.nan


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan, 0, 0)


def without_interval(value: float, sentences: int, events: float = math.nan) -> Estimate:
    """Return a value without an interval."""
    return Estimate(value, math.nan, math.nan, sentences, events)


class Estimates(NamedTuple):
    r"""Values with intervals and numbers of observations for a table of cells.

    All arrays have the shape of the table; NaN where a value is missing.

    Attributes:
        value: the estimates.
        low, high: ends of the 95 % intervals.
        sentences: numbers of sentences.
        events: numbers of observations.
        effective: effective numbers of sentences.
    """

    value: Floats
    low: Floats
    high: Floats
    sentences: NDArray[np.int64]
    events: Floats
    effective: Floats

    def at(self, *cell: int) -> Estimate:
        """Return the estimate of one cell."""
        value, low, high, sentences, events, effective = [array.item(cell) for array in self]
        return Estimate(value, low, high, int(sentences), events, effective)

    def column(self, number: int) -> "Estimates":
        """Return the estimates of one place of the last axis, which keep no others in memory."""
        return Estimates(
            self.value[..., number].copy(), self.low[..., number].copy(),
            self.high[..., number].copy(), self.sentences[..., number].copy(),
            self.events[..., number].copy(), self.effective[..., number].copy(),
        )  # fmt: skip

    @property
    def trusted(self) -> Floats:
        """Values of at least `MIN_EFFECTIVE` effective sentences; NaN elsewhere."""
        return np.where(self.effective >= MIN_EFFECTIVE, self.value, np.nan)

    def within(self, limits: intervals.Limits) -> "Estimates":
        """Return the estimates with intervals clipped to the least and largest possible value."""
        low, high = intervals.clipped(self.low, self.high, limits)
        return self._replace(low=low, high=high)

    @classmethod
    def of(
        cls,
        ratios: RatioSums,
        limits: intervals.Limits,
        rules: ArrayLike = IntervalRule.USUAL,
    ) -> "Estimates":
        """Return values with intervals inside the metric's bounds."""
        low, high = ratios.interval(limits, rules)
        counts = ratios.n_sentences, ratios.n_observations, ratios.n_effective
        return cls(ratios.known(rules), low, high, *counts)
