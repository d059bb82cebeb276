"""Claims on checkpoints: each rule with numbers that support its claim and numbers that do not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.analysis.accumulators import Estimate
from headbook.comparison.checkpoint_claims import (
    CHECKPOINT_RULES,
    changed_heads,
    checkpoint_claims,
    clear_of_zero,
    extreme_claim,
    head_claim,
    layer_claim,
    share_columns,
    steady_claim,
    unsupported_text,
)
from headbook.comparison.checkpoint_steps import CHECKPOINT_METRICS, checkpoint_step
from headbook.comparison.checkpoints import Checkpoints, layer_changes
from headbook.comparison.claims import SizedClaim
from headbook.report.thresholds import SCORE
from headbook.schema import HeadKey, SinkView

PREVIOUS = HeadKey("attention_to", SinkView.RAW, "previous")
INDUCTION = HeadKey("induction_score", SinkView.RAW, "")
MAX_WORDS = 18
PERCENT = "\u202f%"
Heads = list[list[float]]


def of(
    first: Heads,
    last: Heads,
    spread: float = 0.04,
    key: HeadKey = PREVIOUS,
    second: Heads | None = None,
) -> Checkpoints:
    """Return two checkpoints with a number of every head.

    Args:
        spread: spread of the last values over sentences; the first ones have another.
        second: last values on the second half of the sentences.
    """
    fakes = (Fake(first, 0.05, 0.02), Fake(last, 0.05, spread, second))
    frames = tuple(
        checkpoint_step(name, fake_results({key: fake}, causal=True).study)
        for name, fake in zip(("step-0", "step-100"), fakes, strict=True)
    )
    return Checkpoints(frames, np.array([0, 100]), named=True)


def sentence(rule: Any, checkpoints: Checkpoints) -> str:
    """The sentence of a rule's claim; empty without one."""
    found: Iterator[SizedClaim] = rule(checkpoints, checkpoints.stacks[0])
    claims = [*found]
    return claims[0].claim.sentence.text if claims else ""


LOW: Heads = [[0.1, 0.1], [0.1, 0.1]]


def test_the_head_that_learnt_a_function_is_named_with_its_step() -> None:
    checkpoints = of(LOW, [[0.1, 0.9], [0.3, 0.1]])
    assert sentence(head_claim, checkpoints) == (
        f"L0·H1 now attends to the previous token: 90.0{PERCENT}, since step 100."
    )
    (claim,) = head_claim(checkpoints, checkpoints.stacks[0])
    evidence = claim.claim.evidence.text
    assert f"10.0{PERCENT} at step 0; change +80.0 points [+" in evidence
    assert f"past half of it from step 100 on; uniform attention: 5.0{PERCENT}" in evidence


@pytest.mark.parametrize(
    ("first", "last", "more"),
    [
        (LOW, [[0.15, 0.1], [0.1, 0.1]], {}),  # too small
        (LOW, [[0.02, 0.02], [0.02, 0.02]], {}),  # a fall
        (LOW, [[0.4, 0.1], [0.1, 0.1]], {}),  # below the threshold of the function
        (LOW, [[0.5, 0.1], [0.1, 0.1]], {"second": LOW}),  # gone on the other half
        (LOW, [[0.5, 0.1], [0.1, 0.1]], {"spread": 2.0}),  # noise
    ],
)
def test_small_falling_and_uncertain_changes_support_no_claim_on_a_head(
    first: Heads, last: Heads, more: dict[str, Any]
) -> None:
    assert not sentence(head_claim, of(first, last, **more))


def test_the_layer_whose_share_changed_most_is_claimed() -> None:
    checkpoints = of(LOW, [[0.1, 0.2], [0.5, 0.7]])
    assert sentence(layer_claim, checkpoints) == (
        "In layer 1, attention to the previous token rose by 50.0 points, mean over its heads."
    )
    checkpoints = of([[0.5, 0.7], [0.1, 0.1]], LOW)
    assert "In layer 0" in sentence(layer_claim, checkpoints)
    assert "fell by 50.0 points" in sentence(layer_claim, checkpoints)
    assert not sentence(layer_claim, of(LOW, [[0.15, 0.1], [0.1, 0.1]]))
    assert not sentence(layer_claim, of(LOW, [[0.1, 0.1], [0.5, 0.5]], 2.0))


