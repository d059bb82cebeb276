"""Claims on models whose heads do not correspond: numbers that support each claim, and do not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.analysis.head_matching import match
from headbook.analysis.paired import MedianEstimate, Medians
from headbook.comparison.comparison import Comparison
from headbook.comparison.differences import ComparedColumn
from headbook.comparison.matching import MatchedHeads
from headbook.comparison.matching_claims import (
    apart_text,
    counterparts_claim,
    matching_claims,
    median_claim,
    pair_claim,
    unmatched_text,
)
from headbook.comparison.study_pair import StackPair, StudyPair
from headbook.schema import HeadKey, SinkView, heads_of

MAX_WORDS = 18
THRESHOLD = 0.8
SINK = ComparedColumn("sink_share", "raw", "")
DISTANCE = ComparedColumn("attention_distance", "renorm", "")


def apart(
    similarity: Any = ((0.95, 0.2), (0.2, 0.9), (0.1, 0.1), (0.1, 0.1)),
    medians: dict[ComparedColumn, tuple[float, float, float]] | None = None,
    *,
    tested: bool = True,
) -> Comparison:
    """Return a comparison of a model with four heads and one with two.

    Args:
        similarity: of every two heads.
        medians: difference of each median, with the ends of its interval.
    """
    results = fake_results({HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.5] * 4])})
    a, b = results.stack, replace(results.stack, n_heads=2)
    pair = StackPair(a, b)
    values = np.array(similarity)
    matched = MatchedHeads(
        tuple(heads_of(a)), tuple(heads_of(b)), values,
        match(values, THRESHOLD if tested else 0.0), 0.9, 50, tested, cut=False,
    )  # fmt: skip
    found = {
        column: Medians(MedianEstimate(1, 0.9, 1.1), MedianEstimate(1 + gap, 0.9 + gap, 1.1 + gap),
                        MedianEstimate(gap, low, high))
        for column, (gap, low, high) in (medians or {}).items()
    }  # fmt: skip
    sides = StudyPair(results.study, results.study, ("one", "two"), (pair,), "sizes differ")
    return Comparison(sides, {}, {"self": matched}, depths={"self": found})


def sentence(rule: Any, found: Comparison) -> str:
    """The sentence of a rule's claim; empty without one."""
    claims = [*rule(found, found.sides.stacks[0])]
    text = claims[0].sentence.text if claims else ""
    assert len(text.split()) <= MAX_WORDS, text
    return text


def test_the_most_similar_pair_is_named() -> None:
    assert sentence(pair_claim, apart()) == (
        "L0·H0 and L0·H0 of two attend most alike: similarity 0.95."
    )


@pytest.mark.parametrize(
    "found",
    [
        apart(tested=False),
        apart(((0.7, 0.2), (0.2, 0.6), (0.1, 0.1), (0.1, 0.1))),  # no more than random weights
        apart(((0.95, 0.2), (0.2, 0.95), (0.1, 0.1), (0.1, 0.1))),  # two pairs are equally alike
    ],
)
def test_untested_unlike_and_tied_pairs_are_not_claimed(found: Comparison) -> None:
    assert not sentence(pair_claim, found)


@pytest.mark.parametrize(
    ("medians", "text"),
    [
        (
            {SINK: (0.2, 0.15, 0.25)},
            "The median head of two gives the sink 20.0 points more of its attention than that of "
            "one.",
        ),
        (
            {SINK: (0.2, -0.1, 0.5), DISTANCE: (-1.5, -1.7, -1.3)},
            "The median head of two attends 1.50 tokens nearer than that of one.",
        ),
        ({SINK: (0.2, 0.01, 0.39)}, ""),  # excludes 0 only without the choice among four
        ({SINK: (0.2, np.nan, np.nan)}, ""),
        ({}, ""),
    ],
)
def test_the_first_median_that_differs_is_claimed(
    medians: dict[ComparedColumn, tuple[float, float, float]], text: str
) -> None:
    assert sentence(median_claim, apart(medians=medians)) == text


def test_counterparts_are_claimed_if_they_are_more_than_chance() -> None:
    found = apart()
    assert (
        sentence(counterparts_claim, found) == "Of the heads of one, 2 have a counterpart in two."
    )
    (claim,) = counterparts_claim(found, found.sides.stacks[0])
    assert len(claim.heads) == 2
    assert not sentence(counterparts_claim, apart(np.full((4, 2), 0.3)))
    assert not sentence(counterparts_claim, apart(tested=False))


def test_claims_come_one_of_each_kind_or_not_at_all() -> None:
    found = apart(medians={SINK: (0.2, 0.15, 0.25)})
    assert [claim.kind for claim in matching_claims(found)] == ["pair", "median", "counterparts"]
    nothing = apart(np.full((4, 2), 0.3), tested=False)
    assert not matching_claims(nothing)
    assert unmatched_text(nothing).endswith("no model with random weights was compared.")


def test_models_whose_heads_do_not_correspond_say_why() -> None:
    assert apart_text(apart()) == (
        "Heads of one and two do not correspond by number: sizes differ. They cannot be compared "
        "one to one."
    )
