"""Attention of two models on the same sentences, number by number."""

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
