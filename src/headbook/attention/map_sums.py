"""Sums over maps twice: as tensor operations for any device, and by compiled loops on the CPU.

`headbook.attention.map_sums` takes the same sums on the processor, many times as fast.

The loops release Python's lock, and each thread of a pool takes some of the sentences.
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
        mass: what each query gives to keys outside the sink; 0 where it is too small to divide by.
            *Shape:* ``(sentence, head, query)``.
        sink_mass: what it gives to the sink; the same shape.
        best, best_key: largest weight of each row outside the sink, and its key, the first of
            equals; the same shape.
        best_any, best_any_key: the same of all keys.
        columns: what each key receives: by token, by word, and both with renormalised rows.
            *Shape:* ``(sentence, head, 4, key)``.
        diagonals: mass at each offset, as it is, without the sink, and with renormalised rows;
            offset -(n-1) first. *Shape:* ``(sentence, head, 3, 2 n - 1)``; nothing for two texts.
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
    """Attention between words without the sink, to a word the sum, from a word the mean.

    Attributes:
        own: from each word to itself; 0 for two texts. *Shape:* ``(sentence, head, word)``.
        best, best_word: largest weight to any other word, and that word, the first of equals; for
            two texts to any word.
    """

    own: torch.Tensor
    best: torch.Tensor
    best_word: torch.Tensor


def torch_row_sums(attention: torch.Tensor, scope: ViewMask) -> RowSums:
    """Sum up rows, columns and diagonals.

    Args:
        attention: *Shape:* ``(sentence, head, query, key)``.
        scope: of the view without the sink.
    """
    frame = scope.frame
    weights, kept = attention * frame.rows.unsqueeze(-1), attention * scope.mask
    mass = kept.sum(-1)
    # What is too small to divide by counts as nothing.
    mass = mass.masked_fill(mass < torch.finfo(mass.dtype).tiny, 0)
    scale = 1 / mass.masked_fill(mass == 0, 1)
    by_token = frame.rows.expand_as(scale)
    by_word = frame.word_weights.unsqueeze(1).expand_as(scale)
    rows = [by_token, by_word, by_token * scale, by_word * scale]
    columns = torch.stack(rows, 2) @ weights
    maps = [weights, kept, kept * scale.unsqueeze(-1)]
    found = [] if frame.stack.crosses else [_diagonals(each) for each in maps]
    diagonals = torch.stack(found, 2) if found else mass.new_zeros(*mass.shape[:2], 3, 0)
    sink_mass = (weights - kept).sum(-1)
    return RowSums(mass, sink_mass, *kept.max(-1), *weights.max(-1), columns, diagonals)


def _diagonals(maps: torch.Tensor) -> torch.Tensor:
    """Sums along diagonals. *Shape:* ``(sentence, head, 2 n - 1)``."""
    sentences, heads, n, _ = maps.shape
    # Written into rows of 2n - 1 and read back in rows of 2n, each row stands one step further
    # left than the one above, so that a column holds a diagonal.
    flat = maps.new_zeros(sentences, heads, n * 2 * n)
    flat[..., : n * (2 * n - 1)].view(sentences, heads, n, 2 * n - 1)[..., n - 1 :] = maps
    return flat.view(sentences, heads, n, 2 * n).sum(2)[..., : 2 * n - 1]


def by_word(attention: torch.Tensor, scope: ViewMask) -> torch.Tensor:
    """Attention between words without the sink: to a word the sum, from a word the mean.

    *Shape:* ``(sentence, head, word, word)``; special tokens are no words.
    """
    kept = attention * scope.mask
    sentences, heads, n, m = kept.shape
    to_words = kept.reshape(sentences, heads * n, m) @ scope.frame.word_columns
    return scope.frame.word_rows.unsqueeze(1) @ to_words.view(sentences, heads, n, -1)


def torch_word_sums(attention: torch.Tensor, scope: ViewMask) -> WordSums:
    """The strongest of each word's weights to words."""
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
    """Mass on chosen pairs: as it is, without the sink, and renormalised.

    Args:
        mass: what each row is divided by where it is not 0. *Shape:* ``(sentence, head, query)``.

    Returns:
        *Shape:* ``(3, sentence, head, measure)``.
    """
    heads = attention.shape[1]
    at = attention.flatten(2).gather(-1, pairs.place.unsqueeze(1).expand(-1, heads, -1))
    left = mass.masked_fill(mass == 0, 1)
    scaled = at / left.gather(-1, pairs.query.unsqueeze(1).expand(-1, heads, -1))
    return torch.stack([at @ pairs.counts, at @ pairs.kept, scaled @ pairs.kept])


