"""Vectors by which head outputs are read as tokens: the unembedding, or input embeddings.

No part of the path from the last layer to the logits is known by name. The last linear map is the
model's output embedding; whatever lies before it is run as the logit lens runs it. A norm divides
by the length of its input, so that the response to a long vector along one dimension is a row of
the linear map behind the norm, the norm's gain and centring included. The scale of the norm at a
position follows from the response to the state of that position. If real states do not respond as
a linear map over a scale would, as in the transform of BERT's masked language-model head, the mean
derivative at real states takes the place of the map, and scales are 1.
"""

from dataclasses import dataclass
from typing import Any

import torch

from headbook.model.devices import read_parameter
from headbook.model.load import Model, word_embedding
from headbook.model.logit_lens import LogitLens
from headbook.model.output_projection import is_linear, matrix
from headbook.study.circuits import OutputSpace

LONG = 1e3  # length of a vector, beside which the constant in the divisor of a norm is nothing
ROWS_PER_PASS = 4096  # states that pass through the head at a time
ROWS_PER_CHECK = 64  # states whose logits are compared at a time
MAX_DERIVATIVE_STATES = 32  # real states at which a derivative is taken
STEP = 1e-2  # of a derivative, as a share of the root mean square of a state
MAX_ERROR = 0.02  # difference from the linear map, relative to the response, by rounding
NORMED_BLOCKS = (
    "Norms follow attention blocks (post-norm, or a norm of its own for each block): contributions "
    "leave out the gains and scales of the norms between a head and the last layer."
)
TRANSFORMED = (
    "The language-model head transforms states before the unembedding: contributions use the mean "
    "derivative of this transform."
)
RESCALED = (
    "Logits are scaled or capped after the unembedding: contributions are those before this step."
)


class _Reached(Exception):  # noqa: N818 - a signal, not a failure
    """The pass has reached the output embedding."""


@dataclass(frozen=True, eq=False)
class TokenDirections:
    """Linear map from the residual stream to one number for each token.

    Attributes:
        space: vectors that the map consists of.
        matrix: the map, centred over all entries. *Shape:* ``(width, entry)``.
        constant: centred logits of a state of 0; 0 for input embeddings. *Shape:* ``(entry,)``.
        transform: map from states to the input of the unembedding, up to a scale; None for input
            embeddings. *Shape:* ``(width, input width)``.
        offset: input of the unembedding for a state of 0. *Shape:* ``(input width,)``.
        scaled: whether responses to states have a scale by position.
        remarks: what is approximate, one sentence each.
    """

    space: OutputSpace
    matrix: torch.Tensor
    constant: torch.Tensor | float = 0.0
    transform: torch.Tensor | None = None
    offset: torch.Tensor | None = None
    scaled: bool = False
    remarks: tuple[str, ...] = ()

    def scale(self, lens: LogitLens, states: torch.Tensor) -> torch.Tensor:
        """Return the scale of the final norm at states of the last layer. *Shape:* ``(row,)``."""
        if not self.scaled or self.transform is None or self.offset is None:
            return torch.ones(len(states), device=states.device)
        return _scale(states.float(), _responses(lens, states) - self.offset, self.transform)


def token_directions(
    model: Model, lens: LogitLens | None, states: torch.Tensor
) -> TokenDirections | str:
    """Return the map that turns head outputs into tokens, or the reason why there is none.

    Args:
        model: the model.
        lens: language-model head; None without one.
        states: real states of the last layer. *Shape:* ``(row, width)``.
    """
    if lens is None:
        return _input_embeddings(model, states.shape[-1])
    module = _output_embedding(lens)
    if module is None:
        return "the output embedding of this architecture is not known"
    long = LONG * torch.eye(states.shape[-1], device=states.device)
    up, down = _responses(lens, long), _responses(lens, -long)
    transform, offset = (up - down) / 2, ((up + down) / 2).mean(0)
    response = _responses(lens, states) - offset
    predicted = states.float() @ transform
    predicted = predicted / _scale(states.float(), response, transform)[:, None]
    scaled = bool((predicted - response).norm() <= MAX_ERROR * response.norm())
    if not scaled:
        transform = _mean_derivative(lens, states[:MAX_DERIVATIVE_STATES].float())
    factor = _logit_factor(lens, module, states[:1])
    remarks = ((TRANSFORMED, not scaled), (RESCALED, factor is None))
    unembedding = matrix(module).to(states.device, torch.float32) * (factor or 1.0)
    directions, constant = transform @ unembedding.T, unembedding @ offset
    directions -= directions.mean(1, keepdim=True)
    bias = read_parameter(module, "bias")
    if bias is not None:
        constant += bias.to(constant) * (factor or 1.0)
    constant -= constant.mean()
    notes = tuple(remark for remark, applies in remarks if applies)
    space = OutputSpace.UNEMBEDDING
    return TokenDirections(space, directions, constant, transform, offset, scaled, notes)


