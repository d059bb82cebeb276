"""Attention and numbers of two models on the same sentences, one by one."""

import math
from collections.abc import Sequence

from scipy.stats import t as student

Row = Sequence[float]


def divergence(p: Row, q: Row) -> float:
    """Jensen-Shannon divergence of two rows, in nats."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        total += a * math.log(2 * a / (a + b)) / 2 if a > 0 else 0
        total += b * math.log(2 * b / (a + b)) / 2 if b > 0 else 0
    return total


def affinity(p: Row, q: Row) -> float:
    """Bhattacharyya's coefficient of two rows."""
    return sum(math.sqrt(a * b) for a, b in zip(p, q, strict=True))


Sums = Sequence[float]


def residuals(n_a: Sums, d_a: Sums, n_b: Sums, d_b: Sums) -> list[float]:
    """Return e values of the clusters that take part in either model."""
    part = [k for k in range(len(n_a)) if d_a[k] > 0 or d_b[k] > 0]
    r_a, r_b = sum(n_a) / sum(d_a), sum(n_b) / sum(d_b)
    mean_a, mean_b = sum(d_a) / len(part), sum(d_b) / len(part)
    return [(n_b[k] - r_b * d_b[k]) / mean_b - (n_a[k] - r_a * d_a[k]) / mean_a for k in part]


def variance(n_a: Sums, d_a: Sums, n_b: Sums, d_b: Sums) -> float:
    """Variance of R_B - R_A."""
    e = residuals(n_a, d_a, n_b, d_b)
    return len(e) / (len(e) - 1) * math.fsum(x * x for x in e) / len(e) ** 2


def skewness(n_a: Sums, d_a: Sums, n_b: Sums, d_b: Sums) -> float:
    """Skewness of the sum of the residuals, without its sign."""
    e = residuals(n_a, d_a, n_b, d_b)
    return abs(math.fsum(x * x * x for x in e)) / math.pow(math.fsum(x * x for x in e), 1.5)


def kish(weights: Sums) -> float:
    """Return the effective number of clusters."""
    return sum(weights) ** 2 / sum(w * w for w in weights)


def student_t(values: Sums, total: float) -> float:
    """Student's t of a sum, given what each cluster adds to it beside the mean.

    Args:
        values: what each cluster adds; they need not add up to ``total``.
    """
    n, mean = len(values), math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return total / math.sqrt(n * spread) if spread > 0 else 0.0


def bootstrap_t_p(changes: Sums, total: float, drawn: Sequence[Sequence[int]]) -> float:
    """Two-sided p of one sum by Student's t of each draw, the smaller tail twice.

    Args:
        changes: what each cluster adds to the sum, less the mean.
        drawn: of each draw, how often it has each cluster.
    """
    observed, statistics = student_t(changes, total), []
    for counts in drawn:
        values = [value for value, n in zip(changes, counts, strict=True) for _ in range(n)]
        statistics.append(student_t(values, math.fsum(values)))
    above = sum(t >= observed for t in statistics)
    below = sum(t <= observed for t in statistics)
    return min(1.0, 2 * (1 + min(above, below)) / (1 + len(statistics)))


def interval_p(n_a: Sums, d_a: Sums, n_b: Sums, d_b: Sums) -> float:
    """Two-sided p of R_B - R_A by Student's t, the error widened as that of intervals is."""
    four = n_a, d_a, n_b, d_b
    t = difference_t(*four)
    return float(2 * student.sf(abs(t), min(kish(d_a), kish(d_b)) - 1))


def difference_t(n_a: Sums, d_a: Sums, n_b: Sums, d_b: Sums) -> float:
    """R_B - R_A in standard errors of its interval."""
    four = n_a, d_a, n_b, d_b
    error = math.sqrt(variance(*four)) * (1 + 0.6 * skewness(*four))
    return (sum(n_b) / sum(d_b) - sum(n_a) / sum(d_a)) / error


def difference_p(
    n_a: Sums, d_a: Sums, n_b: Sums, d_b: Sums, drawn: Sequence[Sequence[int]]
) -> float:
    """Return the larger one of the p by bootstrap-t and by the interval.

    Args:
        drawn: of each draw, how often it has each cluster.
    """
    four = n_a, d_a, n_b, d_b
    e = iter(residuals(*four))
    part = [x > 0 or y > 0 for x, y in zip(d_a, d_b, strict=True)]
    changes = [next(e) / sum(part) if there else 0.0 for there in part]
    value = sum(n_b) / sum(d_b) - sum(n_a) / sum(d_a)
    return max(interval_p(*four), bootstrap_t_p(changes, value, drawn))


def false_discovery_q(p: Sums) -> list[float]:
    """Smallest rate at which Benjamini and Hochberg's rule rejects each hypothesis."""
    return [
        min(other * len(p) / sum(x <= other for x in p) for other in p if other >= own) for own in p
    ]


def holm_p(p: Sums) -> list[float]:
    """Smallest level at which Holm's rule rejects each hypothesis."""
    steps = [(len(p) - place) * value for place, value in enumerate(sorted(p))]
    return [min(1.0, max(steps[: sorted(p).index(own) + 1])) for own in p]
