"""Ranks and nearest entries in one reading of each row; arrays are filled in place.

They call no sorting of NumPy's, which takes numba longer to compile than all else together.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.kernel import kernel

Floats = NDArray[Any]
Ints = NDArray[Any]

SPAN = 32  # entries of which the largest score is found first


@kernel
def rank_loop(scores: Floats, own: Ints, largest: Floats, ranks: Ints) -> None:
    """See `headbook.model.vocabulary.nearest`; ``largest`` and ``ranks`` are filled.

    Args:
        scores: *Shape:* ``(row, entry)``.
        own: *Shape:* ``(row,)``.
        largest: score of each chunk of `SPAN` entries, the last of which may be shorter. *Shape:*
            ``(row, chunk)``.
    """
    n_rows, n_entries = scores.shape
    least = np.finfo(scores.dtype).min
    for r in range(n_rows):
        row = scores[r]
        mine, above = row[own[r]], 0
        for c in range(largest.shape[1]):
            top, nearer = least, 0
            for v in range(c * SPAN, min((c + 1) * SPAN, n_entries)):
                top = max(top, row[v])
                nearer += row[v] > mine
            largest[r, c] = top
            above += nearer
        ranks[r] = above


@kernel
def nearest_loop(
    scores: Floats, largest: Floats, limits: Floats, entries: Ints, values: Floats
) -> None:
    """The k largest of each row, largest first, equals in the order of entries.

    Args:
        scores, largest: as in `rank_loop`.
        limits: the k-th of the largest scores of a row's chunks. *Shape:* ``(row,)``.
        entries, values: filled. *Shape:* ``(row, k)``.
    """
    n_rows, n_entries = scores.shape
    k = entries.shape[1]
    for r in range(n_rows):
        row, places, best, n = scores[r], entries[r], values[r], 0
        for c in range(largest.shape[1]):
            if largest[r, c] < limits[r]:
                continue
            for v in range(c * SPAN, min((c + 1) * SPAN, n_entries)):
                score = row[v]
                if score < limits[r] or (n == k and score <= best[k - 1]):
                    continue
                n = min(n + 1, k)
                i = n - 1
                while i > 0 and best[i - 1] < score:
                    best[i], places[i] = best[i - 1], places[i - 1]
                    i -= 1
                best[i], places[i] = score, v
