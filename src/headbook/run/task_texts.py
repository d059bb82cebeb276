"""Texts of tasks: labels, minimal pairs and prompts, read from metadata columns.

The sample of a task holds the texts with its columns that have the smallest hashes, at most
``--importance-sentences``. Texts that do not fit are left out and counted in a sentence.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from headbook.ablation.task_targets import NO_CLASS
from headbook.analysis.arrays import Ints
from headbook.config import Config
from headbook.inputs import TextRecord
from headbook.inputs.rows import LABEL_COLUMNS, matching_column
from headbook.model.weights import classifier_kind
from headbook.option_values import ACCEPTABLE
from headbook.report.wording import count_text
from headbook.run.prepare import Run
from headbook.schema import TOKEN_CLASSIFIER, Side
from headbook.study.groups import PAIR_COLUMN, pair_key, value_of
from headbook.text.batch import text_hash
from headbook.text.tokens import TokenizedSentence, TokenizedText

ACCEPTABLE_COLUMN, ANSWER_COLUMN, WRONG_COLUMN, CORRUPT_COLUMN = (
    "acceptable", "answer", "wrong", "corrupt",
)  # fmt: skip
MAX_PAIRS = 200  # minimal pairs of a sample
MAX_NAMED_LABELS = 4  # labels that a message names
TRUTH = {"true": "1", "false": "0"}  # labels that stand for numbers
WHOLE_NUMBER = re.compile(r"(-?\d+)\.0*")  # as tables write numbers of a column with gaps
NO_LABELS = {
    "",
    "nan",
    "none",
    "-100",
}  # in place of a label; the last is that of token classifiers
GENERIC_NAME = re.compile(r"label_\d+")  # names of classes that nobody has named
FULL_WIDTH = {"W", "F"}  # widths of characters that are written without spaces between words


class TaskTexts(NamedTuple):
    """Texts of a task.

    Attributes:
        items: texts; of pairs and of prompts with a corrupt text, both are the sides of one item.
        data: classes or answers by index of the sentence.
        notes: sentences on texts that were left out, or on the reading of columns.
    """

    items: Sequence[TokenizedSentence]
    data: Mapping[int, Any]
    notes: tuple[str, ...]


def acceptable_column(config: Config, columns: Collection[str]) -> str:
    """Return the column that says which member of a pair is acceptable."""
    return ACCEPTABLE_COLUMN if ACCEPTABLE_COLUMN in columns else label_column(config, columns)


def label_column(config: Config, columns: Collection[str]) -> str:
    """Return the column with the labels of texts, or by default of words, if there is one."""
    name = config.label_column
    names = LABEL_COLUMNS if name == LABEL_COLUMNS[0] else (name,)
    found = (matching_column(each, columns) for each in names)
    return next(filter(None, found), name)


def is_acceptable(config: Config, value: str) -> bool:
    """Whether a value of the column is that of acceptable sentences."""
    accepted = ACCEPTABLE if config.acceptable is None else (config.acceptable,)
    return plain_label(value) in map(plain_label, accepted)


def plain_label(label: str) -> str:
    """Return a label in lower case, with ``1.0`` and ``True`` as ``1``."""
    folded = label.strip().casefold()
    whole = WHOLE_NUMBER.fullmatch(folded)
    return whole[1] if whole else TRUTH.get(folded, folded)


@dataclass(frozen=True)
class LabelNames:
    """Labels of a classification head.

    Attributes:
        names: classes by name, in lower case.
        numbers: all classes.
    """

    names: Mapping[str, int]
    numbers: frozenset[int]

    @classmethod
    def of(cls, id2label: Mapping[int, str]) -> Self:
        """Return the labels of a configuration of transformers."""
        names = {str(name).casefold(): int(number) for number, name in id2label.items()}
        return cls(names, frozenset(map(int, id2label)))

    @property
    def generic(self) -> bool:
        """Whether all classes have the names that transformers gives by default."""
        return all(map(GENERIC_NAME.fullmatch, self.names))

    def class_of(self, label: str) -> int | None:
        """Return the class with a name or number; `NO_CLASS` for no label; None if unknown."""
        if label.strip().casefold() in self.names:
            return self.names[label.strip().casefold()]
        plain = plain_label(label)
        if plain in NO_LABELS:
            return NO_CLASS
        number = int(plain) if plain.isdecimal() else NO_CLASS
        return number if number in self.numbers else None


def labelled_texts(run: Run, column: str) -> TaskTexts:
    """Return texts with the classes of their labels in a column, or of those of their tokens."""
    known = LabelNames.of(run.model.config.id2label)
    by_token = classifier_kind(run.model.network) == TOKEN_CLASSIFIER

    def has_label(sentence: TextRecord) -> bool:
        value = value_of(sentence, column)
        labels = _token_labels(value) if by_token else [value]
        # A list that cannot be read is told as one of another length.
        return bool(value) and (
            not labels or any(known.class_of(label) != NO_CLASS for label in labels)
        )

    chosen = _smallest(run, has_label)
    by_number = not by_token and known.generic and _have_unknown_names(chosen, column, known)
    unknown: Counter[str] = Counter()
    data: dict[int, Ints] = {}
    items, n_misaligned = [], 0
    for item in chosen:
        text, value = item.tokens[Side.SOURCE], value_of(item.sentence, column)
        if by_number:
            value = str(item.sentence.class_numbers[column])
        labels = _token_labels(value) if by_token else [value]
        classes = [*map(known.class_of, labels)]
        places = _labelled_tokens(text, len(labels)) if by_token else [0]
        unknown.update([label for label, k in zip(labels, classes, strict=True) if k is None][:1])
        n_misaligned += not places
        if None in classes or not places:
            continue
        of_text = np.full(len(text) if by_token else 1, NO_CLASS)
        for place, number in zip(places, classes, strict=True):
            if place >= 0:
                of_text[place] = number
        data[item.sentence.index] = of_text
        items.append(item)
    notes = [*_unknown_labels(unknown, column, run.model.config.id2label)]
    if n_misaligned:
        texts = count_text(n_misaligned, "text")
        notes.append(f"{texts} left out: not one label in column '{column}' for each word")
    if n_missing := sum(not has_label(sentence) for sentence in run.corpus):
        notes.append(f"{count_text(n_missing, 'text')} left out: no label in column '{column}'")
    if by_number:
        notes.append(f"column '{column}' is read by the numbers of its classes, as the model's "
                     "have no names of their own")  # fmt: skip
    return TaskTexts(items, data, tuple(notes))


def _have_unknown_names(items: Sequence[TokenizedSentence], column: str, known: LabelNames) -> bool:
    """Whether all labels are names of numbered classes, none of which a model knows by name."""
    return bool(items) and all(
        column in item.sentence.class_numbers
        and known.class_of(value_of(item.sentence, column)) is None
        for item in items
    )


def minimal_pairs(run: Run, columns: Collection[str]) -> TaskTexts:
    """Return pairs of an acceptable sentence, the source of an item, and another, the target."""
    column, members = acceptable_column(run.config, columns), dict[str, list[TextRecord]]()
    excluded = run.not_measured | run.long.texts
    for sentence in run.corpus:
        if pair := value_of(sentence, PAIR_COLUMN):
            members.setdefault(pair, []).append(sentence)
    complete = {}
    for pair, sentences in members.items():
        good = [is_acceptable(run.config, value_of(sentence, column)) for sentence in sentences]
        indices = [sentence.index for sentence in sentences]
        if len(good) == 2 and sum(good) == 1 and excluded.isdisjoint(indices):
            complete[pair] = indices if good[0] else indices[::-1]
    chosen = sorted(complete, key=pair_key)[: min(MAX_PAIRS, run.config.importance_sentences)]
    tokenized = {
        item.sentence.index: item
        for item in run.sentences.reread({i for pair in chosen for i in complete[pair]})
    }
    items = [_pair(*(tokenized[index] for index in complete[pair])) for pair in chosen]
    notes = []
    if n_incomplete := len(members) - len(complete):
        notes.append(
            f"{count_text(n_incomplete, 'pair')} left out: not two sentences, of which column "
            f"'{column}' calls one acceptable"
        )
    return TaskTexts(items, {}, tuple(notes))


def prompts(run: Run) -> TaskTexts:
    """Return prompts with the tokens of the answer and of the wrong answer."""
    mask = None if run.architecture.stacks["self"].causal else run.model.mask_id
    answers: dict[int, tuple[int, int]] = {}
    items, n_long, n_unusable, n_unmasked = [], 0, 0, 0
    for item in _smallest(
        run, lambda s: bool(value_of(s, ANSWER_COLUMN) and value_of(s, WRONG_COLUMN))
    ):
        text = item.tokens[Side.SOURCE]
        if mask is not None and mask not in text.ids:
            n_unmasked += 1
            continue
        tokens = [
            _answer_tokens(run, text, value_of(item.sentence, column), masked=mask is not None)
            for column in (ANSWER_COLUMN, WRONG_COLUMN)
        ]
        first = [ids[0] for ids in tokens if ids]
        if len({*first}) < 2:
            n_unusable += 1
            continue
        n_long += max(map(len, tokens)) > 1
        answers[item.sentence.index] = first[0], first[1]
        items.append(item)
    notes = []
    if n_long:
        notes.append(
            f"{count_text(n_long, 'prompt')} with an answer of several tokens: the first is used"
        )
    if n_unusable:
        texts = count_text(n_unusable, "prompt")
        notes.append(f"{texts} left out: both answers begin with one token")
    if n_unmasked:
        name = run.model.mask_token
        notes.append(f"{count_text(n_unmasked, 'prompt')} left out: no {name} in the text")
    return TaskTexts(items, answers, tuple(notes))


def corrupted(run: Run, clean: TaskTexts) -> TaskTexts:
    """Return the prompts that have a corrupt text of equal length, which is the item's target."""
    with_corrupt = [item for item in clean.items if value_of(item.sentence, CORRUPT_COLUMN)]
    sentences = [
        replace(item.sentence, text=value_of(item.sentence, CORRUPT_COLUMN), words=None, parts=())
        for item in with_corrupt
    ]
    items, n_unequal = [], 0
    mask = run.model.mask_id
    for item, other in zip(with_corrupt, run.sentences.encoder.tokenize(sentences), strict=True):
        text, corrupt = item.tokens[Side.SOURCE], other.tokens[Side.SOURCE]
        is_masked = [ids == mask for ids in (text.ids, corrupt.ids)]
        if len(text) != len(corrupt) or not np.array_equal(*is_masked):
            n_unequal += 1
        else:
            sides = {Side.SOURCE: text, Side.TARGET: corrupt}
            items.append(TokenizedSentence(item.sentence, sides))
    notes = clean.notes
    if n_unequal:
        texts = count_text(n_unequal, "prompt")
        notes += (f"{texts} left out: not as many tokens in the corrupt text as in the clean one",)
    return TaskTexts(items, clean.data, notes)


