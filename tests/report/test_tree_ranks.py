"""Scores of induced trees: ranked only above every tree that needs no attention."""

from typing import Any

import pytest

from chosen_results import Fake, fake_results
from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.pages.head_parts.standing import strips
from headbook.report.results import StackResults
from headbook.report.trees import (
    TREES,
    best_heads_of_layers,
    heads_above_plain_trees,
    is_ranked,
    plain_trees,
)
from headbook.schema import HeadKey, HeadName, SinkView

PLAIN = {"right_branching": 0.3, "left_branching": 0.1, "balanced": 0.4}


def results(heads: Any, plain: dict[str, float] = PLAIN, second: Any = None) -> StackResults:
    """Phrase trees of heads, and of trees without attention."""
    n_layers, n_heads = len(heads), len(heads[0])
    numbers = {"f1": Fake(heads, second=second)}
    numbers |= {name: Fake([[score] * n_heads] * n_layers) for name, score in plain.items()}
    view = SinkView.NOSINK
    return fake_results({HeadKey("phrase_trees", view, x): each for x, each in numbers.items()})


def test_heads_are_compared_with_the_best_of_all_trees_without_attention() -> None:
    """Not with right-branching trees alone."""
    found = results([[0.2, 0.35], [0.401, 0.5]])
    best, *others = plain_trees(found, "phrase_trees")
    assert (best.label, best.name) == ("balanced", "balanced trees")
    assert [tree.label for tree in others] == ["right_branching", "left_branching"]
    above = heads_above_plain_trees(found, "phrase_trees")
    assert above.tolist() == [[False, False], [False, True]]
    assert is_ranked(found, "phrase_trees", (1, 1))
    assert not is_ranked(found, "phrase_trees", (0, 1))
    assert is_ranked(found, "attention_distance", (0, 1))
    lower = results([[0.2, 0.35], [0.401, 0.5]], {**PLAIN, "balanced": 0.2})
    assert heads_above_plain_trees(lower, "phrase_trees").tolist() == [[False, True], [True, True]]


def test_heads_of_a_layer_are_chosen_on_one_half_and_compared_on_the_other() -> None:
    found = results([[0.2, 0.5], [0.6, 0.5]], second=[[0.7, 0.3], [0.3, 0.9]])
    assert best_heads_of_layers(found, "phrase_trees") == {0: 1, 1: 0}
    first, other = (
        heads_above_plain_trees(found, "phrase_trees", n) for n in (SELECTION, HELD_OUT)
    )
    assert first.tolist() == [[False, True], [True, True]]
    assert other.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(("score", "named"), [(0.5, True), (0.35, False)])
def test_a_head_page_ranks_heads_above_the_baselines_alone(score: float, *, named: bool) -> None:
    found = results([[0.2, 0.3], [0.1, score]])
    titles = [strip.title for strip in strips(found, HeadName("self", 1, 1))]
    assert (titles == ["Phrase trees induced from attention: F1"]) == named
    assert not strips(found, HeadName("self", 0, 0))


def test_numbers_that_are_the_same_for_all_heads_are_known() -> None:
    phrases, dependencies = TREES["phrase_trees"], TREES["dependency_trees"]
    assert phrases.same_for_all_heads == {*PLAIN, "joint", "ceiling"}
    assert dependencies.same_for_all_heads == {"chain"}
