"""Adapters of peft: their numbers are those of the adapted model, and others are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import headbook
import same_tables
import tiny
import treebank
from command_line import FEW, Run
from headbook.circuits.weight_drift import product_drift, weight_drift
from headbook.config import Config
from headbook.errors import ConfigError, ModelError
from headbook.model.architecture import probe_architecture
from headbook.model.devices import is_adapted, read_bias
from headbook.model.load import Model, load_model, word_embedding
from headbook.model.output_projection import linear_maps, matrix
from headbook.model.weights import can_round
from headbook.run.arguments import check_arguments
from lora import LOADERS, TARGETS, adapted
from tiny import HEADS

IDS = torch.arange(5, 15)[None]


def logits(network: Any) -> torch.Tensor:
    inputs = {"decoder_input_ids": IDS} if network.config.is_encoder_decoder else {}
    with torch.no_grad():
        found: torch.Tensor = network(input_ids=IDS, **inputs).logits
    return found


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, {}) for family in LOADERS),
        ("llama", {"target_modules": ["embed_tokens", "q_proj", "lm_head"]}),
        ("llama", {"use_dora": True, "modules_to_save": ["lm_head", "norm"]}),
        ("gpt2", {"target_modules": ["wte", "c_attn"]}),  # a head that shares the embedding
        ("gpt2", {"trainable_token_indices": [6, 7]}),
        ("bert", {"target_modules": "all-linear", "bias": "none"}),
    ],
)
def test_a_model_with_an_adapter_computes_as_peft_says(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    base, adapter, network = adapted(family, tmp_path, **options)
    plain, active, merged = (
        load_model(str(base), device="cpu", **more)
        for more in (
            {},
            {"adapter": str(adapter)},
            {"adapter": str(adapter), "merge_adapter": True},
        )
    )
    expected = logits(network)
    assert (logits(plain.network) - expected).abs().max() > 0.1
    for model in (active, merged):
        torch.testing.assert_close(logits(model.network), expected, rtol=1e-4, atol=1e-4)
        assert model.name == f"{family} + adapter"
        assert model.weights.adapter_revision.startswith("sha256:")
        assert model.weights.missing == model.weights.unexpected == ()
        assert model.weights.adapter_base == ""
        assert can_round(model.network)
    assert active.weights.adapter == "adapter (LORA, rank 3, active)"
    assert merged.weights.adapter == "adapter (LORA, rank 3, merged)"


def test_embeddings_and_norms_of_an_adapter_are_read_with_it(tmp_path: Path) -> None:
    base, adapter, network = adapted(
        "llama", tmp_path, target_modules=["embed_tokens"], modules_to_save=["norm"]
    )
    model = load_model(str(base), device="cpu", adapter=str(adapter))
    layer = network.base_model.model.model.embed_tokens
    expected = layer.base_layer.weight + layer.get_delta_weight("default")
    torch.testing.assert_close(model.base_model.embed_tokens.weight, expected.detach())
    assert type(model.base_model.norm).__name__ == "LlamaRMSNorm"
    before = load_model(str(base), device="cpu").base_model.norm.weight
    torch.testing.assert_close(model.base_model.norm.weight, before + 0.1)


@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"use_rslora": True}])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_weight_is_read_with_its_adapter(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """As the matrix and the bias of what the map computes."""
    base, adapter, _ = adapted(family, tmp_path, **options)
    model = load_model(str(base), device="cpu", adapter=str(adapter))
    maps = [module for _, module in linear_maps(model.base_model) if is_adapted(module)]
    assert len(maps) == 2 * 3  # of two layers
    for module in maps:
        weight, bias = matrix(module), read_bias(module)
        x = torch.randn(5, weight.shape[1])
        with torch.no_grad():
            expected = module(x)
        assert bias is not None
        torch.testing.assert_close(x @ weight.T + bias, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_drift_is_that_of_the_sum_of_weights_and_adapter(family: str, tmp_path: Path) -> None:
    base, adapter, network = adapted(family, tmp_path)
    plain, active, merged = (
        load_model(str(base), device="cpu", **more)
        for more in (
            {},
            {"adapter": str(adapter)},
            {"adapter": str(adapter), "merge_adapter": True},
        )
    )
    architecture = probe_architecture(plain)
    with_adapter = weight_drift(plain, active, architecture)
    with_sums = weight_drift(plain, merged, architecture)
    assert with_adapter.missing == with_sums.missing == ()
    found = probe_architecture(active)
    assert found.ends.sites.keys() == architecture.ends.sites.keys()
    assert found.ends.projections.keys() == architecture.ends.projections.keys()
    assert weight_drift(active, merged, found).missing == ()
    for name, drift in with_adapter.stacks.items():
        np.testing.assert_allclose(drift.query_key, with_sums.stacks[name].query_key, rtol=1e-5)
        np.testing.assert_allclose(
            drift.value_output, with_sums.stacks[name].value_output, rtol=1e-5
        )
        assert (drift.query_key > 0.1).all()
    if family == "llama":  # by hand, from the parts of the adapter
        attention = network.base_model.model.model.layers[1].self_attn
        parts = []
        for module in (attention.o_proj, attention.v_proj):
            before = module.base_layer.weight.double()
            delta = 2 * (module.lora_B["default"].weight @ module.lora_A["default"].weight).double()
            parts.append((before, before + delta * module.scaling["default"] / 2))
        outputs = [weight.detach().unflatten(1, (HEADS, -1)).transpose(0, 1) for weight in parts[0]]
        values = [weight.detach().unflatten(0, (2, -1)).mT for weight in parts[1]]
        expected = product_drift(outputs, values)
        np.testing.assert_allclose(with_adapter.stacks["self"].value_output[1], expected, rtol=1e-5)


def test_an_adapter_of_a_network_with_another_head_fits(tmp_path: Path) -> None:
    """Trained on the body alone and used with a head; its classifier and pooler are not used."""
    base, adapter, network = adapted("bert", tmp_path)
    file = adapter / "adapter_model.safetensors"
    weights = load_file(file)
    bare = {key.replace("model.bert.", "model."): value for key, value in weights.items()}
    bare["base_model.model.classifier.weight"] = torch.ones(2, tiny.WIDTH)
    bare["base_model.model.pooler.dense.lora_A.weight"] = torch.ones(3, tiny.WIDTH)
    save_file(bare, file)
    config = (adapter / "adapter_config.json").read_text()
    saved = config.replace('"modules_to_save": null', '"modules_to_save": ["classifier", "score"]')
    assert saved != config
    (adapter / "adapter_config.json").write_text(saved)
    model = load_model(str(base), device="cpu", adapter=str(adapter))
    torch.testing.assert_close(logits(model.network), logits(network), rtol=1e-4, atol=1e-4)
    assert len(model.weights.unexpected) == 2
    assert all("pooler" in name or "classifier" in name for name in model.weights.unexpected)


def test_an_adapter_of_another_base_is_one_line(tmp_path: Path) -> None:
    _, adapter, _ = adapted("llama", tmp_path)
    deep, wide = (tiny.write("llama", tmp_path / name, head=True) for name in ("deep", "wide"))
    config = AutoModelForCausalLM.from_pretrained(deep).config
    for folder, changes in (
        (deep, {"num_hidden_layers": 3, "layer_types": None}),
        (wide, {"hidden_size": 64, "head_dim": 16}),
    ):
        for name, value in changes.items():
            setattr(config, name, value)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for folder in (deep, wide, tiny.write("bert", tmp_path / "bert", head=True)):
        with pytest.raises(
            ModelError, match="adapter 'adapter': it does not fit the model"
        ) as line:
            load_model(str(folder), device="cpu", adapter=str(adapter))
        assert "it was trained on '" in str(line.value)
        assert "\n" not in str(line.value)


def test_what_is_no_adapter_of_weights_is_one_line(tmp_path: Path) -> None:
    base = tiny.write("llama", tmp_path / "llama", head=True)
    network: Any = AutoModelForCausalLM.from_pretrained(base)
    prompt = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(network, prompt).save_pretrained(str(tmp_path / "prompt"))
    with pytest.raises(ModelError, match="PROMPT_TUNING adds virtual tokens to the input"):
        load_model(str(base), device="cpu", adapter=str(tmp_path / "prompt"))
    with pytest.raises(ModelError, match=r"adapter '.*llama': it has no adapter_config.json"):
        load_model(str(base), device="cpu", adapter=str(base))
    _, adapter, _ = adapted("llama", tmp_path / "other")
    (adapter / "adapter_model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(
        ModelError, match=r"adapter_model.safetensors: cut off, damaged or not a sa"
    ):
        load_model(str(base), device="cpu", adapter=str(adapter))


def test_options_of_adapters_that_exclude_each_other_are_one_line() -> None:
    with pytest.raises(ConfigError, match="--merge-adapter: got no adapter to merge"):
        check_arguments([], Config.of(merge_adapter=True))
    with pytest.raises(ConfigError, match="offload: got 'auto', expected off beside adapter="):
        Config.of(adapter="a/b", offload="auto")
    with pytest.raises(ConfigError, match="quantization: got 'int8', expected none beside"):
        Config.of(adapter="a/b", merge_adapter=True, quantization="int8")
    with pytest.raises(ModelError, match="adapter 'a/b/c': neither a folder nor a hub adapter"):
        check_arguments([], Config.of(adapter="a/b/c"))
    with pytest.raises(ModelError, match="adapter 'demo': a model; expected the folder"):
        check_arguments([], Config.of(adapter="demo"))


@pytest.mark.slow
def test_a_study_is_that_of_the_merged_model_and_names_the_adapter(tmp_path: Path) -> None:
    base, adapter, network = adapted("llama", tmp_path)
    whole = network.merge_and_unload()
    whole.save_pretrained(tmp_path / "whole")
    for file in base.glob("tokenizer*"):
        (tmp_path / "whole" / file.name).write_bytes(file.read_bytes())
    texts = treebank.write_trees(tmp_path / "trees.conllu")
    metrics = "attention_distance,sink_share,cosine_to_input,logit_lens,head_distance,copying_score"
    options: Any = {"annotator": "none", "dtype": "float64", "importance": "off",
                    "metrics": metrics}  # fmt: skip
    active = headbook.collect(texts, model=str(base), adapter=adapter, **options)
    merged = headbook.collect(texts, model=str(tmp_path / "whole"), **options)
    found = [*same_tables.differences(same_tables.tables(active), same_tables.tables(merged))]
    assert sum(each.rows for each in found) > 100
    # The whole model is stored in float32, which rounds the sums of weights and adapter.
    assert {each.table: each.largest for each in found if each.largest > 1e-3} == {}
    facts = active.manifest.model
    assert facts.name == "llama + adapter"
    assert active.manifest.options["adapter"] == "adapter"
    headbook.render(active, tmp_path / "site")
    overview, methods = (
        (tmp_path / "site" / name).read_text() for name in ("index.html", "methods.html")
    )
    assert "llama + adapter" in overview
    assert (
        "Numbers are those of the model with the adapter adapter (LORA, rank 3, active)" in overview
    )
    assert facts.adapter_revision in methods


@pytest.mark.slow
def test_two_models_are_compared_with_and_without_an_adapter(tmp_path: Path, run: Run) -> None:
    base, adapter, _ = adapted("llama", tmp_path)
    texts = treebank.write_trees(tmp_path / "trees.conllu")
    site = tmp_path / "site"
    two = ("--models", base, base, "--adapters", "none", adapter)
    done = run("compare", texts, *two, *FEW[:-2], "--importance=off", "-q", "--out", site)
    assert done.code == 0, done.err
    overview = (site / "index.html").read_text()
    assert "llama and llama + adapter" in overview
    assert "llama (A)" not in overview
    refused = run("compare", texts, texts, "--adapters", "none", adapter, "--out", tmp_path / "no")
    assert refused.err == (
        "headbook: --adapters: got two adapters and no models; expected --models A B, too\n"
    )
    none = ("--models", base, base, "--merge-adapter")
    refused = run("compare", texts, *none, "--out", tmp_path / "no")
    assert "--merge-adapter: got no adapter to merge; expected --adapters, too" in refused.err


def test_heads_of_an_adapted_model_are_ablated(tmp_path: Path) -> None:
    base, adapter, _ = adapted("llama", tmp_path)
    texts = treebank.write_trees(tmp_path / "trees.conllu")
    plain = headbook.ablate(texts, str(base), heads=["L0-H1"])
    lost = headbook.ablate(texts, str(base), heads=["L0-H1"], adapter=adapter)
    assert list(plain["target"]) == list(lost["target"])
    assert (plain["full"] - lost["full"]).abs().max() > 0.01


def rows_of(model: Model) -> int:
    """Rows of a model's word embeddings."""
    weight = word_embedding(model.network)
    assert weight is not None
    return len(weight)


