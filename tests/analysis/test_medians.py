"""Medians over the heads of two models: as by hand, paired, and honest about what is not there."""

import math
import statistics

import numpy as np
import pytest
from scipy.special import stdtrit

from headbook.analysis.arrays import Floats
from headbook.analysis.multiple_testing import bootstrap_counts
from headbook.analysis.paired import MEDIAN_DRAWS, ClusterSums, MedianEstimate, medians
from headbook.schema import IntervalRule
from naive_comparison import kish

CLUSTERS, HEADS, OTHERS = 40, 5, 8


@pytest.fixture(scope="module")
def sides() -> tuple[ClusterSums, ClusterSums]:
    """Two models of different sizes on sentences that are hard for both alike."""
    random = np.random.default_rng(3)
    tokens = random.integers(4, 20, CLUSTERS).astype(float)[:, None]
    hard = random.normal(0, 0.2, (CLUSTERS, 1))

    def side(heads: int) -> ClusterSums:
        own = np.linspace(0.2, 0.6, heads) + 0.02 * random.standard_normal((CLUSTERS, heads))
        return ClusterSums(tokens * (own + hard), np.repeat(tokens, heads, 1))

    return side(HEADS), side(OTHERS)


def test_medians_are_the_naive_ones(sides: tuple[ClusterSums, ClusterSums]) -> None:
    found = medians(*sides)
    drawn = bootstrap_counts(CLUSTERS)[:MEDIAN_DRAWS].tolist()
    every = [1.0] * CLUSTERS
    a, b = (naive_median(each, every) for each in sides)
    over = [[naive_median(each, weights) for weights in drawn] for each in sides]
    apart = [y - x for x, y in zip(*over, strict=True)]
    reach = float(stdtrit(kish(sides[0].d[:, 0].tolist()) - 1, 0.975))
    for ends, value, values in (
        (found.a, a, over[0]), (found.b, b, over[1]), (found.difference, b - a, apart),
    ):  # fmt: skip
        half = reach * math.sqrt(statistics.fmean((x - value) ** 2 for x in values))
        np.testing.assert_allclose(ends, (value, value - half, value + half), rtol=1e-9)


def naive_median(sums: ClusterSums, weights: list[float]) -> float:
    """The median over heads of one draw of clusters."""
    values = []
    for head in range(sums.n.shape[1]):
        n = sum(w * float(x) for w, x in zip(weights, sums.n[:, head], strict=True))
        d = sum(w * float(x) for w, x in zip(weights, sums.d[:, head], strict=True))
        values.append(n / d)
    return statistics.median(values)


def test_sentences_hard_for_both_widen_no_difference(
    sides: tuple[ClusterSums, ClusterSums],
) -> None:
    a, b, difference = (width(ends) for ends in medians(*sides))
    assert difference < min(a, b) / 2
    other = np.random.default_rng(1).permutation(CLUSTERS)
    shuffled = ClusterSums(*(part[other] for part in sides[1]))
    assert width(medians(sides[0], shuffled).difference) > 2 * difference


def width(ends: MedianEstimate) -> float:
    return ends.high - ends.low


def test_what_does_not_vary_has_no_interval() -> None:
    ones: Floats = np.ones((CLUSTERS, HEADS))
    found = medians(ClusterSums(ones, 2 * ones), ClusterSums(ones, 4 * ones))
    assert (found.a.value, found.b.value, found.difference.value) == (0.5, 0.25, -0.25)
    assert all(math.isnan(width(ends)) for ends in found)


def test_few_sentences_give_no_interval(sides: tuple[ClusterSums, ClusterSums]) -> None:
    few = [ClusterSums(*(part[:8] for part in each)) for each in sides]
    found = medians(few[0], few[1])
    assert not math.isnan(found.difference.value)
    assert math.isnan(width(found.difference))
    assert math.isnan(width(medians(*sides, IntervalRule.FEW).a))


def test_nothing_to_compare_is_nothing(sides: tuple[ClusterSums, ClusterSums]) -> None:
    nothing = ClusterSums(0 * sides[1].n, 0 * sides[1].d)
    assert all(math.isnan(part) for ends in medians(sides[0], nothing) for part in ends)


def test_heads_without_a_number_are_left_out(sides: tuple[ClusterSums, ClusterSums]) -> None:
    """And those that some draws lack are there in the others."""
    wider = [np.hstack([part, np.zeros((CLUSTERS, 1))]) for part in sides[0]]
    assert medians(ClusterSums(*wider), sides[1]) == medians(*sides)
    once = [part.copy() for part in wider]
    once[0][0, -1], once[1][0, -1] = 0.4, 1.0
    found = medians(ClusterSums(*once), sides[1])
    assert not math.isnan(width(found.a))
