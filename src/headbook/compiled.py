"""What `headbook.plain` sums up, by compiled loops: on the processor only, many times as fast.

Sentences are shared out among threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from headbook.frame import Pairs, Scope
from headbook.loops import Floats, Ints, label_loop, pair_loop, row_loop, word_loop
from headbook.plain import RowSums, WordSums
from headbook.tokens import NO_WORD


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
    _in_threads(row_loop, weights, *masks, frame.lengths, *found)
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
    _in_threads(word_loop, weights, *arrays, frame.lengths, same, *found, room)
    return WordSums(*map(torch.from_numpy, found))


def pair_sums(attention: torch.Tensor, left: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """The same as `headbook.plain.pair_sums`."""
    weights = attention.flatten(2).numpy()
    sums = np.zeros((*weights.shape[:2], 3, pairs.counts.shape[2]), weights.dtype)
    _in_threads(pair_loop, weights, left.numpy(), *(part.numpy() for part in pairs), sums)
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
    _share_out(partial(label_loop, n, shared, own, of, half, heads, layer), len(of))
    return heads, layer


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; the one that asks works, too."""
    return ThreadPoolExecutor(n_threads - 1, thread_name_prefix="headbook")
