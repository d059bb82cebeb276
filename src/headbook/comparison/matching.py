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
from headbook.schema import AttentionStack, HeadName, Side, SinkView, heads_of
from headbook.study.sentence_data import MappedSentence, StoredText

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
    tokens_by_span = [word_tokens(text) for text in texts]
    spans = tuple(sorted(tokens_by_span[0].keys() & tokens_by_span[1].keys()))
    in_sink = np.zeros(len(spans), bool)
    for text, tokens, first_is_sink in zip(texts, tokens_by_span, causal, strict=True):
        sink = text.sink(causal=first_is_sink)
        in_sink |= np.array([bool(sink[tokens[span]].any()) for span in spans], bool)
    return SharedWords(spans, ~in_sink)


def word_tokens(text: StoredText) -> dict[Span, list[int]]:
    """Return the tokens of each word, by the span of the word's characters."""
    tokens_by_word: dict[int, list[int]] = {}
    for token, word in enumerate(text.words):
        if word >= 0:
            tokens_by_word.setdefault(word, []).append(token)
    spans = {
        (
            min(text.spans[index][0] for index in tokens),
            max(text.spans[index][1] for index in tokens),
        ): tokens
        for tokens in tokens_by_word.values()
    }
    return {span: tokens for span, tokens in spans.items() if span[0] < span[1]}


def word_rows(
    sentence: MappedSentence, stack: AttentionStack, words: SharedWords, *, causal: bool = False
) -> AttentionRows:
    """Return renormalised rows between shared words: summed over keys, averaged over queries.

    Args:
        causal: whether rows are limited to the word itself and earlier words.
    """
    tokens = word_tokens(sentence.texts[stack.queries])
    maps = sentence.maps[stack.name].astype(np.float64)
    membership = np.zeros((maps.shape[-1], len(words.spans)))
    for index, span in enumerate(words.spans):
        membership[tokens[span], index] = 1
    weights: Floats = membership.T @ maps @ membership / np.maximum(membership.sum(0), 1)[:, None]
    flat = weights.reshape(weights.shape[0] * weights.shape[1], *weights.shape[2:])
    return rows_between_words(flat, words.keys, causal=causal)


MIN_SHARED_WORDS = 30  # words; two heads that share fewer have no similarity


@dataclass(frozen=True, eq=False)
class MatchedHeads:
    """The heads of two stacks matched by their attention.

    Attributes:
        a, b: the heads of both stacks, layer by layer.
        similarity: similarity of every two heads; NaN below `MIN_SHARED_WORDS` words. *Shape:*
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

    def partner(self, index: int) -> HeadName | None:
        """Return the counterpart of a head of A, or None."""
        matched = self.matching
        has_partner = matched.counterpart[index] and matched.partner[index] != UNMATCHED
        return self.b[matched.partner[index]] if has_partner else None


def matched_heads(sides: StudyPair, pair: StackPair, null: StudyPair | None = None) -> MatchedHeads:
    """Match the heads of two stacks.

    Args:
        null: the first model paired with the second with random weights.
    """
    sums = similarities(sides, pair)
    null_sums = (
        similarities(null, null.stacks[sides.stacks.index(pair)]) if null is not None else None
    )
    halves = [
        _match(sums.split(split), null_sums and null_sums.split(split), MIN_SHARED_WORDS // 2)
        for split in (SELECTION, HELD_OUT)
    ]
    return MatchedHeads(
        tuple(heads_of(pair.a)),
        tuple(heads_of(pair.b)),
        sums.value(MIN_SHARED_WORDS),
        _match(sums, null_sums, MIN_SHARED_WORDS),
        split_half_agreement(*halves),
        int(sums.sentences.sum()),
        null is not None,
        pair.a.causal != pair.b.causal,
    )


def _match(sums: SimilaritySums, null_sums: SimilaritySums | None, min_words: int) -> HeadMatching:
    """Return the one-to-one matching; without ``null_sums``, every pair is a counterpart."""
    threshold = null_threshold(null_sums.value(min_words)) if null_sums is not None else 0.0
    return match(sums.value(min_words), threshold)


def similarities(sides: StudyPair, pair: StackPair) -> SimilaritySums:
    """Return similarity sums over the sentences whose maps both studies store."""
    zero = SimilaritySums.zero(len(heads_of(pair.a)), len(heads_of(pair.b)))
    earlier_only = pair.a.causal != pair.b.causal
    parts = []
    keys = sorted(sides.a.map_sample.sentences.keys() & sides.b.map_sample.sentences.keys())
    for key, (a, b) in zip(keys, sides.mapped(), strict=True):
        words = shared_words(a, b, pair.a.keys, (pair.a.causal, pair.b.causal))
        if not words.spans or a.texts[pair.a.keys].text != b.texts[pair.b.keys].text:
            continue
        rows = [
            word_rows(sentence, stack, words, causal=earlier_only)
            for sentence, stack in ((a, pair.a), (b, pair.b))
        ]
        masks = [_heads_mask(pair.a), _heads_mask(pair.b)]
        present = [
            AttentionRows(rows_of_stack.weights[mask], rows_of_stack.counted[mask])
            for rows_of_stack, mask in zip(rows, masks, strict=True)
        ]
        parts.append(SimilaritySums.of(present[0], present[1], key & 1))
    return reduce(add, parts, zero)


def _heads_mask(stack: AttentionStack) -> NDArray[np.bool_]:
    """Return the mask of heads, layer by layer, that are in layers with attention."""
    mask = np.zeros((stack.n_layers, stack.n_heads), bool)
    mask[[*stack.attention_layers]] = True
    return mask.reshape(-1)
