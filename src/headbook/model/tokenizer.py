"""Tokenization of sentences with truncation and generated targets, and random sequences."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.errors import ConfigError, InputError, ModelError
from headbook.inputs import Sentence, Word
from headbook.model.load import Model, text_config
from headbook.model.probe import model_errors
from headbook.schema import Side
from headbook.text.annotate import Annotator, WordFrequencies
from headbook.text.tokens import (
    NO_WORD,
    TokenizedSentence,
    TokenizedText,
    align_to_words,
    is_punctuation,
    token_strings,
    trim_span,
)

CHUNK = 64  # sentences tokenised, or targets generated, at a time
GENERATED = 64  # most tokens of a generated target
LEAST = 2  # fewest tokens of a text, so that one can attend to another
PLENTY = 32  # characters per token of the limit, beyond which a text may be cut early
SPARE = 64  # tokens kept beyond the limit when a text is cut early


@dataclass(frozen=True)
class SentenceTokenizer:
    """Tokenizer of sentences for a model.

    Attributes:
        model: the model.
        limit: longest sequence, in tokens.
        targets: annotator of the target side.
        rarities: word frequencies by side.
    """

    model: Model
    limit: int
    targets: Annotator
    rarities: Mapping[Side, WordFrequencies] = field(default_factory=dict)

    def tokenize(self, sentences: Iterable[Sentence]) -> Iterator[TokenizedSentence]:
        """Yield tokenized sentences, lazily and in order.

        A model that takes one text reads the source of a pair; the target becomes metadata.

        Raises:
            InputError: a sentence has no token.
        """
        stream = iter(sentences)
        while chunk := list(islice(stream, CHUNK)):
            sources = self._sources(chunk)
            if not self.model.config.is_encoder_decoder:
                for s, source in zip(chunk, sources, strict=True):
                    yield TokenizedSentence(_alone(s), {Side.SOURCE: source})
                continue
            targets = self._targets(chunk, sources)
            for s, source, target in zip(chunk, sources, targets, strict=True):
                yield TokenizedSentence(s, {Side.SOURCE: source, Side.TARGET: target})

    def lengths(self, sentences: Iterable[Sentence]) -> Iterator[dict[Side, int]]:
        """Yield the number of tokens by side; a missing target counts like the source."""
        for s in sentences:
            texts = {Side.SOURCE: s.text}
            if self.model.config.is_encoder_decoder:
                texts[Side.TARGET] = s.target or s.text
            ids = {side: self.model.tokenizer(text, verbose=False) for side, text in texts.items()}
            yield {side: min(len(each["input_ids"]), self.limit) for side, each in ids.items()}

    def of_ids(self, ids: list[int]) -> TokenizedText:
        """Return token ids without a text as a tokenized text."""
        return self._tokens("", ids, [(0, 0)] * len(ids), (), 0, side=Side.SOURCE)

    @cached_property
    def _special(self) -> frozenset[int]:
        """Ids of tokens that stand for no text; cached, since tokenizers list them slowly."""
        return frozenset(special_ids(self.model.tokenizer))

    @cached_property
    def _separators(self) -> frozenset[int]:
        """Ids of special tokens that end a sentence."""
        return frozenset(_ids(self.model.tokenizer, "sep", "eos"))

    def _sources(self, chunk: list[Sentence]) -> list[TokenizedText]:
        rows = self._tokenise([s.text for s in chunk], target=False)
        sources = [
            replace(
                self._tokens(s.text, ids, spans, s.words or (), lost, side=Side.SOURCE),
                parts=s.parts,
                left_out=s.left_out,
            )
            for s, (ids, spans, lost) in zip(chunk, rows, strict=True)
        ]
        for s, tokens in zip(chunk, sources, strict=True):
            if tokens.special.all():
                file, _, line = s.origin.rpartition(":")
                raise InputError(
                    file,
                    int(line),
                    found=f"{s.text!r}, of which the tokenizer leaves no token",
                    expected="text that the model's vocabulary knows",
                )
        return sources

    def _targets(self, chunk: list[Sentence], sources: list[TokenizedText]) -> list[TokenizedText]:
        given = [s.target for s in chunk if s.target is not None]
        rows = iter(self._tokenise(given, target=True))
        missing = [t for s, t in zip(chunk, sources, strict=True) if s.target is None]
        written = iter(self._generate(missing))
        texts, drafts = [], []
        for s in chunk:
            if s.target is not None:
                ids, spans, lost = next(rows)
                # Decoder input: the start token, then all but the last token.
                ids, spans = [start_token(self.model), *ids[:-1]], [(0, 0), *spans[:-1]]
                text = s.target
            else:
                ids, lost = next(written), 0
                text = self.model.tokenizer.decode(ids, skip_special_tokens=True)
                spans = self._search(text, ids)
            texts.append(text)
            drafts.append((ids, spans, lost, s.target is None))
        words = self.targets.words(texts)
        found = [
            self._tokens(text, ids, spans, word, lost, side=Side.TARGET, generated=generated)
            for text, word, (ids, spans, lost, generated) in zip(texts, words, drafts, strict=True)
        ]
        return [replace(t, left_out=s.target_left_out) for t, s in zip(found, chunk, strict=True)]

    def _generate(self, sources: list[TokenizedText]) -> list[list[int]]:
        """Generate greedy targets as decoder input: with start token, without closing token."""
        if not sources:
            return []
        longest = max(map(len, sources))
        ids = torch.zeros((len(sources), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(sources):
            ids[row, : len(tokens)] = torch.from_numpy(tokens.ids)
            mask[row, : len(tokens)] = 1
        network, device = self.model.network, self.model.device
        with model_errors(self.model), torch.inference_mode():
            written = network.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                max_new_tokens=GENERATED,
                do_sample=False,
                num_beams=1,
                decoder_start_token_id=start_token(self.model),
                suppress_tokens=_nameless(self.model),
            )
        ends = {self.model.tokenizer.eos_token_id, self.model.tokenizer.pad_token_id}
        return [_until_end(row.tolist(), ends) for row in written]

    def _tokenise(
        self, texts: list[str], *, target: bool
    ) -> list[tuple[list[int], list[tuple[int, int]], int]]:
        """Return ids, character spans and the number of tokens cut off, by text."""
        if not texts:
            return []
        tokenizer = self.model.tokenizer
        fast = bool(tokenizer.is_fast)
        name = "text_target" if target else "text"
        options: dict[str, Any] = {"return_offsets_mapping": fast, "verbose": False}
        whole = tokenizer(**{name: texts}, **options)
        rows = []
        for i, text in enumerate(texts):
            ids = whole["input_ids"][i]
            spans = whole["offset_mapping"][i] if fast else None
            lost = max(0, len(ids) - self.limit)
            if lost:
                cut = tokenizer(**{name: text}, **options, truncation=True, max_length=self.limit)
                ids, spans = cut["input_ids"], cut["offset_mapping"] if fast else None
            rows.append((ids, spans if spans is not None else self._search(text, ids), lost))
        return rows

    def _search(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        """Find spans for a tokenizer without offsets: each piece after the last one."""
        tokenizer, lower, at = self.model.tokenizer, text.lower(), 0
        spans = []
        for token in ids:
            piece = tokenizer.decode([token], skip_special_tokens=True).strip().lower()
            start = lower.find(piece, at, at + len(piece) + 2) if piece else -1
            if start < 0 or len(lower) != len(text):
                spans.append((0, 0))
            else:
                at = start + len(piece)
                spans.append((start, at))
        return spans

    def _tokens(
        self,
        text: str,
        ids: list[int],
        spans: list[tuple[int, int]],
        words: tuple[Word, ...],
        lost: int,
        *,
        side: Side,
        generated: bool = False,
    ) -> TokenizedText:
        # Python's sets and lists are faster than NumPy for texts of a few tokens.
        special = [token in self._special for token in ids]
        trimmed = [
            (0, 0) if is_special else trim_span(text, start, end)
            for (start, end), is_special in zip(spans, special, strict=True)
        ]
        # Only tokens without letters need their names.
        name = self.model.tokenizer.convert_ids_to_tokens
        names = [name(token) if s == e else "" for token, (s, e) in zip(ids, trimmed, strict=True)]
        word = align_to_words(text, trimmed, words)
        return TokenizedText(
            text=text,
            pieces=token_strings(text, trimmed, names),
            ids=np.asarray(ids, dtype=np.int64),
            spans=np.asarray(trimmed, dtype=np.int64).reshape(-1, 2),
            special=np.array(special, dtype=bool),
            separator=np.array([token in self._separators for token in ids], dtype=bool),
            punctuation=np.array([is_punctuation(text[s:e]) for s, e in trimmed], dtype=bool),
            word=word,
            words=words,
            rarest=self._rarest(side, text, words, word),
            lost=lost,
            generated=generated,
        )

    def _rarest(
        self, side: Side, text: str, words: tuple[Word, ...], word: NDArray[np.int64]
    ) -> int:
        """Return the index of the rarest word that has a token, or `NO_WORD`."""
        if side not in self.rarities:
            return NO_WORD
        kept = sorted({*word.tolist()} - {NO_WORD})
        position = self.rarities[side].rarest_word(
            [text[words[i].start : words[i].end] for i in kept]
        )
        return NO_WORD if position is None else kept[position]


def sequence_limit(model: Model, wanted: int | None) -> int:
    """Return the longest sequence of a run, in tokens.

    Args:
        wanted: value of ``--max-length``; None for the model's own limit.

    Raises:
        ConfigError: the model has fewer positions, or too few tokens of a text would remain.
    """
    if wanted is None:
        return model.max_length
    added = model.tokenizer.num_special_tokens_to_add()
    if wanted < added + LEAST:
        raise ConfigError(
            f"--max-length: got {wanted}, expected at least {added + LEAST}: {LEAST} tokens of a "
            f"text, and {added} that the tokenizer adds"
        )
    if model.positions is not None and wanted > model.positions:
        raise ConfigError(
            f"--max-length: got {wanted}, expected at most {model.positions}, the positions that "
            f"{model.name} has"
        )
    return wanted


def shorten_text(text: str, tokenizer: Any, limit: int) -> str:
    """Cut a very long text to about the model's limit, before it is tokenized.

    The first ``limit`` tokens equal those of the whole text: the text is cut at a space at least
    `SPARE` tokens beyond the limit, and the end of a text affects only tokens near it. A text of a
    few long words stays longer.

    Args:
        limit: longest sequence, in tokens.
    """
    size = limit * PLENTY
    while size < len(text):
        start = text[:size]
        kept = (start.rsplit(maxsplit=1) or [""])[0] if any(map(str.isspace, start)) else start
        if kept and len(tokenizer(kept, verbose=False)["input_ids"]) >= limit + SPARE:
            return kept
        size *= 4
    return text


def start_token(model: Model) -> int:
    """Return the token at the start of every decoder input.

    Raises:
        ModelError: the configuration has no start token.
    """
    settings = (model.network.generation_config, model.config)
    for name in ("decoder_start_token_id", "bos_token_id"):
        for holder in settings:
            token = getattr(holder, name, None)
            if token is not None:
                return int(token)
    raise ModelError(
        f"model '{model.name}': no decoder_start_token_id in its configuration; expected one"
    )


def _nameless(model: Model) -> list[int] | None:
    """Return the entries of a padded vocabulary that have no token, or None without any."""
    size = getattr(text_config(model.config), "vocab_size", 0)
    return list(range(len(model.tokenizer), size)) or None


def special_ids(tokenizer: Any) -> list[int]:
    """Return the tokens that stand for no text; unknown and mask token stand for a word."""
    own = _ids(tokenizer, "bos", "eos", "cls", "sep", "pad")
    words = _ids(tokenizer, "unk", "mask")
    return sorted({*own, *(set(tokenizer.all_special_ids) - set(words))})


def special_pattern(tokenizer: Any) -> str:
    """Return the special tokens around a text, with ``…`` for the text itself."""
    special = special_ids(tokenizer)
    ids = tokenizer("a")["input_ids"]
    names = tokenizer.convert_ids_to_tokens(ids)
    parts = [n if token in special else "…" for token, n in zip(ids, names, strict=True)]
    return " ".join(p for i, p in enumerate(parts) if p != "…" or "…" not in parts[:i])


def _ids(tokenizer: Any, *roles: str) -> list[int]:
    """Return the tokens that a tokenizer has for some roles."""
    found = (getattr(tokenizer, f"{role}_token_id", None) for role in roles)
    return [token for token in found if token is not None]


def _until_end(row: list[int], ends: set[int | None]) -> list[int]:
    """Return a generated row up to its closing token, which may equal the start token."""
    stop = next((i for i in range(1, len(row)) if row[i] in ends), len(row))
    return row[:stop]


def _alone(sentence: Sentence) -> Sentence:
    """Return a pair as a single text with the target as metadata."""
    if sentence.target is None:
        return sentence
    metadata = {**sentence.metadata, Side.TARGET: sentence.target}
    return dataclasses.replace(sentence, target=None, metadata=metadata)


SEQUENCES = 50  # random sequences
PERIOD = 50  # tokens that are repeated
RANDOM_TOKENS = SEQUENCES * 2 * PERIOD  # largest number of random tokens on one side
PROBES = (1, 4, 11, 30, 30, 30)  # lengths in tokens of the texts that test attention reading
OTHER = re.compile(r"(image|video|vision|audio)\w*_(id|index)$")


def random_sequences(encoder: SentenceTokenizer, seed: int) -> Iterator[TokenizedSentence]:
    """Yield seeded sequences of distinct ordinary tokens, each sequence repeated once.

    The tokenizer's special tokens surround the whole. Sequences are shorter if the model takes
    fewer tokens, or has fewer ordinary ones. Source and target of encoder-decoders differ.
    """
    draw = np.random.default_rng(seed)
    ordinary, before, after = _around(encoder.model)
    longest = (encoder.limit - len(before) - len(after) - 1) // 2
    period = max(min(PERIOD, longest, len(ordinary)), 1)
    for index in range(SEQUENCES):
        drawn = [draw.choice(ordinary, period, replace=False).tolist() * 2 for _ in Side]
        tokens = {Side.SOURCE: encoder.of_ids([*before, *drawn[0], *after])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([start_token(encoder.model), *drawn[1]])
        yield TokenizedSentence(Sentence(index, id="", text=""), tokens)


def probe_texts(encoder: SentenceTokenizer) -> list[TokenizedSentence]:
    """Return random texts of several lengths, the last three of one length, for both sides."""
    draw = np.random.default_rng(0)
    ordinary, before, after = _around(encoder.model)
    longest = max(encoder.limit - len(before) - len(after) - 1, 1)
    found = []
    for index, wanted in enumerate(PROBES):
        size = min(wanted, longest)
        drawn = [draw.choice(ordinary, n).tolist() for n in (size, size // 2 + 1)]
        tokens = {Side.SOURCE: encoder.of_ids([*before, *drawn[0], *after])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([start_token(encoder.model), *drawn[1]])
        found.append(TokenizedSentence(Sentence(index, id="", text=""), tokens))
    return found


def _around(model: Model) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Return the ordinary tokens, and the tokens added before and after a text."""
    tokenizer, config = model.tokenizer, model.config.to_dict()
    special = {*special_ids(tokenizer), *tokenizer.all_special_ids}
    # Placeholders of images and audio are no text either.
    special |= {v for k, v in config.items() if OTHER.search(k) and isinstance(v, int)}
    ordinary = np.array([i for i in range(len(tokenizer)) if i not in special])
    sample = tokenizer("a")["input_ids"]
    own = special_ids(tokenizer)
    inside = [index for index, token in enumerate(sample) if token not in own]
    first, last = (inside[0], inside[-1] + 1) if inside else (len(sample), len(sample))
    return ordinary, sample[:first], sample[last:]
