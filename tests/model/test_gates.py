"""Gates and norms between heads and their output projection, against plain loops."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from test_forward import batch_of

import treebank
from bare_model import Bare
from headbook.attention.flow import attention_blocks, split_block_output
from headbook.attention.views import LayerAttention, ViewMasks
from headbook.errors import ModelError
from headbook.metrics.outputs import output_norm_share
from headbook.metrics.targets import sink_norm_share
from headbook.model import output_projection
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import run_forward
from headbook.model.intervention import HeadAblation, make_patchable
from headbook.model.load import Model, load_model
from headbook.model.output_projection import OutputProjection, is_gated, multiples, perturbed
from headbook.passes.self_checks import BLOCK_PARTS
from headbook.run.collect import collect
from headbook.schema import SinkView
from headbook.text.batch import Batch

GATES = ("qwen3_next", "laguna")
FAMILIES = (*GATES, "bitnet")
SINGLE = {"bitnet": 1e-5, "laguna": 1e-5}  # norm and gate compute in float32
HEADS, SHARED, WIDTH = 4, 2, 8


class Layer(NamedTuple):
    """One layer of a model over two sentences, as its own modules have it.

    Attributes:
        value: *Shape:* ``(sentence, key_head, key, width)``.
        factor: *Shape:* ``(sentence, query, head, width)``.
        given: by the block.
    """

    call: AttentionCall
    view: LayerAttention
    module: Any
    value: torch.Tensor
    factor: torch.Tensor
    given: torch.Tensor

    @property
    def brought(self) -> torch.Tensor:
        """What comes of each key's value at each query, weighted.

        *Shape:* ``(sentence, head, query, key, output width)``.
        """
        found = []
        for head in range(HEADS):
            part = self.module.o_proj.weight[:, head * WIDTH : (head + 1) * WIDTH]
            value = self.value[:, head // SHARED].unsqueeze(1)  # for each query
            through = (self.factor[:, :, head].unsqueeze(2) * value) @ part.T
            found.append(self.call.weights[:, head].unsqueeze(-1) * through)
        return torch.stack(found, 1)


class Case(NamedTuple):
    """A model with gates, two sentences, and its last layer."""

    model: Model
    architecture: Architecture
    batch: Batch
    layer: Layer


Cases = Callable[[str], Case]


@pytest.fixture(scope="module")
def case(tiny_folder: Callable[[str], Path]) -> Cases:
    @cache
    def of(name: str) -> Case:
        model = load_model(str(tiny_folder(name)), dtype="float64")
        architecture = probe_architecture(model)
        batch = batch_of(Bare.load(tiny_folder(name)), pairs=False)
        return Case(model, architecture, batch, _layer(model, architecture, batch))

    return of


def _layer(model: Model, architecture: Architecture, batch: Batch) -> Layer:
    """The last layer, from what its modules took and gave."""
    module = architecture.layers["self"][1].self_attn
    seen: dict[str, Any] = {}
    names = ("q_proj", "v_proj", "g_proj", "o_proj")
    handles = [
        part.register_forward_hook(lambda _, __, given, name=name: seen.update({name: given}))
        for name in names
        if (part := getattr(module, name, None)) is not None
    ]
    calls: dict[AttentionPlace, AttentionCall] = {}
    run_forward(model, architecture, batch, calls.__setitem__)
    for handle in handles:
        handle.remove()
    call = calls[AttentionPlace("self", 1)]
    value = seen["v_proj"].unflatten(-1, (-1, WIDTH)).transpose(1, 2)
    view = ViewMasks(batch, architecture.stacks).views("self", call)[SinkView.RAW]
    shared = value.repeat_interleave(SHARED, 1)
    z = (call.weights @ shared).transpose(1, 2)  # (sentence, query, head, width)
    factor = FACTORS[model.config.model_type](module, seen, z)
    return Layer(call, view, module, value, factor, seen["o_proj"])


def _second_half(_: Any, seen: dict[str, Any], z: torch.Tensor) -> torch.Tensor:
    """Of each head's queries: the gate of Qwen3-Next."""
    queries: torch.Tensor = seen["q_proj"].unflatten(-1, (HEADS, 2 * WIDTH))
    gate: torch.Tensor = queries[..., WIDTH:].sigmoid()
    return gate


