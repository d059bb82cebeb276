"""Tokenized texts, with tokens aligned to words by character offsets, not by marker symbols."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from headbook.inputs import Region, TextRecord, Word
from headbook.schema import NO_REGION, OTHER_REGION, Side

NO_WORD = -1  # index of special tokens and stray pieces
STOP_CHARACTERS = frozenset(".!?")  # which may end a sentence


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """Tokens of one text; all arrays are ``(token,)`` unless said otherwise.

    Attributes:
        text: text of the input.
        pieces: each token's part of the text, in the text's own spelling.
        ids: vocabulary ids.
        spans: character offsets, end exclusive; start and end are equal if unknown. *Shape:*
            ``(token, 2)``.
        special: whether a token is special, such as ``[CLS]``, ``[SEP]``, ``<s>``, ``</s>``.
        separator: whether a token is a special one that ends a sentence.
        punctuation: whether a piece consists of punctuation (Unicode category P).
        word: index into ``words``; `NO_WORD` for special tokens and stray pieces.
        words: words of the text.
        rarest: index of the rarest word, `NO_WORD` if none is rare; see `headbook.text.annotate`.
        lost: number of tokens cut off because the text is longer than the model's limit.
        generated: whether the model generated this text.
        parts: character offsets of the sentences of a passage, as in `headbook.inputs.TextRecord`.
        left_out: number of characters cut from the end of the text before tokenization.
        unknown: number of tokens for text that the vocabulary lacks.
        doubled: tokens at the ends of the text that the tokenizer adds there, too: ``begin <s>``,
            ``end </s>``.
        regions: named parts of the text, as in `headbook.inputs.TextRecord`.
        types: types of the tokens of a pair, which some models read; empty for zeros alone.
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
    unknown: int = 0
    doubled: tuple[str, ...] = ()
    regions: tuple[Region, ...] = ()
    types: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def initial(self) -> NDArray[np.bool_]:
        """Boolean mask of the tokens that begin a word. *Shape:* ``(token,)``."""
        previous = np.concatenate([[NO_WORD], self.word[:-1]])
        initial: NDArray[np.bool_] = (self.word != NO_WORD) & (self.word != previous)
        return initial

    @property
    def part(self) -> NDArray[np.int64]:
        """Number of each token's sentence in the passage, from 0."""
        starts = [start for start, _ in self.parts[1:]]
        return np.searchsorted(starts, self.spans[:, 0], side="right").astype(np.int64)

    def region(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each token's region, by the first character of the token.

        Args:
            names: names of the regions of the corpus, in order.

        Returns:
            Indices among the names; `OTHER_REGION` for ordinary tokens outside these regions, and
            `NO_REGION` for special tokens.
        """
        numbers = np.full(len(self), OTHER_REGION, dtype=np.int64)
        for region in self.regions:
            inside = (region.start <= self.spans[:, 0]) & (self.spans[:, 0] < region.end)
            if region.name in names:
                numbers[inside & (numbers == OTHER_REGION)] = names.index(region.name)
        numbers[self.special] = NO_REGION
        return numbers

    @property
    def stop(self) -> NDArray[np.bool_]:
        """Boolean mask of pieces that may end a sentence: only ``.``, ``!`` and ``?``."""
        return np.array(
            [bool(piece) and set(piece) <= STOP_CHARACTERS for piece in self.pieces], bool
        )


@dataclass(frozen=True, eq=False)
class TokenizedSentence:
    """A sentence with the tokens of its source and, in pairs, of its target."""

    sentence: TextRecord
    tokens: Mapping[Side, TokenizedText]

    @property
    def length(self) -> int:
        """Number of tokens of the longest side."""
        return max(map(len, self.tokens.values()))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of tokens of each side."""
        return tuple(map(len, self.tokens.values()))

    @property
    def texts(self) -> tuple[str, ...]:
        r"""Texts of the input, by which models with different tokens can be compared.

        Texts generated by the model are left out. Without any text, the token ids in hexadecimal.
        """
        input_texts = tuple(tokens.text for tokens in self.tokens.values() if not tokens.generated)
        return input_texts if any(input_texts) else (self.content.hex(),)

    @property
    def content(self) -> bytes:
        """Bytes of the token ids, by which duplicates are found."""
        return b"|".join(tokens.ids.tobytes() for tokens in self.tokens.values())


# Symbols of byte-level vocabularies and SentencePiece for space, line feed, return and tab.
WHITE_SPACE_SYMBOLS = str.maketrans("Ġ▁Ċčĉ", "␣␣␊␍␉")
WHITE_SPACE_MARKERS = frozenset(map(chr, WHITE_SPACE_SYMBOLS))


def trim_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without white space at its ends, which some tokenizers include."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def token_strings(text: str, spans: list[tuple[int, int]], names: list[str]) -> tuple[str, ...]:
    """Return each token in the text's own letters, or its name if it has no letters.

    Tokens that share one character, as in byte-level vocabularies, are numbered. Symbols of the
    vocabulary for white space are replaced by the Unicode symbols for white space.
    """
    n_tokens_of_span = Counter(spans)
    n_seen: Counter[tuple[int, int]] = Counter()
    pieces = []
    for span, name in zip(spans, names, strict=True):
        start, end = span
        if start == end:
            pieces.append(
                name.translate(WHITE_SPACE_SYMBOLS) if set(name) <= WHITE_SPACE_MARKERS else name
            )
            continue
        n_seen[span] += 1
        part = f" {n_seen[span]}/{n_tokens_of_span[span]}" if n_tokens_of_span[span] > 1 else ""
        pieces.append(text[start:end] + part)
    return tuple(pieces)


@lru_cache(maxsize=1 << 16)  # most pieces occur repeatedly
def is_punctuation(piece: str) -> bool:
    """Whether a piece consists of punctuation."""
    return bool(piece) and all(unicodedata.category(c).startswith("P") for c in piece)


def align_to_words(
    text: str, spans: list[tuple[int, int]], words: tuple[Word, ...]
) -> NDArray[np.int64]:
    """Return the word that each token overlaps most, the first of equals, or `NO_WORD`."""
    owner = [NO_WORD] * len(text)
    for index, word in enumerate(words):
        owner[word.start : word.end] = [index] * (word.end - word.start)
    word_of_token = np.full(len(spans), NO_WORD, dtype=np.int64)
    for token, (start, end) in enumerate(spans):
        inside = [index for index in owner[start:end] if index != NO_WORD]
        if inside:
            word_of_token[token] = max(dict.fromkeys(inside), key=inside.count)
    return word_of_token
