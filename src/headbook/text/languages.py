"""Check that texts seem English, by their letters and by the word lists of wordfreq."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import regex

from headbook.languages import ENGLISH
from headbook.text.annotate import split_words

LATIN = regex.compile(r"\p{Latin}")
SMALL_LIST = "small"  # lists of wordfreq with words of at least one in a million
ONE_LETTER_WORDS = frozenset("ai")  # words of English with one letter
MIN_KNOWN = 0.5  # share of words that a list must know
MIN_DIFFERENCE = 1.0  # of mean Zipf frequencies by which another list is better than English's
# Mean Zipf frequency in English's list from which no other list is read, which takes a second:
# texts in their own language have 5 to 6.
CLEARLY_ENGLISH = 5.0
CENTIBELS, ZIPF_ZERO = 100, 9  # scale of wordfreq's lists, and its value for a Zipf frequency of 0


@dataclass(frozen=True)
class LanguageDoubt:
    """Reason why texts do not seem English.

    Attributes:
        reason: the reason with its numbers; empty if the texts seem English.
        code: code of the language whose list knows the words better; empty if none does.
    """

    reason: str = ""
    code: str = ""

    @classmethod
    def about(cls, texts: Iterable[str]) -> "LanguageDoubt":
        """Check whether texts seem English."""
        texts = [*texts]
        letters = Counter(letter for text in texts for letter in text if letter.isalpha())
        latin = sum(count for letter, count in letters.items() if LATIN.match(letter))
        if 2 * latin < letters.total():
            (letter, _), *_ = letters.most_common(1)
            script = unicodedata.name(letter, "another script").split()[0].capitalize()
            share = 1 - latin / letters.total()
            return cls(f"{share:.0%} of their letters are not Latin, but {script} and others")
        words = [word for word in map(str.lower, words_in(texts)) if any(map(str.isalpha, word))]
        return cls._by_words(words)

    @classmethod
    def _by_words(cls, words: Sequence[str]) -> "LanguageDoubt":
        """Check whether English's list knows words, and knows them better than other lists."""
        if not words:
            return cls()
        counts = Counter(word for word in words if len(word) > 1)
        english, known = _mean_frequency(ENGLISH, counts)
        if counts and english < CLEARLY_ENGLISH:
            means = {code: _mean_frequency(code, counts) for code in _other_languages()}
            code = max(means, key=lambda each: means[each][0])
            other, known_elsewhere = means[code]
            if other >= english + MIN_DIFFERENCE and known_elsewhere >= MIN_KNOWN:
                return cls(
                    f"the word list of '{code}' knows their words better than that of English: "
                    f"mean Zipf frequency {other:.1f}, not {english:.1f}",
                    code,
                )
        known_words = known * counts.total() + sum(word in ONE_LETTER_WORDS for word in words)
        share = known_words / len(words)
        if share < MIN_KNOWN:
            return cls(f"English's word list has {share:.0%} of their words")
        return cls()


def words_in(texts: Iterable[str]) -> Iterable[str]:
    """Yield the words of texts by Unicode's word boundaries."""
    for text in texts:
        for word in split_words(text):
            yield text[word.start : word.end]


def _other_languages() -> list[str]:
    """Return the languages of wordfreq's small lists, but for English."""
    import wordfreq  # noqa: PLC0415 - slow to import

    return sorted(set(wordfreq.available_languages(SMALL_LIST)) - {ENGLISH})


def _mean_frequency(code: str, counts: Counter[str]) -> tuple[float, float]:
    """Return the mean Zipf frequency of words, 0 for unknown ones, and the share of known words.

    The list is read without wordfreq's cache: all lists together take hundreds of megabytes.
    """
    import wordfreq  # noqa: PLC0415 - slow to import

    buckets = wordfreq.read_cBpack(wordfreq.available_languages(SMALL_LIST)[code])
    found = {
        word: ZIPF_ZERO - place / CENTIBELS
        for place, bucket in enumerate(buckets)
        for word in counts.keys() & set(bucket)
    }
    words = [*counts.elements()]
    if not words:
        return 0.0, 0.0
    return fmean(found.get(word, 0.0) for word in words), fmean(word in found for word in words)
