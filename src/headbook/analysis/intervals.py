"""Confidence intervals of ratios of sums, from sums over all sentences.

Sentences are clusters; the variance is the linearised one. The corrections below were made because
measured coverage required them (`benchmarks/interval_coverage.py`):

- Long sentences count for more than short ones. Student's t has the degrees of freedom of the
  *effective number of sentences* (Kish 1965, section 8.2), (sum d)^2 / (sum d^2).
- Numbers near a bound have skewed distributions. A share gets Wilson's score interval on the number
  of independent observations that has the same variance (Korn & Graubard 1998); a number with one
  bound gets the limit of that for rare events. A share that is 0 or 1 in every sentence gets
  Wilson's interval with each effective sentence as one observation: an event never seen may exist.
- A number that is equal in all sentences, and not at a bound, is constant by construction, or its
  variation is unknown. It has no interval.
- If few sentences hold most of the numerator, most samples underestimate it. Standard errors grow
  with the skewness of a lognormal distribution that is as uneven.
- Below `MIN_EFFECTIVE` effective sentences, and if a few sentences decide the value, there is no
  interval.

Every interval lies within the bounds of its number: `interval` clips the ends, so callers need not.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from headbook.analysis.arrays import Floats, Ints, divide
from headbook.schema import IntervalRule

MIN_EFFECTIVE = 10  # effective sentences of an interval; twice as many for classes of tokens
UNEVEN = 5  # largest number of sentences for each effective one
SEEN = 5  # sentences with a numerator above 0, below which each sentence is one observation
SKEWED = 0.6  # share of its standard error by which skewness widens an interval
ROUNDING = 1e-12  # share of the squares below which deviations are rounding
CONSTANT = 1e-14  # `ROUNDING` of shares, which may lie near 1 and vary little
EDGE = 1e-12  # distance from 0 or 1 that is rounding in double precision
NEAR = 1e-6  # distance from 1 within which a share has at least the error `SINGLE`
SINGLE = 1e-7  # rounding of a number near 1 in single precision
SIZES = 1.5  # factor by which unequal numbers of tokens widen intervals of classes of tokens

Limits = tuple[ArrayLike, ArrayLike]  # least and largest possible value
UNBOUNDED: Limits = (-np.inf, np.inf)


def effective(total: Mapping[str, Floats]) -> Floats:
    """Return the effective number of sentences; the number of sentences if weights are unknown."""
    found = divide(total["d"] ** 2, total["dd"])
    return np.where(np.isnan(found), total["sentences"], found)


def variance(total: Mapping[str, Floats], rounding: float | Floats = ROUNDING) -> Floats:
    """Return the linearised variance of the ratio, sentences as clusters; NaN with fewer than two.

    Args:
        rounding: share of the squares below which deviations count as 0.
    """
    count, value = total["sentences"], divide(total["n"], total["d"])
    spread = total["nn"] - 2 * value * total["nd"] + value**2 * total["dd"]
    # Sums of a jackknife hold squared deviations only; squared values are at least n^2 / count.
    squares = np.fmax(total["nn"], divide(total["n"] ** 2, count))
    spread = np.where(spread > rounding * squares, spread, 0)
    return divide(count * spread, np.maximum(count - 1, 0) * total["d"] ** 2)


def skewness_factor(
    total: Mapping[str, Floats], limits: Limits, spread: ArrayLike = IntervalRule.USUAL
) -> Floats:
    """Return the factor by which skewness widens the linearised standard error."""
    least = np.where(np.isfinite(limits[0]), limits[0], np.nan)
    above = total["n"] - least * total["d"]
    squares = total["nn"] - 2 * least * total["nd"] + least**2 * total["dd"]
    present = np.where(least == 0, total["present"], total["sentences"])
    # Unevenness of the numerators: 1 if all sentences that have one have the same.
    ratio = np.fmax(present * divide(squares, above**2), 1)
    skewness = (ratio + 2) * np.sqrt(ratio - 1) / np.sqrt(np.fmax(present, 1))
    sizes = np.fmax(divide(total["sentences"], effective(total)), 1)
    classes = np.equal(spread, IntervalRule.CLASSES)
    found: Floats = 1 + SKEWED * skewness + SIZES * classes * (sizes - 1)
    return found


def has_interval(
    behind: Floats, count: Floats | Ints, spread: ArrayLike = IntervalRule.USUAL
) -> NDArray[np.bool_]:
    """Return whether there is an interval, by cell.

    Args:
        behind: effective number of sentences.
        count: number of sentences that take part.
    """
    needed = np.where(np.equal(spread, IntervalRule.CLASSES), 2 * MIN_EFFECTIVE, MIN_EFFECTIVE)
    found: NDArray[np.bool_] = (behind >= needed) & (behind * UNEVEN >= count)
    return (
        found & ~np.isin(spread, (IntervalRule.FEW, IntervalRule.CONSTANT)) & np.greater(count, 1)
    )


def critical_value(behind: Floats, level: float = 0.95) -> Floats:
    """Return half the width of an interval in standard errors, by Student's t.

    Args:
        behind: effective number of sentences, one more than the degrees of freedom.
    """
    return np.asarray(stdtrit(np.maximum(behind - 1, 1), (1 + level) / 2), np.float64)


def interval(
    total: Mapping[str, Floats],
    limits: Limits,
    spread: ArrayLike = IntervalRule.USUAL,
    level: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return both ends of the interval, inside the limits.

    NaN if there are too few sentences, or if nothing varies and the value is not at a limit.

    Args:
        total: the sums `headbook.analysis.accumulators.FIELDS`, of one shape.
        limits, spread: broadcast to that shape.
    """
    value, behind = divide(total["n"], total["d"]), effective(total)
    least, most = (np.broadcast_to(np.asarray(end, float), value.shape) for end in limits)
    above, below = np.isfinite(least), np.isfinite(most)
    there = has_interval(behind, total["sentences"], spread)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        reach = critical_value(behind, level)
        rounding = np.where(above & below, CONSTANT, ROUNDING)
        error = np.sqrt(variance(total, rounding)) * skewness_factor(total, limits, spread)
        there &= (error > 0) | np.not_equal(spread, IntervalRule.CONTINUOUS)
        rare = np.equal(spread, IntervalRule.RARE) | (total["present"] < SEEN)
        units = np.where(rare, behind, np.inf)
        size = most - least
        ends = zip(
            _wilson((value - least) / size, error / size, reach, behind, units),
            _rare_event(value - least, error, reach),
            _student(value, error, reach),
            strict=True,
        )
        low, high = (
            np.where(above & below, least + size * share, np.where(above, least + amount, other))
            for share, amount, other in ends
        )
    return clipped(np.where(there, low, np.nan), np.where(there, high, np.nan), limits)


