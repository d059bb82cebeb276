"""Residuals of column and offset fits: check values, laws, and a general-purpose optimiser."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from drawn_maps import MASKS, Bools, Floats, N, at_random, even, maps, noise, visible
from headbook.analysis.pattern_fits import (
    block_sums,
    column_residual,
    fit_offsets,
    offset_sums,
)


def numbers(attention: Floats, seen: Bools) -> tuple[float, float, float]:
    """Spread, column and offset residual of one map, as means over rows."""
    columns = column_residual(attention[None], seen)
    offsets = fit_offsets([offset_sums(attention[None], seen)])
    return (
        float(columns.spread[0] / columns.rows),
        float(columns.residual[0] / columns.rows),
        float(offsets.residual[0, 0] / offsets.rows[0]),
    )


@pytest.mark.parametrize(
    ("mask", "name", "expected"),
    [
        ("full", "uniform", (1, 0, 0)),
        ("full", "sink", (0.10, 0, 0.18)),
        ("full", "self", (0.06, 0.94, 0)),
        ("full", "previous", (0.06, 0.93, 0.01)),
        ("causal", "uniform", (1, 0, 0)),
        ("causal", "previous", (0.04, 0.60, 0)),
    ],
)
def test_check_values(mask: str, name: str, expected: tuple[float, float, float]) -> None:
    assert numbers(maps(mask)[name], visible(N, mask)) == pytest.approx(expected, abs=0.02)


def test_a_causal_sink_has_offset_residual_013() -> None:
    """definitions.md has .22: there the MM step stands between rounds 20 and 50 of 1,000."""
    found = numbers(maps("causal")["sink"], visible(N, "causal"))
    assert found == pytest.approx((0.06, 0, 0.13), abs=0.01)


@pytest.mark.parametrize(
    ("mask", "expected"), [("full", (0.06, 0.80, 0.66)), ("causal", (0.04, 0.75, 0.64))]
)
def test_random_content_is_explained_by_neither(
    mask: str, expected: tuple[float, float, float]
) -> None:
    """One map at a time gives the check values among others; shared weights explain far less."""
    seen = visible(N, mask)
    found = np.array([numbers(at_random(mask, seed), seen) for seed in range(200)])
    assert (found.min(0) <= np.array(expected) + 0.005).all()
    assert (found.max(0) >= np.array(expected) - 0.005).all()
    assert found.mean(0)[:2] == pytest.approx(expected[:2], abs=0.03)
    shared = fit_offsets([offset_sums(at_random(mask, seed)[None], seen) for seed in range(50)])
    assert shared.residual.sum() / shared.rows.sum() > 0.9


def loss(attention: Floats, seen: Bools, logs: Callable[[int, int], float]) -> float:
    """Σ KL(A_i ‖ w/Z_i)/ln k_i with loops."""
    total = 0.0
    for i, row in enumerate(attention):
        keys = [j for j in range(len(row)) if seen[i, j]]
        if len(keys) > 1:
            z = math.log(sum(math.exp(logs(i, j)) for j in keys))
            kl = sum(row[j] * (math.log(row[j]) - logs(i, j) + z) for j in keys if row[j] > 0)
            total += kl / math.log(len(keys))
    return total


@pytest.mark.parametrize("mask", MASKS)
def test_column_residual_is_the_least_there_is(mask: str) -> None:
    seen = visible(6, mask)
    attention = noise(np.random.default_rng(1), 2, seen)
    columns = column_residual(attention, seen, weighted=True)
    for head, own in enumerate(attention):

        def total(x: Floats, own: Floats = own) -> float:
            return loss(own, seen, lambda _, j: x[j])

        best = minimize(total, np.zeros(6), tol=1e-9)
        assert columns.residual[head] == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("mask", MASKS)
def test_offset_residual_is_the_least_there_is(mask: str) -> None:
    rng = np.random.default_rng(2)
    seen = [visible(n, mask) for n in (3, 6, 5, 1)]
    sentences = [noise(rng, 2, one) for one in seen]
    offset_fit = fit_offsets([offset_sums(*pair) for pair in zip(sentences, seen, strict=True)])
    for head in range(2):

        def total(x: Floats, head: int = head) -> float:
            pairs = zip(sentences, seen, strict=True)
            return sum(loss(a[head], s, lambda i, j: x[j - i + 5]) for a, s in pairs)

        best = minimize(total, np.zeros(11), tol=1e-9)
        assert offset_fit.residual[:, head].sum() == pytest.approx(best.fun, abs=1e-6)
    assert list(offset_fit.rows) == [sum(s.sum(1) > 1) for s in seen]


@pytest.mark.parametrize("mask", MASKS)
def test_even_row_weights_are_a_fixed_point_of_the_step_of_the_definition(mask: str) -> None:
    seen = visible(7, mask)[1:]  # with every row seeing two keys at least
    attention = noise(np.random.default_rng(3), 1, seen)[0]
    w = column_residual(attention[None], seen).weights[0]
    z = [sum(w[j] for j in range(7) if row[j]) for row in seen]
    step = [sum(attention[:, j]) / sum(1 / z[i] for i in range(6) if seen[i, j]) for j in range(7)]
    assert w == pytest.approx(np.array(step) / sum(step), abs=1e-6)


def test_full_attention_has_the_column_mean_as_weights() -> None:
    attention = noise(np.random.default_rng(4), 3, visible(9, "full"))
    found = column_residual(attention, visible(9, "full")).weights
    assert np.allclose(found, attention.mean(1), atol=1e-12)


@given(
    st.integers(2, 9), st.sampled_from(MASKS), st.integers(0, 999), st.sampled_from([0.0, 1, 9, 40])
)
def test_residual_and_spread_are_within_their_bounds(
    n: int, mask: str, seed: int, sharp: float
) -> None:
    """0 ≤ residual ≤ rows − spread, for columns and for offsets, however sharp the attention."""
    seen = visible(n, mask)
    attention = noise(np.random.default_rng(seed), 2, seen, sharp)
    columns = column_residual(attention, seen, weighted=True)
    offsets = fit_offsets([offset_sums(attention, seen)])
    for residual in (columns.residual, offsets.residual[0]):
        assert (residual >= 0).all()
        assert (residual + columns.spread <= columns.rows + 1e-8).all()
    assert (column_residual(attention, seen).residual >= columns.residual - 1e-8).all()


@pytest.mark.parametrize("mask", MASKS)
def test_a_pure_column_head_has_column_residual_0_and_a_pure_offset_head_offset_residual_0(
    mask: str,
) -> None:
    rng = np.random.default_rng(5)
    keys, offsets = rng.exponential(size=12), rng.exponential(size=23)
    keys[3] = offsets[7] = 0
    sums = []
    for n in (12, 7, 4):
        seen = visible(n, mask)
        column = keys[:n] * seen
        column /= column.sum(1, keepdims=True)
        assert column_residual(column[None], seen).residual == pytest.approx(0, abs=1e-7)
        offset = offsets[np.subtract.outer(-np.arange(n), -np.arange(n)) + 11] * seen
        sums.append(offset_sums((offset / offset.sum(1, keepdims=True))[None], seen))
    assert fit_offsets(sums).residual == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("mask", MASKS)
def test_permuted_heads_give_permuted_results(mask: str) -> None:
    seen, order = visible(8, mask), [2, 0, 3, 1]
    attention = noise(np.random.default_rng(6), 4, seen)

    def results(a: Floats) -> list[Floats]:
        columns = column_residual(a, seen)
        offsets = fit_offsets([offset_sums(a, seen)])
        return [columns.residual, offsets.residual[0]]

    for before, after in zip(results(attention), results(attention[order]), strict=True):
        assert np.allclose(before[order], after, atol=1e-9)


@pytest.mark.parametrize("mask", ["full", "causal", "window"])
def test_attention_of_0_and_1_has_finite_results(mask: str) -> None:
    """Zeros in a map, and fits whose weights grow beyond all bounds."""
    seen = visible(40, mask)
    hard = np.stack([np.eye(40), np.eye(40, k=-1), np.eye(40)])
    hard[1, 0, 0] = 1
    hard[2] = np.where(seen, 1e-9, 0)  # the rest is what softmax leaves in single precision
    hard[2][np.arange(40), seen.argmax(1)] = 1
    columns = column_residual(hard, seen)
    offsets = fit_offsets([offset_sums(hard, seen)])
    for found in (columns.residual, columns.weights, columns.spread, offsets.residual):
        assert np.isfinite(found).all()
    assert offsets.residual[0, 0] == pytest.approx(0, abs=1e-9)


def test_padding_changes_nothing() -> None:
    """On either side, whatever stands there."""
    rng, seen = np.random.default_rng(7), visible(6, "full")
    attention = noise(rng, 2, seen)
    for side in ((0, 3), (3, 0)):
        wide, mask = (
            np.pad(attention, ((0, 0), side, side), constant_values=0.3),
            np.pad(seen, side),
        )
        assert np.allclose(
            column_residual(wide, mask).residual, column_residual(attention, seen).residual
        )
        assert np.allclose(offset_sums(wide, mask).mass, offset_sums(attention, seen).mass)
        segment = np.arange(9) // 2
        own = segment[side[0] : side[0] + 6]
        padded, bare = block_sums(wide, mask, segment), block_sums(attention, seen, own)
        assert np.allclose(padded[0], bare[0])
        assert padded[1] == pytest.approx(bare[1])


def test_a_sentence_of_one_token_has_no_rows() -> None:
    one, seen = np.ones((2, 1, 1)), np.ones((1, 1), dtype=bool)
    columns, offsets = column_residual(one, seen), fit_offsets([offset_sums(one, seen)])
    assert (columns.rows, offsets.rows[0]) == (0, 0)
    assert not columns.residual.any()
    assert np.isnan(columns.weights).all()
    assert np.isnan(offsets.share).all()


def test_keys_that_are_no_run_around_the_query_have_no_offset_fit() -> None:
    for hidden in (2, 3):  # a hole, and the query's own place
        seen = np.ones((6, 6), dtype=bool)
        seen[3, hidden] = False
        with pytest.raises(ValueError, match="query 3"):
            offset_sums(even(seen)[None], seen)


def test_top_offset_and_its_share() -> None:
    seen = visible(N, "full")
    offset_fit = fit_offsets([offset_sums(maps("full")["previous"][None], seen)])
    assert offset_fit.top[0] == -1
    assert offset_fit.share[0] == pytest.approx(
        (23 * maps("full")["previous"][5, 4] + 0.001) / 24, abs=1e-3
    )


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_block_sums_count_the_own_segment(mask: str) -> None:
    seen, segment = visible(7, mask), np.array([0, 0, 1, 1, 1, 2, 2])
    own = noise(np.random.default_rng(9), 1, seen)
    mass = expected = 0.0
    for i in range(7):
        keys = [j for j in range(7) if seen[i, j]]
        inside = [j for j in keys if segment[j] == segment[i]]
        if len(keys) > 1:
            mass += sum(own[0, i, j] for j in inside)
            expected += len(inside) / len(keys)
    pair = block_sums(own, seen, segment)
    assert (pair[0][0], pair[1]) == pytest.approx((mass, expected))
    mass_of_one, expected_of_one = block_sums(own, seen, np.zeros(7, dtype=int))
    assert (mass_of_one[0], expected_of_one) == (0, 0)
