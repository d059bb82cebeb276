"""Intervals of ratios of sums: what they must hold for every input, and from which sums."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats
from headbook.analysis.intervals import of_difference
from headbook.analysis.paired import ClusterSums, differences, medians
from headbook.metrics.base import Ratio
from headbook.passes.batch_sums import BatchRatios
from headbook.schema import IntervalRule
from headbook.study.contrasts import contrast


def test_sums_of_single_precision_are_squared_in_double() -> None:
    """Values that vary by a millionth from sentence to sentence have a spread, not its rounding."""
    random = np.random.default_rng(0)
    n = (0.7 + 1e-6 * random.standard_normal((64, 3, 2))).astype(np.float32)
    d = np.ones((64, 1, 1), np.float32)
    for own in (d, np.ones_like(n)):
        parts = BatchRatios.of([Ratio(torch.from_numpy(n), torch.from_numpy(own))], [2], 3)
        found, _ = parts.sums(np.zeros(64, np.int64))
        single = n.astype(np.float64)
        np.testing.assert_allclose(found[2, 0], (single**2).sum(0), rtol=1e-14)
        low, high = RatioSums(found).interval((0.0, 1.0))
        spread = single.std(0, ddof=1)
        np.testing.assert_allclose(high - low, 2 * 1.998 * spread / np.sqrt(64), rtol=0.02)


LIMITS = ((0.0, 1.0), (-1.0, 1.0), (0.0, math.inf), (-math.inf, math.inf), (0.0, 1.06))


def shares(random: np.random.Generator, limits: tuple[float, float]) -> Floats:
    """Values of 40 sentences in some cells: constants, rare ones, edges, and tiny deviations."""
    least, most = np.clip(limits, -3, 3)
    at = random.random(200)
    at[:60] = np.tile([0, 1, 0.5, 1e-9, 1 - 1e-9, 0.99997], 10)
    size = 10.0 ** random.integers(-12, 1, 200)
    deviations = random.standard_normal((40, 200)) * size * random.integers(0, 2, 200)
    values = least + (most - least) * np.clip(at + deviations, 0, 1)
    values[:, 100:130] *= random.random((40, 30)) < 0.1
    return np.asarray(values, np.float64)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("spread", IntervalRule)
def test_every_value_lies_in_its_interval_and_that_within_the_bounds(
    spread: IntervalRule, limits: tuple[float, float]
) -> None:
    random = np.random.default_rng(3)
    d = random.integers(1, 9, (40, 1)) * np.ones((40, 200))
    found = RatioSums.of(shares(random, limits) * d, d, d, np.zeros(40, np.int64))
    low, high = found.interval(limits, spread)
    there = ~np.isnan(low)
    assert (there == ~np.isnan(high)).all()
    assert there.any() == (spread not in {IntervalRule.FEW, IntervalRule.CONSTANT})
    value, low, high = (each[there] for each in (found.value, low, high))
    rounding = 1e-12
    assert ((low <= value + rounding) & (value <= high + rounding)).all()
    assert ((limits[0] <= low) & (high <= limits[1])).all()


def of_constant(value: float, *, deviation: float = 0.0, sentences: int = 40) -> RatioSums:
    """A value that every other sentence exceeds by a deviation."""
    d = np.full((sentences, 1), 3.0)
    n = d * (value + deviation * (np.arange(sentences)[:, None] % 2 - 0.5))
    return RatioSums.of(n, d, d, np.zeros(sentences, np.int64))


@pytest.mark.parametrize(("value", "limits"), [
    (0.0, (-1.0, 1.0)), (0.5, (0.0, 1.0)), (1 / 12, (0.0, 1.0)), (1.0, (0.0, 1.06)),
    (7.0, (0.0, math.inf)), (0.0, (-math.inf, math.inf)),
])  # fmt: skip
def test_a_constant_has_no_interval(value: float, limits: tuple[float, float]) -> None:
    """A margin of 0 in every sentence is no share of one half."""
    found = of_constant(value)
    assert found.value[0] == pytest.approx(value)
    assert np.isnan(found.interval(limits)).all()


@pytest.mark.parametrize(("value", "deviation"), [(0.999975, 5e-7), (0.3, 2e-7), (0.99999, 3e-7)])
def test_what_varies_by_less_than_a_millionth_has_as_narrow_an_interval(
    value: float, deviation: float
) -> None:
    low, high = of_constant(value, deviation=deviation).interval((0.0, 1.0))
    half = stats.t.ppf(0.975, 39) * deviation / 2 / math.sqrt(39)
    assert [value - low[0], high[0] - value] == pytest.approx([half, half], rel=0.1)


def test_a_share_that_is_1_but_for_single_precision_has_a_narrow_interval() -> None:
    low, high = of_constant(1 - 6e-8).interval((0.0, 1.0))
    assert 1 - 1e-6 < low[0] < 1 - 6e-8 < high[0] <= 1


def test_what_is_always_or_never_found_keeps_the_interval_of_as_many_sentences() -> None:
    """Counts at a bound: other sentences may still differ."""
    for value in (0.0, 1.0):
        low, high = of_constant(value).interval((0.0, 1.0))
        reach = stats.t.ppf(0.975, 39) ** 2
        assert high[0] - low[0] == pytest.approx(reach / (40 + reach))
        assert np.isnan(of_constant(value).interval((0.0, 1.0), IntervalRule.CONTINUOUS)).all()


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)])
def test_differences_lie_within_the_bounds_of_differences(limits: tuple[float, float]) -> None:
    """Of groups, of two models and of their medians: alike in 1 to 3 of 12 sentences."""
    ones, place = np.ones((12, 3)), np.arange(12)[:, None]
    a = np.where(place > np.arange(3), 1.0, limits[0])
    b = np.where(11 - place > np.arange(3), limits[0], 1.0)
    half = np.zeros(12, np.int64)
    groups = RatioSums.of(a, ones, ones, half), RatioSums.of(b, ones, ones, half)
    sums = ClusterSums(a, ones), ClusterSums(b, ones)
    least, most = of_difference(limits)
    found = medians(*sums, limits=limits)
    for ends in (found.a, found.b):
        assert limits[0] <= ends.low < ends.high <= limits[1]
    assert least <= found.difference.low < found.difference.high <= most
    for each in (contrast(*groups, limits), differences(*sums, limits=limits)):
        assert ((least <= each.low) & (each.low < each.high) & (each.high <= most)).all()
