r"""Sums over attention maps, as tensor operations for any device and as compiled loops on the CPU.

The loops compute the same sums many times as fast. They release Python's lock, and each thread of a
pool takes a part of the sentences.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from headbook.attention.map_loops import (
    Floats,
    Ints,
    label_loop,
    pair_loop,
    power_loop,
    row_loop,
    word_loop,
)
from headbook.attention.masks import QueryKeyPairs, ViewMask
from headbook.text.tokens import NO_WORD


class RowSums(NamedTuple):
    """Sums of rows, columns and diagonals of one layer's maps.

    Attributes:
        mass: attention of each query on keys outside the sink; 0 if too small to divide by.
            *Shape:* ``(sentence, head, query)``.
        sink_mass: attention of each query on the sink. *Shape:* ``(sentence, head, query)``.
        best, best_key: largest weight of each row outside the sink, and its key, the first of
            equals. *Shape:* ``(sentence, head, query)``.
        best_any, best_any_key: largest weight of each row over all keys, and its key. *Shape:*
            ``(sentence, head, query)``.
        columns: attention received by each key, summed by token and by word, then both with
            renormalised rows. *Shape:* ``(sentence, head, 4, key)``.
        diagonals: mass at each offset, raw, without the sink, and with renormalised rows; offset
            -(n-1) first. *Shape:* ``(sentence, head, 3, 2 n - 1)``; 0 offsets for two texts.
    """

    mass: torch.Tensor
    sink_mass: torch.Tensor
    best: torch.Tensor
    best_key: torch.Tensor
    best_any: torch.Tensor
    best_any_key: torch.Tensor
    columns: torch.Tensor
    diagonals: torch.Tensor


class WordSums(NamedTuple):
    """Attention between words without the sink: summed over key pieces, averaged over query pieces.

    Attributes:
        own: attention of each word to itself; 0 for two texts. *Shape:* ``(sentence, head, word)``.
        best, best_word: largest weight to any other word (for two texts to any word), and that
            word, the first of equals. *Shape:* ``(sentence, head, word)``.
    """

    own: torch.Tensor
    best: torch.Tensor
    best_word: torch.Tensor


def torch_row_sums(attention: torch.Tensor, scope: ViewMask) -> RowSums:
    """Return the sums of rows, columns and diagonals, by tensor operations.

    Args:
        attention: weights of one layer. *Shape:* ``(sentence, head, query, key)``.
        scope: mask of the view without the sink.
    """
    frame = scope.frame
    weights, kept = attention * frame.rows.unsqueeze(-1), attention * scope.mask
    mass = kept.sum(-1)
    # A mass too small to divide by counts as 0.
    mass = mass.masked_fill(mass < torch.finfo(mass.dtype).tiny, 0)
    scale = 1 / mass.masked_fill(mass == 0, 1)
    by_token = frame.rows.expand_as(scale)
    by_word = frame.word_weights.unsqueeze(1).expand_as(scale)
    rows = [by_token, by_word, by_token * scale, by_word * scale]
    columns = torch.stack(rows, 2) @ weights
    view_maps = [weights, kept, kept * scale.unsqueeze(-1)]
    tables = [] if frame.stack.crosses else [_diagonals(table) for table in view_maps]
    diagonals = torch.stack(tables, 2) if tables else mass.new_zeros(*mass.shape[:2], 3, 0)
    sink_mass = (weights - kept).sum(-1)
    return RowSums(mass, sink_mass, *kept.max(-1), *weights.max(-1), columns, diagonals)


def _diagonals(maps: torch.Tensor) -> torch.Tensor:
    """Return the sums along diagonals. *Shape:* ``(sentence, head, 2 n - 1)``."""
    sentences, heads, n, _ = maps.shape
    # Written into rows of 2n - 1 and read back in rows of 2n, each row is shifted by one against
    # the row above, so that a column holds a diagonal.
    flat = maps.new_zeros(sentences, heads, n * 2 * n)
    flat[..., : n * (2 * n - 1)].view(sentences, heads, n, 2 * n - 1)[..., n - 1 :] = maps
    return flat.view(sentences, heads, n, 2 * n).sum(2)[..., : 2 * n - 1]


def by_word(attention: torch.Tensor, scope: ViewMask) -> torch.Tensor:
    """Return attention between words without the sink: key pieces summed, query pieces averaged.

    *Shape:* ``(sentence, head, word, word)``; special tokens belong to no word.
    """
    kept = attention * scope.mask
    sentences, heads, n, m = kept.shape
    to_words = kept.reshape(sentences, heads * n, m) @ scope.frame.word_columns
    return scope.frame.word_rows.unsqueeze(1) @ to_words.view(sentences, heads, n, -1)


def torch_word_sums(attention: torch.Tensor, scope: ViewMask) -> WordSums:
    """Return the strongest attention of each word to words, by tensor operations."""
    words = by_word(attention, scope)
    if scope.frame.stack.crosses:
        best, place = words.max(-1)
        return WordSums(torch.zeros_like(best), best, place)
    own = words.diagonal(dim1=-2, dim2=-1).clone()
    words.diagonal(dim1=-2, dim2=-1).zero_()
    return WordSums(own, *words.max(-1))


def torch_pair_sums(
    attention: torch.Tensor, mass: torch.Tensor, pairs: QueryKeyPairs
) -> torch.Tensor:
    """Return the mass on chosen pairs, raw, without the sink, and renormalised, by tensors.

    Args:
        mass: divisor of each row, unless it is 0. *Shape:* ``(sentence, head, query)``.

    Returns:
        *Shape:* ``(3, sentence, head, measure)``.
    """
    heads = attention.shape[1]
    pair_weights = attention.flatten(2).gather(-1, pairs.place.unsqueeze(1).expand(-1, heads, -1))
    divisor = mass.masked_fill(mass == 0, 1)
    scaled = pair_weights / divisor.gather(-1, pairs.query.unsqueeze(1).expand(-1, heads, -1))
    raw, nosink = pair_weights @ pairs.counts, pair_weights @ pairs.kept
    return torch.stack([raw, nosink, scaled @ pairs.kept])


MIN_THREADED_NUMBERS = 1 << 20  # for fewer, starting threads takes longer than the loop


class LoopTask(NamedTuple):
    """A loop over sentences with its arguments: arrays by sentence, flags and numbers."""

    loop: Callable[..., None]
    arguments: tuple[Any, ...]


class LayerSums(NamedTuple):
    """Sums of several layers, with the heads of all layers side by side.

    Attributes:
        rows: sums of rows, columns and diagonals.
        words: sums between words.
        pairs: mass on chosen pairs, for each table of pairs.
    """

    rows: RowSums
    words: WordSums
    pairs: list[torch.Tensor]


def numba_row_sums(attention: torch.Tensor, scope: ViewMask) -> RowSums:
    """Return the sums of rows, columns and diagonals, by compiled loops."""
    tasks, sums = _row_tasks([attention], scope)
    _run_tasks(tasks)
    return sums


def numba_word_sums(attention: torch.Tensor, scope: ViewMask) -> WordSums:
    """Return the strongest attention of each word to words, by compiled loops."""
    tasks, sums = _word_tasks([attention], scope)
    _run_tasks(tasks)
    return sums


def numba_pair_sums(
    attention: torch.Tensor, mass: torch.Tensor, pairs: QueryKeyPairs
) -> torch.Tensor:
    """Return the mass on chosen pairs, raw, without the sink, and renormalised, by loops."""
    tasks, sums = _pair_tasks([attention], mass, pairs)
    _run_tasks(tasks)
    return sums


def layer_sums(
    layers: Sequence[torch.Tensor], scope: ViewMask, pairs: Sequence[QueryKeyPairs]
) -> LayerSums:
    """Return the sums of rows, words and pairs for several layers in one pass of the threads."""
    row_tasks, rows = _row_tasks(layers, scope)
    word_tasks, words = _word_tasks(layers, scope)
    pair_results = [_pair_tasks(layers, rows.mass, chosen) for chosen in pairs]
    tasks = [row_tasks, word_tasks, *(tasks for tasks, _ in pair_results)]
    # All sums of a layer, then the next layer, so that its maps stay in the cache.
    _run_tasks([task for of_layer in zip(*tasks, strict=True) for task in of_layer])
    return LayerSums(rows, words, [sums for _, sums in pair_results])


def _row_tasks(layers: Sequence[torch.Tensor], scope: ViewMask) -> tuple[list[LoopTask], RowSums]:
    """Return a task for each layer, and the sums of rows, columns and diagonals that they fill."""
    frame, (n_sentences, _, n, m) = scope.frame, layers[0].shape
    shape = (n_sentences, sum(weights.shape[1] for weights in layers), n)
    width = 0 if frame.stack.crosses else 2 * n - 1
    zeros = partial(np.zeros, dtype=layers[0].numpy().dtype)
    mass, sink_mass, best, best_any = (zeros(shape) for _ in range(4))
    keys, any_keys = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    columns, diagonals = zeros((*shape[:2], 4, m)), zeros((*shape[:2], 3, width))
    results = mass, sink_mass, best, keys, best_any, any_keys, columns, diagonals
    mask_tensors = (scope.mask.squeeze(1), frame.rows.squeeze(1), frame.word_weights)
    masks = [tensor.numpy() for tensor in mask_tensors]
    tasks = [
        LoopTask(row_loop, (weights, *masks, frame.lengths, *results, first))
        for first, weights in _by_first_head(layers)
    ]
    return tasks, RowSums(*map(torch.from_numpy, results))


def _word_tasks(layers: Sequence[torch.Tensor], scope: ViewMask) -> tuple[list[LoopTask], WordSums]:
    """Return a task for each layer, and the sums between words that the tasks fill."""
    frame, dtype = scope.frame, layers[0].numpy().dtype
    n_from, n_to = frame.queries.n_words, frame.keys.n_words
    shape = (len(layers[0]), sum(weights.shape[1] for weights in layers), n_from)
    results = np.zeros(shape, dtype), np.zeros(shape, dtype), np.zeros(shape, np.int64)
    scratch = np.zeros((shape[0], n_from, n_to + 1), dtype)
    of_key = frame.keys.word.masked_fill(frame.keys.word == NO_WORD, n_to)
    token_tensors = (scope.mask.squeeze(1), frame.word_weights, frame.queries.word, of_key)
    arrays = [tensor.numpy() for tensor in token_tensors]
    one_text = not frame.stack.crosses
    tasks = [
        LoopTask(word_loop, (weights, *arrays, frame.lengths, one_text, *results, scratch, first))
        for first, weights in _by_first_head(layers)
    ]
    return tasks, WordSums(*map(torch.from_numpy, results))


def _pair_tasks(
    layers: Sequence[torch.Tensor], mass: torch.Tensor, pairs: QueryKeyPairs
) -> tuple[list[LoopTask], torch.Tensor]:
    """Return a task for each layer, and the mass on chosen pairs that the tasks fill."""
    pair_arrays = [tensor.numpy() for tensor in pairs]
    sums = np.zeros((*mass.shape[:2], 3, pairs.counts.shape[2]), mass.numpy().dtype)
    tasks = []
    for first, weights in _by_first_head(layers):
        flat = weights.reshape(*weights.shape[:2], -1)
        tasks.append(LoopTask(pair_loop, (flat, mass.numpy(), *pair_arrays, sums, first)))
    return tasks, torch.from_numpy(sums).movedim(2, 0)


def _by_first_head(layers: Sequence[torch.Tensor]) -> Iterator[tuple[int, Floats]]:
    """Yield the index of each layer's first head among all heads, and the layer's maps."""
    first = 0
    for weights in layers:
        yield first, weights.numpy()
        first += weights.shape[1]


def power_sums(d: Floats, split: Ints) -> Floats:
    """Sum values, squares and non-zeros over the sentences of each split.

    Args:
        d: values. *Shape:* ``(sentence, head, column)``.
        split: split of each sentence, 0 or 1.

    Returns:
        *Shape:* ``(3, 2, head, column)``.
    """
    sums = np.zeros((3, 2, *d.shape[1:]))
    power_loop(d, split, sums)
    return sums


def label_sums(
    n: Floats, shared: Floats, own_d: Floats, columns: Ints, split: Ints, starts: Ints
) -> tuple[Floats, Floats]:
    """Sum numerators, squares, products with denominators and non-zeros over sentences.

    Args:
        n: numerators. *Shape:* ``(sentence, head, label)``.
        shared: denominators that all heads share. *Shape:* ``(sentence, column)``.
        own_d: denominators of each head. *Shape:* ``(sentence, head, column)``.
        columns: column of each label in the columns of ``shared`` followed by those of ``own_d``.
        split: split of each sentence, 0 or 1.
        starts: first head of each layer, then the number of heads.

    Returns:
        Sums of each head, *Shape:* ``(4, 2, head, label)``, and sums of the heads of each layer
        taken as one head, *Shape:* ``(4, 2, layer, label)``.
    """
    heads = np.zeros((4, 2, n.shape[1], len(columns)))
    layers = np.zeros((4, 2, len(starts) - 1, len(columns)))
    n_shared = shared.shape[1]
    labels = np.flatnonzero(columns >= n_shared)
    by_label = np.take(shared, np.minimum(columns, n_shared - 1), 1)  # contiguous, unlike [:, ..]
    by_label[:, labels] = 0
    arguments = (by_label, own_d, labels, columns[labels] - n_shared)

    def sum_heads(first_head: int, last_head: int) -> None:
        first, last = np.searchsorted(starts, (first_head, last_head))
        label_loop(n, *arguments, split, starts, heads, layers, first, last)

    _run_in_threads(sum_heads, n.shape[1], n.size)
    return heads, layers


def _run_tasks(tasks: Sequence[LoopTask]) -> None:
    """Run loops one after the other, each thread on a part of the sentences."""

    def run(first: int, last: int) -> None:
        for loop, arguments in tasks:
            loop(*(a if isinstance(a, int) else a[first:last] for a in arguments))

    size = len(tasks[0].arguments[0])
    _run_in_threads(run, size, sum(task.arguments[0].size for task in tasks))


def _run_in_threads(run: Callable[[int, int], None], size: int, work: int) -> None:
    """Split a range into equal parts, one for each of torch's threads, and run on them.

    Args:
        run: function of the start and the end of a part.
        size: length of the range, such as a number of sentences.
        work: number of values that are read; one thread runs the whole range if there are at
            most `MIN_THREADED_NUMBERS`.
    """
    n_threads = min(torch.get_num_threads(), size) if work > MIN_THREADED_NUMBERS else 1
    if n_threads <= 1:
        run(0, size)
        return
    ends = [size * number // n_threads for number in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads, "headbook") as pool:
        list(pool.map(run, ends[:-1], ends[1:]))  # the list re-raises errors of threads
