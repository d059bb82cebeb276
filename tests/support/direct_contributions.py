"""Head outputs from the factors of circuits, and the logits that they and all other parts make."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from headbook.circuits.weights import StackWeights
from headbook.model import attention_hook
from headbook.model.architecture import AttentionPlace
from headbook.model.forward import model_inputs
from headbook.model.probe import hidden_states_of
from headbook.text.batch import Batch


def direct_contribution_error(weights: StackWeights, batch: Batch) -> float:
    """Return the largest error of the sum of direct contributions to the centred logits.

    The residual stream that enters layer 0, what each layer's heads add, and what the rest of each
    layer adds, divided by the final norm's scale and times the unembedding, must be the model's
    logits minus their mean, for every token of the first sentence. The heads' outputs must follow
    from the factors W_V, up to one vector for each head (biases).

    Returns:
        The largest difference, relative to the largest number; NaN if the head is not linear.
    """
    unembedding = weights.unembedding
    if unembedding.remark:
        return float("nan")
    sentence = Batch.of(batch.items[:1], weights.model.device)
    side = "decoder" if weights.stack == "cross" else weights.stack
    entered, left, attention = [], [], []  # type: ignore[var-annotated]
    with ExitStack() as hooks, torch.inference_mode():
        for module in dict.fromkeys(weights.architecture.layers[side]):
            handle = module.register_forward_hook(_keep(entered, left), with_kwargs=True)
            hooks.callback(handle.remove)
        hooks.enter_context(attention_hook.observing(attention.append))
        logits = weights.model.network(**model_inputs(sentence)).logits[0].cpu().double()
    total, errors = entered[0], []
    calls = dict(zip(weights.architecture.calls, attention, strict=True))
    for layer, (before, after) in enumerate(zip(entered, left, strict=True)):
        heads = torch.zeros_like(before)
        if layer in weights.layers:
            call = calls[AttentionPlace(weights.stack, layer)]
            heads, error = _head_contributions(weights, layer, call, before)
            errors.append(error)
        total = total + heads + (after - before - heads)
    sums = (total / unembedding.scale(left[-1])) @ unembedding.columns.double()
    expected = logits - logits.mean(-1, keepdim=True)
    difference = (sums + unembedding.bias.double() - expected).abs().max()
    return max(float(difference / expected.abs().max()), *errors)


def _head_contributions(
    weights: StackWeights, layer: int, call: attention_hook.AttentionCall, states: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Return what a layer's heads add, and the error of head outputs by the factors W_V."""
    assert call.output is not None
    factors, output = weights.factors(layer), call.output[0].cpu().double()
    heads = torch.einsum("qhe,hed->qd", output, factors.output.double())
    if weights.crosses:
        return heads, 0.0
    values = weights.read_states(layer, states) @ factors.value.double()
    attention = call.weights[0].cpu().double()
    differences = output - (attention @ values).transpose(0, 1)
    sums = attention.sum(-1).T.unsqueeze(-1)  # below 1 if a learned sink receives attention
    differences = differences - sums * (sums * differences).sum(0) / sums.square().sum(0)
    return heads, float(differences.abs().max() / output.abs().max())


def _keep(entered: list[torch.Tensor], left: list[torch.Tensor]) -> Callable[..., None]:
    def keep(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        states = args[0] if args else kwargs["hidden_states"]
        entered.append(states[0].cpu().double())
        left.append(hidden_states_of(output)[0].cpu().double())

    return keep
