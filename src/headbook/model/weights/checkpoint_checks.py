"""Checks of a model's folder before transformers reads it: its configuration against its weights.

transformers builds what a configuration asks for before it looks at weights. A configuration of a
billion layers would keep it busy for days, and one of a billion numbers a token would take all
memory. Both files come from somebody else, so sizes are compared with the headers of the weights,
which take milliseconds to read.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from headbook.errors import ModelError

CONFIG = "config.json"
LAYERS = {
    "num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers",
}  # fmt: skip
HEADS = {
    "num_attention_heads", "num_heads", "n_heads", "n_head", "encoder_attention_heads",
    "decoder_attention_heads",
}  # fmt: skip
WIDTHS = {"hidden_size", "d_model", "n_embd", "dim", "vocab_size"}
SHARED = 256  # layers that may share their weights, as those of ALBERT do; no model has as many


def check_folder(folder: Path, name: str) -> None:
    """Refuse a configuration that its weights contradict, and files that are cut off.

    Args:
        folder: with ``config.json`` and weights as safetensors; what is missing is left to
            transformers to say.
        name: of the model, for messages.

    Raises:
        ModelError: in one line, which file, what was found, and what is expected.
    """
    config = _configuration(folder / CONFIG, name)
    tensors, largest = 0, 0
    for file in sorted(folder.glob("*.safetensors")):
        for shape in _shapes(file, name):
            tensors += 1
            largest = max(largest, *shape, 0)
    most = {**dict.fromkeys(LAYERS, max(tensors, SHARED)), **dict.fromkeys(HEADS | WIDTHS, largest)}
    for key, value in _sizes(config):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(
                f"model '{name}': {CONFIG}: {key} = {value!r:.80}, expected a whole number from 1"
            )
        if tensors and value > most[key]:
            what = f"{tensors:,} tensors" if key in LAYERS else f"dimensions up to {largest:,}"
            raise ModelError(
                f"model '{name}': {CONFIG}: {key} = {value!r:.80}, but its weights have {what}; "
                "expected the configuration and the weights of one model"
            )


def check_layers(name: str, layers: object, tensors: int) -> None:
    """Refuse a GGUF file that says that it has more layers than tensors.

    Raises:
        ModelError: it does.
    """
    if isinstance(layers, int) and layers > max(tensors, SHARED):
        raise ModelError(
            f"model '{name}': {layers:,} layers, but {tensors:,} tensors; expected a GGUF file "
            "that is whole"
        )


def _configuration(file: Path, name: str) -> dict[str, Any]:
    """Return what the file holds; nothing if it is missing."""
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ModelError(f"model '{name}': {CONFIG}: nested too deeply") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{name}': {CONFIG}: {error}; expected a JSON object") from error
    if not isinstance(config, dict):
        raise ModelError(
            f"model '{name}': {CONFIG}: a JSON {type(config).__name__}, expected an object"
        )
    return config


def _sizes(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield numbers of layers and heads and widths, those of the parts of a model too.

    A list has a number for each layer; None leaves the choice to transformers.
    """
    for key, value in config.items():
        if isinstance(value, dict) and (key.endswith("_config") or key in {"encoder", "decoder"}):
            yield from ((k, v) for k, v in _sizes(value) if k in LAYERS)
        elif key in LAYERS | HEADS | WIDTHS and value is not None and not isinstance(value, list):
            yield key, value


def _shapes(file: Path, name: str) -> Iterator[list[int]]:
    """Yield the shapes of all tensors of a file, by its header."""
    try:
        with safe_open(file, framework="numpy") as opened:
            for tensor in [*opened.keys()]:
                yield opened.get_slice(tensor).get_shape()
    except (SafetensorError, OSError) as error:
        first = str(error).splitlines()[0]
        raise ModelError(
            f"model '{name}': {file.name}: cut off, damaged or no safetensors file ({first}); get "
            "it again"
        ) from error
