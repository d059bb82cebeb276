"""Texts as tokens, aligned to words by character offsets, never by marker symbols."""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from headbook.inputs import Sentence, Word
from headbook.schema import Side

NO_WORD = -1
STOPS = frozenset(".!?")


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """One text as the model sees it; all arrays are ``(token,)`` unless said otherwise.

    Attributes:
        text: the text, as it came.
        pieces: what each token stands for, in the text's own spelling.
        ids: vocabulary entries.
        spans: *Shape:* ``(token, 2)``; character offsets, end exclusive, empty where unknown.
        special: ``[CLS]``, ``[SEP]``, ``<s>``, ``</s>``, BOS and their like.
        separator: those special tokens that end a sentence.
        punctuation: pieces of nothing but punctuation (Unicode category P).
        word: index into ``words``; `NO_WORD` for special tokens and stray pieces.
        rarest: index of the rarest word, `NO_WORD` where none is rare; see
        `headbook.text.annotate`.
        lost: tokens cut off because the text is longer than the model takes.
        generated: whether the model wrote this text itself.
        parts: character offsets of the sentences of a passage, as in `headbook.inputs.Sentence`.
        left_out: characters at the end of the text that came, which were not tokenized.
    """

    text: str
    pieces: tuple[str, ...]
    ids: NDArray[np.int64]
    spans: NDArray[np.int64]
    special: NDArray[np.bool_]
    separator: NDArray[np.bool_]
    punctuation: NDArray[np.bool_]
    word: NDArray[np.int64]
    words: tuple[Word, ...]
    rarest: int = NO_WORD
    lost: int = 0
    generated: bool = False
    parts: tuple[tuple[int, int], ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def initial(self) -> NDArray[np.bool_]:
        """Whether a token begins its word."""
        before = np.concatenate([[NO_WORD], self.word[:-1]])
        initial: NDArray[np.bool_] = (self.word != NO_WORD) & (self.word != before)
        return initial

    @property
    def part(self) -> NDArray[np.int64]:
        """The sentence of the passage that each token belongs to, from 0."""
        starts = [start for start, _ in self.parts[1:]]
        return np.searchsorted(starts, self.spans[:, 0], side="right").astype(np.int64)

    @property
    def stop(self) -> NDArray[np.bool_]:
        """Pieces that may end a sentence: nothing but ``.``, ``!`` and ``?``."""
        return np.array([bool(piece) and set(piece) <= STOPS for piece in self.pieces], bool)


@dataclass(frozen=True, eq=False)
class TokenizedSentence:
    """A sentence with the tokens of its source and, in pairs, of its target."""

    sentence: Sentence
    tokens: Mapping[Side, TokenizedText]

    @property
    def length(self) -> int:
        """Tokens of its longest side."""
        return max(map(len, self.tokens.values()))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each side."""
        return tuple(map(len, self.tokens.values()))

    @property
    def texts(self) -> tuple[str, ...]:
        """What models that cut it into other tokens share: its texts, but none that a model wrote.

        The tokens themselves where there is no text.
        """
        given = tuple(t.text for t in self.tokens.values() if not t.generated)
        return given if any(given) else (self.content.hex(),)

    @property
    def content(self) -> bytes:
        """The token sequence, by which duplicates are known."""
        return b"|".join(tokens.ids.tobytes() for tokens in self.tokens.values())


# How byte-level vocabularies and SentencePiece write a space, a line feed, a return and a tab.
BLANKS = str.maketrans("Ġ▁Ċčĉ", "␣␣␊␍␉")
BLANK_LETTERS = frozenset(map(chr, BLANKS))


def trim_span(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the white space at its ends, which some tokenizers count in."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def token_strings(text: str, spans: list[tuple[int, int]], names: list[str]) -> tuple[str, ...]:
    """Each token in the text's own letters; the token's name where it has no letters.

    Tokens that share one character, as byte-level vocabularies cut it, are numbered. Vocabularies
    write blanks as letters of their own: those stand as the signs for blanks that all know.
    """
    share = Counter(spans)
    number: Counter[tuple[int, int]] = Counter()
    pieces = []
    for span, name in zip(spans, names, strict=True):
        start, end = span
        if start == end:
            pieces.append(name.translate(BLANKS) if set(name) <= BLANK_LETTERS else name)
            continue
        number[span] += 1
        part = f" {number[span]}/{share[span]}" if share[span] > 1 else ""
        pieces.append(text[start:end] + part)
    return tuple(pieces)


@lru_cache(maxsize=1 << 16)  # most pieces come again and again
def is_punctuation(piece: str) -> bool:
    """Whether a piece is nothing but punctuation."""
    return bool(piece) and all(unicodedata.category(c).startswith("P") for c in piece)


def align_to_words(
    text: str, spans: list[tuple[int, int]], words: tuple[Word, ...]
) -> NDArray[np.int64]:
    """The word that each token overlaps most, the first of equals."""
    owner = [NO_WORD] * len(text)
    for index, word in enumerate(words):
        owner[word.start : word.end] = [index] * (word.end - word.start)
    found = np.full(len(spans), NO_WORD, dtype=np.int64)
    for place, (start, end) in enumerate(spans):
        inside = [index for index in owner[start:end] if index != NO_WORD]
        if inside:
            found[place] = max(dict.fromkeys(inside), key=inside.count)
    return found
