"""Tiny GGUF files, written as converters of local runners write them, from tiny models."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from headbook.model.gguf import EPSILON_NAMES


def original(words: Path, folder: Path, family: str = "llama", **options: Any) -> Path:
    """Return a tiny model of the Llama family with the tokenizer of another folder."""
    tokenizer: Any = AutoTokenizer.from_pretrained(words)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=72,
        **options,
    )
    model = AutoModelForCausalLM.from_config(config)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)  # biases and gains, too
    model.save_pretrained(folder)
    return folder


def write(
    folder: Path,
    file: Path,
    *,
    kind: str = "F32",
    without: tuple[str, ...] = (),
    merges: Sequence[str] = (),
    more: Mapping[str, int] = MappingProxyType({}),
    **fields: Any,
) -> Path:
    """Write the model of a folder, Llama or of its family, with its tokenizer, as a GGUF file.

    Args:
        kind: format of its matrices, a quantisation for example.
        without: tensors that the file shall lack.
        merges: merges of its tokenizer beside its own, with what they make.
        more: tensors beside the model's, ones, with their sizes.
        fields: metadata beside what the model needs, or other values of it, dots as double
            underscores; with ``rotations`` the factors that divide frequencies.
    """
    import gguf

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    family = model.config.model_type
    writer = gguf.GGUFWriter(file, str(fields.pop("architecture", family)))
    rotations = fields.pop("rotations", None)
    given = {name.replace("__", "."): value for name, value in fields.items()}
    for name, value in (_shape(model.config) | _words(folder, merges) | given).items():
        _add(writer, name, value)
    known = gguf.MODEL_ARCH[family.upper()]
    names = gguf.get_tensor_name_map(known, model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        part, _, kind_of = name.rpartition(".")
        stored = names.get_name(part)
        if stored not in without and not (name == "lm_head.weight" and _tied(model)):
            array = _turned(name, tensor, model.config).numpy().astype(np.float32)
            wanted = gguf.GGMLQuantizationType[kind if array.ndim > 1 else "F32"]
            packed = gguf.quants.quantize(array, wanted)
            writer.add_tensor(f"{stored}.{kind_of}", packed, raw_dtype=wanted)
    for name, size in more.items():
        writer.add_tensor(name, np.ones(size, np.float32))
    if rotations is not None:
        writer.add_tensor("rope_freqs.weight", np.asarray(rotations, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _tied(model: Any) -> bool:
    return bool(model.config.tie_word_embeddings)


def _turned(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """Return a tensor as runners keep it: of Llama, rows that rotate together are side by side."""
    if config.model_type == "gemma2" and "norm" in name:
        return tensor + 1
    if config.model_type != "llama":
        return tensor
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if f".{part}." in name:
            apart: torch.Tensor = tensor.unflatten(0, (count, 2, -1))
            return apart.transpose(1, 2).flatten(0, 2).contiguous()
    return tensor


def _shape(config: Any) -> dict[str, Any]:
    shape = {
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": float(
            next(getattr(config, name) for name in EPSILON_NAMES if hasattr(config, name))
        ),
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "llama.rope.dimension_count": int(
            (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
            * config.rope_parameters.get("partial_rotary_factor", 1)
        ),
        "llama.vocab_size": config.vocab_size,
    }
    return {name.replace("llama", config.model_type): value for name, value in shape.items()}


def _words(folder: Path, merges: Sequence[str]) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    special = set(tokenizer.all_special_ids)
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    tokens += [merge.replace(" ", "") for merge in merges]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i in special else 1 for i in range(len(tokens))],
        "tokenizer.ggml.merges": [*(" ".join(pair) for pair in model["merges"]), *merges],
        "tokenizer.ggml.bos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.add_bos_token": False,
    }


def _add(writer: Any, name: str, value: Any) -> None:
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    getattr(writer, f"add_{kinds[type(value)]}")(name, value)
