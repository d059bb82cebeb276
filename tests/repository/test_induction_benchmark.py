"""The benchmark on repeated tokens, against plain passes one sequence at a time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import induction
import tiny
from headbook.errors import ConfigError
from headbook.model.load import load_model
from headbook.model.tokenizer import SentenceTokenizer, random_sequences
from headbook.schema import HeadName, Replacement, Side
from headbook.text.annotate import NO_ANNOTATOR, Annotator


def ids_of(encoder: SentenceTokenizer, seed: int) -> list[list[int]]:
    return [each.tokens[Side.SOURCE].ids.tolist() for each in random_sequences(encoder, seed)]


def test_the_loss_without_induction_heads_is_that_of_plain_passes(tmp_path: Path) -> None:
    """Zeros in their place; scores on other sequences than losses."""
    folder = tiny.write("gpt2", tmp_path / "gpt2", head=True)
    model = load_model(str(folder), dtype="float64")
    found = induction.lost(model, 3, Replacement.ZERO)
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load(NO_ANNOTATOR))
    plain = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    mass: dict[HeadName, list[float]] = {}
    with torch.no_grad():
        for ids in ids_of(encoder, induction.SEED + 1):
            maps = plain(torch.tensor([ids]), output_attentions=True).attentions
            for query, token in enumerate(ids):
                if token in ids[:query]:
                    for layer, weights in enumerate(maps):
                        for head in range(tiny.HEADS):
                            mass.setdefault(HeadName("self", layer, head), []).append(
                                float(weights[0, head, query, ids.index(token) + 1])
                            )
        means = {head: float(np.mean(each)) for head, each in mass.items()}
        top = sorted(means, key=lambda head: -means[head])[:3]
        assert found["heads"] == [f"L{head.layer}-H{head.head}" for head in sorted(top)]
        whole, tokens = losses(plain, ids_of(encoder, induction.SEED), [])
        without, _ = losses(plain, ids_of(encoder, induction.SEED), top)
    assert found["tokens"] == tokens
    assert found["loss"] == pytest.approx(whole / tokens)
    assert found["change"] == pytest.approx((without - whole) / tokens)
    least, middle, most = found["random sets"]
    assert least <= middle <= most


def losses(
    plain: torch.nn.Module, sequences: list[list[int]], heads: list[HeadName]
) -> tuple[float, int]:
    """Of tokens that stood before, with zeros where heads are."""
    width = tiny.WIDTH // tiny.HEADS
    total, tokens = 0.0, 0
    handles = []
    for head in heads:

        def change(_: torch.nn.Module, given: tuple[torch.Tensor], at: int = head.head) -> None:
            given[0][..., at * width : (at + 1) * width] = 0

        projection = plain.get_submodule(f"transformer.h.{head.layer}.attn.c_proj")
        handles.append(projection.register_forward_pre_hook(change))
    for ids in sequences:
        logs = plain(torch.tensor([ids])).logits[0].log_softmax(-1)
        for place in range(1, len(ids)):
            if ids[place] in ids[:place]:
                total -= float(logs[place - 1, ids[place]])
                tokens += 1
    for handle in handles:
        handle.remove()
    return total, tokens


def test_without_a_causal_head_there_is_one_line(tmp_path: Path) -> None:
    folder = tiny.write("bert", tmp_path / "bert", head=True)
    with pytest.raises(ConfigError, match="causal language-model head"):
        induction.lost(load_model(str(folder)))
