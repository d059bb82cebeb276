"""Phrase trees from attention, after Mareček & Rosa (2019, arXiv:1906.01958).

Where several neighbouring words look most at the same word, they make a candidate phrase. The
candidates of one head, or of several heads together, choose the best binary tree, and its brackets
are compared with the phrases that a dependency tree implies.

A tree is a table of its brackets: ``tree[..., a, b]`` says whether the words a to b, both included,
are a bracket. Single words and the whole sentence are in every tree; they are no brackets here, and
no table has them. So a binary tree of n ≥ 2 words has n − 2 brackets, and 1 or 2 words have none.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats

T = TypeVar("T", bound=np.generic)
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

# Splits whose scores differ by less are equal, so that rounding decides nothing.
TOLERANCE = 1e-9


def phrase_scores(attention: Floats) -> Floats:
    """How strongly each head, alone, holds each span together.

    A row keeps the cells equal to its maximum, an all-zero row none. A phrase is a maximal run of
    such cells down a column; it counts the mean weight of the run, and the runs of a span in
    several columns add. Runs of one row score single words: these are no brackets, but they weigh
    in the choice of the tree, as in the authors' code.

    Scores of several heads add to their joint score; `equalised` comes after.

    Args:
        attention: from word to word, not negative, sinks already set to 0, padding too.
            *Shape:* ``(..., word, word)``.

    Returns:
        Scores of the spans a to b, 0 where there is none. *Shape:* ``(..., word, word)``.
    """
    if not attention.size:
        return np.zeros(attention.shape)
    kept = (attention == attention.max(-1, keepdims=True)) & (attention > 0)
    n_words = attention.shape[-1]
    columns = kept.swapaxes(-1, -2).reshape(-1, n_words)  # (head * column, row)
    edges = np.diff(columns, axis=1, prepend=False, append=False)
    # Within a column, edges alternate: the first row of a run, then the row after its last.
    column, row = (found.reshape(-1, 2) for found in np.nonzero(edges))
    first, after = row[:, 0], row[:, 1]
    weights = attention.swapaxes(-1, -2).reshape(-1, n_words)[columns]
    length = after - first
    means = np.add.reduceat(weights, np.cumsum(length) - length) / length
    span = (column[:, 0] // n_words * n_words + first) * n_words + after - 1
    scores = np.zeros(attention.size)
    np.add.at(scores, span, means)
    return scores.reshape(attention.shape)


def equalised(scores: Floats) -> Floats:
    """Scores whose mean is 1 over the phrases found, those above 0, of each length and table.

    *Shape:* ``(..., word, word)``, like ``scores``.
    """
    lines = _by_length(scores)
    count = (lines > 0).sum(-1, keepdims=True)
    total = lines.sum(-1, keepdims=True)
    return _by_span(np.divide(lines * count, total, out=np.zeros_like(lines), where=total > 0))


def best_trees(
    scores: Floats, lengths: NDArray[np.integer] | None = None, *, late: bool = False
) -> Flags:
    """The best binary tree under each table of phrase scores w, by the algorithm of CKY.

    A span a to b scores s_ab = max_k (s_ak + s_k+1,b + w_ak + w_k+1,b) / 4, a single word 1.

    Equal splits are common, for a stretch without any phrase scores the same from both ends. The
    earliest split wins, which makes such a stretch branch to the right; with ``late``, as in the
    authors' code, the latest, which makes it branch to the left.

    Args:
        scores: equalised scores. *Shape:* ``(..., word, word)``.
        lengths: words of each sentence, the rest being padding; by default all. *Shape:* broadcast
            to ``(...)``.
        late: which of several equal splits wins.

    Returns:
        Brackets. *Shape:* ``(..., word, word)``.
    """
    if not scores.size:
        return np.zeros(scores.shape, dtype=bool)
    n_words = scores.shape[-1]
    splits = _splits(_by_length(scores.reshape(-1, n_words, n_words)), late=late)
    counts = np.broadcast_to(n_words if lengths is None else lengths, scores.shape[:-2]).ravel()
    found = np.zeros(splits.shape, dtype=bool)
    tables = np.flatnonzero(counts > 0)
    found[tables, counts[tables] - 1, 0] = True
    for reach in range(n_words - 1, 0, -1):
        table, start = np.nonzero(found[:, reach])
        left = splits[table, reach, start]
        found[table, left, start] = True
        found[table, reach - 1 - left, start + left + 1] = True
    found[tables, counts[tables] - 1, 0] = False
    found[:, :1] = False
    return _by_span(found).reshape(scores.shape)


def gold_phrases(heads: Indices) -> Flags:
    """Brackets that a dependency tree implies: a word with everything below it.

    Only what stands together counts; the scattered words below the head of a crossing edge are no
    bracket. Words that head each other in a circle, which is no tree, count with all of the circle.

    Args:
        heads: index of each word's head, negative for a root. *Shape:* ``(word,)``.

    Returns:
        Brackets. *Shape:* ``(word, word)``.
    """
    n_words = len(heads)
    brackets = np.zeros((n_words, n_words), dtype=bool)
    if not n_words:
        return brackets
    below = np.eye(n_words, dtype=bool)  # (word, word below it)
    word, above = np.arange(n_words), heads
    for _ in range(n_words):
        word, above = word[above >= 0], above[above >= 0]
        below[above, word] = True
        above = heads[above]
    count = below.sum(1)
    first, last = below.argmax(1), n_words - 1 - below[:, ::-1].argmax(1)
    phrase = (last - first + 1 == count) & (count > 1) & (count < n_words)
    brackets[first[phrase], last[phrase]] = True
    return brackets


def bracket_counts(tree: Flags, gold: Flags) -> tuple[Indices, Indices, Indices]:
    """Brackets in both, in the tree, in the gold tree; F1 = 2 · first / (second + third).

    Counts are summed over sentences before the division.

    Args:
        tree: brackets. *Shape:* ``(..., word, word)``.
        gold: gold brackets. *Shape:* broadcast to ``(..., word, word)``.

    Returns:
        Three counts. *Shape:* ``(...)`` each.
    """
    gold = np.broadcast_to(gold, tree.shape)
    return (tree & gold).sum((-1, -2)), tree.sum((-1, -2)), gold.sum((-1, -2))


def right_branching(n_words: int) -> Flags:
    """The tree that splits off the first word each time. *Shape:* ``(word, word)``."""
    brackets = np.zeros((n_words, n_words), dtype=bool)
    brackets[1 : n_words - 1, n_words - 1 :] = True
    return brackets


def left_branching(n_words: int) -> Flags:
    """The tree that splits off the last word each time. *Shape:* ``(word, word)``."""
    brackets = np.zeros((n_words, n_words), dtype=bool)
    brackets[:1, 1 : n_words - 1] = True
    return brackets


def balanced(n_words: int) -> Flags:
    """The tree that halves each span, the first half taking an odd word.

    *Shape:* ``(word, word)``.
    """
    brackets = np.zeros((n_words, n_words), dtype=bool)
    spans = [(0, n_words)]
    while spans:
        start, stop = spans.pop()
        if stop - start > 1:
            brackets[start, stop - 1] = stop - start < n_words
            middle = (start + stop + 1) // 2
            spans += [(start, middle), (middle, stop)]
    return brackets


def _splits(phrases: Floats, *, late: bool) -> Indices:
    """Where the best tree splits each span: how far the left part reaches beyond its first word.

    Args:
        phrases: by length, as from `_by_length`. *Shape:* ``(table, reach, start)``.
        late: which of several equal splits wins.

    Returns:
        *Shape:* ``(table, reach, start)``; 0 where no span is, or a single word.
    """
    n_words = phrases.shape[-1]
    splits = np.zeros(phrases.shape, dtype=np.int64)
    # The sum of s and w of each span, once at its first and once at its last word.
    by_start, by_end = np.zeros(phrases.shape), np.zeros(phrases.shape)
    by_start[:, :1] = by_end[:, :1] = 1 + phrases[:, :1]
    for reach in range(1, n_words):
        left, right = by_start[:, :reach, :-reach], by_end[:, reach - 1 :: -1, reach:]
        sums = left + right  # (table, reach of the left part, start)
        best = sums.max(1)
        equal = sums >= (best - TOLERANCE)[:, None]
        first = equal[:, ::-1].argmax(1) if late else equal.argmax(1)
        splits[:, reach, :-reach] = reach - 1 - first if late else first
        total = best / 4 + phrases[:, reach, :-reach]
        by_start[:, reach, :-reach] = by_end[:, reach, reach:] = total
    return splits


def _by_length(spans: NDArray[T]) -> NDArray[T]:
    """From ``[..., start, end]`` to ``[..., end - start, start]``, 0 where no span is."""
    start, end = np.triu_indices(spans.shape[-1])
    lines = np.zeros_like(spans)
    lines[..., end - start, start] = spans[..., start, end]
    return lines


def _by_span(lines: NDArray[T]) -> NDArray[T]:
    """From ``[..., end - start, start]`` to ``[..., start, end]``, 0 where no span is."""
    start, end = np.triu_indices(lines.shape[-1])
    spans = np.zeros_like(lines)
    spans[..., start, end] = lines[..., end - start, start]
    return spans
