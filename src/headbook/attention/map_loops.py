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
    first_head: int,
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
        first_head: index of the first head in the filled arrays.
    """
    n_sentences, n_heads, n_queries, _ = weights.shape
    zero = weights.dtype.type(0)
    one = weights.dtype.type(1)
    tiny = np.finfo(weights.dtype).tiny
    has_diagonals = diagonals.shape[-1] > 0
    for s in range(n_sentences):
        for h in range(n_heads):
            for q in range(n_queries):
                if counted[s, q] == 0:
                    continue
                row, keep, n = weights[s, h, q], kept[s, q], lengths[s]
                kept_mass, lost_mass = zero, zero
                for k in range(n):
                    kept_mass += row[k] * keep[k]
                    lost_mass += row[k] * (one - keep[k])
                top, position, top_any, place_any = zero, 0, zero, 0
                for k in range(n):
                    if row[k] > top_any:
                        top_any, place_any = row[k], k
                    if row[k] * keep[k] > top:
                        top, position = row[k], k
                if kept_mass < tiny:  # too small to divide by
                    kept_mass = zero
                mass[s, first_head + h, q], sink_mass[s, first_head + h, q] = kept_mass, lost_mass
                best[s, first_head + h, q], best_key[s, first_head + h, q] = top, position
                best_any[s, first_head + h, q] = top_any
                best_any_key[s, first_head + h, q] = place_any
                scale, word = one / kept_mass if kept_mass > 0 else one, words[s, q]
                column, word_scale = columns[s, first_head + h], word * scale
                # One short loop for each sum, so that the compiler sees that arrays do not overlap.
                for k in range(n):
                    column[0, k] += row[k]
                for k in range(n):
                    column[1, k] += word * row[k]
                for k in range(n):
                    column[2, k] += scale * row[k]
                for k in range(n):
                    column[3, k] += word_scale * row[k]
                if has_diagonals:
                    shift = n_queries - 1 - q
                    diagonal = diagonals[s, first_head + h, :, shift : shift + n]
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
    one_text: bool,
    own: Floats,
    best: Floats,
    best_word: Ints,
    scratch: Floats,
    first_head: int,
) -> None:
    """Compute `headbook.attention.map_sums.WordSums`; fills ``own``, ``best`` and ``best_word``.

    Args:
        weights, kept, lengths: as in `row_loop`.
        share: weight of each query in the mean of its word. *Shape:* ``(sentence, query)``.
        of_query, of_key: word of each token; the number of words for keys without word.
        one_text: whether queries and keys are one text.
        scratch: scratch memory. *Shape:* ``(sentence, word, word + 1)``.
        first_head: index of the first head in the filled arrays.
    """
    n_sentences, n_heads, n_queries, _ = weights.shape
    n_from, n_to = scratch.shape[1], scratch.shape[2] - 1
    for s in range(n_sentences):
        word_sums = scratch[s]
        for h in range(n_heads):
            word_sums[:] = 0
            for q in range(n_queries):
                query_share = share[s, q]
                if query_share > 0:
                    row, keep, word = weights[s, h, q], kept[s, q], word_sums[of_query[s, q]]
                    for k in range(lengths[s]):
                        word[of_key[s, k]] += query_share * row[k] * keep[k]
            for w in range(n_from):
                if one_text:
                    own[s, first_head + h, w] = word_sums[w, w]
                    word_sums[w, w] = 0
                top, position = word_sums[w, 0], 0
                for v in range(1, n_to):
                    if word_sums[w, v] > top:
                        top, position = word_sums[w, v], v
                best[s, first_head + h, w], best_word[s, first_head + h, w] = top, position


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
    first_head: int,
) -> None:
    """Compute `headbook.attention.map_sums.torch_pair_sums`.

    Args:
        weights: *Shape:* ``(sentence, head, query * key)``.
        mass: divisor of each row, unless it is 0. *Shape:* ``(sentence, head, query)``.
        place, query, counts, kept, number: as in `headbook.attention.masks.QueryKeyPairs`.
        sums: filled in place. *Shape:* ``(sentence, head, 3, measure)``.
        first_head: index of the first head in ``sums`` and ``mass``.
    """
    n_sentences, _, n_measures = counts.shape
    for s in range(n_sentences):
        for h in range(weights.shape[1]):
            for p in range(number[s]):
                weight, row_mass = weights[s, h, place[s, p]], mass[s, first_head + h, query[s, p]]
                scaled = weight / row_mass if row_mass > 0 else weight
                for m in range(n_measures):
                    sums[s, first_head + h, 0, m] += weight * counts[s, p, m]
                    sums[s, first_head + h, 1, m] += weight * kept[s, p, m]
                    sums[s, first_head + h, 2, m] += scaled * kept[s, p, m]


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
def _add(n: Floats, sums: Floats) -> None:
    """Add numerators to an array of equal length."""
    for i in range(len(n)):
        sums[i] += n[i]


@partial(kernel, reorder_sums=False)
def label_loop(
    n: Floats,
    shared: Floats,
    own_d: Floats,
    labels: Ints,
    columns: Ints,
    split: Ints,
    starts: Ints,
    heads: Floats,
    layers: Floats,
    first_layer: int,
    last_layer: int,
) -> None:
    """Compute `headbook.attention.map_sums.label_sums` for consecutive layers.

    ``heads`` and ``layers`` are filled for the layers from ``first_layer`` to ``last_layer`` - 1.

    Args:
        shared: denominators by label, 0 for those of ``labels``. *Shape:* ``(sentence, label)``.
        labels, columns: labels with denominators of each head, and their columns in ``own_d``.
    """
    n_sentences, _, n_labels = n.shape
    above, below = np.zeros((n_sentences, n_labels)), np.zeros((n_sentences, n_labels))
    for layer in range(first_layer, last_layer):
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
                    label, d = labels[position], own_d[s, h, columns[position]]
                    below[s, label] += d
                    products[label] += n[s, h, label] * d
        for s in range(n_sentences):
            number = split[s]
            totals = layers[:, number, layer]
            _add_powers(above[s], below[s], totals[0], totals[1], totals[2], totals[3])


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
