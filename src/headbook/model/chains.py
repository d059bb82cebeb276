"""Which modules hand on the states of tokens one to the next, seen in a pass."""

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import torch

from headbook.model.model import Model
from headbook.model.probe import run

Passed = dict[torch.nn.Module, list[tuple[Any, Any]]]  # what modules took and gave, call by call


def passed_in(model: Model, modules: Collection[torch.nn.Module]) -> Passed:
    """What modules take and give in one pass."""
    found: Passed = {}

    def see(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        taken = args[0] if args else kwargs.get("hidden_states")
        found.setdefault(module, []).append((taken, first(output)))

    hooks = [module.register_forward_hook(see, with_kwargs=True) for module in modules]
    try:
        run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def is_chain(layers: tuple[torch.nn.Module, ...], passed: Passed, length: int) -> bool:
    """Whether layers hand on states of so many tokens, one to the next."""
    if any(len(passed.get(m, ())) != layers.count(m) for m in layers):
        return False
    paths = {module: iter(passed[module]) for module in layers}
    steps = [next(paths[module]) for module in layers]
    whole = all(_is_state(states, length) for step in steps for states in step)
    return whole and all(torch.equal(one[1], other[0]) for one, other in pairwise(steps))


def _is_state(states: Any, length: int) -> bool:
    fits = isinstance(states, torch.Tensor) and states.ndim == 3
    return fits and tuple(states.shape[:2]) == (1, length)


def first(output: Any) -> torch.Tensor:
    """The hidden states in what a layer returns, alone or first of a tuple."""
    found: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
    return found
