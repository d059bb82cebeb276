"""Tiny models with random LoRA adapters."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import tiny

LOADERS: dict[str, Any] = {
    "bert": AutoModelForMaskedLM, "gpt2": AutoModelForCausalLM, "llama": AutoModelForCausalLM,
    "t5": AutoModelForSeq2SeqLM,
}  # fmt: skip
TARGETS = {
    "bert": ["query", "value", "attention.output.dense"], "gpt2": ["c_attn", "c_proj"],
    "llama": ["q_proj", "v_proj", "o_proj"], "t5": ["q", "v", "o"],
}  # fmt: skip


def adapted(family: str, place: Path, **options: Any) -> tuple[Path, Path, Any]:
    """Return a tiny model with its head, a random adapter, and what peft makes of both."""
    base = tiny.write(family, place / family, head=True)
    network = LOADERS[family].from_pretrained(base)
    config: Any = {"target_modules": TARGETS[family], "r": 3} | options
    network = get_peft_model(network, LoraConfig(**config))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
            elif "modules_to_save" in name:
                parameter.add_(0.1)
    network.save_pretrained(str(place / "adapter"))
    return base, place / "adapter", network.eval()