def _smallest(run: Run, has_columns: Callable[[TextRecord], bool]) -> list[TokenizedSentence]:
    """Return the sentences with some columns that have the smallest hashes of their texts."""
    excluded = run.not_measured | run.long.texts
    candidates = sorted(
        (text_hash([sentence.text]), sentence.index)
        for sentence in run.corpus
        if sentence.index not in excluded and has_columns(sentence)
    )
    chosen = [index for _, index in candidates[: run.config.importance_sentences]]
    return [*run.sentences.reread(chosen)]


def _unknown_labels(
    unknown: Counter[str], column: str, id2label: Mapping[int, str]
) -> Iterator[str]:
    """Yield a sentence on texts whose labels the model does not know."""
    if unknown:
        known = [str(name) for name in id2label.values()]
        more = ", …" if len(known) > MAX_NAMED_LABELS else ""
        names = ", ".join(f"'{name:.40}'" for name, _ in unknown.most_common(MAX_NAMED_LABELS))
        yield (
            f"{count_text(unknown.total(), 'text')} left out: column '{column}' has {names}; the "
            f"model's labels are {', '.join(known[:MAX_NAMED_LABELS])}{more} (id2label of its "
            "configuration)"
        )


def _token_labels(value: str) -> list[str]:
    """Return the labels of a text's words: a JSON list, or words separated by white space."""
    if value.startswith("["):
        try:
            return [str(label) for label in json.loads(value)]
        except ValueError:
            return []
    return value.split()


