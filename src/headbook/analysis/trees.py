"""Dependency trees from attention: the maximum spanning tree of each head's weights.

After Raganato & Tiedemann (2018, https://aclanthology.org/W18-5431): the words of a sentence are a
complete weighted graph, the root of the gold tree is given, and the algorithm of Chu & Liu (1965)
and Edmonds (1967) finds the tree of the largest total weight. Edges are compared with the gold tree
regardless of direction, as in Htut et al. (2019, arXiv:1911.12246).

Trees are arrays of heads: ``heads[..., i]`` is the index of word i's head, `NO_HEAD` for a root and
in the padding. All trees of a batch grow together, so that 12 heads cost little more than one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats

NO_HEAD = -1  # the same value as in `headbook.inputs`

Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Round:
    """The edge that entered each component before a round of contraction.

    Words and components are numbered through the batch; a component bears the number of its first
    word.

    Attributes:
        labels: component of each word. *Shape:* ``(sentence * word,)``.
        components: those without a root. *Shape:* ``(component,)``.
        weights: weight of the best edge into each of them. *Shape:* ``(component,)``.
        words, heads: where that edge ends and begins. *Shape:* ``(component,)``.
    """

    labels: Indices
    components: Indices
    weights: Floats
    words: Indices
    heads: Indices


def spanning_trees(
    weights: Floats, roots: Flags, lengths: NDArray[np.integer] | None = None
) -> Indices:
    """The heaviest tree over the words of each sentence, with given roots.

    Attention as it is makes ``weights`` in which a word looks at its head. The literature's "edges
    from the output token to the attended token" are the other direction when read strictly, since
    a tree's edges leave its root: heads that look at their dependents. That is the same function on
    the transposed attention.

    Several roots, as an annotation of two sentences in one has them, give the heaviest forest with
    those roots. A word whose row is all zero has edges of weight 0. Among equal edges into a word
    the first head wins, and among equal edges into words of a contracted cycle the first word.

    Args:
        weights: weight of word j as the head of word i; finite, any sign. The diagonal and the rows
            of roots do not matter. *Shape:* ``(..., word, word)``.
        roots: which words are roots. *Shape:* broadcast to ``(..., word)``.
        lengths: words of each sentence, the rest being padding; by default all. *Shape:* broadcast
            to ``(...)``.

    Returns:
        Heads. *Shape:* ``(..., word)``.

    Raises:
        ValueError: a sentence has words and no root.
    """
    *batch, n_words = weights.shape[:-1]
    shape = (*batch, n_words)
    counts = n_words if lengths is None else np.asarray(lengths)[..., None]
    inside = np.broadcast_to(np.arange(n_words) < counts, shape)
    given = np.broadcast_to(roots, shape)
    if not ((given & inside).any(-1) | ~inside.any(-1)).all():
        raise ValueError("a sentence without a root has no dependency tree")
    if not weights.size:
        return np.full(shape, NO_HEAD, dtype=np.int64)
    # Padding is made of roots that head nothing.
    closed = (given | ~inside)[..., :, None] | ~inside[..., None, :]
    open_weights = np.where(closed, -np.inf, weights).reshape(-1, n_words, n_words)
    heads = _expanded(_contracted(open_weights), open_weights.shape[0] * n_words)
    return np.where(heads < 0, NO_HEAD, heads % n_words).reshape(shape)


def undirected_matches(heads: Indices, gold: Indices) -> tuple[Indices, Indices]:
    """Edges that two trees share, whichever end is the head.

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
    # NO_HEAD reads the last word here, which the mask takes back.
    down = np.take_along_axis(gold, heads, -1) == np.arange(heads.shape[-1])
    correct = ((up | down) & (heads != NO_HEAD)).sum(-1)
    return correct, (gold != NO_HEAD).sum(-1)


def chain(n_words: int) -> Indices:
    """The baseline that links each word to the next, the first being the root.

    *Shape:* ``(word,)``. Undirected, right- and left-branching chains are the same.
    """
    return np.arange(n_words) - 1


def _contracted(weights: Floats) -> list[_Round]:
    """Contract the cycles of best edges, all of them in a round, until none is left.

    Args:
        weights: as in `spanning_trees`, minus infinity where there is no edge; used up.
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
    """The heaviest edge into each component from outside of it."""
    n_sentences, n_words = weights.shape[:2]
    table = labels.reshape(n_sentences, n_words)
    np.copyto(weights, -np.inf, where=table[:, :, None] == table[:, None, :])
    head = weights.argmax(-1)
    value = np.take_along_axis(weights, head[..., None], -1).ravel()
    best = np.full(len(labels), -np.inf)
    np.maximum.at(best, labels, value)
    # Backwards, so that the first of several equal words is the last to be written.
    enters = np.flatnonzero((value == best[labels]) & (value > -np.inf))[::-1]
    word = np.zeros(len(labels), dtype=np.int64)
    word[labels[enters]] = enters
    components = np.flatnonzero(best > -np.inf)
    words = word[components]
    heads = head.ravel()[words] + words // n_words * n_words
    return _Round(labels, components, best[components], words, heads)


def _merged(edges: _Round, n_words: int) -> Indices:
    """The component that each component becomes part of. *Shape:* ``(sentence * word,)``.

    Following the edges 2^k steps for 2^k ≥ n_words leads from anywhere onto a cycle, or to a root,
    and sees the whole of a cycle from any place on it.
    """
    every = np.arange(len(edges.labels))
    target, least = every.copy(), every
    target[edges.components] = edges.labels[edges.heads]
    for _ in range(n_words.bit_length()):
        least = np.minimum(least, least[target])
        target = target[target]
    on_cycle = np.zeros(len(every), dtype=bool)
    on_cycle[target] = True
    return np.where(on_cycle, least, every)


def _expanded(rounds: list[_Round], n_words: int) -> Indices:
    """Undo the contractions: a component keeps its best edge unless a later one entered it.

    *Shape:* ``(sentence * word,)``, numbered through the batch.
    """
    heads = np.full(n_words, NO_HEAD)
    for edges in reversed(rounds):
        entered = np.zeros(n_words, dtype=bool)
        entered[edges.labels[heads != NO_HEAD]] = True
        kept = ~entered[edges.components]
        heads[edges.words[kept]] = edges.heads[kept]
    return heads
