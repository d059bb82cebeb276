"""Ratios of sums with their intervals, as a textbook has them."""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from scipy import stats


class Part(NamedTuple):
    """What one sentence adds to a ratio."""

    n: float
    d: float
    events: float


class Number(NamedTuple):
    """A value with its interval; NaN where it is missing."""

    value: float
    low: float
    high: float
    sentences: int
    events: float


def ratio(parts: Sequence[Part], limits: tuple[float, float]) -> Number:
    """Ratio of sums, with the interval of a ratio whose clusters are the sentences."""
    events = sum(p.events for p in parts)
    taking_part = [p for p in parts if p.d > 0]
    k, d = len(taking_part), sum(p.d for p in taking_part)
    if not d:
        return Number(math.nan, math.nan, math.nan, k, events)
    value = sum(p.n for p in taking_part) / d
    if k < 2:
        return Number(value, math.nan, math.nan, k, events)
    residuals = sum((p.n - value * p.d) ** 2 for p in taking_part)
    reach = _student(k - 1) * math.sqrt(k / (k - 1) * residuals) / d
    low, high = (min(max(end, limits[0]), limits[1]) for end in (value - reach, value + reach))
    return Number(value, low, high, k, events)


@cache
def _student(freedom: int) -> float:
    """Quantile of 97.5 %."""
    return float(stats.t.ppf(0.975, freedom))


def together(parts: Sequence[Part]) -> Part:
    """The heads of a layer as one."""
    return Part(*(sum(each) for each in zip(*parts, strict=True)))
