"""How far the weights of heads move from one model to another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import tiny
from headbook.circuits.weight_drift import (
    QUERY_KEY,
    SHAPES_DIFFER,
    VALUE_OUTPUT,
    WeightDrift,
    product_drift,
    weight_drift,
)
from headbook.model.architecture import probe_architecture
from headbook.model.head_weights import (
    STATES_DIFFER,
    HeadWeights,
    WeightRows,
    find_head_weights,
)
from headbook.model.load import Model, load_model
from tiny import HEADS, LAYERS

Folder = Callable[[str], Path]


class Four(NamedTuple):
    """The weights of a block, ``(out, in)``, heads one after the other."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor


def separate(block: Any, names: str) -> Four:
    query, key, value, output = (block.get_submodule(name).weight for name in names.split())
    return Four(query, key, value, output)


def fused(weight: torch.Tensor, output: torch.Tensor) -> Four:
    query, key, value = weight.chunk(3)
    return Four(query, key, value, output)


def by_head(block: Any) -> Four:
    parts = block.query_key_value.weight.view(HEADS, 3, -1, tiny.WIDTH).unbind(1)
    query, key, value = (part.flatten(0, 1) for part in parts)
    return Four(query, key, value, block.dense.weight)


SELF = "q_proj k_proj v_proj o_proj"
BLOCKS: dict[tuple[str, str], Callable[[Any, int], Four]] = {
    ("bert", "self"): lambda m, n: separate(
        m.encoder.layer[n].attention, "self.query self.key self.value output.dense"
    ),
    ("albert", "self"): lambda m, _: separate(
        m.encoder.albert_layer_groups[0].albert_layers[0].attention, "query key value dense"
    ),
    ("modernbert", "self"): lambda m, n: fused(
        m.layers[n].attn.Wqkv.weight, m.layers[n].attn.Wo.weight
    ),
    ("gpt2", "self"): lambda m, n: fused(m.h[n].attn.c_attn.weight.T, m.h[n].attn.c_proj.weight.T),
    ("gpt_neox", "self"): lambda m, n: by_head(m.layers[n].attention),
    ("opt", "self"): lambda m, n: separate(
        m.decoder.layers[n].self_attn, "q_proj k_proj v_proj out_proj"
    ),
    ("qwen2", "self"): lambda m, n: separate(m.layers[n].self_attn, SELF),
    ("gemma3", "self"): lambda m, n: separate(m.layers[n].self_attn, SELF),  # norms after the maps
    ("phi", "self"): lambda m, n: separate(m.layers[n].self_attn, "q_proj k_proj v_proj dense"),
    ("t5", "encoder"): lambda m, n: separate(m.encoder.block[n].layer[0].SelfAttention, "q k v o"),
    ("t5", "decoder"): lambda m, n: separate(m.decoder.block[n].layer[0].SelfAttention, "q k v o"),
    ("t5", "cross"): lambda m, n: separate(m.decoder.block[n].layer[1].EncDecAttention, "q k v o"),
}


