"""Which exemplars are instances of the function of a head."""

from dataclasses import replace

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.pages.parts.exemplars import fits_function, is_named, is_related
from headbook.report.facts.functions import HeadFunction
from headbook.report.results import StackResults
from headbook.results.number import SHARE, Number, RowAddress
from headbook.results.sentence import NOTHING
from headbook.schema import HeadKey, HeadName, Side, SinkView
from headbook.study.sentence_data import Exemplar, Ranking, StoredSentence, StoredText

HEAD = HeadName("self", 0, 0)
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
    ("query", "key", "rule", "fits"),
    [
        (1, 3, "next:NOUN", True),
        (1, 4, "next:NOUN", True),  # the second piece of the same word
        (1, 2, "next:NOUN", False),  # an adjective
        (1, 6, "next:VERB_ADJ_NOUN", False),  # punctuation
        (1, 2, "next:VERB_ADJ_NOUN", True),
        (1, 5, "next:VERB_ADJ_NOUN", False),  # a verb, but not the nearest
        (0, 3, "next:NOUN", False),  # a special token
        (5, 3, "previous:NOUN", True),
        (1, 3, "previous:NOUN", False),
        (6, 5, "nearest:VERB", True),
        (1, 5, "nearest:ADV", False),  # no such word
        (1, 3, "last:nouns", True),
    ],
)
def test_a_class_rule_names_the_word_of_the_key(
    query: int, key: int, rule: str, *, fits: bool
) -> None:
    assert is_named(TEXT, query, key, rule, causal=False) is fits


def test_in_causal_models_rules_name_earlier_words_alone() -> None:
    assert not is_named(TEXT, 1, 3, "nearest:NOUN", causal=True)
    assert is_named(TEXT, 5, 3, "nearest:NOUN", causal=True)


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


def results_of_text() -> StackResults:
    """Return results with the text as the only sentence."""
    results = fake_results({HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.1]])})
    sentence = StoredSentence(0, "1", {}, {Side.SOURCE: TEXT}, listed=True)
    data = replace(results.study.sentence_data, sentences={0: sentence})
    return StackResults(replace(results.study, sentence_data=data), results.stack)


@pytest.mark.parametrize(
    ("kind", "label", "pairs"),
    [
        ("offset", "previous", {(3, 2), (4, 3)}),
        ("offset", "-2", {(3, 1)}),
        ("relation", "det:to_head", {(1, 3)}),
        ("next_word", "next:NOUN", {(1, 3)}),
        ("nearby", "within_3", set()),
    ],
)
def test_functions_that_name_pairs_prefer_exemplars_of_these(
    kind: str, label: str, pairs: set[tuple[int, int]]
) -> None:
    """Of a few pairs of tokens; other functions prefer none."""
    results = results_of_text()
    number = Number(0.6, SHARE, RowAddress("heads", (("label", label),)))
    function = HeadFunction(HEAD, kind, "", NOTHING, None, number)
    exemplars = [
        Exemplar(HEAD, Ranking.STRONGEST, 1, 0, 0.9, query, key, np.zeros((7, 7), np.uint8))
        for query, key in ((3, 2), (4, 3), (3, 1), (1, 3), (5, 0))
    ]
    fitting = [e for e in exemplars if fits_function(results, function, e)]
    assert {(e.query, e.key) for e in fitting} == pairs
