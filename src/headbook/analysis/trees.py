r"""Trees from attention: maximum spanning trees of dependencies, phrase trees by CKY, baselines.

Dependency trees follow Raganato & Tiedemann (2018, https://aclanthology.org/W18-5431): the words of
a sentence are a complete weighted graph, the root of the gold tree is given, and the algorithm of
Chu & Liu (1965) and Edmonds (1967) finds the tree of the largest total weight. Edges are compared
with the gold tree regardless of direction, as in Htut et al. (2019, arXiv:1911.12246).

Dependency trees are arrays of heads: ``heads[..., i]`` is the index of word i's head, `NO_HEAD` for
a root and in the padding. All trees of a batch are built together, so that 12 heads cost little
more than one.

Neighbouring words that attend most to the same word form a candidate phrase. The candidates of one
head, or of several heads together, determine the best binary tree, and its brackets are compared
with the phrases that a dependency tree implies.

A phrase tree is a table of its brackets: ``tree[..., a, b]`` says whether the words a to b, both
included, are a bracket. Single words and the whole sentence are in every tree; they do not count as
brackets here, and no table contains them. So a binary tree of n ≥ 2 words has n − 2 brackets, and 1
or 2 words have none.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats

NO_HEAD = -1  # the same value as in `headbook.inputs`

Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Round:
    """The edge that entered each component before a round of contraction.

    Words and components are numbered through the batch; a component has the number of its first
    word.

    Attributes:
        labels: component of each word. *Shape:* ``(sentence * word,)``.
        components: components without a root. *Shape:* ``(component,)``.
        weights: weight of the best edge into each component. *Shape:* ``(component,)``.
        words, heads: word at which that edge ends, and at which it begins. *Shape:*
            ``(component,)``.
    """

    labels: Indices
    components: Indices
    weights: Floats
    words: Indices
    heads: Indices


def spanning_trees(
    weights: Floats, roots: Flags, lengths: NDArray[np.integer] | None = None
) -> Indices:
    """Return the heaviest tree over the words of each sentence, with given roots.

    With attention as ``weights``, a word attends to its head. Read strictly, the literature's
    "edges from the output token to the attended token" are of heads that attend to their
    dependents; pass the transposed attention for this direction.

    Several roots, as in an annotation of two sentences as one, give the heaviest forest with those
    roots. A word whose row is all zero has edges of weight 0. Among equal edges into a word the
    first head wins, and among equal edges into words of a contracted cycle the first word.

    Args:
        weights: weight of word j as the head of word i; finite, any sign. The diagonal and the rows
            of roots do not matter. *Shape:* ``(..., word, word)``.
        roots: which words are roots. *Shape:* broadcast to ``(..., word)``.
        lengths: number of words of each sentence, before the padding; by default all words.
            *Shape:* broadcast to ``(...)``.

    Returns:
        Heads. *Shape:* ``(..., word)``.

    Raises:
        ValueError: a sentence has words and no root.
    """
    *batch, n_words = weights.shape[:-1]
    shape = (*batch, n_words)
    counts = n_words if lengths is None else np.asarray(lengths)[..., None]
    inside = np.broadcast_to(np.arange(n_words) < counts, shape)
    is_root = np.broadcast_to(roots, shape)
    if not ((is_root & inside).any(-1) | ~inside.any(-1)).all():
        raise ValueError("a sentence without a root has no dependency tree")
    if not weights.size:
        return np.full(shape, NO_HEAD, dtype=np.int64)
    # Padding is made of roots that head nothing.
    excluded = (is_root | ~inside)[..., :, None] | ~inside[..., None, :]
    open_weights = np.where(excluded, -np.inf, weights).reshape(-1, n_words, n_words)
    heads = _expanded(_contracted(open_weights), open_weights.shape[0] * n_words)
    return np.where(heads < 0, NO_HEAD, heads % n_words).reshape(shape)


def undirected_matches(heads: Indices, gold: Indices) -> tuple[Indices, Indices]:
    """Count the edges that two trees share, regardless of direction.

    The undirected attachment score is the first number over the second, each summed over sentences.

    Args:
        heads: trees, or forests. *Shape:* ``(..., word)``.
        gold: gold heads. *Shape:* broadcast to ``(..., word)``.

    Returns:
        Edges of ``heads`` that are in ``gold``, and edges of ``gold``: one a word, roots and
        padding aside. *Shape:* ``(...)`` both.
    """
    gold = np.broadcast_to(gold, heads.shape)
    up = heads == gold
    # NO_HEAD reads the last word here; the mask below excludes these entries.
    down = np.take_along_axis(gold, heads, -1) == np.arange(heads.shape[-1])
    correct = ((up | down) & (heads != NO_HEAD)).sum(-1)
    return correct, (gold != NO_HEAD).sum(-1)


def chain(n_words: int) -> Indices:
    """Return the tree that links each word to the previous one, with the first word as root.

    *Shape:* ``(word,)``. Undirected, right- and left-branching chains are the same.
    """
    return np.arange(n_words) - 1


def _contracted(weights: Floats) -> list[_Round]:
    """Contract the cycles of best edges, all cycles in a round, until none is left.

    Args:
        weights: as in `spanning_trees`, minus infinity where there is no edge; overwritten.
            *Shape:* ``(sentence, word, word)``.
    """
    rounds: list[_Round] = []
    labels = np.arange(weights.shape[0] * weights.shape[1])
    while True:
        rounds.append(_best_edges(weights, labels))
        merged = _merged(rounds[-1], weights.shape[1])
        if (merged == np.arange(len(merged))).all():
            return rounds
        # An edge into a cycle replaces the best edge of the word where it enters.
        paid = np.zeros(len(labels))
        paid[rounds[-1].components] = rounds[-1].weights
        weights -= paid[labels].reshape(weights.shape[:2])[..., None]
        labels = merged[labels]


def _best_edges(weights: Floats, labels: Indices) -> _Round:
    """Return the heaviest edge into each component from outside the component."""
    n_sentences, n_words = weights.shape[:2]
    table = labels.reshape(n_sentences, n_words)
    np.copyto(weights, -np.inf, where=table[:, :, None] == table[:, None, :])
    head = weights.argmax(-1)
    value = np.take_along_axis(weights, head[..., None], -1).ravel()
    best = np.full(len(labels), -np.inf)
    np.maximum.at(best, labels, value)
    # Backwards, so that the first of several equal words is written last.
    best_ends = np.flatnonzero((value == best[labels]) & (value > -np.inf))[::-1]
    end_of = np.zeros(len(labels), dtype=np.int64)
    end_of[labels[best_ends]] = best_ends
    components = np.flatnonzero(best > -np.inf)
    words = end_of[components]
    heads = head.ravel()[words] + words // n_words * n_words
    return _Round(labels, components, best[components], words, heads)


def _merged(edges: _Round, n_words: int) -> Indices:
    """Return the component that each component becomes part of. *Shape:* ``(sentence * word,)``.

    Following the edges 2^k steps for 2^k ≥ n_words leads from any component onto a cycle, or to a
    root, and visits all components of a cycle.
    """
    indices = np.arange(len(edges.labels))
    target, smallest = indices.copy(), indices
    target[edges.components] = edges.labels[edges.heads]
    for _ in range(n_words.bit_length()):
        smallest = np.minimum(smallest, smallest[target])
        target = target[target]
    on_cycle = np.zeros(len(indices), dtype=bool)
    on_cycle[target] = True
    return np.where(on_cycle, smallest, indices)


def _expanded(rounds: list[_Round], n_words: int) -> Indices:
    """Undo the contractions: a component keeps its best edge unless a later edge entered it.

    *Shape:* ``(sentence * word,)``, numbered through the batch.
    """
    heads = np.full(n_words, NO_HEAD)
    for edges in reversed(rounds):
        entered = np.zeros(n_words, dtype=bool)
        entered[edges.labels[heads != NO_HEAD]] = True
        kept = ~entered[edges.components]
        heads[edges.words[kept]] = edges.heads[kept]
    return heads


T = TypeVar("T", bound=np.generic)

TOLERANCE = 1e-9  # scores of splits that differ by less are equal, so that rounding decides nothing


def phrase_scores(attention: Floats) -> Floats:
    """Return how strongly each single head groups the words of each span.

    A row keeps the cells equal to its maximum, an all-zero row none. A phrase is a maximal run of
    such cells down a column; it counts the mean weight of the run, and the runs of a span in
    several columns add. Runs of one row score single words: these are no brackets, but they affect
    the choice of the tree, as in the authors' code.

    The joint score of several heads is the sum of their scores; apply `equalised` afterwards.

    Args:
        attention: from word to word, not negative, sinks already set to 0, padding too.
            *Shape:* ``(..., word, word)``.

    Returns:
        Scores of the spans a to b, 0 where there is none. *Shape:* ``(..., word, word)``.
    """
    if not attention.size:
        return np.zeros(attention.shape)
    is_maximum = (attention == attention.max(-1, keepdims=True)) & (attention > 0)
    n_words = attention.shape[-1]
    columns = is_maximum.swapaxes(-1, -2).reshape(-1, n_words)  # (head * column, row)
    edges = np.diff(columns, axis=1, prepend=False, append=False)
    # Within a column, edges alternate: the first row of a run, then the row after its last.
    column, row = (positions.reshape(-1, 2) for positions in np.nonzero(edges))
    first, after = row[:, 0], row[:, 1]
    weights = attention.swapaxes(-1, -2).reshape(-1, n_words)[columns]
    length = after - first
    means = np.add.reduceat(weights, np.cumsum(length) - length) / length
    span = (column[:, 0] // n_words * n_words + first) * n_words + after - 1
    scores = np.zeros(attention.size)
    np.add.at(scores, span, means)
    return scores.reshape(attention.shape)


def equalised(scores: Floats) -> Floats:
    """Scale scores to a mean of 1 over the phrases with a score, for each length and table.

    *Shape:* ``(..., word, word)``, like ``scores``.
    """
    lines = _by_length(scores)
    count = (lines > 0).sum(-1, keepdims=True)
    total = lines.sum(-1, keepdims=True)
    return _by_span(np.divide(lines * count, total, out=np.zeros_like(lines), where=total > 0))


def best_trees(
    scores: Floats, lengths: NDArray[np.integer] | None = None, *, late: bool = False
) -> Flags:
    """Return the best binary tree for each table of phrase scores w, by the CKY algorithm.

    A span a to b scores s_ab = max_k (s_ak + s_k+1,b + w_ak + w_k+1,b) / 4, a single word 1.

    Equal splits are common, because a stretch without any phrase scores the same from both ends.
    The earliest split wins, so that such a stretch branches to the right; with ``late``, as in the
    authors' code, the latest one wins, and the stretch branches to the left.

    Args:
        scores: equalised scores. *Shape:* ``(..., word, word)``.
        lengths: number of words of each sentence, before the padding; by default all words.
            *Shape:* broadcast to ``(...)``.
        late: whether the last of several equal splits wins instead of the first.

    Returns:
        Brackets. *Shape:* ``(..., word, word)``.
    """
    if not scores.size:
        return np.zeros(scores.shape, dtype=bool)
    n_words = scores.shape[-1]
    splits = _splits(_by_length(scores.reshape(-1, n_words, n_words)), late=late)
    counts = np.broadcast_to(n_words if lengths is None else lengths, scores.shape[:-2]).ravel()
    brackets = np.zeros(splits.shape, dtype=bool)
    tables = np.flatnonzero(counts > 0)
    brackets[tables, counts[tables] - 1, 0] = True
    for reach in range(n_words - 1, 0, -1):
        table, start = np.nonzero(brackets[:, reach])
        left = splits[table, reach, start]
        brackets[table, left, start] = True
        brackets[table, reach - 1 - left, start + left + 1] = True
    brackets[tables, counts[tables] - 1, 0] = False
    brackets[:, :1] = False
    return _by_span(brackets).reshape(scores.shape)


def gold_phrases(heads: Indices) -> Flags:
    """Return the brackets that a dependency tree implies: each word with all its descendants.

    Only contiguous words count; the scattered words below the head of a crossing edge are no
    bracket. Words that head each other in a circle, which is no tree, include the whole circle.

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
    """Count the brackets in both trees, in the tree and in the gold tree.

    F1 = 2 · first / (second + third), with counts summed over sentences before the division.

    Args:
        tree: brackets. *Shape:* ``(..., word, word)``.
        gold: gold brackets. *Shape:* broadcast to ``(..., word, word)``.

    Returns:
        Three counts. *Shape:* ``(...)`` each.
    """
    gold = np.broadcast_to(gold, tree.shape)
    return (tree & gold).sum((-1, -2)), tree.sum((-1, -2)), gold.sum((-1, -2))


