"""States of sampled tokens as points in space, and what each sentence does to a number. No torch.

Intervals are delete-one jackknives over sentences: every number comes with what it would be without
each sentence in turn. Tokens of one sentence are not independent, and a pair of tokens hangs on two
sentences, which the jackknife knows of itself.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats, Ints, divide

NO_KIND = -1
MINIBATCH = 256  # tokens of a minibatch
NAMED = 3  # outlier dimensions of a state
STILL = 1e-12  # a dimension that moves less, against its size, does not move


class Jackknife(NamedTuple):
    """A number with what it would be without each sentence.

    Attributes:
        without: *Shape:* ``(sentence,)``; NaN where that is not known.
        events: observations behind the value.
    """

    value: float
    without: Floats
    events: float

    def minus(self, other: "Jackknife") -> "Jackknife":
        """The difference; its interval knows that both come from the same sentences."""
        return Jackknife(self.value - other.value, self.without - other.without, self.events)


class TokensByKind(NamedTuple):
    """Tokens of one kind in one sentence, for kinds that occur in several sentences.

    Attributes:
        tokens: places of the tokens, cell by cell.
        starts: where in ``tokens`` each cell begins. *Shape:* ``(cell,)``.
        sentence, kind, size: of each cell; kinds are numbered from 0, ascending.
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
        kind: vocabulary entry of each token, or `NO_KIND` where it is none that is compared.
        seed: of draws from the tokens.
    """

    sentence: Ints
    kind: Ints
    seed: int = 0

    @cached_property
    def starts(self) -> Ints:
        """First token of each sentence."""
        return np.flatnonzero(np.diff(self.sentence, prepend=-1))

    @cached_property
    def counts(self) -> Ints:
        """Tokens of each sentence."""
        return np.diff(self.starts, append=len(self.sentence))

    def sums(self, values: Floats) -> Floats:
        """Values of tokens added up by sentence. *Shape:* ``(sentence, ...)``."""
        sums: Floats = np.add.reduceat(values, self.starts, axis=0)
        return sums

    @cached_property
    def cells(self) -> TokensByKind:
        """Tokens by kind and sentence, of kinds that occur in two sentences at least."""
        order = np.lexsort((self.sentence, self.kind))
        order = order[self.kind[order] != NO_KIND]
        kind, sentence = self.kind[order], self.sentence[order]
        new = (np.diff(kind, prepend=-1) != 0) | (np.diff(sentence, prepend=-1) != 0)
        spread = np.bincount(kind[new], minlength=1)  # sentences of each kind
        kept = spread[kind] > 1
        order, kind, sentence, new = order[kept], kind[kept], sentence[kept], new[kept]
        starts = np.flatnonzero(new)
        numbers = np.unique(kind[starts], return_inverse=True)[1]
        size = np.diff(starts, append=len(order))
        return TokensByKind(order, starts, sentence[starts], numbers, size)

    @cached_property
    def minibatches(self) -> Ints:
        """Tokens in minibatches, neighbours far apart. *Shape:* ``(minibatch, token)``.

        Each minibatch takes every k-th token, so that few of them share a sentence.
        """
        number = len(self.sentence) // MINIBATCH
        return np.arange(number * MINIBATCH).reshape(MINIBATCH, number).T


@dataclass(frozen=True, eq=False)
class StateVectors:
    """The tokens of a sample in one state.

    Attributes:
        vectors: *Shape:* ``(token, width)``.
        start: the same tokens in the state that enters layer 0; None for that state itself.
    """

    sample: TokenSample
    vectors: Floats
    start: "StateVectors | None" = None

    @cached_property
    def units(self) -> Floats:
        """Vectors of length 1; NaN where the length is 0."""
        return unit_vectors(self.vectors)

    @cached_property
    def sums(self) -> Floats:
        """Unit vectors added up by sentence. *Shape:* ``(sentence, width)``."""
        return self.sample.sums(self.units)

    @cached_property
    def anisotropy(self) -> Jackknife:
        """Mean cosine of two tokens of different sentences."""
        return mean_cross_sentence_product(self.sums, self.sample.counts)

    def mean_cosine(self, vectors: Floats) -> Jackknife:
        """The same of other unit vectors."""
        return mean_cross_sentence_product(self.sample.sums(vectors), self.sample.counts)

    @cached_property
    def contributions(self) -> Floats:
        """What each dimension adds to the mean cosine. *Shape:* ``(width,)``."""
        counts = self.sample.counts
        pairs = counts.sum() ** 2 - (counts**2).sum()
        products = self.sums.sum(0) ** 2 - (self.sums**2).sum(0)
        return divide(products, pairs)

    @cached_property
    def outlier_dimensions(self) -> Ints:
        """The dimensions that add most, first the most. *Shape:* ``(up to NAMED,)``."""
        return largest_dimensions(self.contributions, NAMED)

    @cached_property
    def standardised(self) -> Floats:
        """Every dimension with mean 0 and deviation 1, as units. *Shape:* as ``vectors``."""
        middle, deviation = self.vectors.mean(0), self.vectors.std(0)
        moves = deviation > STILL * abs(self.vectors).max(0)
        scale = np.divide(1.0, deviation, out=np.zeros(len(deviation)), where=moves)
        return unit_vectors((self.vectors - middle) * scale)

    def without_dimensions(self, dimensions: Ints) -> Floats:
        """Units of what is left without outliers; NaN where none can be told apart.

        *Shape:* as ``vectors``.
        """
        rest = self.vectors.copy()
        rest[:, dimensions] = np.nan if np.isnan(self.anisotropy.value) else 0
        return unit_vectors(rest)


def unit_vectors(vectors: Floats) -> Floats:
    """Vectors of length 1; NaN where the length is 0."""
    lengths = np.sqrt(np.einsum("td,td->t", vectors, vectors))
    return vectors / np.where(lengths > 0, lengths, np.nan)[:, None]


def largest_dimensions(contributions: Floats, most: int) -> Ints:
    """The dimensions that add most, first the most. Rounded, so that last bits decide nothing.

    *Shape:* ``(width,)`` to ``(up to most,)``.
    """
    return np.argsort(-abs(contributions).round(9), kind="stable")[:most]


def mean_cross_sentence_product(sums: Floats, counts: Ints) -> Jackknife:
    """Mean product of vectors of different sentences, over all ordered pairs.

    Args:
        sums: vectors added up by sentence. *Shape:* ``(sentence, width)``.
        counts: how many vectors. *Shape:* ``(sentence,)``.
    """
    products = sums @ sums.sum(0) - np.einsum("sd,sd->s", sums, sums)
    pairs = counts * (counts.sum() - counts)
    # Without a sentence, the pairs go in which it comes first, and those in which it comes second.
    without = divide(products.sum() - 2 * products, pairs.sum() - 2 * pairs)
    return Jackknife(float(divide(products.sum(), pairs.sum())), without, float(counts.sum()))


def mean_over_tokens(values: Floats, counts: Ints) -> Jackknife:
    """Mean over tokens.

    Args:
        values: added up by sentence. *Shape:* ``(sentence,)``.
        counts: tokens that count.
    """
    without = divide(values.sum() - values, counts.sum() - counts)
    return Jackknife(float(divide(values.sum(), counts.sum())), without, float(counts.sum()))


class KindShares(NamedTuple):
    """Shares of kinds, and what leaves each of them with one of its sentences.

    Attributes:
        top, bottom: the share of a kind is one over the other. *Shape:* ``(kind,)``.
        kind, sentence: of what can leave. *Shape:* ``(part,)``.
        top_lost, bottom_lost: what leaves; the same shape.
    """

    top: Floats
    bottom: Floats
    kind: Ints
    sentence: Ints
    top_lost: Floats
    bottom_lost: Floats

    @classmethod
    def none(cls) -> "KindShares":
        """No kind at all."""
        empty, places = np.zeros(0), np.zeros(0, dtype=np.int64)
        return cls(empty, empty, places, places, empty, empty)


def mean_over_kinds(parts: KindShares, sentences: int) -> Jackknife:
    """The mean share over kinds; a kind of which nothing is left does not count any more."""
    shares = divide(parts.top, parts.bottom)
    left = parts.bottom[parts.kind] - parts.bottom_lost
    gone = ~(left > 0)
    changed = divide(parts.top[parts.kind] - parts.top_lost, left)
    change = np.where(gone, 0.0, changed) - shares[parts.kind]
    totals = shares.sum() + np.bincount(parts.sentence, change, sentences)
    kinds = len(shares) - np.bincount(parts.sentence, gone, sentences)
    value = float(divide(shares.sum(), len(shares)))
    return Jackknife(value, divide(totals, kinds), float(len(shares)))
