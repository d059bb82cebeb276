"""Where an attention block ends."""

from dataclasses import dataclass

import torch

from headbook.model.search.sumweights import SumWeights


@dataclass(frozen=True)
class Site:
    """Where one attention block of a layer ends; all paths lead from the layer.

    Attributes:
        block: the module whose output, times ``scale``, is added to the residual.
        after: the module whose input is the ``mid`` state; None where no module reads that sum.
        residual: the module that holds that residual; by default it is the layer's own input.
        enters: whether the residual is what that module takes; else what it gives.
        parallel: the feed-forward module that runs beside the attention block, if any.
        closed: whether ``after`` is a norm that the residual itself goes through (post-norm);
            None where a pass does not tell.
        scale: factor of the block's output.
        straight: whether the block is the output projection, or takes what that gives.
        weights: of the sum, where each number of a state has its own; None where the residual is
            added as it is.
    """

    block: str
    after: str | None
    residual: str = ""
    enters: bool = False
    parallel: str = ""
    closed: bool | None = False
    scale: float = 1.0
    straight: bool = True
    weights: SumWeights | None = None

    def total(self, residual: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """The sum of both. *Shape:* ``(..., width)`` each."""
        if self.weights is not None:
            return self.weights.total(residual, block)
        return residual + self.scale * block
