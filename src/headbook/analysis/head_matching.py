"""Similarity of attention between heads of two models, and their one-to-one matching. No torch.

The *similarity* of two heads is the mean over words of Bhattacharyya's coefficient
sum_j sqrt(A_ij B_ij) of their rows between words, without the sink and renormalised
(`headbook.analysis.attention_divergence.rows_between_words`): 1 for equal rows, 0 without a common
word. The coefficient is an inner product, so that all pairs of heads of a sentence are one matrix
product, and sums add.

Heads are matched one to one with the largest sum of similarities. The matching orders heads for
display and is no finding: functions may be split or merged between heads. A head that is no more
similar to its partner than to heads of an untrained model has *no counterpart*.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from headbook.analysis.accumulators import N_SPLITS, add_fields
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.attention_divergence import AttentionRows

UNMATCHED = -1  # index if a head has no partner
SCORE_DECIMALS = 6  # of compared similarities, whose last bits depend on the order of sentences
NULL_QUANTILE = 0.95  # quantile, over heads, of the best similarity with an untrained model


@dataclass(frozen=True, eq=False)
class SimilaritySums:
    """Similarities of the heads of two models as sums over sentences; merged with ``+``.

    Attributes:
        total: sums of the coefficients over words whose rows count in both heads. *Shape:*
            ``(split, head of A, head of B)``; splits as in `headbook.analysis.accumulators`.
        words: number of these words. *Shape:* ``(split, head of A, head of B)``.
        sentences: number of sentences. *Shape:* ``(split,)``.
    """

    total: Floats
    words: Floats
    sentences: Ints

    @classmethod
    def zero(cls, heads_a: int, heads_b: int) -> Self:
        """Return the sums of zero sentences."""
        shape = (N_SPLITS, heads_a, heads_b)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(N_SPLITS, dtype=np.int64))

    @classmethod
    def of(cls, a: AttentionRows, b: AttentionRows, split: int) -> Self:
        """Return the sums of one sentence.

        Args:
            a, b: rows between the same words in both models.
            split: split of the sentence, 0 or 1.
        """
        sums = cls.zero(len(a.weights), len(b.weights))
        roots_a, roots_b = (
            (np.sqrt(rows.weights) * rows.counted[..., None]).reshape(len(rows.weights), -1)
            for rows in (a, b)
        )
        sums.total[split] = roots_a @ roots_b.T
        sums.words[split] = a.counted.astype(np.float64) @ b.counted.astype(np.float64).T
        sums.sentences[split] = 1
        return sums

    __add__ = add_fields

    def split(self, number: int) -> "SimilaritySums":
        """Return the sums over one split, with zeros for the other."""
        in_split = (np.arange(N_SPLITS) == number).astype(np.int64)
        by_pair = in_split[:, None, None]
        return SimilaritySums(self.total * by_pair, self.words * by_pair, self.sentences * in_split)

    def value(self, min_words: int = 1) -> Floats:
        """Return the similarity of every two heads. *Shape:* ``(head of A, head of B)``.

        Args:
            min_words: smallest number of words; pairs of heads with fewer have the value NaN.
        """
        words = self.words.sum(0)
        similarity = divide(self.total.sum(0), np.where(words >= min_words, words, 0))
        return np.minimum(similarity, 1)


@dataclass(frozen=True, eq=False)
class HeadMatching:
    """Best and matched head of model B for each head of model A; arrays are by head of A.

    Attributes:
        partner: head of B in the one-to-one matching; `UNMATCHED` if B has fewer heads or no
            similarity is known.
        similarity: similarity with the partner; NaN without partner.
        counterpart: whether the similarity is at least ``threshold``.
        best: most similar head of B, which several heads may share; `UNMATCHED` if none is known.
        mutual: whether the head of A is also the most similar one to its ``best`` head.
        margin: similarity to the best head minus similarity to the second; NaN without a second.
        threshold: smallest similarity of counterparts, from `null_threshold`.
    """

    partner: Ints
    similarity: Floats
    counterpart: NDArray[np.bool_]
    best: Ints
    mutual: NDArray[np.bool_]
    margin: Floats
    threshold: float


class _Scores(NamedTuple):
    """Similarities as whole numbers, with ties broken towards heads at the same relative place."""

    value: Floats
    known: NDArray[np.bool_]


def null_threshold(*null: Floats) -> float:
    """Return the smallest similarity of a counterpart, from heads of untrained models.

    Args:
        null: similarities of the heads of A with those of one or several untrained models, such as
            B with random weights; NaN where unknown. *Shape:* ``(head of A, head)``.

    Returns:
        95th percentile, over heads, of the largest similarity; NaN if none is known.
    """
    best = np.concatenate([np.nan_to_num(s, nan=-1).max(1, initial=-1) for s in null])
    known = best[best >= 0]
    return float(np.quantile(known, NULL_QUANTILE)) if len(known) else float("nan")


def match(similarity: Floats, threshold: float) -> HeadMatching:
    """Match heads one to one with the largest sum of similarities, rounded to six digits.

    Ties go to heads at the same relative place, so that a model is matched with itself head by
    head, and the result is deterministic.

    Args:
        similarity: similarities of heads, layer by layer; NaN where unknown. *Shape:* ``(head of A,
            head of B)``.
        threshold: smallest similarity of counterparts, from `null_threshold`; with 0 every pair
            is a counterpart, with NaN none.
    """
    scores = _scores(similarity)
    rows, columns = linear_sum_assignment(scores.value, maximize=True)
    known = scores.known[rows, columns]
    partner = np.full(len(similarity), UNMATCHED)
    partner[rows[known]] = columns[known]
    partner_similarity = np.where(partner == UNMATCHED, np.nan, _at(similarity, partner))
    best, best_of_b = _best(scores), _best(_Scores(scores.value.T, scores.known.T))
    heads = np.arange(len(best))
    mutual = (best != UNMATCHED) & (np.append(best_of_b, UNMATCHED)[best] == heads)
    return HeadMatching(
        partner=partner,
        similarity=partner_similarity,
        counterpart=partner_similarity >= threshold,
        best=best,
        mutual=mutual,
        margin=_margin(similarity),
        threshold=threshold,
    )


def split_half_agreement(first: HeadMatching, second: HeadMatching) -> float:
    """Return the share of counterparts on one split that the other split gives as well.

    Args:
        first, second: matchings of the same heads on either split.

    Returns:
        A share from 0 to 1; NaN without counterparts.
    """
    same = (first.partner == second.partner)[first.counterpart]
    return float(same.mean()) if len(same) else float("nan")


def _scores(similarity: Floats) -> _Scores:
    """Return scores with exact sums: no tie-break outweighs a difference in similarity."""
    heads_a, heads_b = similarity.shape
    known = ~np.isnan(similarity)
    place_a, place_b = ((np.arange(n) + 0.5) / max(n, 1) for n in (heads_a, heads_b))
    max_bonus = 2 * max(heads_a, heads_b)
    tie_bonus = np.round(max_bonus * (1 - np.abs(place_a[:, None] - place_b)))
    scaled = np.round(np.where(known, similarity, 0) * 10**SCORE_DECIMALS)
    # One unit of similarity outweighs the tie bonuses of all pairs of a matching together.
    unit = min(heads_a, heads_b) * max_bonus + 1
    return _Scores(np.where(known, scaled * unit + tie_bonus, 0), known)


def _best(scores: _Scores) -> Ints:
    """Return the column of the largest known score of each row; `UNMATCHED` without one."""
    if not scores.value.shape[1]:
        return np.full(len(scores.value), UNMATCHED)
    column = np.where(scores.known, scores.value, -1).argmax(1)
    return np.where(scores.known.any(1), column, UNMATCHED)


def _at(similarity: Floats, columns: Ints) -> Floats:
    """Return the similarity of each row at a column; any value where the column is `UNMATCHED`."""
    if not similarity.shape[1]:
        return np.full(len(similarity), np.nan)
    values: Floats = np.take_along_axis(similarity, np.maximum(columns, 0)[:, None], 1)[:, 0]
    return values


def _margin(similarity: Floats) -> Floats:
    """Return the largest similarity of each row minus the second; NaN without a second."""
    known = np.sort(np.where(np.isnan(similarity), -np.inf, similarity), 1)[:, ::-1]
    if known.shape[1] < 2:
        return np.full(len(known), np.nan)
    first, second = np.where(np.isinf(known[:, :2]), np.nan, known[:, :2]).T
    margin: Floats = first - second
    return margin
