"""Attention and numbers of two models on the same sentences, one by one."""

import math
from collections.abc import Sequence

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


def family_wise(changes: Sequence[Sums], sums: Sums, drawn: Sequence[Sums]) -> list[float]:
    """Two-sided p by the largest Student's t of each draw.

    Args:
        changes: of each head, what each cluster adds; they add up to 0.
        sums: observed, of each head.
        drawn: of each draw, how often it has each cluster.
    """
    n = len(changes[0])

    def t(total: float, squares: float) -> float:
        return abs(total) / math.sqrt(n / (n - 1) * (squares - total**2 / n))

    observed = [
        t(s, sum((u + s / n) ** 2 for u in us)) for us, s in zip(changes, sums, strict=True)
    ]
    largest = []
    for weights in drawn:
        sizes = []
        for us in changes:
            total = sum(w * u for w, u in zip(weights, us, strict=True))
            squares = sum(w * u * u for w, u in zip(weights, us, strict=True))
            sizes.append(t(total, squares))
        largest.append(max(sizes))
    return [(1 + sum(m >= o for m in largest)) / (1 + len(largest)) for o in observed]
