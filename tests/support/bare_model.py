"""A model without the package: loaded by transformers, run on one sentence at a time."""

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import wordfreq
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

import tiny
from naive_written_vectors import Written
from single_head import HeadAttention, Text, Token
from treebank import Gold, spans_of, text_of

STACKS = {  # name, field of the output, side of the queries, side of the keys
    "self": ("attentions", 0, 0),
    "encoder": ("encoder_attentions", 0, 0),
    "decoder": ("decoder_attentions", 1, 1),
    "cross": ("cross_attentions", 1, 0),
}


def half_of(rows: Sequence[Sequence[int]]) -> int:
    """Return the half that a sentence belongs to: the last bit of a hash of its tokens."""
    content = b"|".join(np.array(row, np.int64).tobytes() for row in rows)
    return hashlib.blake2b(content, digest_size=8).digest()[-1] & 1


class Word(NamedTuple):
    """A word's place in its text; ``head`` is the number of a word, None without one."""

    start: int
    end: int
    tag: str
    head: int | None
    relation: str


class Given(NamedTuple):
    """A text with its words."""

    text: str
    words: Sequence[Word]


def given(tree: tuple[Gold, ...]) -> Given:
    """Return an annotated sentence."""
    words = [
        Word(*span, "" if w.tag == "_" else w.tag, w.head - 1 if w.head > 0 else None,
             "" if w.relation == "_" else w.relation)
        for w, span in zip(tree, spans_of(tree), strict=True)
    ]  # fmt: skip
    return Given(text_of(tree), words)


def rarest(side: Given, tokens: Sequence[Token]) -> int | None:
    """Return the number of the rarest English word with tokens, if it is rare at all."""

    def zipf(number: int) -> float:
        word = side.words[number]
        return wordfreq.zipf_frequency(side.text[word.start : word.end], "en")

    def has_letter(number: int) -> bool:
        word = side.words[number]
        return any(c.isalpha() for c in side.text[word.start : word.end])

    words = sorted({t.word for t in tokens if t.word is not None and has_letter(t.word)})
    if not words:
        return None
    found = min(words, key=zipf)
    frequent = min(wordfreq.zipf_frequency(w, "en") for w in wordfreq.top_n_list("en", 500))
    return found if zipf(found) < frequent else None


@dataclass(frozen=True)
class Bare:
    """A network with its own attention, in float64."""

    network: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Path, *, pairs: bool = False) -> "Bare":
        """Load from a folder."""
        loader = AutoModelForSeq2SeqLM if pairs else AutoModel
        network = loader.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
        )
        return cls(network.eval(), AutoTokenizer.from_pretrained(folder))

    def ids(self, *texts: str) -> list[list[int]]:
        """Tokens of a source and, for a pair, of the decoder's input."""
        rows: list[list[int]] = [self.tokenizer(text)["input_ids"] for text in texts]
        if len(rows) == 2:
            rows[1] = [self.network.config.decoder_start_token_id, *rows[1][:-1]]
        return rows

    def run(self, rows: Sequence[Sequence[int]], **options: Any) -> Any:
        """One pass over one sentence."""
        names = ("input_ids", "decoder_input_ids")
        inputs = {n: torch.tensor([row]) for n, row in zip(names, rows, strict=False)}
        with torch.no_grad():
            return self.network(**inputs, **options)

    def texts(self, *sides: Given) -> list[Text]:
        """Tokens of each side beside what they stand for."""
        rows = self.ids(*(side.text for side in sides))
        texts = []
        for number, (side, row) in enumerate(zip(sides, rows, strict=True)):
            spans = self.tokenizer(side.text, return_offsets_mapping=True)["offset_mapping"]
            if number:
                spans = [(0, 0), *spans[:-1]]
            tokens = [self._token(side, i, *span) for i, span in zip(row, spans, strict=True)]
            tagged, parsed = (any(w.tag for w in side.words), any(w.relation for w in side.words))
            texts.append(Text(tokens, tagged, parsed, rarest(side, tokens)))
        return texts

    def _token(self, side: Given, token: int, start: int, end: int) -> Token:
        t = self.tokenizer
        while start < end and side.text[start].isspace():
            start += 1
        unknown = {t.unk_token_id, t.mask_token_id} - {t.eos_token_id}
        special = token in set(t.all_special_ids) - unknown
        piece = "" if special else side.text[start:end]
        punctuation = bool(piece) and all(unicodedata.category(c)[0] == "P" for c in piece)
        stop = bool(piece) and set(piece) <= set(".!?")
        separator = token in {t.sep_token_id, t.eos_token_id}
        for number, word in enumerate(side.words):
            if piece and word.start <= start < word.end:
                return Token(
                    token, special, separator, punctuation,
                    number, word.tag, word.head, word.relation, stop=stop,
                )  # fmt: skip
        return Token(token, special, separator, punctuation, stop=stop)

    def looks(
        self, *sides: Given, window: dict[int, int] | None = None
    ) -> Iterator[tuple[str, int, int, HeadAttention]]:
        """Stack, layer, head and what the head does in one sentence.

        Args:
            window: by layer, how far to either side its tokens see.
        """
        texts = self.texts(*sides)
        rows = [[t.id for t in text.tokens] for text in texts]
        with Written(self.network) as written:
            output = self.run(rows, output_attentions=True)
        for name, (field, queries, keys) in STACKS.items():
            for layer, maps in enumerate(getattr(output, field, None) or ()):
                reach = (window or {}).get(layer, 1000)
                causal = name == "decoder" or not self._sees_ahead(name)
                n, m = len(texts[queries].tokens), len(texts[keys].tokens)
                seen = [
                    [j for j in range(m) if not (causal and j > i) and abs(i - j) <= reach]
                    for i in range(n)
                ]
                for head, weights in enumerate(maps[0].tolist()):
                    crosses = queries != keys
                    norms = written.norms(name, layer, head, len(maps[0]))
                    brought = written.vectors(name, layer, head, len(maps[0]))
                    both = texts[queries], texts[keys]
                    values = written.values(name, layer, head, len(maps[0]))
                    attention = HeadAttention(
                        weights, seen, *both, causal, crosses, norms, brought, values
                    )
                    attention = replace(attention, half=half_of(rows))
                    yield name, layer, head, attention

    def _sees_ahead(self, stack: str) -> bool:
        """Return whether a query sees later keys, as in encoders and cross-attention."""
        encoders = {"bert", "roberta", "distilbert", "modernbert"}
        return stack != "self" or self.network.config.model_type in encoders


def bare_with_head(folder: Path, family: str) -> Bare:
    """Return the model with its head, in float64."""
    loader: Any = AutoModelForCausalLM
    if tiny.ALL[family].pairs:
        loader = AutoModelForSeq2SeqLM
    elif family in {"bert", "distilbert"}:
        loader = AutoModelForMaskedLM
    found = Bare.load(folder, pairs=True) if tiny.ALL[family].pairs else Bare.load(folder)
    network = loader.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    return Bare(network.eval(), found.tokenizer)
