"""Attention maps drawn by rule: stripes, diagonals, random targets, noise."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

N = 24
MASKS = ["full", "causal", "window", "causal window"]


def visible(n: int, mask: str) -> Bools:
    back = np.subtract.outer(np.arange(n), np.arange(n))
    reach, ahead = {"full": (n, n), "causal": (n, 0), "window": (2, 2), "causal window": (2, 0)}[
        mask
    ]
    found: Bools = (back <= reach) & (back >= -ahead)
    return found


def even(seen: Bools) -> Floats:
    found: Floats = seen / seen.sum(1, keepdims=True)
    return found


def pointed(seen: Bools, targets: Sequence[int], logit: float) -> Floats:
    """Softmax of a logit on one visible key per row, 0 on the others."""
    scores = np.where(seen, 0.0, -np.inf)
    scores[np.arange(len(seen)), targets] += logit
    weights = np.exp(scores)
    found: Floats = weights / weights.sum(1, keepdims=True)
    return found


def maps(mask: str, n: int = N) -> dict[str, Floats]:
    """Logits of 6.2 on a sink and 6.8 elsewhere give the spread of the check values."""
    seen = visible(n, mask)
    back = [max(i - 1, 0) for i in range(n)]
    return {
        "uniform": even(seen),
        "sink": pointed(seen, [0] * n, 6.2),
        "self": pointed(seen, range(n), 6.8),
        "previous": pointed(seen, back, 6.8),
    }


def at_random(mask: str, seed: int, n: int = N) -> Floats:
    rng, seen = np.random.default_rng(seed), visible(n, mask)
    return pointed(seen, [int(rng.choice(np.flatnonzero(row))) for row in seen], 6.8)


def noise(rng: np.random.Generator, heads: int, seen: Bools, sharp: float = 2.0) -> Floats:
    weights = np.exp(sharp * rng.standard_normal((heads, *seen.shape))) * seen
    found: Floats = weights / weights.sum(2, keepdims=True)
    return found
