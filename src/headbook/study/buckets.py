"""Sums of groups of sentences, by which two studies of the same texts are compared. No torch.

Which group, or bucket, a sentence belongs to follows from its text alone: whatever model reads it,
it is in the same bucket, so that differences between models can be taken bucket by bucket. Where
there are fewer sentences than buckets, nearly each has one of its own.
"""

from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HashSample, add_fields, shift_fields
from headbook.analysis.arrays import Floats, Ints
from headbook.schema import HeadKey, TokenKey

MOST, FEWER = 256, 64  # buckets; a divisor, so that one study's can be put together as another's
MANY_HEADS = 300  # of a stack, above which there are fewer buckets
NAMED = 2000  # sentences that are known one by one, to say which differ


@dataclass(frozen=True, eq=False)
class SentenceSet:
    """Which sentences a study is of.

    Attributes:
        sentences: how many are in each of `MOST` buckets. *Shape:* ``(bucket,)``.
        prints: the hashes of each bucket's sentences, added up modulo 2^64; the same shape.
        smallest: those with the smallest hashes; it has no payload.
    """

    sentences: Ints
    prints: NDArray[np.uint64]
    smallest: HashSample

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], index: Ints) -> "SentenceSet":
        """Sentences one by one.

        Args:
            hashes, index: of each, and its place in the input. *Shape:* ``(sentence,)``.
        """
        bucket = bucket_of(hashes, MOST)
        prints = np.zeros(MOST, np.uint64)
        np.add.at(prints, bucket, hashes)
        return cls(
            np.bincount(bucket, minlength=MOST),
            prints,
            HashSample.of(NAMED, hashes, index, np.zeros((len(index), 0), np.float32)),
        )

    __add__ = add_fields
    shifted = shift_fields


@dataclass(frozen=True, eq=False)
class BucketSums:
    """Numerators and denominators of each bucket, for one stack.

    Attributes:
        size: how many buckets there may be.
        keys: those that hold sentences, ascending. *Shape:* ``(bucket,)``.
        n, d: the first dimension is that of ``keys``, the last that of the columns.
        once: whether other sentences bring nothing new: of random sequences.
    """

    size: int
    keys: Ints
    n: Floats
    d: Floats
    once: bool = False

    def __add__(self, other: Self) -> Self:
        keys = np.union1d(self.keys, other.keys)
        n = _sum(keys, (self.keys, self.n), (other.keys, other.n))
        d = _sum(keys, (self.keys, self.d), (other.keys, other.d))
        if self.once:
            n, d = n * 0.5, d * 0.5
        return replace(self, keys=keys, n=n, d=d)

    def spread(self, keys: Ints) -> tuple[Floats, Floats]:
        """Numerators and denominators of other buckets too, which are 0.

        Args:
            keys: ascending, the own ones among them.
        """
        return _sum(keys, (self.keys, self.n)), _sum(keys, (self.keys, self.d))

    def of_size(self, size: int) -> Self:
        """The same in fewer buckets, or as many."""
        keys, n, d = _added(self.keys % size, self.n, self.d)
        return replace(self, size=size, keys=keys, n=n, d=d)


@dataclass(frozen=True, eq=False)
class HeadBuckets(BucketSums):
    """Those of heads.

    Attributes:
        columns: what the last dimension holds.
        n: *Shape:* ``(bucket, layer, head, column)``.
        d: the same shape, with one head where denominators are the same for all.
    """

    columns: tuple[HeadKey, ...] = ()


@dataclass(frozen=True, eq=False)
class TokenBuckets(BucketSums):
    """Those of the tokens of layers.

    Attributes:
        columns: what the last dimension holds.
        n: *Shape:* ``(bucket, layer, column)``.
        d: the same shape, with one layer where denominators are the same for all.
    """

    columns: tuple[TokenKey, ...] = ()

    @classmethod
    def of(
        cls, columns: tuple[TokenKey, ...], hashes: NDArray[np.uint64], n: Floats, d: Floats
    ) -> Self:
        """Sentences one by one.

        Args:
            hashes: of their texts. *Shape:* ``(sentence,)``.
            n, d: *Shape:* ``(sentence, layer, column)``; sentences in which nothing counts are
                left out.
        """
        there = d.any((1, 2))
        n, d = n[there], d[there]
        d = d[:, :1] if (d == d[:, :1]).all() else d
        keys, n, d = _added(bucket_of(hashes[there], MOST), n, d)
        return cls(MOST, keys, n, d, columns=columns)


def _sum(keys: Ints, *parts: tuple[Ints, Floats]) -> Floats:
    """Rows of several parts by their keys, added up; in place, for those of a corpus are large.

    Args:
        keys: ascending, those of the parts among them.
        parts: ascending keys, and a row for each. Shapes of rows broadcast.
    """
    shape = np.broadcast_shapes(*(rows.shape[1:] for _, rows in parts))
    found = np.zeros((len(keys), *shape))
    for own, rows in parts:
        found[np.searchsorted(keys, own)] += rows
    return found


def _added(buckets: Ints, n: Floats, d: Floats) -> tuple[Ints, Floats, Floats]:
    """Rows added up by their buckets: these, ascending, and the sums."""
    keys, place = np.unique(buckets, return_inverse=True)
    parts = []
    for part in (n, d):
        array = np.zeros((len(keys), *part.shape[1:]))
        np.add.at(array, place, part)
        parts.append(array)
    return keys, parts[0], parts[1]


Kind = TypeVar("Kind", HeadBuckets, TokenBuckets)


def bucket_of(hashes: NDArray[np.uint64], size: int) -> Ints:
    """The bucket of each sentence, by the hash of its text."""
    return (hashes % np.uint64(size)).astype(np.int64)


def merge_buckets(mine: tuple[Kind, ...], theirs: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Buckets of two parts of a corpus, by what they hold."""
    known = {each.columns: each for each in mine}
    for each in theirs:
        known[each.columns] = known[each.columns] + each if each.columns in known else each
    return tuple(known.values())
