"""Two models on the same sentences.

Paired differences of ratios and of medians, with intervals.

A sentence that is hard for one model is hard for the other, so their values go up and down together
from sample to sample; two independent intervals would be too wide. What is kept of both are sums
over the same *clusters*: sentences, or buckets of them by hash, which add. A difference R_B - R_A
has for each cluster the linearised residual

    e = (n_B - R_B d_B) / mean d_B - (n_A - R_A d_A) / mean d_A

whose mean over clusters is 0, and the variance n / (n - 1) * sum e^2 / n^2 over the n clusters that
take part in either model. Intervals are Student's t with the effective number of clusters, and as
elsewhere (`headbook.analysis.intervals`) wider by a share of the skewness of what is summed up. How
often they hold the truth and tests err was measured (`benchmarks/comparing.py`).

*Exactly equal* are two values whose numerators and denominators are the same in every cluster: the
difference is 0 and p is 1, but there is no interval, since nothing varies and other sentences may
still tell the models apart. Pages say "exactly equal". Where values differ and nothing varies all
the same, beyond rounding, there is no evidence: neither interval nor p.

Cells of one model are no sample of cells, so they stay what they are; what varies are sentences.
Clusters of them are drawn with replacement, the same ones for both models, and each draw gives
every cell another value and each model another median. The error of a median, or of the difference
of two, is the root of the mean square of what draws are apart from it: noise moves the median cell,
so that draws may lie to one side. Intervals are Student's t with the effective number of clusters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headbook.analysis import intervals, multiple_testing
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.multiple_testing import bootstrap_counts
from headbook.schema import IntervalRule

MAX_NUMBERS = 2**21  # numbers of each kind that are held beside what is given


class ClusterSums(NamedTuple):
    """Sums over the sentences of each cluster, of one model.

    Attributes:
        n: numerators. *Shape:* ``(cluster, *cells)``.
        d: denominators, not negative; 0 where a cluster takes no part. The same shape.
    """

    n: NDArray[np.floating]
    d: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class PairedDifferences:
    """The values of two models and how they differ; every array has the shape ``cells``.

    Attributes:
        a, b: the ratios; NaN where there is nothing to divide by.
        value: ``b`` minus ``a``.
        low, high: ends of its 95 % interval; NaN where too few clusters stand behind it or where
            nothing varies.
        clusters: how many take part in either model.
        effective: the effective number of clusters (Kish), of the model where it is smaller.
        equal: whether both models are exactly equal: the same in each cluster.
    """

    a: Floats
    b: Floats
    value: Floats
    low: Floats
    high: Floats
    clusters: Ints
    effective: Floats
    equal: NDArray[np.bool_]


def differences(
    a: ClusterSums,
    b: ClusterSums,
    spread: ArrayLike = IntervalRule.USUAL,
    limits: intervals.Limits = intervals.UNBOUNDED,
) -> PairedDifferences:
    """Differences of all cells, each with its own interval.

    Args:
        a, b: of the same clusters in the same order.
        spread: what is known of how the numbers vary; broadcast to the cells.
        limits: least and largest possible value of each model.

    Raises:
        ValueError: the arrays differ in shape.
    """
    cells = _cells(a, b)
    kinds = np.broadcast_to(np.asarray(spread), cells).reshape(-1)
    parts = [_some(one, other, kinds[at]) for at, one, other in _blocks(a, b)]
    fields = (np.concatenate(each).reshape(cells) for each in zip(*parts, strict=True))
    found = PairedDifferences(*fields)
    low, high = intervals.clipped(found.low, found.high, intervals.of_difference(limits))
    return replace(found, low=low, high=high)


def paired_family_wise_p(a: ClusterSums, b: ClusterSums, found: PairedDifferences) -> Floats:
    """Two-sided p of each difference, family-wise over all cells that have an interval.

    Clusters are drawn with replacement, for all cells together
    (`headbook.analysis.multiple_testing`).

    Args:
        a, b: from which the differences were made.

    Returns:
        *Shape:* ``cells``; 1 where the models are exactly equal, NaN where there is no interval.

    Raises:
        ValueError: the arrays differ in shape.
    """
    _cells(a, b)
    tested, p = ~np.isnan(found.low), np.where(found.equal, 1.0, np.nan)
    values, which = found.value.reshape(-1), tested.reshape(-1)

    def parts() -> Iterator[tuple[Floats, Floats]]:
        for at, one, other in _blocks(a, b):
            kept = which[at]
            yield values[at][kept], _residuals(one, other)[:, kept]

    if tested.any():
        p[tested] = multiple_testing.bootstrap_p(parts(), len(a.n))
    return p


def _cells(a: ClusterSums, b: ClusterSums) -> tuple[int, ...]:
    shapes = {part.shape for part in (*a, *b)}
    if len(shapes) > 1:
        raise ValueError(f"sums of two models must have one shape; came {sorted(shapes)}")
    return a.n.shape[1:]


def _blocks(a: ClusterSums, b: ClusterSums) -> Iterator[tuple[slice, ClusterSums, ClusterSums]]:
    """Some cells at a time, in double precision. *Shape* of sums: ``(cluster, cell)``."""
    count, step = prod(a.n.shape[1:]), max(1, MAX_NUMBERS // max(1, len(a.n)))
    flat = [part.reshape(len(part), count) for part in (*a, *b)]
    for start in range(0, max(count, 1), step):
        at = slice(start, min(start + step, count))
        one_n, one_d, other_n, other_d = (part[:, at].astype(np.float64) for part in flat)
        yield at, ClusterSums(one_n, one_d), ClusterSums(other_n, other_d)


def _some(
    a: ClusterSums, b: ClusterSums, spread: NDArray[np.int_]
) -> tuple[NDArray[np.generic], ...]:
    """The fields of `PairedDifferences` for some cells."""
    one, other = _value(a), _value(b)
    clusters = ((a.d > 0) | (b.d > 0)).sum(0)
    behind = np.fmin(*(divide(m.d.sum(0) ** 2, (m.d**2).sum(0)) for m in (a, b)))
    residuals = _residuals(a, b)
    spreading = (residuals**2).sum(0)
    # What is left where all clusters differ by the same is rounding.
    size = sum(divide((m.n**2).sum(0), m.d.sum(0) ** 2) for m in (a, b))
    varies = spreading > intervals.ROUNDING * size
    variance = divide(clusters * spreading, np.maximum(clusters - 1, 0))
    there = varies & intervals.has_interval(behind, clusters, spread)
    skewness = divide(np.abs((residuals**3).sum(0)), spreading**1.5)  # of their sum
    error = np.sqrt(variance) * (1 + intervals.SKEWED * skewness)
    half = np.where(there, intervals.critical_value(behind) * error, np.nan)
    value = other - one
    equal = ((a.n == b.n) & (a.d == b.d)).all(0) & (clusters > 0)
    return one, other, value, value - half, value + half, clusters, behind, equal


def _value(sums: ClusterSums) -> Floats:
    return divide(sums.n.sum(0), sums.d.sum(0))


def _residuals(a: ClusterSums, b: ClusterSums) -> Floats:
    """Each cluster's e over the number of clusters: they add up to 0, their squares to a variance.

    *Shape:* ``(cluster, cell)``.
    """
    one, other = (divide(m.n - _value(m) * m.d, m.d.sum(0)) for m in (a, b))
    return other - one


DRAWS = 400  # enough for an error


class MedianEstimate(NamedTuple):
    """A number with the ends of its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float


