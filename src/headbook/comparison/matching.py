"""Rows of attention on shared tokens or words, and matching of heads that attend alike.

Heads are compared between the words that both models have read, on the sentences whose maps both
studies store. If only one model is causal, both are compared on earlier words alone.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.analysis.arrays import Floats
from headbook.analysis.attention_divergence import AttentionRows, rows_between_words, rows_in_view
from headbook.analysis.head_matching import (
    UNMATCHED,
    HeadMatching,
    SimilaritySums,
    match,
    null_threshold,
    split_half_agreement,
)
from headbook.comparison.study_pair import StackPair, StudyPair
from headbook.schema import AttentionStack, Side, SinkView
from headbook.study.sentence_data import HeadName, MappedSentence, StoredText, heads_of

Span = tuple[int, int]


def token_rows(sentence: MappedSentence, stack: AttentionStack, view: SinkView) -> AttentionRows:
    """Return the rows of all heads, layer by layer; 0 in layers without attention.

    *Shape:* ``(layer * head, query, key)``.
    """
    maps = sentence.maps[stack.name]
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    seen = np.ones(maps.shape[2:], bool)
    if stack.causal:
        seen = np.tril(seen)
    counted = ~np.array(queries.special, bool)
    if stack.causal:
        counted &= seen.sum(-1) > 1
    sink = keys.sink(causal=stack.causal)
    flat = maps.reshape(-1, *maps.shape[2:])
    return rows_in_view(flat, seen & counted[:, None], sink, view)


class SharedWords(NamedTuple):
    """Words that two models have read, by their position in the text.

    Attributes:
        spans: first character of each word and the character after its last, ascending.
        keys: mask of the words that are in the sink of neither model. *Shape:* ``(word,)``.
    """

    spans: tuple[Span, ...]
    keys: NDArray[np.bool_]


def shared_words(
    a: MappedSentence, b: MappedSentence, side: Side, causal: tuple[bool, bool]
) -> SharedWords:
    """Return the words of a text that have the same characters, and tokens, in both models.

    Args:
        causal: for each model, whether the first position is a sink.
    """
    texts = a.texts[side], b.texts[side]
    members = [word_tokens(text) for text in texts]
    spans = tuple(sorted(members[0].keys() & members[1].keys()))
    in_sink = np.zeros(len(spans), bool)
    for text, tokens, first in zip(texts, members, causal, strict=True):
        sink = text.sink(causal=first)
        in_sink |= np.array([bool(sink[tokens[span]].any()) for span in spans], bool)
    return SharedWords(spans, ~in_sink)


def word_tokens(text: StoredText) -> dict[Span, list[int]]:
    """Return the tokens of each word, by the span of the word's characters."""
    found: dict[int, list[int]] = {}
    for place, word in enumerate(text.words):
        if word >= 0:
            found.setdefault(word, []).append(place)
    spans = {
        (min(text.spans[p][0] for p in places), max(text.spans[p][1] for p in places)): places
        for places in found.values()
    }
    return {span: places for span, places in spans.items() if span[0] < span[1]}


def word_rows(
    sentence: MappedSentence, stack: AttentionStack, words: SharedWords, *, causal: bool = False
) -> AttentionRows:
    """Return renormalised rows between shared words: summed over keys, averaged over queries.

    Args:
        causal: whether rows are limited to the word itself and earlier words.
    """
    tokens = word_tokens(sentence.texts[stack.queries])
    maps = sentence.maps[stack.name].astype(np.float64)
    belongs = np.zeros((maps.shape[-1], len(words.spans)))
    for number, span in enumerate(words.spans):
        belongs[tokens[span], number] = 1
    between: Floats = belongs.T @ maps @ belongs / np.maximum(belongs.sum(0), 1)[:, None]
    flat = between.reshape(between.shape[0] * between.shape[1], *between.shape[2:])
    return rows_between_words(flat, words.keys, causal=causal)


LEAST = 30  # least words that two heads share to be compared


@dataclass(frozen=True, eq=False)
class MatchedHeads:
    """The heads of two stacks matched by their attention.

    Attributes:
        a, b: the heads of both stacks, layer by layer.
        similarity: similarity of every two heads; NaN below `LEAST` words. *Shape:*
            ``(head of A, head of B)``.
        matching: the one-to-one matching.
        stability: share of the counterparts on one half of the sentences that are counterparts on
            the other half, too; NaN without any.
        sentences: number of sentences that were compared.
        tested: whether a model with random weights sets the threshold of counterparts.
        cut: whether both stacks were compared on earlier words alone.
    """

    a: tuple[HeadName, ...]
    b: tuple[HeadName, ...]
    similarity: Floats
    matching: HeadMatching
    stability: float
    sentences: int
    tested: bool
    cut: bool

    def partner(self, place: int) -> HeadName | None:
        """Return the counterpart of a head of A, or None."""
        matched = self.matching
        there = matched.counterpart[place] and matched.partner[place] != UNMATCHED
        return self.b[matched.partner[place]] if there else None


def matched_heads(sides: StudyPair, pair: StackPair, null: StudyPair | None = None) -> MatchedHeads:
    """Match the heads of two stacks.

    Args:
        null: the first model paired with the second with random weights.
    """
    sums = similarities(sides, pair)
    below = similarities(null, null.stacks[sides.stacks.index(pair)]) if null is not None else None
    halves = [
        _matched(sums.split(number), below and below.split(number), LEAST // 2)
        for number in (SELECTION, HELD_OUT)
    ]
    return MatchedHeads(
        tuple(heads_of(pair.a)),
        tuple(heads_of(pair.b)),
        sums.value(LEAST),
        _matched(sums, below, LEAST),
        split_half_agreement(*halves),
        int(sums.sentences.sum()),
        null is not None,
        pair.a.causal != pair.b.causal,
    )


def _matched(sums: SimilaritySums, below: SimilaritySums | None, least: int) -> HeadMatching:
    """Return the one-to-one matching; without ``below``, every pair is a counterpart."""
    threshold = null_threshold(below.value(least)) if below is not None else 0.0
    return match(sums.value(least), threshold)


def similarities(sides: StudyPair, pair: StackPair) -> SimilaritySums:
    """Return similarity sums over the sentences whose maps both studies store."""
    zero = SimilaritySums.zero(len(heads_of(pair.a)), len(heads_of(pair.b)))
    cut = pair.a.causal != pair.b.causal
    parts = []
    keys = sorted(sides.a.map_sample.sentences.keys() & sides.b.map_sample.sentences.keys())
    for key, (one, other) in zip(keys, sides.mapped(), strict=True):
        words = shared_words(one, other, pair.a.keys, (pair.a.causal, pair.b.causal))
        if not words.spans or one.texts[pair.a.keys].text != other.texts[pair.b.keys].text:
            continue
        rows = [
            word_rows(sentence, stack, words, causal=cut)
            for sentence, stack in ((one, pair.a), (other, pair.b))
        ]
        kept = [_present(pair.a), _present(pair.b)]
        present = [
            type(each)(each.weights[there], each.counted[there])
            for each, there in zip(rows, kept, strict=True)
        ]
        parts.append(SimilaritySums.of(present[0], present[1], key & 1))
    return reduce(add, parts, zero)


def _present(stack: AttentionStack) -> NDArray[np.bool_]:
    """Return the mask of heads, layer by layer, that are in layers with attention."""
    there = np.zeros((stack.n_layers, stack.n_heads), bool)
    there[[*stack.attention_layers]] = True
    return there.reshape(-1)
