"""Compiled loops that compute all sums over attention maps in one pass over the weights.

Results are filled in place into arrays of zeros, so that loops allocate no memory.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import MIN_NUMERATOR
from headbook.analysis.numba_kernel import kernel

Floats = NDArray[Any]
Ints = NDArray[Any]


@kernel
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
    """Compute `headbook.attention.map_sums.RowSums`.

    Arguments from ``mass`` to ``diagonals`` are filled in place.

    Args:
        weights: *Shape:* ``(sentence, head, query, key)``.
        kept: 1 for pairs that count without the sink. *Shape:* ``(sentence, query, key)``.
        counted: 1 for queries that count. *Shape:* ``(sentence, query)``.
        words: weight of each query, so that every word counts once. *Shape:* ``(sentence,
            query)``.
        lengths: number of keys up to the last that is no padding. *Shape:* ``(sentence,)``.
        first: index of the first head in the filled arrays.
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
                top, position, top_any, place_any = zero, 0, zero, 0
                for k in range(n):
                    if row[k] > top_any:
                        top_any, place_any = row[k], k
                    if row[k] * keep[k] > top:
                        top, position = row[k], k
                if given < tiny:  # too small to divide by
                    given = zero
                mass[s, first + h, q], sink_mass[s, first + h, q] = given, lost
                best[s, first + h, q], best_key[s, first + h, q] = top, position
                best_any[s, first + h, q] = top_any
                best_any_key[s, first + h, q] = place_any
                scale, word = one / given if given > 0 else one, words[s, q]
                column, both = columns[s, first + h], word * scale
                # One short loop for each sum, so that the compiler sees that arrays do not overlap.
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


@kernel
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
    work: Floats,
    first: int,
) -> None:
    """Compute `headbook.attention.map_sums.WordSums`; fills ``own``, ``best`` and ``best_word``.

    Args:
        weights, kept, lengths: as in `row_loop`.
        share: weight of each query in the mean of its word. *Shape:* ``(sentence, query)``.
        of_query, of_key: word of each token; the number of words for keys without word.
        same: whether queries and keys are one text.
        work: scratch memory. *Shape:* ``(sentence, word, word + 1)``.
        first: index of the first head in the filled arrays.
    """
    n_sentences, n_heads, n_queries, _ = weights.shape
    n_from, n_to = work.shape[1], work.shape[2] - 1
    for s in range(n_sentences):
        to = work[s]
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
                top, position = to[w, 0], 0
                for v in range(1, n_to):
                    if to[w, v] > top:
                        top, position = to[w, v], v
                best[s, first + h, w], best_word[s, first + h, w] = top, position


@kernel
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
    """Compute `headbook.attention.map_sums.torch_pair_sums`.

    Args:
        weights: *Shape:* ``(sentence, head, query * key)``.
        mass: divisor of each row, unless it is 0. *Shape:* ``(sentence, head, query)``.
        place, query, counts, kept, number: as in `headbook.attention.masks.QueryKeyPairs`.
        sums: filled in place. *Shape:* ``(sentence, head, 3, measure)``.
        first: index of the first head in ``sums`` and ``mass``.
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


@partial(kernel, reorder_sums=False)
def _add_powers(
    n: Floats, d: Floats, sums: Floats, squares: Floats, products: Floats, present: Floats
) -> None:
    """Add numerators, their squares, products with denominators, and counts of non-zeros.

    All arrays have one length.
    """
    for i in range(len(n)):
        value = np.float64(n[i])  # numba's float() of a float32 is float32, and so is its square
        sums[i] += value
        squares[i] += value * value
        products[i] += value * d[i]
        present[i] += abs(value) > MIN_NUMERATOR


@partial(kernel, reorder_sums=False)
def _add(n: Floats, above: Floats) -> None:
    """Add numerators to an array of equal length."""
    for i in range(len(n)):
        above[i] += n[i]


@partial(kernel, reorder_sums=False)
def label_loop(
    n: Floats,
    shared: Floats,
    own: Floats,
    labels: Ints,
    columns: Ints,
    split: Ints,
    starts: Ints,
    heads: Floats,
    layers: Floats,
    first: int,
    last: int,
) -> None:
    """Compute `headbook.attention.map_sums.label_sums` for some layers.

    ``heads`` and ``layers`` are filled for the layers from ``first`` to ``last`` - 1.

    Args:
        shared: denominators by label, 0 for those of ``labels``. *Shape:* ``(sentence, label)``.
        labels, columns: labels with denominators of each head, and their columns in ``own``.
    """
    n_sentences, _, n_labels = n.shape
    above, below = np.zeros((n_sentences, n_labels)), np.zeros((n_sentences, n_labels))
    for layer in range(first, last):
        start, stop = starts[layer], starts[layer + 1]
        # Index by index: numba would compile operations on whole arrays for longer than the rest.
        for s in range(n_sentences):
            for label in range(n_labels):
                above[s, label] = 0.0
                below[s, label] = (stop - start) * shared[s, label]
        # Head by head, so that the head's sums of all labels stay in the cache.
        for h in range(start, stop):
            for s in range(n_sentences):
                number = split[s]
                sums, squares, products = (
                    heads[0, number, h],
                    heads[1, number, h],
                    heads[2, number, h],
                )
                _add(n[s, h], above[s])
                _add_powers(n[s, h], shared[s], sums, squares, products, heads[3, number, h])
                for position in range(len(labels)):
                    label, d = labels[position], own[s, h, columns[position]]
                    below[s, label] += d
                    products[label] += n[s, h, label] * d
        for s in range(n_sentences):
            number = split[s]
            of = layers[:, number, layer]
            _add_powers(above[s], below[s], of[0], of[1], of[2], of[3])


@partial(kernel, reorder_sums=False)
def power_loop(d: Floats, split: Ints, sums: Floats) -> None:
    """Sum values, squares and non-zeros over the sentences of each split.

    Args:
        d: values. *Shape:* ``(sentence, head, column)``.
        split: split of each sentence, 0 or 1.
        sums: filled in place. *Shape:* ``(3, 2, head, column)``.
    """
    n_sentences, n_heads, n_columns = d.shape
    for s in range(n_sentences):
        for h in range(n_heads):
            number = split[s]
            for column in range(n_columns):
                value = d[s, h, column]
                sums[0, number, h, column] += value
                sums[1, number, h, column] += value * value
                sums[2, number, h, column] += value > 0
