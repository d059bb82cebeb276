"""Confidence intervals of ratios of sums, from sums over all sentences.

Sentences are clusters; the variance is the linearised one. The corrections below were made because
measured coverage required them (`benchmarks/interval_coverage.py`):

- Long sentences count for more than short ones. Student's t has the degrees of freedom of the
  *effective number of sentences* (Kish 1965, section 8.2), (sum d)^2 / (sum d^2).
- Numbers near a bound have skewed distributions. A share gets Wilson's score interval on the number
  of independent observations that has the same variance (Korn & Graubard 1998). A number with one
  bound gets the limit of Wilson's interval for rare events. A share that is 0 or 1 in every
  sentence gets Wilson's interval with each effective sentence as one observation, because an event
  that was never observed may exist. If fewer than `MIN_PRESENT` sentences have a numerator, their
  variance says little, and each effective sentence counts as `OBSERVATIONS_OF_FEW` observations
  at most.
- A number that is equal in all sentences, and not at a bound, has no interval: it is constant by
  construction, or its variation is unknown.
- If a few sentences lie far from the others, most samples miss them. Standard errors grow with the
  skewness that lognormal distances from the nearer bound would have, if they vary as much. The
  unevenness of the numerators alone does not tell: most of it is that of sentence lengths.
- A long sentence draws the ratio towards itself, so its residual is too small. Standard errors grow
  with the mean leverage of sentences, as those of a jackknife do (MacKinnon & White 1985).
- No share varies more between sentences than one that is 0 or 1 in each of them. Widening ends at
  the interval that has each effective sentence as one observation.
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
MIN_COMPARED = 20  # texts of a value that compares kinds of pairs within each text
MAX_SENTENCES_PER_EFFECTIVE = 5  # a larger ratio means that a few sentences decide the value
MIN_PRESENT = 5  # sentences with a numerator above 0; with fewer, each one is an observation
SKEWNESS_SHARE = 0.3  # by which a lognormal skewness of 1 widens an interval
LEVERAGE_FACTOR = 2.5  # excess leverages by which intervals widen; a jackknife has 1
OBSERVATIONS_OF_FEW = 10  # per effective sentence, if fewer than `MIN_PRESENT` have a numerator
ROUNDING = 1e-12  # share of the squares below which deviations are rounding
SHARE_ROUNDING = 1e-14  # `ROUNDING` of shares, which may lie near 1 and vary little
EDGE_DISTANCE = 1e-12  # distance from 0 or 1 that is rounding in double precision
NEAR_ONE_DISTANCE = 1e-6  # from 1, within which an error is at least `MIN_ERROR_NEAR_ONE`
MIN_ERROR_NEAR_ONE = 1e-7  # rounding of a number near 1 in single precision
BOOTSTRAP_DRAWS = 2000  # samples of clusters behind the interval of a median
TOKEN_COUNT_FACTOR = 0.4  # by which unequal numbers of tokens widen intervals of token classes

Limits = tuple[ArrayLike, ArrayLike]  # least and largest possible value
UNBOUNDED: Limits = (-np.inf, np.inf)


def effective(total: Mapping[str, Floats]) -> Floats:
    """Return the effective number of sentences; the number of sentences if weights are unknown."""
    n_effective = divide(total["d"] ** 2, total["dd"])
    return np.where(np.isnan(n_effective), total["sentences"], n_effective)


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


def error_factor(
    total: Mapping[str, Floats], limits: Limits, rules: ArrayLike = IntervalRule.USUAL
) -> Floats:
    """Return the factor by which intervals widen the linearised standard error, at least 1."""
    n_effective = effective(total)
    sizes = np.fmax(divide(total["sentences"], n_effective), 1)  # 1 if all weigh alike
    # Mean leverage of lognormal weights, beyond that of equal ones, which `variance` has.
    excess_leverage = divide(sizes, n_effective) - divide(1, total["sentences"])
    classes = np.equal(rules, IntervalRule.CLASSES)
    factor = (
        1
        + SKEWNESS_SHARE * np.nan_to_num(_skewness(total, limits))
        + LEVERAGE_FACTOR * np.fmax(excess_leverage, 0)
        + TOKEN_COUNT_FACTOR * classes * (sizes - 1)
    )
    value, (lower, upper) = divide(total["n"], total["d"]), _ends(limits)
    with np.errstate(invalid="ignore"):
        # Largest variance of a share: sentences that are all at one bound or the other.
        largest = divide((value - lower) * (upper - value), n_effective)
        allowed = np.sqrt(divide(largest, variance(total, _rounding(limits))))
    widest = np.where(np.isfinite(allowed), np.fmin(factor, allowed), factor)
    return np.asarray(np.fmax(widest, 1), np.float64)


def _skewness(total: Mapping[str, Floats], limits: Limits) -> Floats:
    """Return the skewness of a ratio whose sentences' distances from the nearer bound are skewed.

    Distances are lognormal; with two bounds, which cut the tail, as if lognormal with a small
    variance. Sentences without a numerator take no part near a lower bound of 0.
    """
    value, n_effective = divide(total["n"], total["d"]), effective(total)
    lower, upper = _ends(limits)
    near_lower = value - lower <= upper - value
    distance = np.where(near_lower, value - lower, upper - value)  # infinite without bounds
    part = np.where(near_lower & (lower == 0), divide(total["present"], total["sentences"]), 1.0)
    relative_variance = n_effective * divide(variance(total, _rounding(limits)), distance**2)
    coefficient = np.sqrt(np.fmax(part * (1 + relative_variance) - 1, 0))
    tail = np.where(np.isfinite(upper), 0, coefficient**2)
    skewness = coefficient * (3 + tail)  # of one sentence
    # Third moments of lognormal weights: their unevenness to the power of 3/2 over sentences^(1/2).
    sizes = np.fmax(divide(total["sentences"], n_effective), 1)
    return np.asarray(skewness * divide(sizes, np.sqrt(np.fmax(n_effective * part, 1))))


def _ends(limits: Limits) -> tuple[Floats, Floats]:
    lower, upper = (np.asarray(end, np.float64) for end in limits)
    return lower, upper


def _rounding(limits: Limits) -> Floats:
    """Return the share of the squares below which deviations are rounding."""
    lower, upper = _ends(limits)
    return np.where(np.isfinite(lower) & np.isfinite(upper), SHARE_ROUNDING, ROUNDING)


def has_value(count: Floats | Ints, rules: ArrayLike) -> NDArray[np.bool_]:
    """Return whether there is a value, by cell: comparisons within texts need `MIN_COMPARED`.

    Args:
        count: number of sentences that take part.
    """
    compares = np.isin(rules, (IntervalRule.FEW, IntervalRule.COMPARED))
    enough: NDArray[np.bool_] = ~compares | np.greater_equal(count, MIN_COMPARED)
    return enough


def has_interval(
    n_effective: Floats, count: Floats | Ints, rules: ArrayLike = IntervalRule.USUAL
) -> NDArray[np.bool_]:
    """Return whether there is an interval, by cell.

    Args:
        n_effective: effective number of sentences.
        count: number of sentences that take part.
    """
    needed = np.where(np.equal(rules, IntervalRule.CLASSES), 2 * MIN_EFFECTIVE, MIN_EFFECTIVE)
    enough_sentences = (n_effective >= needed) & np.greater(count, 1)
    even_weights = n_effective * MAX_SENTENCES_PER_EFFECTIVE >= count
    allowed = ~np.isin(rules, (IntervalRule.FEW, IntervalRule.CONSTANT)) & has_value(count, rules)
    has: NDArray[np.bool_] = enough_sentences & even_weights & allowed
    return has


def critical_value(n_effective: Floats, level: float = 0.95) -> Floats:
    """Return half the width of an interval in standard errors, by Student's t.

    Args:
        n_effective: effective number of sentences, one more than the degrees of freedom.
    """
    return np.asarray(stdtrit(np.maximum(n_effective - 1, 1), (1 + level) / 2), np.float64)


def interval(
    total: Mapping[str, Floats],
    limits: Limits,
    rules: ArrayLike = IntervalRule.USUAL,
    level: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return both ends of the interval, inside the limits.

    NaN if there are too few sentences, or if nothing varies and the value is not at a limit.

    Args:
        total: the sums `headbook.analysis.accumulators.FIELDS`, of one shape.
        limits, rules: broadcast to that shape.
    """
    value, n_effective = divide(total["n"], total["d"]), effective(total)
    lower, upper = (np.broadcast_to(np.asarray(end, float), value.shape) for end in limits)
    has_lower, has_upper = np.isfinite(lower), np.isfinite(upper)
    bounded = has_lower & has_upper
    valid = has_interval(n_effective, total["sentences"], rules)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        critical = critical_value(n_effective, level)
        error = np.sqrt(variance(total, _rounding(limits))) * error_factor(total, limits, rules)
        valid &= (error > 0) | np.not_equal(rules, IntervalRule.CONTINUOUS)
        max_observations = np.select(
            [np.equal(rules, IntervalRule.RARE), total["present"] < MIN_PRESENT],
            [n_effective, OBSERVATIONS_OF_FEW * n_effective],
            np.inf,
        )
        size = upper - lower
        wilson = _wilson(
            (value - lower) / size, error / size, critical, n_effective, max_observations
        )
        rare_event = _rare_event(value - lower, error, critical)
        student = _student(value, error, critical)
        low, high = (
            np.where(bounded, lower + size * share, np.where(has_lower, lower + amount, symmetric))
            for share, amount, symmetric in zip(wilson, rare_event, student, strict=True)
        )
    return clipped(np.where(valid, low, np.nan), np.where(valid, high, np.nan), limits)


