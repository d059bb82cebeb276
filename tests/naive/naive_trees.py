"""Trees from attention as their definitions read, by recursion over spans and circles of words."""

import math
from functools import cache
from typing import NamedTuple

from naive_ratios import Part
from single_head import Token, Viewed

UNIVERSAL = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip
Span = tuple[int, int]
Spans = dict[Span, float]
Table = list[list[float]]
Heads = list[int | None]


class Sentence(NamedTuple):
    """The words without punctuation, numbered anew: their attention and the gold tree."""

    attention: Table
    heads: Heads


def _punctuation(token: Token) -> bool:
    if token.tag in UNIVERSAL:
        return token.tag == "PUNCT"
    return token.head is not None and token.relation.split(":")[0] == "punct"


def _above(word: int, words: dict[int, Token]) -> list[int]:
    """Return the words above a word, up to the root; none twice."""
    found: list[int] = []
    head = words[word].head
    while head is not None and head in words and head not in found:
        found.append(head)
        head = words[head].head
    return found


def sentence_of(v: Viewed) -> Sentence:
    """No words at all where there is no tree."""
    words = {t.word: t for t in v.queries.tokens if t.word is not None}
    kept = sorted(word for word, token in words.items() if not _punctuation(token))
    # The last word on the way up has a head only where the way goes round in a circle.
    tops = [[word, *_above(word, words)][-1] for word in kept]
    circle = any(words[top].head in words for top in tops)
    if not v.queries.parsed or circle or len(kept) > 100:
        kept = []
    between = v.between_words()
    heads: Heads = []
    for word in kept:
        above = [w for w in _above(word, words) if w in kept]
        heads.append(kept.index(above[0]) if above else None)
    return Sentence([[_rounded(between.get(a, {}).get(b, 0.0)) for b in kept] for a in kept], heads)


def _rounded(weight: float) -> float:
    """To 16 binary digits."""
    fraction, exponent = math.frexp(weight)
    return math.ldexp(round(fraction * 2**16), exponent - 16)


def _candidates(attention: Table) -> Spans:
    """Return runs of rows that have their maximum in one column, with their mean weight there."""
    n = len(attention)
    candidates: Spans = {}
    for column in range(n):
        run: list[int] = []
        for row in range(n + 1):
            if row < n and 0 < attention[row][column] == max(attention[row]):
                run.append(row)
            elif run:
                mean = sum(attention[r][column] for r in run) / len(run)
                candidates[run[0], run[-1]] = candidates.get((run[0], run[-1]), 0.0) + mean
                run = []
    return candidates


def _best_tree(n: int, candidates: Spans) -> set[Span]:
    """Return the best binary tree; of equal splits, up to 1e-9, the latest."""
    lengths = {b - a for a, b in candidates}
    means = {}
    for length in lengths:
        same = [w for (a, b), w in candidates.items() if b - a == length]
        means[length] = sum(same) / len(same)
    weights = {(a, b): w / means[b - a] for (a, b), w in candidates.items()}

    @cache
    def best(a: int, b: int) -> tuple[float, int]:
        if a == b:
            return 1.0, a
        splits = {
            k: sum(best(*s)[0] + weights.get(s, 0.0) for s in ((a, k), (k + 1, b)))
            for k in range(a, b)
        }
        highest = max(splits.values())
        return highest / 4, max(k for k, score in splits.items() if score >= highest - 1e-9)

    def below(a: int, b: int) -> set[Span]:
        if a >= b:
            return set()
        k = best(a, b)[1]
        return {(a, b)} | below(a, k) | below(k + 1, b)

    return below(0, n - 1) - {(0, n - 1)}


def _halves(a: int, b: int) -> set[Span]:
    """Return the balanced tree; the first half takes an odd word."""
    if a >= b:
        return set()
    middle = a + (b - a) // 2
    return {(a, b)} | _halves(a, middle) | _halves(middle + 1, b)