def clipped(low: Floats, high: Floats, limits: Limits) -> tuple[Floats, Floats]:
    """Clip both ends of intervals to the least and largest possible value; NaN stays."""
    return np.clip(low, *limits), np.clip(high, *limits)


def of_difference(limits: Limits) -> tuple[Floats, Floats]:
    """Return the least and largest possible difference of two numbers with the same limits."""
    least, most = (np.asarray(end, np.float64) for end in limits)
    return least - most, most - least


def _wilson(
    share: Floats, error: Floats, reach: Floats, behind: Floats, most: Floats
) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of a share.

    Args:
        reach: quantile of Student's t.
        behind: number of observations if the share is 0 or 1 in every sentence.
        most: largest number of observations.
    """
    share = np.clip(share, 0, 1)
    share = np.where(share > 1 - EDGE, 1, np.where(share < EDGE, 0, share))
    inside = (share > 0) & (share < 1)
    error = np.where(inside & (share > 1 - NEAR), np.fmax(error, SINGLE), error)
    varying = np.where(error > 0, share * (1 - share) / error**2, np.nan)
    number = np.minimum(np.where(inside, varying, behind), most)
    part = reach**2 / number
    middle = (share + part / 2) / (1 + part)
    half = np.sqrt(share * (1 - share) * part + part**2 / 4) / (1 + part)
    return middle - half, middle + half


def _rare_event(amount: Floats, error: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """Return the score interval of a number with a lower bound of 0 only, as for rare events."""
    part = np.where(error > 0, (reach * error / amount) ** 2, np.nan)
    half = np.sqrt(part + part**2 / 4)
    return amount * (1 + part / 2 - half), amount * (1 + part / 2 + half)


def _student(value: Floats, error: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """Return Student's t interval; NaN if the standard error is 0."""
    half = np.where(error > 0, reach * error, np.nan)
    return value - half, value + half


def share_upper_bound(found: int, of: int, level: float = 0.95) -> float:
    """Return the upper bound of a share seen ``found`` times in a random sample of size ``of``.

    Clopper & Pearson 1934, one-sided.
    """
    return float(betaincinv(found + 1, of - found, level)) if found < of else 1.0


def share_bounds(found: Ints, of: Ints, level: float) -> tuple[Floats, Floats]:
    """Return exact one-sided lower and upper bounds of shares (Clopper & Pearson 1934).

    Args:
        found: observations with the property. *Shape:* ``(*cells)``.
        of: all observations; cells without any have no bounds (NaN). *Shape:* ``(*cells)``.
        level: confidence of each of the two bounds alone, such as 0.95.
    """
    k, n = (np.asarray(each, np.float64) for each in (found, of))
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, 1 - level), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), level), 1.0)
    there = n > 0
    return np.where(there, low, np.nan), np.where(there, high, np.nan)


def signed_ratio_interval(
    n: Floats, d: Floats, level: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Return ratios of sums whose denominators may be negative, with intervals.

    Sentences are clusters. There is no interval if the sign of the sum of the denominators is
    uncertain, or below `MIN_EFFECTIVE` sentences.

    Args:
        n, d: numerators and denominators. *Shape:* ``(sentence, *cells)``.
    """
    count = len(d)
    reach = float(stdtrit(max(count - 1, 1), (1 + level) / 2))
    total = np.where(d.sum(0) == 0, np.nan, d.sum(0))
    value = n.sum(0) / total

    def error(parts: Floats) -> Floats:
        found: Floats = np.sqrt(count / max(count - 1, 1) * (parts**2).sum(0))
        return found

    half = reach * error(n - value * d) / np.abs(total)
    sure = (np.abs(total) > reach * error(d - d.mean(0))) & (count >= MIN_EFFECTIVE)
    return value, np.where(sure, value - half, np.nan), np.where(sure, value + half, np.nan)
