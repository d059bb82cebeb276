"""Weights of a checkpoint.

Checked against its configuration, loaded with a language-model head, and rounded while a network
runs.

transformers builds what a configuration asks for before it looks at weights. A configuration of a
billion layers would keep it busy for days, and one of a billion numbers a token would take all
memory. Both files come from somebody else, so sizes are compared with the headers of the weights,
which take milliseconds to read.

A head that the checkpoint lacks would be loaded with random weights; it counts as absent.

Only the weights of the module that runs are rounded, and they come back behind it, so that no
second network has to fit into memory.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)

from headbook.errors import ModelError
from headbook.model.devices import OffloadPlace, device_map

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


def load_with_lm_head(
    folder: Path,
    config: Any,
    dtype: torch.dtype,
    gguf: str | None = None,
    *,
    place: torch.device | None = None,
    offload: OffloadPlace | None = None,
) -> tuple[Any, dict[str, Any], str]:
    """The network with its head, or without one that the checkpoint does not have.

    Encoder-decoders keep their head in any case: what writes their targets needs one.

    Args:
        gguf: name of the file in the folder that holds all weights; None where safetensors do.
        place: the device that layers run on; where ``offload`` is given.
        offload: where weights go that have no room there; None for all in memory.

    Returns:
        Network, loading report, and why there is no head.
    """
    # The products of all experts at once do not know float64.
    more = {"experts_implementation": "eager"} if dtype is torch.float64 else {}
    file = {"gguf_file": gguf, "ignore_mismatched_sizes": True}  # they are reported, and refused
    weights = {"use_safetensors": True} if gguf is None else file

    def moved(loader: Any) -> dict[str, Any]:
        if offload is None or place is None:
            return {}
        return device_map(offload, folder.name, loader, config, place)

    def load(loader: Any) -> tuple[Any, dict[str, Any]]:
        pair: tuple[Any, dict[str, Any]] = loader.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            trust_remote_code=False,
            output_loading_info=True,
            **weights,
            **more,
            **moved(loader),
        )
        return pair

    loader = _head_loader(config)
    if loader is None:
        return *load(AutoModel), f"'{config.model_type}' has no language-model head"
    network, report = load(loader)
    headless = _headless(network, report["missing_keys"])
    if headless and not config.is_encoder_decoder:
        network, report = load(AutoModel)
    return network, report, headless


def _head_loader(config: Any) -> Any:
    """What loads an architecture with its language-model head; None where it has none."""
    if config.is_encoder_decoder and type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return AutoModelForSeq2SeqLM
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        return AutoModelForMaskedLM
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    # Models that see, too: their text part is what runs on text alone.
    sees = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return AutoModelForImageTextToText if sees else None


def _headless(network: Any, missing: Collection[str]) -> str:
    """Why a network's head is not that of its checkpoint; empty where it is.

    A head whose weights are all the embedding's own is always there: the checkpoint must name it.
    """
    parts = [network.base_model]
    if parts[0] is network:  # T5 and its like keep encoder and decoder side by side
        sides = (getattr(network, name, None) for name in ("get_encoder", "get_decoder"))
        parts = [side() for side in sides if side is not None]
    body = {id(weights) for part in parts for weights in part.parameters()}
    own = [name for name, weights in network.named_parameters() if id(weights) not in body]
    random = sorted(set(own) & set(missing))
    if random:
        return f"the checkpoint has no language-model head ({random[0]} is missing)"
    named = network.config.architectures or []
    if not own and type(network).__name__ not in named:
        return f"the checkpoint is of {' or '.join(named) or 'a model'} without a head"
    return ""


COARSE = torch.bfloat16


def can_round(network: torch.nn.Module) -> bool:
    """Whether all weights are in memory: offloaded weights arrive too late to be rounded."""
    return not any(parameter.is_meta for parameter in network.parameters())


@contextmanager
def rounded_weights(network: torch.nn.Module) -> Iterator[None]:
    """Round each module's own weights to bfloat16 while the module runs; arithmetic stays."""
    with ExitStack() as hooks:
        for module in network.modules():
            own = [p for p in module.parameters(recurse=False) if _finer(p)]
            if own:
                kept: list[list[torch.Tensor]] = []
                before, after = _hooks(own, kept)
                hooks.callback(module.register_forward_pre_hook(before).remove)
                behind = module.register_forward_hook(after, always_call=True)
                hooks.callback(behind.remove)
        yield


def _finer(weight: torch.Tensor) -> bool:
    return weight.is_floating_point() and torch.finfo(weight.dtype).bits > 16


def _hooks(own: list[torch.nn.Parameter], kept: list[list[torch.Tensor]]) -> tuple[Any, Any]:
    """Hooks around one module; what is kept is a stack, because layers may share a module."""

    def before(*_: Any) -> None:
        with torch.inference_mode(mode=False), torch.no_grad():
            kept.append([weight.detach().clone() for weight in own])
            for weight in own:
                # In place, which counts up the version: packed copies of weights go by that.
                weight.copy_(weight.to(COARSE))

    def after(*_: Any) -> None:
        if not kept:
            return
        with torch.inference_mode(mode=False), torch.no_grad():
            for weight, exact in zip(own, kept.pop(), strict=True):
                weight.copy_(exact)

    return before, after
