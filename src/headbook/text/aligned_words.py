"""Words between which cross-attention is aligned, and the rows of attention that belong to a word.

Two rows of a decoder belong to a token: that which reads the token, and the one before, which
predicts it. Which of them aligns source and target is told by the numbers of both.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.text.tokens import NO_WORD

GOLD = "alignment"  # metadata column with gold links of words: "0-0 1-2", source first
NO_SOURCE = -1  # if no source word has any weight
DECIMALS = 12  # of summed weights, so that equal sums stay equal


class AlignmentRow(StrEnum):
    """Rows of attention that belong to a target word."""

    READ = "read"
    WRITTEN = "written"


class AlignedText(NamedTuple):
    """The words of one text that have tokens which are not special, in order.

    Attributes:
        names: the words in the text's own letters.
        numbers: number of each word in the text, as gold links count words.
        in_word: whether a token belongs to a word. *Shape:* ``(word, token)``.
    """

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    in_word: NDArray[np.bool_]

    def rows(self, row: AlignmentRow) -> NDArray[np.float64]:
        """Return the weights by which rows of tokens are averaged. *Shape:* ``(word, token)``.

        The first word is predicted by the row of the start token or of the language code.
        """
        members = self.in_word.astype(np.float64)
        if row is AlignmentRow.WRITTEN:
            members = np.pad(members[:, 1:], ((0, 0), (0, 1)))
        means: NDArray[np.float64] = members / np.maximum(members.sum(1, keepdims=True), 1)
        return means


def aligned_text(
    text: str,
    pieces: Sequence[str],
    spans: Sequence[tuple[int, int]],
    special: Sequence[bool],
    word: Sequence[int],
    *,
    by_space: bool,
) -> AlignedText:
    """Return the words of a text.

    Args:
        pieces, spans, special: tokens, their offsets, and whether they are special.
        word: word of each token by the annotation; a token without one is a word of its own.
        by_space: whether words are separated by white space, as in gold links, in place of those
            of the annotation.
    """
    offsets = np.array(spans, np.int64).reshape(-1, 2)
    if by_space:
        starts = [match.start() for match in re.finditer(r"\S+", text)]
        number = np.searchsorted(starts, offsets[:, 0], side="right") - 1
        number = np.where(offsets[:, 1] > offsets[:, 0], number, NO_WORD)
    else:
        given = np.array(word, np.int64)
        own = max(given, default=NO_WORD) + 1 + np.arange(len(given))
        number = np.where(given == NO_WORD, own, given)
    number = np.where(np.array(special, bool), NO_WORD, number)
    numbers = tuple(dict.fromkeys(n for n in number.tolist() if n != NO_WORD))
    in_word = number == np.array(numbers, np.int64)[:, None]
    names = tuple(_name(text, pieces, offsets, np.flatnonzero(members)) for members in in_word)
    return AlignedText(names, numbers, in_word)


def _name(text: str, pieces: Sequence[str], offsets: Ints, tokens: Ints) -> str:
    start, end = offsets[tokens, 0].min(), offsets[tokens, 1].max()
    return text[start:end] or pieces[tokens[0]]


def word_attention(
    weights: NDArray[np.floating], target: AlignedText, source: AlignedText, row: AlignmentRow
) -> NDArray[np.float64]:
    """Return attention from target words to source words: rows averaged, keys summed.

    Args:
        weights: attention of several heads. *Shape:* ``(head, query, key)``.

    Returns:
        *Shape:* ``(head, target, source)``.
    """
    between = target.rows(row) @ weights.astype(np.float64) @ source.in_word.T.astype(np.float64)
    return np.round(between, DECIMALS)


def strongest_sources(
    weights: NDArray[np.floating], target: AlignedText, source: AlignedText
) -> NDArray[np.int32]:
    """Return the source word with the largest weight, the first of equals, by row and target word.

    Returns:
        Indices of source words; `NO_SOURCE` if all weights are 0. *Shape:* ``(row, head,
        target)``.
    """
    if not source.names:
        return np.full((len(AlignmentRow), len(weights), len(target.names)), NO_SOURCE, np.int32)
    between = np.stack([word_attention(weights, target, source, row) for row in AlignmentRow])
    return np.where(between.max(-1) > 0, between.argmax(-1), NO_SOURCE).astype(np.int32)
