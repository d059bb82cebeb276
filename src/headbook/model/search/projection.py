"""The output projection W_O of attention blocks: what a head's values become on their way out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from headbook.model.search.gates import multiples
from headbook.model.weights.offload import parameter, weight_of

BLOCK = 2**23  # numbers of a block of gated values
Pairs = Iterator[tuple[int, torch.Tensor]]


def matrix(module: Any) -> torch.Tensor:
    """The weight of a linear map. *Shape:* ``(out, in)``."""
    weight = weight_of(module).detach()
    return weight.T if isinstance(module, Conv1D) else weight  # GPT-2's is turned


def is_linear(module: torch.nn.Module) -> bool:
    """Whether it is a linear map whose weight is there as numbers, not packed.

    Some families have a class of their own (I-BERT), which gives more than a tensor.
    """
    if isinstance(module, Conv1D):
        return True
    weight = getattr(module, "weight", None)
    sizes = (getattr(module, "out_features", None), getattr(module, "in_features", None))
    return isinstance(weight, torch.Tensor) and weight.shape == sizes and weight.is_floating_point()


@dataclass(frozen=True, eq=False)
class Projection:
    """The output projection of one attention block.

    Attributes:
        module: its input is the heads' outputs side by side.
        gated: whether a gate or a norm multiplies them before; see `search.gates`.
    """

    module: Any
    gated: bool = False
    _roots: dict[tuple[int, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def slices(self, width: int) -> torch.Tensor:
        """Each head's part of the weight. *Shape:* ``(head, output width, head width)``.

        Args:
            width: of one head.
        """
        slices: torch.Tensor = matrix(self.module).unflatten(1, (-1, width)).transpose(0, 1)
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

    def adds_up(self, heads: torch.Tensor, given: torch.Tensor) -> bool:
        """Whether what the module gave is what becomes of each head alone, and its bias.

        Args:
            heads: as in `carried`, as the module took them.
        """
        parts = (self.carried(heads) + self.bias).flatten().double()
        near = torch.finfo(given.dtype).eps ** 0.5 * given.abs().max().double()
        return bool((parts - given.flatten().double()).abs().max() <= near)

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

    def carrying(self, attention: torch.Tensor, value: torch.Tensor, factor: torch.Tensor) -> Pairs:
        """The same behind a gate: what of each key's value arrives at a query differs by query.

        Each weight of attention times the length of what it carries, block by block of queries.

        Args:
            attention: *Shape:* ``(sentence, head, query, key)``.
            value: as in `norms`.
            factor: *Shape:* ``(sentence, query, head, width)``.

        Yields:
            Number of the first query, and *Shape:* ``(sentence, head, some queries, key)``.
        """
        sentences, heads, queries, keys = attention.shape
        wide = value.repeat_interleave(heads // value.shape[1], 1)
        root = self._root(value.shape[-1], value.dtype).mT
        if (shared := multiples(factor)) is not None:  # lengths of values differ by these alone
            one, times = (x.to(value).transpose(1, 2) for x in shared)
            lengths = self.norms(one * wide).unsqueeze(2) * times.abs()
            yield 0, attention * lengths
            return
        gates = factor.to(value).transpose(1, 2)
        step = max(1, BLOCK // max(1, wide.numel()))
        for start in range(0, queries, step):
            some = gates[:, :, start : start + step, None] * wide.unsqueeze(2)
            lengths = (some.flatten(2, 3) @ root).norm(dim=-1).view(sentences, heads, -1, keys)
            yield start, attention[:, :, start : start + step] * lengths

    def _root(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """For each head the R of W_O = QR: as Q turns only, R v is as long as W_O v.

        No vector of output width is made. *Shape:* ``(head, head width, head width)``.
        """
        if (width, dtype) not in self._roots:
            weight = self.slices(width)
            root = torch.linalg.qr(weight.double().cpu(), mode="r").R
            self._roots[width, dtype] = root.to(weight.device, dtype)
        return self._roots[width, dtype]