def clipped(low: Floats, high: Floats, limits: Limits) -> tuple[Floats, Floats]:
    """Clip both ends of intervals to the least and largest possible value; NaN stays."""
    return np.clip(low, *limits), np.clip(high, *limits)


def of_difference(limits: Limits) -> tuple[Floats, Floats]:
    """Return the least and largest possible difference of two numbers with the same limits."""
    lower, upper = (np.asarray(end, np.float64) for end in limits)
    return lower - upper, upper - lower


def _wilson(
    share: Floats, error: Floats, critical: Floats, n_observations: Floats, max_observations: Floats
) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of a share.

    Args:
        critical: quantile of Student's t.
        n_observations: number of observations if the share is 0 or 1 in every sentence.
        max_observations: largest number of observations.
    """
    share = np.clip(share, 0, 1)
    share = np.where(share > 1 - EDGE_DISTANCE, 1, np.where(share < EDGE_DISTANCE, 0, share))
    inside = (share > 0) & (share < 1)
    near_one = inside & (share > 1 - NEAR_ONE_DISTANCE)
    error = np.where(near_one, np.fmax(error, MIN_ERROR_NEAR_ONE), error)
    implied = np.where(error > 0, share * (1 - share) / error**2, np.nan)
    number = np.minimum(np.where(inside, implied, n_observations), max_observations)
    penalty = critical**2 / number
    middle = (share + penalty / 2) / (1 + penalty)
    half_width = np.sqrt(share * (1 - share) * penalty + penalty**2 / 4) / (1 + penalty)
    return middle - half_width, middle + half_width


def _rare_event(amount: Floats, error: Floats, critical: Floats) -> tuple[Floats, Floats]:
    """Return the score interval of a number with a lower bound of 0 only, as for rare events."""
    penalty = np.where(error > 0, (critical * error / amount) ** 2, np.nan)
    half_width = np.sqrt(penalty + penalty**2 / 4)
    return amount * (1 + penalty / 2 - half_width), amount * (1 + penalty / 2 + half_width)


def _student(value: Floats, error: Floats, critical: Floats) -> tuple[Floats, Floats]:
    """Return Student's t interval; NaN if the standard error is 0."""
    half_width = np.where(error > 0, critical * error, np.nan)
    return value - half_width, value + half_width


