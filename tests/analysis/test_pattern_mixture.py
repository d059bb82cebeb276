"""Shares of stripes and diagonals in a map, and the word for what it looks like."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from drawn_maps import MASKS, Floats, N, at_random, maps, noise, visible
from headbook.analysis.pattern_mixture import mixture


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_mixture_shares(mask: str) -> None:
    """The causal previous-token head has a first row, of one key, that does not count."""
    seen, own = visible(N, mask), maps(mask)
    heads = {
        "uniform": (own["uniform"], (1, 0, 0)),
        "sink": (own["sink"], (1, 0, 0)),
        "self": (own["self"], (0, 1, 0)),
        "previous": (own["previous"], (0, 1, 0)),
        "half and half": ((own["sink"] + own["previous"]) / 2, (0.5, 0.5, 0)),
        "half uniform": ((own["uniform"] + own["previous"]) / 2, (0.5, 0.5, 0)),
        "random": (at_random(mask, 0), (0.1, 0.1, 0.8)),
    }
    found = mixture(np.stack([one for one, _ in heads.values()]), seen)
    shares = np.stack([found.vertical, found.diagonal, found.rest], axis=1) / found.rows
    for share, (_, expected) in zip(shares, heads.values(), strict=True):
        assert share == pytest.approx(expected, abs=0.07)


@given(
    st.integers(2, 9), st.sampled_from(MASKS), st.integers(0, 999), st.sampled_from([0.0, 2, 40])
)
def test_mixture_shares_are_shares(n: int, mask: str, seed: int, sharp: float) -> None:
    seen = visible(n, mask)
    found = mixture(noise(np.random.default_rng(seed), 2, seen, sharp), seen)
    parts = np.stack([found.vertical, found.diagonal, found.rest])
    assert (parts >= 0).all()
    assert parts.sum(0) == pytest.approx(found.rows)


@pytest.mark.slow
def test_mixture_is_the_best_fit() -> None:
    """Against an optimiser on the same likelihood, where the best fit is unique."""
    seen = visible(5, "causal")[1:]
    rng = np.random.default_rng(8)
    own = noise(rng, 1, seen, 1.0)[0]

    def parts(x: Floats, i: int, j: int) -> tuple[float, float]:
        x = np.exp(x)
        return x[j] + x[5] / seen[i].sum(), x[6 + j - i + 3]

    pairs = [(i, j) for i in range(4) for j in range(5) if seen[i, j]]

    def cost(x: Floats) -> float:
        fits = [(own[i, j], sum(parts(x, i, j))) for i, j in pairs]
        return float(sum(f - a * math.log(f) for a, f in fits))

    best = minimize(cost, np.full(14, -1.5), tol=1e-10, options={"maxiter": 5000}).x
    rest = sum(max(own[i, j] - sum(parts(best, i, j)), 0) for i, j in pairs)
    assert mixture(own[None], seen, steps=20000).rest[0] == pytest.approx(rest, abs=1e-3)
