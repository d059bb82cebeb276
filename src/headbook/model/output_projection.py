"""The output projection W_O by head, and gates or norms before it.

A gate has a factor for each number, which comes of the token and not of what its heads give. A norm
has one that its own gain and one divisor make up. Both are told from anything else by a trial:
heads give something else, and the factors stay as they were, but for one number a token and head.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from headbook.model.devices import read_parameter, read_weight

LEAST, MOST = 0.5, 2.0  # what outputs are multiplied by in the trial
ROUNDINGS = 16  # in which factors of two queries may differ


def gate_factor(given: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """What each number of heads' outputs was multiplied by; 0 where the number is 0.

    Args:
        given: by the heads. *Shape:* ``(sentence, query, head, width)``.
        taken: by their output projection, of any shape with as many numbers.

    Returns:
        *Shape:* that of ``given``, in float32 at least.
    """
    wide = given.to(torch.promote_types(given.dtype, torch.float32))
    there = wide != 0
    return torch.where(there, taken.reshape(wide.shape).to(wide) / wide.where(there, 1), 0)


def multiples(factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The factors of all queries as multiples of those of one; None where they are not.

    They are where a head has one gate, or where a norm divides.

    Args:
        factor: *Shape:* ``(sentence, query, head, width)``.

    Returns:
        The factors of one query, ``(sentence, 1, head, width)``, and by how much those of each are
        larger, ``(sentence, query, head, 1)``.
    """
    lengths = factor.square().sum(-1, keepdim=True)
    largest = lengths.argmax(1, keepdim=True).expand(-1, -1, -1, factor.shape[-1])
    one = factor.gather(1, largest)
    whole = one.square().sum(-1, keepdim=True)
    times = (factor * one).sum(-1, keepdim=True) / whole.masked_fill(whole == 0, 1)
    near = ROUNDINGS * torch.finfo(factor.dtype).eps * one.abs().amax(-1, keepdim=True)
    return (one, times) if bool(((factor - times * one).abs() <= near).all()) else None


def perturbed(given: torch.Tensor) -> torch.Tensor:
    """Outputs of heads, each number times another one. The same shape."""
    seed = torch.Generator().manual_seed(given.numel())
    drawn = torch.rand(given.shape, generator=seed, dtype=torch.float64)
    return given * (LEAST + (MOST - LEAST) * drawn).to(given)


def is_gated(given: torch.Tensor, taken: torch.Tensor) -> bool:
    """Whether what a projection takes is what heads give, times factors.

    Args:
        given: outputs of the heads for one text, as they are and `perturbed`. *Shape:*
            ``(2, query, head, width)``.
        taken: of both, with as many numbers.
    """
    if given.shape[-1] < 2 or not torch.isfinite(taken).all():
        return False
    one, other = gate_factor(given, taken).double()
    known = (given != 0).all(0)
    if bool((((one == 0) != (other == 0)) & known).any()):
        return False
    known &= one != 0
    change = (other / one).masked_fill(~known, torch.nan)
    middle = change.nanmedian(-1, keepdim=True).values
    # Two rows of one pass may differ in rounding, and norms compute in float32.
    eps = max(torch.finfo(given.dtype).eps, torch.finfo(torch.float32).eps)
    near = (change - middle).abs() <= eps**0.5 * middle.abs()
    return bool(known.any()) and bool(near[known].all())


BLOCK = 2**23  # numbers of a block of gated values
Pairs = Iterator[tuple[int, torch.Tensor]]


def matrix(module: Any) -> torch.Tensor:
    """The weight of a linear map. *Shape:* ``(out, in)``."""
    weight = read_weight(module).detach()
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
class OutputProjection:
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
        found = read_parameter(self.module, "bias")
        return 0.0 if found is None else found

    def project(self, heads: torch.Tensor) -> torch.Tensor:
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
            heads: as in `project`, as the module took them.
        """
        parts = (self.project(heads) + self.bias).flatten().double()
        near = torch.finfo(given.dtype).eps ** 0.5 * given.abs().max().double()
        return bool((parts - given.flatten().double()).abs().max() <= near)

    def value_norms(self, value: torch.Tensor) -> torch.Tensor:
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
            value: as in `value_norms`.
            factor: *Shape:* ``(sentence, query, head, width)``.

        Yields:
            Number of the first query, and *Shape:* ``(sentence, head, some queries, key)``.
        """
        sentences, heads, queries, keys = attention.shape
        wide = value.repeat_interleave(heads // value.shape[1], 1)
        root = self._root(value.shape[-1], value.dtype).mT
        if (shared := multiples(factor)) is not None:  # lengths of values differ by these alone
            one, times = (x.to(value).transpose(1, 2) for x in shared)
            lengths = self.value_norms(one * wide).unsqueeze(2) * times.abs()
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
