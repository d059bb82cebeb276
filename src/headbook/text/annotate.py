"""Words, parts of speech and dependencies by spaCy; word frequencies by wordfreq.

Sentences with shuffled words.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import version
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np
import regex

from headbook.errors import AnnotatorError
from headbook.inputs import NO_HEAD, Sentence, Word, joined_words
from headbook.resources import ANNOTATOR

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc


EMBEDDED, NO_ANNOTATOR = "embedded", "none"
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
        if name == NO_ANNOTATOR:
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


def shuffle_words(sentence: Sentence, seed: int) -> Sentence:
    """The same words in random order, with their tags, heads and relations.

    The order depends on the seed and the text alone. Words are set apart by single spaces, as long
    as the text has spaces at all.
    """
    words = sentence.words if sentence.words is not None else split_words(sentence.text)
    text, order = _mixed(sentence.text, words, seed)
    place = {old: new for new, old in enumerate(order)}
    between, at, moved = len(_gap(sentence.text)), 0, []
    for old in order:
        word = words[old]
        end = at + word.end - word.start
        moved.append(replace(word, start=at, end=end, head=place.get(word.head, NO_HEAD)))
        at = end + between
    target = sentence.target
    if target is not None:
        target = _mixed(target, split_words(target), seed)[0]
    # Mixed across the sentences of a passage, too, whose ends are then nowhere.
    return replace(sentence, text=text, words=tuple(moved), target=target, parts=())


def _mixed(text: str, words: tuple[Word, ...], seed: int) -> tuple[str, list[int]]:
    """The text with its words in random order, and that order."""
    digest = blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    drawn = np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(words))
    order = [int(place) for place in drawn]
    return _gap(text).join(text[words[i].start : words[i].end] for i in order) or text, order


def _gap(text: str) -> str:
    return " " if any(map(str.isspace, text)) else ""


NO_FREQUENCIES = "none"
FREQUENT = 500  # so many of the most frequent words are never rare


@dataclass(frozen=True)
class WordFrequencies:
    """The frequencies of the words of a language.

    Attributes:
        name: the language and where its frequencies come from, for the record.
        frequency: of a word in lower case, on any scale; None where the word is not known.
        frequent: the frequency of the least of the frequent words; what is rare is below it.
        missing: why there are no frequencies; empty where there are.
    """

    name: str
    frequency: Callable[[str], float | None]
    frequent: float
    missing: str = ""

    def rarest_word(self, words: Sequence[str]) -> int | None:
        """The place of the least frequent word, the first of equals, or None.

        Words without a letter, numbers for example, do not take part. None: there is no word, or
        even the least frequent one is a frequent word.
        """
        rarest, least = None, self.frequent
        for index, word in enumerate(words):
            if any(map(str.isalpha, word)):
                frequency = self.frequency(word.lower())
                if frequency is not None and frequency < least:
                    rarest, least = index, frequency
        return rarest

    @classmethod
    def load(cls, language: str, texts: Iterable[str]) -> "WordFrequencies":
        """Zipf frequencies by wordfreq; counts in the texts for languages that it does not have.

        Args:
            language: a code such as ``en``; ``none`` for no frequencies at all.
            texts: read only where they must be counted.
        """
        if language == NO_FREQUENCIES:
            return cls(NO_FREQUENCIES, _unknown, 0, "the language of the texts is not given")
        import wordfreq  # noqa: PLC0415 - slow to import, and not needed for 'none'

        language = language.lower()
        if language not in wordfreq.available_languages():
            return cls._counted(language, texts)
        try:
            last = wordfreq.top_n_list(language, FREQUENT)[-1]
            frequent = wordfreq.zipf_frequency(last, language)
        except ImportError:  # it needs a program of its own to find this language's words
            return cls._counted(language, texts)
        name = f"{language} (wordfreq {version('wordfreq')})"
        return cls(name, lambda word: wordfreq.zipf_frequency(word, language), frequent)

    @classmethod
    def _counted(cls, language: str, texts: Iterable[str]) -> "WordFrequencies":
        """Counts in the texts themselves; a word that is not among theirs is not known."""
        counts = Counter(
            text[word.start : word.end].lower() for text in texts for word in split_words(text)
        )
        counts = Counter({w: n for w, n in counts.items() if any(map(str.isalpha, w))})
        name = f"{language} (counts in the input)"
        if len(counts) <= FREQUENT:
            why = f"the input has no more than {FREQUENT} different words to count, and wordfreq"
            return cls(name, _unknown, 0, f"{why} has no list for '{language}'")
        return cls(name, counts.get, counts.most_common(FREQUENT)[-1][1])


def _unknown(_: str) -> None:
    """No frequency for any word."""
