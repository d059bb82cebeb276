"""Sums of buckets of sentences, by which two studies of the same texts are compared. No torch.

The bucket of a sentence follows from the hash of its text alone. So each sentence is in the same
bucket for every model, and differences between models can be taken bucket by bucket. If there are
fewer sentences than buckets, nearly every sentence has a bucket of its own.
"""

from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HashSample, TopK, add_fields, shift_fields
from headbook.analysis.arrays import Floats, Ints
from headbook.schema import HeadKey, TokenKey

# Numbers of buckets. One divides the other, so that buckets of two studies can be made to agree.
MAX_BUCKETS, MIN_BUCKETS = 256, 64
MAX_HEADS_FINE_BUCKETS = 300  # heads; stacks with more have `MIN_BUCKETS` buckets, to save memory
MAX_STORED_HASHES = 2000  # sentences whose hashes are stored one by one, to name differing ones


@dataclass(frozen=True, eq=False)
class SentenceSet:
    """Identity of the sentences of a study, to compare with those of another study.

    Attributes:
        sentences: number of sentences in each of `MAX_BUCKETS` buckets. *Shape:* ``(bucket,)``.
        prints: sum of the hashes of each bucket's sentences, modulo 2^64. *Shape:* ``(bucket,)``.
        smallest: sentences with the smallest hashes, without a payload.
        longest: the longest sentence, with its number of tokens as score.
    """

    sentences: Ints
    prints: NDArray[np.uint64]
    smallest: HashSample
    longest: TopK = field(default_factory=lambda: TopK.zero(1))

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], index: Ints, tokens: Ints) -> "SentenceSet":
        """Return the set of some sentences.

        Args:
            hashes: hash of each text. *Shape:* ``(sentence,)``.
            index: place of each sentence in the input. *Shape:* ``(sentence,)``.
            tokens: number of tokens of each sentence, of its longer side. *Shape:*
                ``(sentence,)``.
        """
        bucket = bucket_of(hashes, MAX_BUCKETS)
        prints = np.zeros(MAX_BUCKETS, np.uint64)
        np.add.at(prints, bucket, hashes)
        return cls(
            np.bincount(bucket, minlength=MAX_BUCKETS),
            prints,
            HashSample.of(MAX_STORED_HASHES, hashes, index, np.zeros((len(index), 0), np.float32)),
            TopK.of(1, tokens.astype(np.float64), index, hashes),
        )

    @property
    def max_tokens(self) -> float:
        """Number of tokens of the longest sentence; infinite if unknown."""
        tokens = float(self.longest.score.max(initial=-np.inf))
        return tokens if tokens > 0 else np.inf

    __add__ = add_fields
    shifted = shift_fields


@dataclass(frozen=True, eq=False)
class BucketSums:
    """Numerators and denominators of each bucket, for one stack.

    Attributes:
        size: number of buckets, empty ones included.
        keys: numbers of the buckets that hold sentences, ascending. *Shape:* ``(bucket,)``.
        n, d: the first dimension is that of ``keys``, the last that of the columns.
        once: whether all parts of a corpus have the same sums, as those of random sequences; their
            mean is taken instead of their sum.
    """

    size: int
    keys: Ints
    n: Floats
    d: Floats
    once: bool = False

    def __add__(self, other: Self) -> Self:
        keys = np.union1d(self.keys, other.keys)
        n = _sum_by_key(keys, (self.keys, self.n), (other.keys, other.n))
        d = _sum_by_key(keys, (self.keys, self.d), (other.keys, other.d))
        if self.once:
            n, d = n * 0.5, d * 0.5
        return replace(self, keys=keys, n=n, d=d)

    def spread(self, keys: Ints) -> tuple[Floats, Floats]:
        """Return numerators and denominators of given buckets; 0 for those without sentences.

        Args:
            keys: numbers of buckets, ascending; all of ``self.keys`` are among them.
        """
        return _sum_by_key(keys, (self.keys, self.n)), _sum_by_key(keys, (self.keys, self.d))

    def of_size(self, size: int) -> Self:
        """Return these sums in ``size`` buckets, a divisor of the present number."""
        keys, n, d = add_by_bucket(self.keys % size, self.n, self.d)
        return replace(self, size=size, keys=keys, n=n, d=d)


@dataclass(frozen=True, eq=False)
class HeadBuckets(BucketSums):
    """Sums of head metrics by bucket.

    Attributes:
        columns: keys of the last dimension.
        n: *Shape:* ``(bucket, layer, head, column)``.
        d: *Shape:* ``(bucket, layer, head, column)``, with one head if denominators do not depend
            on the head.
    """

    columns: tuple[HeadKey, ...] = ()


@dataclass(frozen=True, eq=False)
class TokenBuckets(BucketSums):
    """Sums of token metrics by bucket.

    Attributes:
        columns: keys of the last dimension.
        n: *Shape:* ``(bucket, layer, column)``.
        d: *Shape:* ``(bucket, layer, column)``, with one layer if denominators do not depend on the
            layer.
    """

    columns: tuple[TokenKey, ...] = ()

    @classmethod
    def of(
        cls, columns: tuple[TokenKey, ...], hashes: NDArray[np.uint64], n: Floats, d: Floats
    ) -> Self:
        """Return the sums of some sentences by bucket.

        Args:
            hashes: hash of each text. *Shape:* ``(sentence,)``.
            n, d: *Shape:* ``(sentence, layer, column)``. Sentences whose denominators are all 0 are
                left out.
        """
        counted = d.any((1, 2))
        n, d = n[counted], d[counted]
        d = d[:, :1] if (d == d[:, :1]).all() else d  # one layer is enough if all layers are equal
        keys, n, d = add_by_bucket(bucket_of(hashes[counted], MAX_BUCKETS), n, d)
        return cls(MAX_BUCKETS, keys, n, d, columns=columns)


def _sum_by_key(keys: Ints, *parts: tuple[Ints, Floats]) -> Floats:
    """Return the sums of several parts by key; rows are added in place, for they are large.

    Args:
        keys: ascending; the keys of all parts are among them.
        parts: ascending keys, and a row for each key. Shapes of rows broadcast.
    """
    shape = np.broadcast_shapes(*(rows.shape[1:] for _, rows in parts))
    sums = np.zeros((len(keys), *shape))
    for part_keys, rows in parts:
        sums[np.searchsorted(keys, part_keys)] += rows
    return sums


def add_by_bucket(buckets: Ints, n: Floats, d: Floats) -> tuple[Ints, Floats, Floats]:
    """Return the different buckets, ascending, and the sums of both arrays by bucket."""
    keys, key_index = np.unique(buckets, return_inverse=True)
    n_sums = np.zeros((len(keys), *n.shape[1:]))
    d_sums = np.zeros((len(keys), *d.shape[1:]))
    np.add.at(n_sums, key_index, n)
    np.add.at(d_sums, key_index, d)
    return keys, n_sums, d_sums


Kind = TypeVar("Kind", HeadBuckets, TokenBuckets)


def bucket_of(hashes: NDArray[np.uint64], size: int) -> Ints:
    """Return the bucket of each sentence, from the hash of its text."""
    return (hashes % np.uint64(size)).astype(np.int64)


def merge_buckets(first: tuple[Kind, ...], second: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Merge the buckets of two parts of a corpus; buckets with equal columns are added."""
    merged = {buckets.columns: buckets for buckets in first}
    for buckets in second:
        known = merged.get(buckets.columns)
        merged[buckets.columns] = buckets if known is None else known + buckets
    return tuple(merged.values())