WORTH_IT = 1 << 20  # numbers below which starting threads takes longer than reading them


class LoopTask(NamedTuple):
    """A loop over sentences and what it takes: arrays with a sentence each, flags and numbers."""

    loop: Callable[..., None]
    parts: tuple[Any, ...]


class LayerSums(NamedTuple):
    """Sums of several layers, the heads of one beside those of the other.

    Attributes:
        on: for each table of pairs.
    """

    rows: RowSums
    words: WordSums
    on: list[torch.Tensor]


def numba_row_sums(attention: torch.Tensor, scope: ViewMask) -> RowSums:
    """The same as `headbook.attention.map_sums.torch_row_sums`."""
    tasks, found = _rows([attention], scope)
    _run(tasks)
    return found


def numba_word_sums(attention: torch.Tensor, scope: ViewMask) -> WordSums:
    """The same as `headbook.attention.map_sums.torch_word_sums`."""
    tasks, found = _words([attention], scope)
    _run(tasks)
    return found


def numba_pair_sums(
    attention: torch.Tensor, mass: torch.Tensor, pairs: QueryKeyPairs
) -> torch.Tensor:
    """The same as `headbook.attention.map_sums.torch_pair_sums`."""
    tasks, found = _pairs([attention], mass, pairs)
    _run(tasks)
    return found


def layer_sums(
    layers: Sequence[torch.Tensor], scope: ViewMask, pairs: Sequence[QueryKeyPairs]
) -> LayerSums:
    """Return the sums of rows, words and pairs for several layers in one pass of the threads."""
    of_rows, rows = _rows(layers, scope)
    of_words, words = _words(layers, scope)
    of_pairs = [_pairs(layers, rows.mass, pair) for pair in pairs]
    tasks = [of_rows, of_words, *(tasks for tasks, _ in of_pairs)]
    # Layer by layer, while its maps are at hand.
    _run([task for of_layer in zip(*tasks, strict=True) for task in of_layer])
    return LayerSums(rows, words, [found for _, found in of_pairs])


def _rows(layers: Sequence[torch.Tensor], scope: ViewMask) -> tuple[list[LoopTask], RowSums]:
    frame, (n_sentences, _, n, m) = scope.frame, layers[0].shape
    shape = (n_sentences, sum(weights.shape[1] for weights in layers), n)
    width = 0 if frame.stack.crosses else 2 * n - 1
    zeros = partial(np.zeros, dtype=layers[0].numpy().dtype)
    mass, sink_mass, best, best_any = (zeros(shape) for _ in range(4))
    keys, any_keys = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    columns, diagonals = zeros((*shape[:2], 4, m)), zeros((*shape[:2], 3, width))
    found = mass, sink_mass, best, keys, best_any, any_keys, columns, diagonals
    tables = (scope.mask.squeeze(1), frame.rows.squeeze(1), frame.word_weights)
    masks = [part.numpy() for part in tables]
    tasks = [
        LoopTask(row_loop, (weights, *masks, frame.lengths, *found, first))
        for first, weights in _placed(layers)
    ]
    return tasks, RowSums(*map(torch.from_numpy, found))


