"""Geometry of the states of sampled tokens, with jackknives over sentences. No torch.

Intervals are delete-one jackknives over sentences: every number comes with its values without each
sentence in turn. Tokens of one sentence are not independent, and a pair of tokens depends on two
sentences; the jackknife accounts for both.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats, Ints, divide

NO_KIND = -1  # kind of tokens that are not compared
MINIBATCH = 256  # tokens of a minibatch
N_OUTLIERS = 3  # outlier dimensions of a state
# Distance of a dimension's mean from the median, in robust standard deviations, above which the
# dimension is an outlier; 1.4826 times the median deviation is the deviation of a normal sample.
MAX_DEVIATIONS, NORMAL_DEVIATION = 6.0, 1.4826
# Standard deviation over largest value, below which a dimension counts as constant.
MIN_RELATIVE_DEVIATION = 1e-12


class Jackknife(NamedTuple):
    """Number over all sentences, with the numbers that result without each sentence.

    Attributes:
        value: number over all sentences.
        without: number without each sentence; NaN if unknown. *Shape:* ``(sentence,)``.
        events: number of observations.
    """

    value: float
    without: Floats
    events: float

    def minus(self, other: "Jackknife") -> "Jackknife":
        """Return the difference of two numbers of the same sentences."""
        return Jackknife(self.value - other.value, self.without - other.without, self.events)


class TokensByKind(NamedTuple):
    """Cells of tokens of one kind in one sentence, for kinds that occur in several sentences.

    Attributes:
        tokens: indices of the tokens, cell by cell.
        starts: index in ``tokens`` at which each cell begins. *Shape:* ``(cell,)``.
        sentence: sentence of each cell. *Shape:* ``(cell,)``.
        kind: kind of each cell, numbered from 0, ascending. *Shape:* ``(cell,)``.
        size: number of tokens of each cell. *Shape:* ``(cell,)``.
    """

    tokens: Ints
    starts: Ints
    sentence: Ints
    kind: Ints
    size: Ints


@dataclass(frozen=True, eq=False)
class TokenSample:
    """The tokens of a sample, sentence by sentence.

    Attributes:
        sentence: number of each token's sentence, from 0, ascending without gaps. *Shape:*
            ``(token,)``.
        kind: vocabulary entry of each token, or `NO_KIND` for tokens that are not compared.
        seed: seed of random draws from the tokens.
    """

    sentence: Ints
    kind: Ints
    seed: int = 0

    @cached_property
    def starts(self) -> Ints:
        """Index of the first token of each sentence. *Shape:* ``(sentence,)``."""
        return np.flatnonzero(np.diff(self.sentence, prepend=-1))

    @cached_property
    def counts(self) -> Ints:
        """Number of tokens of each sentence. *Shape:* ``(sentence,)``."""
        return np.diff(self.starts, append=len(self.sentence))

    def sums(self, values: Floats) -> Floats:
        """Return the values of tokens summed by sentence. *Shape:* ``(sentence, ...)``."""
        sums: Floats = np.add.reduceat(values, self.starts, axis=0)
        return sums

    @cached_property
    def cells(self) -> TokensByKind:
        """Tokens by kind and sentence, for kinds that occur in at least two sentences."""
        order = np.lexsort((self.sentence, self.kind))
        order = order[self.kind[order] != NO_KIND]
        kind, sentence = self.kind[order], self.sentence[order]
        starts_cell = (np.diff(kind, prepend=-1) != 0) | (np.diff(sentence, prepend=-1) != 0)
        sentences_of_kind = np.bincount(kind[starts_cell], minlength=1)  # sentences of each kind
        in_several = sentences_of_kind[kind] > 1
        order, kind = order[in_several], kind[in_several]
        sentence, starts_cell = sentence[in_several], starts_cell[in_several]
        starts = np.flatnonzero(starts_cell)
        numbers = np.unique(kind[starts], return_inverse=True)[1]
        size = np.diff(starts, append=len(order))
        return TokensByKind(order, starts, sentence[starts], numbers, size)

    @cached_property
    def minibatches(self) -> Ints:
        """Tokens in minibatches, with neighbours in different ones.

        *Shape:* ``(minibatch, token)``.

        Each minibatch takes every k-th token, so that few of them share a sentence.
        """
        number = len(self.sentence) // MINIBATCH
        return np.arange(number * MINIBATCH).reshape(MINIBATCH, number).T


@dataclass(frozen=True, eq=False)
class StateVectors:
    """States of the tokens of a sample at one point of the residual stream.

    Attributes:
        sample: the tokens.
        vectors: states of the tokens. *Shape:* ``(token, width)``.
        start: states of the tokens at the input of layer 0; None for that state itself.
    """

    sample: TokenSample
    vectors: Floats
    start: "StateVectors | None" = None

    @cached_property
    def units(self) -> Floats:
        """States scaled to length 1; NaN where the length is 0. *Shape:* ``(token, width)``."""
        return unit_vectors(self.vectors)

    @cached_property
    def sums(self) -> Floats:
        """Unit vectors summed by sentence. *Shape:* ``(sentence, width)``."""
        return self.sample.sums(self.units)

    @cached_property
    def anisotropy(self) -> Jackknife:
        """Mean cosine of two tokens of different sentences."""
        return mean_cross_sentence_product(self.sums, self.sample.counts)

    def mean_cosine(self, vectors: Floats) -> Jackknife:
        """Return the mean cosine of two tokens of different sentences for other unit vectors."""
        return mean_cross_sentence_product(self.sample.sums(vectors), self.sample.counts)

    @cached_property
    def contributions(self) -> Floats:
        """Contribution of each dimension to the mean cosine. *Shape:* ``(width,)``."""
        counts = self.sample.counts
        pairs = counts.sum() ** 2 - (counts**2).sum()
        products = self.sums.sum(0) ** 2 - (self.sums**2).sum(0)
        return divide(products, pairs)

    @cached_property
    def outlier_dimensions(self) -> Ints:
        """Dimensions that contribute most to the mean cosine, largest first.

        *Shape:* ``(up to N_OUTLIERS,)``.
        """
        return largest_dimensions(self.contributions, N_OUTLIERS)

    @cached_property
    def standardised(self) -> Floats:
        """Unit vectors of states whose dimensions have mean 0 and deviation 1.

        *Shape:* as ``vectors``.
        """
        mean, deviation = self.vectors.mean(0), self.vectors.std(0)
        varies = deviation > MIN_RELATIVE_DEVIATION * abs(self.vectors).max(0)
        scale = np.divide(1.0, deviation, out=np.zeros(len(deviation)), where=varies)
        return unit_vectors((self.vectors - mean) * scale)

    def without_dimensions(self, dimensions: Ints) -> Floats:
        """Return unit vectors of the states without some dimensions; NaN if anisotropy is unknown.

        *Shape:* as ``vectors``.
        """
        reduced = self.vectors.copy()
        reduced[:, dimensions] = np.nan if np.isnan(self.anisotropy.value) else 0
        return unit_vectors(reduced)


def unit_vectors(vectors: Floats) -> Floats:
    """Return vectors scaled to length 1; NaN where the length is 0. *Shape:* ``(token, width)``."""
    lengths = np.sqrt(np.einsum("td,td->t", vectors, vectors))
    return vectors / np.where(lengths > 0, lengths, np.nan)[:, None]


def largest_dimensions(contributions: Floats, number: int) -> Ints:
    """Return the dimensions with the largest contributions, largest first.

    Contributions are rounded to nine decimals, so that the last bits decide nothing.
    *Shape:* ``(width,)`` to ``(up to number,)``.
    """
    return np.argsort(-abs(contributions).round(9), kind="stable")[:number]


def robust_deviations(means: Floats) -> Floats:
    """Return the distance of each mean from the median of all means, in robust deviations.

    The deviation is `NORMAL_DEVIATION` times the median distance; if more than half of the means
    are equal, there is none, and all distances are NaN.

    Args:
        means: mean of each dimension over tokens. *Shape:* ``(width,)``.
    """
    distances = means - np.median(means)
    return divide(distances, NORMAL_DEVIATION * np.median(abs(distances)))


def outliers_by_mean(means: Floats) -> Ints:
    """Return the dimensions whose mean is over `MAX_DEVIATIONS` from the median, ascending."""
    return np.flatnonzero(abs(robust_deviations(means)) > MAX_DEVIATIONS)


def mean_cross_sentence_product(sums: Floats, counts: Ints) -> Jackknife:
    """Return the mean inner product of vectors of different sentences, over ordered pairs.

    Args:
        sums: vectors summed by sentence. *Shape:* ``(sentence, width)``.
        counts: number of vectors of each sentence. *Shape:* ``(sentence,)``.
    """
    products = sums @ sums.sum(0) - np.einsum("sd,sd->s", sums, sums)
    pairs = counts * (counts.sum() - counts)
    # Leaving out a sentence removes the pairs in which it is first and those in which it is second.
    without = divide(products.sum() - 2 * products, pairs.sum() - 2 * pairs)
    return Jackknife(float(divide(products.sum(), pairs.sum())), without, float(counts.sum()))


def mean_over_tokens(values: Floats, counts: Ints) -> Jackknife:
    """Return the mean of values over tokens.

    Args:
        values: sums of the values by sentence. *Shape:* ``(sentence,)``.
        counts: number of tokens that count, by sentence. *Shape:* ``(sentence,)``.
    """
    without = divide(values.sum() - values, counts.sum() - counts)
    return Jackknife(float(divide(values.sum(), counts.sum())), without, float(counts.sum()))


class KindShares(NamedTuple):
    """Shares of kinds, and the amounts that each share loses without one of its sentences.

    Attributes:
        top, bottom: numerator and denominator of each share. *Shape:* ``(kind,)``.
        kind, sentence: kind and sentence of each part that can be left out. *Shape:* ``(part,)``.
        top_lost, bottom_lost: contributions of each part to numerator and denominator. *Shape:*
            ``(part,)``.
    """

    top: Floats
    bottom: Floats
    kind: Ints
    sentence: Ints
    top_lost: Floats
    bottom_lost: Floats

    @classmethod
    def none(cls) -> "KindShares":
        """Return the shares of no kinds."""
        empty, no_index = np.zeros(0), np.zeros(0, dtype=np.int64)
        return cls(empty, empty, no_index, no_index, empty, empty)


def mean_over_kinds(parts: KindShares, sentences: int) -> Jackknife:
    """Return the mean share over kinds; without its last sentence, a kind does not count."""
    shares = divide(parts.top, parts.bottom)
    remaining = parts.bottom[parts.kind] - parts.bottom_lost
    kind_lost = ~(remaining > 0)
    share_without = divide(parts.top[parts.kind] - parts.top_lost, remaining)
    change = np.where(kind_lost, 0.0, share_without) - shares[parts.kind]
    totals = shares.sum() + np.bincount(parts.sentence, change, sentences)
    kinds = len(shares) - np.bincount(parts.sentence, kind_lost, sentences)
    value = float(divide(shares.sum(), len(shares)))
    return Jackknife(value, divide(totals, kinds), float(len(shares)))
