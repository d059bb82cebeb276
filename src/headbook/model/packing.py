"""Packing of consecutive sentences of a document into passages, up to a number of tokens.

A document begins at ``# newdoc`` of CoNLL-U, or when the metadata column ``document`` changes;
without either, a file is a document.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headbook.errors import ConfigError
from headbook.inputs import Corpus, InputFile, Sentence, joined_words
from headbook.model.load import Model

CHUNK = 256  # sentences tokenised at a time
DOCUMENT, NEWDOC = "document", ("newdoc", "newdoc id")


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

    def __iter__(self) -> Iterator[Sentence]:
        sentences = iter(self.corpus)
        for index, size in enumerate(self.sizes):
            yield join_sentences([*islice(sentences, size)], index, self.between)


def pack_sentences(corpus: Corpus, model: Model, most: int, limit: int) -> Passages:
    """Pack the sentences of a corpus into passages.

    A sentence longer than ``most`` is a passage by itself, at its full length.

    Args:
        most: largest number of tokens of a passage, including special tokens.
        limit: longest sequence that is not cut, in tokens.

    Raises:
        ConfigError: the input has source-target pairs, or passages would be cut.
    """
    if any(sentence.target is not None for sentence in corpus):
        raise ConfigError("--pack: got source-target pairs, expected texts without a target")
    if most > limit:
        raise ConfigError(f"--pack: got {most}, expected at most {limit}, or passages are cut")
    between = separator(model.tokenizer)
    around = len(model.tokenizer("a")["input_ids"]) - len(_ids(model.tokenizer, ["a"])[0])
    sizes: list[int] = []
    free, last = 0, None
    for sentence, length in _lengths(corpus, model.tokenizer, between):
        if last is not None and length <= free and not _begins(sentence, last):
            sizes[-1] += 1
            free -= length
        else:
            sizes.append(1)
            free = most - around - length
        last = sentence
    return Passages(corpus, tuple(sizes), between)


def separator(tokenizer: Any) -> str:
    """Return the separator of sentences: the token that ends a text, if any, and a space."""
    ends = {tokenizer.sep_token_id, tokenizer.eos_token_id} - {None}
    last = tokenizer("a")["input_ids"][-1]
    # Slow tokenizers give no offsets; their tokens are searched in the text, without separators.
    name = tokenizer.convert_ids_to_tokens(last) if last in ends and tokenizer.is_fast else ""
    return f"{name} "


def join_sentences(parts: Sequence[Sentence], index: int, between: str) -> Sentence:
    """Join sentences into one text, each with its own words.

    Metadata are those of the first sentence that no other sentence contradicts.

    Args:
        parts: the sentences.
        index: index of the passage.
        between: separator between two sentences.
    """
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return replace(first, index=index)
    starts = [0]
    for part in parts[:-1]:
        starts.append(starts[-1] + len(part.text) + len(between))
    words = None
    if all(part.words is not None for part in parts):
        words = joined_words(
            (start, part.words or ()) for start, part in zip(starts, parts, strict=True)
        )
    return Sentence(
        index=index,
        id=f"{first.id} … {last.id}" if first.id and last.id else first.id,
        text=between.join(part.text for part in parts),
        words=words,
        metadata=_shared([part.metadata for part in parts]),
        origin=first.origin,
        parts=tuple(
            (start, start + len(part.text)) for start, part in zip(starts, parts, strict=True)
        ),
    )


def _shared(metadata: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {
        name: value
        for name, value in metadata[0].items()
        if all(other.get(name, value) == value for other in metadata)
    }


def _begins(sentence: Sentence, last: Sentence) -> bool:
    """Whether a sentence begins a document."""
    return (
        any(name in sentence.metadata for name in NEWDOC)
        or sentence.metadata.get(DOCUMENT) != last.metadata.get(DOCUMENT)
        or sentence.origin.rpartition(":")[0] != last.origin.rpartition(":")[0]
    )


def _lengths(
    sentences: Iterable[Sentence], tokenizer: Any, between: str
) -> Iterator[tuple[Sentence, int]]:
    """Yield each sentence with its number of tokens, including the separator before it."""
    stream = iter(sentences)
    while chunk := list(islice(stream, CHUNK)):
        rows = _ids(tokenizer, [between + sentence.text for sentence in chunk])
        yield from zip(chunk, map(len, rows), strict=True)


def _ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    found: list[list[int]] = tokenizer([*texts], add_special_tokens=False, verbose=False)[
        "input_ids"
    ]
    return found