def _words(layers: Sequence[torch.Tensor], scope: ViewMask) -> tuple[list[LoopTask], WordSums]:
    frame, dtype = scope.frame, layers[0].numpy().dtype
    n_from, n_to = frame.queries.n_words, frame.keys.n_words
    shape = (len(layers[0]), sum(weights.shape[1] for weights in layers), n_from)
    found = np.zeros(shape, dtype), np.zeros(shape, dtype), np.zeros(shape, np.int64)
    work = np.zeros((shape[0], n_from, n_to + 1), dtype)
    of_key = frame.keys.word.masked_fill(frame.keys.word == NO_WORD, n_to)
    tables = (scope.mask.squeeze(1), frame.word_weights, frame.queries.word, of_key)
    arrays = [part.numpy() for part in tables]
    same = not frame.stack.crosses
    tasks = [
        LoopTask(word_loop, (weights, *arrays, frame.lengths, same, *found, work, first))
        for first, weights in _placed(layers)
    ]
    return tasks, WordSums(*map(torch.from_numpy, found))


def _pairs(
    layers: Sequence[torch.Tensor], mass: torch.Tensor, pairs: QueryKeyPairs
) -> tuple[list[LoopTask], torch.Tensor]:
    tables = [part.numpy() for part in pairs]
    sums = np.zeros((*mass.shape[:2], 3, pairs.counts.shape[2]), mass.numpy().dtype)
    tasks = [
        LoopTask(
            pair_loop, (weights.reshape(*weights.shape[:2], -1), mass.numpy(), *tables, sums, first)
        )
        for first, weights in _placed(layers)
    ]
    return tasks, torch.from_numpy(sums).movedim(2, 0)


def _placed(layers: Sequence[torch.Tensor]) -> Iterator[tuple[int, Floats]]:
    """The maps of each layer, and where its heads stand among those of all."""
    first = 0
    for weights in layers:
        yield first, weights.numpy()
        first += weights.shape[1]


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
    """Sums over sentences of numerators, squares and products with denominators, and of 1.

    The last counts the sentences whose numerator is not 0.

    Args:
        n: *Shape:* ``(sentence, head, label)``.
        shared, own: denominators of all heads and of each. *Shape:* ``(sentence, column)`` and
            ``(sentence, head, column)``.
        of: the column of each label in ``shared`` and, after it, ``own``.
        half: 0 or 1 for each sentence.
        starts: the first head of each layer, and the number of heads.

    Returns:
        Of each head, *Shape:* ``(4, 2, head, label)``, and of the heads of each layer added up,
        as one, ``(4, 2, layer, label)``.
    """
    heads = np.zeros((4, 2, n.shape[1], len(of)))
    layers = np.zeros((4, 2, len(starts) - 1, len(of)))
    n_shared = shared.shape[1]
    labels = np.flatnonzero(of >= n_shared)
    by_label = np.take(shared, np.minimum(of, n_shared - 1), 1)  # rows in one piece, unlike [:, ..]
    by_label[:, labels] = 0
    places = (by_label, own, labels, of[labels] - n_shared)

    def run(first_head: int, last_head: int) -> None:
        first, last = np.searchsorted(starts, (first_head, last_head))
        label_loop(n, *places, half, starts, heads, layers, first, last)

    _share_out(run, n.shape[1], n.size)
    return heads, layers


def _run(tasks: Sequence[LoopTask]) -> None:
    """Run loops one after the other, on some of the sentences in each thread."""

    def run(first: int, last: int) -> None:
        for loop, parts in tasks:
            loop(*(part if isinstance(part, int) else part[first:last] for part in parts))

    size = len(tasks[0].parts[0])
    _share_out(run, size, sum(task.parts[0].size for task in tasks))


def _share_out(run: Callable[[int, int], None], size: int, work: int) -> None:
    """Run on equal parts of a range, one in each of torch's number of threads.

    Args:
        run: takes the first number of a part and the one behind its last.
        size: length of the range, such as a number of sentences.
        work: how many numbers are read; with few of them one thread reads all.
    """
    n_threads = min(torch.get_num_threads(), size) if work > WORTH_IT else 1
    if n_threads <= 1:
        run(0, size)
        return
    ends = [size * number // n_threads for number in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads, "headbook") as pool:
        list(pool.map(run, ends[:-1], ends[1:]))  # raises what a thread has raised
