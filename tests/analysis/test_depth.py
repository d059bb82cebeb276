"""Change with depth and correlations of heads: against plain loops over draws, and known worlds."""

import math

import numpy as np
import pytest

from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.depth import depth_changes, head_correlation, third_of
from headbook.analysis.multiple_testing import bootstrap_counts
from headbook.analysis.paired import ClusterSums

CLUSTERS = 40


def drawn(seed: int, slope: float, *, layers: int = 7, cells: int = 2) -> ClusterSums:
    """Sums whose numbers rise with depth, and vary together from cluster to cluster."""
    rng = np.random.default_rng(seed)
    d = rng.integers(3, 20, (CLUSTERS, 1, 1)) * np.ones((1, layers, cells))
    noise = rng.normal(size=(CLUSTERS, 1, 1)) + 0.3 * rng.normal(size=(CLUSTERS, layers, cells))
    return ClusterSums((5 + slope * np.arange(layers)[:, None] + noise) * d, d)


def plain_change(n: Floats, d: Floats, draw: Ints) -> float:
    """Mean of the last third of the layers minus that of the first, in a draw of clusters."""
    third, layers = max(1, n.shape[1] // 3), n.shape[1]
    values: list[float] = (n[draw].sum(0) / d[draw].sum(0)).tolist()
    return float((math.fsum(values[layers - third :]) - math.fsum(values[:third])) / third)


def plain_draws() -> list[Ints]:
    """Return the clusters of each draw."""
    return [np.repeat(np.arange(CLUSTERS), c.astype(int)) for c in bootstrap_counts(CLUSTERS)]


@pytest.mark.parametrize(("layers", "third"), [(2, 1), (5, 1), (6, 2), (7, 2), (30, 10)])
def test_a_third_is_rounded_down_and_has_a_layer_at_least(layers: int, third: int) -> None:
    assert third_of(layers) == third


def test_changes_and_intervals_are_those_of_plain_loops() -> None:
    sums = drawn(0, 0.1, layers=6)
    found = depth_changes(sums)
    for cell in range(2):
        n, d = (np.asarray(part[..., cell], np.float64) for part in sums)
        assert found.value[cell] == pytest.approx(plain_change(n, d, np.arange(CLUSTERS)))
        drawn_changes = [plain_change(n, d, draw) for draw in plain_draws()]
        low, high = np.percentile(drawn_changes, (2.5, 97.5))
        assert (found.low[cell], found.high[cell]) == pytest.approx((low, high))
    assert found.last - found.first == pytest.approx(found.value)


def test_a_number_that_rises_is_told_from_one_that_does_not() -> None:
    assert (depth_changes(drawn(1, 0.3)).p < 0.01).all()
    at_chance = [depth_changes(drawn(seed, 0.0, cells=5)).p.min() for seed in range(30)]
    assert sum(p < 0.05 for p in at_chance) <= 5  # 1.5 expected: the family errs in 5 % of worlds


def plain_correlation(x: list[float], y: list[float]) -> float:
    """Pearson's correlation by its formula."""
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    top = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    squares = math.fsum((a - mean_x) ** 2 for a in x) * math.fsum((b - mean_y) ** 2 for b in y)
    return top / math.sqrt(squares)


def test_correlations_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(2)
    heads = rng.normal(size=12)
    d = rng.integers(1, 9, (CLUSTERS, 12)).astype(float)
    first, second = (
        ClusterSums((heads * sign + rng.normal(size=(CLUSTERS, 12))) * d, d) for sign in (1, -0.5)
    )

    def of(draw: Ints) -> float:
        x, y = ((s.n[draw].sum(0) / s.d[draw].sum(0)).tolist() for s in (first, second))
        return plain_correlation(x, y)

    low, high = np.percentile([of(draw) for draw in plain_draws()], (2.5, 97.5))
    expected = (of(np.arange(CLUSTERS)), low, high)
    assert tuple(head_correlation(first, second)) == pytest.approx(expected)


def test_numbers_of_one_line_correlate_fully() -> None:
    sums = drawn(3, 0.0, layers=9, cells=1)
    n, d = sums.n[..., 0], sums.d[..., 0]
    assert tuple(head_correlation(ClusterSums(n, d), ClusterSums(3 * d - n, d))) == pytest.approx(
        (-1, -1, -1)
    )
