"""Forward passes with replaced head outputs, started at the first layer that changes.

A head's output is replaced before the output projection, inside the attention hook, row by row of
the batch: the block's output changes by exactly (r - z) W_O of these heads, and nothing else in the
layer changes. Passes may start at a later layer, with the states of an earlier pass.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from headbook.errors import ModelError
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.forward import model_inputs, run_forward
from headbook.model.load import Model
from headbook.model.probe import hidden_states_of, probe_pass
from headbook.text.batch import Batch


class LayerSlot(NamedTuple):
    """Position of a layer in the network, with the form of its output.

    Attributes:
        parent, key: module that contains the layer, and the layer's name in it.
        layer: the layer.
        parts: 0 if the layer returns only its states, else the length of the returned tuple, whose
            first element are the states.
        width: width of the states.
    """

    parent: torch.nn.Module
    key: str
    layer: torch.nn.Module
    parts: int
    width: int


def layer_slots(model: Model, architecture: Architecture) -> dict[str, list[LayerSlot]]:
    """Return the positions of all layers by stack; one pass shows what they return."""
    seen: dict[torch.nn.Module, tuple[int, int]] = {}

    def see(module: torch.nn.Module, _: Any, output: Any) -> None:
        parts = 0 if isinstance(output, torch.Tensor) else len(output)
        seen[module] = parts, hidden_states_of(output).shape[-1]

    layers = {layer: name for name, each in architecture.layers.items() for layer in each}
    handles = [layer.register_forward_hook(see) for layer in layers]
    try:
        probe_pass(model)
    finally:
        for handle in handles:
            handle.remove()
    slots: dict[str, list[LayerSlot]] = {name: [] for name in architecture.layers}
    for path, layer in model.network.named_modules(remove_duplicate=False):
        if layer in layers:
            holder, _, key = path.rpartition(".")
            parent = model.network.get_submodule(holder)
            slots[layers[layer]].append(LayerSlot(parent, key, layer, *seen[layer]))
    return slots


class _HandsOn(torch.nn.Module):
    """Replacement of a layer that returns ``states``, or its input, and computes nothing.

    Hooks of the layer stay on the layer, so that observers do not see this pass.
    """

    def __init__(self, slot: LayerSlot, states: torch.Tensor | None) -> None:
        super().__init__()
        self.slot, self.states = slot, states

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the replaced layer."""
        return getattr(self.__dict__["slot"].layer, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the states, in the form in which the layer returns them."""
        taken = args[0] if args else kwargs["hidden_states"]
        given = taken if self.states is None else self.states
        parts = self.slot.parts
        return (given, *[None] * (parts - 1)) if parts else given


@contextmanager
def skip_layers(slots: Sequence[LayerSlot], states: torch.Tensor | None = None) -> Iterator[None]:
    """Let layers return ``states``, or their input, inside the block."""
    for slot in slots:
        setattr(slot.parent, slot.key, _HandsOn(slot, states))
    try:
        yield
    finally:
        for slot in slots:
            setattr(slot.parent, slot.key, slot.layer)


def state_width(model: Model, architecture: Architecture) -> int:
    """Return the width of the states of a model's layers; the largest if stacks differ."""
    return max(slot.width for slots in layer_slots(model, architecture).values() for slot in slots)


SAME = 1e-4  # largest difference, over the largest value, of a pass that starts at a later layer

ReplaceOutput = Callable[[AttentionPlace, attention_hook.AttentionCall], torch.Tensor]


@dataclass(frozen=True, eq=False)
class HeadAblation:
    """Heads whose outputs are replaced, with their replacement.

    Attributes:
        heads: by place, whether a head is replaced in a row. *Shape:* ``(row, head)``, boolean.
        replacement: function that returns the new outputs. *Shape:* ``(row, query, head,
            width)``.
    """

    heads: Mapping[AttentionPlace, torch.Tensor]
    replacement: ReplaceOutput

    def output(
        self, place: AttentionPlace, attention: attention_hook.AttentionCall
    ) -> torch.Tensor | None:
        """Return the outputs of a layer's heads, or None if they are unchanged."""
        chosen = self.heads.get(place)
        if chosen is None:
            return None
        assert attention.output is not None
        given = self.replacement(place, attention).to(attention.output)
        return torch.where(chosen[:, None, :, None], given, attention.output)


@dataclass(frozen=True, eq=False)
class PatchableModel:
    """Model whose head outputs can be replaced.

    Attributes:
        model: the model.
        architecture: the model's architecture.
        slots: positions of layers by stack, at which passes can start; empty if passes must
            run all layers.
    """

    model: Model
    architecture: Architecture
    slots: Mapping[str, Sequence[LayerSlot]]

    @property
    def read(self) -> str:
        """Stack whose last states are the model's output."""
        return "decoder" if "decoder" in self.architecture.layers else "self"

    def run(
        self, batch: Batch, ablation: HeadAblation, states: "LayerStates | None" = None
    ) -> torch.Tensor:
        """Return the output of the last layer. *Shape:* ``(row, token, width)``.

        Args:
            batch: batch whose rows are sentences, or copies of one.
            ablation: heads and their replacement.
            states: states of a pass without ablation over the same rows; layers below the first
                ablated one are then skipped.
        """
        left: list[torch.Tensor] = []
        last = self.architecture.layers[self.read][-1]
        with ExitStack() as around:
            calls = self.architecture.calls
            if states is not None and self.slots:
                calls = around.enter_context(self._later(ablation, states))
            handle = last.register_forward_hook(
                lambda _, __, output: left.append(hidden_states_of(output))
            )
            around.callback(handle.remove)
            run_forward(
                self.model, self.architecture, batch, ablation.output, calls=calls, replacing=True
            )
        return left[-1]

    def states(self, batch: Batch) -> "LayerStates":
        """Return the outputs of all layers in a pass without ablation."""
        found = {name: [] for name in self.architecture.layers}  # type: dict[str, list[torch.Tensor]]
        with ExitStack() as hooks, torch.inference_mode():
            for name, layers in self.architecture.layers.items():
                for layer in dict.fromkeys(layers):
                    keep = _keeper(found[name])
                    hooks.callback(layer.register_forward_hook(keep).remove)
            self.model.base_model(**model_inputs(batch))
        return LayerStates(found)

    @contextmanager
    def _later(
        self, ablation: HeadAblation, states: "LayerStates"
    ) -> Iterator[tuple[AttentionPlace, ...]]:
        """Replace all layers below the first ablated one by stored states.

        Yields the attention calls that remain.
        """
        skipped = self._skipped(ablation)
        with ExitStack() as around:
            for stack, number in skipped.items():
                if number:
                    given = states.after[stack][number - 1]
                    around.enter_context(skip_layers(self.slots[stack][:number], given))
            yield tuple(
                call
                for call in self.architecture.calls
                if call.layer >= skipped["decoder" if call.stack == "cross" else call.stack]
            )

    def _skipped(self, ablation: HeadAblation) -> dict[str, int]:
        """Return the number of layers below the first ablated one, by stack."""
        lowest = {name: len(slots) for name, slots in self.slots.items()}
        for head in ablation.heads:
            stack = "decoder" if head.stack == "cross" else head.stack
            lowest[stack] = min(lowest[stack], head.layer)
        if "encoder" in lowest and lowest["encoder"] < len(self.slots["encoder"]):
            lowest["decoder"] = 0  # every layer of the decoder reads the encoder's output
        return lowest


@dataclass(frozen=True, eq=False)
class LayerStates:
    """Outputs of the layers of a pass.

    Attributes:
        after: by stack, output of each layer. *Shape:* ``(row, token, width)``.
    """

    after: Mapping[str, Sequence[torch.Tensor]]

    def repeated(self, times: int) -> "LayerStates":
        """Return the states for a batch repeated a number of times."""
        return LayerStates(
            {n: [s.repeat(times, 1, 1) for s in each] for n, each in self.after.items()}
        )


def make_patchable(model: Model, architecture: Architecture, batch: Batch) -> PatchableModel:
    """Return a model whose head outputs can be replaced.

    Args:
        batch: batch for a test whether passes can start at later layers. They cannot if the first
            layer passes on more than states (T5's position bias), or if layers share weights.

    Raises:
        ModelError: heads of this model cannot be replaced.
    """
    if not architecture.hooked:
        raise ModelError(
            f"model '{model.name}': {architecture.unhooked}; its heads cannot be replaced"
        )
    if not architecture.layers:
        raise ModelError(
            f"model '{model.name}': its layers do not hand on one vector a token; its heads cannot "
            "be replaced"
        )
    if _uneven(model, architecture, batch):
        raise ModelError(
            f"model '{model.name}': its layers differ in their number of heads; its heads cannot "
            "be replaced"
        )
    shared = any(len({*layers}) < len(layers) for layers in architecture.layers.values())
    whole = PatchableModel(model, architecture, {})
    later = PatchableModel(model, architecture, {} if shared else layer_slots(model, architecture))
    return later if not shared and _agree(whole, later, batch) else whole


def _uneven(model: Model, architecture: Architecture, batch: Batch) -> bool:
    """Whether layers of a stack differ in their number of heads."""
    found: set[tuple[str, int]] = set()
    run_forward(
        model,
        architecture,
        batch,
        lambda place, seen: found.add((place.stack, seen.weights.shape[1])),
    )
    return len(found) > len(architecture.stacks)


def _agree(whole: PatchableModel, later: PatchableModel, batch: Batch) -> bool:
    """Whether passes that start at any layer give the result of the whole pass."""
    states = whole.states(batch)
    expected = states.after[whole.read][-1]
    for call in whole.architecture.calls:
        none = torch.zeros(len(expected), 1, dtype=torch.bool, device=expected.device)
        itself = HeadAblation({call: none}, lambda _, attention: _output(attention))
        try:
            found = later.run(batch, itself, states)
        except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
            return False
        valid = batch.texts[whole.architecture.stacks[whole.read].queries].valid
        if (found - expected)[valid].abs().max() > SAME * expected[valid].abs().max():
            return False
    return True


def _output(attention: attention_hook.AttentionCall) -> torch.Tensor:
    assert attention.output is not None
    return attention.output


def _keeper(found: list[torch.Tensor]) -> Callable[[Any, Any, Any], None]:
    def keep(_: Any, __: Any, output: Any) -> None:
        found.append(hidden_states_of(output))

    return keep
