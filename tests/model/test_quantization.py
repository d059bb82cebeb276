"""Quantised weights: what is read from them is what the model computes with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchao.quantization import Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TorchAoConfig

import headbook
import tiny
import treebank
from headbook.circuits.weight_drift import weight_drift
from headbook.config import Config
from headbook.errors import ConfigError, ModelError
from headbook.model.architecture import probe_architecture
from headbook.model.devices import read_weight
from headbook.model.load import load_model, untrained_copy
from headbook.model.loaders.quantization import stored_format
from headbook.model.weights import can_round

STORED = {
    "int8": ("torchao, int8, one scale for each row", 8),
    "int4": ("torchao, int4, one scale for 16 weights", 4),
}
LEVELS = {"int8": 127, "int4": 7}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write("llama", tmp_path_factory.mktemp("quantised") / "llama", head=True)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_read_dequantised(llama: Path, kind: str, dtype: str) -> None:
    exact, model = (
        load_model(str(llama), device="cpu", dtype=dtype, quantization=each)
        for each in ("none", kind)
    )
    assert (model.weights.stored, model.weights.bits) == STORED[kind]
    before = exact.base_model.layers[1].self_attn.q_proj.weight.float()
    module = model.base_model.layers[1].self_attn.q_proj
    read = read_weight(module).float()
    assert torch.equal(read, module.weight.dequantize().float())
    group = 16 if kind == "int4" else before.shape[1]
    largest = before.unflatten(1, (-1, group)).abs().amax(-1, keepdim=True)
    step = largest / LEVELS[kind]
    error = (read - before).unflatten(1, (-1, group)).abs()
    rounding = torch.finfo(getattr(torch, dtype)).eps
    assert (error <= 0.6 * step + rounding * largest).all()
    assert error.max() > 0
    assert type(model.base_model.embed_tokens.weight) is torch.nn.Parameter
    assert not can_round(model.network)


def test_drift_grows_with_coarser_weights(llama: Path) -> None:
    exact, int8, int4 = (
        load_model(str(llama), device="cpu", quantization=kind) for kind in ("none", "int8", "int4")
    )
    architecture = probe_architecture(exact)
    drifts = [weight_drift(exact, model, architecture) for model in (exact, int8, int4)]
    assert [drift.missing for drift in drifts] == [(), (), ()]
    for part in (0, 1):
        none, small, large = (drift.stacks["self"][part] for drift in drifts)
        assert not none.any()
        assert (small > 0).all()
        assert (large > 3 * small).all()
        assert large.max() < 0.3
    found = probe_architecture(int8)
    assert found.hooked
    assert found.ends.sites.keys() == architecture.ends.sites.keys()
    assert found.ends.projections.keys() == architecture.ends.projections.keys()
    assert weight_drift(int8, int4, found).missing == ()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_study_of_quantised_weights_has_all_numbers_and_says_so(
    llama: Path, kind: str, tmp_path: Path
) -> None:
    texts = treebank.write_trees(tmp_path / "trees.conllu")
    exact, study = (
        headbook.collect(texts, model=str(llama), annotator="none", quantization=each)
        for each in ("none", kind)
    )
    assert study.manifest.failed == ()
    assert study.manifest.gaps == exact.manifest.gaps
    assert study.manifest.options["quantization"] == kind
    for name in ("heads", "importance"):
        table, other = getattr(study, name), getattr(exact, name)
        assert len(table) == len(other)
        assert np.isfinite(table["value"]).sum() == np.isfinite(other["value"]).sum()
    values, others = (
        each.heads.query("metric == 'attention_distance' and view == 'raw'")["value"].to_numpy()
        for each in (study, exact)
    )
    assert 0 < np.abs(values - others).max() < 1
    headbook.render(study, tmp_path / "site")
    overview, methods = (
        (tmp_path / "site" / name).read_text() for name in ("index.html", "methods.html")
    )
    bits = {"int8": "eight", "int4": "four"}[kind]
    assert f"Weights are quantised to {bits} bits ({STORED[kind][0]})" in overview
    assert STORED[kind][0] in methods


def test_a_model_that_is_quantised_already_loads_so(llama: Path, tmp_path: Path) -> None:
    config = TorchAoConfig(Int8WeightOnlyConfig())
    network: Any = AutoModelForCausalLM.from_pretrained(llama, quantization_config=config)
    network.save_pretrained(tmp_path / "own")
    AutoTokenizer.from_pretrained(llama).save_pretrained(tmp_path / "own")
    own = load_model(str(tmp_path / "own"), device="cpu")
    here = load_model(str(llama), device="cpu", quantization="int8")
    assert (own.weights.stored, own.weights.bits) == STORED["int8"]
    for name in ("q_proj", "o_proj"):
        weights = (
            read_weight(m.base_model.layers[0].self_attn.get_submodule(name)) for m in (own, here)
        )
        assert torch.equal(*weights)
    with pytest.raises(ModelError, match=r"it is quantised already .torchao., and loads so by its"):
        load_model(str(tmp_path / "own"), device="cpu", quantization="int4")
    random = untrained_copy(own, seed=0)
    assert stored_format(random.config) == ("", 0)
    assert can_round(random.network)


def test_what_cannot_be_quantised_is_one_line(llama: Path) -> None:
    with pytest.raises(ModelError, match="--quantization int8: got --dtype float64, in which no"):
        load_model(str(llama), device="cpu", dtype="float64", quantization="int8")
    with pytest.raises(ModelError, match="a GGUF file stores its own number format; expected no"):
        load_model("demo-causal", device="cpu", quantization="int8")
    with pytest.raises(ConfigError, match="quantization: got 'int3', expected one of none, int8"):
        Config.of(quantization="int3")
    with pytest.raises(ConfigError, match="offload: got 'disk', expected off beside adapter="):
        Config.of(quantization="int8", offload="disk")


@pytest.mark.parametrize(
    ("settings", "format_and_bits"),
    [
        ({"quant_method": "gptq", "bits": 4}, ("gptq, 4 bits", 4)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ("awq, 4 bits", 4)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("bitsandbytes, 8 bits", 8)),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("bitsandbytes, 4 bits", 4)),
        ({"quant_method": "fp8"}, ("fp8, 8 bits", 8)),
        ({"quant_method": "compressed-tensors"}, ("compressed-tensors", 0)),
        (None, ("", 0)),
    ],
)
def test_formats_of_quantised_checkpoints_are_named(
    llama: Path, settings: Any, format_and_bits: tuple[str, int]
) -> None:
    config = load_model(str(llama), device="cpu").config
    config.quantization_config = settings
    assert stored_format(config) == format_and_bits
