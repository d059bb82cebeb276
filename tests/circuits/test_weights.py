"""Weights of heads, copying, composition and patched paths, against whole matrices."""

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import naive_circuits
import tiny
from direct_contributions import direct_contribution_error
from headbook.circuits.composition import PAIR_COLUMNS, composition_table, compositions
from headbook.circuits.copying import CopyingProducts, copying_numbers, scored_types
from headbook.circuits.paths import PathPatcher, with_interventions
from headbook.circuits.unembedding import read_norm
from headbook.circuits.weights import (
    LayerFactors,
    NoCircuitWeights,
    StackWeights,
    find_circuit_weights,
)
from headbook.model.architecture import probe_architecture
from headbook.model.load import Model, load_model
from headbook.model.logit_lens import make_logit_lens
from headbook.model.tokenizer import SentenceTokenizer, probe_texts, random_sequences
from headbook.schema import Side
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch

KINDS = "qkv"


def encoder_of(model: Model) -> SentenceTokenizer:
    return SentenceTokenizer(model, limit=40, targets=Annotator.load("none"))


def texts_of(model: Model) -> Batch:
    return Batch.of(probe_texts(encoder_of(model))[2:4], model.device)


def weights_of(model: Model) -> dict[str, StackWeights | NoCircuitWeights]:
    architecture = probe_architecture(model)
    lens = make_logit_lens(model, architecture)
    return find_circuit_weights(model, architecture, lens, texts_of(model))


def stack_of(model: Model, name: str = "self") -> StackWeights:
    found = weights_of(model)[name]
    assert isinstance(found, StackWeights)
    return found


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Model]:
    def loaded(name: str) -> Model:
        return load_model(str(tiny.write(name, tmp_path / name, head=True, untied=True)))

    return loaded


def by_head(block: Any) -> list[torch.Tensor]:
    parts = block.query_key_value.weight.view(tiny.HEADS, 3, -1, tiny.WIDTH).unbind(1)
    return [*(part.flatten(0, 1) for part in parts), block.dense.weight]


def separate(block: Any, output: str) -> list[torch.Tensor]:
    names = "q_proj", "k_proj", "v_proj", output
    return [block.get_submodule(name).weight for name in names]


# Weights of a block, the norm before it, whether it centres, and the final norm with the head.
NAMED: dict[tuple[str, str], Callable[[Any, int], tuple[Any, Any, bool, Any, Any]]] = {
    ("llama", "self"): lambda m, n: (
        separate(m.model.layers[n].self_attn, "o_proj"),
        m.model.layers[n].input_layernorm, False, m.model.norm, m.lm_head,
    ),
    ("gpt2", "self"): lambda m, n: (
        [*m.transformer.h[n].attn.c_attn.weight.T.chunk(3),
         m.transformer.h[n].attn.c_proj.weight.T],
        m.transformer.h[n].ln_1, True, m.transformer.ln_f, m.lm_head,
    ),
    ("gpt_neox", "self"): lambda m, n: (
        by_head(m.gpt_neox.layers[n].attention),
        m.gpt_neox.layers[n].input_layernorm, True, m.gpt_neox.final_layer_norm, m.lm_head,
    ),
    ("bart", "decoder"): lambda m, n: (
        separate(m.model.decoder.layers[n].self_attn, "out_proj"), None, False, None, m.lm_head,
    ),
}  # fmt: skip


def whole_matrices(model: Model, family: tuple[str, str]) -> tuple[list[list[Any]], Any]:
    """Return all heads by layer, and the unembedding."""
    ones, heads, unembedding = np.ones(tiny.WIDTH), [], np.zeros(0)
    for layer in range(tiny.LAYERS):
        four, norm, centres, final, head = NAMED[family](model.network, layer)
        gain = ones if norm is None else naive_circuits.gain_of(norm)
        heads.append(
            [naive_circuits.head(four, gain, h, centres=centres) for h in range(tiny.HEADS)]
        )
        rows = naive_circuits.array(head.weight) * (
            ones if final is None else naive_circuits.gain_of(final)
        )
        if centres:
            rows = rows - rows.mean(1, keepdims=True)
        unembedding = (rows - rows.mean(0)).T
    return heads, unembedding


