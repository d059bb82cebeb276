r"""Forward passes over a batch that yield attention layer by layer and residual states.

Tensors are passed to callbacks while the pass runs and are not kept; hooks are removed in
``finally``.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from headbook.errors import ModelError
from headbook.model import attention_hook
from headbook.model.architecture import OUTPUT_FIELDS, Architecture, AttentionPlace
from headbook.model.block_match import ResidualAddition, first_states
from headbook.model.load import Model
from headbook.model.output_projection import gate_factor
from headbook.model.probe import TYPES_ARGUMENT, hidden_states_of, model_errors
from headbook.schema import AttentionStack, ResidualPoint, Side
from headbook.text.batch import Batch

OnAttention = Callable[[AttentionPlace, attention_hook.AttentionCall], torch.Tensor | None]
OnState = Callable[[str, int, ResidualPoint, torch.Tensor], None]


def run_forward(
    model: Model,
    architecture: Architecture,
    batch: Batch,
    on_attention: OnAttention | None = None,
    *,
    calls: Iterable[AttentionPlace] | None = None,
    replacing: bool = False,
) -> Any:
    """Run the model over a batch.

    Args:
        on_attention: function of each attention call with its place, called during the pass (after
            the pass for models without hook).
        calls: attention calls of the pass; all by default.
        replacing: whether a tensor that ``on_attention`` returns replaces the head outputs (not
            for models without hook). The calls then have no factors of gates, which models may
            compute later.

    Returns:
        The model's output.

    Raises:
        ModelError: the model makes other attention calls than in the probe.
    """
    places = iter(architecture.calls if calls is None else calls)
    with torch.inference_mode():
        if on_attention is None:
            return model.base_model(**model_inputs(batch))
        if not architecture.hooked:
            return _run_with_returned_weights(model, architecture, batch, on_attention, places)
        gated_calls = _GatedCalls(on_attention, model)

        def observer(attention: attention_hook.AttentionCall) -> torch.Tensor | None:
            call = next(places, None)
            if call is None:
                raise ModelError(
                    f"model '{model.name}': '{model.config.model_type}' calls its attention "
                    "more often for some texts than for others; expected the same calls in "
                    "every pass (shorter texts may help: --max-length)"
                )
            stack = architecture.stacks[call.stack]
            check_shape(model, stack, call, attention.weights, batch)
            projection = architecture.ends.projections.get((call.stack, call.layer))
            seen = replace(attention, projection=projection)
            if replacing:
                return on_attention(call, seen)
            gated_calls.tell(call, seen)
            return None

        with attention_hook.observing(observer), gated_calls.watching(architecture):
            return model.base_model(**model_inputs(batch))


def _run_with_returned_weights(
    model: Model,
    architecture: Architecture,
    batch: Batch,
    on_attention: OnAttention,
    places: Iterable[AttentionPlace],
) -> Any:
    """Run a model without hook, and pass on the weights that it returns; return its output."""
    with model_errors(model):
        output = model.base_model(**model_inputs(batch), output_attentions=True)
    by_stack = {name: iter(returned_attentions(output, name)) for name in architecture.stacks}
    for call in places:
        weights = next(by_stack[call.stack])
        check_shape(model, architecture.stacks[call.stack], call, weights, batch)
        on_attention(
            call, attention_hook.AttentionCall(None, None, None, None, None, weights, None)
        )
    return output


class _GatedCalls:
    """Attention calls on their way to a callback; gated calls wait until their projection begins.

    The input of the output projection gives the factors of the gate.
    """

    def __init__(self, on_attention: OnAttention, model: Model) -> None:
        self._on_attention, self._model = on_attention, model
        self._waiting: tuple[AttentionPlace, attention_hook.AttentionCall] | None = None

    @contextmanager
    def watching(self, architecture: Architecture) -> Iterator[None]:
        """Observe the output projections behind gates inside the block."""
        ends = architecture.ends.projections.values()
        with ExitStack() as hooks:
            for module in {end.module: None for end in ends if end.gated}:
                hooks.callback(module.register_forward_pre_hook(self._begin).remove)
            yield
        self._check()

    def tell(self, call: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
        """Pass on a call, or store it until its output projection begins."""
        self._check()
        if attention.projection is None or not attention.projection.gated:
            self._on_attention(call, attention)
            return
        assert attention.output is not None
        # A copy: gates may work in place.
        self._waiting = call, replace(attention, output=attention.output.clone())

    def _begin(self, _: Any, args: tuple[Any, ...]) -> None:
        if self._waiting is not None:
            (call, attention), self._waiting = self._waiting, None
            assert attention.output is not None
            factor = gate_factor(attention.output, args[0])
            self._on_attention(call, replace(attention, factor=factor))

    def _check(self) -> None:
        """Raise an error if a stored call was never passed on.

        Raises:
            ModelError: the output projection of a call did not run.
        """
        if self._waiting is not None:
            call, kind = self._waiting[0], self._model.config.model_type
            raise ModelError(
                f"model '{self._model.name}': '{kind}' leaves out the output projection of stack "
                f"{call.stack}, layer {call.layer} for some texts; expected the same in every pass"
            )


def check_shape(
    model: Model, stack: AttentionStack, place: AttentionPlace, weights: Any, batch: Batch
) -> None:
    """Raise an error unless weights have one number for each query and key of a batch.

    Models may attend to longer texts in another way than to those of the probe.

    Raises:
        ModelError: there is not one weight for each query and key.
    """
    queries, keys = (batch.texts[side].ids.shape for side in (stack.queries, stack.keys))
    shape = tuple(weights.shape)
    if len(shape) != 4 or (shape[0], *shape[2:]) != (*queries, keys[1]):
        raise ModelError(
            f"model '{model.name}': stack {stack.name}, layer {place.layer} gives weights of shape "
            f"{shape} for {queries[1]} queries and {keys[1]} keys; expected one for each query and "
            f"key: '{model.config.model_type}' attends in another way, which Headbook cannot show "
            "(shorter texts may help: --max-length)"
        )


def returned_attentions(output: Any, stack: str) -> list[torch.Tensor]:
    """Return the attention weights in a model's output, for layers that have some."""
    return [
        weights
        for weights in getattr(output, OUTPUT_FIELDS[stack], None) or ()
        if weights is not None
    ]


