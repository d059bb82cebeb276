"""Margins of verdicts: distances between sentences, rounding of weights, and pooling, naively."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from test_ablator import KEYS, TEXTS, Case, Naive, case, scored

from bare_model import Bare
from headbook.ablation.ablator import HeadAblator
from headbook.ablation.logit_targets import target_functions
from headbook.ablation.margins import measure_margins
from headbook.ablation.targets import pooled
from headbook.model.checkpoint import POOLING_MODES, read_pooling
from headbook.model.load import load_model
from headbook.model.weights import rounded_weights
from headbook.schema import AblationTarget, Side

__all__ = ["case"]
pytestmark = pytest.mark.usefixtures("of_any_number")
Floats = NDArray[np.float64]


def cosine(one: Floats, other: Floats) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def coarsened(model: Bare) -> Bare:
    """The network, every weight of which went through bfloat16."""
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


def vector(states: Floats, pooling: str) -> Floats:
    """A sentence's vector."""
    found: Floats = states[0] if pooling == "cls" else states.mean(0)
    return found


@pytest.mark.parametrize("pooling", ["", "mean", "cls"])
def test_distances_are_means_over_pairs_of_different_sentences(
    case: Callable[..., Case], pooling: str
) -> None:
    it = case("bert", head=False)
    ablator = HeadAblator(
        it.ablator.heads, target_functions(None, Side.SOURCE, None, pooling=pooling)
    )
    apart, rounding = measure_margins(ablator, it.batches)
    states, again = (
        [b.run(b.ids(one)).last_hidden_state[0].double().numpy() for one, _ in TEXTS]
        for b in (Bare.load(it.folder), coarsened(Bare.load(it.folder)))
    )
    tokens, texts = [], []
    for one, other in product(range(len(TEXTS)), repeat=2):
        if one != other:
            texts.append(1 - cosine(vector(states[one], pooling), vector(states[other], pooling)))
            tokens += [1 - cosine(a, b) for a, b in product(states[one], states[other])]
    assert apart["embedding"] == pytest.approx(np.mean(texts), abs=1e-9)
    assert apart["state"] == pytest.approx(np.mean(tokens), abs=1e-9)
    for row, number in enumerate(np.argsort(KEYS)):
        moved = sum(1 - cosine(a, b) for a, b in zip(states[number], again[number], strict=True))
        assert rounding["state"][row] == pytest.approx(moved, abs=1e-9)
        whole = 1 - cosine(vector(states[number], pooling), vector(again[number], pooling))
        assert rounding["embedding"][row] == pytest.approx(whole, abs=1e-9)
    assert rounding["state"].max() > 1e-7


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_rounding_reaches_the_language_model_head(case: Callable[..., Case], family: str) -> None:
    it = case(family)
    apart, rounding = measure_margins(it.ablator, it.batches)
    assert apart == {}
    true = scored(it)
    masked = [[*row] if family == "bert" else [] for row in true]
    naive, coarse = Naive(it, masked), Naive(it, masked)
    coarsened(coarse.model)
    for row, number in enumerate(np.argsort(KEYS)):
        one, other = (log_softmax(each.run(int(number), {})[0], -1) for each in (naive, coarse))
        loss = sum(one[i, t] - other[i, t] for i, t in true[number].items())
        kl = sum(float((np.exp(one[i]) * (one[i] - other[i])).sum()) for i in true[number])
        name = it.ablator.functions.targets[0]
        assert rounding[name][row] == pytest.approx(loss, abs=1e-9)
        assert rounding[AblationTarget.KL][row] == pytest.approx(kl, abs=1e-9)
    assert rounding[AblationTarget.KL].max() > 1e-7


def test_weights_come_back_behind_each_module(case: Callable[..., Case]) -> None:
    """Shared weights and layers, too; also where the pass fails."""
    network = case("gpt2").ablator.heads.model.network
    before = [parameter.clone() for parameter in network.parameters()]
    ids = torch.zeros(1, 3, dtype=torch.long)
    plain = network(input_ids=ids).logits
    with rounded_weights(network), torch.inference_mode():
        assert not torch.equal(network(input_ids=ids).logits, plain)
        with pytest.raises(IndexError):
            network(input_ids=ids + 10**6)
    assert all(map(torch.equal, before, network.parameters()))
    assert torch.equal(network(input_ids=ids).logits, plain)


def test_pooling_is_that_of_each_sentence_alone() -> None:
    rng = np.random.default_rng(0)
    states = torch.from_numpy(rng.normal(size=(2, 3, 5, 4)))
    for lengths, left in (((5, 2, 3), False), ((5, 2, 3), True)):
        valid = torch.zeros(3, 5, dtype=torch.bool)
        for row, length in enumerate(lengths):
            valid[row, 5 - length if left else 0 :][:length] = True
        for mode in {*POOLING_MODES.values()}:
            found = pooled(states, valid, mode)
            for pass_, row in product(range(2), range(3)):
                own = states[pass_, row][valid[row]].numpy()
                expected = {
                    "mean": own.mean(0),
                    "cls": own[0],
                    "max": own.max(0),
                    "last token": own[-1],
                    "weighted mean": np.average(own, axis=0, weights=range(1, len(own) + 1)),
                }[mode]
                assert cosine(found[pass_, row].numpy(), expected) == pytest.approx(1)


def test_sentence_encoders_are_known_by_their_pooling(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def written(config: object, path: str = "1_Pooling") -> str:
        (tmp_path / "1_Pooling").mkdir(exist_ok=True)
        modules = [
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": path, "type": "sentence_transformers.models.Pooling"},
        ]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config))
        return read_pooling(tmp_path)

    assert read_pooling(tmp_path) == ""
    assert written({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}) == "cls"
    assert written({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}) == ""
    assert written({"pooling_mode_mean_tokens": True}, "../1_Pooling") == ""
    assert written([]) == written("x") == written(5) == ""
    assert load_model("demo").pooling == "mean"
    assert load_model(str(tiny_folder("bert"))).pooling == ""
    side = Side.SOURCE
    assert target_functions(None, side, None, pooling="mean").targets == (
        AblationTarget.EMBEDDING,
        AblationTarget.STATE,
    )
    assert target_functions(None, side, None).targets == (
        AblationTarget.STATE,
        AblationTarget.EMBEDDING,
    )
