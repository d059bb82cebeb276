"""Two models on the same sentences: differences of ratios of sums, paired. No torch.

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
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headbook.analysis import intervals, resampled
from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.terms import Spread

ROOM = 2**21  # numbers of each kind that are held beside what is given


class ClusterSums(NamedTuple):
    """Sums over the sentences of each cluster, of one model.

    Attributes:
        n: numerators. *Shape:* ``(cluster, *cells)``.
        d: denominators, not negative; 0 where a cluster takes no part. The same shape.
    """

    n: NDArray[np.floating]
    d: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Differences:
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
    spread: ArrayLike = Spread.USUAL,
    limits: intervals.Limits = intervals.ANYTHING,
) -> Differences:
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
    found = Differences(*fields)
    low, high = intervals.clipped(found.low, found.high, intervals.of_difference(limits))
    return replace(found, low=low, high=high)


def family_wise(a: ClusterSums, b: ClusterSums, found: Differences) -> Floats:
    """Two-sided p of each difference, family-wise over all cells that have an interval.

    Clusters are drawn with replacement, for all cells together (`headbook.analysis.resampled`).

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
        p[tested] = resampled.family_wise(parts(), len(a.n))
    return p


def _cells(a: ClusterSums, b: ClusterSums) -> tuple[int, ...]:
    shapes = {part.shape for part in (*a, *b)}
    if len(shapes) > 1:
        raise ValueError(f"sums of two models must have one shape; came {sorted(shapes)}")
    return a.n.shape[1:]


def _blocks(a: ClusterSums, b: ClusterSums) -> Iterator[tuple[slice, ClusterSums, ClusterSums]]:
    """Some cells at a time, in double precision. *Shape* of sums: ``(cluster, cell)``."""
    count, step = prod(a.n.shape[1:]), max(1, ROOM // max(1, len(a.n)))
    flat = [part.reshape(len(part), count) for part in (*a, *b)]
    for start in range(0, max(count, 1), step):
        at = slice(start, min(start + step, count))
        one_n, one_d, other_n, other_d = (part[:, at].astype(np.float64) for part in flat)
        yield at, ClusterSums(one_n, one_d), ClusterSums(other_n, other_d)


def _some(
    a: ClusterSums, b: ClusterSums, spread: NDArray[np.int_]
) -> tuple[NDArray[np.generic], ...]:
    """The fields of `Differences` for some cells."""
    one, other = _value(a), _value(b)
    clusters = ((a.d > 0) | (b.d > 0)).sum(0)
    behind = np.fmin(*(divide(m.d.sum(0) ** 2, (m.d**2).sum(0)) for m in (a, b)))
    residuals = _residuals(a, b)
    spreading = (residuals**2).sum(0)
    # What is left where all clusters differ by the same is rounding.
    size = sum(divide((m.n**2).sum(0), m.d.sum(0) ** 2) for m in (a, b))
    varies = spreading > intervals.ROUNDING * size
    variance = divide(clusters * spreading, np.maximum(clusters - 1, 0))
    there = varies & intervals.enough(behind, clusters, spread)
    skewness = divide(np.abs((residuals**3).sum(0)), spreading**1.5)  # of their sum
    error = np.sqrt(variance) * (1 + intervals.SKEWED * skewness)
    half = np.where(there, intervals.reach_of(behind) * error, np.nan)
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
