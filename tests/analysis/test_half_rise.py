"""Checkpoints: when numbers change, which cell is best when, and shares of types."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from headbook.analysis import multiple_testing
from headbook.analysis.arrays import Floats
from headbook.analysis.half_rise import (
    NO_CELL,
    HalfRise,
    best_heads,
    crossings,
    half_rises,
    shares,
)
from headbook.analysis.paired import ClusterSums, differences, paired_tests

STEPS, CLUSTERS = 6, 30
CURVES = {
    "early": (0.1, 0.8, 0.8, 0.9, 0.9, 0.9),
    "late": (0.1, 0.1, 0.2, 0.1, 0.2, 0.9),
    "falls": (0.9, 0.8, 0.42, 0.1, 0.1, 0.1),
    "stays": (0.5, 0.9, 0.1, 0.7, 0.2, 0.5),
    "returns": (0.9, 0.1, 0.8, 0.9, 0.1, 0.1),
}


def naive_half_rise(values: Sequence[float]) -> float:
    first, last = values[0], values[-1]
    if first == last:
        return math.nan
    middle = (first + last) / 2
    past = [value > middle if last > first else value < middle for value in values]
    step = past.index(True) if any(past) else len(past)
    known = [math.isnan(value) or there for value, there in zip(values, past, strict=True)]
    return step if step < len(past) and all(known[step:]) else math.nan


def sums_by_step(noise: float = 0.3, seed: int = 0) -> tuple[Floats, Floats]:
    """Numerators and denominators of the curves. *Shape:* ``(step, cluster, curve)``."""
    rng = np.random.default_rng(seed)
    curves = np.array([*CURVES.values()]).T[:, None]
    each = noise * rng.normal(size=(1, CLUSTERS, len(CURVES)))
    each = each + noise * rng.normal(size=(STEPS, CLUSTERS, len(CURVES)))
    d = np.broadcast_to(rng.integers(5, 41, (1, CLUSTERS, 1)).astype(float), each.shape)
    return (curves + each) * d, d


def rises_of(n: Floats, d: Floats) -> HalfRise:
    """Half-rises of cells that are tested together."""
    first, last = (ClusterSums(n[end], d[end]) for end in (0, -1))
    tests = paired_tests(first, last, differences(first, last), np.arange(n.shape[1]))
    return half_rises(n, d, tests.q)


def test_from_the_half_rise_step_on_all_values_are_past_the_middle() -> None:
    values = np.array([*CURVES.values()]).T
    expected = [naive_half_rise(curve) for curve in CURVES.values()]
    assert crossings(values).step.tolist() == pytest.approx(expected, nan_ok=True)
    assert expected[:3] == [1, 5, 2]
    assert math.isnan(expected[3])  # first and last are the same
    assert math.isnan(expected[4])  # it comes back
    returning = crossings(values)
    assert (returning.passes[4], returning.returns[4]) == (1, 2)
    rng = np.random.default_rng(0)
    many = rng.random((5, 300)).round(1)
    slowly = [naive_half_rise(column) for column in many.T.tolist()]
    assert crossings(many).step.tolist() == pytest.approx(slowly, nan_ok=True)


def test_unknown_steps_are_passed_over_and_unknown_ends_have_no_half_rise() -> None:
    values = np.array([[0.0, 0, np.nan], [np.nan, 1, 1], [1, np.nan, 1], [1, np.nan, 1]])
    assert crossings(values).step.tolist() == pytest.approx([2, np.nan, np.nan], nan_ok=True)


def test_intervals_are_those_of_drawn_clusters() -> None:
    n, d = sums_by_step()
    found = rises_of(n, d)
    drawn = multiple_testing.bootstrap_counts(CLUSTERS)
    for curve, name in enumerate(CURVES):
        if name in {"stays", "returns"}:
            continue
        steps = []
        for weights in drawn.tolist():
            values = [
                sum(w * x for w, x in zip(weights, n[step, :, curve].tolist(), strict=True))
                / sum(w * x for w, x in zip(weights, d[step, :, curve].tolist(), strict=True))
                for step in range(STEPS)
            ]
            steps.append(naive_half_rise(values))
        low, high = np.nanquantile(steps, [0.025, 0.975], method="inverted_cdf")
        assert (found.low[curve], found.high[curve]) == (low, high)
        values = (n[:, :, curve].sum(1) / d[:, :, curve].sum(1)).tolist()
        assert found.step[curve] == naive_half_rise(values)
        assert low <= found.step[curve] <= high
    assert found.low[2] < found.high[2]


def test_what_does_not_change_beyond_noise_has_no_half_rise() -> None:
    n, d = sums_by_step()
    found = rises_of(n, d)
    assert np.isnan([found.step[3], found.low[3], found.high[3]]).all()
    assert not np.isnan(found.step[:3]).any()
    assert found.change.value[0] == pytest.approx(0.8, abs=0.3)
    assert np.isnan([found.step[4], found.low[4], found.high[4]]).all()
    assert (found.passes[4], found.returns[4]) == (1, 2)
    assert np.isnan(found.passes[:4]).all()
    few = rises_of(n[:, :9], d[:, :9])  # too few clusters for any interval
    assert np.isnan(few.step).all()
    rng = np.random.default_rng(1)
    still = np.ones((3, CLUSTERS, 1000)) + rng.normal(size=(3, CLUSTERS, 1000))
    by_chance = ~np.isnan(rises_of(still, np.ones_like(still)).step)
    assert by_chance.mean() < 0.01  # the family is tested together


def test_blocks_and_the_shape_of_cells_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    n, d = sums_by_step()
    found = rises_of(n, d)
    monkeypatch.setattr(multiple_testing, "MAX_NUMBERS", 1)
    again = rises_of(*(part.reshape(STEPS, CLUSTERS, 5, 1) for part in (n, d)))
    for one, other in ((found.step, again.step), (found.low, again.low), (found.high, again.high)):
        np.testing.assert_array_equal(one.reshape(5, 1), other)


def test_a_half_rise_has_two_steps_or_more() -> None:
    n, d = sums_by_step()
    with pytest.raises(ValueError, match="two steps or more"):
        half_rises(n[:1], d[:1], np.ones(5))
    with pytest.raises(ValueError, match="one shape"):
        half_rises(n, d[:, :, :2], np.ones(5))


def test_leaders_are_chosen_on_one_half_and_told_on_the_other() -> None:
    """A job may go from one head to another."""
    choice = np.array([[[0.1, 0.9, 0.9], [np.nan] * 3], [[0.5, np.nan, 0.2], [0, 0, 1]]])
    report = np.array([[[0.2, 0.7, 0.8], [1, 2, 3]], [[np.nan, 0.1, 0.2], [0.3, 0.4, 0.5]]])
    found = best_heads(choice, report)
    assert found.cell.tolist() == [[1, NO_CELL], [0, 2]]
    assert found.value.ravel().tolist() == pytest.approx([0.7, np.nan, np.nan, 0.5], nan_ok=True)
    none = best_heads(np.zeros((2, 1, 0)), np.zeros((2, 1, 0)))
    assert none.cell.tolist() == [[NO_CELL], [NO_CELL]]


def test_shares_of_types_are_of_heads_that_have_one() -> None:
    types = np.array([[["sink", "local"], ["sink", ""]], [["local"] * 2] * 2, [[""] * 2] * 2])
    found = shares(types, ["local", "sink", "mixed"])
    assert found[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert found[1].tolist() == [1, 0, 0]
    assert np.isnan(found[2]).all()