def test_means_of_layers_are_in_the_table_of_half_rises() -> None:
    checkpoints = of(LOW, [[0.1, 0.2], [0.5, 0.7]])
    table = checkpoints.half_rise
    heads, layers = (table[table["head"].isna() == missing] for missing in (False, True))
    assert len(layers) == 2
    assert layers["step"].isna().all()
    for name in ("first", "last", "change", "low", "high"):
        means = heads.groupby("layer")[name].mean()
        np.testing.assert_allclose(layers.set_index("layer")[name], means)
    (rise,) = checkpoints.half_rises.values()
    np.testing.assert_allclose(layer_changes(rise).value, layers["change"])


def test_heads_that_kept_their_attention_are_claimed() -> None:
    checkpoints = of(LOW, [[0.12, 0.13], [0.5, 0.7]])
    assert sentence(steady_claim, checkpoints) == (
        "Two heads kept their attention: no followed share changed by more than 3.0 points."
    )
    equal = of(LOW, LOW)
    assert sentence(steady_claim, equal).startswith("All heads kept their attention")
    assert not sentence(steady_claim, of(LOW, [[0.3, 0.3], [0.5, 0.7]]))
    assert not sentence(steady_claim, of(LOW, [[0.12, 0.13], [0.5, 0.7]], 2.0))  # may be noise


@pytest.mark.parametrize(("below", "claimed"), [(0.05, True), (0.002, False), (-0.2, False)])
def test_no_induction_head_is_claimed_if_all_intervals_end_below_the_threshold(
    below: float, claimed: bool
) -> None:
    score = SCORE.value - below
    checkpoints = of(LOW, [[0.2, score], [0.2, 0.2]], 0.05, INDUCTION)
    text = sentence(steady_claim, checkpoints)
    assert text == (
        f"No head became an induction head: the highest score is 25.0{PERCENT}." if claimed else ""
    )


def test_claims_have_few_words_and_one_of_each_kind() -> None:
    checkpoints = of([[0.1, 0.1], [0.1, 0.1]], [[0.12, 0.11], [0.5, 0.9]])
    claims = checkpoint_claims(checkpoints)
    assert [claim.kind for claim in claims] == ["head", "layer", "steady"]
    assert len(CHECKPOINT_RULES) == 4
    for claim in claims:
        assert len(claim.sentence.text.split()) <= MAX_WORDS
    longest = max((len(each.does.split()) for each in CHECKPOINT_METRICS), default=0)
    others = "L0·H1 now : 90.0\u202f%, since step 100."
    assert longest + len(others.replace(" :", "").split()) <= MAX_WORDS + 1


def test_nothing_clear_is_said_so() -> None:
    checkpoints = of(LOW, [[0.3, 0.3], [0.3, 0.3]], 3.0)
    assert not checkpoint_claims(checkpoints)
    assert unsupported_text(checkpoints) == (
        "No change of a head or layer is supported from step 0 to step 100 on these 100 sentences."
    )


def test_intervals_are_widened_for_the_choice_among_several() -> None:
    change = Estimate(0.3, 0.05, 0.55, 100, 0.0)
    assert clear_of_zero(change, 1)
    assert not clear_of_zero(change, 100)
    assert clear_of_zero(Estimate(-0.3, -0.31, -0.29, 100, 0.0), 100)


def test_heads_with_clear_changes_come_in_order() -> None:
    checkpoints = of(LOW, [[0.1, 0.2], [0.5, 0.7]])
    assert [each.place for each in changed_heads(checkpoints, checkpoints.stacks[0])] == [
        (1, 1),
        (1, 0),
        (0, 1),
    ]
    assert {each.label for each in share_columns(checkpoints, "self")} == {"previous"}


def test_an_extreme_between_the_ends_is_claimed() -> None:
    """Of a head whose share is higher, or lower, at a middle step than at both ends."""
    middle: Heads = [[0.1, 0.1], [0.72, 0.1]]
    values: list[Heads] = [LOW, middle, [[0.1, 0.1], [0.2, 0.1]]]
    spreads = (0.02, 0.04, 0.03)  # so that differences vary
    frames = [of(LOW, *each).frames[1] for each in zip(values, spreads, strict=True)]
    named = tuple(
        replace(frame, name=name)
        for frame, name in zip(frames, ("step-0", "step-100", "step-900"), strict=True)
    )
    checkpoints = Checkpoints(named, np.array([0, 100, 900]), named=True)
    assert sentence(extreme_claim, checkpoints) == (
        f"L1·H0: attention to the previous token was 72.0{PERCENT} at step 100, beyond both ends "
        "of the training."
    )
    assert not sentence(extreme_claim, of(LOW, middle))  # no step lies between
