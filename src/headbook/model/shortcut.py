"""A pass that leaves out a model's layers: states go in where they would have come out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from headbook.model.architecture import Architecture
from headbook.model.chains import first
from headbook.model.model import Model
from headbook.model.probe import run


class Slot(NamedTuple):
    """A layer's place in the network, and what it returns.

    Attributes:
        parent, key: the module that holds it, and by which name.
        parts: 0 where it returns its states alone, else how many things, states first.
        width: of its states.
    """

    parent: torch.nn.Module
    key: str
    layer: torch.nn.Module
    parts: int
    width: int


def slots_of(model: Model, architecture: Architecture) -> dict[str, list[Slot]]:
    """The places of all layers, by stack; what they return is seen in one pass."""
    seen: dict[torch.nn.Module, tuple[int, int]] = {}

    def see(module: torch.nn.Module, _: Any, output: Any) -> None:
        parts = 0 if isinstance(output, torch.Tensor) else len(output)
        seen[module] = parts, first(output).shape[-1]

    layers = {layer: name for name, each in architecture.layers.items() for layer in each}
    handles = [layer.register_forward_hook(see) for layer in layers]
    try:
        run(model)
    finally:
        for handle in handles:
            handle.remove()
    slots: dict[str, list[Slot]] = {name: [] for name in architecture.layers}
    for path, layer in model.network.named_modules(remove_duplicate=False):
        if layer in layers:
            holder, _, key = path.rpartition(".")
            parent = model.network.get_submodule(holder)
            slots[layers[layer]].append(Slot(parent, key, layer, *seen[layer]))
    return slots


class _HandsOn(torch.nn.Module):
    """Stands in for a layer: gives ``states``, or what it takes, and computes nothing.

    Hooks of the layer stay with the layer: nobody who watches it sees this pass.
    """

    def __init__(self, slot: Slot, states: torch.Tensor | None) -> None:
        super().__init__()
        self.slot, self.states = slot, states

    def __getattr__(self, name: str) -> Any:
        """What a model asks of its layers beside calling them."""
        return getattr(self.__dict__["slot"].layer, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Hand on."""
        taken = args[0] if args else kwargs["hidden_states"]
        given = taken if self.states is None else self.states
        parts = self.slot.parts
        return (given, *[None] * (parts - 1)) if parts else given


@contextmanager
def handing_on(slots: Sequence[Slot], states: torch.Tensor | None = None) -> Iterator[None]:
    """Let layers hand on ``states``, or what they take."""
    for slot in slots:
        setattr(slot.parent, slot.key, _HandsOn(slot, states))
    try:
        yield
    finally:
        for slot in slots:
            setattr(slot.parent, slot.key, slot.layer)


def width_of(model: Model, architecture: Architecture) -> int:
    """The width of the states of a model's layers; the largest, where stacks differ."""
    return max(slot.width for slots in slots_of(model, architecture).values() for slot in slots)
