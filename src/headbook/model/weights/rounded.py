"""A network whose weights are rounded to bfloat16 while it runs, module by module.

Only the weights of the module that runs are rounded, and they come back behind it, so that no
second network has to fit into memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

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
