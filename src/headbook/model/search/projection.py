"""The output projection W_O of attention blocks: what a head's values become on their way out."""

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from headbook.model.weights.offload import parameter


def is_linear(module: torch.nn.Module) -> bool:
    """Whether it is a linear map whose weight is there as numbers, not packed."""
    if isinstance(module, Conv1D):
        return True
    return (
        isinstance(module, torch.nn.Linear)
        and module.weight.shape == (module.out_features, module.in_features)
        and module.weight.is_floating_point()
    )


@dataclass(frozen=True, eq=False)
class Projection:
    """The output projection of one attention block.

    Attributes:
        module: its input is the heads' outputs side by side.
    """

    module: Any
    _roots: dict[tuple[int, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def slices(self, width: int) -> torch.Tensor:
        """Each head's part of the weight. *Shape:* ``(head, output width, head width)``.

        Args:
            width: of one head.
        """
        weight = parameter(self.module)
        assert weight is not None
        if not isinstance(self.module, torch.nn.Linear):
            weight = weight.T  # GPT-2's is transposed
        slices: torch.Tensor = weight.detach().unflatten(1, (-1, width)).transpose(0, 1)
        return slices

    @property
    def bias(self) -> torch.Tensor | float:
        """What the module adds to all heads together. *Shape:* ``(output width,)``; 0 for none."""
        found = parameter(self.module, "bias")
        return 0.0 if found is None else found

    def carried(self, heads: torch.Tensor) -> torch.Tensor:
        """Outputs of all heads side by side after the projection, without its bias.

        Args:
            heads: *Shape:* ``(..., head, head width)``.

        Returns:
            *Shape:* ``(..., output width)``.
        """
        weight = self.slices(heads.shape[-1]).transpose(0, 1).flatten(1).to(heads.dtype)
        found: torch.Tensor = heads.flatten(-2) @ weight.T
        return found

    def norms(self, value: torch.Tensor) -> torch.Tensor:
        """Length of each key's value after the projection, for every head.

        Args:
            value: *Shape:* ``(sentence, key_head, key, width)``; several heads in a row may share
                a key head.

        Returns:
            *Shape:* ``(sentence, head, key)``.
        """
        sentences, key_heads, keys, width = value.shape
        roots = self._root(width, value.dtype).unflatten(0, (key_heads, -1))
        # One product for each key head: all tokens, times the roots of all its heads.
        wide = value.transpose(0, 1).reshape(key_heads, sentences * keys, width)
        turned = (wide @ roots.flatten(1, 2).mT).unflatten(-1, (roots.shape[1], -1))
        found: torch.Tensor = turned.square_().sum(-1).sqrt_().unflatten(1, (sentences, keys))
        return found.permute(1, 0, 3, 2).flatten(1, 2)

    def _root(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """For each head the R of W_O = QR: as Q turns only, R v is as long as W_O v.

        No vector of output width is made. *Shape:* ``(head, head width, head width)``.
        """
        if (width, dtype) not in self._roots:
            weight = self.slices(width)
            root = torch.linalg.qr(weight.double().cpu(), mode="r").R
            self._roots[width, dtype] = root.to(weight.device, dtype)
        return self._roots[width, dtype]
