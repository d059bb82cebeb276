"""Annotation of sentences: words, tags and dependencies by spaCy, frequencies, shuffled words."""

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


EMBEDDED, NO_ANNOTATOR = "embedded", "none"  # values of the option annotator that name no pipeline
# Components of pipelines that are not loaded, because no metric needs them.
EXCLUDED_COMPONENTS = (
    "ner",
    "lemmatizer",
    "entity_linker",
    "textcat",
    "textcat_multilabel",
    "spancat",
)
BATCH_SENTENCES = 64  # parsed at a time

# Default word boundaries of Unicode (UAX #29): each ideograph and each emoji sequence is a word.
BOUNDARY = regex.compile(r"\b", flags=regex.WORD | regex.V1)


@dataclass(frozen=True)
class Annotator:
    """Annotator that finds the words of a text and, with a pipeline, their tags and heads.

    Attributes:
        name: name and version of the pipeline, which the study records.
        pipeline: spaCy pipeline; None to split words by Unicode's rules.
    """

    name: str
    pipeline: "Language | None"

    @classmethod
    def load(cls, name: str) -> "Annotator":
        """Load a spaCy pipeline.

        Args:
            name: ``embedded``, ``none``, an installed pipeline's name or a folder.

        Raises:
            AnnotatorError: the pipeline is not installed or cannot be loaded.
        """
        if name == NO_ANNOTATOR:
            return cls("none (words by Unicode UAX #29)", None)
        import spacy  # noqa: PLC0415 - slow to import, and not needed for 'none'

        try:
            pipeline = spacy.load(
                ANNOTATOR if name == EMBEDDED else name, exclude=EXCLUDED_COMPONENTS
            )
        except (OSError, ValueError) as error:
            raise AnnotatorError(
                f"annotator '{name}': {str(error).splitlines()[0]}; expected an installed spaCy "
                "pipeline, a folder, 'embedded' or 'none'"
            ) from error
        meta = pipeline.meta
        return cls(f"{meta['lang']}_{meta['name']} {meta['version']}", pipeline)

    def annotate(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """Yield sentences in order, lazily, with words for those that have none."""
        stream = iter(sentences)
        while chunk := list(islice(stream, BATCH_SENTENCES)):
            # Sentences of a passage are parsed one by one: results do not depend on packing.
            spans = [sentence.parts or ((0, len(sentence.text)),) for sentence in chunk]
            texts = [
                sentence.text[start:end]
                for sentence, sentence_spans in zip(chunk, spans, strict=True)
                if sentence.words is None
                for start, end in sentence_spans
            ]
            words = self.words(texts)
            for sentence, sentence_spans in zip(chunk, spans, strict=True):
                if sentence.words is None:
                    words_of_spans = [(start, next(words)) for start, _ in sentence_spans]
                    yield dataclasses.replace(sentence, words=joined_words(words_of_spans))
                else:
                    yield sentence

    def words(self, texts: Iterable[str]) -> Iterator[tuple[Word, ...]]:
        """Yield the words of each text, lazily and in order."""
        if self.pipeline is None:
            return map(split_words, texts)
        return map(_words, self.pipeline.pipe(texts, batch_size=BATCH_SENTENCES))


def split_words(text: str) -> tuple[Word, ...]:
    """Split a text by Unicode's default word boundaries, without tags or white space."""
    cuts = [match.start() for match in BOUNDARY.finditer(text)]
    return tuple(Word(start, end) for start, end in pairwise(cuts) if not text[start:end].isspace())


def _words(doc: "Doc") -> tuple[Word, ...]:
    """Return the tokens of a spaCy document without white space, with heads renumbered."""
    tokens = [token for token in doc if not token.is_space]
    word_of_token = {token.i: number for number, token in enumerate(tokens)}
    parsed = doc.has_annotation("DEP")
    return tuple(
        Word(
            token.idx,
            token.idx + len(token),
            upos=token.pos_,
            head=word_of_token.get(token.head.i, NO_HEAD)
            if parsed and token.head.i != token.i
            else NO_HEAD,
            relation="root" if token.dep_ == "ROOT" else token.dep_,
        )
        for token in tokens
    )


def shuffle_words(sentence: Sentence, seed: int) -> Sentence:
    """Return a sentence with its words in random order, with their tags, heads and relations.

    The order depends on seed and text only. Words are separated by single spaces if the text has
    any spaces.
    """
    words = sentence.words if sentence.words is not None else split_words(sentence.text)
    text, order = _shuffled(sentence.text, words, seed)
    new_place = {old: new for new, old in enumerate(order)}
    separator_length = len(_separator(sentence.text))
    start, shuffled_words = 0, []
    for old in order:
        word = words[old]
        end = start + word.end - word.start
        shuffled_words.append(
            replace(word, start=start, end=end, head=new_place.get(word.head, NO_HEAD))
        )
        start = end + separator_length
    target = sentence.target
    if target is not None:
        target = _shuffled(target, split_words(target), seed)[0]
    # Words move between the sentences of a passage, so no sentence ends remain.
    return replace(sentence, text=text, words=tuple(shuffled_words), target=target, parts=())


def _shuffled(text: str, words: tuple[Word, ...], seed: int) -> tuple[str, list[int]]:
    """Return a text with its words in random order, and the old index of each word."""
    digest = blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    permutation = np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(words))
    order = [int(place) for place in permutation]
    pieces = [text[words[index].start : words[index].end] for index in order]
    return _separator(text).join(pieces) or text, order


