"""Rotary positions whose frequencies depend on the longest text of a batch.

``longrope`` takes other frequencies for all texts of a batch if one is longer than the original
limit; ``dynamic`` stretches them by the length of the longest text, and keeps them for later ones.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

LONGROPE, DYNAMIC = "longrope", "dynamic"
ORIGINAL = "original_inv_freq"  # end of the name of the frequencies of short texts


def shared_length(config: Any) -> float:
    """Return the tokens of the longest text that may share a batch with others.

    Args:
        config: configuration of the text model.
    """
    limits = [math.inf]
    for parameters in _kinds(getattr(config, "rope_parameters", None)):
        if parameters["rope_type"] == LONGROPE:
            limits.append(parameters["original_max_position_embeddings"])
        elif DYNAMIC in parameters["rope_type"]:
            limits.append(config.max_position_embeddings)
    return min(limits)


def _kinds(parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of rotary positions, which may differ between kinds of layers."""
    if not isinstance(parameters, Mapping):
        return
    if isinstance(parameters.get("rope_type"), str):
        yield parameters
        return
    for of_kind in parameters.values():
        yield from _kinds(of_kind)


def forget_lengths(network: torch.nn.Module) -> None:
    """Let every pass begin with the frequencies of short texts, whatever was read before.

    Args:
        network: network without its language-model head.
    """
    modules = [
        module
        for module in network.modules()
        if hasattr(module, "max_seq_len_cached") and hasattr(module, "original_max_seq_len")
    ]

    def forget(*_: Any) -> None:
        for module in modules:
            for name in [name for name in dir(module) if name.endswith(ORIGINAL)]:
                prefix, original = name.removesuffix(ORIGINAL), getattr(module, name)
                if isinstance(original, torch.Tensor):
                    setattr(module, f"{prefix}inv_freq", original.clone())
                    setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)

    network.register_forward_pre_hook(forget)
