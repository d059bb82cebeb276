"""Pairs of tokens counted by distance, by token type and by sentence, in one compiled loop.

Outputs of a head are compared for pairs of tokens of one text. Questions about a kind of pair, such
as pairs within a sentence, compare pairs of one text at one distance, since near tokens are alike
for many reasons.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.analysis.numba_kernel import kernel
from headbook.schema import MAX_DISTANCE, SIMILARITY_LABELS, TOP_PAIR_SHARES

SIMILARITY_DECIMALS = 6  # of compared similarities
MAX_PAIR_DISTANCE = 64  # tokens; pairs at larger distances count as pairs at this distance
ALL_PAIRS, DIFFERENT_TOKENS = range(2)  # sets of pairs with thresholds of their own
N_PAIRS, SIMILARITY = range(2)  # fields of a cell; numbers of high pairs of both sets follow
N_LABELS = len(SIMILARITY_LABELS)
N_FIELDS = 2 + 2 * N_LABELS
TOP_LABEL = [*TOP_PAIR_SHARES].index("top 1 %")  # similarity of the pairs around an anchor


@dataclass(frozen=True, eq=False)
class PairLimits:
    """Results of a pass over all texts that a second pass over pairs of tokens needs.

    Attributes:
        thresholds: smallest similarity of each top share of a set of pairs. *Shape:* ``(set, share,
            head)``; sets `ALL_PAIRS` and `DIFFERENT_TOKENS`, shares as in `TOP_PAIR_SHARES`.
        mean_distance: mean distance of pairs of different tokens. *Shape:* ``(head,)``.
    """

    thresholds: Floats
    mean_distance: Floats

    @classmethod
    def of(
        cls, similarities: NDArray[np.floating], same: NDArray[np.bool_], distances: Floats
    ) -> "PairLimits":
        """Return the limits of the heads of one layer.

        Args:
            similarities: similarities of pairs; NaN without. *Shape:* ``(head, pair)``.
            same: whether a pair has equal tokens. *Shape:* ``(pair,)``.
            distances: sum of distances, and number, of pairs of different tokens. *Shape:* ``(2,
                head)``.
        """
        both = [thresholds(similarities), thresholds(similarities[:, ~same])]
        with np.errstate(invalid="ignore", divide="ignore"):
            return cls(np.stack(both), distances[0] / distances[1])

    @property
    def lowest(self) -> Floats:
        """Similarity from which on a pair is high before rounding; NaN without pairs.

        *Shape:* ``(set, label, head)``; labels `SIMILARITY_LABELS`.
        """
        n_heads = self.thresholds.shape[-1]
        fixed = [float(label) for label in SIMILARITY_LABELS if label not in TOP_PAIR_SHARES]
        of_labels = np.broadcast_to(np.array(fixed)[None, :, None], (2, len(fixed), n_heads))
        rounded = np.concatenate([self.thresholds, of_labels], 1)
        scale = 10**SIMILARITY_DECIMALS
        # A threshold on the grid of rounded similarities includes itself.
        lowest: Floats = (np.ceil(rounded * scale - 1e-3) - 0.5) / scale
        return lowest


def thresholds(similarities: NDArray[np.floating]) -> Floats:
    """Return the similarity threshold of each top share of pairs, for each head.

    A threshold lies halfway between the lowest similarity of the share and the next lower one.

    Args:
        similarities: similarities of pairs; NaN without. *Shape:* ``(head, pair)``.

    Returns:
        *Shape:* ``(share, head)``; NaN without pairs.
    """
    n_known = (~np.isnan(similarities)).sum(-1)
    limits = np.full((len(TOP_PAIR_SHARES), len(similarities)), np.nan)
    heads = np.flatnonzero(n_known)
    if not len(heads):
        return limits
    n_above = [np.ceil(n_known[heads] * share).astype(np.int64)
               for share in TOP_PAIR_SHARES.values()]  # fmt: skip
    lowest = n_known[heads] - np.stack(n_above)
    index = np.stack([lowest, np.maximum(lowest - 1, 0)])
    # NaN is sorted last; a complete order would take several times as long.
    ordered = np.partition(similarities[heads], np.unique(index), -1)
    ends = ordered[np.arange(len(heads)), index].astype(np.float64).round(SIMILARITY_DECIMALS)
    limits[:, heads] = ends.mean(0)
    return limits


@kernel
def pair_loop(  # noqa: C901, PLR0917 - one pass over the pairs
    similarity: NDArray[Any],
    counted: NDArray[Any],
    ids: NDArray[Any],
    part: NDArray[Any],
    lowest: NDArray[Any],
    cells: NDArray[Any],
    ends: NDArray[Any],
) -> None:
    """Fill the cells of `PairCells` and the numbers of pairs of each token.

    Args:
        similarity: *Shape:* ``(sentence, head, token, token)``.
        counted: tokens that take part. *Shape:* ``(sentence, head, token)``.
        ids, part: token type, and sentence of a passage, of each token. *Shape:* ``(sentence,
            token)``.
        lowest: as in `PairLimits`. *Shape:* ``(set, label, head)``.
        cells: filled in place. *Shape:* ``(sentence, head, distance, 2, 2, field)``.
        ends: filled in place. *Shape:* ``(sentence, head, token, 2)``.
    """
    n_sentences, n_heads, n, _ = similarity.shape
    for s in range(n_sentences):
        for h in range(n_heads):
            for i in range(n):
                if not counted[s, h, i]:
                    continue
                for j in range(i + 1, n):
                    if not counted[s, h, j]:
                        continue
                    value = similarity[s, h, i, j]
                    distance = min(j - i, MAX_PAIR_DISTANCE) - 1
                    same, within = int(ids[s, i] == ids[s, j]), int(part[s, i] == part[s, j])
                    cell = cells[s, h, distance, same, within]
                    cell[N_PAIRS] += 1
                    cell[SIMILARITY] += value
                    for k in range(N_LABELS):
                        cell[2 + k] += value >= lowest[ALL_PAIRS, k, h]
                    if not same:
                        for k in range(N_LABELS):
                            cell[2 + N_LABELS + k] += value >= lowest[DIFFERENT_TOKENS, k, h]
                        high = value >= lowest[DIFFERENT_TOKENS, TOP_LABEL, h]
                        for token in (i, j):
                            ends[s, h, token, 0] += 1
                            ends[s, h, token, 1] += high


@dataclass(frozen=True, eq=False)
class PairSide:
    """Pairs of one side of a question, by distance.

    Attributes:
        n: number of pairs. *Shape:* ``(sentence, head, distance)``.
        total: sum of their similarities. *Shape:* ``(sentence, head, distance)``.
        high: number of pairs of high similarity. *Shape:* ``(sentence, head, distance, label)``.
    """

    n: Floats
    total: Floats
    high: Floats

    def excess(self, other: "PairSide") -> tuple[Floats, Floats, Floats]:
        """Return the mean difference of similarities at equal distance, as a ratio by text.

        At each distance the difference of both means has the weight n1 n2 / (n1 + n2).

        Returns:
            Numerators, denominators and numbers of pairs at distances that both sides have.
            *Shape:* ``(sentence, head)`` each.
        """
        pairs = self.n + other.n
        some = np.maximum(pairs, 1)
        numerator = (self.total * other.n - other.total * self.n) / some
        weight = self.n * other.n / some
        return numerator.sum(-1), weight.sum(-1), (pairs * (weight > 0)).sum(-1)

    def odds(self, other: "PairSide") -> tuple[Floats, Floats, Floats]:
        """Return Mantel and Haenszel's sums over distances; their ratio is an odds ratio.

        Returns:
            Numerators, denominators and numbers of high pairs at distances that both sides have.
            *Shape:* ``(sentence, head, label)`` each.
        """
        pairs = np.maximum(self.n + other.n, 1)[..., None]
        low = [side.n[..., None] - side.high for side in (self, other)]
        above, below = self.high * low[1] / pairs, other.high * low[0] / pairs
        both = ((self.n > 0) & (other.n > 0))[..., None]
        high = ((self.high + other.high) * both).sum(2)
        return above.sum(2), below.sum(2), high


@dataclass(frozen=True, eq=False)
class PairCells:
    """Numbers and similarities of pairs of tokens, for the heads of a layer.

    Attributes:
        cells: number of pairs, sum of similarities, and number of high pairs of both sets for each
            label. *Shape:* ``(sentence, head, distance, 2, 2, field)``; distances from 1 to
            `MAX_PAIR_DISTANCE`, then whether tokens are equal, then whether sentences are.
        ends: number of pairs with different tokens of each token, and of those in the top 1 %.
            *Shape:* ``(sentence, head, token, 2)``.
        mean_distance: mean distance of pairs of different tokens. *Shape:* ``(head,)``.
    """

    cells: Floats
    ends: Floats
    mean_distance: Floats

    @classmethod
    def of(
        cls,
        similarity: NDArray[np.floating],
        counted: NDArray[np.bool_],
        ids: NDArray[np.integer],
        part: NDArray[np.integer],
        limits: PairLimits,
    ) -> "PairCells":
        """Count the pairs of a layer; the arguments are those of `pair_loop`."""
        n_sentences, n_heads, n, _ = similarity.shape
        cells = np.zeros((n_sentences, n_heads, MAX_PAIR_DISTANCE, 2, 2, N_FIELDS))
        ends = np.zeros((n_sentences, n_heads, n, 2))
        counted = np.ascontiguousarray(np.broadcast_to(counted, (n_sentences, n_heads, n)))
        pair_loop(similarity, counted, ids, part, limits.lowest, cells, ends)
        return cls(cells, ends, limits.mean_distance)

    def _side(self, cells: Floats, pair_set: int) -> PairSide:
        first = 2 + pair_set * N_LABELS
        high = cells[..., first : first + N_LABELS]
        return PairSide(cells[..., N_PAIRS], cells[..., SIMILARITY], high)

    def by_sentence(self) -> tuple[PairSide, PairSide]:
        """Return pairs of different tokens within one sentence, and of two sentences."""
        within, across = (self.cells[..., 0, same_sentence, :] for same_sentence in (1, 0))
        return self._side(within, DIFFERENT_TOKENS), self._side(across, DIFFERENT_TOKENS)

    def by_token(self) -> tuple[PairSide, PairSide]:
        """Return pairs of equal tokens, and of different ones."""
        same, different = (self.cells[..., equal, :, :].sum(-2) for equal in (1, 0))
        return self._side(same, ALL_PAIRS), self._side(different, ALL_PAIRS)

    def similarities(self) -> tuple[Floats, Floats, Floats]:
        """Return sums of similarities and numbers of pairs, by the labels `CONTEXT_DISTANCES`.

        The numbers of pairs are denominators and observations. *Shape:* ``(sentence, head, label)``
        each.
        """
        sums = self.cells[..., [SIMILARITY, N_PAIRS]].sum(3)  # (s, h, distance, within, field)
        near = sums[:, :, : MAX_DISTANCE - 1]
        far = sums[:, :, MAX_DISTANCE - 1 :].sum(2, keepdims=True)
        labelled = np.concatenate([near, far], 2)
        whole = labelled.sum((2, 3))[:, :, None]
        found = np.concatenate([whole, labelled[..., 1, :], labelled[..., 0, :]], 2)
        return found[..., 0], found[..., 1], found[..., 1]

    def distances(self) -> tuple[Floats, Floats, Floats]:
        """Return distances of high pairs of different tokens, over the mean, and their number.

        The numbers of pairs are denominators and observations. *Shape:* ``(sentence, head, label)``
        each.
        """
        within, across = self.by_sentence()
        high = within.high + across.high
        mean = np.where(self.mean_distance > 0, self.mean_distance, 1)
        distance = np.arange(1, MAX_PAIR_DISTANCE + 1)
        number = high.sum(2)
        return np.einsum("shdl,d->shl", high, distance) / mean[:, None], number, number
