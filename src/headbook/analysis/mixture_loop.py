"""Compiled loop that fits the mixture of `headbook.analysis.pattern_mixture` in place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.numba_kernel import kernel

LoopArray = NDArray[Any]

MIN_FIT = 1e-200  # replaces a fit of 0 as a divisor


@kernel
def mixture_loop(
    mass: LoopArray,
    share: LoopArray,
    pairs_of_key: LoopArray,
    pairs_of_offset: LoopArray,
    n_rows: float,
    steps: int,
    keys: LoopArray,
    even: LoopArray,
    offsets: LoopArray,
    explained_mass: LoopArray,
) -> None:
    """Run a number of update steps of the fit, then add up the attention that each part explains.

    Args:
        mass: attention, 0 on hidden pairs. *Shape:* ``(head, query, key)``.
        share: uniform attention. *Shape:* ``(query, key)``.
        pairs_of_key, pairs_of_offset: number of visible pairs of each key, and of each offset.
        n_rows: number of rows that count, at least 1.
        steps: number of updates.
        keys, even, offsets: initial weights; updated in place.
        explained_mass: mass explained by keys and background, and by offsets; filled in place.
            *Shape:* ``(2, head)``.
    """
    n_heads, n_queries, n_keys = mass.shape
    ratio = np.zeros(n_keys)
    key_sums, offset_sums = np.zeros(n_keys), np.zeros(n_queries + n_keys - 1)
    for h in range(n_heads):
        for _ in range(steps):
            key_sums[:] = 0
            offset_sums[:] = 0
            even_sum = 0.0
            for q in range(n_queries):
                row, shift = mass[h, q], n_queries - 1 - q
                offset_weights = offsets[h, shift : shift + n_keys]
                shifted_sums = offset_sums[shift : shift + n_keys]
                for k in range(n_keys):
                    fit = keys[h, k] + even[h] * share[q, k] + offset_weights[k]
                    # If the fit is 0, all weights that the ratio multiplies are 0, too.
                    ratio[k] = row[k] / max(fit, MIN_FIT)
                for k in range(n_keys):
                    key_sums[k] += ratio[k]
                for k in range(n_keys):
                    shifted_sums[k] += ratio[k]
                for k in range(n_keys):
                    even_sum += ratio[k] * share[q, k]
            for k in range(n_keys):
                keys[h, k] *= key_sums[k] / pairs_of_key[k] if pairs_of_key[k] > 0 else 0.0
            for o in range(n_queries + n_keys - 1):
                n_pairs = pairs_of_offset[o]
                offsets[h, o] *= offset_sums[o] / n_pairs if n_pairs > 0 else 0.0
            even[h] *= even_sum / n_rows
        for q in range(n_queries):
            for k in range(n_keys):
                diagonal = offsets[h, n_queries - 1 - q + k]
                stripes = keys[h, k] + even[h] * share[q, k]
                fit = diagonal + stripes
                if share[q, k] > 0 and fit > 0:
                    explained = min(mass[h, q, k], fit) / fit
                    explained_mass[0, h] += explained * stripes
                    explained_mass[1, h] += explained * diagonal
