"""Rows and evidence of functions: the number, its baselines, its threshold, and its tests."""

import math

import pytest

from chosen_results import Fake, fake_results
from headbook.analysis.accumulators import Estimate
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.report.facts import word_rules
from headbook.report.facts.function_tests import (
    AGAINST_OFFSETS,
    EVIDENCE,
    FUNCTION,
    evidence_of,
    function_tests,
)
from headbook.report.facts.functions import RULES, functions_of
from headbook.report.facts.word_rules import WordRule
from headbook.report.results import StackResults
from headbook.results.number import Printed
from headbook.results.sentence import Sentence
from headbook.schema import HeadKey, HeadName, SinkView
from sites import Site

HEAD, RAW, RENORM, NOSINK = HeadName("self", 0, 0), SinkView.RAW, SinkView.RENORM, SinkView.NOSINK
MARGIN = Estimate(0.2, 0.1, 0.3, 200, 400)
RULE = HeadKey("surface_rule", NOSINK, "next:NOUN")


def studied(previous: float, rule: float = 0.0) -> StackResults:
    """A head with a share on the previous token, beside a mixed one."""
    share = {part: HeadKey("type_shares", RENORM, part) for part in PARTS}
    numbers = {
        HeadKey("sink_share", RAW, ""): Fake([[0.3, 0.3]], 0.1),
        HeadKey("relative_entropy", RENORM, ""): Fake([[0.6, 0.6]], 1.0),
        **{key: Fake([[0.05, 0.05]], 0.08) for key in share.values()},
        **{key._replace(label=EVEN[key.label]): Fake([[0.08, 0.08]], 0.08)
           for key in share.values()},
        share["previous"]: Fake([[previous, 0.05]], 0.08, 0.01),
        RULE: Fake([[rule, 0.0]], 0.0, 0.01),
    }  # fmt: skip
    results = fake_results(numbers, sentences=400)
    tested = WordRule("next:NOUN", 1, MARGIN, 0.004, supported=True)
    results._made[word_rules._word_rules] = {(0, 0): tested} if rule else {}
    return results


def printed(sentence: Sentence) -> list[Printed]:
    return [part for part in sentence.parts if isinstance(part, Printed)]


def test_every_function_with_a_number_has_evidence() -> None:
    assert {*EVIDENCE} == {rule.id for rule in RULES} - {"not_measured", "too_few", "mixed"}


def test_a_function_has_one_row_with_its_number_and_its_threshold() -> None:
    results = studied(0.7)
    (tested,) = function_tests(results)
    function, row = functions_of(results)[HEAD], tested.columns
    assert function.number is not None
    assert (row["claim"], row["layer"], row["head"]) == (FUNCTION, 0, 0)
    assert (row["metric"], row["label"]) == ("type_shares", "previous")
    assert (row["value"], row["low"]) == (function.number.value, function.number.low)
    assert row["baseline_value"] == pytest.approx(0.08 + 0.5 * 0.92)
    number, even, least = printed(evidence_of(results, function))
    assert (number.number, even.number) == (function.number, function.even)
    assert (least.number.value, least.number.row) == (function.threshold, tested.row)


def test_a_head_without_a_single_function_has_no_evidence() -> None:
    results = studied(0.05)
    assert not [*function_tests(results)]
    assert not evidence_of(results, functions_of(results)[HEAD])


def test_the_word_of_a_class_has_a_row_for_its_margin_over_offsets() -> None:
    results = studied(0.05, rule=0.6)
    of_function, tested = function_tests(results)
    assert functions_of(results)[HEAD].id == "next_word"
    assert (of_function.claim, tested.claim) == (FUNCTION, AGAINST_OFFSETS)
    row = tested.columns
    assert (row["difference"], row["difference_low"], row["p"]) == (0.2, 0.1, 0.004)
    assert (row["baseline"], row["n_sentences"]) == ("fixed offset +1", 200)
    assert math.isnan(row["value"])
    *_, margin = printed(evidence_of(results, functions_of(results)[HEAD]))
    assert (margin.number.value, margin.number.row) == (0.2, tested.row)


def test_every_head_of_a_study_has_its_row(any_site: Site) -> None:
    """With a number, else none; each number of the evidence is found in the site's tables."""
    table = any_site.study.tests
    rows = table[table["claim"] == FUNCTION]
    expected = {
        head: function.number.value
        for results in any_site.results.values()
        for head, function in functions_of(results).items()
        if function.number is not None
    }
    heads = zip(rows["stack"], rows["layer"], rows["head"], strict=True)
    assert dict(zip((HeadName(*head) for head in heads), rows["value"], strict=True)) == expected
