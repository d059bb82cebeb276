"""Sentences to tokens: tokenizing, truncating, generated targets.

And random token sequences repeated twice.
"""

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
LEAST = 2  # tokens of a text, without which there is no attention from one to another
PLENTY = 32  # characters a token, beyond which a text may be cut before it is tokenized
SPARE = 64  # tokens behind those that are read


@dataclass(frozen=True)
class SentenceTokenizer:
    """Turns sentences into tokens.

    Attributes:
        limit: longest sequence, in tokens.
        targets: annotator of the target side.
        rarities: by side, what is known of the frequencies of words.
    """

    model: Model
    limit: int
    targets: Annotator
    rarities: Mapping[Side, WordFrequencies] = field(default_factory=dict)

    def tokenize(self, sentences: Iterable[Sentence]) -> Iterator[TokenizedSentence]:
        """Tokenise lazily and in order.

        A model that takes one text reads the source of a pair; its target stays as metadata.

        Raises:
            InputError: a sentence without any token.
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
        """Tokens of each sentence by side; a target that is not there counts like its source."""
        for s in sentences:
            texts = {Side.SOURCE: s.text}
            if self.model.config.is_encoder_decoder:
                texts[Side.TARGET] = s.target or s.text
            ids = {side: self.model.tokenizer(text, verbose=False) for side, text in texts.items()}
            yield {side: min(len(each["input_ids"]), self.limit) for side, each in ids.items()}

    def of_ids(self, ids: list[int]) -> TokenizedText:
        """Tokens that stand for no text."""
        return self._tokens("", ids, [(0, 0)] * len(ids), (), 0, side=Side.SOURCE)

    @cached_property
    def _special(self) -> frozenset[int]:
        """Ids of tokens that stand for no text, which a tokenizer takes long to list."""
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
                    came=f"{s.text!r}, of which the tokenizer leaves no token",
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
                ids, spans = self._shift(ids), [(0, 0), *spans[:-1]]
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

    def _shift(self, ids: list[int]) -> list[int]:
        """Decoder input for a target: the start token, then all but the last."""
        return [start_token(self.model), *ids[:-1]]

    def _generate(self, sources: list[TokenizedText]) -> list[list[int]]:
        """Greedy targets as decoder input: with the start token, without the closing one."""
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
        """Ids, character spans and the number of tokens cut off, by text."""
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
        """Spans for a tokenizer that gives none: each piece is looked for behind the last one."""
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
        # Python's sets and lists throughout: NumPy takes longer to begin than a text has tokens.
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
        """The rarest of the words that have a token."""
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
        wanted: what ``--max-length`` says; None for the model's own limit.

    Raises:
        ConfigError: the model has no positions for as many, or nothing would be left of a text.
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
    """Cut a very long text to about what the model takes, before it is tokenized.

    The first ``limit`` tokens are those of the whole text: it is cut at a space, and `SPARE` tokens
    further on than they reach, for the end of a text decides about tokens near to it alone. A text
    of a few long words stays longer.

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
    """The token that every decoder input begins with.

    Raises:
        ModelError: the configuration names none.
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
    """Entries of a padded vocabulary that no token has; None where there is none."""
    size = getattr(text_config(model.config), "vocab_size", 0)
    return list(range(len(model.tokenizer), size)) or None


def special_ids(tokenizer: Any) -> list[int]:
    """Tokens that stand for no text. The unknown and the mask token stand for a word."""
    own = _ids(tokenizer, "bos", "eos", "cls", "sep", "pad")
    words = _ids(tokenizer, "unk", "mask")
    return sorted({*own, *(set(tokenizer.all_special_ids) - set(words))})


def special_pattern(tokenizer: Any) -> str:
    """What the tokenizer puts around a text, with ``…`` for the text itself."""
    special = special_ids(tokenizer)
    ids = tokenizer("a")["input_ids"]
    names = tokenizer.convert_ids_to_tokens(ids)
    parts = [n if token in special else "…" for token, n in zip(ids, names, strict=True)]
    return " ".join(p for i, p in enumerate(parts) if p != "…" or "…" not in parts[:i])


def _ids(tokenizer: Any, *roles: str) -> list[int]:
    """The tokens that a tokenizer has for these roles."""
    found = (getattr(tokenizer, f"{role}_token_id", None) for role in roles)
    return [token for token in found if token is not None]


def _until_end(row: list[int], ends: set[int | None]) -> list[int]:
    """A generated row up to its closing token; the start token may be the same one."""
    stop = next((i for i in range(1, len(row)) if row[i] in ends), len(row))
    return row[:stop]


def _alone(sentence: Sentence) -> Sentence:
    """A pair as a single text."""
    if sentence.target is None:
        return sentence
    metadata = {**sentence.metadata, Side.TARGET: sentence.target}
    return dataclasses.replace(sentence, target=None, metadata=metadata)


SEQUENCES = 50
PERIOD = 50  # tokens that are repeated
RANDOM_TOKENS = SEQUENCES * 2 * PERIOD  # of all of them on one side, at most
PROBES = (1, 4, 11, 30, 30, 30)  # tokens of the texts on which the reading of attention is tried
OTHER = re.compile(r"(image|video|vision|audio)\w*_(id|index)$")


def random_sequences(encoder: SentenceTokenizer, seed: int) -> Iterator[TokenizedSentence]:
    """Seeded sequences of ordinary tokens, no token twice, each repeated once.

    What the tokenizer puts around a text stands around the whole. Where the model takes fewer
    tokens, or has fewer ordinary ones, the sequences are shorter. Pairs get two of their own.
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
    """Random texts of several lengths, the last three of one length, on both sides of a pair."""
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
    """Ordinary tokens, and what the tokenizer puts before and after a text."""
    tokenizer, config = model.tokenizer, model.config.to_dict()
    special = {*special_ids(tokenizer), *tokenizer.all_special_ids}
    # Places of pictures and sounds, which are no text either.
    special |= {v for k, v in config.items() if OTHER.search(k) and isinstance(v, int)}
    ordinary = np.array([i for i in range(len(tokenizer)) if i not in special])
    sample = tokenizer("a")["input_ids"]
    own = special_ids(tokenizer)
    inside = [index for index, token in enumerate(sample) if token not in own]
    first, last = (inside[0], inside[-1] + 1) if inside else (len(sample), len(sample))
    return ordinary, sample[:first], sample[last:]
