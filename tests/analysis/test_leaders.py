"""Which number leads: against plain loops over draws, and numbers that are known to lead."""

import numpy as np
import pytest

from headbook.analysis.arrays import Floats
from headbook.analysis.leaders import leaders_of, ranks_of
from headbook.analysis.multiple_testing import DRAWS, bootstrap_counts, step_down_t_p

CLUSTERS = 40


def drawn(seed: int, means: list[float], spread: float = 1.0) -> tuple[Floats, Floats]:
    """Numerators and denominators of candidates that share half of their variation."""
    rng = np.random.default_rng(seed)
    d = rng.integers(3, 20, (CLUSTERS, 1)).astype(float)
    shared = rng.normal(size=(CLUSTERS, 1))
    values = means + spread * (shared + rng.normal(size=(CLUSTERS, len(means))))
    return values * d, np.broadcast_to(d, (CLUSTERS, len(means))).copy()


def plain_p(n: Floats, d: Floats, place: int) -> list[float]:
    """Step-down p values by loops over draws and candidates."""
    count = len(n)
    value = [n[:, i].sum() / d[:, i].sum() for i in range(n.shape[1])]
    moves = [(n[:, i] - value[i] * d[:, i]) / d[:, i].sum() for i in range(n.shape[1])]
    others = [i for i in range(n.shape[1]) if i != place]

    def t_of(contributions: Floats) -> float:
        mean = contributions.mean()
        return float(mean / np.sqrt(((contributions - mean) ** 2).mean() / (count - 1)))

    observed, draws = {}, {}
    for i in others:
        residual = (moves[place] - moves[i]) * np.sign(value[place] - value[i])
        observed[i] = t_of(residual + abs(value[place] - value[i]) / count)
        draws[i] = [t_of(np.repeat(residual, c.astype(int))) for c in bootstrap_counts(count)]
    p, largest_yet = [1.0] * n.shape[1], 0.0
    remaining = sorted(others, key=lambda i: -observed[i])
    while remaining:
        first = remaining[0]
        reaching = sum(
            max(draws[i][draw] for i in remaining) >= observed[first] * (1 - 1e-9)
            for draw in range(DRAWS)
        )
        largest_yet = max(largest_yet, min(2 * (1 + reaching) / (1 + DRAWS), 1.0))
        p[first] = largest_yet
        remaining = remaining[1:]
    return p


@pytest.mark.parametrize("seed", range(3))
def test_p_values_are_those_of_plain_loops(seed: int) -> None:
    n, d = drawn(seed, [0.0, 0.3, 0.6, 0.5])
    ranks = ranks_of(n, d, 2)
    assert ranks.p.tolist() == pytest.approx(plain_p(n, d, 2))
    assert ranks.difference[1] == pytest.approx(
        n[:, 2].sum() / d[:, 2].sum() - n[:, 1].sum() / d[:, 1].sum()
    )


def test_a_number_far_above_all_others_leads_alone() -> None:
    n, d = drawn(0, [0.0, 5.0, 0.2, 0.1])
    order, ranks = leaders_of(n, d)
    assert order == [1]
    assert ranks.apart.tolist() == [True, False, True, True]
    assert leaders_of(-n, d, lowest=True)[0] == [1]


def test_numbers_that_vary_together_are_told_apart_though_their_intervals_overlap() -> None:
    rng = np.random.default_rng(1)
    shared = rng.normal(size=(CLUSTERS, 1))
    n = shared + np.array([0.0, 0.05]) + 0.01 * rng.normal(size=(CLUSTERS, 2))
    assert leaders_of(n, np.ones((CLUSTERS, 2)))[0] == [1]


def test_equal_numbers_lead_together_and_constant_differences_are_told_apart() -> None:
    n, d = drawn(2, [0.0])
    same, above = np.hstack([n, n]), np.hstack([n, n + d])
    both = np.hstack([d, d])
    assert leaders_of(same, both)[0] == [0, 1]
    assert leaders_of(above, both)[0] == [1]


def test_one_family_in_twenty_has_a_leader_where_none_differs() -> None:
    """The first number is chosen for being the largest, and still seldom seems to lead alone."""
    alone = sum(len(leaders_of(*drawn(seed, [0.0] * 6))[0]) == 1 for seed in range(100))
    assert alone <= 5


def test_without_variation_there_is_the_least_p_or_none() -> None:
    p = step_down_t_p(np.array([0.5, 0.0]), np.zeros((CLUSTERS, 2)))
    assert p.tolist() == [2 / (1 + DRAWS), 1.0]
