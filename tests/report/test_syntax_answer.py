"""Answers on grammar: each rule with numbers that support it and numbers that do not."""

from dataclasses import replace
from typing import Any

import pytest

from chosen_relations import chosen_tests
from chosen_results import NO_ESTIMATES, Fake, fake_results
from headbook.report.answers.syntax import aligned_head, claimed_heads, syntax_answer
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import ENDS
from headbook.report.results import StackResults
from headbook.results.sentence import Link
from headbook.schema import HeadKey, HeadName, SinkView

LABELS = ("case:to_head", "obj:to_head", "det:to_dependent")
HEADS = ((0, 1), (1, 0), (1, 1))
MAX_WORDS = 30


def three(p: list[float], margin: list[float] | None = None, **options: Any) -> RelationTests:
    """Three relations, each with a head of its own."""
    return chosen_tests(LABELS, HEADS, [0.8, 0.7, 0.6], margin or [0.4, 0.3, 0.2], p, **options)


def results(stack: str = "self") -> StackResults:
    return fake_results(NO_ESTIMATES, stack=stack)


def words(answer: Parts) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in answer)


def answer(tests: RelationTests | None, stack: str = "self") -> str:
    text = words(syntax_answer(results(stack), tests))
    assert len(text.split()) <= MAX_WORDS
    assert text.endswith(".")
    return text


def test_one_head_is_named_with_its_margin() -> None:
    """The number leads to its row; the link of the head to its page."""
    parts = syntax_answer(results(), three([0.01, 0.2, 0.9]))
    assert words(parts) == (
        "One head clearly does: L0·H1 attends from a case marker to its noun 40 points more often "
        "than the best surface rule."
    )
    (head,) = [part for part in parts if isinstance(part, Link)]
    assert head.href == "heads/L00-H01.html"
    (number,) = [part for part in parts if isinstance(part, LinkedNumber)]
    assert (number.text, number.table) == ("40 points", "tests")
    row = dict(number.row)
    assert (row["claim"], row["label"], row["split"]) == ("relation", LABELS[0], "all")
    assert (row["layer"], row["head"]) == (0, 1)


def test_the_second_head_is_named_and_the_others_are_counted() -> None:
    two = answer(three([0.01, 0.01, 0.9]))
    assert two.startswith("Two heads clearly do: L0·H1 attends from a case marker")
    assert two.endswith("; the other is L1·H0.")
    more = answer(three([0.01, 0.01, 0.01]))
    assert more.startswith("Three heads clearly do: ")
    assert more.endswith("; L1·H0 and one other follow.")


def test_the_first_relation_is_chosen_on_the_other_half() -> None:
    """The largest of several reported margins would be inflated."""
    chosen = answer(three([0.01, 0.01, 0.9], chosen=[0.1, 0.5, 0.9]))
    assert "L1·H0 attends from a direct object to its verb 30 points" in chosen
    assert chosen.endswith("; the other is L0·H1.")


def test_a_head_with_two_relations_counts_once() -> None:
    tests = three([0.01, 0.01, 0.9])
    tests = replace(tests, head=tests.head * 0)
    assert claimed_heads(results(), tests) == [HeadName("self", 0, 0)]
    assert answer(tests).startswith("One head clearly does: L0·H0 attends")


def test_nothing_is_claimed_without_a_small_p() -> None:
    assert answer(three([0.05, 0.2, 0.9])) == (
        "No head clearly beats the best rule of word order and word class in any of 3 "
        "relations and directions."
    )
    assert answer(three([0.2] * 3), "encoder").startswith("No encoder head clearly beats ")
    one = chosen_tests(LABELS[:1], HEADS[:1], [0.8], [0.4], [0.2])
    assert answer(one).endswith("word class in the relation tested.")


def with_trees(uas: list[list[float]], chain: float = 0.4, excess: float = 0.1) -> StackResults:
    """Results with scores of dependency trees, linking neighbours, and weight on dependencies."""
    trees = {
        HeadKey("dependency_trees", SinkView.NOSINK, "uas"): Fake(uas),
        HeadKey("dependency_trees", SinkView.NOSINK, "chain"): Fake([[chain] * 2] * 2),
        HeadKey("dependency_excess", SinkView.NOSINK, ""): Fake([[excess, 0.0]] * 2),
    }
    return fake_results(trees, stack="encoder")


def test_trees_of_heads_are_named_if_they_beat_linking_neighbours() -> None:
    nothing = three([0.9] * 3)
    two = syntax_answer(with_trees([[0.6, 0.1], [0.2, 0.7]]), nothing)
    assert words(two).endswith(
        "directions; two heads’ trees match dependencies better than linking neighbours."
    )
    assert len(words(two).split()) <= MAX_WORDS
    (link,) = [part for part in two if isinstance(part, Link)]
    assert link.href == "syntax.html#trees-encoder"
    one = words(syntax_answer(with_trees([[0.6, 0.1], [0.2, 0.3]]), nothing))
    assert "; one head’s trees match dependencies" in one
    none = words(syntax_answer(with_trees([[0.4, 0.1], [0.2, 0.3]]), nothing))
    assert none.endswith("relations and directions.")


def test_weight_on_dependencies_is_known_apart_from_relations() -> None:
    aligned = aligned_head(with_trees([[0.6, 0.1]] * 2))
    assert words(aligned).startswith("By weight, encoder L0·H0")
    assert "that is no relation" in words(aligned)
    assert aligned_head(with_trees([[0.6, 0.1]] * 2, excess=-0.1)) == ()
    assert aligned_head(results()) == ()


@pytest.mark.parametrize("margin", [[-0.2, 0.05, 0.0], [0.4, 0.3, 0.2]])
def test_nothing_is_claimed_of_a_preference_for_a_class(margin: list[float]) -> None:
    """A margin alone is told apart from none at all."""
    found = answer(three([0.01] * 3, margin, preference=[0.05, 0.0, -0.2]))
    if margin[0] > 0:
        assert found == (
            "No head clearly does: in three of 3 relations and directions one beats the best rule "
            "of word order and word class, perhaps by preferring a word class."
        )
    else:
        assert found.startswith("No head clearly beats ")
    too_few = answer(three([0.01] * 3, others=20))
    assert too_few.endswith("perhaps by preferring a word class.")


def test_what_was_not_tested_is_not_answered() -> None:
    assert answer(None).startswith("Not measured here: ")
    assert "--metrics" in answer(None)
    nothing = chosen_tests((), (), (), (), ())
    assert answer(nothing) == (
        "Not known: no relation has words in at least 10 sentences of the half that reports."
    )


@pytest.mark.parametrize("direction", ["to_head", "to_dependent"])
def test_answers_on_all_relations_are_short(direction: str) -> None:
    for relation in ENDS:
        labels = (f"{relation}:{direction}", "obj:to_head", "det:to_head")
        tests = chosen_tests(labels, HEADS, [0.8] * 3, [0.4, 0.3, 0.2], [0.01] * 3)
        assert len(answer(tests, "encoder").split()) <= MAX_WORDS


def test_a_margin_of_less_than_a_point_has_a_decimal() -> None:
    tests = three([0.01, 0.9, 0.9], [0.004, 0.0, 0.0])
    margin = tests.scores.margin
    clear = tests.scores._replace(margin=margin._replace(low=margin.value - 0.001))
    assert " 0.4 points more often " in answer(replace(tests, scores=clear, held_out=clear))
    larger = clear._replace(margin=clear.margin._replace(value=margin.value + 0.006))
    assert " 1 point more often " in answer(replace(tests, scores=larger, held_out=clear))
