"""Logits of a model by transformers alone."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import tiny
from bare_model import Bare


def bare(folder: Path, family: str) -> Bare:
    """The model with its head, in float64."""
    loader: Any = AutoModelForCausalLM
    if tiny.ALL[family].pairs:
        loader = AutoModelForSeq2SeqLM
    elif family in {"bert", "distilbert"}:
        loader = AutoModelForMaskedLM
    found = Bare.load(folder, pairs=True) if tiny.ALL[family].pairs else Bare.load(folder)
    network = loader.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    return Bare(network.eval(), found.tokenizer)
