"""Attention between the words of a stored sentence, and the sentence's tree. No torch.

The functions compute the numbers of `AttentionMaps.by_word`, `relations` and `wordtrees` of
`headbook.attention` for one stored sentence. Weights are stored in steps of 1/255, so that close
weights may be equal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.analysis.trees import NO_HEAD
from headbook.schema import relation_of, universal_relation
from headbook.study.sentence_data import UINT8_STEPS, StoredText


class WordLink(NamedTuple):
    """A querying word, the right key of its relation, and whether a head finds the key."""

    query: int
    key: int
    found: bool


def n_words(text: StoredText) -> int:
    """Return the number of words up to the last word that has a token."""
    return max(text.words, default=-1) + 1


def word_names(text: StoredText) -> tuple[str, ...]:
    """Return each word in the text's own letters; empty for a word without a token."""
    spans: list[tuple[int, int] | None] = [None] * n_words(text)
    for word, (start, end) in zip(text.words, text.spans, strict=True):
        if word >= 0:
            first, last = spans[word] or (start, end)
            spans[word] = min(first, start), max(last, end)
    return tuple("" if span is None else text.text[slice(*span)] for span in spans)


def word_attention(steps: NDArray[np.uint8], text: StoredText, *, causal: bool) -> Floats:
    """Return attention between words without the sink: summed over keys, averaged over queries.

    Args:
        steps: weights of a stack within one text. *Shape:* ``(..., token, token)``.

    Returns:
        *Shape:* ``(..., word, word)``.
    """
    ordinary = ~text.sink(causal=causal)
    members = (np.array(text.words)[:, None] == np.arange(n_words(text))) & ordinary[:, None]
    in_word = members.astype(np.float64)
    # Whole numbers are summed before division, so that equal sums stay equal.
    sums = in_word.T @ steps.astype(np.float64) @ in_word
    weights: Floats = sums / (UINT8_STEPS * np.maximum(in_word.sum(0), 1))[:, None]
    return weights


def word_links(weights: Floats, text: StoredText, label: str, *, causal: bool) -> list[WordLink]:
    """Return the cases of a label, and whether a head's strongest word is the right one.

    Args:
        weights: attention of one head, from `word_attention`. *Shape:* ``(word, word)``.
        label: relation and direction, as in `headbook.schema.AnnotationScheme.labels`.
    """
    relation, direction = relation_of(label)
    tokens = np.array(text.words)[~text.sink(causal=causal)]
    positions = [np.flatnonzero(tokens == word) for word in range(len(weights))]
    links = []
    for word, head in enumerate(text.heads[: len(weights)]):
        has_relation = universal_relation(text.relations[word]) == relation
        if not has_relation or not 0 <= head < len(weights) or head == word:
            continue
        query, key = (word, head) if direction == "to_head" else (head, word)
        has_tokens = len(positions[query]) and len(positions[key])
        if has_tokens and (not causal or positions[key][0] <= positions[query][-1]):
            links.append(WordLink(query, key, _strongest_other_word(weights[query], query) == key))
    return links


def _strongest_other_word(row: Floats, word: int) -> int:
    """Return the word that a word attends to most beside itself; `NO_HEAD` without attention."""
    others = np.where(np.arange(len(row)) == word, 0.0, row)
    best = int(others.argmax())
    return best if others[best] > 0 else NO_HEAD
