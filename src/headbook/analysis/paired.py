"""Paired differences of ratios and of medians between two models, with intervals.

Values of two models are positively correlated over samples of sentences, because a sentence that is
hard for one model is hard for the other. Two independent intervals would be too wide. The inputs
are sums of both models over identical *clusters*: sentences, or buckets of sentences by hash. A
difference R_B - R_A has for each cluster the linearised residual

    e = (n_B - R_B d_B) / mean d_B - (n_A - R_A d_A) / mean d_A

with numerator n and denominator d of the cluster. Its mean over clusters is 0, and the variance of
the difference is C / (C - 1) * sum e^2 / C^2 over the C clusters that take part in either model.
Intervals are Student's t with the effective number of clusters. A share of
the skewness of the residuals widens them. The coverage of
intervals and the error rate of tests were measured (`benchmarks/comparing.py`).

Two values are *exactly equal* if their numerators and denominators agree in every cluster. The
difference is 0 and the p-value is 1, but there is no interval: nothing varies, and other sentences
may still distinguish the models. Pages say "exactly equal". If values differ but nothing varies
beyond rounding, there is neither an interval nor a p-value, for lack of evidence.

For the error of a median, sentences are a sample and the cells of a model are fixed. Clusters are
drawn with replacement, with equal draws for both models. Each draw changes the value of every cell,
and so the median of each model. The error of a median, or of the difference of
two medians, is the root mean square distance of the draws from the observed value. The standard
deviation of the draws does not suffice: noise moves the median cell, so draws may lie to one side
of the observed value. Intervals are Student's t with the effective number of clusters.
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

SKEWNESS_SHARE = 0.6  # share of its standard error by which skewness widens an interval
MAX_NUMBERS = 2**21  # numbers of each kind that a block of cells may hold in memory


class ClusterSums(NamedTuple):
    """Numerators and denominators of one model, summed over the sentences of each cluster.

    Attributes:
        n: numerators. *Shape:* ``(cluster, *cells)``.
        d: denominators, not negative; 0 if a cluster takes no part. *Shape:* that of ``n``.
    """

    n: NDArray[np.floating]
    d: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class PairedDifferences:
    """Values of two models and their differences; every array has the shape ``cells``.

    Attributes:
        a, b: ratios of both models; NaN without denominators.
        value: ``b`` minus ``a``.
        low, high: ends of the difference's 95 % interval; NaN if there are too few clusters or
            nothing varies.
        clusters: number of clusters that take part in either model.
        effective: the smaller one of the models' effective numbers of clusters (Kish).
        equal: whether numerators and denominators of both models agree in each cluster.
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
    rules: ArrayLike = IntervalRule.USUAL,
    limits: intervals.Limits = intervals.UNBOUNDED,
) -> PairedDifferences:
    """Return the differences of all cells, each with its own interval.

    Args:
        a, b: sums over the same clusters in the same order.
        rules: rules for the intervals (`IntervalRule`); broadcast to the cells.
        limits: least and largest possible value of each model.

    Raises:
        ValueError: the arrays differ in shape.
    """
    cells = _cells(a, b)
    flat_rules = np.broadcast_to(np.asarray(rules), cells).reshape(-1)
    block_results = [
        _block_differences(block_a, block_b, flat_rules[block])
        for block, block_a, block_b in _blocks(a, b)
    ]
    fields = (
        np.concatenate(columns).reshape(cells) for columns in zip(*block_results, strict=True)
    )
    unclipped = PairedDifferences(*fields)
    low, high = intervals.clipped(unclipped.low, unclipped.high, intervals.of_difference(limits))
    return replace(unclipped, low=low, high=high)


