"""Compiled loop that fits the mixture of `headbook.analysis.pattern_mixture` in place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.numba_kernel import kernel

LoopArray = NDArray[Any]

SMALLEST = 1e-200  # replaces a fit of 0 as a divisor


@kernel
def mixture_loop(
    mass: LoopArray,
    share: LoopArray,
    under: LoopArray,
    along: LoopArray,
    rows: float,
    steps: int,
    keys: LoopArray,
    even: LoopArray,
    offsets: LoopArray,
    found: LoopArray,
) -> None:
    """Run a number of update steps of the fit, then add up the attention that each part explains.

    Args:
        mass: attention, 0 on hidden pairs. *Shape:* ``(head, query, key)``.
        share: uniform attention. *Shape:* ``(query, key)``.
        under, along: number of visible pairs of each key, and of each offset.
        rows: number of rows that count, at least 1.
        steps: number of updates.
        keys, even, offsets: initial weights; updated in place.
        found: mass explained by keys and background, and by offsets; filled in place. *Shape:*
            ``(2, head)``.
    """
    n_heads, n_queries, n_keys = mass.shape
    ratio = np.zeros(n_keys)
    of_key, of_offset = np.zeros(n_keys), np.zeros(n_queries + n_keys - 1)
    for h in range(n_heads):
        for _ in range(steps):
            of_key[:] = 0
            of_offset[:] = 0
            of_even = 0.0
            for q in range(n_queries):
                row, away = mass[h, q], n_queries - 1 - q
                slanted, sums = offsets[h, away : away + n_keys], of_offset[away : away + n_keys]
                for k in range(n_keys):
                    fit = keys[h, k] + even[h] * share[q, k] + slanted[k]
                    # If the fit is 0, all weights that the ratio multiplies are 0, too.
                    ratio[k] = row[k] / max(fit, SMALLEST)
                for k in range(n_keys):
                    of_key[k] += ratio[k]
                for k in range(n_keys):
                    sums[k] += ratio[k]
                for k in range(n_keys):
                    of_even += ratio[k] * share[q, k]
            for k in range(n_keys):
                keys[h, k] *= of_key[k] / under[k] if under[k] > 0 else 0.0
            for o in range(n_queries + n_keys - 1):
                offsets[h, o] *= of_offset[o] / along[o] if along[o] > 0 else 0.0
            even[h] *= of_even / rows
        for q in range(n_queries):
            for k in range(n_keys):
                diagonal = offsets[h, n_queries - 1 - q + k]
                stripes = keys[h, k] + even[h] * share[q, k]
                fit = diagonal + stripes
                if share[q, k] > 0 and fit > 0:
                    explained = min(mass[h, q, k], fit) / fit
                    found[0, h] += explained * stripes
                    found[1, h] += explained * diagonal
