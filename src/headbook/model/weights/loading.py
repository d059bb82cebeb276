"""A checkpoint with its language-model head, where it has one.

A head that the checkpoint lacks would be loaded with random weights; it counts as absent.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
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

from headbook.model.weights.offload import Aside, device_map


def with_head(
    folder: Path,
    config: Any,
    dtype: torch.dtype,
    gguf: str | None = None,
    *,
    place: torch.device | None = None,
    aside: Aside | None = None,
) -> tuple[Any, dict[str, Any], str]:
    """The network with its head, or without one that the checkpoint does not have.

    Encoder-decoders keep their head in any case: what writes their targets needs one.

    Args:
        gguf: name of the file in the folder that holds all weights; None where safetensors do.
        place: the device that layers run on; where ``aside`` is given.
        aside: where weights go that have no room there; None for all in memory.

    Returns:
        Network, loading report, and why there is no head.
    """
    # The products of all experts at once do not know float64.
    more = {"experts_implementation": "eager"} if dtype is torch.float64 else {}
    file = {"gguf_file": gguf, "ignore_mismatched_sizes": True}  # they are reported, and refused
    weights = {"use_safetensors": True} if gguf is None else file

    def moved(loader: Any) -> dict[str, Any]:
        if aside is None or place is None:
            return {}
        return device_map(aside, folder.name, loader, config, place)

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