def _by_head(_: Any, seen: dict[str, Any], z: torch.Tensor) -> torch.Tensor:
    gate: torch.Tensor = torch.nn.functional.softplus(seen["g_proj"])
    return gate.unsqueeze(-1).expand_as(z)


def _norm(module: Any, _: dict[str, Any], z: torch.Tensor) -> torch.Tensor:
    norm = module.attn_sub_norm
    root = (z.square().mean((2, 3), keepdim=True) + norm.variance_epsilon).sqrt()
    factor: torch.Tensor = norm.weight.view(HEADS, WIDTH) / root
    return factor


FACTORS = {"qwen3_next": _second_half, "laguna": _by_head, "bitnet": _norm}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_factor_is_the_models_own(name: str, case: Cases) -> None:
    it = case(name)
    assert all(end.gated for end in it.architecture.ends.projections.values())
    assert len(it.architecture.ends.projections) == 2
    found = it.layer.call.factor
    assert found is not None
    _near(found, it.layer.factor, name)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_heads_write_adds_up_to_the_block(name: str, case: Cases) -> None:
    it = case(name).layer
    _near(it.brought.sum((1, 3)), it.given, name)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("block", [1, 2**23])
def test_norms_are_lengths_of_gated_values(
    name: str, block: int, case: Cases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in blocks of one query each."""
    monkeypatch.setattr(output_projection, "MAX_BLOCK_NUMBERS", block)
    it = case(name)
    view = ViewMasks(it.batch, it.architecture.stacks).views("self", it.layer.call)[SinkView.RAW]
    found = sink_norm_share.measure(view)
    lengths = it.layer.brought.norm(dim=-1)
    counted = lengths * view.frame.counted_queries[:, None, :, None]
    _near(found.denominator, counted.sum((2, 3)), name)
    _near(found.numerator, (counted * view.frame.sink[:, None, None]).sum((2, 3)), name)
    assert view.maps.value_weighted_mass is not None
    _near(view.maps.value_weighted_mass, lengths.sum(3), name)


@pytest.mark.parametrize("name", FAMILIES)
def test_shares_of_the_output_norm_are_those_of_gated_outputs(name: str, case: Cases) -> None:
    it = case(name).layer
    lengths = it.brought.sum(3).norm(dim=-1)  # (sentence, head, query)
    shares = lengths / lengths.sum(1, keepdim=True) * it.view.frame.counted_queries.unsqueeze(1)
    found = output_norm_share.measure(it.view)[..., 0]
    _near(found, shares.sum(2), name)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_other_tokens_bring_goes_through_the_gate(name: str, case: Cases) -> None:
    it = case(name)
    found = split_block_output(
        it.layer.call,
        torch.zeros_like(it.layer.given),
        attention_blocks(it.architecture)["self", 1],
    )
    brought = it.layer.brought.sum(1)
    own = brought.diagonal(dim1=1, dim2=2).transpose(1, 2)
    _near(found.kept, own, name)
    _near(found.mixed, brought.sum(2) - own, name)


@pytest.mark.parametrize("name", GATES)
def test_a_replaced_head_changes_the_block_by_what_the_gate_lets_through(
    name: str, case: Cases
) -> None:
    """By (r - z) times the gate, through the head's part of W_O, and by nothing else."""
    it = case(name)
    heads = make_patchable(it.model, it.architecture, it.batch)
    table = torch.zeros(2, HEADS, dtype=torch.bool)
    table[:, 2] = True
    assert it.layer.call.output is not None
    instead = torch.randn(it.layer.call.output.shape, dtype=torch.float64)
    given: list[torch.Tensor] = []
    end = it.layer.module.o_proj
    handle = end.register_forward_hook(lambda _, __, output: given.append(output))
    heads.run(it.batch, HeadAblation({AttentionPlace("self", 1): table}, lambda *_: instead))
    handle.remove()
    change = (instead - it.layer.call.output) * it.layer.factor
    expected = change[:, :, 2] @ end.weight[:, 2 * WIDTH : 3 * WIDTH].T
    _near(given[0] - it.layer.given, expected, name)
    assert expected.abs().max() > 1e-4


def test_factors_that_are_multiples_of_one_anothers_are_known(case: Cases) -> None:
    """Those of a gate for each head, and of a norm; not those of a gate for each number."""
    for name in FAMILIES:
        factor = case(name).layer.call.factor
        assert factor is not None
        shared = multiples(factor.float())
        assert (shared is None) == (name == "qwen3_next")
        if shared is not None:
            _near(shared[0] * shared[1], factor, "bitnet")
    nothing = torch.zeros(1, 3, 2, 4)
    assert multiples(nothing) is not None
    assert multiples(torch.cat([nothing, nothing + torch.arange(4)], 1)) is not None


def test_what_depends_on_the_head_is_no_gate(tiny_folder: Callable[[str], Path]) -> None:
    """NeoMME takes away from outputs what lies along the token's own value."""
    architecture = probe_architecture(load_model(str(tiny_folder("neomme")), dtype="float64"))
    assert architecture.hooked
    assert not architecture.ends.projections


def test_a_factor_stays_when_heads_give_something_else() -> None:
    torch.manual_seed(0)
    one = torch.randn(5, 4, 8, dtype=torch.float64)
    given = torch.stack([one, perturbed(one)])
    gate = torch.rand(5, 4, 8, dtype=torch.float64)
    assert is_gated(given, given * gate)
    assert is_gated(given, given * gate / given.square().mean((2, 3), keepdim=True).sqrt())
    assert is_gated(given, (given * (gate > 0.5)).flatten(2))
    assert not is_gated(given, given * given.sigmoid())
    assert not is_gated(given, given * gate + 0.1)
    assert not is_gated(given, given - given.mean(-1, keepdim=True))
    assert not is_gated(given, gate.expand_as(given))
    assert not is_gated(given, torch.zeros_like(given))


def _near(found: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    rounding = SINGLE.get(name, 1e-10)
    torch.testing.assert_close(found.double(), expected.double(), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_study_lacks_nothing_but_lengths_of_single_keys(
    name: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its self-checks pass; maps of sentences are not weighted, as lengths differ by query."""
    study = collect(
        treebank.write_trees(tmp_path / "trees.conllu"),
        model=str(tiny_folder(name)),
        annotator="none",
        metrics="sink_norm_share,mixing_ratio,rollout_self_measured",
    )
    assert all(check.passed for check in study.manifest.checks)
    checked = {check.name for check in study.manifest.checks}
    assert {"head outputs + bias = attention block output", BLOCK_PARTS} <= checked
    assert not any("values" in gap.what for gap in study.manifest.gaps)
    assert study.heads["value"].notna().all()
    assert set(study.tokens["metric"]) == {"mixing_ratio", "rollout_self_measured"}
    assert study.sentence_data.norms == {}


def test_no_call_is_lost_where_a_projection_does_not_run(case: Cases) -> None:
    it = case("laguna")
    ends = it.architecture.ends
    other = OutputProjection(torch.nn.Linear(1, 1), gated=True)
    broken = replace(ends, projections={**ends.projections, ("self", 0): other})
    architecture = replace(it.architecture, ends=broken)
    with pytest.raises(ModelError, match="leaves out the output projection of stack self, layer 0"):
        run_forward(it.model, architecture, it.batch, lambda *_: None)
