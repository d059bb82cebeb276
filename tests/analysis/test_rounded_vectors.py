"""Queries and keys as integers: weights stay within the stated error, whatever the scales."""

import numpy as np
import pytest

from headbook.analysis.rounded_vectors import (
    MAX_WEIGHT_ERROR,
    in_float32,
    rounded_vectors,
)

HEADS, KEY_HEADS, TOKENS, WIDTH = 4, 2, 9, 8
NOTHING = np.zeros((0, TOKENS, TOKENS))


def naive(queries: np.ndarray, keys: np.ndarray, scaling: float, seen: np.ndarray) -> np.ndarray:
    """Softmax over the keys that each query sees, weight by weight."""
    weights = np.zeros((HEADS, TOKENS, TOKENS))
    for head in range(HEADS):
        own_keys = keys[head * KEY_HEADS // HEADS]
        for query in range(TOKENS):
            places = np.flatnonzero(seen[query])
            scores = [float(queries[head, query] @ own_keys[k]) * scaling for k in places]
            parts = np.exp(np.array(scores) - max(scores))
            weights[head, query, places] = parts / parts.sum()
    return weights


@pytest.mark.parametrize(
    ("size", "outlier", "bits", "scales"),
    [(0.5, 1, 8, 1), (1.0, 1, 8, 1), (1.0, 40, 8, WIDTH), (8.0, 1, 16, 1)],
)
def test_the_error_is_that_of_the_weights(
    size: float, outlier: float, bits: int, scales: int
) -> None:
    """Large dimensions need scales of their own, large vectors more bits: scores are far apart."""
    random = np.random.default_rng(0)
    queries = random.normal(scale=size, size=(HEADS, TOKENS, WIDTH))
    keys = random.normal(scale=size, size=(KEY_HEADS, TOKENS, WIDTH))
    queries[..., 0] *= outlier
    keys[..., 0] /= outlier
    seen = np.tril(np.ones((TOKENS, TOKENS), np.uint8))
    rounded = rounded_vectors(queries, keys, WIDTH**-0.5, NOTHING, seen)
    assert 8 * rounded.queries.itemsize == bits
    n_scales = (HEADS + KEY_HEADS) * scales
    assert rounded.n_bytes == bits // 8 * (queries.size + keys.size) + 4 * n_scales
    exact = naive(queries, keys, WIDTH**-0.5, seen)
    again = naive(
        in_float32(rounded.queries, rounded.query_scales),
        in_float32(rounded.keys, rounded.key_scales),
        WIDTH**-0.5,
        seen,
    )
    assert rounded.error == pytest.approx(np.abs(again - exact).max(), abs=1e-6)
    assert 0 < rounded.error <= MAX_WEIGHT_ERROR


def test_a_head_keeps_its_own_scale() -> None:
    """A head with small vectors is as exact beside one with large vectors."""
    random = np.random.default_rng(1)
    queries = random.normal(size=(HEADS, TOKENS, WIDTH))
    queries[0] *= 1000
    keys = np.zeros((KEY_HEADS, TOKENS, WIDTH))
    rounded = rounded_vectors(queries, keys, 1.0, NOTHING, np.ones((TOKENS, TOKENS), np.uint8))
    assert rounded.queries.dtype == np.int8
    assert (np.abs(rounded.queries).max((1, 2)) == 127).all()
    steps = np.abs(in_float32(rounded.queries, rounded.query_scales) - queries)
    assert (steps <= rounded.query_scales * 0.501).all()
    assert rounded.error == 0
