"""Change of a number from the first third of the layers to the last, and correlations of heads.

Numbers of two layers vary together from sentence to sentence, so that whole sentences, or buckets
of sentences (`headbook.study.sums.buckets`), are drawn with replacement for all layers and heads at
once, and every number is computed again in each draw. The interval is that of percentiles; the p
value is that of a bootstrap-t, family-wise over the cells (`multiple_testing.step_down_t_p`).
"""

from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats, divide
from headbook.analysis.multiple_testing import bootstrap_counts, step_down_t_p
from headbook.analysis.paired import ClusterSums

THIRDS = 3
PERCENTILES = (2.5, 97.5)


class DepthChanges(NamedTuple):
    """Means over the first and the last third of the layers; every array has a number a cell.

    Attributes:
        first, last: mean of the layers' numbers in each third.
        value: ``last`` minus ``first``.
        low, high: ends of the 95 % interval of ``value``.
        p: family-wise p value of ``value``, two-sided.
    """

    first: Floats
    last: Floats
    value: Floats
    low: Floats
    high: Floats
    p: Floats


def third_of(layers: int) -> int:
    """Return the number of layers in a third, at least 1."""
    return max(1, layers // THIRDS)


def depth_changes(sums: ClusterSums) -> DepthChanges:
    """Compare the last third of the layers with the first, each layer counting alike.

    Args:
        sums: sums of at least two layers, in order. *Shape:* ``(cluster, layer, cell)``.
    """
    n, d = (np.asarray(part, np.float64) for part in sums)
    k = third_of(n.shape[1])
    first, last = slice(k), slice(n.shape[1] - k, None)
    value = divide(n.sum(0), d.sum(0))
    residuals = divide(n - value * d, d.sum(0))
    change = value[last].mean(0) - value[first].mean(0)
    p = step_down_t_p(change, residuals[:, last].mean(1) - residuals[:, first].mean(1))
    counts = bootstrap_counts(len(n))
    drawn = divide(np.tensordot(counts, n, 1), np.tensordot(counts, d, 1))
    drawn_change = drawn[:, last].mean(1) - drawn[:, first].mean(1)
    low, high = np.nanpercentile(drawn_change, PERCENTILES, axis=0)
    return DepthChanges(value[first].mean(0), value[last].mean(0), change, low, high, p)


class Correlation(NamedTuple):
    """Pearson's correlation of two numbers over heads, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def head_correlation(first: ClusterSums, second: ClusterSums) -> Correlation:
    """Correlate two numbers over heads; both of every head are computed again in each draw.

    Args:
        first, second: sums over the same clusters. *Shape:* ``(cluster, head)``, of heads that have
            both numbers.
    """
    counts = bootstrap_counts(len(first.n))
    once = np.ones((1, len(first.n)))
    (value,), drawn = (
        _correlations(*(divide(draws @ part.n, draws @ part.d) for part in (first, second)))
        for draws in (once, counts)
    )
    low, high = np.nanpercentile(drawn, PERCENTILES)
    return Correlation(float(value), float(low), float(high))


def _correlations(x: Floats, y: Floats) -> Floats:
    """Return the correlation of each row, over the columns known in both. *Shape:* ``(row,)``."""
    known = ~np.isnan(x + y)
    count = known.sum(1, keepdims=True)
    x, y = (np.where(known, part, 0) for part in (x, y))
    x, y = (np.where(known, part - part.sum(1, keepdims=True) / count, 0) for part in (x, y))
    return divide((x * y).sum(1), np.sqrt((x**2).sum(1) * (y**2).sum(1)))
