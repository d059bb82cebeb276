"""How wide intervals of ratios of sums are, and how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats
from headbook.metrics import all_metrics
from headbook.schema import IntervalRule

SHARE, AMOUNT = (0.0, 1.0), (0.0, math.inf)
STUDIES = 2000


def of(n: Floats, d: Floats) -> RatioSums:
    """Sums over the first axis."""
    return RatioSums.of(n, d, d, np.zeros(len(n), np.int64))


def lengths(random: np.random.Generator, *shape: int) -> Floats:
    """Lengths of sentences, in tokens."""
    return np.clip(np.round(random.lognormal(2.6, 0.65, shape)), 2, 120)


def coverage_and_width(
    n: Floats, d: Floats, truth: float, limits: tuple[float, float]
) -> tuple[float, float]:
    """Share of studies whose interval holds the truth, and width over that of 95 % of values."""
    ratios = of(n, d)
    low, high = ratios.interval(limits)
    assert not np.isnan(low).any()
    ends = np.quantile(ratios.value, (0.025, 0.975))
    covered = ((low <= truth) & (truth <= high)).mean()
    return float(covered), float((high - low).mean() / (ends[1] - ends[0]))


@pytest.mark.parametrize("count", [30, 64, 128])
@pytest.mark.parametrize(("kind", "limits"), [("amount", AMOUNT), ("share", SHARE)])
def test_unequal_lengths_alone_do_not_widen_intervals(
    kind: str, limits: tuple[float, float], count: int
) -> None:
    """The numerators are uneven only because the lengths are."""
    random = np.random.default_rng(0)
    d = lengths(random, count, STUDIES)
    values = random.lognormal(0, 0.3, d.shape) if kind == "amount" else random.beta(3, 7, d.shape)
    truth = math.exp(0.3**2 / 2) if kind == "amount" else 0.3
    covered, width = coverage_and_width(d * values, d, truth, limits)
    assert 0.94 <= covered <= 0.98
    assert width <= 1.3


@pytest.mark.parametrize("count", [64, 128])
@pytest.mark.parametrize("mean", [0.02, 0.98])
def test_shares_near_either_bound_are_covered(mean: float, count: int) -> None:
    """Shares near 1 are as skewed as shares near 0."""
    random = np.random.default_rng(1)
    d = lengths(random, count, STUDIES)
    n = d * random.beta(5 * mean, 5 * (1 - mean), d.shape)
    covered, _ = coverage_and_width(n, d, mean, SHARE)
    assert 0.94 <= covered <= 0.985


def test_the_interval_of_the_rest_is_the_mirrored_one() -> None:
    random = np.random.default_rng(2)
    d = lengths(random, 50, 30)
    n = d * random.beta(2, 8, d.shape)
    low, high = of(n, d).interval(SHARE)
    rest_low, rest_high = of(d - n, d).interval(SHARE)
    np.testing.assert_allclose(rest_low, 1 - high, rtol=1e-9)
    np.testing.assert_allclose(rest_high, 1 - low, rtol=1e-9)


@pytest.mark.parametrize("limits", [SHARE, (-1.0, 1.0)])
def test_no_share_has_a_wider_interval_than_one_of_zeros_and_ones(
    limits: tuple[float, float],
) -> None:
    """Wilson's interval, each effective sentence as an observation, is the widest."""
    random = np.random.default_rng(3)
    d = lengths(random, 60, 300) ** random.uniform(0, 1.5, 300)
    share = np.where(random.random(d.shape) < 0.5, random.beta(0.05, 5, d.shape), 0)
    least, most = limits
    ratios = of(d * (least + (most - least) * share), d)
    low, high = ratios.interval(limits)
    p, n = (ratios.value - least) / (most - least), ratios.n_effective
    z = stats.t.ppf(0.975, n - 1)
    half = z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    there = ~np.isnan(low)
    assert there.sum() > 100
    # Sentences that are 0 or 1 vary by count / (count - 1) more in a sample.
    assert ((high - low) <= 2 * half * (most - least) * math.sqrt(60 / 59) + 1e-9)[there].all()


@pytest.mark.parametrize(("present", "most_per_sentence"), [(0, 1), (1, 10), (4, 10)])
def test_a_share_that_few_sentences_have_counts_each_sentence_ten_times_at_most(
    present: int, most_per_sentence: int
) -> None:
    n, d = np.zeros((40, 1)), np.full((40, 1), 100.0)
    n[:present] = 1e-3
    low, high = of(n, d).interval(SHARE)
    z, observations = stats.t.ppf(0.975, 39), 40 * most_per_sentence
    assert low[0] == pytest.approx(0, abs=1e-6)
    assert high[0] == pytest.approx(z**2 / (observations + z**2), rel=0.02)
    _, rare_high = of(n, d).interval(SHARE, IntervalRule.RARE)
    assert rare_high[0] == pytest.approx(z**2 / (40 + z**2), rel=0.02)


def test_uneven_weights_widen_errors_at_least_as_a_jackknife_does() -> None:
    """On average: without a sentence, the ratio of the others says what the sentence changes."""
    random = np.random.default_rng(4)
    d = random.lognormal(0, 0.8, (40, 400))
    n = d * random.normal(1, 0.1, d.shape)
    without = (n.sum(0) - n) / (d.sum(0) - d)
    jackknife = np.sqrt(39 / 40 * ((without - without.mean(0)) ** 2).sum(0))
    assert (np.sqrt(of(n, d).variance()) / jackknife).mean() >= 1


def test_equal_weights_leave_the_error_of_a_mean() -> None:
    values = np.random.default_rng(5).normal(3, 1, (20, 50))
    variances = of(values, np.ones_like(values)).variance()
    np.testing.assert_allclose(variances, values.var(0, ddof=1) / 20, rtol=1e-9)


@pytest.mark.parametrize("label", ["same_token", "repeated", "even_same_token", "even_repeated"])
def test_a_sentence_of_repeated_tokens_is_one_observation(label: str) -> None:
    """A row of equal signs holds most repeated tokens of a corpus: few studies have one."""
    n, d = np.zeros((60, 1)), np.ones((60, 1))
    n[:6] = 0.5
    low, high = of(n, d).interval(SHARE, all_metrics()["type_shares"].spread(label))
    share, z = 0.05, stats.t.ppf(0.975, 59)
    half = z * math.sqrt(share * (1 - share) / 60 + (z / 120) ** 2) / (1 + z**2 / 60)
    assert high[0] - low[0] == pytest.approx(2 * half)
