"""Ratios of sums with their intervals, as a textbook has them."""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from scipy import stats

from headbook.analysis import intervals
from headbook.schema import IntervalRule


class Part(NamedTuple):
    """What one sentence adds to a ratio."""

    n: float
    d: float
    events: float


class Estimate(NamedTuple):
    """A value with its interval; NaN where it is missing."""

    value: float
    low: float
    high: float
    sentences: int
    events: float
    effective: float


NOTHING = math.nan, math.nan


def ratio(
    parts: Sequence[Part], limits: tuple[float, float], spread: IntervalRule = IntervalRule.USUAL
) -> Estimate:
    """Ratio of sums, with the interval of a ratio whose clusters are the sentences."""
    events = sum(p.events for p in parts)
    parts = [p for p in parts if p.d > 0]
    d = sum(p.d for p in parts)
    if not d:
        return Estimate(math.nan, math.nan, math.nan, 0, events, 0)
    effective = d**2 / sum(p.d**2 for p in parts)
    needed = (
        2 * intervals.MIN_EFFECTIVE if spread is IntervalRule.CLASSES else intervals.MIN_EFFECTIVE
    )
    few = len(parts) < 2 or effective < needed or 5 * effective < len(parts)
    few = few or spread in {IntervalRule.FEW, IntervalRule.CONSTANT}
    compares = spread in {IntervalRule.FEW, IntervalRule.COMPARED}
    lacking = compares and len(parts) < intervals.MIN_COMPARED
    low, high = NOTHING if few or lacking else interval(parts, effective, limits, spread)
    if not math.isnan(low):
        low, high = max(low, limits[0]), min(high, limits[1])
    value = math.nan if lacking else sum(p.n for p in parts) / d
    return Estimate(value, low, high, len(parts), events, effective)


def interval(
    parts: Sequence[Part], effective: float, limits: tuple[float, float], spread: IntervalRule
) -> tuple[float, float]:
    """Both ends, by the kind of bounds."""
    least, most = limits
    d = sum(p.d for p in parts)
    value = sum(p.n for p in parts) / d
    residuals = sum((p.n - value * p.d) ** 2 for p in parts)
    bounded = math.isfinite(least) and math.isfinite(most)
    if residuals <= (1e-14 if bounded else 1e-12) * sum(p.n**2 for p in parts):
        residuals = 0
    error = math.sqrt(len(parts) / (len(parts) - 1) * residuals) / d
    error *= widening(parts, effective, error, limits, spread)
    reach = _student(max(effective - 1, 1))
    if not error and spread is IntervalRule.CONTINUOUS:
        return NOTHING
    if math.isinf(least) and math.isinf(most):
        return (value - reach * error, value + reach * error) if error else NOTHING
    if math.isinf(most):  # Wilson's interval of p = rate / n for n without end
        if not error:
            return NOTHING
        events = ((value - least) / error) ** 2
        ends = [
            (events + reach**2 / 2 + sign * reach * math.sqrt(events + reach**2 / 4)) / events
            for sign in (-1, 1)
        ]
        return least + (value - least) * ends[0], least + (value - least) * ends[1]
    p = min(max((value - least) / (most - least), 0), 1)
    p = 0.0 if p < 1e-12 else 1.0 if p > 1 - 1e-12 else p
    share_error = error / (most - least)
    if 1 - 1e-6 < p < 1:
        share_error = max(share_error, 1e-7)
    if 0 < p < 1 and not share_error:
        return NOTHING  # constant
    number = p * (1 - p) / share_error**2 if 0 < p < 1 else effective
    if spread is IntervalRule.RARE:
        number = min(number, effective)
    elif sum(abs(part.n) > 1e-6 for part in parts) < 5:
        number = min(number, 10 * effective)
    found = [_wilson_end(p, number, sign * reach) for sign in (-1, 1)]
    return least + (most - least) * found[0], least + (most - least) * found[1]


def _wilson_end(p: float, n: float, z: float) -> float:
    """Wilson (1927), as textbooks print it."""
    root = math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (p + z * z / (2 * n) + z * root) / (1 + z * z / n)


def widening(
    parts: Sequence[Part],
    effective: float,
    error: float,
    limits: tuple[float, float],
    spread: IntervalRule,
) -> float:
    """How many times the textbook's standard error is taken."""
    least, most = limits
    value = sum(p.n for p in parts) / sum(p.d for p in parts)
    uneven = len(parts) / effective
    members = len(parts)
    below, above = value - least, most - value
    if least == 0 and below <= above:
        members = sum(abs(p.n) > 1e-6 for p in parts)
    factor = 1 + 2.5 * max(uneven / effective - 1 / len(parts), 0)
    distance = min(below, above)
    if distance > 0 and math.isfinite(distance):
        squares = members / len(parts) * (1 + effective * (error / distance) ** 2)
        deviation = math.sqrt(max(squares - 1, 0))  # of the members, over their mean
        # Of a lognormal distribution, if nothing cuts its tail; the weights are lognormal, too.
        skewness = 3 * deviation + (deviation**3 if math.isinf(most) else 0)
        skewness *= uneven**1.5
        factor += 0.3 * skewness / math.sqrt(max(members, len(parts) / effective))
    if spread is IntervalRule.CLASSES:
        factor += 0.4 * (uneven - 1)
    if math.isfinite(below * above) and below * above > 0 and error:
        factor = min(factor, math.sqrt(below * above / effective) / error)
    return max(factor, 1)


@cache
def _student(freedom: float) -> float:
    """Quantile of 97.5 %."""
    return float(stats.t.ppf(0.975, freedom))


def together(parts: Sequence[Part]) -> Part:
    """Return the heads of a layer as one."""
    return Part(*(sum(each) for each in zip(*parts, strict=True)))
