"""Loops over attention weights, compiled: each takes all it wants of a weight while it is at hand.

They run on the processor only; `plain` has the same sums as tensor operations for other devices.
Arrays are filled in place, so that nothing is made inside. Sentences are shared out among threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from headbook.frame import Pairs, Scope
from headbook.plain import RowSums, WordSums
from headbook.tokens import NO_WORD

Floats = NDArray[Any]
Ints = NDArray[Any]


def _kernel(loop: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop when it is first called; kept on disk where a folder can be written."""
    # Sums may be taken in any order, as tensor operations take them; NaN and infinities stay.
    loose = {"reassoc", "contract", "nsz"}
    options: Any = {"nogil": True, "error_model": "numpy", "fastmath": loose}
    try:
        found: Callable[..., None] = numba.njit(loop, cache=True, **options)
    except RuntimeError:  # nowhere to keep it
        found = numba.njit(loop, **options)
    return found


@_kernel
def _row_loop(
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
) -> None:
    """See `headbook.plain.row_sums`; all but the first five are filled, and begin as zeros.

    Args:
        weights: *Shape:* ``(sentence, head, query, key)``.
        kept: 1 for pairs that count without the sink. *Shape:* ``(sentence, query, key)``.
        counted: 1 for queries that count. *Shape:* ``(sentence, query)``.
        words: weight of each query by word; the same shape.
        lengths: keys up to the last that is no padding. *Shape:* ``(sentence,)``.
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
                mass[s, h, q], sink_mass[s, h, q] = given, lost
                best[s, h, q], best_key[s, h, q] = top, place
                best_any[s, h, q], best_any_key[s, h, q] = top_any, place_any
                scale, word = one / given if given > 0 else one, words[s, q]
                column = columns[s, h]
                for k in range(n):
                    column[0, k] += row[k]
                    column[1, k] += word * row[k]
                    column[2, k] += scale * row[k]
                    column[3, k] += word * scale * row[k]
                if across:
                    diagonal = diagonals[s, h, :, n_queries - 1 - q :]
                    for k in range(n):
                        diagonal[0, k] += row[k]
                        diagonal[1, k] += row[k] * keep[k]
                        diagonal[2, k] += scale * row[k] * keep[k]


@_kernel
def _word_loop(
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
) -> None:
    """See `headbook.plain.word_sums`; the last four are filled.

    Args:
        weights, kept, lengths: as in `_row_loop`.
        share: what each query counts for its word. *Shape:* ``(sentence, query)``.
        of_query, of_key: word of each token; the number of words for keys without one.
        same: whether queries and keys are one text.
        room: to work in. *Shape:* ``(sentence, word, word + 1)``.
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
                    own[s, h, w] = to[w, w]
                    to[w, w] = 0
                top, place = to[w, 0], 0
                for v in range(1, n_to):
                    if to[w, v] > top:
                        top, place = to[w, v], v
                best[s, h, w], best_word[s, h, w] = top, place


@_kernel
def _pair_loop(
    weights: Floats,
    left: Floats,
    place: Ints,
    query: Ints,
    counts: Floats,
    kept: Floats,
    number: Ints,
    sums: Floats,
) -> None:
    """See `headbook.plain.pair_sums`.

    Args:
        weights: *Shape:* ``(sentence, head, query * key)``.
        left: what rows are divided by. *Shape:* ``(sentence, head, query)``.
        place, query, counts, kept, number: as in `headbook.frame.Pairs`.
        sums: filled. *Shape:* ``(sentence, head, 3, measure)``.
    """
    n_sentences, _, n_measures = counts.shape
    for s in range(n_sentences):
        for h in range(weights.shape[1]):
            for p in range(number[s]):
                weight = weights[s, h, place[s, p]]
                scaled = weight / left[s, h, query[s, p]]
                for m in range(n_measures):
                    sums[s, h, 0, m] += weight * counts[s, p, m]
                    sums[s, h, 1, m] += weight * kept[s, p, m]
                    sums[s, h, 2, m] += scaled * kept[s, p, m]


@_kernel
def _label_loop(
    n: Floats,
    shared: Floats,
    own: Floats,
    of: Ints,
    half: Ints,
    heads: Floats,
    layer: Floats,
    first: int,
    last: int,
) -> None:
    """See `label_sums`; ``heads`` and ``layer`` are filled from the first label to the last."""
    n_sentences, n_heads, _ = n.shape
    n_shared, size = shared.shape[1], last - first
    by, above, below = np.zeros(size), np.zeros(size), np.zeros(size)
    for s in range(n_sentences):
        side = half[s]
        above[:], below[:] = 0, 0
        for h in range(n_heads):
            for label in range(size):
                column = of[first + label]
                if column >= n_shared:
                    by[label] = own[s, h, column - n_shared]
                elif h == 0:
                    by[label] = shared[s, column]
            sums = heads[:, side, h, first:]
            for label in range(size):
                value = float(n[s, h, first + label])
                above[label] += value
                below[label] += by[label]
                sums[0, label] += value
                sums[1, label] += value * value
                sums[2, label] += value * by[label]
        together = layer[:, side, first:]
        for label in range(size):
            together[0, label] += above[label]
            together[1, label] += above[label] * above[label]
            together[2, label] += above[label] * below[label]


