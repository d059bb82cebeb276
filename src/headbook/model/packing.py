"""Packing of consecutive sentences of a document into passages, up to a number of tokens.

A document begins at ``# newdoc`` of CoNLL-U, or when the metadata column ``document`` changes;
without either, a file is a document.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headbook.errors import ConfigError
from headbook.inputs import Corpus, InputFile, TextRecord, joined_words
from headbook.model.load import Model

SENTENCES_PER_CHUNK = 256  # sentences tokenised at a time
DOCUMENT_COLUMN, NEWDOC_COLUMNS = "document", ("newdoc", "newdoc id")


@dataclass(frozen=True)
class Passages:
    """Passages of consecutive sentences of a corpus; iterating reads the sentences again.

    Attributes:
        corpus: the sentences.
        sizes: number of sentences of each passage.
        between: separator between two sentences.
    """

    corpus: Corpus
    sizes: tuple[int, ...]
    between: str

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Input files of the corpus."""
        return self.corpus.files

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[TextRecord]:
        sentences = iter(self.corpus)
        for index, size in enumerate(self.sizes):
            yield join_sentences([*islice(sentences, size)], index, self.between)


def pack_sentences(corpus: Corpus, model: Model, max_tokens: int, limit: int) -> Passages:
    """Pack the sentences of a corpus into passages.

    A sentence longer than ``max_tokens`` is a passage by itself, at its full length.

    Args:
        max_tokens: largest number of tokens of a passage, including special tokens.
        limit: longest sequence that is not cut, in tokens.

    Raises:
        ConfigError: the input has source-target pairs, or passages would be cut.
    """
    if any(sentence.target is not None for sentence in corpus):
        raise ConfigError("--pack: got source-target pairs, expected texts without a target")
    if max_tokens > limit:
        raise ConfigError(
            f"--pack: got {max_tokens}, expected at most {limit}, or passages are cut"
        )
    between = separator(model.tokenizer)
    n_special = len(model.tokenizer("a")["input_ids"]) - len(_ids(model.tokenizer, ["a"])[0])
    sizes: list[int] = []
    free_tokens, previous = 0, None
    for sentence, length in _lengths(corpus, model.tokenizer, between):
        if previous is not None and length <= free_tokens and not _begins(sentence, previous):
            sizes[-1] += 1
            free_tokens -= length
        else:
            sizes.append(1)
            free_tokens = max_tokens - n_special - length
        previous = sentence
    return Passages(corpus, tuple(sizes), between)


def separator(tokenizer: Any) -> str:
    """Return the separator of sentences: the token that ends a text, if any, and a space."""
    end_ids = {tokenizer.sep_token_id, tokenizer.eos_token_id} - {None}
    last_id = tokenizer("a")["input_ids"][-1]
    # Slow tokenizers give no offsets; their tokens are searched in the text, without separators.
    name = (
        tokenizer.convert_ids_to_tokens(last_id) if last_id in end_ids and tokenizer.is_fast else ""
    )
    return f"{name} "


def join_sentences(sentences: Sequence[TextRecord], index: int, between: str) -> TextRecord:
    """Join sentences into one text, each with its own words.

    Metadata are those of the first sentence that no other sentence contradicts.

    Args:
        sentences: the sentences.
        index: index of the passage.
        between: separator between two sentences.
    """
    first, last = sentences[0], sentences[-1]
    if len(sentences) == 1:
        return replace(first, index=index)
    starts = [0]
    for sentence in sentences[:-1]:
        starts.append(starts[-1] + len(sentence.text) + len(between))
    words = None
    if all(sentence.words is not None for sentence in sentences):
        words = joined_words(
            (start, sentence.words or ()) for start, sentence in zip(starts, sentences, strict=True)
        )
    return TextRecord(
        index=index,
        id=f"{first.id} … {last.id}" if first.id and last.id else first.id,
        text=between.join(sentence.text for sentence in sentences),
        words=words,
        metadata=_shared([sentence.metadata for sentence in sentences]),
        bare_words=all(sentence.bare_words for sentence in sentences),
        origin=first.origin,
        parts=tuple(
            (start, start + len(sentence.text))
            for start, sentence in zip(starts, sentences, strict=True)
        ),
    )


def without_separators(passage: TextRecord) -> TextRecord:
    """Return a passage with a space between sentences, in place of the model's separator."""
    if not passage.parts:
        return passage
    texts = [passage.text[start:end] for start, end in passage.parts]
    starts = [0]
    for text in texts[:-1]:
        starts.append(starts[-1] + len(text) + 1)
    shifts = [new - start for new, (start, _) in zip(starts, passage.parts, strict=True)]
    words = passage.words
    if words is not None:
        begins = [start for start, _ in passage.parts]
        of_word = [shifts[bisect_right(begins, word.start) - 1] for word in words]
        words = tuple(
            replace(word, start=word.start + shift, end=word.end + shift)
            for word, shift in zip(words, of_word, strict=True)
        )
    parts = tuple((start, start + len(text)) for start, text in zip(starts, texts, strict=True))
    return replace(passage, text=" ".join(texts), words=words, parts=parts)


def _shared(metadata: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {
        name: value
        for name, value in metadata[0].items()
        if all(other_metadata.get(name, value) == value for other_metadata in metadata)
    }


def _begins(sentence: TextRecord, previous: TextRecord) -> bool:
    """Whether a sentence begins a document."""
    return (
        any(name in sentence.metadata for name in NEWDOC_COLUMNS)
        or sentence.metadata.get(DOCUMENT_COLUMN) != previous.metadata.get(DOCUMENT_COLUMN)
        or sentence.origin.rpartition(":")[0] != previous.origin.rpartition(":")[0]
    )


def _lengths(
    sentences: Iterable[TextRecord], tokenizer: Any, between: str
) -> Iterator[tuple[TextRecord, int]]:
    """Yield each sentence with its number of tokens, including the separator before it."""
    stream = iter(sentences)
    while chunk := list(islice(stream, SENTENCES_PER_CHUNK)):
        rows = _ids(tokenizer, [between + sentence.text for sentence in chunk])
        yield from zip(chunk, map(len, rows), strict=True)


def _ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer([*texts], add_special_tokens=False, verbose=False)["input_ids"]
    return ids
