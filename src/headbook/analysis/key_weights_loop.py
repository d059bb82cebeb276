"""Compiled loop that fits one weight per key on top of expected maps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.numba_kernel import kernel

LoopArray = NDArray[Any]


@kernel
def key_weights_loop(
    expected: LoopArray,
    attention: LoopArray,
    weights: LoopArray,
    keys: LoopArray,
    steps: int,
    product: LoopArray,
) -> None:
    """Fill in the expected maps times one weight per key, with rows that sum to 1.

    The weights that a query gets come from the queries of the other parity (even or odd positions)
    and from one more row that attends evenly to all keys.

    Args:
        expected: maps without weights per key, rows summing to 1. *Shape:* ``(head, query, key)``.
        attention: the maps that the weights fit, in the shape of `expected`.
        weights: weight of each row, 0 for rows that do not count. *Shape:* ``(head, query)``.
        keys: indices of the keys that some query sees. *Shape:* ``(n,)``.
        steps: number of updates (minorisation and maximisation, Hunter 2004).
        product: a copy of `expected`; its rows are replaced in place.
    """
    n_heads, n_queries, n_keys = expected.shape
    strength, observed, seen = np.zeros(n_keys), np.zeros(n_keys), np.zeros(n_keys)
    for h in range(n_heads):
        for parity in range(2):
            total_weight, n_rows = 0.0, 0
            observed[:] = 0
            for q in range(1 - parity, n_queries, 2):
                if weights[h, q] > 0:
                    total_weight += weights[h, q]
                    n_rows += 1
                    for k in range(n_keys):
                        observed[k] += attention[h, q, k] * weights[h, q]
            if n_rows == 0:
                continue
            pseudo_count = total_weight / n_rows / len(keys)
            strength[:] = 0
            strength[keys] = 1.0
            for _ in range(steps):
                mean = strength[keys].mean()
                seen[:] = 0
                for q in range(1 - parity, n_queries, 2):
                    if weights[h, q] > 0:
                        row, total = expected[h, q], 0.0
                        for k in range(n_keys):
                            total += row[k] * strength[k]
                        if total > 0:
                            scale = weights[h, q] / total
                            for k in range(n_keys):
                                seen[k] += row[k] * scale
                for k in keys:
                    strength[k] = (observed[k] + pseudo_count) / (seen[k] + pseudo_count / mean)
            for q in range(parity, n_queries, 2):
                row, total = expected[h, q], 0.0
                for k in range(n_keys):
                    total += row[k] * strength[k]
                if total > 0:
                    for k in range(n_keys):
                        product[h, q, k] = row[k] * strength[k] / total
