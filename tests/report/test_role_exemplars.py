"""Which exemplars fit the sentence on what a head does."""

import pytest

from headbook.report.answers.role_exemplars import is_next_word, is_related
from headbook.report.next_word_tests import TARGETS
from headbook.study.sentence_data import StoredText

NEXT_NOUN, PREVIOUS_NOUN = TARGETS[0], TARGETS[2]
# [CLS] the old ba ##ll rolled . : words 0 to 4, "ball" in two pieces
TEXT = StoredText(
    text="the old ball rolled.",
    pieces=("[CLS]", "the", "old", "ba", "ll", "rolled", "."),
    spans=((0, 0), (0, 3), (4, 7), (8, 10), (10, 12), (13, 19), (19, 20)),
    special=(True, *(False,) * 6),
    words=(-1, 0, 1, 2, 2, 3, 4),
    tags=("", "DET", "ADJ", "NOUN", "NOUN", "VERB", "PUNCT"),
    lost=0,
    generated=False,
    heads=(2, 2, 3, -1, 3),
    relations=("det", "amod", "nsubj:pass", "root", "punct"),
)


@pytest.mark.parametrize(
    ("query", "key", "queries", "fits"),
    [
        (1, 3, ("DET",), True),
        (1, 4, ("DET",), True),  # the second piece of the same word
        (1, 2, ("DET",), False),  # an adjective
        (1, 5, ("DET",), False),  # a verb, but not the nearest
        (2, 3, ("DET",), False),  # a query of another class than the sentence names
        (2, 3, (), True),  # a sentence that names no classes
        (3, 5, (), False),  # a noun is no case
        (6, 5, (), False),  # nor is punctuation
        (0, 3, (), False),  # nor a special token
    ],
)
def test_the_key_is_the_next_word_of_the_classes(
    query: int, key: int, queries: tuple[str, ...], fits: bool
) -> None:
    assert is_next_word(TEXT, query, key, NEXT_NOUN, queries) is fits


def test_the_previous_word_of_a_class_stands_before_the_query() -> None:
    assert not is_next_word(TEXT, 1, 3, PREVIOUS_NOUN, ())
    assert not is_next_word(TEXT, 1, 0, PREVIOUS_NOUN, ())


@pytest.mark.parametrize(
    ("query", "key", "label", "fits"),
    [
        (1, 3, "det:to_head", True),
        (3, 1, "det:to_head", False),
        (3, 1, "det:to_dependent", True),
        (4, 5, "nsubj:pass:to_head", True),
        (2, 3, "det:to_head", False),
        (0, 3, "det:to_head", False),
    ],
)
def test_query_and_key_are_the_ends_of_the_relation(
    query: int, key: int, label: str, fits: bool
) -> None:
    assert is_related(TEXT, query, key, label) is fits
