"""Claims on two models: each rule with numbers that support its claim and numbers that do not."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from headbook.comparison.claims import (
    MIN_COSINE_GAP,
    ComparedStack,
    SizedClaim,
    alike_claim,
    heads_claim,
    layers_claim,
    standing_out,
)
from headbook.comparison.comparison import Comparison
from headbook.comparison.difference_claims import difference_claims, equal_text
from headbook.comparison.differences import ComparedColumn, HeadDifferences, LayerDifferences
from headbook.comparison.drift import (
    CEILING_LABEL,
    FLOOR_LABEL,
    PATTERN_DRIFT,
    drift_summary,
    layer_drift,
)
from headbook.comparison.study_pair import StackPair
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import layers_text
from layers import SELF

MAX_WORDS = 18
NAMES = ("before", "after")
UNRELATED, ROUNDING = 0.4, 0.001


def compared(
    drift: Sequence[Sequence[float]],
    spread: float = 0.01,
    *,
    floor: float | None = ROUNDING,
    cosine: Sequence[float] = (),
    stack: str = "self",
) -> ComparedStack:
    """Return a stack whose heads diverge so much, with intervals of ``spread`` to each side.

    Args:
        floor: divergence by rounding; None if not measured.
        cosine: difference of the tokens' cosine to their input, by layer.
    """
    value = np.array(drift)
    columns = {"": value, CEILING_LABEL: np.full(value.shape, UNRELATED)}
    if floor is not None:
        columns[FLOOR_LABEL] = np.full(value.shape, floor)
    values = np.stack([*columns.values()], -1)
    reach = np.array([spread if label != FLOOR_LABEL else 0.0 for label in columns])
    reach = np.where(values > 0, reach, 0.06)  # intervals of equal heads reach far, too
    unknown = np.full(values.shape, np.nan)
    heads = HeadDifferences(
        tuple(ComparedColumn(PATTERN_DRIFT, "raw", label) for label in columns),
        unknown, unknown, values, np.maximum(values - reach, 0), values + reach, unknown, unknown,
        np.full(values.shape, 50),
    )  # fmt: skip
    summary = drift_summary(heads)
    assert summary is not None
    layers, n_heads = value.shape
    of = replace(SELF, name=stack, n_layers=layers, attention_layers=tuple(range(layers)),
                 n_heads=n_heads)  # fmt: skip
    tokens = cosines(cosine) if cosine else None
    return ComparedStack(StackPair(of, of), NAMES, heads, summary, tokens)


def cosines(gap: Sequence[float]) -> LayerDifferences:
    """Return differences of the tokens' cosine; supported if they are not 0."""
    value = np.array(gap)[:, None]
    half = np.full(value.shape, 0.5)
    p = np.where(value == 0, 1.0, 0.01)
    return LayerDifferences(
        (ComparedColumn("cosine_to_input", "", "out/all"),), half, half + value, value,
        value - 0.001, value + 0.001, p, p, np.full(value.shape, 50),
    )  # fmt: skip


def sentence(found: Any) -> str:
    """The sentence of a rule's claim; empty without one."""
    claims: list[SizedClaim] = [*found]
    if not claims:
        return ""
    (claim,) = claims
    text = claim.claim.sentence.text
    assert len(text.replace("\u00a0", " ").split()) <= MAX_WORDS, text
    return text


def lit(found: Any) -> set[tuple[int, int]]:
    (claim,) = found
    return {(head.layer, head.head) for head in claim.claim.heads}


def test_the_fewest_values_stand_out_whose_intervals_lie_above_all_others() -> None:
    value = np.array([0.1, 0.5, 0.52, 0.11])
    assert standing_out(value, value - 0.05, value + 0.05, 3) == [2, 1]
    assert standing_out(value, value - 0.05, value + 0.05, 1) == []
    assert standing_out(value, value - 0.005, value + 0.005, 3) == [2]
    assert standing_out(value, value - 0.3, value + 0.3, 3) == []
    high = np.where(value == 0.1, np.nan, value + 0.05)  # nothing lies above a missing interval
    assert standing_out(value, value - 0.05, high, 3) == []