def _labelled_tokens(text: TokenizedText, labels: int) -> list[int]:
    """Return the first token of each word of a text; -1 for words that were cut off.

    Words are separated by white space, or else those of the annotation. Empty if there is not one
    label for each word.
    """
    starts, end = [], 0
    for word in text.text.split():
        starts.append(text.text.index(word, end))
        end = starts[-1] + len(word)
    if len(starts) != labels:
        starts = [word.start for word in text.words]
    if len(starts) != labels:
        return []
    owner = {
        character: int(position)
        for position in np.flatnonzero(~text.special)[::-1]
        for character in range(*text.spans[position])
    }
    return [owner.get(start, -1) for start in starts]


def _pair(acceptable: TokenizedSentence, other: TokenizedSentence) -> TokenizedSentence:
    """Return two sentences as one item, with the metadata that both share."""
    shared = acceptable.sentence.metadata.items() & other.sentence.metadata.items()
    sentence = replace(acceptable.sentence, metadata=dict(shared))
    sides = {Side.SOURCE: acceptable.tokens[Side.SOURCE], Side.TARGET: other.tokens[Side.SOURCE]}
    return TokenizedSentence(sentence, sides)


def _answer_tokens(run: Run, text: TokenizedText, answer: str, *, masked: bool) -> list[int]:
    """Return the tokens of an answer that follows a text, or stands in place of a mask token.

    A space comes before the answer, unless it is of a script without spaces between words.
    """
    tokenizer = run.model.tokenizer
    spaced = unicodedata.east_asian_width(answer[0]) not in FULL_WIDTH
    written = f"{' ' * spaced}{answer}"
    own = [int(token) for token in text.ids[: int(np.flatnonzero(~text.special)[-1]) + 1]]
    if not masked:
        whole: list[int] = tokenizer(f"{text.text}{written}", verbose=False)["input_ids"]
        special = {int(token) for token in text.ids[text.special]}
        if whole[: len(own)] == own:
            return [token for token in whole[len(own) :] if token not in special]
    alone: list[int] = tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"]
    return alone
