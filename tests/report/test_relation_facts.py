"""Facts on grammar: each rule with numbers that support it and numbers that do not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chosen_relations import chosen_tests, estimates
from chosen_results import NO_ESTIMATES, Fake, fake_results
from headbook.report.facts.language.relations import (
    aligned_head,
    claimed_heads,
    follows_grammar,
    untested,
    worked_example,
)
from headbook.report.relation_tests import RelationTests
from headbook.report.relation_tests import tests_of_stack as of_relations
from headbook.report.relations import ENDS
from headbook.report.results import StackResults
from headbook.results.fact import Fact
from headbook.results.number import Printed
from headbook.results.sentence import Link, Sentence
from headbook.schema import HeadKey, HeadName, SinkView

LABELS = ("case:to_head", "obj:to_head", "det:to_dependent")
HEADS = ((0, 1), (1, 0), (1, 1))
MAX_WORDS = 30
ACCURACY, VIEW = "relation_accuracy", SinkView.NOSINK


def three(p: list[float], margin: list[float] | None = None, **options: Any) -> RelationTests:
    """Three relations, each with a head of its own."""
    return chosen_tests(LABELS, HEADS, [0.8, 0.7, 0.6], margin or [0.4, 0.3, 0.2], p, **options)


def wide(tests: RelationTests, half: Sequence[float]) -> RelationTests:
    """The tests with intervals of another width around every margin of all sentences."""
    margin = tests.scores.margin
    ends = {"low": margin.value - np.array(half), "high": margin.value + np.array(half)}
    return replace(tests, scores=tests.scores._replace(margin=margin._replace(**ends)))


def results_of(tests: RelationTests | None, results: StackResults | None = None) -> StackResults:
    """Results whose relations have these tests."""
    found = results or fake_results(NO_ESTIMATES)
    object.__setattr__(found, "_made", {of_relations: tests})
    return found


def answer(tests: RelationTests | None, results: StackResults | None = None) -> Fact:
    fact = follows_grammar(results_of(tests, results))
    assert 3 < len(fact.text.text.split()) <= MAX_WORDS
    return fact


def numbers(sentence: Sentence) -> list[Printed]:
    return [part for part in sentence.parts if isinstance(part, Printed)]


def test_the_head_with_the_largest_margin_is_named_with_its_row() -> None:
    fact = answer(three([0.01, 0.2, 0.9]))
    assert fact.holds
    assert fact.heads == (HeadName("self", 0, 1),)
    (printed,) = numbers(fact.text)
    assert printed.text == "40 points"
    row = dict(printed.number.row.key)
    assert (row["claim"], row["label"], row["split"]) == ("relation", LABELS[0], "all")
    assert (row["layer"], row["head"]) == (0, 1)
    assert fact.evidence[0].difference.value == pytest.approx(printed.number.value)


@pytest.mark.parametrize("n_claimed", [1, 2, 3])
def test_every_claimed_head_is_counted(n_claimed: int) -> None:
    p = [0.01] * n_claimed + [0.9] * (3 - n_claimed)
    fact = answer(three(p))
    assert [(head.layer, head.head) for head in fact.heads] == [*HEADS[:n_claimed]]
    named = [part for part in fact.text.parts if isinstance(part, Link)]
    assert len(named) == min(n_claimed, 2)


def test_the_first_relation_is_chosen_on_the_other_half() -> None:
    """The largest of several reported margins would be inflated."""
    fact = answer(three([0.01, 0.01, 0.9], chosen=[0.1, 0.5, 0.9]))
    assert fact.heads == (HeadName("self", 1, 0), HeadName("self", 0, 1))
    assert fact.evidence[0].label == "obj:to_head"


def test_a_head_with_two_relations_counts_once() -> None:
    tests = three([0.01, 0.01, 0.9])
    tests = replace(tests, head=tests.head * 0)
    assert claimed_heads(results_of(tests), tests) == [HeadName("self", 0, 0)]
    assert answer(tests).heads == (HeadName("self", 0, 0),)


def test_nothing_is_claimed_without_a_small_p() -> None:
    for tests in (three([0.05, 0.2, 0.9]), chosen_tests(LABELS[:1], HEADS[:1], [0.8], [0.4], [1])):
        assert not answer(tests).holds
        assert not tests.undecided.any()  # intervals of a tenth on either side


@pytest.mark.parametrize(
    ("half", "margin", "undecided"),
    [
        ([0.2, 0.2, 0.2], [0.1, 0.0, -0.1], [True, True, True]),
        ([0.2, 0.1, 0.2], [0.1, 0.1, -0.1], [True, False, True]),
        ([0.2, 0.2, 0.2], [0.1, -0.2, -0.3], [True, False, False]),  # surely not above the rule
        ([np.nan, 0.1, 0.1], [0.1, 0.0, 0.0], [True, False, False]),
    ],
)
def test_too_few_words_decide_nothing(
    half: list[float], margin: list[float], undecided: list[bool]
) -> None:
    tests = wide(three([0.9] * 3, margin), half)
    assert tests.undecided.tolist() == undecided
    fact = answer(tests)
    assert not fact.holds
    assert ("too few words to decide" in fact.text.text.lower()) == any(undecided)
    assert ("No head" in fact.text.text) == (not all(undecided))


def test_what_is_claimed_is_decided() -> None:
    assert not wide(three([0.01] * 3), [0.3] * 3).undecided.any()


def with_trees(uas: list[list[float]], chain: float = 0.4, excess: Any = 0.1) -> StackResults:
    """Results with scores of dependency trees, linking neighbours, and weight on dependencies."""
    by_head = [[excess, 0.0]] * 2 if isinstance(excess, float) else excess
    trees = {
        HeadKey("dependency_trees", VIEW, "uas"): Fake(uas),
        HeadKey("dependency_trees", VIEW, "chain"): Fake([[chain] * 2] * 2),
        HeadKey("dependency_excess", VIEW, ""): Fake(by_head),
    }
    return fake_results(trees, stack="encoder")


def test_trees_of_heads_are_named_if_they_beat_linking_neighbours() -> None:
    for uas, better in (
        ([[0.6, 0.1], [0.2, 0.7]], "Two heads’"),
        ([[0.6, 0.1], [0.2, 0.3]], "One head’s"),
        ([[0.4, 0.1], [0.2, 0.3]], ""),
    ):
        fact = answer(three([0.9] * 3), with_trees(uas))
        links = [part for part in fact.text.parts if isinstance(part, Link)]
        assert [link.text.removesuffix(" trees") for link in links] == [better] * bool(better)
        assert {link.href for link in links} <= {"syntax.html#trees-encoder"}


def test_the_head_that_aligns_most_is_the_one_with_the_largest_number() -> None:
    """Not the one that half of the sentences chooses, and only if the other half confirms it."""
    fact = aligned_head(with_trees([[0.6, 0.1]] * 2, excess=[[0.05, 0.0], [0.0, 0.146]]))
    assert fact.holds
    assert fact.heads == (HeadName("encoder", 1, 1),)
    (printed,) = numbers(fact.text)
    assert printed.number.value == pytest.approx(0.146)
    assert (printed.number.place("layer"), printed.number.place("head")) == (1, 1)
    below = aligned_head(with_trees([[0.6, 0.1]] * 2, excess=-0.1))
    assert (below.holds, below.heads, bool(below.text)) == (False, (), False)
    assert not aligned_head(fake_results(NO_ESTIMATES)).holds


@pytest.mark.parametrize("margin", [[-0.2, 0.05, 0.0], [0.4, 0.3, 0.2]])
def test_nothing_is_claimed_of_a_preference_for_a_class(margin: list[float]) -> None:
    """A margin alone is told apart from none at all."""
    tests = three([0.01] * 3, margin, preference=[0.05, 0.0, -0.2])
    fact = answer(tests)
    assert not fact.holds
    assert ("preferring a word class" in fact.text.text) == tests.above_rule.any()
    assert not answer(three([0.01] * 3, others=20)).holds


def test_what_was_not_tested_is_not_answered() -> None:
    assert not answer(None).holds
    assert "--metrics" in answer(None).text.text
    assert not answer(chosen_tests((), (), (), (), ())).holds


@pytest.mark.parametrize("direction", ["to_head", "to_dependent"])
def test_answers_on_all_relations_are_short(direction: str) -> None:
    for relation in ENDS:
        labels = (f"{relation}:{direction}", "obj:to_head", "det:to_head")
        tests = chosen_tests(labels, HEADS, [0.8] * 3, [0.4, 0.3, 0.2], [0.01] * 3)
        assert answer(tests, fake_results(NO_ESTIMATES, stack="encoder")).holds


def test_a_margin_of_less_than_a_point_has_a_decimal() -> None:
    tests = three([0.01, 0.9, 0.9], [0.004, 0.0, 0.0])
    margin = tests.scores.margin
    clear = tests.scores._replace(margin=margin._replace(low=margin.value - 0.001))
    (printed,) = numbers(answer(replace(tests, scores=clear, held_out=clear)).text)
    assert printed.text == "0.4 points"


def of_words(words: dict[str, float], *, causal: bool) -> StackResults:
    """Results with accuracies of labels, each asked of that many words."""
    accuracy = {HeadKey(ACCURACY, VIEW, label): Fake([[0.5] * 2] * 2) for label in words}
    found = fake_results(accuracy, causal=causal)
    known = found.heads

    def heads(metric: str, view: SinkView, label: str = "") -> Any:
        return known(metric, view, label)._replace(events=np.full((2, 2), words[label]))

    object.__setattr__(found, "heads", heads)
    return found


def test_a_relation_that_the_causal_mask_forbids_is_not_called_seldom() -> None:
    """The key of a determiner, its noun, follows; that of a noun, its determiner, goes before."""
    words = {"det:to_head": 3.0, "det:to_dependent": 200.0, "vocative:to_head": 4.0}
    tests = chosen_tests(("det:to_dependent",), HEADS[:1], [0.8], [0.4], [0.9])
    for causal in (False, True):
        found = untested(results_of(tests, of_words(words, causal=causal)))
        assert ("det:to_head" in found.masked) == causal
        assert ("det" in found.seldom) == (not causal)
        assert "vocative" in found.seldom


def test_the_worked_example_has_the_numbers_of_its_relation() -> None:
    tests = three([0.01, 0.9, 0.9])
    values = [
        printed.number.value for printed in numbers(worked_example(results_of(tests), tests, 0))
    ]
    assert values == pytest.approx([0.8, 0.4, 0.4, 0.01])
    unknown = replace(tests, p=np.full(3, np.nan), scores=tests.scores._replace(
        margin=estimates([0.4, 0.3, 0.2])
    ))  # fmt: skip
    assert len(numbers(worked_example(results_of(unknown), unknown, 0))) == 3