def test_the_head_that_differs_most_is_named_with_its_divergence() -> None:
    stack = compared([[0.05, 0.06], [0.3, 0.05]])
    assert sentence(heads_claim(stack)) == ("Attention diverges most in L1·H0: by 0.30 nats.")
    assert lit(heads_claim(stack)) == {(1, 0)}
    (claim,) = heads_claim(stack)
    evidence = claim.claim.evidence.text
    assert "L1·H0 0.30 [0.29, 0.31], then L0·H1 0.06 [0.05, 0.07]" in evidence
    assert "Median of rounding 0.001 and of another head 0.40. 50 sentences." in evidence


@pytest.mark.parametrize(
    ("drift", "text"),
    [
        (
            [[0.3, 0.31], [0.01, 0.02]],
            "Attention diverges more in L0·H1 and L0·H0 than in all other heads: by at least 0.30 "
            "nats.",
        ),
        (
            [[0.3] * 4 + [0.01] * 36],
            "Four heads attend more differently than all others: by at least 0.30 nats.",
        ),
    ],
)
def test_several_heads_that_differ_most_are_told_with_the_least_of_them(
    drift: list[list[float]], text: str
) -> None:
    assert sentence(heads_claim(compared(drift))) == text


def test_without_a_head_that_stands_out_those_above_rounding_are_counted() -> None:
    drift = [[0.1, 0.11], [0.12, 0.0]]
    stack = compared(drift, 0.05)
    assert sentence(heads_claim(stack)) == (
        "Attention diverges more in L1·H0, L0·H1 and L0·H0 than in all other heads: by at least "
        "0.10 nats."
    )
    stack = compared([[0.1, 0.11], [0.12, 0.11], [0.1, 0.0]], 0.05)
    assert sentence(heads_claim(stack)) == (
        "Attention differs by more than rounding in 5 of 6 heads, by at most 0.12 nats."
    )
    assert len(lit(heads_claim(stack))) == 5
    without = compared([[0.1, 0.11], [0.12, 0.11], [0.1, 0.0]], 0.05, floor=None)
    assert not sentence(heads_claim(without))


def test_no_head_within_rounding_is_claimed() -> None:
    assert not sentence(heads_claim(compared([[0.3, 0.01]], floor=0.5)))
    assert not sentence(heads_claim(compared([[0.0, 0.0]])))


def test_a_layer_that_differs_most_is_claimed_by_the_mean_of_its_heads() -> None:
    stack = compared([[0.02] * 3, [0.2] * 3, [0.05] * 3], stack="decoder")
    assert sentence(layers_claim(stack)) == (
        "Attention diverges most in layer 1 of the decoder: on average by 0.20 nats."
    )
    assert lit(layers_claim(stack)) == {(1, head) for head in range(3)}
    drift = layer_drift(stack.heads)
    assert drift is not None
    assert drift.value[1, 0] == pytest.approx(0.2)
    assert (drift.low[1, 0], drift.high[1, 0]) == pytest.approx((0.19, 0.21))
    two = compared([[0.01] * 2] * 4 + [[0.2] * 2] * 2)
    assert sentence(layers_claim(two)) == (
        "Attention diverges more in layers 4 and 5 than elsewhere: on average by at least 0.20 "
        "nats."
    )


@pytest.mark.parametrize(
    "drift",
    [
        [[0.1] * 3, [0.11] * 3],  # intervals overlap
        [[0.03] * 3, [0.01, 0.01, 0.5]],  # one head alone
        [[0.1] * 3],  # no other layer
    ],
)
def test_layers_alike_or_one_head_alone_support_no_claim_on_a_layer(
    drift: list[list[float]],
) -> None:
    assert not sentence(layers_claim(compared(drift)))


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        ([0.0, 0.2], "After layer 1, tokens’ cosine to their input is 0.20 higher in after."),
        ([-0.3, 0.2], "After layer 0, tokens’ cosine to their input is 0.30 lower in after."),
        ([0.0, MIN_COSINE_GAP / 2], ""),
        ([0.0, 0.0], ""),
    ],
)
def test_without_a_layer_that_stands_out_tokens_may_differ(gap: list[float], text: str) -> None:
    stack = compared([[0.1] * 3, [0.1] * 3], cosine=gap)
    assert sentence(layers_claim(stack)) == text