def model_inputs(batch: Batch) -> dict[str, torch.Tensor]:
    """Return a batch as the model's arguments."""
    names = {
        Side.SOURCE: ("input_ids", "attention_mask"),
        Side.TARGET: ("decoder_input_ids", "decoder_attention_mask"),
    }
    inputs: dict[str, torch.Tensor] = {}
    for side, texts in batch.texts.items():
        ids, mask = names[side]
        inputs |= {ids: texts.ids, mask: texts.valid.long()}
    if batch.texts[Side.SOURCE].types.any():
        inputs[TYPES_ARGUMENT] = batch.texts[Side.SOURCE].types
    return inputs


@contextmanager
def observe_states(model: Model, architecture: Architecture, on_state: OnState) -> Iterator[None]:
    """Show the residual states of every pass inside the block.

    ``on_state`` is called with stack, layer, point and vectors ``(sentence, token, width)``: the
    input once for each stack, then ``mid`` (if it was found) and ``out`` of each layer. Stack
    ``cross`` has only a ``mid``, the decoder's state after cross-attention.
    """
    with ExitStack() as hooks:
        for name, layers in architecture.layers.items():
            tap = _Tap(name, architecture, on_state)
            for module in dict.fromkeys(layers):
                for handle in tap.attach(module):
                    hooks.callback(handle.remove)
        yield


class _Tap:
    """Hooks on the layers of one stack; counts layers, since modules may be shared."""

    def __init__(self, stack: str, architecture: Architecture, on_state: OnState) -> None:
        self._stack, self._layers = stack, architecture.layers[stack]
        self._sites, self._on_state = architecture.ends.sites, on_state
        self._layer = -1
        self._input = torch.empty(0)
        self._mid: torch.Tensor | None = None

    def attach(self, layer: torch.nn.Module) -> Iterator[Any]:
        """Register the hooks of one layer module, and yield their handles."""
        yield layer.register_forward_pre_hook(self._enter, with_kwargs=True)
        yield layer.register_forward_hook(self._leave)
        for name in self._stacks:
            site = self._sites.get((name, self._layers.index(layer)))
            if site is None:
                continue
            if site.after is None:
                block = layer.get_submodule(site.block)
                yield block.register_forward_hook(self._beside(site))
            else:
                after = layer.get_submodule(site.after)
                yield after.register_forward_pre_hook(self._read(name), with_kwargs=True)

    @property
    def _stacks(self) -> tuple[str, ...]:
        """Stacks in these layers: cross-attention is in the decoder's layers."""
        return (self._stack, "cross") if self._stack == "decoder" else (self._stack,)

    def _enter(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._input = args[0] if args else kwargs["hidden_states"]
        self._layer = (self._layer + 1) % len(self._layers)
        if self._layer == 0:
            stacks_with_mid = {name for name, _ in self._sites}
            for stack in (self._stack, *(s for s in self._stacks[1:] if s in stacks_with_mid)):
                self._on_state(stack, 0, ResidualPoint.PRE, self._input)

    def _leave(self, _: Any, __: Any, output: Any) -> None:
        if self._mid is not None:
            self._on_state(self._stack, self._layer, ResidualPoint.MID, self._mid)
            self._mid = None
        self._on_state(self._stack, self._layer, ResidualPoint.POST, hidden_states_of(output))

    def _beside(self, site: ResidualAddition) -> Callable[[Any, Any, Any], None]:
        def keep(_: Any, __: Any, output: Any) -> None:
            self._mid = site.total(self._input, hidden_states_of(output))

        return keep

    def _read(self, stack: str) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], None]:
        def see(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # Some layers flatten sentences and tokens before their second half.
            states = first_states((args, kwargs))
            assert states is not None
            self._on_state(stack, self._layer, ResidualPoint.MID, states.reshape(self._input.shape))

        return see
