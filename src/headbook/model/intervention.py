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
    forms: dict[torch.nn.Module, tuple[int, int]] = {}

    def record(module: torch.nn.Module, _: Any, output: Any) -> None:
        parts = 0 if isinstance(output, torch.Tensor) else len(output)
        forms[module] = parts, hidden_states_of(output).shape[-1]

    layers = {
        layer: name for name, stack_layers in architecture.layers.items() for layer in stack_layers
    }
    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        probe_pass(model)
    finally:
        for handle in handles:
            handle.remove()
    slots: dict[str, list[LayerSlot]] = {name: [] for name in architecture.layers}
    for path, layer in model.network.named_modules(remove_duplicate=False):
        if layer in layers:
            parent_path, _, key = path.rpartition(".")
            parent = model.network.get_submodule(parent_path)
            slots[layers[layer]].append(LayerSlot(parent, key, layer, *forms[layer]))
    return slots


class _SkippedLayer(torch.nn.Module):
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
        input_states = args[0] if args else kwargs["hidden_states"]
        states_out = input_states if self.states is None else self.states
        n_parts = self.slot.parts
        return (states_out, *[None] * (n_parts - 1)) if n_parts else states_out


@contextmanager
def skip_layers(slots: Sequence[LayerSlot], states: torch.Tensor | None = None) -> Iterator[None]:
    """Replace layers inside the block: they return ``states``, or their input if it is None."""
    for slot in slots:
        setattr(slot.parent, slot.key, _SkippedLayer(slot, states))
    try:
        yield
    finally:
        for slot in slots:
            setattr(slot.parent, slot.key, slot.layer)


def state_width(model: Model, architecture: Architecture) -> int:
    """Return the width of the states of a model's layers; the largest if stacks differ."""
    return max(slot.width for slots in layer_slots(model, architecture).values() for slot in slots)


# Largest difference of a pass that starts at a later layer from the whole pass, relative to the
# largest value.
MAX_RELATIVE_ERROR = 1e-4

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
        is_replaced = self.heads.get(place)
        if is_replaced is None:
            return None
        assert attention.output is not None
        replacement = self.replacement(place, attention).to(attention.output)
        return torch.where(is_replaced[:, None, :, None], replacement, attention.output)


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
        outputs: list[torch.Tensor] = []
        last_layer = self.architecture.layers[self.read][-1]
        with ExitStack() as hooks:
            calls = self.architecture.calls
            if states is not None and self.slots:
                calls = hooks.enter_context(self._later(ablation, states))
            handle = last_layer.register_forward_hook(
                lambda _, __, output: outputs.append(hidden_states_of(output))
            )
            hooks.callback(handle.remove)
            run_forward(
                self.model, self.architecture, batch, ablation.output, calls=calls, replacing=True
            )
        return outputs[-1]

    def states(self, batch: Batch) -> "LayerStates":
        """Return the outputs of all layers in a pass without ablation."""
        by_stack = {name: [] for name in self.architecture.layers}  # type: dict[str, list[torch.Tensor]]
        with ExitStack() as hooks, torch.inference_mode():
            for name, layers in self.architecture.layers.items():
                for layer in dict.fromkeys(layers):
                    keeper = _state_keeper(by_stack[name])
                    hooks.callback(layer.register_forward_hook(keeper).remove)
            self.model.base_model(**model_inputs(batch))
        return LayerStates(by_stack)

    @contextmanager
    def _later(
        self, ablation: HeadAblation, states: "LayerStates"
    ) -> Iterator[tuple[AttentionPlace, ...]]:
        """Replace all layers below the first ablated one by stored states.

        Yields the attention calls that remain.
        """
        skipped = self._skipped(ablation)
        with ExitStack() as replaced:
            for stack, n_skipped in skipped.items():
                if n_skipped:
                    stored = states.after[stack][n_skipped - 1]
                    replaced.enter_context(skip_layers(self.slots[stack][:n_skipped], stored))
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
            {
                name: [states.repeat(times, 1, 1) for states in layers]
                for name, layers in self.after.items()
            }
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
    if _differ_in_heads(model, architecture, batch):
        raise ModelError(
            f"model '{model.name}': its layers differ in their number of heads; its heads cannot "
            "be replaced"
        )
    shares_layers = any(len({*layers}) < len(layers) for layers in architecture.layers.values())
    unskipped = PatchableModel(model, architecture, {})
    skipping = PatchableModel(
        model, architecture, {} if shares_layers else layer_slots(model, architecture)
    )
    return (
        skipping
        if not shares_layers and _skipping_agrees(unskipped, skipping, batch)
        else unskipped
    )


def _differ_in_heads(model: Model, architecture: Architecture, batch: Batch) -> bool:
    """Whether layers of a stack differ in their number of heads."""
    head_counts: set[tuple[str, int]] = set()
    run_forward(
        model,
        architecture,
        batch,
        lambda place, attention: head_counts.add((place.stack, attention.weights.shape[1])),
    )
    return len(head_counts) > len(architecture.stacks)


def _skipping_agrees(unskipped: PatchableModel, skipping: PatchableModel, batch: Batch) -> bool:
    """Whether passes that start at any layer give the result of the whole pass."""
    states = unskipped.states(batch)
    expected = states.after[unskipped.read][-1]
    for call in unskipped.architecture.calls:
        no_heads = torch.zeros(len(expected), 1, dtype=torch.bool, device=expected.device)
        unchanged = HeadAblation({call: no_heads}, lambda _, attention: _output(attention))
        try:
            output = skipping.run(batch, unchanged, states)
        except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
            return False
        valid = batch.texts[unskipped.architecture.stacks[unskipped.read].queries].valid
        if (output - expected)[valid].abs().max() > MAX_RELATIVE_ERROR * expected[
            valid
        ].abs().max():
            return False
    return True


def _output(attention: attention_hook.AttentionCall) -> torch.Tensor:
    assert attention.output is not None
    return attention.output


def _state_keeper(outputs: list[torch.Tensor]) -> Callable[[Any, Any, Any], None]:
    def keep(_: Any, __: Any, output: Any) -> None:
        outputs.append(hidden_states_of(output))

    return keep
