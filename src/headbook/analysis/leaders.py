"""Paired tests of one of several ratios of sums, such as the largest, against all others.

"Most" is said of one head or layer only if it leads the second in a test on the same sentences.
Numbers of two heads vary together from sentence to sentence, so that overlapping intervals say
nothing about their difference. Clusters are sentences, or buckets of sentences
(`headbook.study.sums.buckets`). A number that a few clusters decide leads only if it leads without
them, too (`headbook.analysis.few_clusters`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.few_clusters import few_clusters
from headbook.analysis.multiple_testing import ALPHA, step_down_t_p


class Ranks(NamedTuple):
    """Tests of one number against all others of a family.

    Attributes:
        difference: the number minus each of the others. *Shape:* ``(candidate,)``.
        p: family-wise p value of each difference, two-sided; 1 for the number itself. If few
            clusters decide the number, the larger p of all clusters and of the others; 1 if the
            difference has another sign without these few. *Shape:* ``(candidate,)``.
    """

    difference: Floats
    p: Floats

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Whether the test tells the number from each of the others. *Shape:* ``(candidate,)``."""
        return self.p < ALPHA


def ranks_of(n: Floats, d: Floats, place: int, sentences: Ints | None = None) -> Ranks:
    """Compare one ratio of sums with all others.

    The statistic is Student's t of the linearised difference; clusters are drawn with replacement,
    and the largest t of each draw among the differences that remain is compared, step by step from
    the largest observed one (Romano & Wolf 2005, doi:10.1198/016214504000000539).

    Args:
        n, d: numerators and denominators of every candidate, by cluster. *Shape:* ``(cluster,
            candidate)``.
        place: index of the number among the candidates.
        sentences: as in `few_clusters`.
    """
    ranks, few = _ranks(n, d, place), few_clusters(n[:, place], sentences)
    if not few.sentences:
        return ranks
    others = _ranks(n[~few.mask], d[~few.mask], place)
    agrees = ranks.difference * others.difference > 0  # false for NaN, too
    return ranks._replace(p=np.where(agrees, np.fmax(ranks.p, others.p), 1.0))


def _ranks(n: Floats, d: Floats, place: int) -> Ranks:
    """Return the tests of one number on all given clusters."""
    value = divide(n.sum(0), d.sum(0))
    residuals = divide(n - value * d, d.sum(0))
    difference = value[place] - value
    others = np.delete(np.arange(len(value)), place)
    p = np.ones(len(value))
    p[others] = step_down_t_p(difference[others], (residuals[:, [place]] - residuals)[:, others])
    return Ranks(difference, p)


def leaders_of(
    n: Floats, d: Floats, sentences: Ints | None = None, *, lowest: bool = False
) -> tuple[list[int], Ranks]:
    """Return the largest ratio of sums and those that a test does not tell from it.

    Args:
        n, d, sentences: as in `ranks_of`; every denominator is above 0.
        lowest: whether the smallest one leads.

    Returns:
        Indices of the candidates, the first one first, the others by their ratios; and the tests
        of the first one.
    """
    value = divide(n.sum(0), d.sum(0))
    order = np.argsort(value if lowest else -value, kind="stable")
    ranks = ranks_of(n, d, int(order[0]), sentences)
    return [int(place) for place in order if not ranks.apart[place]], ranks
