"""Which head of one model does what a head of another does, by where they look. No torch.

The *similarity* of two heads is the mean over words of Bhattacharyya's coefficient
sum_j sqrt(A_ij B_ij) of their rows between words, without the sink and renormalised
(`headbook.analysis.attention_divergence.rows_between_words`): 1 for the same rows, 0 without a word
in common. It is an inner product, so that all pairs of heads of a sentence are one matrix product,
and sums add.

Heads are matched one to one so that similarities add up to the most; that is a view and not a
finding, for jobs split and merge. A pair no more similar than heads are to those of a model that
learned nothing is no pair: *no counterpart*.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from headbook.analysis.accumulators import N_SPLITS, add_fields
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.attention_divergence import AttentionRows

UNMATCHED = -1  # in place of a head
DIGITS = 6  # to which similarities are compared: the last bits depend on the order of sentences
NULL = 0.95  # share of heads that a model without training may resemble less


@dataclass(frozen=True, eq=False)
class SimilaritySums:
    """How alike the heads of two models are, as sums over sentences; merged with ``+``.

    Attributes:
        total: coefficients, added over the words whose rows count in both heads. *Shape:*
            ``(half, head of A, head of B)``; halves as in `headbook.analysis.accumulators`.
        words: how many words that are. The same shape.
        sentences: *Shape:* ``(half,)``.
    """

    total: Floats
    words: Floats
    sentences: Ints

    @classmethod
    def zero(cls, heads_a: int, heads_b: int) -> Self:
        """No sentences yet."""
        shape = (N_SPLITS, heads_a, heads_b)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(N_SPLITS, dtype=np.int64))

    @classmethod
    def of(cls, a: AttentionRows, b: AttentionRows, half: int) -> Self:
        """One sentence.

        Args:
            a, b: rows between the same words, in both models.
            half: 0 or 1.
        """
        found = cls.zero(len(a.weights), len(b.weights))
        one, other = (
            (np.sqrt(rows.weights) * rows.counted[..., None]).reshape(len(rows.weights), -1)
            for rows in (a, b)
        )
        found.total[half] = one @ other.T
        found.words[half] = a.counted.astype(np.float64) @ b.counted.astype(np.float64).T
        found.sentences[half] = 1
        return found

    __add__ = add_fields

    def half(self, number: int) -> "SimilaritySums":
        """The sentences of one half only."""
        kept = (np.arange(N_SPLITS) == number).astype(np.int64)
        by_pair = kept[:, None, None]
        return SimilaritySums(self.total * by_pair, self.words * by_pair, self.sentences * kept)

    def value(self, least: int = 1) -> Floats:
        """Similarity of every two heads. *Shape:* ``(head of A, head of B)``.

        Args:
            least: words that a pair needs; NaN below.
        """
        words = self.words.sum(0)
        found = divide(self.total.sum(0), np.where(words >= least, words, 0))
        return np.minimum(found, 1)


@dataclass(frozen=True, eq=False)
class HeadMatching:
    """The head of B for each head of A; every array is by head of A.

    Attributes:
        partner: the head it is matched with, one to one; `UNMATCHED` where B has fewer heads or no
            similarity is known.
        similarity: with the partner; NaN without one.
        counterpart: whether that is not below `threshold`, what models without training give.
        best: the most similar head of B, which several may share; `UNMATCHED` without any.
        mutual: whether it is the most similar to that one, too.
        margin: similarity to the best head less that to the second; NaN without a second.
        threshold: as it was given.
    """

    partner: Ints
    similarity: Floats
    counterpart: NDArray[np.bool_]
    best: Ints
    mutual: NDArray[np.bool_]
    margin: Floats
    threshold: float


class _Scores(NamedTuple):
    """Similarities as whole numbers, ties broken towards heads at the same place."""

    value: Floats
    there: NDArray[np.bool_]


def null_threshold(*null: Floats) -> float:
    """What a counterpart needs: the 95th percentile, over heads, of the best of a null model.

    Args:
        null: similarities of the heads of A with those of models that learned nothing, such as
            untrained twins of B, one or several. *Shape:* ``(head of A, head)``; NaN where unknown.

    Returns:
        NaN where nothing is known.
    """
    best = np.concatenate([np.where(np.isnan(n), -1, n).max(1, initial=-1) for n in null])
    known = best[best >= 0]
    return float(np.quantile(known, NULL)) if len(known) else float("nan")


def match(similarity: Floats, threshold: float) -> HeadMatching:
    """Match heads one to one so that similarities, to six digits, add up to the most.

    Ties go to heads at the same relative place, so that a model is matched with itself head by
    head, and always in the same way.

    Args:
        similarity: NaN where it is not known. *Shape:* ``(head of A, head of B)``, heads layer by
            layer.
        threshold: of `null_threshold`; 0 where every pair shall be a counterpart, while none
            reaches NaN.
    """
    scores = _scores(similarity)
    rows, columns = linear_sum_assignment(scores.value, maximize=True)
    known = scores.there[rows, columns]
    partner = np.full(len(similarity), UNMATCHED)
    partner[rows[known]] = columns[known]
    value = np.where(partner == UNMATCHED, np.nan, _at(similarity, partner))
    best, back = _best(scores), _best(_Scores(scores.value.T, scores.there.T))
    own = np.arange(len(best))
    mutual = (best != UNMATCHED) & (np.append(back, UNMATCHED)[best] == own)
    return HeadMatching(
        partner, value, value >= threshold, best, mutual, _margin(similarity), threshold
    )


def split_half_agreement(one: HeadMatching, other: HeadMatching) -> float:
    """Share of the counterparts of one half of the sentences that the other half gives, too.

    Args:
        one, other: matchings of the same heads on either half.

    Returns:
        NaN where there is no counterpart at all.
    """
    same = (one.partner == other.partner)[one.counterpart]
    return float(same.mean()) if len(same) else float("nan")


def _scores(similarity: Floats) -> _Scores:
    """Scores whose sums are exact: no tie-break outweighs a difference in similarity."""
    heads_a, heads_b = similarity.shape
    there = ~np.isnan(similarity)
    place_a, place_b = ((np.arange(n) + 0.5) / max(n, 1) for n in (heads_a, heads_b))
    most = 2 * max(heads_a, heads_b)
    near = np.round(most * (1 - np.abs(place_a[:, None] - place_b)))
    level = np.round(np.where(there, similarity, 0) * 10**DIGITS)
    return _Scores(np.where(there, level * (min(heads_a, heads_b) * most + 1) + near, 0), there)


def _best(scores: _Scores) -> Ints:
    """The place of the largest score of each row that is known; `UNMATCHED` without any."""
    if not scores.value.shape[1]:
        return np.full(len(scores.value), UNMATCHED)
    found = np.where(scores.there, scores.value, -1).argmax(1)
    return np.where(scores.there.any(1), found, UNMATCHED)


def _at(similarity: Floats, places: Ints) -> Floats:
    """One of each row; whatever stands there for `UNMATCHED`."""
    if not similarity.shape[1]:
        return np.full(len(similarity), np.nan)
    found: Floats = np.take_along_axis(similarity, np.maximum(places, 0)[:, None], 1)[:, 0]
    return found


def _margin(similarity: Floats) -> Floats:
    """The largest of each row less the second; NaN where there are not two."""
    known = np.sort(np.where(np.isnan(similarity), -np.inf, similarity), 1)[:, ::-1]
    if known.shape[1] < 2:
        return np.full(len(known), np.nan)
    first, second = np.where(np.isinf(known[:, :2]), np.nan, known[:, :2]).T
    found: Floats = first - second
    return found
