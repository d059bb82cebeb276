"""Batches by token budget, and their padded arrays of tokens, words and tags."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import split_of
from headbook.inputs import NO_HEAD
from headbook.schema import NO_REGION, AnnotationScheme, Side
from headbook.text.tokens import NO_WORD, TokenizedSentence, TokenizedText

NO_TAG = -1  # of words without a part of speech
NO_RELATION = -1  # of words without a head
UNIVERSAL_DEPENDENCIES = AnnotationScheme()  # tags and relations without a corpus's own


@dataclass(frozen=True, eq=False)
class PaddedTexts:
    """The texts of one side of a batch; every array is ``(sentence, token)``.

    Attributes:
        ids: vocabulary ids; 0 in the padding.
        valid: whether the position holds a token, not padding.
        special, separator, punctuation, initial: as in `headbook.text.tokens.TokenizedText`.
        word: index of the token's word in its sentence, or `NO_WORD`.
        share: 1 over the number of tokens of the word; 0 for tokens without word.
        tag: number of the word's part of speech in the scheme, or `NO_TAG`.
        head: index of the head of the token's word, or `NO_HEAD`.
        relation: number of the word's relation to its head in the scheme, or `NO_RELATION` if it
            has none or one outside the scheme.
        rarest: index of the rarest word, or `NO_WORD`. *Shape:* ``(sentence, 1)``.
        part: number of the token's sentence in a passage, from 0.
        region: number of the token's region in the scheme, `OTHER_REGION` for other ordinary
            tokens, `NO_REGION` for special tokens and padding.
        types: types of the tokens of a pair; 0 for other texts.
        stop: whether the token may end a sentence, as in `headbook.text.tokens.TokenizedText`.
        joined: whether the text is a passage of several sentences. *Shape:* ``(sentence, 1)``.
        tagged, parsed: whether the text has tags, and a tree. *Shape:* ``(sentence, 1)``.
        scheme: names of tags and relations.
    """

    ids: torch.Tensor
    valid: torch.Tensor
    special: torch.Tensor
    separator: torch.Tensor
    punctuation: torch.Tensor
    initial: torch.Tensor
    word: torch.Tensor
    share: torch.Tensor
    tag: torch.Tensor
    head: torch.Tensor
    relation: torch.Tensor
    rarest: torch.Tensor
    part: torch.Tensor
    region: torch.Tensor
    types: torch.Tensor
    stop: torch.Tensor
    joined: torch.Tensor
    tagged: torch.Tensor
    parsed: torch.Tensor
    scheme: AnnotationScheme = UNIVERSAL_DEPENDENCIES

    @cached_property
    def ordinary(self) -> torch.Tensor:
        """Boolean mask of the tokens of the text itself, neither padding nor special.

        *Shape:* ``(sentence, token)``.
        """
        return self.valid & ~self.special

    @cached_property
    def first(self) -> torch.Tensor:
        """Boolean mask of the tokens at position 0. *Shape:* ``(sentence, token)``."""
        return torch.arange(self.n_tokens, device=self.ids.device).expand_as(self.ids) == 0

    @cached_property
    def starts(self) -> torch.Tensor:
        """Boolean mask of the special tokens that begin a text, such as ``[CLS]``.

        *Shape:* ``(sentence, token)``.
        """
        return self.valid & self.special & (~self.separator | self.first)

    @cached_property
    def lengths(self) -> torch.Tensor:
        """Number of tokens of each text, without padding. *Shape:* ``(sentence,)``."""
        return self.valid.sum(1)

    @cached_property
    def last(self) -> torch.Tensor:
        """Boolean mask of the last token of each text. *Shape:* ``(sentence, token)``."""
        return self.valid & (self.valid.cumsum(1) == self.lengths[:, None])

    @cached_property
    def tags(self) -> torch.Tensor:
        """Parts of speech of tokens as 0 and 1. *Shape:* ``(sentence, token, tag)``."""
        numbers = torch.arange(len(self.scheme.tags), device=self.tag.device)
        return (self.tag.unsqueeze(-1) == numbers).to(self.share.dtype)

    @cached_property
    def regions(self) -> torch.Tensor:
        """Regions of tokens as 0 and 1. *Shape:* ``(sentence, token, region)``."""
        numbers = torch.arange(len(self.scheme.regions), device=self.region.device)
        return (self.region.unsqueeze(-1) == numbers).to(self.share.dtype)

    @cached_property
    def n_words(self) -> int:
        """Largest number of words of a text, at least 1."""
        return max(int(self.word.max()) + 1, 1)

    @cached_property
    def pieces(self) -> torch.Tensor:
        """Number of tokens of each word; 0 if it was cut off. *Shape:* ``(sentence, word)``."""
        padded = self.word.new_zeros((len(self.word), self.n_words + 1))
        return padded.scatter_add(1, self._place, torch.ones_like(self.word))[:, : self.n_words]

    def by_word(self, values: torch.Tensor, fill: int) -> torch.Tensor:
        """Rearrange a property of words from tokens to words. *Shape:* ``(sentence, word)``.

        Args:
            values: property of each token's word. *Shape:* ``(sentence, token)``.
            fill: value for words without a token.
        """
        padded = values.new_full((len(values), self.n_words + 1), fill)
        return padded.scatter(1, self._place, values)[:, : self.n_words]

    @property
    def _place(self) -> torch.Tensor:
        """Word index of each token, with the number of words for tokens without one."""
        return torch.where(self.word == NO_WORD, self.n_words, self.word)

    @cached_property
    def to_head(self) -> torch.Tensor:
        """Boolean table of heads: true at ``[.., i, j]`` if word j is the head of word i.

        *Shape:* ``(sentence, word, word)``.
        """
        words = torch.arange(self.n_words, device=self.head.device)
        head = self.by_word(self.head, NO_HEAD)
        return (head[:, :, None] == words) & (words[:, None] != words)

    @property
    def n_tokens(self) -> int:
        """Number of tokens of the longest text."""
        return self.ids.shape[1]

    def repeated(self, times: int) -> "PaddedTexts":
        """Return the texts repeated a number of times along the first dimension."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        del arrays["scheme"]
        return PaddedTexts(
            **{name: array.repeat(times, 1) for name, array in arrays.items()}, scheme=self.scheme
        )

    @classmethod
    def of(
        cls,
        texts: Sequence[TokenizedText],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        scheme: AnnotationScheme = UNIVERSAL_DEPENDENCIES,
    ) -> "PaddedTexts":
        """Pad texts to the length of the longest; ``dtype`` is the number format of shares."""

        def pad(rows: list[NDArray[Any]], fill: float) -> torch.Tensor:
            return torch.from_numpy(_padded(rows, fill)).to(device)

        def flags(values: list[bool]) -> torch.Tensor:
            return torch.tensor(values, device=device).unsqueeze(-1)

        return cls(
            ids=pad([t.ids for t in texts], 0),
            valid=pad([np.ones(len(t), dtype=bool) for t in texts], fill=False),
            special=pad([t.special for t in texts], fill=False),
            separator=pad([t.separator for t in texts], fill=False),
            punctuation=pad([t.punctuation for t in texts], fill=False),
            initial=pad([t.initial for t in texts], fill=False),
            word=pad([t.word for t in texts], NO_WORD),
            share=pad([_shares(t) for t in texts], 0).to(dtype),
            tag=pad([_by_token(t, _tags(t, scheme), NO_TAG) for t in texts], NO_TAG),
            head=pad([_by_token(t, [w.head for w in t.words], NO_HEAD) for t in texts], NO_HEAD),
            relation=pad(
                [_by_token(t, _relations(t, scheme), NO_RELATION) for t in texts], NO_RELATION
            ),
            rarest=torch.tensor([[t.rarest] for t in texts], device=device),
            part=pad([t.part for t in texts], 0),
            region=pad([t.region(scheme.regions) for t in texts], NO_REGION),
            types=pad([np.array(t.types or [0] * len(t), dtype=np.int64) for t in texts], 0),
            stop=pad([t.stop for t in texts], fill=False),
            joined=flags([len(t.parts) > 1 for t in texts]),
            tagged=flags([any(w.upos for w in t.words) for t in texts]),
            parsed=flags([any(w.relation for w in t.words) for t in texts]),
            scheme=scheme,
        )