def with_more_tokens(family: str, place: Path, **options: Any) -> tuple[Path, Path, Any]:
    """Return a tiny model, and an adapter with two more tokens, their embeddings and tokenizer."""
    base = tiny.write(family, place / family, head=True)
    network = LOADERS[family].from_pretrained(base)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(["zebra", "quokka"])
    torch.manual_seed(2)
    network.resize_token_embeddings(len(tokenizer))
    config = LoraConfig(target_modules=TARGETS[family], r=3, **options)
    network = get_peft_model(network, config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
            elif "modules_to_save" in name or "trainable_tokens_delta" in name:
                parameter.add_(0.1)
    network.save_pretrained(str(place / "adapter"))
    tokenizer.save_pretrained(place / "adapter")
    return base, place / "adapter", network.eval()


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, {}) for family in LOADERS),
        ("llama", {"modules_to_save": ["embed_tokens", "lm_head"]}),
        ("llama", {"trainable_token_indices": [6, 84]}),
    ],
)
def test_tokens_that_an_adapter_adds_have_its_embeddings_and_tokenizer(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    base, adapter, network = with_more_tokens(family, tmp_path, **options)
    own = load_model(str(base), device="cpu")
    rows, entries = rows_of(own), len(own.tokenizer)
    for merge in (False, True):
        model = load_model(str(base), device="cpu", adapter=str(adapter), merge_adapter=merge)
        assert len(model.tokenizer) == entries + 2
        assert rows_of(model) == entries + 2 != rows
        ids = model.tokenizer("a zebra", add_special_tokens=False, return_tensors="pt").input_ids
        assert int(ids.max()) >= entries
        inputs = {"decoder_input_ids": ids} if network.config.is_encoder_decoder else {}
        with torch.no_grad():
            found, expected = (
                each(input_ids=ids, **inputs).logits for each in (model.network, network)
            )
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        (warning,) = model.weights.warnings()
        assert all(f"{number:,}" in warning for number in (entries + 2, entries, rows))
        assert warning.partition("--adapter: ")[2] in model.weights.adapter
        assert model.weights.unexpected == ()


def test_a_tokenizer_that_is_only_a_copy_is_not_worth_a_word(tmp_path: Path) -> None:
    base, adapter, _ = adapted("llama", tmp_path)
    AutoTokenizer.from_pretrained(base).save_pretrained(adapter)
    model = load_model(str(base), device="cpu", adapter=str(adapter))
    assert [*model.weights.warnings()] == []
    assert model.weights.adapter == "adapter (LORA, rank 3, active)"


def test_a_tokenizer_that_was_asked_for_comes_before_that_of_an_adapter(tmp_path: Path) -> None:
    base, adapter, _ = with_more_tokens("gpt2", tmp_path)
    model = load_model(str(base), device="cpu", adapter=str(adapter), tokenizer=str(base))
    assert len(model.tokenizer) == len(AutoTokenizer.from_pretrained(base))
    (warning,) = model.weights.warnings()
    assert "tokenizer" not in warning
    assert str(rows_of(model)) in warning


def test_tokens_without_embeddings_and_tokenizers_that_cannot_be_read_are_one_line(
    tmp_path: Path,
) -> None:
    base, adapter, _ = adapted("llama", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = rows_of(load_model(str(base), device="cpu"))
    tokenizer.add_tokens([f"extra{number}" for number in range(9)])
    tokenizer.save_pretrained(adapter)
    with pytest.raises(ModelError) as caught:
        load_model(str(base), device="cpu", adapter=str(adapter))
    assert f"{len(tokenizer)} entries" in str(caught.value)
    assert f"embedding {rows}" in str(caught.value)
    (adapter / "tokenizer.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelError, match="adapter 'adapter': its tokenizer cannot") as caught:
        load_model(str(base), device="cpu", adapter=str(adapter))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_study_with_more_tokens_is_that_of_the_adapter(tmp_path: Path) -> None:
    """Its new words are one token each, and Methods names the tokenizer."""
    base, adapter, _ = with_more_tokens("gpt2", tmp_path)
    file = tmp_path / "texts.txt"
    file.write_text("the old zebra sees the cat\na quokka sleeps near the house\n", "utf-8")
    study = headbook.collect(
        [str(file)], model=str(base), adapter=str(adapter), annotator="none",
        metrics="attention_distance,cosine_to_input,vocabulary_rank", importance="off",
    )  # fmt: skip
    assert {"zebra", "quokka"} <= {token.strip() for token in study.tokens["token"]}
    assert "its tokenizer is used" in study.manifest.model.adapter
