"""Paired differences of ratios and of medians between two models, with intervals.

Values of two models are positively correlated over samples of sentences, because a sentence that is
hard for one model is hard for the other. Two independent intervals would be too wide. The inputs
are sums of both models over identical *clusters*: sentences, or buckets of sentences by hash. A
difference R_B - R_A has for each cluster the linearised residual

    e = (n_B - R_B d_B) / mean d_B - (n_A - R_A d_A) / mean d_A

with numerator n and denominator d of the cluster. Its mean over clusters is 0, and the variance of
the difference is C / (C - 1) * sum e^2 / C^2 over the C clusters that take part in either model.
Intervals are Student's t with the effective number of clusters. A share of the skewness of the
residuals widens them. The coverage of intervals and the error rates of tests were measured
(`benchmarks/comparing.py`).

Each difference has a p of its own: the larger one of that of its interval and of an equal-tailed
bootstrap-t p, from the residuals of clusters that are drawn with replacement. Each of the two alone
rejects too often in one direction if differences are skewed, as sign flips of sentences do. The
largest t of each draw among all cells, a family-wise test, finds nothing among labels that few
sentences have.

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
from scipy.special import stdtr
from scipy.stats import false_discovery_control

from headbook.analysis import intervals, multiple_testing
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.multiple_testing import bootstrap_counts
from headbook.schema import IntervalRule

SKEWNESS_SHARE = 0.6  # share of its standard error by which skewness widens an interval
MAX_NUMBERS = 2**21  # numbers of each kind that a block of cells may hold in memory
MIN_CLUSTERS = 20  # clusters that count in each model, for a test
CANDIDATES = 10  # cells that each half of the clusters selects for a test on the other half


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


class PairedTests(NamedTuple):
    """P values of differences; every array has the shape ``cells``, NaN for cells without a test.

    A cell is tested if at least `MIN_CLUSTERS` clusters count in each model and its difference has
    an interval.

    Attributes:
        p: of each cell alone; 1 if the models are exactly equal.
        discovery_q: ``p`` adjusted for the false discovery rate over all cells (Benjamini &
            Hochberg 1995).
        held_out_p: of cells that are among the `CANDIDATES` with the largest t in each half of the
            clusters: the larger p of both halves, each adjusted for the number of candidates of the
            other half (Holm 1979); NaN elsewhere.
    """

    p: Floats
    discovery_q: Floats
    held_out_p: Floats

    @property
    def q(self) -> Floats:
        """The smaller one of ``discovery_q`` and ``held_out_p``."""
        return np.asarray(np.fmin(self.discovery_q, self.held_out_p), np.float64)


def paired_tests(
    a: ClusterSums, b: ClusterSums, compared: PairedDifferences, keys: NDArray[np.integer]
) -> PairedTests:
    """Test all differences of a family of cells.

    The false discovery rate finds changes that many cells share. One change among thousands of
    cells cannot reach it, because 2,000 draws give no p below 0.001. Such a change is chosen on one
    half of the clusters and confirmed on the other, whichever half chooses.

    Args:
        a, b: sums from which ``compared`` was computed.
        compared: differences, from `differences`.
        keys: keys of the clusters; even and odd keys are the halves. *Shape:* ``(cluster,)``.

    Raises:
        ValueError: the arrays differ in shape.
    """
    cells = _cells(a, b)
    tested = (~np.isnan(compared.low) & _enough(a, b, MIN_CLUSTERS)).reshape(-1)
    p = np.where(compared.equal, 1.0, np.nan).reshape(-1)
    q = p.copy()
    for block, block_a, block_b in _blocks(a, b):
        at = np.flatnonzero(tested[block])
        if len(at):
            p[block.start + at] = _p(
                *(ClusterSums(m.n[:, at], m.d[:, at]) for m in (block_a, block_b))
            )
    if tested.any():
        q[tested] = false_discovery_control(p[tested])
    first = keys % 2 == 0
    # In one direction alone, skewed cells of 32 clusters give errors in a quarter of families.
    held_out_p = np.maximum(*(_held_out_p(a, b, tested, half) for half in (first, ~first)))
    return PairedTests(p.reshape(cells), q.reshape(cells), held_out_p.reshape(cells))


def _enough(a: ClusterSums, b: ClusterSums, least: int) -> NDArray[np.bool_]:
    """Return the mask of cells that have so many clusters in each model. *Shape:* ``cells``."""
    mask: NDArray[np.bool_] = np.minimum((a.d > 0).sum(0), (b.d > 0).sum(0)) >= least
    return mask


def _held_out_p(
    a: ClusterSums, b: ClusterSums, tested: NDArray[np.bool_], first: NDArray[np.bool_]
) -> Floats:
    """Return the adjusted p values of the cells that one half selects. *Shape:* ``(cell,)``.

    Args:
        tested: mask of cells. *Shape:* ``(cell,)``.
        first: mask of clusters that select. *Shape:* ``(cluster,)``.
    """
    held_out_p, size = np.full(len(tested), np.nan), np.zeros(len(tested))
    selecting, testing = (
        (ClusterSums(a.n[half], a.d[half]), ClusterSums(b.n[half], b.d[half]))
        for half in (first, ~first)
    )
    candidates = tested.copy()
    for one, other in (selecting, testing):
        candidates &= _enough(one, other, MIN_CLUSTERS // 2).reshape(-1)
    if not candidates.any():
        return held_out_p
    for block, block_a, block_b in _blocks(*selecting):
        size[block] = np.where(candidates[block], np.nan_to_num(_t(block_a, block_b)), 0.0)
    order = np.argsort(-np.abs(size), kind="stable")[:CANDIDATES]
    chosen = order[size[order] != 0]
    if len(chosen):
        one, other = (
            ClusterSums(*(part.reshape(len(part), -1)[:, chosen].astype(np.float64) for part in m))
            for m in testing
        )
        same_sign = (_value(other) - _value(one)) * size[chosen] > 0
        held_out_p[chosen] = multiple_testing.holm(np.where(same_sign, _p(one, other), 1.0))
    return held_out_p


def _p(a: ClusterSums, b: ClusterSums) -> Floats:
    """Return the larger p of each difference: by bootstrap-t, and by its interval.

    *Shape:* ``(cell,)``.
    """
    residuals = _residuals(a, b)
    drawn_p = multiple_testing.bootstrap_t_p(_value(b) - _value(a), residuals)
    freedom = np.maximum(_both_effective(a, b) - 1, 1)
    return np.asarray(np.fmax(drawn_p, 2 * stdtr(freedom, -np.abs(_t(a, b)))), np.float64)


def _t(a: ClusterSums, b: ClusterSums) -> Floats:
    """Return each difference in the standard errors of its interval. *Shape:* ``(cell,)``."""
    return divide(_value(b) - _value(a), _error(_residuals(a, b), _clusters(a, b)))


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
    clusters, effective, residuals = _clusters(a, b), _both_effective(a, b), _residuals(a, b)
    squares = (residuals**2).sum(0)
    # If all clusters differ by the same amount, residuals are rounding errors only.
    size = sum(divide((m.n**2).sum(0), m.d.sum(0) ** 2) for m in (a, b))
    varies = squares > intervals.ROUNDING * size
    has_interval = varies & intervals.has_interval(effective, clusters, rules)
    error = intervals.critical_value(effective) * _error(residuals, clusters)
    half_width = np.where(has_interval, error, np.nan)
    value = value_b - value_a
    low, high = value - half_width, value + half_width
    equal = ((a.n == b.n) & (a.d == b.d)).all(0) & (clusters > 0)
    return value_a, value_b, value, low, high, clusters, effective, equal


def _error(residuals: Floats, clusters: Ints) -> Floats:
    """Return the standard error of each difference, widened for skewness. *Shape:* ``(cell,)``."""
    squares = (residuals**2).sum(0)
    variance = divide(clusters * squares, np.maximum(clusters - 1, 0))
    skewness = divide(np.abs((residuals**3).sum(0)), squares**1.5)  # of the residuals' sum
    error: Floats = np.sqrt(variance) * (1 + SKEWNESS_SHARE * skewness)
    return error


def _clusters(a: ClusterSums, b: ClusterSums) -> Ints:
    """Return the number of clusters that take part in either model. *Shape:* ``(cell,)``."""
    return np.asarray(((a.d > 0) | (b.d > 0)).sum(0))


def _both_effective(a: ClusterSums, b: ClusterSums) -> Floats:
    """Return the smaller one of the models' effective numbers of clusters. *Shape:* ``(cell,)``."""
    return np.asarray(np.fmin(_effective_clusters(a), _effective_clusters(b)))


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
