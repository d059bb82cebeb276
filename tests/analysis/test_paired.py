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
    PairedTests,
    differences,
    paired_tests,
)
from headbook.schema import IntervalRule
from naive_comparison import (
    difference_p,
    difference_t,
    false_discovery_q,
    holm_p,
    kish,
    residuals,
    skewness,
    variance,
)

CLUSTERS = 40


def sums(seed: int, cells: tuple[int, ...] = (3, 2), clusters: int = CLUSTERS) -> ClusterSums:
    """Ratios of about 1; the first cell has clusters that take no part."""
    rng = np.random.default_rng(seed)
    d = rng.integers(5, 41, (clusters, *cells)).astype(float)
    d.reshape(clusters, -1)[:5, 0] = 0
    return ClusterSums(d * rng.normal(1, 1, d.shape), d)


def p_of(a: ClusterSums, b: ClusterSums) -> PairedTests:
    """Tests of all cells, clusters in halves one after the other."""
    return paired_tests(a, b, differences(a, b), np.arange(len(a.n)))


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


Lists = tuple[list[float], list[float], list[float], list[float]]


def lists_of(a: ClusterSums, b: ClusterSums, cell: int) -> Lists:
    """Numerators and denominators of both models in one cell."""
    n_a, d_a, n_b, d_b = (part[:, cell].tolist() for part in (*a, *b))
    return n_a, d_a, n_b, d_b


def test_p_are_those_of_loops_over_draws() -> None:
    a, b = sums(3, (4,)), sums(4, (4,))
    b.n[:, 1] += 0.6 * b.d[:, 1]
    tests = p_of(a, b)
    drawn = multiple_testing.bootstrap_counts(CLUSTERS).astype(int).tolist()
    p = [difference_p(*lists_of(a, b, cell), drawn) for cell in range(4)]
    assert tests.p.tolist() == pytest.approx(p, abs=1e-12)
    assert tests.discovery_q.tolist() == pytest.approx(false_discovery_q(p), abs=1e-12)
    assert p[1] < 0.05 < p[0]


def confirmed(
    selecting: tuple[ClusterSums, ClusterSums], testing: tuple[ClusterSums, ClusterSums]
) -> dict[int, float]:
    """Adjusted p of the ten cells with the largest t of one half, on the other."""
    t = [difference_t(*lists_of(*selecting, cell)) for cell in range(selecting[0].n.shape[1])]
    chosen = sorted(range(len(t)), key=lambda cell: -abs(t[cell]))[:10]
    drawn = multiple_testing.bootstrap_counts(len(testing[0].n)).astype(int).tolist()
    p = []
    for cell in chosen:
        lists = lists_of(*testing, cell)
        same_sign = difference_t(*lists) * t[cell] > 0
        p.append(difference_p(*lists, drawn) if same_sign else 1.0)
    return dict(zip(chosen, holm_p(p), strict=True))


def test_the_largest_t_of_each_half_are_tested_on_the_other() -> None:
    """One of thirty cells changes in both halves, and one the opposite way."""
    a, b = sums(5, (30,), 80), sums(6, (30,), 80)
    b.n[:, 17] += b.d[:, 17]
    keys = np.random.default_rng(7).permutation(np.repeat([0, 1], 40))
    b.n[keys == 0, 21] += 2 * b.d[keys == 0, 21]
    b.n[keys == 1, 21] -= b.d[keys == 1, 21]
    even, odd = (
        (ClusterSums(a.n[keys == k], a.d[keys == k]), ClusterSums(b.n[keys == k], b.d[keys == k]))
        for k in (0, 1)
    )
    directions = confirmed(even, odd), confirmed(odd, even)
    both = directions[0].keys() & directions[1].keys()
    found = paired_tests(a, b, differences(a, b), keys).held_out_p
    assert {*np.flatnonzero(~np.isnan(found)).tolist()} == both
    for cell in both:
        larger = max(direction[cell] for direction in directions)
        assert found[cell] == pytest.approx(larger, abs=1e-12)
    assert found[17] < 0.05
    assert found[21] == 1
    assert np.nansum(found < 0.05) == 1


def test_cells_with_fewer_than_twenty_clusters_in_a_model_are_not_tested() -> None:
    a, b = sums(8, (3,), 60), sums(9, (3,), 60)
    b.n[:, 1] += 3 * b.d[:, 1]
    b.n[19:, 1] = b.d[19:, 1] = 0
    b.n[20:, 2] = b.d[20:, 2] = 0
    found = differences(a, b)
    assert not np.isnan(found.low).any()
    tests = paired_tests(a, b, found, np.arange(60))
    assert np.isnan(tests.p).tolist() == [False, True, False]
    assert np.isnan(tests.q).tolist() == [False, True, False]
    assert tests.discovery_q[[0, 2]].tolist() == pytest.approx(
        false_discovery_q(tests.p[[0, 2]].tolist())
    )
    # Ten clusters of the model with fewer count in each half: cell 2 may be tested there.
    assert np.isnan(tests.held_out_p).tolist() == [False, True, False]
    apart = paired_tests(a, b, found, np.repeat([0, 1], 30))
    assert np.isnan(apart.held_out_p).tolist() == [False, True, True]


def test_a_model_and_itself_are_exactly_equal() -> None:
    a = sums(5)
    found = differences(a, a)
    assert found.equal.all()
    assert (found.value == 0).all()
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()
    assert (p_of(a, a).p == 1).all()
    assert (p_of(a, a).q == 1).all()


def test_what_differs_without_varying_is_no_evidence() -> None:
    """Every cluster moved by the same amount a token: neither interval nor p, and not equal."""
    a = sums(6, (2,))
    b = ClusterSums(a.n + np.array([0.5, 0]) * a.d, a.d)
    found = differences(a, b)
    assert found.value.tolist() == pytest.approx([0.5, 0])
    assert found.equal.tolist() == [False, True]
    assert np.isnan(found.low).all()
    assert p_of(a, b).p.tolist() == pytest.approx([np.nan, 1], nan_ok=True)


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
    assert np.isnan(p_of(a, b).p).all()
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
    assert p_of(none, none).p.shape == (0,)
    empty = ClusterSums(np.zeros((0, 3)), np.zeros((0, 3)))
    found = differences(empty, empty)
    assert np.isnan(found.value).all()
    assert not found.equal.any()
    assert np.isnan(p_of(empty, empty).p).all()


def test_models_with_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        differences(sums(1, (2,)), sums(1, (3,)))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what the numbers are stored as, where it holds them."""
    a, b = (ClusterSums(np.round(m.n), m.d) for m in (sums(13, (7, 11)), sums(14, (7, 11))))
    whole = differences(a, b)
    tests = p_of(a, b)
    monkeypatch.setattr(paired, "MAX_NUMBERS", 10 * CLUSTERS)
    monkeypatch.setattr(multiple_testing, "MAX_NUMBERS", 3 * multiple_testing.DRAWS)
    a, b = (ClusterSums(m.n.astype(np.float32), m.d.astype(np.float32)) for m in (a, b))
    found = differences(a, b)
    for one, other in zip(every(whole), every(found), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(tests, p_of(a, b), strict=True):
        np.testing.assert_array_equal(one, other)


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
    """Nothing differs, so that any discovery is false."""
    wrong = 0
    for seed in range(40):
        wrong += bool((p_of(*simulated(seed, 30, skewed=skewed)).q < 0.05).any())
    assert wrong <= 7  # binomial with 40 draws at 0.05: more in fewer than 1 of 800
