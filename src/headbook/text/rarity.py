"""How rare words are, and which word of a sentence is the rarest: the only door to wordfreq."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from headbook.text.annotate import split_words

NONE = "none"
FREQUENT = 500  # so many of the most frequent words are never rare


@dataclass(frozen=True)
class Rarity:
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

    def rarest(self, words: Sequence[str]) -> int | None:
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
    def load(cls, language: str, texts: Iterable[str]) -> "Rarity":
        """Zipf frequencies by wordfreq; counts in the texts for languages that it does not have.

        Args:
            language: a code such as ``en``; ``none`` for no frequencies at all.
            texts: read only where they must be counted.
        """
        if language == NONE:
            return cls(NONE, _unknown, 0, "the language of the texts is not given")
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
    def _counted(cls, language: str, texts: Iterable[str]) -> "Rarity":
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
