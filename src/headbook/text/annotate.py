"""Words, parts of speech and dependencies: the only door to spaCy."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import regex

from headbook.errors import AnnotatorError
from headbook.inputs import NO_HEAD, Sentence, Word, joined_words
from headbook.resources import ANNOTATOR

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

EMBEDDED, NONE = "embedded", "none"
UNUSED = ("ner", "lemmatizer", "entity_linker", "textcat", "textcat_multilabel", "spancat")
CHUNK = 64  # sentences parsed at a time

# Default word boundaries of Unicode (UAX #29): an ideograph is a word of its own, an emoji
# sequence is one word.
BOUNDARY = regex.compile(r"\b", flags=regex.WORD | regex.V1)


@dataclass(frozen=True)
class Annotator:
    """Finds the words of a text and, with a pipeline, their tags and heads.

    Attributes:
        name: name and version of the pipeline, for the record.
    """

    name: str
    pipeline: "Language | None"

    @classmethod
    def load(cls, name: str) -> "Annotator":
        """Load a spaCy pipeline.

        Args:
            name: ``embedded``, ``none``, an installed pipeline's name or a folder.

        Raises:
            AnnotatorError: the pipeline is not there or cannot be loaded.
        """
        if name == NONE:
            return cls("none (words by Unicode UAX #29)", None)
        import spacy  # noqa: PLC0415 - slow to import, and not needed for 'none'

        try:
            pipeline = spacy.load(ANNOTATOR if name == EMBEDDED else name, exclude=UNUSED)
        except (OSError, ValueError) as error:
            raise AnnotatorError(
                f"annotator '{name}': {str(error).splitlines()[0]}; expected an installed spaCy "
                "pipeline, a folder, 'embedded' or 'none'"
            ) from error
        meta = pipeline.meta
        return cls(f"{meta['lang']}_{meta['name']} {meta['version']}", pipeline)

    def annotate(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """Give words to the sentences that came without; lazily and in order."""
        stream = iter(sentences)
        while chunk := list(islice(stream, CHUNK)):
            # Sentences of a passage are analysed one by one, as they are without it.
            spans = [s.parts or ((0, len(s.text)),) for s in chunk]
            texts = [s.text[a:b] for s, span in zip(chunk, spans, strict=True)
                     for a, b in span if s.words is None]  # fmt: skip
            words = self.words(texts)
            for s, each in zip(chunk, spans, strict=True):
                if s.words is None:
                    parts = [(start, next(words)) for start, _ in each]
                    yield dataclasses.replace(s, words=joined_words(parts))
                else:
                    yield s

    def words(self, texts: Iterable[str]) -> Iterator[tuple[Word, ...]]:
        """The words of each text, lazily and in order."""
        if self.pipeline is None:
            return map(split_words, texts)
        return map(_words, self.pipeline.pipe(texts, batch_size=CHUNK))


def split_words(text: str) -> tuple[Word, ...]:
    """Words by Unicode's default boundaries, without tags; white space is no word."""
    cuts = [match.start() for match in BOUNDARY.finditer(text)]
    return tuple(Word(start, end) for start, end in pairwise(cuts) if not text[start:end].isspace())


def _words(doc: "Doc") -> tuple[Word, ...]:
    """A spaCy document's tokens, white-space tokens left out and heads renumbered."""
    kept = [token for token in doc if not token.is_space]
    place = {token.i: number for number, token in enumerate(kept)}
    parsed = doc.has_annotation("DEP")
    return tuple(
        Word(
            token.idx,
            token.idx + len(token),
            upos=token.pos_,
            head=place.get(token.head.i, NO_HEAD)
            if parsed and token.head.i != token.i
            else NO_HEAD,
            relation="root" if token.dep_ == "ROOT" else token.dep_,
        )
        for token in kept
    )
