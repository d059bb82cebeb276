"""Medians over cells (heads, layers) of two models on the same sentences. No torch.

Cells of one model are no sample of cells, so they stay what they are; what varies are sentences.
Clusters of them are drawn with replacement, the same ones for both models, and each draw gives
every cell another value and each model another median. The error of a median, or of the difference
of two, is the root of the mean square of what draws are apart from it: noise moves the median cell,
so that draws may lie to one side. Intervals are Student's t with the effective number of clusters.
"""

from typing import NamedTuple

import numpy as np

from headbook.analysis import intervals
from headbook.analysis.arithmetic import Floats, divide
from headbook.analysis.paired import ClusterSums
from headbook.analysis.resampled import draws
from headbook.terms import Spread

DRAWS = 400  # enough for an error


class Ends(NamedTuple):
    """A number with the ends of its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float


class Medians(NamedTuple):
    """Medians of two models, and what that of the second has more."""

    a: Ends
    b: Ends
    difference: Ends


NOTHING = Ends(np.nan, np.nan, np.nan)


def medians(
    a: ClusterSums,
    b: ClusterSums,
    spread: Spread = Spread.USUAL,
    limits: intervals.Limits = intervals.ANYTHING,
) -> Medians:
    """Medians of one number over all cells that have it.

    Args:
        a, b: of the same clusters in the same order; the models may differ in their cells.
            *Shape:* ``(cluster, cell)``.
        spread: what is known of how the numbers vary.
        limits: least and largest possible value.
    """
    known = [_there(sums) for sums in (a, b)]
    if any(not sums.d.size for sums in known):
        return Medians(NOTHING, NOTHING, NOTHING)
    drawn = draws(len(a.n))[:DRAWS]
    values = [float(np.median(divide(sums.n.sum(0), sums.d.sum(0)))) for sums in known]
    over = [_over(sums, drawn) for sums in known]
    reaches = [_reach(sums, spread) for sums in known]
    apart, reach = intervals.of_difference(limits), float(np.maximum(reaches[0], reaches[1]))
    return Medians(
        _ends(values[0], over[0], reaches[0], limits),
        _ends(values[1], over[1], reaches[1], limits),
        _ends(values[1] - values[0], over[1] - over[0], reach, apart),
    )


def _there(sums: ClusterSums) -> ClusterSums:
    """The cells that any cluster takes part in, in double precision."""
    there = (sums.d > 0).any(0)
    return ClusterSums(*(part[:, there].astype(np.float64) for part in sums))


def _over(sums: ClusterSums, drawn: Floats) -> Floats:
    """The median of each draw, NaN in draws without any. *Shape:* ``(draw,)``."""
    values = divide(drawn @ sums.n, drawn @ sums.d)
    gaps = np.isnan(values)
    if not gaps.any():
        return np.asarray(np.median(values, 1), np.float64)
    found = np.full(len(values), np.nan)
    some = ~gaps.all(1)
    found[some] = np.nanmedian(values[some], 1)
    return found


def _reach(sums: ClusterSums, spread: Spread) -> float:
    """Standard errors on either side: of the median cell; NaN where too few clusters are behind."""
    behind = divide(sums.d.sum(0) ** 2, (sums.d**2).sum(0))
    enough = intervals.enough(behind, (sums.d > 0).sum(0), spread)
    return float(np.median(intervals.reach_of(behind))) if enough.mean() >= 0.5 else np.nan


def _ends(value: float, over: Floats, reach: float, limits: intervals.Limits) -> Ends:
    error = float(np.sqrt(np.nanmean((over - value) ** 2)))
    half = reach * error if error > intervals.ROUNDING * abs(value) else np.nan
    low, high = intervals.clipped(np.array(value - half), np.array(value + half), limits)
    return Ends(value, float(low), float(high))
