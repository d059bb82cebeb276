"""Ranks and nearest entries in one reading of each row; arrays are filled in place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.kernel import kernel

Floats = NDArray[Any]
Ints = NDArray[Any]

SPAN = 32  # entries of which the largest score is found first


@kernel
def nearest_loop(
    scores: Floats, own: Ints, most: Floats, ranks: Ints, entries: Ints, values: Floats
) -> None:
    """See `headbook.model.vocabulary.nearest`; ``ranks``, ``entries`` and ``values`` are filled.

    The k largest of a row lie in the k chunks with the largest maxima, and are no smaller than the
    least of these.

    Args:
        scores: *Shape:* ``(row, entry)``.
        own: *Shape:* ``(row,)``.
        most: room for the largest score of each chunk of `SPAN` entries; as many chunks as k, or
            more, the last of which may be shorter.
    """
    n_rows, n_entries = scores.shape
    k, n_chunks = entries.shape[1], len(most)
    least = np.finfo(scores.dtype).min
    candidates, places = np.empty(n_entries, scores.dtype), np.empty(n_entries, np.int64)
    for r in range(n_rows):
        row = scores[r]
        mine, above = row[own[r]], 0
        for c in range(n_chunks):
            top, nearer = least, 0
            for v in range(c * SPAN, min((c + 1) * SPAN, n_entries)):
                top = max(top, row[v])
                nearer += row[v] > mine
            most[c] = top
            above += nearer
        ranks[r] = above
        limit = np.partition(most, n_chunks - k)[n_chunks - k]
        n = 0
        for c in range(n_chunks):
            if most[c] >= limit:
                for v in range(c * SPAN, min((c + 1) * SPAN, n_entries)):
                    if row[v] >= limit:
                        candidates[n], places[n] = row[v], v
                        n += 1
        order = np.argsort(-candidates[:n], kind="mergesort")  # equals in the order of entries
        for i in range(k):
            entries[r, i], values[r, i] = places[order[i]], candidates[order[i]]
