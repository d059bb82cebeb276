"""Where attention blocks end in architectures that nobody named, and where nothing adds up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from test_forward import batch_of

import tiny
from bare_model import Bare
from headbook.attention.flow import attention_blocks, split_block_output
from headbook.metrics import all_metrics
from headbook.metrics.ids import MIXING_RATIO, ROLLOUT_SELF_MEASURED
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.attention_hook import AttentionCall
from headbook.model.block_match import (
    ResidualAddition,
    SumWeights,
    fit_sum_weights,
    residual_factor,
)
from headbook.model.block_search import find_blocks
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model, load_model
from headbook.model.logit_lens import NoLogitLens
from headbook.model.probe import varied_texts
from headbook.run.missing import find_gaps
from headbook.schema import ResidualPoint

EPS = torch.finfo(torch.float64).eps
SITES = {
    "granite": ResidualAddition("self_attn.o_proj", "post_attention_layernorm", scale=0.3),
    "cohere": ResidualAddition("self_attn.o_proj", None, parallel="mlp.down_proj"),
    "olmo2": ResidualAddition("post_attention_layernorm", "mlp.gate_proj"),
    "bitnet": ResidualAddition("self_attn.o_proj", "post_attention_layernorm"),
    "neomme": ResidualAddition(
        "self_attn.output_projection.o_proj", "post_attention_layernorm", scale=0.5, straight=False
    ),
    "jamba": ResidualAddition("self_attn.o_proj", "pre_ff_layernorm"),
    "mbart": ResidualAddition("self_attn.out_proj", "encoder_attn_layer_norm"),
}


def looked_at(name: str, folder: Path) -> tuple[Model, Architecture]:
    model = load_model(str(tiny.write(name, folder)), device="cpu", dtype="float64")
    return model, probe_architecture(model)


@pytest.mark.parametrize("name", SITES)
def test_ends_are_found_and_the_state_is_the_models_own(name: str, tmp_path: Path) -> None:
    model, architecture = looked_at(name, tmp_path)
    stack = "decoder" if name == "mbart" else "self"
    found = architecture.ends.sites[stack, 1]
    wanted = SITES[name]
    assert (found.block, found.after, found.parallel) == (
        wanted.block,
        wanted.after,
        wanted.parallel,
    )
    assert found.scale == pytest.approx(wanted.scale, rel=1e-9)
    assert (found.closed, found.straight) == (False, wanted.straight)
    known = set(architecture.ends.projections)
    expected = {(c.stack, c.layer) for c in architecture.calls}
    assert known == (set() if name == "neomme" else expected)
    assert architecture.ends.sites.keys() == expected
    seen: dict[str, torch.Tensor] = {}
    layer = architecture.layers[stack][1]
    with torch.inference_mode(), observe_states(model, architecture, _keep(seen, stack)):
        block = layer.get_submodule(wanted.block)
        handle = block.register_forward_hook(lambda _, __, output: seen.update(block=output))
        model.base_model(**varied_texts(model))
        handle.remove()
    torch.testing.assert_close(seen["mid"], seen["taken"] + wanted.scale * seen["block"])


def _keep(seen: dict[str, torch.Tensor], stack: str) -> Callable[..., None]:
    def keep(name: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        if name == stack and (layer, state) in {(0, ResidualPoint.POST), (1, ResidualPoint.MID)}:
            seen["mid" if layer else "taken"] = vectors.clone()

    return keep


def test_cross_attention_adds_to_what_a_norm_takes(tmp_path: Path) -> None:
    _, architecture = looked_at("mbart", tmp_path)
    site = architecture.ends.sites["cross", 0]
    assert (site.residual, site.enters) == ("encoder_attn_layer_norm", True)
    assert site.after == "final_layer_norm"
    assert {stack for stack, _ in attention_blocks(architecture)} == {"encoder", "decoder"}


def test_parts_of_a_scaled_block_add_up(tmp_path: Path) -> None:
    """The factor counts for what tokens bring, and not for the residual."""
    _, architecture = looked_at("granite", tmp_path)
    assert {round(block.scale, 9) for block in attention_blocks(architecture).values()} == {0.3}


def test_a_residual_may_have_weights_of_its_own(tmp_path: Path) -> None:
    """The learned ones of the model; what a token keeps of its residual has them, too."""
    model, architecture = looked_at("doge", tmp_path)
    layer, site = architecture.layers["self"][1], architecture.ends.sites["self", 1]
    assert (site.block, site.after) == ("self_attn.o_proj", "post_attention_layernorm")
    assert (site.closed, site.scale) == (False, 1)
    assert site.weights is not None
    wanted = layer.get_parameter("input_residual").detach()
    near: Callable[..., None] = partial(torch.testing.assert_close, rtol=0, atol=1e-9)
    near(site.weights.residual, wanted)
    near(site.weights.block, torch.ones_like(wanted))
    near(site.weights.bias, torch.zeros_like(wanted))
    seen: dict[str, torch.Tensor] = {}
    calls: list[AttentionCall] = []
    batch = batch_of(Bare.load(tmp_path), pairs=False)
    with observe_states(model, architecture, _keep(seen, "self")):
        run_forward(model, architecture, batch, lambda _, call: calls.append(call))
    found = split_block_output(calls[1], seen["taken"], attention_blocks(architecture)["self", 1])
    own = split_block_output(
        calls[1], torch.zeros_like(seen["taken"]), attention_blocks(architecture)["self", 1]
    )
    near(found.kept - own.kept, wanted * seen["taken"])
    near(found.mixed + found.kept + found.bias, seen["mid"])


def test_weights_of_each_number_are_found_where_they_hold_for_all_tokens() -> None:
    torch.manual_seed(0)
    residual, block = torch.randn(2, 12, 8, dtype=torch.float64)
    a, b, c = torch.randn(3, 8, dtype=torch.float64)

    def fitted(total: torch.Tensor, eps: float = EPS) -> SumWeights | None:
        return fit_sum_weights(*(x.flatten() for x in (total, residual, block)), width=8, eps=eps)

    total = a * residual + b * block + c
    found = fitted(total)
    assert found is not None
    for one, other in zip((found.residual, found.block, found.bias), (a, b, c), strict=True):
        torch.testing.assert_close(one, other)
    assert fitted(total, torch.finfo(torch.bfloat16).eps) is None  # rounding would hide much
    assert fitted(a * residual + b * block.tanh()) is None
    assert fitted(a * residual + c) is None
    assert fitted(b * block + c) is None
    total[3, 2] += 1e-6
    assert fitted(total) is None


def test_layers_without_attention_have_no_such_state(tmp_path: Path) -> None:
    model, architecture = looked_at("jamba", tmp_path)
    assert architecture.ends.sites.keys() == {("self", 1)}
    assert architecture.ends.projections.keys() == {("self", 1)}
    metrics = [all_metrics()[name] for name in (ROLLOUT_SELF_MEASURED, MIXING_RATIO)]
    gaps = find_gaps(model, architecture, metrics, {}, {}, lens=NoLogitLens("none"), rarities={})
    keys = {gap.key for gap in gaps}
    assert ROLLOUT_SELF_MEASURED in keys
    assert MIXING_RATIO not in keys


def test_a_search_that_fails_says_why(tmp_path: Path) -> None:
    """A model may break on other texts than those of the first probe."""
    model = load_model(str(tiny.write("granite", tmp_path)), device="cpu", dtype="float64")

    def breaks(_: object, args: tuple[torch.Tensor, ...]) -> None:
        if len(args[0]) > 1:
            raise ValueError("one text only")

    with breaking(model, breaks):
        architecture = probe_architecture(model)
    why = architecture.ends.failed
    assert "granite" in why
    assert "ValueError: one text only" in why
    assert "\n" not in why
    assert not architecture.ends.sites
    metrics = [all_metrics()[MIXING_RATIO]]
    gaps = find_gaps(model, architecture, metrics, {}, {}, lens=NoLogitLens("none"), rarities={})
    assert [gap.why for gap in gaps[:2]] == [why, why]


def test_a_pass_with_more_calls_than_expected_is_named(tmp_path: Path) -> None:
    model, architecture = looked_at("granite", tmp_path)
    places = [(call.stack, call.layer) for call in architecture.calls]
    failed = find_blocks(model, architecture.layers, places[:-1], hooked=True).failed
    assert "more often" in failed
    assert not architecture.ends.failed


@contextmanager
def breaking(model: Model, hook: Callable[..., None]) -> Iterator[None]:
    """A hook before the embedding of tokens."""
    handle = model.base_model.get_input_embeddings().register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def test_a_part_counts_only_where_every_number_adds_up() -> None:
    torch.manual_seed(0)
    residual, part = torch.randn(2, 300, dtype=torch.float64)
    assert residual_factor(residual + part, residual, part, EPS) == 1
    assert residual_factor(residual + 0.22 * part, residual, part, EPS) == pytest.approx(0.22)
    assert residual_factor(residual + part.abs(), residual, part, EPS) is None
    assert residual_factor(residual.clone(), residual, part, EPS) is None
    assert residual_factor(residual + part, residual, torch.zeros_like(part), EPS) is None
    almost = residual + part
    almost[7] += 1e-6
    assert residual_factor(almost, residual, part, EPS) is None


def test_one_number_that_is_off_in_half_precision_is_not_rounding() -> None:
    torch.manual_seed(0)
    residual, part = torch.randn(2, 300).bfloat16()
    total, eps = (residual + part).double(), torch.finfo(torch.bfloat16).eps
    assert residual_factor(total, residual.double(), part.double(), eps) == 1
    total[3] += 1
    assert residual_factor(total, residual.double(), part.double(), eps) is None


def test_a_few_huge_numbers_hide_no_part_in_half_precision() -> None:
    """As in the first token of large models; a part that is smaller than rounding is none."""
    torch.manual_seed(0)
    residual, part = torch.randn(2, 600).bfloat16()
    residual[::60] = 4096
    total, eps = (residual + part).double(), torch.finfo(torch.bfloat16).eps
    assert residual_factor(total, residual.double(), part.double(), eps) == 1
    assert residual_factor(total, residual.double(), part.flip(0).double(), eps) is None
    huge = torch.full_like(part, 4096)
    assert residual_factor((huge + part).double(), huge.double(), part.double(), eps) is None


def test_a_plain_sum_comes_before_one_with_a_factor() -> None:
    """Beside a large residual, rounding hides that a norm has other weights for each number."""
    torch.manual_seed(4)
    block = 3 * torch.randn(64)
    normed = block / block.square().mean().sqrt() * (1 + 0.02 * torch.randn(64))
    large = 50 * torch.randn(64)
    residual, block, normed = (each.bfloat16().double() for each in (large, block, normed))
    total, eps = (residual + normed).bfloat16().double(), torch.finfo(torch.bfloat16).eps
    assert residual_factor(total, residual, block, eps) is not None  # what makes the order needed
    assert residual_factor(total, residual, block, eps, fitted=False) is None
    assert residual_factor(total, residual, normed, eps, fitted=False) == 1
