"""Differences of two models on the same sentences."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

from headbook.analysis import multiple_testing, paired
from headbook.analysis.arrays import Floats
from headbook.analysis.paired import (
    ClusterSums,
    PairedDifferences,
    differences,
    paired_family_wise_p,
)
from headbook.schema import IntervalRule
from naive_comparison import family_wise as slowly
from naive_comparison import kish, residuals, skewness, variance

CLUSTERS = 40


def sums(seed: int, cells: tuple[int, ...] = (3, 2), clusters: int = CLUSTERS) -> ClusterSums:
    """Ratios of about 1; the first cell has clusters that take no part."""
    rng = np.random.default_rng(seed)
    d = rng.integers(5, 41, (clusters, *cells)).astype(float)
    d.reshape(clusters, -1)[:5, 0] = 0
    return ClusterSums(d * rng.normal(1, 1, d.shape), d)


def every(found: PairedDifferences) -> list[NDArray[np.generic]]:
    return [*vars(found).values()]


def test_differences_are_those_of_the_naive_formula() -> None:
    a, b = sums(1), sums(2)
    b.d[7, 0, 0] = b.n[7, 0, 0] = 0  # takes part in one model
    found = differences(a, b)
    for cell in np.ndindex(3, 2):
        four = [part[:, *cell].tolist() for part in (*a, *b)]
        n_a, d_a, n_b, d_b = four
        value = sum(n_b) / sum(d_b) - sum(n_a) / sum(d_a)
        behind = min(kish(d_a), kish(d_b))
        error = variance(*four) ** 0.5 * (1 + 0.6 * skewness(*four))
        half = student.ppf(0.975, behind - 1) * error
        assert found.value[cell] == pytest.approx(value, rel=1e-12)
        assert found.low[cell] == pytest.approx(value - half, rel=1e-10)
        assert found.high[cell] == pytest.approx(value + half, rel=1e-10)
        assert found.clusters[cell] == len(residuals(*four)) == (35 if cell == (0, 0) else 40)
        assert found.effective[cell] == pytest.approx(behind)
        assert not found.equal[cell]


def test_p_are_shares_of_draws_whose_largest_t_reaches_the_value() -> None:
    a, b = sums(3, (4,)), sums(4, (4,))
    b.n[:, 1] += 0.6 * b.d[:, 1]
    found = differences(a, b)
    changes, totals = [], []
    for cell in range(4):
        four = [part[:, cell].tolist() for part in (*a, *b)]
        e = iter(residuals(*four))
        part = (a.d[:, cell] > 0) | (b.d[:, cell] > 0)
        changes.append([next(e) / part.sum() if there else 0.0 for there in part])
        totals.append(float(found.value[cell]))
    expected = slowly(changes, totals, multiple_testing.bootstrap_counts(CLUSTERS).tolist())
    assert paired_family_wise_p(a, b, found).tolist() == pytest.approx(expected, abs=1e-12)
    assert expected[1] < 0.05 < expected[0]


def test_a_model_and_itself_are_exactly_equal() -> None:
    a = sums(5)
    found = differences(a, a)
    assert found.equal.all()
    assert (found.value == 0).all()
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()
    assert (paired_family_wise_p(a, a, found) == 1).all()


def test_what_differs_without_varying_is_no_evidence() -> None:
    """Every cluster moved by the same amount a token: neither interval nor p, and not equal."""
    a = sums(6, (2,))
    b = ClusterSums(a.n + np.array([0.5, 0]) * a.d, a.d)
    found = differences(a, b)
    assert found.value.tolist() == pytest.approx([0.5, 0])
    assert found.equal.tolist() == [False, True]
    assert np.isnan(found.low).all()
    assert paired_family_wise_p(a, b, found).tolist() == pytest.approx([np.nan, 1], nan_ok=True)


def test_pairs_are_told_apart_where_samples_are_not() -> None:
    """A small shift of the same sentences is seen; two independent intervals overlap."""
    a = sums(7, (1,))
    rng = np.random.default_rng(8)
    b = ClusterSums(a.n + a.d * (0.1 + 0.1 * rng.normal(size=a.d.shape)), a.d)
    found = differences(a, b)
    apart = student.ppf(0.975, 30) * np.std(a.n / np.fmax(a.d, 1)) / CLUSTERS**0.5
    assert 0 < found.low[0] < 0.1 < found.high[0]
    assert found.high[0] - found.low[0] < apart


def test_few_clusters_have_no_interval_and_are_in_no_family() -> None:
    a, b = sums(9, (3,)), sums(10, (3,))
    for model in (a, b):
        model.d[9:, 0] = model.n[9:, 0] = 0  # nine of them
        model.d[0, 1] = 5000  # one holds nearly all
    b.d[:, 2] = b.n[:, 2] = 0  # nothing in one model
    found = differences(a, b)
    assert np.isnan(found.low).all()
    assert np.isnan(paired_family_wise_p(a, b, found)).all()
    assert np.isnan(found.value).tolist() == [False, False, True]
    a, b = sums(11, (2,)), sums(12, (2,))
    for model in (a, b):
        model.d[15:] = model.n[15:] = 0
    kinds = np.array([IntervalRule.USUAL, IntervalRule.CLASSES])
    assert np.isnan(differences(a, b, kinds).low).tolist() == [True, True]  # five have no part
    assert np.isnan(
        differences(a, b, np.array([IntervalRule.FEW, IntervalRule.USUAL])).low
    ).tolist() == [
        True,
        False,
    ]


def test_no_cells_and_no_clusters_give_nothing() -> None:
    none = ClusterSums(np.zeros((4, 0)), np.zeros((4, 0)))
    assert all(part.shape == (0,) for part in every(differences(none, none)))
    assert paired_family_wise_p(none, none, differences(none, none)).shape == (0,)
    empty = ClusterSums(np.zeros((0, 3)), np.zeros((0, 3)))
    found = differences(empty, empty)
    assert np.isnan(found.value).all()
    assert not found.equal.any()
    assert np.isnan(paired_family_wise_p(empty, empty, found)).all()


def test_models_with_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        differences(sums(1, (2,)), sums(1, (3,)))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what the numbers are stored as, where it holds them."""
    a, b = (ClusterSums(np.round(m.n), m.d) for m in (sums(13, (7, 11)), sums(14, (7, 11))))
    whole = differences(a, b)
    p = paired_family_wise_p(a, b, whole)
    monkeypatch.setattr(paired, "MAX_NUMBERS", 10 * CLUSTERS)
    monkeypatch.setattr(multiple_testing, "MAX_NUMBERS", 3 * multiple_testing.DRAWS)
    a, b = (ClusterSums(m.n.astype(np.float32), m.d.astype(np.float32)) for m in (a, b))
    found = differences(a, b)
    for one, other in zip(every(whole), every(found), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(p, paired_family_wise_p(a, b, found))
    np.testing.assert_array_equal(p, paired_family_wise_p(a, b, found))


def simulated(seed: int, cells: int, *, skewed: bool) -> tuple[ClusterSums, ClusterSums]:
    """Models that differ in noise alone; sentences of 5 to 40 tokens."""
    rng = np.random.default_rng(seed)
    tokens = np.broadcast_to(rng.integers(5, 41, (64, 1)).astype(float), (64, cells))
    common = rng.normal(size=tokens.shape)

    def values(scale: float) -> Floats:
        noise = common + scale * rng.normal(size=tokens.shape)
        return np.exp(noise - (1 + scale**2) / 2) if skewed else noise

    return ClusterSums(values(0.5) * tokens, tokens), ClusterSums(values(1.0) * tokens, tokens)


@pytest.mark.parametrize(("skewed", "least"), [(False, 0.94), (True, 0.94)])
def test_intervals_hold_the_truth_as_often_as_said(skewed: bool, least: float) -> None:
    """4,000 intervals: of 95 %, fewer than 94 % in 1 of 500."""
    found = differences(*simulated(0, 4000, skewed=skewed))
    assert least <= ((found.low <= 0) & (found.high >= 0)).mean() <= 0.965


@pytest.mark.parametrize("skewed", [False, True])
def test_families_err_in_one_of_twenty(skewed: bool) -> None:
    wrong = 0
    for seed in range(40):
        a, b = simulated(seed, 30, skewed=skewed)
        wrong += bool((paired_family_wise_p(a, b, differences(a, b)) < 0.05).any())
    assert wrong <= 7  # binomial with 40 draws at 0.05: more in fewer than 1 of 800
