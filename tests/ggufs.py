"""Tiny GGUF files, written as converters of local runners write them, from tiny models."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM


def original(words: Path, folder: Path) -> Path:
    """A tiny Llama with the byte-level tokenizer of another folder, as safetensors."""
    tokenizer: Any = AutoTokenizer.from_pretrained(words)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=72,
        rms_norm_eps=1e-5,
        initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write(
    folder: Path,
    file: Path,
    *,
    kind: str = "F32",
    without: tuple[str, ...] = (),
    merges: Sequence[str] = (),
    **fields: Any,
) -> Path:
    """Write the Llama of a folder, with its byte-level tokenizer, as a GGUF file.

    Args:
        kind: format of its matrices, a quantisation for example.
        without: tensors that the file shall lack.
        merges: merges of its tokenizer beside its own, with what they make.
        fields: metadata beside what the model needs, or other values of it, dots as double
            underscores; with ``rotations`` the factors that divide frequencies.
    """
    import gguf

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    writer = gguf.GGUFWriter(file, str(fields.pop("architecture", "llama")))
    rotations = fields.pop("rotations", None)
    more = {name.replace("__", "."): value for name, value in fields.items()}
    for name, value in (_shape(model.config) | _words(folder, merges) | more).items():
        _add(writer, name, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stored = names.get_name(name.removesuffix(".weight"))
        if stored not in without and not (name == "lm_head.weight" and _tied(model)):
            array = _turned(name, tensor, model.config).numpy().astype(np.float32)
            wanted = gguf.GGMLQuantizationType[kind if array.ndim > 1 else "F32"]
            packed = gguf.quants.quantize(array, wanted)
            writer.add_tensor(f"{stored}.weight", packed, raw_dtype=wanted)
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
    """Rows of queries and keys in the order in which runners rotate them: pairs side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if f".{part}." in name:
            apart: torch.Tensor = tensor.unflatten(0, (count, 2, -1))
            return apart.transpose(1, 2).flatten(0, 2).contiguous()
    return tensor


def _shape(config: Any) -> dict[str, Any]:
    return {
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "llama.rope.dimension_count": config.hidden_size // config.num_attention_heads,
        "llama.vocab_size": config.vocab_size,
    }


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