def of_head(weight: torch.Tensor, head: int, width: int) -> torch.Tensor:
    """A head's rows; several heads in a row may share some."""
    place = head * (len(weight) // width) // HEADS
    return weight[place * width : (place + 1) * width].double()


def whole_products(four: Four, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Both products of a head in full."""
    width = four.output.shape[1] // HEADS
    query, key, value = (of_head(part, head, width) for part in four[:3])
    output = four.output[:, head * width : (head + 1) * width].double()
    return query.T @ key, output @ value


def model_of(folder: Path, **options: Any) -> Model:
    return load_model(str(folder), **options)


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Models of the same shapes with other weights."""
    return lambda name: tiny.write(name, tmp_path_factory.mktemp(name) / name, seed=1)


def compared(a: Model, b: Model) -> WeightDrift:
    return weight_drift(a, b, probe_architecture(a))


@pytest.mark.parametrize("name", tiny.by_level(dict.fromkeys(name for name, _ in BLOCKS)))
def test_drift_is_that_of_whole_products(
    name: str, tiny_folder: Folder, other_folder: Folder
) -> None:
    a, b = model_of(tiny_folder(name)), model_of(other_folder(name))
    found = compared(a, b)
    assert found.missing == ()
    assert {(name, stack) for stack in found.stacks} <= BLOCKS.keys()
    for stack, tables in found.stacks.items():
        assert tables.query_key.shape == tables.value_output.shape == (LAYERS, HEADS)
        for layer in range(LAYERS):
            fours = [BLOCKS[name, stack](model.base_model, layer) for model in (a, b)]
            for head in range(HEADS):
                before, after = (whole_products(four, head) for four in fours)
                for table, was, now in zip(tables, before, after, strict=True):
                    expected = float((now - was).norm() / was.norm())
                    assert table[layer, head] == pytest.approx(expected, rel=1e-9)
                    assert expected > 0.5


@pytest.mark.parametrize("name", ["gpt_neox", "qwen2"])
def test_equal_weights_do_not_drift_at_all(name: str, tiny_folder: Folder) -> None:
    """Not by a last digit; in half precision weights are found at the same places."""
    model, half = (model_of(tiny_folder(name), dtype=d) for d in ("float32", "bfloat16"))
    for table in compared(model, model_of(tiny_folder(name))).stacks["self"]:
        assert (table == 0).all()
    for each in (*compared(half, half).stacks["self"],):
        assert (each == 0).all()
    places = [find_head_weights(m, probe_architecture(m)).values() for m in (model, half)]
    for one, other in zip(*places, strict=True):
        assert described(one) == described(other)
    for rounded in compared(model, half).stacks["self"]:
        assert (rounded > 0).all()
        assert (rounded < 0.01).all()


def described(weights: HeadWeights) -> list[object]:
    parts = [*weights.query_key, *weights.value_output]
    return [(p.name, p.rows.tolist()) if isinstance(p, WeightRows) else p for p in parts]


def test_weights_of_one_head_that_move_are_seen_in_that_head_alone(tiny_folder: Folder) -> None:
    """Queries of head 2 are doubled; values of key head 0 that heads 0 and 1 share change sign."""
    a, b = model_of(tiny_folder("qwen2")), model_of(tiny_folder("qwen2"))
    block = b.base_model.layers[1].self_attn
    block.q_proj.weight[16:24] *= 2
    block.v_proj.weight[:8] *= -1
    found = compared(a, b).stacks["self"]
    assert found.query_key.tolist() == [[0] * 4, [0, 0, pytest.approx(1), 0]]
    assert found.value_output.tolist() == [[0] * 4, [pytest.approx(2)] * 2 + [0, 0]]


def test_factors_that_turn_together_change_nothing() -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(3, n, 4, dtype=torch.float64) for n in (20, 30))
    turn = torch.randn(4, 4, dtype=torch.float64)
    turned = left @ turn, right @ turn.inverse().T
    assert (product_drift([left, turned[0]], [right, turned[1]]) < 1e-12).all()


def test_small_changes_keep_their_digits_and_heads_may_be_wider_than_half_a_state() -> None:
    torch.manual_seed(0)
    left, right = torch.randn(4, 5, 4).double(), torch.randn(2, 5, 4).double()
    step = 2.0**-40
    assert product_drift([left, left * (1 + step)], [right, right]).tolist() == pytest.approx(
        [step] * 4, rel=1e-9
    )
    assert np.isnan(product_drift([left * 0, left], [right, right])).all()


def test_what_is_not_found_is_missing_with_its_reason(tiny_folder: Folder, tmp_path: Path) -> None:
    own = model_of(tiny_folder("xlnet"))
    found = compared(own, own)
    assert np.isnan(found.stacks["self"].query_key).all()
    assert [(m.what, m.stack, m.layers) for m in found.missing] == [
        (QUERY_KEY, "self", (0, 1)),
        (VALUE_OUTPUT, "self", (0, 1)),
    ]
    assert all("attention interface" in m.why for m in found.missing)
    mobile = model_of(tiny.write("mobilebert", tmp_path / "mobilebert"))
    narrowed = compared(mobile, mobile)
    assert [(m.what, m.why) for m in narrowed.missing] == [(VALUE_OUTPUT, STATES_DIFFER)]
    assert (narrowed.stacks["self"].query_key == 0).all()


def test_models_of_other_shapes_are_not_compared(tiny_folder: Folder) -> None:
    llama, phi, bert = (model_of(tiny_folder(n)) for n in ("llama", "phi", "bert"))
    found = compared(llama, phi)  # another number of key heads, and W_O under another name
    assert {m.why for m in found.missing} == {SHAPES_DIFFER}
    assert len(found.missing) == 2
    assert len(compared(bert, llama).missing) == 2


def test_watching_leaves_no_trace(tiny_folder: Folder) -> None:
    model = model_of(tiny_folder("t5"))
    find_head_weights(model, probe_architecture(model))
    assert not any(module._forward_hooks for module in model.base_model.modules())