class Medians(NamedTuple):
    """Medians of two models, and what that of the second has more."""

    a: MedianEstimate
    b: MedianEstimate
    difference: MedianEstimate


NOTHING = MedianEstimate(np.nan, np.nan, np.nan)


def medians(
    a: ClusterSums,
    b: ClusterSums,
    spread: IntervalRule = IntervalRule.USUAL,
    limits: intervals.Limits = intervals.UNBOUNDED,
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
    drawn = bootstrap_counts(len(a.n))[:DRAWS]
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


def _reach(sums: ClusterSums, spread: IntervalRule) -> float:
    """Standard errors on either side: of the median cell; NaN where too few clusters are behind."""
    behind = divide(sums.d.sum(0) ** 2, (sums.d**2).sum(0))
    enough = intervals.has_interval(behind, (sums.d > 0).sum(0), spread)
    return float(np.median(intervals.critical_value(behind))) if enough.mean() >= 0.5 else np.nan


def _ends(value: float, over: Floats, reach: float, limits: intervals.Limits) -> MedianEstimate:
    error = float(np.sqrt(np.nanmean((over - value) ** 2)))
    half = reach * error if error > intervals.ROUNDING * abs(value) else np.nan
    low, high = intervals.clipped(np.array(value - half), np.array(value + half), limits)
    return MedianEstimate(value, float(low), float(high))
