"""Probing passes over a few tokens, and tests which modules pass token states to the next."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from headbook.errors import HeadbookError, ModelError
from headbook.model import attention_hook
from headbook.model.load import Model
from headbook.model.tokens.special import reserved_ids
from headbook.schema import Side

# Number of tokens by side; they differ, so that shapes identify the stacks of encoder-decoders.
PROBE_TOKENS = {Side.SOURCE: 3, Side.TARGET: 5}
TYPES_ARGUMENT = "token_type_ids"  # argument that tells the texts of a pair apart
N_VARIED_TEXTS = 4  # texts with different tokens, run in one batch


@contextmanager
def model_errors(model: Model) -> Iterator[None]:
    """Turn errors of the model's own code inside the block into errors of one line.

    Raises:
        ModelError: the model's code failed; the message gives its type and the first line.
    """
    try:
        yield
    except (HeadbookError, attention_hook.NoEagerAttention, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        lines = (str(error).strip() or type(error).__name__).splitlines()
        windows = [n for n, v in vars(model.config).items() if n.endswith("window") and v == 0]
        cause = (
            f"; its configuration has {windows[0]} = 0, a window without keys" if windows else ""
        )
        raise ModelError(
            f"model '{model.name}': its own code ('{model.config.model_type}') fails on text alone "
            f"({type(error).__name__}: {lines[0].rstrip('.')}{cause}); expected a model that takes "
            "token ids and a mask, and nothing else"
        ) from error


def some_token(model: Model, number: int = 0) -> int:
    """Return an ordinary token of the vocabulary; different numbers give different tokens."""
    reserved = reserved_ids(model)
    return [entry for entry in range(len(reserved) + 1 + number) if entry not in reserved][number]


def probe_pass(model: Model, *, number: int = 0, whole: bool = False, **extra: Any) -> Any:
    """Run one pass over a few ordinary tokens, and return the model's output.

    Args:
        number: number of the repeated token.
        whole: whether to run the language-model head, too.
    """
    token = some_token(model, number)
    tokens = torch.full((1, PROBE_TOKENS[Side.TARGET]), token, device=model.device)
    inputs = {"input_ids": tokens[:, : PROBE_TOKENS[Side.SOURCE]]}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    with model_errors(model), torch.inference_mode():
        return (model.network if whole else model.base_model)(**inputs, **extra)


def varied_texts(model: Model) -> dict[str, torch.Tensor]:
    """Return texts with different tokens at each position, as the model's arguments."""
    ids = torch.tensor([some_token(model, number) for number in range(2 * N_VARIED_TEXTS)])
    positions = torch.arange(N_VARIED_TEXTS)[:, None] + torch.arange(PROBE_TOKENS[Side.TARGET])
    tokens = ids[positions % len(ids)].to(model.device)
    inputs = {"input_ids": tokens[:, : PROBE_TOKENS[Side.SOURCE]]}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    return inputs


Passed = dict[torch.nn.Module, list[tuple[Any, Any]]]  # input and output of each call
Bridges = Sequence[tuple[tuple[torch.Tensor, ...], torch.Tensor]]  # inputs and output of each call


def inputs_and_outputs(model: Model, modules: Collection[torch.nn.Module]) -> Passed:
    """Return inputs and outputs of modules in one pass."""
    passed: Passed = {}

    def record(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        input_states = args[0] if args else kwargs.get("hidden_states")
        passed.setdefault(module, []).append((input_states, hidden_states_of(output)))

    handles = [module.register_forward_hook(record, with_kwargs=True) for module in modules]
    try:
        probe_pass(model)
    finally:
        for handle in handles:
            handle.remove()
    return passed


def pass_states_on(
    layers: tuple[torch.nn.Module, ...], passed: Passed, length: int, bridges: Bridges = ()
) -> bool:
    """Whether each layer passes states of ``length`` tokens to the next, or through one module.

    Args:
        bridges: calls of modules outside the layers.
    """
    if any(len(passed.get(layer, ())) != layers.count(layer) for layer in layers):
        return False
    calls = {module: iter(passed[module]) for module in layers}
    steps = [next(calls[module]) for module in layers]
    return all(_is_state(states, length) for step in steps for states in step) and all(
        torch.equal(output, following) or _is_bridged(output, following, bridges)
        for (_, output), (following, _) in pairwise(steps)
    )


def bridges_of(model: Model, layers: Collection[torch.nn.Module]) -> Bridges:
    """Return the calls of modules outside the layers in one pass, such as a convolution."""
    inside = {module for layer in layers for module in layer.modules()}
    bridges: list[tuple[tuple[torch.Tensor, ...], torch.Tensor]] = []

    def record(_: Any, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            tensors = tuple(value for value in args if isinstance(value, torch.Tensor))
            bridges.append((tensors, output))

    outside = [module for module in model.base_model.modules() if module not in inside]
    handles = [module.register_forward_hook(record) for module in outside]
    try:
        probe_pass(model)
    finally:
        for handle in handles:
            handle.remove()
    return bridges


def _is_bridged(output: torch.Tensor, following: torch.Tensor, bridges: Bridges) -> bool:
    """Whether a module outside the layers maps one layer's output to the next one's input."""
    return any(
        torch.equal(result, following) and any(torch.equal(tensor, output) for tensor in tensors)
        for tensors, result in bridges
    )


def _is_state(states: Any, length: int) -> bool:
    is_3d = isinstance(states, torch.Tensor) and states.ndim == 3
    return is_3d and tuple(states.shape[:2]) == (1, length)


def hidden_states_of(output: Any) -> torch.Tensor:
    """Return the hidden states of a layer's output, a tensor or the first of a tuple."""
    states: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
    return states
