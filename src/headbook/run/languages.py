"""Languages of the texts of a run: who annotates them, and how frequent their words are."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from headbook.config import Config
from headbook.errors import warn
from headbook.inputs import Corpus
from headbook.languages import ENGLISH, NO_LANGUAGE, is_english
from headbook.model.load import Model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.option_values import AUTO_ANNOTATOR
from headbook.schema import Side
from headbook.text.annotate import EMBEDDED, NO_ANNOTATOR, Annotator, WordFrequencies
from headbook.text.languages import LanguageDoubt

N_TEXTS = 200  # first texts, by whose words the language is checked
OPTIONS = {Side.SOURCE: "--language", Side.TARGET: "--target-language"}
ANNOTATORS = {Side.SOURCE: "--annotator", Side.TARGET: "--target-annotator"}


@dataclass(frozen=True)
class TextLanguages:
    """Annotators and word frequencies of the sides of a run.

    Attributes:
        annotators: annotator of each side.
        rarities: word frequencies of each side that the model reads.
    """

    annotators: dict[Side, Annotator]
    rarities: dict[Side, WordFrequencies]

    @classmethod
    def of(cls, config: Config, corpus: Corpus, model: Model, limit: int) -> "TextLanguages":
        """Load annotators and word frequencies, and warn of texts that are not parsed.

        Args:
            config: options.
            corpus: sentences.
            model: the loaded model, whose tokens split words in scripts without spaces.
            limit: longest sequence, in tokens.

        Raises:
            AnnotatorError: a pipeline is not installed or cannot be loaded.
        """
        sides = [*Side] if model.config.is_encoder_decoder else [Side.SOURCE]
        languages = config.languages
        named = {Side.SOURCE: config.annotator, Side.TARGET: config.target_annotator}
        needed = {Side.SOURCE: not all(file.annotated for file in corpus.files if file.sentences)}
        needed[Side.TARGET] = Side.TARGET in sides
        if not languages[Side.SOURCE]:
            doubt = LanguageDoubt.about(islice((s.text for s in corpus), N_TEXTS))
            languages[Side.SOURCE] = NO_LANGUAGE if doubt.reason else ENGLISH
            if doubt.reason:
                is_default = named[Side.SOURCE] == AUTO_ANNOTATOR
                _warn_of(doubt, is_parse_left_out=is_default and needed[Side.SOURCE])
                named[Side.SOURCE] = NO_ANNOTATOR if is_default else named[Side.SOURCE]
        for side in Side:
            if named[side] == AUTO_ANNOTATOR:
                named[side] = _default_annotator(side, languages[side], is_needed=needed[side])
        tokenizer = SentenceTokenizer(model, limit, Annotator.load(NO_ANNOTATOR))
        annotators = {
            side: Annotator.load(name, partial(tokenizer.spans, target=side is Side.TARGET))
            for side, name in named.items()
        }
        rarities = {
            side: WordFrequencies.load(
                languages[side] or NO_LANGUAGE, _texts(corpus, side), annotators[side].split
            )
            for side in sides
        }
        return cls(annotators, rarities)


def _default_annotator(side: Side, language: str, *, is_needed: bool) -> str:
    """Return the annotator of texts in a language, and warn if they are not parsed.

    Args:
        side: side of the texts.
        language: code of the language; empty if no option names one, as only of targets.
        is_needed: whether the model reads texts that have no words of their own.
    """
    is_source = side is Side.SOURCE
    if is_english(language) or (is_source and language == NO_LANGUAGE):
        return EMBEDDED
    if language and language != NO_LANGUAGE and is_needed:
        texts = "texts" if is_source else "target texts"
        warn(
            f"{OPTIONS[side]}: {texts} in '{language}' are not parsed, as the embedded annotator "
            f"reads English; {ANNOTATORS[side]} names a spaCy pipeline"
        )
    return NO_ANNOTATOR


def _warn_of(doubt: LanguageDoubt, *, is_parse_left_out: bool) -> None:
    """Warn of texts that do not seem English, for which no option names a language."""
    left_out = "rare words are not measured"
    advice = f"give their language, such as --language={doubt.code or 'en'}"
    if is_parse_left_out:
        left_out = f"they are not parsed, and {left_out}"
        advice += "; --annotator names a spaCy pipeline, 'embedded' parses them as English"
    warn(f"the texts do not seem English: {doubt.reason}; {left_out}; {advice}")


def _texts(corpus: Corpus, side: Side) -> Iterator[str]:
    """Yield the texts of one side of a corpus."""
    for sentence in corpus:
        if side is Side.SOURCE:
            yield from sentence.texts
        elif sentence.target is not None:
            yield sentence.target