def _padded(rows: list[NDArray[Any]], fill: float) -> NDArray[Any]:
    """Return rows as one table, filled up to the length of the longest row."""
    table = np.full((len(rows), max(map(len, rows))), fill, dtype=rows[0].dtype)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def _tags(tokens: TokenizedText, scheme: AnnotationScheme) -> list[int]:
    """Return the number of each word's part of speech in the scheme, or `NO_TAG`."""
    return [scheme.tag_number(word.upos, NO_TAG) for word in tokens.words]


def _relations(tokens: TokenizedText, scheme: AnnotationScheme) -> list[int]:
    """Return the number of each word's relation, or `NO_RELATION` for words without a head."""
    return [
        scheme.relation_number(word.relation, NO_RELATION) if word.head != NO_HEAD else NO_RELATION
        for word in tokens.words
    ]


def _shares(tokens: TokenizedText) -> NDArray[np.float64]:
    """Return 1 over the number of tokens of each token's word; 0 for tokens without word."""
    has_word = tokens.word != NO_WORD
    counts = np.bincount(tokens.word[has_word], minlength=1)
    shares = np.zeros(len(tokens))
    shares[has_word] = 1 / counts[tokens.word[has_word]]
    return shares


def _by_token(tokens: TokenizedText, values: list[int], without: int) -> NDArray[np.int64]:
    """Return a property of words for their tokens, and ``without`` for tokens without word."""
    return np.array([*values, without], dtype=np.int64)[tokens.word]


