"""Tokenization of sentences with truncation and generated targets, and random sequences."""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.errors import ConfigError, InputError
from headbook.inputs import TextRecord, Word
from headbook.model.load import Model, text_config
from headbook.model.probe import TYPES_ARGUMENT, model_errors
from headbook.model.tokens.languages import decoder_start, target_frame
from headbook.model.tokens.special import (
    ids_of_roles,
    reserved_ids,
    special_ids,
    start_token,
    tokens_around,
    unknown_id,
)
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

SENTENCES_PER_CHUNK = 64  # sentences tokenised, or targets generated, at a time
MAX_GENERATED_TOKENS = 64  # tokens at which the generation of a target stops
MIN_TEXT_TOKENS = 2  # tokens that --max-length must leave of a text: one can attend to another
CHARACTERS_PER_TOKEN = 32  # texts with fewer characters for each token of the limit stay whole
SPARE_TOKENS = 64  # tokens kept beyond the limit when a text is cut early


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

    def tokenize(self, sentences: Iterable[TextRecord]) -> Iterator[TokenizedSentence]:
        """Yield tokenized sentences, lazily and in order.

        A model that takes one text reads the source of a pair; the target becomes metadata.

        Raises:
            InputError: a sentence has no token.
        """
        stream = iter(sentences)
        while chunk := list(islice(stream, SENTENCES_PER_CHUNK)):
            sources = self._sources(chunk)
            if not self.model.config.is_encoder_decoder:
                for sentence, source in zip(chunk, sources, strict=True):
                    yield TokenizedSentence(_with_unread_target(sentence), {Side.SOURCE: source})
                continue
            targets = self._targets(chunk, sources)
            for sentence, source, target in zip(chunk, sources, targets, strict=True):
                yield TokenizedSentence(sentence, {Side.SOURCE: source, Side.TARGET: target})

    def lengths(self, sentences: Iterable[TextRecord]) -> Iterator[dict[Side, int]]:
        """Yield the number of tokens by side; a missing target counts like the source."""
        for sentence in sentences:
            texts = {Side.SOURCE: sentence.texts}
            if self.model.config.is_encoder_decoder:
                texts[Side.TARGET] = (sentence.target or sentence.text,)
            ids = {side: self.model.tokenizer(*each, verbose=False) for side, each in texts.items()}
            yield {side: min(len(tokens["input_ids"]), self.limit) for side, tokens in ids.items()}

    def spans(self, text: str, *, target: bool = False) -> list[tuple[int, int]]:
        """Return start and end of each token in a text; equal for tokens that stand for no text."""
        ((_, spans, _),) = self._tokenise([text], target=target)
        return [trim_span(text, start, end) for start, end in spans]

    def of_ids(self, ids: list[int]) -> TokenizedText:
        """Return token ids without a text as a tokenized text."""
        return self._tokens("", ids, [(0, 0)] * len(ids), (), 0, side=Side.SOURCE)

    @cached_property
    def _special(self) -> frozenset[int]:
        """Ids of tokens that stand for no text; cached, since tokenizers list them slowly."""
        return special_ids(self.model)

    @cached_property
    def _separators(self) -> frozenset[int]:
        """Ids of special tokens that end a sentence."""
        return frozenset(ids_of_roles(self.model.tokenizer, "sep", "eos"))

    @cached_property
    def _unknown(self) -> int | None:
        """Id of text that the vocabulary lacks."""
        return unknown_id(self.model)

    @cached_property
    def _added(self) -> dict[Side, tuple[list[int], list[int]]]:
        """Ids that stand before and after the text of each side."""
        tokenizer = self.model.tokenizer
        added = {Side.SOURCE: tokens_around(tokenizer("a")["input_ids"], self._special)}
        if self.model.config.is_encoder_decoder:
            ids = tokenizer(text_target="a")["input_ids"]
            added[Side.TARGET] = tokens_around([start_token(self.model), *ids], self._special)
        return added

    def unknown_pieces(self, texts: Iterable[str], *, target: bool = False) -> Iterator[str]:
        """Yield the pieces of texts that the vocabulary lacks, in order."""
        tokenizer = self.model.tokenizer
        for text in texts:
            ((ids, spans, _),) = self._tokenise([text], target=target)
            if self._unknown not in ids:
                continue
            if tokenizer.is_fast:
                pieces = [text[slice(*span)] for span in spans]
            else:  # it knows no offsets, but keeps the text of its tokens
                pieces = tokenizer.tokenize(text)
                ids = tokenizer.convert_tokens_to_ids(pieces)
            found = (p for p, token in zip(pieces, ids, strict=True) if token == self._unknown)
            yield from filter(None, (piece.strip().removeprefix("▁") for piece in found))

    def _doubled(self, ids: list[int], side: Side) -> tuple[str, ...]:
        """Return the tokens that a text begins or ends with, and that the tokenizer adds there."""
        before, after = self._added[side]
        missing = side is Side.TARGET and bool(after)  # a decoder's input ends one token early
        inner = ids[len(before) : len(ids) - len(after) + missing]
        ends = [("begin", inner[:1], before), ("end", inner[-1:], after)]
        name = self.model.tokenizer.convert_ids_to_tokens
        return tuple(f"{end} {name(t)}" for end, tokens, own in ends for t in tokens if t in own)

    def _sources(self, chunk: list[TextRecord]) -> list[TokenizedText]:
        texts = [sentence.text for sentence in chunk if not sentence.is_pair]
        rows = iter(self._tokenise(texts, target=False))
        sources = []
        for sentence in chunk:
            types: tuple[int, ...] = ()
            if sentence.is_pair:
                ids, spans, types, lost = self._tokenise_pair(sentence)
            else:
                ids, spans, lost = next(rows)
            tokens = self._tokens(
                sentence.text, ids, spans, sentence.words or (), lost, side=Side.SOURCE
            )
            sources.append(
                replace(
                    tokens,
                    parts=sentence.parts,
                    left_out=sentence.left_out,
                    regions=sentence.regions,
                    types=types,
                )
            )
        for sentence, tokens in zip(chunk, sources, strict=True):
            if tokens.special.all():
                file, _, line = sentence.origin.rpartition(":")
                raise InputError(
                    file,
                    int(line),
                    found=f"{sentence.text!r}, from which the tokenizer makes no token",
                    expected="text that the model's vocabulary knows",
                )
        return sources

    def _targets(
        self, chunk: list[TextRecord], sources: list[TokenizedText]
    ) -> list[TokenizedText]:
        given_texts = [sentence.target for sentence in chunk if sentence.target is not None]
        tokenized = iter(self._tokenise(given_texts, target=True))
        missing = [
            source
            for sentence, source in zip(chunk, sources, strict=True)
            if sentence.target is None
        ]
        generated_ids = iter(self._generate(missing))
        texts, token_rows = [], []
        for sentence in chunk:
            if sentence.target is not None:
                ids, spans, lost = next(tokenized)
                ids, spans = self._as_decoder_input(ids, spans)
                text = sentence.target
            else:
                ids, lost = next(generated_ids), 0
                text = self._decode(ids)
                spans = self._search(text, ids)
            texts.append(text)
            token_rows.append((ids, spans, lost, sentence.target is None))
        words = self.targets.words(texts)
        targets = [
            self._tokens(text, ids, spans, word, lost, side=Side.TARGET, generated=is_generated)
            for text, word, (ids, spans, lost, is_generated) in zip(
                texts, words, token_rows, strict=True
            )
        ]
        return [
            replace(target, left_out=sentence.target_left_out)
            for target, sentence in zip(targets, chunk, strict=True)
        ]

    def _as_decoder_input(
        self, ids: list[int], spans: list[tuple[int, int]]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return a target as the decoder reads it: start tokens, then all but what closes it."""
        start = decoder_start(self.model)
        first, last = target_frame(self.model.tokenizer)
        kept = slice(first, len(ids) - last)
        return [*start, *ids[kept]], [(0, 0)] * len(start) + spans[kept]

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
            generated = network.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                max_new_tokens=MAX_GENERATED_TOKENS,
                do_sample=False,
                num_beams=1,
                decoder_start_token_id=start_token(self.model),
                suppress_tokens=_entries_without_token(self.model),
            )
        ends = {self.model.tokenizer.eos_token_id, self.model.tokenizer.pad_token_id}
        return [_before_closing_token(row.tolist(), ends) for row in generated]

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
        encoded = tokenizer(**{name: texts}, **options)
        rows = []
        for i, text in enumerate(texts):
            ids = encoded["input_ids"][i]
            spans = encoded["offset_mapping"][i] if fast else None
            lost = max(0, len(ids) - self.limit)
            if lost:
                truncated = tokenizer(
                    **{name: text}, **options, truncation=True, max_length=self.limit
                )
                ids, spans = truncated["input_ids"], truncated["offset_mapping"] if fast else None
            rows.append((ids, spans if spans is not None else self._search(text, ids), lost))
        return rows

    def _tokenise_pair(
        self, sentence: TextRecord
    ) -> tuple[list[int], list[tuple[int, int]], tuple[int, ...], int]:
        """Return ids, character spans, token types and the number of tokens cut off, of a pair.

        A pair that is too long loses tokens at the end of its longer text.
        """
        tokenizer = self.model.tokenizer
        fast = bool(tokenizer.is_fast)
        options: dict[str, Any] = {"return_offsets_mapping": fast, "verbose": False}
        encoded = tokenizer(*sentence.texts, **options)
        lost = max(0, len(encoded["input_ids"]) - self.limit)
        if lost:
            options |= {"truncation": "longest_first", "max_length": self.limit}
            encoded = tokenizer(*sentence.texts, **options)
        ids = encoded["input_ids"]
        types = tuple(encoded.get(TYPES_ARGUMENT, ())) if self._reads_types else ()
        if not fast:
            return ids, self._search(sentence.text, ids), types, lost
        start = sentence.regions[1].start
        spans = [
            (begin + start, end + start) if text == 1 else (begin, end)
            for (begin, end), text in zip(
                encoded["offset_mapping"], encoded.sequence_ids(), strict=True
            )
        ]
        return ids, spans, types, lost

    @cached_property
    def _reads_types(self) -> bool:
        """Whether the model has several types of tokens, which tell texts of a pair apart."""
        arguments = inspect.signature(self.model.base_model.forward).parameters
        return TYPES_ARGUMENT in arguments and getattr(self.model.config, "type_vocab_size", 2) > 1

    def _decode(self, ids: Iterable[int]) -> str:
        """Return the text of some tokens, without special and unknown ones."""
        ordinary = [token for token in ids if token not in self._special]
        text: str = self.model.tokenizer.decode(ordinary, skip_special_tokens=True)
        return text

    def _search(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        """Find spans for a tokenizer without offsets: each piece after the last one."""
        lowered, end = text.lower(), 0
        spans = []
        for token in ids:
            piece = self._decode([token]).strip().lower()
            start = lowered.find(piece, end, end + len(piece) + 2) if piece else -1
            if start < 0 or len(lowered) != len(text):
                spans.append((0, 0))
            else:
                end = start + len(piece)
                spans.append((start, end))
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
        names = [
            name(token) if start == end else ""
            for token, (start, end) in zip(ids, trimmed, strict=True)
        ]
        word = align_to_words(text, trimmed, words)
        return TokenizedText(
            text=text,
            pieces=token_strings(text, trimmed, names),
            ids=np.asarray(ids, dtype=np.int64),
            spans=np.asarray(trimmed, dtype=np.int64).reshape(-1, 2),
            special=np.array(special, dtype=bool),
            separator=np.array([token in self._separators for token in ids], dtype=bool),
            punctuation=np.array(
                [is_punctuation(text[start:end]) for start, end in trimmed], dtype=bool
            ),
            word=word,
            words=words,
            rarest=self._rarest(side, text, words, word),
            lost=lost,
            generated=generated,
            unknown=ids.count(self._unknown) if self._unknown is not None else 0,
            doubled=self._doubled(ids, side) if text and not generated else (),
        )

    def _rarest(
        self, side: Side, text: str, words: tuple[Word, ...], word: NDArray[np.int64]
    ) -> int:
        """Return the index of the rarest word that has a token, or `NO_WORD`."""
        if side not in self.rarities:
            return NO_WORD
        word_indices = sorted({*word.tolist()} - {NO_WORD})
        position = self.rarities[side].rarest_word(
            [text[words[i].start : words[i].end] for i in word_indices]
        )
        return NO_WORD if position is None else word_indices[position]


def sequence_limit(model: Model, max_length: int | None) -> int:
    """Return the longest sequence of a run, in tokens.

    Args:
        max_length: value of ``--max-length``; None for the model's own limit.

    Raises:
        ConfigError: the model has fewer positions, or too few tokens of a text would remain.
    """
    if max_length is None:
        return model.max_length
    n_special = model.tokenizer.num_special_tokens_to_add()
    if max_length < n_special + MIN_TEXT_TOKENS:
        raise ConfigError(
            f"--max-length: got {max_length}, expected at least {n_special + MIN_TEXT_TOKENS}: "
            f"{MIN_TEXT_TOKENS} tokens of a text, and {n_special} that the tokenizer adds"
        )
    if model.positions is not None and max_length > model.positions:
        raise ConfigError(
            f"--max-length: got {max_length}, expected at most {model.positions}, the positions "
            f"that {model.name} has"
        )
    return max_length


def shorten_text(text: str, tokenizer: Any, limit: int) -> str:
    """Cut a very long text to about the model's limit, before it is tokenized.

    The first ``limit`` tokens equal those of the whole text: the text is cut at a space at least
    `SPARE_TOKENS` tokens beyond the limit, and the end of a text affects only tokens near it. A
    text of a few long words stays longer.

    Args:
        limit: longest sequence, in tokens.
    """
    n_characters = limit * CHARACTERS_PER_TOKEN
    while n_characters < len(text):
        start = text[:n_characters]
        shortened = (start.rsplit(maxsplit=1) or [""])[0] if any(map(str.isspace, start)) else start
        if (
            shortened
            and len(tokenizer(shortened, verbose=False)["input_ids"]) >= limit + SPARE_TOKENS
        ):
            return shortened
        n_characters *= 4
    return text


def _entries_without_token(model: Model) -> list[int] | None:
    """Return the entries of a padded vocabulary that have no token, or None without any."""
    n_entries = getattr(text_config(model.config), "vocab_size", 0)
    return list(range(len(model.tokenizer), n_entries)) or None


def _before_closing_token(row: list[int], ends: set[int | None]) -> list[int]:
    """Return a generated row up to its closing token, which may equal the start token."""
    stop = next((i for i in range(1, len(row)) if row[i] in ends), len(row))
    return row[:stop]


def _with_unread_target(sentence: TextRecord) -> TextRecord:
    """Return a pair with its target, which a model of one text does not read, as metadata."""
    if sentence.target is None:
        return sentence
    metadata = {**sentence.metadata, Side.TARGET: sentence.target}
    return dataclasses.replace(sentence, metadata=metadata)


N_RANDOM_SEQUENCES = 50  # sequences of random tokens in each run
MAX_PERIOD_TOKENS = 50  # random tokens of a sequence before they are repeated
# Largest number of random tokens on one side, over all sequences.
MAX_RANDOM_TOKENS = N_RANDOM_SEQUENCES * 2 * MAX_PERIOD_TOKENS
# Tokens of the texts that test how attention is read: several lengths test padding, and three texts
# of one length test batches without padding.
PROBE_LENGTHS = (1, 4, 11, 30, 30, 30)
# Configuration fields with the ids of placeholders for images and audio.
PLACEHOLDER_FIELD = re.compile(r"(image|video|vision|audio)\w*_(id|index)$")


def random_sequences(encoder: SentenceTokenizer, seed: int) -> Iterator[TokenizedSentence]:
    """Yield seeded sequences of distinct ordinary tokens, each sequence repeated once.

    The tokenizer's special tokens surround the whole. Sequences are shorter if the model takes
    fewer tokens, or has fewer ordinary ones. Source and target of encoder-decoders differ.
    """
    rng = np.random.default_rng(seed)
    ordinary, prefix, suffix = ordinary_and_added(encoder.model)
    max_period = (encoder.limit - len(prefix) - len(suffix) - 1) // 2
    period = max(min(MAX_PERIOD_TOKENS, max_period, len(ordinary)), 1)
    for number in range(N_RANDOM_SEQUENCES):
        drawn_ids = [rng.choice(ordinary, period, replace=False).tolist() * 2 for _ in Side]
        tokens = {Side.SOURCE: encoder.of_ids([*prefix, *drawn_ids[0], *suffix])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([*decoder_start(encoder.model), *drawn_ids[1]])
        yield TokenizedSentence(TextRecord(number, id="", text=""), tokens)


def probe_texts(encoder: SentenceTokenizer) -> list[TokenizedSentence]:
    """Return random texts of several lengths, the last three of one length, for both sides."""
    rng = np.random.default_rng(0)
    ordinary, prefix, suffix = ordinary_and_added(encoder.model)
    max_tokens = max(encoder.limit - len(prefix) - len(suffix) - 1, 1)
    texts = []
    for number, length in enumerate(PROBE_LENGTHS):
        size = min(length, max_tokens)
        drawn_ids = [rng.choice(ordinary, n).tolist() for n in (size, size // 2 + 1)]
        tokens = {Side.SOURCE: encoder.of_ids([*prefix, *drawn_ids[0], *suffix])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([*decoder_start(encoder.model), *drawn_ids[1]])
        texts.append(TokenizedSentence(TextRecord(number, id="", text=""), tokens))
    return texts


def ordinary_and_added(model: Model) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Return the ordinary tokens, and the tokens added before and after a text."""
    tokenizer, config = model.tokenizer, model.config.to_dict()
    # Placeholders of images and audio are no text either.
    placeholders = {
        value
        for key, value in config.items()
        if PLACEHOLDER_FIELD.search(key) and isinstance(value, int)
    }
    left_out = reserved_ids(model) | placeholders
    ordinary = np.array([i for i in range(len(tokenizer)) if i not in left_out])
    return ordinary, *tokens_around(tokenizer("a")["input_ids"], special_ids(model))
