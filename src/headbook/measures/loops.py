"""Loops over attention weights: each takes all it wants of a weight while it is at hand.

Arrays are filled in place, and begin as zeros, so that nothing is made inside.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from headbook.measures.arithmetic import NOTHING

Floats = NDArray[Any]
Ints = NDArray[Any]

SMALLEST = 1e-200  # stands for a fit of 0
SPAN = 32  # entries of which the largest score is found first


def _kernel(loop: Callable[..., None], *, loose: bool = True) -> Callable[..., None]:
    """Compile a loop when it is first called; kept on disk where a folder can be written.

    Args:
        loose: sums may be taken in any order, as tensor operations take them; NaN and infinities
            stay.
    """
    options: Any = {"nogil": True, "error_model": "numpy"}
    if loose:
        options["fastmath"] = {"reassoc", "contract", "nsz"}
    try:
        found: Callable[..., None] = numba.njit(loop, cache=True, **options)
    except RuntimeError:  # nowhere to keep it
        found = numba.njit(loop, **options)
    return found


@_kernel
def row_loop(  # noqa: PLR0912 - calls to parts of it would not be as fast
    weights: Floats,
    kept: Floats,
    counted: Floats,
    words: Floats,
    lengths: Ints,
    mass: Floats,
    sink_mass: Floats,
    best: Floats,
    best_key: Ints,
    best_any: Floats,
    best_any_key: Ints,
    columns: Floats,
    diagonals: Floats,
    first: int,
) -> None:
    """See `plain.row_sums`; those after the first five are filled, and begin as zeros.

    Args:
        weights: *Shape:* ``(sentence, head, query, key)``.
        kept: 1 for pairs that count without the sink. *Shape:* ``(sentence, query, key)``.
        counted: 1 for queries that count. *Shape:* ``(sentence, query)``.
        words: weight of each query by word; the same shape.
        lengths: keys up to the last that is no padding. *Shape:* ``(sentence,)``.
        first: where the heads stand in what is filled.
    """
    n_sentences, n_heads, n_queries, _ = weights.shape
    zero = weights.dtype.type(0)
    one = weights.dtype.type(1)
    tiny = np.finfo(weights.dtype).tiny
    across = diagonals.shape[-1] > 0
    for s in range(n_sentences):
        for h in range(n_heads):
            for q in range(n_queries):
                if counted[s, q] == 0:
                    continue
                row, keep, n = weights[s, h, q], kept[s, q], lengths[s]
                given, lost = zero, zero
                for k in range(n):
                    given += row[k] * keep[k]
                    lost += row[k] * (one - keep[k])
                top, place, top_any, place_any = zero, 0, zero, 0
                for k in range(n):
                    if row[k] > top_any:
                        top_any, place_any = row[k], k
                    if row[k] * keep[k] > top:
                        top, place = row[k], k
                if given < tiny:  # too small to divide by counts as nothing
                    given = zero
                mass[s, first + h, q], sink_mass[s, first + h, q] = given, lost
                best[s, first + h, q], best_key[s, first + h, q] = top, place
                best_any[s, first + h, q] = top_any
                best_any_key[s, first + h, q] = place_any
                scale, word = one / given if given > 0 else one, words[s, q]
                column, both = columns[s, first + h], word * scale
                # One short loop for each sum: compilers can tell that these do not overlap.
                for k in range(n):
                    column[0, k] += row[k]
                for k in range(n):
                    column[1, k] += word * row[k]
                for k in range(n):
                    column[2, k] += scale * row[k]
                for k in range(n):
                    column[3, k] += both * row[k]
                if across:
                    away = n_queries - 1 - q
                    diagonal = diagonals[s, first + h, :, away : away + n]
                    raw, nosink, renorm = diagonal[0], diagonal[1], diagonal[2]
                    for k in range(n):
                        raw[k] += row[k]
                    for k in range(n):
                        nosink[k] += row[k] * keep[k]
                    for k in range(n):
                        renorm[k] += scale * row[k] * keep[k]


@_kernel
def word_loop(
    weights: Floats,
    kept: Floats,
    share: Floats,
    of_query: Ints,
    of_key: Ints,
    lengths: Ints,
    same: bool,
    own: Floats,
    best: Floats,
    best_word: Ints,
    room: Floats,
    first: int,
) -> None:
    """See `headbook.measures.plain.word_sums`; ``own``, ``best`` and ``best_word`` are filled.

    Args:
        weights, kept, lengths: as in `row_loop`.
        share: what each query counts for its word. *Shape:* ``(sentence, query)``.
        of_query, of_key: word of each token; the number of words for keys without one.
        same: whether queries and keys are one text.
        room: to work in. *Shape:* ``(sentence, word, word + 1)``.
        first: where the heads stand in what is filled.
    """
    n_sentences, n_heads, n_queries, _ = weights.shape
    n_from, n_to = room.shape[1], room.shape[2] - 1
    for s in range(n_sentences):
        to = room[s]
        for h in range(n_heads):
            to[:] = 0
            for q in range(n_queries):
                part = share[s, q]
                if part > 0:
                    row, keep, word = weights[s, h, q], kept[s, q], to[of_query[s, q]]
                    for k in range(lengths[s]):
                        word[of_key[s, k]] += part * row[k] * keep[k]
            for w in range(n_from):
                if same:
                    own[s, first + h, w] = to[w, w]
                    to[w, w] = 0
                top, place = to[w, 0], 0
                for v in range(1, n_to):
                    if to[w, v] > top:
                        top, place = to[w, v], v
                best[s, first + h, w], best_word[s, first + h, w] = top, place


@_kernel
def pair_loop(
    weights: Floats,
    mass: Floats,
    place: Ints,
    query: Ints,
    counts: Floats,
    kept: Floats,
    number: Ints,
    sums: Floats,
    first: int,
) -> None:
    """See `headbook.measures.plain.pair_sums`.

    Args:
        weights: *Shape:* ``(sentence, head, query * key)``.
        mass: what rows are divided by where it is not 0. *Shape:* ``(sentence, head, query)``.
        place, query, counts, kept, number: as in `headbook.measures.frame.Pairs`.
        sums: filled. *Shape:* ``(sentence, head, 3, measure)``.
        first: where the heads stand in it, and in ``mass``.
    """
    n_sentences, _, n_measures = counts.shape
    for s in range(n_sentences):
        for h in range(weights.shape[1]):
            for p in range(number[s]):
                weight, left = weights[s, h, place[s, p]], mass[s, first + h, query[s, p]]
                scaled = weight / left if left > 0 else weight
                for m in range(n_measures):
                    sums[s, first + h, 0, m] += weight * counts[s, p, m]
                    sums[s, first + h, 1, m] += weight * kept[s, p, m]
                    sums[s, first + h, 2, m] += scaled * kept[s, p, m]


@partial(_kernel, loose=False)
def _add_powers(
    n: Floats, d: Floats, sums: Floats, squares: Floats, products: Floats, present: Floats
) -> None:
    """Add numerators, their squares, their products with denominators, and 1 where not 0.

    All of one length.
    """
    for i in range(len(n)):
        value = float(n[i])
        sums[i] += value
        squares[i] += value * value
        products[i] += value * d[i]
        present[i] += abs(value) > NOTHING


@partial(_kernel, loose=False)
def _add(n: Floats, above: Floats) -> None:
    """Add numerators; both of one length."""
    for i in range(len(n)):
        above[i] += float(n[i])


@partial(_kernel, loose=False)
def label_loop(
    n: Floats,
    shared: Floats,
    own: Floats,
    labels: Ints,
    columns: Ints,
    half: Ints,
    starts: Ints,
    heads: Floats,
    layers: Floats,
    first: int,
    last: int,
) -> None:
    """See `headbook.measures.compiled.label_sums`.

    ``heads`` and ``layers`` are filled from the first layer to the one before the last.

    Args:
        shared: denominators by label, 0 for those of ``labels``. *Shape:* ``(sentence, label)``.
        labels, columns: those whose denominators are each head's own, and where they stand in
            ``own``.
    """
    above, below = np.zeros((len(n), n.shape[2])), np.zeros((len(n), n.shape[2]))
    for layer in range(first, last):
        start, stop = starts[layer], starts[layer + 1]
        above[:] = 0
        below[:] = (stop - start) * shared
        # Head by head: its sums of all labels stay at hand.
        for h in range(start, stop):
            for s in range(len(n)):
                side = half[s]
                sums, squares, products = heads[0, side, h], heads[1, side, h], heads[2, side, h]
                _add(n[s, h], above[s])
                _add_powers(n[s, h], shared[s], sums, squares, products, heads[3, side, h])
                for place in range(len(labels)):
                    label, d = labels[place], own[s, h, columns[place]]
                    below[s, label] += d
                    products[label] += float(n[s, h, label]) * d
        for s in range(len(n)):
            side = half[s]
            of = layers[:, side, layer]
            _add_powers(above[s], below[s], of[0], of[1], of[2], of[3])


@partial(_kernel, loose=False)
def power_loop(d: Floats, half: Ints, sums: Floats) -> None:
    """Sums over the sentences of each half: of values, of squares, and of 1 where not 0.

    Args:
        d: *Shape:* ``(sentence, head, column)``.
        half: 0 or 1 for each sentence.
        sums: filled. *Shape:* ``(3, 2, head, column)``.
    """
    n_sentences, n_heads, n_columns = d.shape
    for s in range(n_sentences):
        for h in range(n_heads):
            side = half[s]
            for column in range(n_columns):
                value = d[s, h, column]
                sums[0, side, h, column] += value
                sums[1, side, h, column] += value * value
                sums[2, side, h, column] += value > 0


@_kernel
def mixture_loop(
    mass: Floats,
    share: Floats,
    under: Floats,
    along: Floats,
    rows: float,
    steps: int,
    keys: Floats,
    even: Floats,
    offsets: Floats,
    found: Floats,
) -> None:
    """See `headbook.measures.mixture`: so many steps of the fit, then what its parts explain.

    Args:
        mass: attention, 0 on hidden pairs. *Shape:* ``(head, query, key)``.
        share: even attention. *Shape:* ``(query, key)``.
        under, along: visible pairs of each key, and of each offset.
        rows: those that count, at least 1.
        keys, even, offsets: the weights to begin with; changed.
        found: what keys and background explain, and what offsets do; filled. *Shape:* ``(2,
            head)``.
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
                    # Where the fit is nothing, so are all weights that the ratio multiplies.
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


@_kernel
def nearest_loop(
    scores: Floats, own: Ints, most: Floats, ranks: Ints, entries: Ints, values: Floats
) -> None:
    """See `headbook.network.nearest`; ``ranks``, ``entries`` and ``values`` are filled.

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
