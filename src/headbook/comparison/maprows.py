"""Rows of the attention maps that studies keep, on tokens or words that two models share."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.analysis.rows import Rows, between_words, in_view
from headbook.study.mapsample import MappedSentence
from headbook.study.sentencedata import StoredText
from headbook.terms import Side, Stack, View

Span = tuple[int, int]


def token_rows(sentence: MappedSentence, stack: Stack, view: View) -> Rows:
    """Rows of all heads, layer by layer; heads of layers without attention are all 0.

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
    return in_view(flat, seen & counted[:, None], sink, view)


class SharedWords(NamedTuple):
    """Words that two models have read, by their place in the text.

    Attributes:
        spans: first character and the one after the last, ascending.
        keys: those that are in the sink of neither model.
    """

    spans: tuple[Span, ...]
    keys: NDArray[np.bool_]


def shared_words(
    a: MappedSentence, b: MappedSentence, side: Side, causal: tuple[bool, bool]
) -> SharedWords:
    """The words of a text that have the same characters, and tokens, in both models.

    Args:
        causal: whether each model's first position is a sink.
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
    """The tokens of each word, by the characters that they stand for."""
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
    sentence: MappedSentence, stack: Stack, words: SharedWords, *, causal: bool = False
) -> Rows:
    """Renormalised rows between shared words: to a word the sum, from a word the mean.

    Args:
        causal: whether rows are cut to the words before and the word itself.
    """
    tokens = word_tokens(sentence.texts[stack.queries])
    maps = sentence.maps[stack.name].astype(np.float64)
    belongs = np.zeros((maps.shape[-1], len(words.spans)))
    for number, span in enumerate(words.spans):
        belongs[tokens[span], number] = 1
    between: Floats = belongs.T @ maps @ belongs / np.maximum(belongs.sum(0), 1)[:, None]
    flat = between.reshape(between.shape[0] * between.shape[1], *between.shape[2:])
    return between_words(flat, words.keys, causal=causal)