def _phrases(heads: Heads) -> set[Span]:
    """Each word with all below it, where that stands together."""
    n = len(heads)

    def below(word: int) -> set[int]:
        return {word}.union(*(below(i) for i in range(n) if heads[i] == word))

    pairs = {(min(p), max(p)) for p in map(below, range(n)) if max(p) - min(p) + 1 == len(p)}
    return {(a, b) for a, b in pairs if a < b and (a, b) != (0, n - 1)}


def phrase_trees(heads: list[Viewed]) -> list[dict[str, Part]]:
    """All heads of a layer in one sentence."""
    sentences = [sentence_of(v) for v in heads]
    n, gold = len(sentences[0].heads), _phrases(sentences[0].heads)
    candidates = [_candidates(s.attention) for s in sentences]
    joint: Spans = {}
    for spans in candidates:
        for span, weight in spans.items():
            joint[span] = joint.get(span, 0.0) + weight
    trees = {
        "joint": _best_tree(n, joint),
        "right_branching": {(a, n - 1) for a in range(1, n - 1)},
        "left_branching": {(0, b) for b in range(1, n - 1)},
        "balanced": _halves(0, n - 1) - {(0, n - 1)},
    }
    size = max(n - 2, 0) + len(gold)
    shared = {name: Part(2 * len(tree & gold), size, size) for name, tree in trees.items()}
    shared["ceiling"] = Part(2 * len(gold), size, size)
    return [
        {"f1": Part(2 * len(_best_tree(n, spans) & gold), size, size), **shared}
        for spans in candidates
    ]


def _heaviest(attention: Table, roots: set[int]) -> dict[int, int]:
    """Return the tree of Chu, Liu and Edmonds, which contracts one cycle of best edges at a time.

    Of equal edges the first word's is taken, and of these the one from the first head.
    """
    groups = [frozenset({word}) for word in range(len(attention))]
    gain = {
        (word, head): weight
        for word, row in enumerate(attention)
        for head, weight in enumerate(row)
        if word != head and word not in roots
    }
    return _entered(groups, gain)


def _entered(groups: list[frozenset[int]], gain: dict[Span, float]) -> dict[int, int]:
    """One edge into each group of words that has any, so that no circle is left: word to head."""
    best: dict[frozenset[int], Span] = {}
    for group in groups:
        edges = [edge for edge in gain if edge[0] in group and edge[1] not in group]
        if edges:
            best[group] = max(edges, key=lambda edge: (gain[edge], -edge[0], -edge[1]))
    circle = _circle(groups, best)
    if not circle:
        return dict(best.values())
    inside = {word: best[group] for group in circle for word in group}
    whole = frozenset(inside)
    # Entering the circle anywhere means leaving out the edge that entered that part of it.
    less = {
        edge: weight - gain[inside[edge[0]]] if edge[0] in whole else weight
        for edge, weight in gain.items()
        if not {*edge} <= whole
    }
    found = _entered([*(g for g in groups if g not in circle), whole], less)
    entry = next(word for word in found if word in whole)
    return {**{w: h for g in circle if entry not in g for w, h in [best[g]]}, **found}


def _circle(groups: list[frozenset[int]], best: dict[frozenset[int], Span]) -> list[frozenset[int]]:
    """Return a cycle of groups, each entered from the next, if there is one."""
    for start in groups:
        path: list[frozenset[int]] = []
        group = start
        while group in best and group not in path:
            path.append(group)
            group = next(g for g in groups if best[group][1] in g)
        if group in path:
            return path[path.index(group) :]
    return []


def dependency_trees(v: Viewed) -> dict[str, Part]:
    attention, heads = sentence_of(v)
    gold = {frozenset((word, head)) for word, head in enumerate(heads) if head is not None}
    roots = {word for word, head in enumerate(heads) if head is None}
    found = {frozenset(edge) for edge in _heaviest(attention, roots).items()}
    linked = {frozenset((i, i + 1)) for i in range(len(heads) - 1)}
    return {
        "uas": Part(len(found & gold), len(gold), len(gold)),
        "chain": Part(len(linked & gold), len(gold), len(gold)),
    }