def test_a_layer_whose_heads_differ_most_comes_before_tokens() -> None:
    stack = compared([[0.01] * 3, [0.3] * 3], cosine=[0.0, 0.2])
    assert "on average" in sentence(layers_claim(stack))


def test_layers_and_heads_that_attend_alike_are_claimed() -> None:
    stack = compared([[0.002, 0.003], [0.3, 0.001]], 0.0005)
    assert sentence(alike_claim(stack)) == (
        "In layer 0, all heads attend alike in both models: at most 0.003 nats apart."
    )
    assert lit(alike_claim(stack)) == {(0, 0), (0, 1)}
    heads = compared([[0.3, 0.001], [0.3, 0.001]], 0.0005)
    assert sentence(alike_claim(heads)) == (
        "Two heads attend alike in both models: at most 0.001 nats apart."
    )
    every = compared([[0.002, 0.003]], 0.0005, stack="encoder")
    assert sentence(alike_claim(every)) == (
        "All heads of the encoder attend alike in both models: at most 0.003 nats apart."
    )


def test_several_equal_stacks_are_named_together() -> None:
    stacks = {name: compared([[0.0, 0.0]], stack=name) for name in ("encoder", "decoder")}
    stacks["cross"] = compared([[0.3, 0.1]], stack="cross")
    comparison = SimpleNamespace(
        sides=SimpleNamespace(stacks=[each.pair for each in stacks.values()], names=NAMES),
        heads={name: each.heads for name, each in stacks.items()},
        layers={},
    )
    claims = difference_claims(cast("Comparison", comparison))
    assert [claim.sentence.text for claim in claims] == [
        "Attention diverges most in L0·H0 of cross-attention: by 0.30 nats.",
        "All heads of the encoder and of the decoder attend exactly alike in both models.",
    ]
    assert len(claims[1].heads) == 4


def test_models_that_differ_nowhere_are_said_to() -> None:
    def text(stack: ComparedStack) -> str:
        sides = SimpleNamespace(stacks=[stack.pair], names=NAMES, sentences=50)
        found = SimpleNamespace(sides=sides, heads={"self": stack.heads}, layers={})
        assert not difference_claims(cast("Comparison", found))
        return str(equal_text(cast("Comparison", found)))

    equal, near = compared([[0.0, 0.0]]), compared([[0.1, 0.11]], floor=0.5)
    assert text(equal) == "The attention of before and after is exactly equal in all 2 heads."
    assert text(near) == (
        "No difference between before and after is supported on these 50 sentences: q < 0.05 for "
        "no number of a head or layer."
    )


def test_equal_heads_are_called_exactly_alike_whatever_their_interval() -> None:
    stack = compared([[0.0, 0.0], [0.3, 0.3]])
    assert sentence(alike_claim(stack)) == (
        "In layer 0, all heads attend exactly alike in both models."
    )


def test_wide_intervals_and_few_heads_support_no_claim_on_heads_alike() -> None:
    assert not sentence(alike_claim(compared([[0.03, 0.3]], 0.02)))  # reaches above a tenth of 0.4
    assert not sentence(alike_claim(compared([[0.001] + [0.3] * 11], 0.0001)))


def test_a_number_of_a_claim_names_its_row() -> None:
    (claim,) = layers_claim(compared([[0.02] * 3, [0.2] * 3, [0.05] * 3]))
    (number,) = (part for part in claim.claim.sentence.parts if isinstance(part, LinkedNumber))
    assert number.table == "differences"
    assert dict(number.row) == {
        "stack": "self", "layer": 1, "head": "", "metric": PATTERN_DRIFT, "view": "raw",
        "label": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "text"),
    [([4], "layer 4"), ([2, 1, 3], "layers 1–3"), ([0, 1], "layers 0 and 1"),
     ([0, 2, 5], "layers 0, 2 and 5")],
)  # fmt: skip
def test_layers_in_words(layers: list[int], text: str) -> None:
    assert layers_text(layers) == text