def _in_threads(loop: Callable[..., None], *parts: Any) -> None:
    """Run a loop over sentences, some in each thread.

    Args:
        parts: what the loop takes: arrays with a sentence each, shared out; anything else as it is.
    """

    def run(first: int, last: int) -> None:
        loop(*(p if isinstance(p, bool) else p[first:last] for p in parts))

    _share_out(run, len(parts[0]))


def _share_out(run: Callable[[int, int], None], size: int) -> None:
    """Run from each thread's first to its last of ``size``."""
    n_threads = min(torch.get_num_threads(), max(size, 1))
    ends = [size * number // n_threads for number in range(n_threads + 1)]
    others = [_pool(n_threads).submit(run, *pair) for pair in pairwise(ends[1:])]
    run(0, ends[1])
    for other in others:
        other.result()


def row_sums(attention: torch.Tensor, scope: Scope) -> RowSums:
    """The same as `headbook.plain.row_sums`."""
    frame, weights = scope.frame, attention.numpy()
    n_sentences, n_heads, n, m = weights.shape
    shape, width = (n_sentences, n_heads, n), 0 if frame.stack.crosses else 2 * n - 1
    zeros = partial(np.zeros, dtype=weights.dtype)
    mass, sink_mass, best, best_any = (zeros(shape) for _ in range(4))
    keys, any_keys = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    columns, diagonals = zeros((*shape[:2], 4, m)), zeros((*shape[:2], 3, width))
    found = mass, sink_mass, best, keys, best_any, any_keys, columns, diagonals
    rows = frame.rows.squeeze(1)
    masks = [part.numpy() for part in (scope.mask.squeeze(1), rows, frame.words)]
    _in_threads(_row_loop, weights, *masks, frame.lengths, *found)
    return RowSums(*map(torch.from_numpy, found))


def word_sums(attention: torch.Tensor, scope: Scope) -> WordSums:
    """The same as `headbook.plain.word_sums`."""
    frame, weights = scope.frame, attention.numpy()
    n_from, n_to = frame.queries.n_words, frame.keys.n_words
    shape = (*weights.shape[:2], n_from)
    own, best = np.zeros(shape, weights.dtype), np.zeros(shape, weights.dtype)
    found = own, best, np.zeros(shape, np.int64)
    room = np.zeros((len(weights), n_from, n_to + 1), weights.dtype)
    of_key = frame.keys.word.masked_fill(frame.keys.word == NO_WORD, n_to)
    tables = (scope.mask.squeeze(1), frame.words, frame.queries.word, of_key)
    arrays = [part.numpy() for part in tables]
    same = not frame.stack.crosses
    _in_threads(_word_loop, weights, *arrays, frame.lengths, same, *found, room)
    return WordSums(*map(torch.from_numpy, found))


def pair_sums(attention: torch.Tensor, left: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """The same as `headbook.plain.pair_sums`."""
    weights = attention.flatten(2).numpy()
    sums = np.zeros((*weights.shape[:2], 3, pairs.counts.shape[2]), weights.dtype)
    _in_threads(_pair_loop, weights, left.numpy(), *(part.numpy() for part in pairs), sums)
    return torch.from_numpy(sums).movedim(2, 0)


def label_sums(
    n: Floats, shared: Floats, own: Floats, of: Ints, half: Ints
) -> tuple[Floats, Floats]:
    """Sums over sentences of numerators, of their squares and of their products with denominators.

    Args:
        n: *Shape:* ``(sentence, head, label)``.
        shared, own: denominators of all heads and of each. *Shape:* ``(sentence, column)`` and
            ``(sentence, head, column)``.
        of: the column of each label in ``shared`` and, after it, ``own``.
        half: 0 or 1 for each sentence.

    Returns:
        Of each head, *Shape:* ``(3, 2, head, label)``, and of the heads added up, as one,
        ``(3, 2, label)``.
    """
    heads = np.zeros((3, 2, n.shape[1], len(of)))
    layer = np.zeros((3, 2, len(of)))
    _share_out(partial(_label_loop, n, shared, own, of, half, heads, layer), len(of))
    return heads, layer


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; the one that asks works, too."""
    return ThreadPoolExecutor(n_threads - 1, thread_name_prefix="headbook")
