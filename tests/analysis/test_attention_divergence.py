"""Drift of attention between two models on the same tokens."""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headbook.analysis import attention_divergence as divergence
from headbook.analysis.attention_divergence import (
    AttentionRows,
    attention_divergence,
    jensen_shannon,
    rows_in_view,
)
from headbook.metrics.attention import head_distance
from headbook.schema import SinkView
from layers import Marks, views_of
from naive_comparison import divergence as slowly

HEADS, N = 5, 7
SPECIAL = (0, 6)


def maps(seed: int, *, causal: bool = False) -> NDArray[np.float64]:
    """Random maps of peaked rows; head 0 looks at the sink nearly alone."""
    rng = np.random.default_rng(seed)
    weights = np.exp(3 * rng.normal(size=(HEADS, N, N)))
    weights[0, :, 0] = 1e4
    weights = np.tril(weights) if causal else weights
    found: NDArray[np.float64] = weights / weights.sum(-1, keepdims=True)
    return found


def rows_of(weights: NDArray[np.float64], view: SinkView, *, causal: bool = False) -> AttentionRows:
    queries = np.ones(N, dtype=bool)
    queries[[*SPECIAL]] = False
    seen = np.tril(np.ones((N, N), dtype=bool), 0 if causal else N)
    sink = np.zeros(N, dtype=bool)
    sink[[*SPECIAL]] = True
    if causal:
        queries &= seen.sum(1) > 1
    return rows_in_view(weights, seen & queries[:, None], sink, view)


@pytest.mark.parametrize("view", SinkView)
@pytest.mark.parametrize("causal", [False, True])
def test_rows_are_those_of_metrics(view: SinkView, causal: bool) -> None:
    weights = maps(1, causal=causal)
    found = rows_of(weights, view, causal=causal)
    layer = views_of(torch.tensor(weights), Marks(N, special=SPECIAL), causal=causal)[view]
    np.testing.assert_allclose(found.weights, layer.weights[0].numpy(), atol=1e-15)
    counted = layer.trusted_rows[0].numpy() * layer.frame.rows[0].numpy()
    np.testing.assert_array_equal(found.counted, np.broadcast_to(counted, (HEADS, N)) > 0)
    assert found.counted[0].any() == (view is not SinkView.RENORM)


@pytest.mark.parametrize("view", SinkView)
def test_drift_is_that_of_plain_loops_over_rows(view: SinkView) -> None:
    a, b = (rows_of(maps(seed), view) for seed in (1, 2))
    found = attention_divergence(a, b)
    for head in range(HEADS):
        apart = [
            slowly(a.weights[head, i].tolist(), b.weights[head, i].tolist())
            for i in range(N)
            if a.counted[head, i] and b.counted[head, i]
        ]
        assert found.d[head] == len(apart)
        assert found.n[head] == pytest.approx(sum(apart), abs=1e-14)
    assert found.d.max() == 5
    assert found.d[0] == (0 if view is SinkView.RENORM else 5)


def test_heads_of_two_models_differ_as_heads_of_one_do() -> None:
    a, b = (rows_of(maps(seed), SinkView.RENORM) for seed in (3, 4))
    found = attention_divergence(a, b)
    for head in range(HEADS):
        rows, trusted = (
            torch.tensor(np.stack([part[0][head], part[1][head]])).double()
            for part in ((a.weights, b.weights), (a.counted, b.counted))
        )
        assert found.n[head] == pytest.approx(float(head_distance.measure(rows, trusted)[0, 1]))


def test_what_the_sink_adds_is_the_rest_of_the_divergence() -> None:
    a, b = (rows_of(maps(seed), SinkView.RAW) for seed in (5, 6))
    kept = [rows_of(maps(seed), SinkView.NOSINK) for seed in (5, 6)]
    of_sink = [AttentionRows(w.weights[:, :, [*SPECIAL]], w.counted) for w in (a, b)]
    whole, part, rest = (attention_divergence(*each).n for each in ((a, b), kept, of_sink))
    np.testing.assert_allclose(whole, part + rest, atol=1e-14)


rows = st.lists(st.floats(0, 1), min_size=4, max_size=4)


@given(rows, rows)
def test_divergence_keeps_its_bounds(p: list[float], q: list[float]) -> None:
    """Of rows that sum to at most 1; it is the same either way round."""
    a, b = (np.array(row) / max(1, sum(row)) for row in (p, q))
    found = jensen_shannon(a, b)
    assert 0 <= found <= log(2) * min(1, (a.sum() + b.sum()) / 2 * (1 + 1e-12))
    assert found == pytest.approx(float(jensen_shannon(b, a)), abs=1e-15)
    assert jensen_shannon(a, a) == 0
    assert found == pytest.approx(slowly(a.tolist(), b.tolist()), abs=1e-12)


def test_rows_without_a_common_key_are_ln_2_apart_and_small_differences_keep_their_digits() -> None:
    assert jensen_shannon(np.array([1.0, 0]), np.array([0, 1.0])) == log(2)
    step = 2.0**-30
    near = jensen_shannon(np.array([0.5 + step, 0.5 - step]), np.array([0.5, 0.5]))
    assert near == pytest.approx(step**2 / 2, rel=1e-6)


def test_blocks_of_heads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (rows_of(maps(seed), SinkView.RAW) for seed in (1, 2))
    whole = attention_divergence(a, b)
    monkeypatch.setattr(divergence, "MAX_WEIGHTS", 2 * N * N)
    np.testing.assert_array_equal(whole.n, attention_divergence(a, b).n)