@pytest.mark.parametrize("family", tiny.by_level(NAMED, itemgetter(0)), ids="-".join)
def test_factors_are_those_of_whole_matrices(
    family: tuple[str, str], load: Callable[[str], Model]
) -> None:
    model = load(family[0])
    weights = stack_of(model, family[1])
    heads, unembedding = whole_matrices(model, family)
    for layer, expected in enumerate(heads):
        factors = weights.factors(layer)
        for head, matrices in enumerate(expected):
            query, key, value, output = (naive_circuits.array(x[head]) for x in factors)
            np.testing.assert_allclose(query @ key.T, matrices.qk, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(value @ output, matrices.ov, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights.unembedding.columns, unembedding, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", tiny.by_level(NAMED, itemgetter(0)), ids="-".join)
def test_composition_is_that_of_whole_matrices(
    family: tuple[str, str], load: Callable[[str], Model]
) -> None:
    model = load(family[0])
    heads, _ = whole_matrices(model, family)
    pairs, values = compositions(stack_of(model, family[1]))
    assert len(pairs) == tiny.HEADS**2 * tiny.LAYERS * (tiny.LAYERS - 1) / 2
    for kind in KINDS:
        expected = [
            naive_circuits.composition(heads[below][lower], heads[layer][head], kind)
            for layer, head, below, lower in pairs
        ]
        np.testing.assert_allclose(values[kind], expected, rtol=1e-5)


@pytest.mark.parametrize("family", tiny.by_level(NAMED, itemgetter(0)), ids="-".join)
def test_copying_is_that_of_whole_matrices(
    family: tuple[str, str], load: Callable[[str], Model]
) -> None:
    model = load(family[0])
    weights = stack_of(model, family[1])
    counts = dict.fromkeys(range(8, 40), 2)
    heads, unembedding = whole_matrices(model, family)
    table = copying_numbers(weights, counts).set_index(["layer", "head", "metric", "label"])[
        "value"
    ]
    centres, normed = NAMED[family](model.network, 0)[2], family[0] != "bart"
    types = scored_types(weights, counts)
    rated = [t for t in types[:32] if any(map(str.isalnum, model.tokenizer.decode([t])))]
    for layer, of_layer in enumerate(heads):
        states = naive_circuits.array(weights.token_states(types)[int(layer > 0)])
        if centres:
            states = states - states.mean(1, keepdims=True)
        if normed:
            states = states / np.sqrt((states**2).mean(1, keepdims=True))
        for head, matrices in enumerate(of_layer):
            score = naive_circuits.copying(states, matrices.ov, unembedding[:, types])
            assert table[layer, head, "copying_score", ""] == pytest.approx(score, abs=1e-4)
            for sign, metric in ((1, "copy_rate"), (-1, "copy_rate_negative")):
                rate = naive_circuits.rate(
                    states[[types.index(t) for t in rated]], rated, sign * matrices.ov, unembedding
                )
                assert table[layer, head, metric, ""] == pytest.approx(rate)


def test_band_is_that_of_random_permutations() -> None:
    generator = torch.Generator().manual_seed(0)
    states, columns = (torch.randn(400, 32, generator=generator) for _ in range(2))
    products = CopyingProducts(states, columns.T)
    value, output = torch.randn(2, 32, 8, generator=generator), torch.randn(2, 8, 32)
    scores = products.scores(LayerFactors(value, value, value, output))
    rng, found = np.random.default_rng(1), []
    for _ in range(1000):
        permuted = CopyingProducts(states[rng.permutation(400)], columns.T)
        found.append(permuted.scores(LayerFactors(value, value, value, output))[""])
    low, high = np.percentile(found, [2.5, 97.5], axis=0)
    np.testing.assert_allclose(scores["permuted low"], low, atol=0.06)
    np.testing.assert_allclose(scores["permuted high"], high, atol=0.06)


def make_copier(model: Model, sign: float) -> None:
    """Make head 0 of layer 0 copy, and nothing else do anything."""
    generator = torch.Generator().manual_seed(0)
    body, head = model.network.model, model.network.lm_head
    words = torch.nn.functional.normalize(torch.randn(len(head.weight), 8, generator=generator))
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1)
        for layer in body.layers:
            layer.mlp.down_proj.weight.zero_()
            layer.self_attn.o_proj.weight.zero_()
        body.embed_tokens.weight.zero_()
        body.embed_tokens.weight[:, :8] = words
        head.weight.zero_()
        head.weight[:, 8:16] = words
        block = body.layers[0].self_attn
        block.v_proj.weight[:8] = torch.eye(8, tiny.WIDTH)
        block.o_proj.weight[8:16, :8] = sign * torch.eye(8)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_head_made_to_copy_copies(sign: int, load: Callable[[str], Model]) -> None:
    model = load("llama")
    make_copier(model, sign)
    weights = stack_of(model)
    table = copying_numbers(weights, dict.fromkeys(range(3, 60), 1))
    values = table[(table["layer"] == 0) & (table["head"] == 0)].set_index(["metric", "label"])[
        "value"
    ]
    assert values["copying_score", ""] == pytest.approx(sign, abs=1e-5)
    assert values["copy_rate", ""] == (sign > 0)
    assert values["copy_rate_negative", ""] == (sign < 0)
    assert values["copying_score", "permuted high"] < 0.9
    assert direct_contribution_error(weights, texts_of(model)) < 1e-5


def test_an_induction_circuit_has_the_largest_k_composition(load: Callable[[str], Model]) -> None:
    model = load("llama")
    lower, upper = (layer.self_attn for layer in model.network.model.layers)
    with torch.no_grad():
        for layer in model.network.model.layers:
            layer.input_layernorm.weight.fill_(1)
        lower.v_proj.weight[:8], lower.o_proj.weight[:, :8] = 0, 0
        lower.v_proj.weight[:8, :8] = torch.eye(8)  # head 0 moves words of the previous token
        lower.o_proj.weight[16:24, :8] = torch.eye(8)
        upper.q_proj.weight[8:16], upper.k_proj.weight[:8] = 0, 0
        upper.q_proj.weight[8:16, :8] = torch.eye(8)  # head 1 looks for them in its keys
        upper.k_proj.weight[:8, 16:24] = torch.eye(8)
    score = np.full((2, 4), np.nan)
    table = composition_table(stack_of(model), score, score)
    first = table[(table["kind"] == "k") & (table["rank"] <= 2)].sort_values("head")
    # Heads 0 and 1 of the upper layer share their keys.
    assert first[PAIR_COLUMNS].to_numpy().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert first["value"].tolist() == pytest.approx([8**-0.5] * 2, abs=1e-5)
    assert table["value"].max() == first["value"].max()


def test_permuting_heads_permutes_the_numbers(load: Callable[[str], Model]) -> None:
    model, order = load("gpt2"), torch.tensor([2, 0, 3, 1])
    counts = dict.fromkeys(range(3, 60), 1)
    before = copying_numbers(stack_of(model), counts), compositions(stack_of(model))
    rows = (order[:, None] * 8 + torch.arange(8)).flatten()
    attention = model.network.transformer.h[0].attn
    with torch.no_grad():
        for parameter in (attention.c_attn.weight, attention.c_attn.bias):
            parts = [part[..., rows] for part in parameter.clone().chunk(3, -1)]
            parameter.copy_(torch.cat(parts, -1))
        attention.c_proj.weight.copy_(attention.c_proj.weight.clone()[rows])
    after = copying_numbers(stack_of(model), counts), compositions(stack_of(model))
    tables = [
        table.pivot_table("value", ["metric", "label", "layer"], "head").loc[
            (slice(None), slice(None), 0), :
        ]
        for table in (before[0], after[0])
    ]
    np.testing.assert_allclose(tables[0].to_numpy()[:, order], tables[1], atol=1e-4)
    for kind in KINDS:
        old, new = (values[kind].reshape(4, 4) for _, values in (before[1], after[1]))
        np.testing.assert_allclose(old[:, order], new, rtol=1e-4)


@pytest.mark.parametrize(
    "name", tiny.by_level(["llama", "gpt2", "gpt_neox", "t5", "mistral", "opt", "gpt_oss"])
)
def test_direct_contributions_are_the_centred_logits(
    name: str, load: Callable[[str], Model]
) -> None:
    model = load(name)
    found = [w for w in weights_of(model).values() if isinstance(w, StackWeights)]
    assert found
    for weights in found:
        assert direct_contribution_error(weights, texts_of(model)) < 1e-4


def test_models_without_linear_heads_say_so(load: Callable[[str], Model], tmp_path: Path) -> None:
    assert any("approximate" in remark for remark in stack_of(load("bert")).remarks)
    assert isinstance(weights_of(load("bart"))["encoder"], NoCircuitWeights)
    headless = load_model(str(tiny.write("gpt2", tmp_path / "headless")))
    found = weights_of(headless)["self"]
    assert isinstance(found, NoCircuitWeights)
    assert found.why == headless.headless


def test_a_map_is_no_norm() -> None:
    torch.manual_seed(0)
    assert read_norm(torch.nn.Linear(16, 16), 16) is None
    norm = torch.nn.LayerNorm(16)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    found = read_norm(norm, 16)
    assert found is not None
    states = torch.randn(3, 16)
    direction = found.direction(states) * found.gain + found.bias
    np.testing.assert_allclose(direction, norm(states).detach(), rtol=1e-5, atol=1e-5)


def test_patched_paths_are_those_of_a_naive_pass(load: Callable[[str], Model]) -> None:
    model = load("gpt2")
    weights = stack_of(model)
    batch = Batch.of([*random_sequences(encoder_of(model), 0)][:3], model.device)
    missing = np.full((2, 4), np.nan)
    table = composition_table(weights, missing, missing)
    patcher = PathPatcher(weights, batch, table[table["kind"] != "v"])
    layers = model.network.transformer.h
    seen: dict[str, torch.Tensor] = {}
    handles = [
        layers[0].attn.c_proj.register_forward_pre_hook(lambda _, args: seen.update(z=args[0])),
        layers[1].register_forward_pre_hook(lambda _, args: seen.update(x=args[0])),
    ]
    with torch.no_grad():
        model.base_model(input_ids=batch.texts[Side.SOURCE].ids)
        for handle in handles:
            handle.remove()
        block, n = layers[1].attn, seen["x"].shape[1]
        for lower in range(4):
            part = slice(8 * lower, 8 * lower + 8)
            written = seen["z"][..., part] @ layers[0].attn.c_proj.weight[part]
            without = seen["x"] - (written - written.mean((0, 1)))
            streams = seen["x"], without
            whole, patched = (block.c_attn(layers[1].ln_1(x)).chunk(3, -1) for x in streams)
            split = {
                kind: tuple(x.unflatten(-1, (4, 8)).transpose(1, 2) for x in both)
                for kind, both in (("q", (patched[0], whole[1])), ("k", (whole[0], patched[1])))
            }
            for kind, (query, key) in split.items():
                scores = query @ key.mT / 8**0.5 + torch.full((n, n), -torch.inf).triu(1)
                expected = scores.softmax(-1)
                np.testing.assert_allclose(
                    patcher.attention(1, kind, (0, lower)), expected, atol=1e-5
                )


@pytest.mark.parametrize("name", tiny.by_level(["llama", "gpt2", "gpt_neox", "t5", "bart"]))
def test_interventions_are_made_on_the_strongest_pairs(
    name: str, load: Callable[[str], Model]
) -> None:
    model = load(name)
    for stack, weights in weights_of(model).items():
        if isinstance(weights, NoCircuitWeights):
            assert stack == "encoder"
            continue
        batch = Batch.of([*random_sequences(encoder_of(model), 0)][:4], model.device)
        scores = np.full((2, 4), 0.5)
        table = composition_table(weights, scores, scores)
        found, why = with_interventions(table, weights, batch, scores, scores)
        assert why == ""
        measured = found.dropna(subset=["intervention"])
        assert set(measured["kind"]) == ({"q"} if weights.crosses else {"q", "k"})
        assert (measured["low"] <= measured["intervention"]).all()
        assert (measured["n_sentences"] == 4).all()
        assert measured["before"].between(0, 1).all()