def paired_family_wise_p(a: ClusterSums, b: ClusterSums, compared: PairedDifferences) -> Floats:
    """Return the two-sided p-value of each difference, family-wise over cells with an interval.

    Clusters are drawn with replacement, for all cells together
    (`headbook.analysis.multiple_testing`).

    Args:
        a, b: sums from which ``compared`` was computed.
        compared: differences, from `differences`.

    Returns:
        *Shape:* ``cells``; 1 if the models are exactly equal, NaN without interval.

    Raises:
        ValueError: the arrays differ in shape.
    """
    _cells(a, b)
    tested, p = ~np.isnan(compared.low), np.where(compared.equal, 1.0, np.nan)
    values, flat_tested = compared.value.reshape(-1), tested.reshape(-1)

    def tested_blocks() -> Iterator[tuple[Floats, Floats]]:
        for block, block_a, block_b in _blocks(a, b):
            selected = flat_tested[block]
            yield values[block][selected], _residuals(block_a, block_b)[:, selected]

    if tested.any():
        p[tested] = multiple_testing.bootstrap_p(tested_blocks(), len(a.n))
    return p


def _cells(a: ClusterSums, b: ClusterSums) -> tuple[int, ...]:
    shapes = {array.shape for array in (*a, *b)}
    if len(shapes) > 1:
        raise ValueError(f"sums of two models: got shapes {sorted(shapes)}, expected one shape")
    return a.n.shape[1:]


