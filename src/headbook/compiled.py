"""What `headbook.plain` sums up, by compiled loops: on the processor only, many times as fast.

Sentences are shared out among threads.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from headbook.frame import Pairs, Scope
from headbook.loops import Floats, Ints, label_loop, pair_loop, power_loop, row_loop, word_loop
from headbook.plain import RowSums, WordSums
from headbook.tokens import NO_WORD


class Task(NamedTuple):
    """A loop over sentences and what it takes: arrays with a sentence each, or flags."""

    loop: Callable[..., None]
    parts: tuple[Any, ...]


def row_sums(attention: torch.Tensor, scope: Scope) -> RowSums:
    """The same as `headbook.plain.row_sums`."""
    task, found = _rows(attention, scope)
    _run([task])
    return found


def word_sums(attention: torch.Tensor, scope: Scope) -> WordSums:
    """The same as `headbook.plain.word_sums`."""
    task, found = _words(attention, scope)
    _run([task])
    return found


def pair_sums(attention: torch.Tensor, mass: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """The same as `headbook.plain.pair_sums`."""
    task, found = _pairs(attention, mass, pairs)
    _run([task])
    return found


def layer_sums(
    layers: Sequence[torch.Tensor], scope: Scope, pairs: Sequence[Pairs]
) -> list[tuple[RowSums, WordSums, list[torch.Tensor]]]:
    """All three for several layers; threads are asked but once."""
    tasks, found = [], []
    for attention in layers:
        rows_task, rows = _rows(attention, scope)
        words_task, words = _words(attention, scope)
        on = [_pairs(attention, rows.mass, each) for each in pairs]
        tasks += [rows_task, words_task, *(task for task, _ in on)]
        found.append((rows, words, [sums for _, sums in on]))
    _run(tasks)
    return found


def _rows(attention: torch.Tensor, scope: Scope) -> tuple[Task, RowSums]:
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
    task = Task(row_loop, (weights, *masks, frame.lengths, *found))
    return task, RowSums(*map(torch.from_numpy, found))


def _words(attention: torch.Tensor, scope: Scope) -> tuple[Task, WordSums]:
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
    task = Task(word_loop, (weights, *arrays, frame.lengths, same, *found, room))
    return task, WordSums(*map(torch.from_numpy, found))


def _pairs(attention: torch.Tensor, mass: torch.Tensor, pairs: Pairs) -> tuple[Task, torch.Tensor]:
    weights = attention.flatten(2).numpy()
    sums = np.zeros((*weights.shape[:2], 3, pairs.counts.shape[2]), weights.dtype)
    task = Task(pair_loop, (weights, mass.numpy(), *(part.numpy() for part in pairs), sums))
    return task, torch.from_numpy(sums).movedim(2, 0)


def power_sums(d: Floats, half: Ints) -> Floats:
    """Sums over the sentences of each half: of values, of squares, and of 1 where not 0.

    Args:
        d: *Shape:* ``(sentence, head, column)``.
        half: 0 or 1 for each sentence.

    Returns:
        *Shape:* ``(3, 2, head, column)``.
    """
    sums = np.zeros((3, 2, *d.shape[1:]))
    power_loop(d, half, sums)
    return sums


def label_sums(
    n: Floats, shared: Floats, own: Floats, of: Ints, half: Ints, starts: Ints
) -> tuple[Floats, Floats]:
    """Sums over sentences of numerators, of their squares and of their products with denominators.

    Args:
        n: *Shape:* ``(sentence, head, label)``.
        shared, own: denominators of all heads and of each. *Shape:* ``(sentence, column)`` and
            ``(sentence, head, column)``.
        of: the column of each label in ``shared`` and, after it, ``own``.
        half: 0 or 1 for each sentence.
        starts: the first head of each layer, and the number of heads.

    Returns:
        Of each head, *Shape:* ``(3, 2, head, label)``, and of the heads of each layer added up,
        as one, ``(3, 2, layer, label)``.
    """
    heads = np.zeros((3, 2, n.shape[1], len(of)))
    layers = np.zeros((3, 2, len(starts) - 1, len(of)))
    _share_out(partial(label_loop, n, shared, own, of, half, starts, heads, layers), len(of))
    return heads, layers


def _run(tasks: Sequence[Task]) -> None:
    """Run loops one after the other, on some of the sentences in each thread."""

    def run(first: int, last: int) -> None:
        for loop, parts in tasks:
            loop(*(part if isinstance(part, bool) else part[first:last] for part in parts))

    _share_out(run, len(tasks[0].parts[0]))


def _share_out(run: Callable[[int, int], None], size: int) -> None:
    """Run from each thread's first to its last of ``size``."""
    n_threads = min(torch.get_num_threads(), max(size, 1))
    ends = [size * number // n_threads for number in range(n_threads + 1)]
    others = [_pool(n_threads).submit(run, *pair) for pair in pairwise(ends[1:])]
    run(0, ends[1])
    for other in others:
        other.result()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; the one that asks works, too."""
    return ThreadPoolExecutor(n_threads - 1, thread_name_prefix="headbook")
