"""Intervals by resampling sentences, and exact bounds of shares, against loops and scipy."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.intervals import share_bounds
from headbook.analysis.multiple_testing import (
    bootstrap_counts,
    bootstrap_p_above,
    bootstrap_t,
    bootstrap_t_p,
)

Floats = NDArray[np.float64]
ANYTHING = (-np.inf, np.inf)


def naive_ratio(n: Floats, d: Floats) -> tuple[float, float]:
    """A ratio of sums and its standard error, sentence by sentence."""
    value = n.sum() / d.sum()
    count = int((d != 0).sum())
    squares = sum((a - value * b) ** 2 for a, b in zip(n, d, strict=True))
    return value, float(np.sqrt(count / (count - 1) * squares) / d.sum())


def naive_bootstrap_t(n: Floats, d: Floats) -> tuple[float, float]:
    """One draw of sentences at a time, each written out as often as it was drawn."""
    value, error = naive_ratio(n, d)
    ts = []
    for times in bootstrap_counts(len(n)):
        rows = np.repeat(np.arange(len(n)), times.astype(int))
        again, its = naive_ratio(n[rows], d[rows])
        ts.append((again - value) / its)
    ts.sort()
    assert len(ts) == 2000
    return value - ts[-50] * error, value - ts[49] * error


def test_bootstrap_t_equals_loops() -> None:
    rng = np.random.default_rng(2)
    d = rng.integers(3, 30, size=(40, 3)).astype(float)
    n = d * np.stack([rng.normal(size=40), rng.exponential(size=40), rng.lognormal(size=40)], 1)
    low, high = bootstrap_t(n, d, ANYTHING)
    for cell in range(3):
        np.testing.assert_allclose(
            (low[cell], high[cell]), naive_bootstrap_t(n[:, cell], d[:, cell]), rtol=1e-9
        )


def test_bootstrap_t_ignores_sentences_without_tokens_and_keeps_to_limits() -> None:
    rng = np.random.default_rng(3)
    n, d = rng.exponential(size=(30, 1)) * 0.1, np.ones((30, 1))
    more = np.concatenate([n, np.zeros((4, 1))]), np.concatenate([d, np.zeros((4, 1))])
    low, high = bootstrap_t(*more, ANYTHING)
    assert low[0] < n.mean() < high[0]
    _, cut = bootstrap_t(n, d, (0.0, n.mean() + 1e-6))
    assert cut[0] == n.mean() + 1e-6


def test_bootstrap_t_says_nothing_where_nothing_or_one_sentence_varies() -> None:
    """A third of the draws lack that sentence: nothing bounds the effect from above."""
    still, one = np.zeros((30, 1)), np.zeros((30, 1))
    one[7] = 1.0
    for n in (still, one):
        assert np.isnan(bootstrap_t(n, np.ones((30, 1)), ANYTHING)).all()


def test_bootstrap_t_holds_rare_large_effects_more_often_than_the_linearised_interval() -> None:
    """One sentence of twelve loses much: the case in which upper bounds were missed."""
    rng = np.random.default_rng(11)
    held = np.zeros(2)
    truth, sentences, runs = 0.02 + 0.08 * 1.0, 64, 400
    for _ in range(runs):
        n = rng.exponential(0.02, size=sentences)
        n += (rng.random(sentences) < 0.08) * rng.exponential(1.0, size=sentences)
        ones = np.ones(sentences)
        value, error = naive_ratio(n, ones)
        low, high = bootstrap_t(n[:, None], ones[:, None], (0.0, np.inf))
        held += [
            abs(value - truth) < stats.t.ppf(0.975, sentences - 1) * error,
            low[0] < truth < high[0],
        ]
    linearised, resampled = held / runs
    assert linearised < 0.88
    assert resampled > 0.91


@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 40, 1 - 0.05 / 144])
def test_bounds_of_shares_are_those_of_scipy(level: float) -> None:
    n = 64
    found = np.arange(n + 1)
    low, high = share_bounds(found, np.full(n + 1, n), level)
    for k in found:
        of = stats.binomtest(int(k), n)
        exact = 2 * level - 1  # both tails: each end alone then errs with 1 - level
        interval = of.proportion_ci(exact, method="exact")
        np.testing.assert_allclose((low[k], high[k]), interval, atol=1e-10)
        if 0 < k < n:
            assert low[k] == pytest.approx(stats.beta.ppf(1 - level, k, n - k + 1), abs=1e-10)
            assert high[k] == pytest.approx(stats.beta.ppf(level, k + 1, n - k), abs=1e-10)
    assert np.isnan(share_bounds(np.array([0]), np.array([0]), level)).all()


@pytest.mark.parametrize(
    ("heads", "changed", "enough"), [(1, 0, 14), (72, 0, 33), (1, 1, 22), (72, 1, 44)]
)
def test_sentences_that_no_change_takes(heads: int, changed: int, enough: int) -> None:
    """As the definition counts them: the upper bound of the share falls below 20 %."""
    level = 1 - 0.05 / heads
    for n, below in ((enough, True), (enough - 1, False)):
        _, high = share_bounds(np.array([changed]), np.array([n]), level)
        assert bool(high[0] < 0.2) == below


def test_linearised_intervals_of_many_sentences_agree() -> None:
    """Without skewness, both intervals are about the same."""
    n = np.random.default_rng(5).normal(1.0, 0.3, size=(400, 1))
    ones = np.ones_like(n)
    ratios = RatioSums.of(n, ones, ones, np.zeros(400, np.int64))
    np.testing.assert_allclose(
        np.array(bootstrap_t(n, ones, ANYTHING)), np.array(ratios.interval()), rtol=0.003
    )


def test_p_are_those_of_loops_over_draws() -> None:
    """By scipy's t of each head in each draw, of values that were centred before."""
    values = np.random.default_rng(3).normal((0.05, 0.15, -0.45), (0.2, 0.3, 0.5), (14, 3))
    centred = values - values.mean(0)
    drawn = np.array([
        stats.ttest_1samp(np.repeat(centred, counts, axis=0), 0).statistic
        for counts in bootstrap_counts(len(values)).astype(int)
    ])  # fmt: skip
    observed = np.asarray(stats.ttest_1samp(values, 0).statistic)
    largest = np.maximum(drawn.max(1), 0)
    above = [(1 + (largest >= t).sum()) / (1 + len(drawn)) for t in observed]
    assert above[2] > above[0] > 0.05
    np.testing.assert_allclose(bootstrap_p_above(values), above)
    tails = np.minimum((drawn >= observed).sum(0), (drawn <= observed).sum(0))
    p = bootstrap_t_p(values.sum(0), centred)
    np.testing.assert_allclose(p, np.minimum(2 * (1 + tails) / (1 + len(drawn)), 1))
    assert p[2] < 0.05 < p[0]