def right_branching(n_words: int) -> Flags:
    """Return the tree that splits off the first word each time. *Shape:* ``(word, word)``."""
    brackets = np.zeros((n_words, n_words), dtype=bool)
    brackets[1 : n_words - 1, n_words - 1 :] = True
    return brackets


def left_branching(n_words: int) -> Flags:
    """Return the tree that splits off the last word each time. *Shape:* ``(word, word)``."""
    brackets = np.zeros((n_words, n_words), dtype=bool)
    brackets[:1, 1 : n_words - 1] = True
    return brackets


def balanced(n_words: int) -> Flags:
    """Return the tree that halves each span; the first half gets the odd word.

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
    """Return the length of the left part minus one in the best split of each span.

    Args:
        phrases: by length, as from `_by_length`. *Shape:* ``(table, reach, start)``.
        late: whether the last of several equal splits wins instead of the first.

    Returns:
        *Shape:* ``(table, reach, start)``; 0 without span and for single words.
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
    """Rearrange ``[..., start, end]`` to ``[..., end - start, start]``, 0 without span."""
    start, end = np.triu_indices(spans.shape[-1])
    lines = np.zeros_like(spans)
    lines[..., end - start, start] = spans[..., start, end]
    return lines


def _by_span(lines: NDArray[T]) -> NDArray[T]:
    """Rearrange ``[..., end - start, start]`` to ``[..., start, end]``, 0 without span."""
    start, end = np.triu_indices(lines.shape[-1])
    spans = np.zeros_like(lines)
    spans[..., start, end] = lines[..., end - start, start]
    return spans
