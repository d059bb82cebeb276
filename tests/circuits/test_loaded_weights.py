"""Circuits of models with adapters or quantised weights are those of the weights as they act."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from headbook.circuits.copying import copying_numbers
from headbook.circuits.weights import StackWeights, find_circuit_weights
from headbook.model.architecture import probe_architecture
from headbook.model.devices import read_weight
from headbook.model.load import Model, load_model
from headbook.model.logit_lens import make_logit_lens
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch
from lora import adapted


def weights_of(model: Model) -> StackWeights:
    encoder = SentenceTokenizer(model, limit=40, targets=Annotator.load("none"))
    texts = Batch.of(probe_texts(encoder)[2:4], model.device)
    architecture = probe_architecture(model)
    lens = make_logit_lens(model, architecture)
    found = find_circuit_weights(model, architecture, lens, texts)["self"]
    assert isinstance(found, StackWeights)
    return found


def compare(one: Model, other: Model) -> None:
    """Check factors and copying scores of two models."""
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.remarks == theirs.remarks
    for layer in theirs.layers:
        for part, expected in zip(mine.factors(layer), theirs.factors(layer), strict=True):
            torch.testing.assert_close(part, expected, rtol=1e-5, atol=2e-5)
    columns = mine.unembedding.columns, theirs.unembedding.columns
    torch.testing.assert_close(*columns, rtol=1e-5, atol=2e-5)
    counts = dict.fromkeys(range(3, 60), 1)
    scores = [copying_numbers(w, counts)["value"].to_numpy() for w in (mine, theirs)]
    assert np.isfinite(scores[1]).all()
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_an_adapter_counts_whether_it_is_merged_or_not(family: str, tmp_path: Path) -> None:
    base, adapter, _ = adapted(family, tmp_path)
    active, merged, plain = (
        load_model(str(base), device="cpu", **options)
        for options in (
            {"adapter": str(adapter)}, {"adapter": str(adapter), "merge_adapter": True}, {},
        )
    )  # fmt: skip
    compare(active, merged)
    with pytest.raises(AssertionError):
        compare(active, plain)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_quantised_weights_are_dequantised(kind: str, tmp_path: Path) -> None:
    folder = str(tiny.write("llama", tmp_path / "llama", head=True))
    quantised = load_model(folder, device="cpu", quantization=kind)
    plain = load_model(folder, device="cpu")
    with pytest.raises(AssertionError):
        compare(quantised, plain)
    modules = dict(quantised.network.named_modules())
    with torch.no_grad():
        for name, module in plain.network.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.copy_(read_weight(modules[name]))
    compare(quantised, plain)