SORT_WINDOW = 1024  # sentences sorted by length at a time; a limit, so that memory is bounded


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences of similar length with their padded tokens.

    Attributes:
        items: the sentences.
        texts: padded tokens by side.
        index: position of each sentence in the input. *Shape:* ``(sentence,)``.
        content_hash: hash of each sentence's tokens. *Shape:* ``(sentence,)``.
    """

    items: tuple[TokenizedSentence, ...]
    texts: dict[Side, PaddedTexts]
    index: NDArray[np.int64]
    content_hash: NDArray[np.uint64]

    @property
    def half(self) -> NDArray[np.int64]:
        """Split of each sentence, 0 or 1, from its hash. *Shape:* ``(sentence,)``."""
        return split_of(self.content_hash)

    @property
    def text_hash(self) -> NDArray[np.uint64]:
        """Hash of each sentence's texts, independent of the model. *Shape:* ``(sentence,)``."""
        return np.array([text_hash(item.texts) for item in self.items], dtype=np.uint64)

    def repeated(self, times: int) -> "Batch":
        """Return the batch repeated a number of times along the first dimension."""
        return Batch(
            items=self.items * times,
            texts={side: texts.repeated(times) for side, texts in self.texts.items()},
            index=np.tile(self.index, times),
            content_hash=np.tile(self.content_hash, times),
        )

    @classmethod
    def of(
        cls,
        items: Sequence[TokenizedSentence],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        scheme: AnnotationScheme = UNIVERSAL_DEPENDENCIES,
    ) -> "Batch":
        """Pad sentences to one batch, ordered by split."""
        sides = items[0].tokens
        hashes = np.array([token_hash(item) for item in items], dtype=np.uint64)
        order = np.argsort(split_of(hashes), kind="stable")
        items = [items[place] for place in order]
        return cls(
            items=tuple(items),
            texts={
                side: PaddedTexts.of([item.tokens[side] for item in items], device, dtype, scheme)
                for side in sides
            },
            index=np.array([item.sentence.index for item in items]),
            content_hash=hashes[order],
        )


def text_hash(texts: Iterable[str]) -> int:
    """Return a hash of a sentence's texts, by which models with equal inputs are compared."""
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "big")


def token_hash(item: TokenizedSentence) -> int:
    """Return a hash of a sentence's tokens, by which samples and splits are chosen."""
    return int.from_bytes(hashlib.blake2b(item.content, digest_size=8).digest(), "big")


def batches_by_tokens(
    items: Iterable[TokenizedSentence],
    budget: int,
    *,
    alike: bool = False,
    shared_length: float = math.inf,
) -> Iterator[list[TokenizedSentence]]:
    """Group sentences so that a padded batch holds at most ``budget`` tokens.

    Sentences are sorted by length within a window of `SORT_WINDOW`, so that little is padding. A
    sentence longer than the budget is a batch of its own.

    Args:
        alike: whether all sentences of a batch have equal length, so that nothing is padded.
        shared_length: tokens of the longest sentence that shares a batch; longer ones are alone.
    """
    stream = iter(items)
    while window := list(islice(stream, SORT_WINDOW)):
        window.sort(key=lambda item: (item.length, item.lengths if alike else ()))
        group: list[TokenizedSentence] = []
        for item in window:
            differs = alike and bool(group) and item.lengths != group[0].lengths
            is_alone = item.length > shared_length
            if group and (differs or is_alone or item.length * (len(group) + 1) > budget):
                yield group
                group = []
            group.append(item)
        yield group
