"""Laws of what attention carries: parts that add up, norms that are linear, rows that sum to 1."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from headbook.attention.flow import (
    AttentionBlock,
    LayerFlow,
    half_step,
    linear_part,
    measured_step,
    mixing_ratio,
    part_norms,
    split_block_output,
)
from headbook.model.attention_hook import AttentionCall
from headbook.model.output_projection import OutputProjection
from headbook.schema import RolloutKind


def block(width: int, heads: int, *, closed: bool) -> AttentionBlock:
    """An attention block with random weights, with a norm after it or without."""
    projection = OutputProjection(torch.nn.Linear(heads * width, 6, dtype=torch.float64))
    norm = torch.nn.LayerNorm(6, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    return AttentionBlock(projection, outer=norm if closed else None)


def call(weights: torch.Tensor, key_heads: int = 4, width: int = 3) -> AttentionCall:
    """An attention call with random values. ``weights``: *Shape:* ``(sentence, head, n, n)``."""
    n = weights.shape[-1]
    value = torch.randn(len(weights), key_heads, n, width, dtype=torch.float64)
    shared = value.repeat_interleave(weights.shape[1] // key_heads, 1)
    output = (weights @ shared).transpose(1, 2)
    return AttentionCall(None, None, None, value, None, weights, output)


@pytest.mark.parametrize("closed", [True, False])
def test_a_head_that_looks_at_the_token_itself_mixes_nothing(closed: bool) -> None:
    weights = torch.eye(5, dtype=torch.float64).expand(2, 4, 5, 5)
    residual = torch.randn(2, 5, 6, dtype=torch.float64)
    found = mixing_ratio(
        part_norms(split_block_output(call(weights), residual, block(3, 4, closed=closed)))
    )
    assert bool((found == 0).all())


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("closed", [True, False])
def test_parts_and_biases_add_up_to_the_state(closed: bool, key_heads: int) -> None:
    """Also where heads share values."""
    torch.manual_seed(0)
    weights = torch.randn(2, 4, 5, 5, dtype=torch.float64).softmax(-1)
    residual = torch.randn(2, 5, 6, dtype=torch.float64)
    attention, of = call(weights, key_heads), block(3, 4, closed=closed)
    assert attention.output is not None
    state = of.projection.module(attention.output.flatten(2)) + residual
    wanted = of.outer(state) if closed else state
    parts = split_block_output(attention, residual, of)
    torch.testing.assert_close(parts.mixed + parts.kept + parts.bias, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "norm",
    [
        torch.nn.LayerNorm(7),
        LlamaRMSNorm(7),
        Gemma3RMSNorm(7),
    ],
    ids=["layer norm", "root mean square", "gain less 1"],
)
def test_a_norm_is_linear_in_parts_of_what_it_gets(norm: Any) -> None:
    """All that is missing is the bias."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_()
    parts = torch.randn(3, 2, 5, 7)
    with torch.inference_mode():
        scale = linear_part(norm, parts.sum(0))
        found = sum(scale(part) for part in parts) + getattr(norm, "bias", torch.zeros(7))
        torch.testing.assert_close(found, norm(parts.sum(0)), rtol=1e-5, atol=1e-5)


def test_nothing_at_all_has_a_ratio_of_0() -> None:
    assert mixing_ratio(torch.zeros(2, 1, 3)).tolist() == [[0, 0, 0]]


@st.composite
def steps(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one sentence, causal or not, and mixing ratios."""
    n = draw(st.integers(1, 6))
    row = st.lists(st.floats(-30, 30), min_size=n, max_size=n)
    scores = torch.tensor(draw(st.lists(row, min_size=n, max_size=n)), dtype=torch.float64)
    if draw(st.booleans()):
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    mixing = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    return scores.softmax(-1)[None], torch.tensor([mixing], dtype=torch.float64)


@settings(max_examples=80)
@given(st.lists(steps(), min_size=1, max_size=3))
def test_rows_of_rollout_sum_to_1_and_measured_rows_keep_what_the_ratio_leaves(
    layers: list[tuple[torch.Tensor, torch.Tensor]],
) -> None:
    for attention, mixing in layers:
        half, measured = half_step(attention), measured_step(attention, mixing)
        for step in (half, measured, half @ measured, measured @ measured @ half):
            assert bool((step >= 0).all())
            torch.testing.assert_close(step.sum(-1), torch.ones_like(mixing), rtol=0, atol=1e-9)
        own = measured.diagonal(dim1=-2, dim2=-1)
        alone = (attention - attention.diagonal(dim1=-2, dim2=-1).diag_embed()).sum(-1) == 0
        torch.testing.assert_close(own[~alone], 1 - mixing[~alone], rtol=0, atol=1e-9)
        assert bool((own[alone] == 1).all())


def test_without_mixing_rollout_is_the_token_itself() -> None:
    attention = torch.rand(1, 4, 4, dtype=torch.float64).softmax(-1)
    step = measured_step(attention, torch.zeros(1, 4, dtype=torch.float64))
    torch.testing.assert_close(step[0], torch.eye(4, dtype=torch.float64))


def test_a_kind_of_rollout_that_is_not_there_has_no_value() -> None:
    view = LayerFlow(None, {RolloutKind.HALF: torch.eye(2)[None]})
    assert view.mixing is None
    assert view.own(RolloutKind.MEASURED) is None
    assert replace(view, split=torch.ones(2, 1, 2)).mixing is not None