def share_upper_bound(successes: int, trials: int, level: float = 0.95) -> float:
    """Return the one-sided upper bound of a share (Clopper & Pearson 1934).

    Args:
        successes: number of observations with the property in a random sample.
        trials: size of the sample.
    """
    if successes == trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, level))


def share_bounds(successes: Ints, trials: Ints, level: float) -> tuple[Floats, Floats]:
    """Return exact one-sided lower and upper bounds of shares (Clopper & Pearson 1934).

    Args:
        successes: observations with the property. *Shape:* ``(*cells)``.
        trials: all observations; cells without any have no bounds (NaN). *Shape:* ``(*cells)``.
        level: confidence of each of the two bounds alone, such as 0.95.
    """
    k, n = (np.asarray(counts, np.float64) for counts in (successes, trials))
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, 1 - level), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), level), 1.0)
    has_trials = n > 0
    return np.where(has_trials, low, np.nan), np.where(has_trials, high, np.nan)


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
    critical = float(stdtrit(max(count - 1, 1), (1 + level) / 2))
    total = np.where(d.sum(0) == 0, np.nan, d.sum(0))
    value = n.sum(0) / total

    def error(residuals: Floats) -> Floats:
        standard_error: Floats = np.sqrt(count / max(count - 1, 1) * (residuals**2).sum(0))
        return standard_error

    half_width = critical * error(n - value * d) / np.abs(total)
    certain = (np.abs(total) > critical * error(d - d.mean(0))) & (count >= MIN_EFFECTIVE)
    low = np.where(certain, value - half_width, np.nan)
    return value, low, np.where(certain, value + half_width, np.nan)


def median_interval(values: Floats, cluster: Ints, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of a median, by drawing clusters with replacement.

    NaN below `MIN_EFFECTIVE` clusters.

    Args:
        values: values of all clusters. *Shape:* ``(value,)``.
        cluster: cluster of each value, such as its sentence. *Shape:* ``(value,)``.
        seed: seed of the draws.
    """
    numbers, cluster_index = np.unique(cluster, return_inverse=True)
    n_clusters = len(numbers)
    if n_clusters < MIN_EFFECTIVE:
        return np.nan, np.nan
    shares = np.full(n_clusters, 1 / n_clusters)
    times = np.random.default_rng(seed).multinomial(n_clusters, shares, BOOTSTRAP_DRAWS)
    order = np.argsort(values, kind="stable")
    below = times[:, cluster_index[order]].cumsum(1)
    middle = below[:, -1:] / 2
    lower, upper = (
        values[order][reached.argmax(1)] for reached in (below >= middle, below > middle)
    )
    low, high = np.percentile((lower + upper) / 2, (2.5, 97.5))
    return float(low), float(high)
