"""Confidence intervals of ratios of sums, from the sums that are kept of all sentences.

Sentences are clusters; the variance is the linearised one. What goes beyond it is there because
coverage was measured (`benchmarks/interval_coverage.py`):

- Long sentences count for more than short ones. Student's t has the degrees of freedom of the
  *effective number of sentences* (Kish 1965, section 8.2), (sum d)^2 / (sum d^2).
- Numbers near a bound have skewed distributions. A share gets Wilson's score interval on the number
  of independent observations that has the same variance (Korn & Graubard 1998); a number with one
  bound gets the limit of that for rare events. A share that is 0 or 1 in every sentence gets
  Wilson's interval with each effective sentence as one observation: what was never found may exist.
- A number that is the same in every sentence, and not at a bound, is constant by construction, or
  nothing tells how it varies. It has no interval.
- Where few sentences hold most of the numerator, most samples hold less of it than what they were
  drawn from. Standard errors grow with the skewness of a lognormal distribution that is as uneven.
- Below `MIN_EFFECTIVE` effective sentences, and where a few sentences decide all, there is no
  interval.

Every interval lies within the bounds of its number: `interval` clips the ends, so callers need not.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from headbook.analysis.arrays import Floats, Ints, divide
from headbook.schema import IntervalRule

MIN_EFFECTIVE = (
    10  # effective sentences that an interval needs; twice as many for classes of tokens
)
UNEVEN = 5  # sentences there may be for each effective one
SEEN = 5  # sentences with any of it, below which each is one observation
SKEWED = 0.6  # share of its standard error by which skewness widens an interval
ROUNDING = 1e-12  # share of the squares below which deviations are rounding
CONSTANT = 1e-14  # that of shares, which may stand near 1 and vary little
EDGE = 1e-12  # of the range, within which a share is 0 or 1 but for rounding in double precision
NEAR = 1e-6  # below 1, within which a share has at least the error `SINGLE`
SINGLE = 1e-7  # rounding of a number near 1 in single precision
SIZES = 1.5  # the same of unequal numbers of tokens, for classes of tokens

Limits = tuple[ArrayLike, ArrayLike]  # least and largest possible value
UNBOUNDED: Limits = (-np.inf, np.inf)


def effective(total: Mapping[str, Floats]) -> Floats:
    """Effective number of sentences; that of all where their weights are not known."""
    found = divide(total["d"] ** 2, total["dd"])
    return np.where(np.isnan(found), total["sentences"], found)


def variance(total: Mapping[str, Floats], rounding: float | Floats = ROUNDING) -> Floats:
    """Return the linearised variance of the ratio, sentences as clusters; NaN with fewer than two.

    Args:
        rounding: share of the squares below which deviations count as 0.
    """
    count, value = total["sentences"], divide(total["n"], total["d"])
    spread = total["nn"] - 2 * value * total["nd"] + value**2 * total["dd"]
    # Sums of a jackknife have the squares of deviations alone; those of values are at least these.
    squares = np.fmax(total["nn"], divide(total["n"] ** 2, count))
    spread = np.where(spread > rounding * squares, spread, 0)
    return divide(count * spread, np.maximum(count - 1, 0) * total["d"] ** 2)


def skewness_factor(
    total: Mapping[str, Floats], limits: Limits, spread: ArrayLike = IntervalRule.USUAL
) -> Floats:
    """How many times as large as the linearised one the standard error is taken to be."""
    least = np.where(np.isfinite(limits[0]), limits[0], np.nan)
    above = total["n"] - least * total["d"]
    squares = total["nn"] - 2 * least * total["nd"] + least**2 * total["dd"]
    present = np.where(least == 0, total["present"], total["sentences"])
    # How uneven what sentences hold is: 1 for as many that hold the same.
    ratio = np.fmax(present * divide(squares, above**2), 1)
    skewness = (ratio + 2) * np.sqrt(ratio - 1) / np.sqrt(np.fmax(present, 1))
    sizes = np.fmax(divide(total["sentences"], effective(total)), 1)
    classes = np.equal(spread, IntervalRule.CLASSES)
    found: Floats = 1 + SKEWED * skewness + SIZES * classes * (sizes - 1)
    return found


def has_interval(
    behind: Floats, count: Floats | Ints, spread: ArrayLike = IntervalRule.USUAL
) -> NDArray[np.bool_]:
    """Whether there is an interval at all.

    Args:
        behind: effective number of sentences.
        count: of all that take part.
    """
    needed = np.where(np.equal(spread, IntervalRule.CLASSES), 2 * MIN_EFFECTIVE, MIN_EFFECTIVE)
    found: NDArray[np.bool_] = (behind >= needed) & (behind * UNEVEN >= count)
    return (
        found & ~np.isin(spread, (IntervalRule.FEW, IntervalRule.CONSTANT)) & np.greater(count, 1)
    )


def critical_value(behind: Floats, level: float = 0.95) -> Floats:
    """Standard errors on either side of a value: Student's t of the effective number."""
    return np.asarray(stdtrit(np.maximum(behind - 1, 1), (1 + level) / 2), np.float64)


def interval(
    total: Mapping[str, Floats],
    limits: Limits,
    spread: ArrayLike = IntervalRule.USUAL,
    level: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return both ends of the interval, inside the limits.

    NaN where too few sentences stand behind the value, and where nothing varies inside the limits.

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
            _of_share((value - least) / size, error / size, reach, behind, units),
            _of_amount(value - least, error, reach),
            _of_anything(value, error, reach),
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


def _of_share(
    share: Floats, error: Floats, reach: Floats, behind: Floats, most: Floats
) -> tuple[Floats, Floats]:
    """Wilson's score interval.

    Args:
        reach: quantile of Student's t.
        behind: observations where the share is 0 or 1 in every sentence.
        most: observations that there may be.
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


def _of_amount(amount: Floats, error: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """The same of a part of something very large: a score interval of rare events."""
    part = np.where(error > 0, (reach * error / amount) ** 2, np.nan)
    half = np.sqrt(part + part**2 / 4)
    return amount * (1 + part / 2 - half), amount * (1 + part / 2 + half)


def _of_anything(value: Floats, error: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """Student's t; a spread of 0 is no evidence."""
    half = np.where(error > 0, reach * error, np.nan)
    return value - half, value + half


def share_upper_bound(found: int, of: int, level: float = 0.95) -> float:
    """Upper bound of a share of which a random sample has ``found`` (Clopper & Pearson 1934)."""
    return float(betaincinv(found + 1, of - found, level)) if found < of else 1.0


def share_bounds(found: Ints, of: Ints, level: float) -> tuple[Floats, Floats]:
    """Exact one-sided lower and upper bounds of shares (Clopper & Pearson 1934).

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
    """Ratios of sums whose denominators may be negative, with intervals clustered by sentence.

    There is no interval where it is not sure on which side of 0 the sum of the denominators lies,
    nor below `MIN_EFFECTIVE` sentences.

    Args:
        n, d: *Shape:* ``(sentence, *cells)``.
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