def _blocks(a: ClusterSums, b: ClusterSums) -> Iterator[tuple[slice, ClusterSums, ClusterSums]]:
    """Yield blocks of cells, with sums in double precision.

    *Shape* of sums: ``(cluster, cell)``.
    """
    count, step = prod(a.n.shape[1:]), max(1, MAX_NUMBERS // max(1, len(a.n)))
    flat = [array.reshape(len(array), count) for array in (*a, *b)]
    for start in range(0, max(count, 1), step):
        block = slice(start, min(start + step, count))
        n_a, d_a, n_b, d_b = (array[:, block].astype(np.float64) for array in flat)
        yield block, ClusterSums(n_a, d_a), ClusterSums(n_b, d_b)


def _block_differences(
    a: ClusterSums, b: ClusterSums, rules: NDArray[np.int_]
) -> tuple[NDArray[np.generic], ...]:
    """Return the fields of `PairedDifferences` for a block of cells."""
    value_a, value_b = _value(a), _value(b)
    clusters = ((a.d > 0) | (b.d > 0)).sum(0)
    effective = np.fmin(_effective_clusters(a), _effective_clusters(b))
    residuals = _residuals(a, b)
    squares = (residuals**2).sum(0)
    # If all clusters differ by the same amount, residuals are rounding errors only.
    size = sum(divide((m.n**2).sum(0), m.d.sum(0) ** 2) for m in (a, b))
    varies = squares > intervals.ROUNDING * size
    variance = divide(clusters * squares, np.maximum(clusters - 1, 0))
    has_interval = varies & intervals.has_interval(effective, clusters, rules)
    skewness = divide(np.abs((residuals**3).sum(0)), squares**1.5)  # of the residuals' sum
    error = np.sqrt(variance) * (1 + SKEWNESS_SHARE * skewness)
    half_width = np.where(has_interval, intervals.critical_value(effective) * error, np.nan)
    value = value_b - value_a
    low, high = value - half_width, value + half_width
    equal = ((a.n == b.n) & (a.d == b.d)).all(0) & (clusters > 0)
    return value_a, value_b, value, low, high, clusters, effective, equal


def _effective_clusters(sums: ClusterSums) -> Floats:
    """Return the effective number of clusters of each cell (Kish)."""
    return divide(sums.d.sum(0) ** 2, (sums.d**2).sum(0))


def _value(sums: ClusterSums) -> Floats:
    return divide(sums.n.sum(0), sums.d.sum(0))


def _residuals(a: ClusterSums, b: ClusterSums) -> Floats:
    """Return each cluster's residual e, divided by the number of clusters.

    The sum of squares, times C / (C - 1), is the variance of the difference.

    *Shape:* ``(cluster, cell)``.
    """
    residual_a, residual_b = (divide(m.n - _value(m) * m.d, m.d.sum(0)) for m in (a, b))
    return residual_b - residual_a


MEDIAN_DRAWS = 400  # bootstrap samples, enough for a standard error


class MedianEstimate(NamedTuple):
    """Median with the ends of its 95 % interval; NaN if it has none."""

    value: float
    low: float
    high: float


class Medians(NamedTuple):
    """Medians of two models, and the second minus the first."""

    a: MedianEstimate
    b: MedianEstimate
    difference: MedianEstimate


NO_MEDIAN = MedianEstimate(np.nan, np.nan, np.nan)


def medians(
    a: ClusterSums,
    b: ClusterSums,
    rule: IntervalRule = IntervalRule.USUAL,
    limits: intervals.Limits = intervals.UNBOUNDED,
) -> Medians:
    """Return the medians of a number over all cells that have the number.

    Args:
        a, b: sums over the same clusters in the same order; the models may differ in their cells.
            *Shape:* ``(cluster, cell)``.
        rule: rule for the intervals.
        limits: least and largest possible value.
    """
    non_empty = [_non_empty(sums) for sums in (a, b)]
    if any(not sums.d.size for sums in non_empty):
        return Medians(NO_MEDIAN, NO_MEDIAN, NO_MEDIAN)
    draw_counts = bootstrap_counts(len(a.n))[:MEDIAN_DRAWS]
    value_a, value_b = (float(np.median(_value(sums))) for sums in non_empty)
    bootstrap_a, bootstrap_b = (_bootstrap_medians(sums, draw_counts) for sums in non_empty)
    critical_a, critical_b = (_median_critical_value(sums, rule) for sums in non_empty)
    return Medians(
        _median_estimate(value_a, bootstrap_a, critical_a, limits),
        _median_estimate(value_b, bootstrap_b, critical_b, limits),
        _median_estimate(
            value_b - value_a,
            bootstrap_b - bootstrap_a,
            float(np.maximum(critical_a, critical_b)),  # NaN if one is NaN
            intervals.of_difference(limits),
        ),
    )


def _non_empty(sums: ClusterSums) -> ClusterSums:
    """Return the cells in which a cluster takes part, in double precision."""
    non_empty = (sums.d > 0).any(0)
    return ClusterSums(*(array[:, non_empty].astype(np.float64) for array in sums))


def _bootstrap_medians(sums: ClusterSums, draw_counts: Floats) -> Floats:
    """Return the median of each draw; NaN in draws without any value. *Shape:* ``(draw,)``."""
    values = divide(draw_counts @ sums.n, draw_counts @ sums.d)
    missing = np.isnan(values)
    if not missing.any():
        return np.asarray(np.median(values, 1), np.float64)
    draw_medians = np.full(len(values), np.nan)
    has_value = ~missing.all(1)
    draw_medians[has_value] = np.nanmedian(values[has_value], 1)
    return draw_medians


def _median_critical_value(sums: ClusterSums, rule: IntervalRule) -> float:
    """Return the median critical value over cells.

    NaN if fewer than half of the cells have an interval.
    """
    effective = _effective_clusters(sums)
    has_interval = intervals.has_interval(effective, (sums.d > 0).sum(0), rule)
    if has_interval.mean() < 0.5:
        return np.nan
    return float(np.median(intervals.critical_value(effective)))


def _median_estimate(
    value: float, bootstrap_medians: Floats, critical_value: float, limits: intervals.Limits
) -> MedianEstimate:
    """Return a median, or a difference of two medians, with its interval.

    Args:
        value: observed value.
        bootstrap_medians: value of each draw. *Shape:* ``(draw,)``.
        critical_value: critical value of Student's t; NaN for no interval.
        limits: least and largest possible value, to which the interval is clipped.
    """
    error = float(np.sqrt(np.nanmean((bootstrap_medians - value) ** 2)))
    varies = error > intervals.ROUNDING * abs(value)
    half_width = critical_value * error if varies else np.nan
    low, high = intervals.clipped(
        np.array(value - half_width), np.array(value + half_width), limits
    )
    return MedianEstimate(value, float(low), float(high))