def _separator(text: str) -> str:
    """Return the text between shuffled words: a space if the text has white space."""
    return " " if any(map(str.isspace, text)) else ""


NO_FREQUENCIES = "none"  # value of the option language that leaves rare words out
N_FREQUENT_WORDS = 500  # most frequent words of a language, which are never rare


@dataclass(frozen=True)
class WordFrequencies:
    """Frequencies of the words of a language.

    Attributes:
        name: language and source of the frequencies, which the study records.
        frequency: function from a word in lower case to its frequency, on any scale; None if the
            word is unknown.
        frequent: frequency of the last of the `N_FREQUENT_WORDS` words; rare words are below it.
        missing: reason why there are no frequencies; empty if there are.
    """

    name: str
    frequency: Callable[[str], float | None]
    frequent: float
    missing: str = ""

    def rarest_word(self, words: Sequence[str]) -> int | None:
        """Return the index of the least frequent word, the first of equals, or None.

        Words without a letter, such as numbers, are ignored. None if there is no word, or if even
        the least frequent one is a frequent word.
        """
        rarest, lowest = None, self.frequent
        for index, word in enumerate(words):
            if any(map(str.isalpha, word)):
                frequency = self.frequency(word.lower())
                if frequency is not None and frequency < lowest:
                    rarest, lowest = index, frequency
        return rarest

    @classmethod
    def load(cls, language: str, texts: Iterable[str]) -> "WordFrequencies":
        """Load the Zipf frequencies of wordfreq, or count the texts if it lacks the language.

        Args:
            language: a code such as ``en``; ``none`` for no frequencies at all.
            texts: texts to count; read only if wordfreq lacks the language.
        """
        if language == NO_FREQUENCIES:
            return cls(NO_FREQUENCIES, _unknown, 0, "the language of the texts is not given")
        import wordfreq  # noqa: PLC0415 - slow to import, and not needed for 'none'

        language = language.lower()
        if language not in wordfreq.available_languages():
            return cls._counted(language, texts)
        try:
            last = wordfreq.top_n_list(language, N_FREQUENT_WORDS)[-1]
            frequent = wordfreq.zipf_frequency(last, language)
        except ImportError:  # wordfreq needs another package to split this language's words
            return cls._counted(language, texts)
        name = f"{language} (wordfreq {version('wordfreq')})"
        return cls(name, lambda word: wordfreq.zipf_frequency(word, language), frequent)

    @classmethod
    def _counted(cls, language: str, texts: Iterable[str]) -> "WordFrequencies":
        """Count the words of the texts; other words are unknown."""
        counts = Counter(
            text[word.start : word.end].lower() for text in texts for word in split_words(text)
        )
        counts = Counter(
            {word: count for word, count in counts.items() if any(map(str.isalpha, word))}
        )
        name = f"{language} (counts in the input)"
        if len(counts) <= N_FREQUENT_WORDS:
            reason = (
                f"the input has no more than {N_FREQUENT_WORDS} different words to count, and "
                f"wordfreq has no list for '{language}'"
            )
            return cls(name, _unknown, 0, reason)
        return cls(name, counts.get, counts.most_common(N_FREQUENT_WORDS)[-1][1])


def _unknown(_: str) -> None:
    """Return None: the frequency of every word is unknown."""
