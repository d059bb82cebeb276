"""Sums in which every number of a state has weights of its own: learned scales and biases."""

from dataclasses import dataclass

import torch

FINEST = 1e-6  # rounding of a number format in which a fit still tells
SLACK = 16  # times the rounding of a sum; what is no such sum is thousands of times that off
TOKENS = 8  # the fewest that tell
LEAST = 1e-3  # the smallest weight, of most numbers


@dataclass(frozen=True, eq=False)
class SumWeights:
    """What a residual and a block's output are multiplied by, and what is added to both.

    Attributes:
        residual, block, bias: in double precision. *Shape:* ``(width,)`` each.
    """

    residual: torch.Tensor
    block: torch.Tensor
    bias: torch.Tensor

    def to(self, like: torch.Tensor) -> "SumWeights":
        """The same in the number format of a tensor, and where it is."""
        return SumWeights(*(x.to(like) for x in (self.residual, self.block, self.bias)))

    def total(self, residual: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """The sum. *Shape:* ``(..., width)`` each."""
        own = self.to(residual)
        return own.residual * residual + own.block * block + own.bias


def fit_weights(
    total: torch.Tensor, residual: torch.Tensor, block: torch.Tensor, *, width: int, eps: float
) -> SumWeights | None:
    """The weights of a sum that holds in every number; None where there are none.

    There are three for each number of a state, and several times as many tokens.

    Args:
        total, residual, block: of all tokens, flat, in double precision.
        eps: rounding of the number format that they come from.
    """
    sums, *parts = (x.view(-1, width).T for x in (total, residual, block))
    columns = torch.stack([*parts, torch.ones_like(sums)], -1)  # (width, token, 3)
    finite = torch.isfinite(sums).all() and torch.isfinite(columns).all()
    if eps > FINEST or sums.shape[1] < TOKENS or not finite:
        return None
    found = torch.linalg.lstsq(columns, sums.unsqueeze(-1)).solution
    allowed = SLACK * eps * (sums.abs() + (columns * found.mT).abs().sum(-1))
    weights = SumWeights(*found[..., 0].unbind(1))
    clear = all(float(x.abs().median()) > LEAST for x in (weights.residual, weights.block))
    fits = ((columns @ found).squeeze(-1) - sums).abs() <= allowed
    return weights if clear and bool(fits.all()) else None