def _input_embeddings(model: Model, width: int) -> TokenDirections | str:
    """Return the input embeddings, minus their mean, of unit length."""
    weight = word_embedding(model.base_model)
    if weight is None or weight.shape[1] != width or model.config.is_encoder_decoder:
        return "the model has neither an output vocabulary nor input embeddings of its states"
    words = weight[: len(model.tokenizer)].float().to(model.device)
    centred = torch.nn.functional.normalize(words - words.mean(0), dim=-1)
    return TokenDirections(OutputSpace.INPUT_EMBEDDINGS, centred.T.contiguous())


def _output_embedding(lens: LogitLens) -> Any:
    """Return the linear map that gives the logits, or None."""
    module = lens.model.network.get_output_embeddings()
    return module if module is not None and is_linear(module) else None


def _responses(lens: LogitLens, states: torch.Tensor) -> torch.Tensor:
    """Return the input of the unembedding for states of the last layer.

    *Shape:* ``(row, input width)``.
    """
    inputs: list[torch.Tensor] = []

    def stop(_: Any, args: tuple[torch.Tensor, ...]) -> None:
        inputs.append(args[0].flatten(0, -2).float())
        raise _Reached

    handle = _output_embedding(lens).register_forward_pre_hook(stop)
    try:
        for rows in states.split(ROWS_PER_PASS):
            try:
                lens.logits(rows)
            except _Reached:
                continue
    finally:
        handle.remove()
    return torch.cat(inputs)


def _scale(states: torch.Tensor, response: torch.Tensor, transform: torch.Tensor) -> torch.Tensor:
    """Return the number by which to divide ``states @ transform`` to get the response."""
    mapped = states @ transform
    return (mapped * mapped).sum(-1) / (mapped * response).sum(-1)


def _mean_derivative(lens: LogitLens, states: torch.Tensor) -> torch.Tensor:
    """Return the mean derivative of the input of the unembedding, by central differences.

    *Shape:* ``(width, input width)``.
    """
    total = torch.zeros(())
    for state in states:
        step = STEP * state.square().mean().sqrt()
        steps = step * torch.eye(len(state), device=state.device)
        change = _responses(lens, state + steps) - _responses(lens, state - steps)
        total = total.to(change) + change / (2 * step)
    return total / len(states)


def _logit_factor(lens: LogitLens, module: Any, states: torch.Tensor) -> float | None:
    """Return the factor from outputs of the unembedding to logits; None if it is not constant."""
    outputs: list[torch.Tensor] = []
    handle = module.register_forward_hook(lambda _, __, output: outputs.append(output))
    try:
        logits = lens.logits(torch.cat([states, -states]))
    finally:
        handle.remove()
    own = outputs[-1].flatten(0, -2).to(logits)
    change, own_change = logits[0] - logits[1], own[0] - own[1]
    factor = float((change * own_change).sum() / (own_change * own_change).sum())
    if (change - factor * own_change).norm() > MAX_ERROR * change.norm():
        return None
    return 1.0 if abs(factor - 1) < MAX_ERROR**2 else factor


def residual_sum_error(
    directions: TokenDirections, lens: LogitLens, parts: torch.Tensor, states: torch.Tensor
) -> float:
    """Return the largest difference between summed contributions and centred logits.

    Args:
        directions: map from the residual stream to tokens.
        lens: language-model head.
        parts: sum of the embedding and of the outputs of all heads and feed-forward blocks.
            *Shape:* ``(row, width)``.
        states: states of the last layer. *Shape:* ``(row, width)``.
    """
    largest = 0.0
    for part, state in zip(
        parts.float().split(ROWS_PER_CHECK), states.split(ROWS_PER_CHECK), strict=True
    ):
        logits = lens.logits(state).float()
        scale = directions.scale(lens, state)[:, None]
        summed = part @ directions.matrix / scale + directions.constant
        difference = summed - (logits - logits.mean(-1, keepdim=True))
        largest = max(largest, float(difference.abs().max()))
    return largest
