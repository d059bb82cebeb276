"""Vectors by which head outputs are read as tokens: the unembedding, or input embeddings."""

from dataclasses import dataclass

import torch

from headbook.circuits.unembedding import Unembedding, find_unembedding
from headbook.model.load import Model, word_embedding
from headbook.model.logit_lens import LogitLens
from headbook.passes.self_checks import HALF_PRECISION_TOLERANCE, TOLERANCES
from headbook.study.circuits import OutputSpace

ROWS_PER_CHECK = 64  # states whose logits are compared at a time
TOLERANCE = 1e-3  # of summed contributions in single precision, relative to the largest logit
MAX_ERROR = 0.02  # difference of a block's output from its heads, relative to its length


@dataclass(frozen=True, eq=False)
class TokenDirections:
    """Linear map from the residual stream to one number for each token.

    Attributes:
        space: vectors that the map consists of.
        matrix: the map, centred over all entries. *Shape:* ``(width, entry)``.
        unembedding: unembedding that the map is from; None for input embeddings.
    """

    space: OutputSpace
    matrix: torch.Tensor
    unembedding: Unembedding | None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Approximations, one sentence each."""
        if self.unembedding is None or not self.unembedding.remark:
            return ()
        return (self.unembedding.remark,)

    def scale(self, states: torch.Tensor) -> torch.Tensor:
        """Return the scale of the final norm at states of the last layer. *Shape:* ``(row,)``."""
        if self.unembedding is None:
            return torch.ones(len(states), device=states.device)
        return self.unembedding.scale(states)[:, 0].float()


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
    found = find_unembedding(lens, states)
    if isinstance(found, str):
        return found
    return TokenDirections(OutputSpace.UNEMBEDDING, found.columns.to(model.device), found)


def _input_embeddings(model: Model, width: int) -> TokenDirections | str:
    """Return the input embeddings, minus their mean, of unit length."""
    weight = word_embedding(model.base_model)
    if weight is None or weight.shape[1] != width or model.config.is_encoder_decoder:
        return "the model has neither an output vocabulary nor input embeddings of its states"
    words = weight[: len(model.tokenizer)].float().to(model.device)
    centred = torch.nn.functional.normalize(words - words.mean(0), dim=-1)
    return TokenDirections(OutputSpace.INPUT_EMBEDDINGS, centred.T.contiguous(), None)


def residual_sum_error(
    directions: TokenDirections, lens: LogitLens, parts: torch.Tensor, states: torch.Tensor
) -> float:
    """Return the largest difference between summed contributions and centred logits.

    Relative to the largest centred logit.

    Args:
        directions: map from the residual stream to tokens.
        lens: language-model head.
        parts: sum of the embedding and of the outputs of all heads and feed-forward blocks.
            *Shape:* ``(row, width)``.
        states: states of the last layer. *Shape:* ``(row, width)``.
    """
    assert directions.unembedding is not None
    constant = directions.unembedding.bias.to(states.device)
    error, largest = 0.0, torch.finfo(torch.float32).tiny
    for part, state in zip(
        parts.float().split(ROWS_PER_CHECK), states.split(ROWS_PER_CHECK), strict=True
    ):
        logits = lens.logits(state).float()
        scale = directions.scale(state)[:, None]
        summed = part @ directions.matrix / scale + constant
        centred = logits - logits.mean(-1, keepdim=True)
        error = max(error, float((summed - centred).abs().max()))
        largest = max(largest, float(centred.abs().max()))
    return error / largest


def sum_tolerance(model: Model) -> float:
    """Return the largest error of summed contributions that is rounding in a model's format."""
    dtype = next(model.network.parameters()).dtype
    return TOLERANCE if dtype in TOLERANCES else HALF_PRECISION_TOLERANCE
