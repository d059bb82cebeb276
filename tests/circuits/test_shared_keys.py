"""Layers with the keys and values of an earlier one (Gemma 4), against whole matrices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_weights import stack_of

import naive_circuits
import tiny
from headbook.circuits.composition import composition_table, compositions
from headbook.circuits.copying import copying_numbers, scored_types
from headbook.circuits.weight_drift import weight_drift
from headbook.circuits.weights import StackWeights
from headbook.model.architecture import AttentionPlace, probe_architecture
from headbook.model.head_weights import find_head_weights
from headbook.model.load import Model, load_model
from naive_circuits import Head, array

SOURCE = (0, 1, 0, 1)  # of the four layers: each kind of layer has its own keys
Load = Callable[..., Model]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(name: str = "gemma4", seed: int = 0) -> Model:
        folder = tmp_path / f"{name}{seed}"
        return load_model(str(tiny.write(name, folder, seed, head=True)))

    return loaded


def whole_heads(model: Model) -> list[list[Head]]:
    """The two matrices of every head by layer; queries are read where they are computed."""
    layers = model.network.model.layers
    heads = []
    for layer, source in zip(layers, SOURCE, strict=True):
        own, taken = layer.self_attn, layers[source].self_attn
        before, before_keys = (
            np.diag(array(x.input_layernorm.weight)) for x in (layer, layers[source])
        )
        after = np.diag(array(layer.post_attention_layernorm.weight))
        width = own.head_dim
        key, value = (array(x.weight).T for x in (taken.k_proj, taken.v_proj))  # one key head
        of_layer = []
        for head in range(tiny.HEADS):
            rows = slice(head * width, (head + 1) * width)
            query = array(own.q_proj.weight)[rows].T
            output = array(own.o_proj.weight)[:, rows].T @ after
            of_layer.append(
                Head(before @ query @ key.T @ before_keys, before_keys @ value @ output)
            )
        heads.append(of_layer)
    return heads


def test_keys_and_values_are_those_of_the_layer_that_owns_them(load: Load) -> None:
    model = load()
    found = find_head_weights(model, probe_architecture(model))
    for layer, source in enumerate(SOURCE):
        weights = found[AttentionPlace("self", layer)]
        assert not isinstance(weights.query_key, str)
        assert not isinstance(weights.value_output, str)
        names = [*(rows.name for rows in weights.query_key), weights.value_output[0].name]
        names.append(weights.value_output[1])
        of_own, of_source = f"layers.{layer}.self_attn", f"layers.{source}.self_attn"
        assert names == [
            f"{of_own}.q_proj", f"{of_source}.k_proj", f"{of_source}.v_proj", f"{of_own}.o_proj",
        ]  # fmt: skip
        taken = None if layer == source else AttentionPlace("self", source)
        assert weights.source == taken


def test_values_may_be_keys_before_their_norm(load: Load) -> None:
    model = load("gemma4_large")
    (first, second) = find_head_weights(model, probe_architecture(model)).values()
    for weights, values, width in ((first, "v_proj", 8), (second, "k_proj", 16)):
        assert not isinstance(weights.query_key, str)
        assert not isinstance(weights.value_output, str)
        query, key = weights.query_key
        value = weights.value_output[0]
        assert [rows.name.rpartition(".")[2] for rows in (query, key, value)] == [
            "q_proj", "k_proj", values,
        ]  # fmt: skip
        assert query.rows.shape == (tiny.HEADS, width)
        assert key.rows.tolist() == value.rows.tolist()


def test_factors_are_those_of_whole_matrices(load: Load) -> None:
    model = load()
    weights = stack_of(model)
    for layer, heads in enumerate(whole_heads(model)):
        query, key, value, output = weights.factors(layer)
        for number, head in enumerate(heads):
            q, k, v, o = (array(x[number]) for x in (query, key, value, output))
            for found, expected in ((q @ k.T, head.qk), (v @ o, head.ov)):
                np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_keys_are_composed_with_layers_below_the_one_that_owns_them(load: Load) -> None:
    model = load()
    weights, heads = stack_of(model), whole_heads(model)
    pairs, values = compositions(weights)
    assert len(pairs) == tiny.HEADS**2 * 6
    for kind in "qkv":
        expected = [
            naive_circuits.composition(heads[below][lower], heads[layer][head], kind)
            if below < (layer if kind == "q" else SOURCE[layer])
            else np.nan
            for layer, head, below, lower in pairs
        ]
        np.testing.assert_allclose(values[kind], expected, rtol=1e-4)
    missing = np.full((4, tiny.HEADS), np.nan)
    table = composition_table(weights, missing, missing)
    assert table["value"].notna().all()
    n_pairs = table["kind"].value_counts().to_dict()
    # Keys of layers 1 and 3 alone can hold what layer 0 writes.
    assert n_pairs == {"q": tiny.HEADS**2 * 6, "k": tiny.HEADS**2 * 2, "v": tiny.HEADS**2 * 2}
    assert "layers 2, 3" in next(r for r in weights.remarks if "earlier layer" in r)


def test_copying_reads_the_stream_of_the_layer_that_owns_the_values(load: Load) -> None:
    model = load()
    weights: StackWeights = stack_of(model)
    counts: dict[int, int] = dict.fromkeys(range(8, 40), 2)
    types = scored_types(weights, counts)
    table = copying_numbers(weights, counts)
    scores = table[(table["metric"] == "copying_score") & (table["label"] == "")]
    found = scores.set_index(["layer", "head"])["value"]
    columns = array(weights.unembedding.columns[:, types])
    streams = [array(states) for states in weights.token_states(types)]
    for layer, heads in enumerate(whole_heads(model)):
        states = streams[int(SOURCE[layer] > 0)]
        states = states / np.sqrt((states**2).mean(1, keepdims=True))
        for number, head in enumerate(heads):
            score = naive_circuits.copying(states, head.ov, columns)
            assert found[layer, number] == pytest.approx(score, abs=1e-3)


def test_drift_of_every_layer_is_known(load: Load) -> None:
    a, b = load(), load(seed=1)
    drift = weight_drift(a, b, probe_architecture(a))
    assert drift.missing == ()
    whole: list[Any] = [whole_heads(model) for model in (a, b)]
    assert len(whole[0]) == 4
    for table in drift.stacks["self"]:
        assert table.shape == (4, tiny.HEADS)
        assert (table > 0.5).all()
