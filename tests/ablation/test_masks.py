"""A model that reads in both directions is measured by its mask, named as such or not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import headbook
import tiny
from headbook.model.load import load_model
from headbook.model.tokens.special import reserved_ids, special_ids

TEXT = "the cat sees the dog ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    """Return a model with a head; its tokenizer has a mask, whose role its files name or not."""
    base = tmp_path_factory.mktemp("masks")

    def of(family: str, named: bool) -> Path:
        place = base / f"{family}-{named}"
        if not place.exists():
            tiny.write(family, place, head=True)
            file = place / "tokenizer_config.json"
            options = json.loads(file.read_text())
            if not named:
                del options["mask_token"]
            file.write_text(json.dumps(options))
        return place

    return of


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("family", ["gemma3_both_ways", "bert"])
def test_both_directions_and_a_mask_give_a_masked_loss(
    family: str, named: bool, folder: Callable[[str, bool], Path]
) -> None:
    place = folder(family, named)
    assert (AutoTokenizer.from_pretrained(place).mask_token is not None) == named
    lost = headbook.ablate(
        [TEXT, TEXT], str(place), heads=["L0-H1"], dtype="float64", device="cpu"
    ).set_index("target")
    assert [*lost.index] == ["masked_loss", "kl"]
    tokenizer = AutoTokenizer.from_pretrained(folder(family, True))
    mask, ids = tokenizer.mask_token_id, tokenizer(TEXT, return_tensors="pt").input_ids
    loader: Any = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
    model = loader.from_pretrained(place, dtype=torch.float64, attn_implementation="eager")
    losses = []
    for position in range(ids.shape[1]):  # of six ordinary tokens one is masked
        masked = ids.clone()
        masked[0, position] = mask
        logs = model(masked).logits[0, position].log_softmax(-1)
        losses.append(float(-logs[ids[0, position]].detach()))
    assert [loss for loss in losses if loss == pytest.approx(lost["full"]["masked_loss"])]


@pytest.mark.parametrize("named", [True, False])
def test_the_mask_stands_for_a_word(named: bool, folder: Callable[[str, bool], Path]) -> None:
    model = load_model(str(folder("gemma3_both_ways", named)))
    mask = model.tokenizer.get_vocab()["<mask>"]
    assert (model.mask_token, model.mask_id) == ("<mask>", mask)
    assert mask not in special_ids(model)
    assert mask in reserved_ids(model)
