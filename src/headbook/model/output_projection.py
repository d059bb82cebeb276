"""The output projection W_O by head, and gates or norms before the projection.

A gate multiplies each number by a factor that depends on the token, not on the head outputs. A norm
multiplies by its gain over one divisor. Both are recognised by a test: if head outputs are
perturbed, the factors stay unchanged, except for one number for each token and head.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from headbook.model.devices import read_parameter, read_weight

LEAST, MOST = 0.5, 2.0  # range of the random factors that perturb outputs
ROUNDINGS = 16  # tolerance for multiples of factors, in roundings


def gate_factor(given: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """Return the factors of a gate or norm on head outputs; 0 where the output is 0.

    Args:
        given: head outputs. *Shape:* ``(sentence, query, head, width)``.
        taken: input of the output projection, of any shape with as many numbers.

    Returns:
        Factors, in float32 at least. *Shape:* that of ``given``.
    """
    wide = given.to(torch.promote_types(given.dtype, torch.float32))
    there = wide != 0
    return torch.where(there, taken.reshape(wide.shape).to(wide) / wide.where(there, 1), 0)


def multiples(factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the factors of all queries as multiples of those of one query, or None.

    Factors are multiples for gates with one number per head, and for norms.

    Args:
        factor: factors. *Shape:* ``(sentence, query, head, width)``.

    Returns:
        The factors of one query, ``(sentence, 1, head, width)``, and the multiple for each query,
        ``(sentence, query, head, 1)``.
    """
    lengths = factor.square().sum(-1, keepdim=True)
    largest = lengths.argmax(1, keepdim=True).expand(-1, -1, -1, factor.shape[-1])
    one = factor.gather(1, largest)
    whole = one.square().sum(-1, keepdim=True)
    times = (factor * one).sum(-1, keepdim=True) / whole.masked_fill(whole == 0, 1)
    near = ROUNDINGS * torch.finfo(factor.dtype).eps * one.abs().amax(-1, keepdim=True)
    return (one, times) if bool(((factor - times * one).abs() <= near).all()) else None


def perturbed(given: torch.Tensor) -> torch.Tensor:
    """Return head outputs with each number multiplied by another random factor."""
    seed = torch.Generator().manual_seed(given.numel())
    drawn = torch.rand(given.shape, generator=seed, dtype=torch.float64)
    return given * (LEAST + (MOST - LEAST) * drawn).to(given)


def is_gated(given: torch.Tensor, taken: torch.Tensor) -> bool:
    """Whether the input of a projection is the head outputs times independent factors.

    Args:
        given: head outputs for one text, original and `perturbed`. *Shape:*
            ``(2, query, head, width)``.
        taken: inputs of the projection for both, with as many numbers.
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


BLOCK = 2**23  # numbers of a block of gated values, which bounds the memory
Pairs = Iterator[tuple[int, torch.Tensor]]


def matrix(module: Any) -> torch.Tensor:
    """Return the weight of a linear map. *Shape:* ``(out, in)``."""
    weight = read_weight(module).detach()
    return weight.T if isinstance(module, Conv1D) else weight  # GPT-2's is transposed


def is_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear map whose weight is stored as numbers, not packed.

    Some families have their own class (I-BERT), which returns more than a tensor.
    """
    if isinstance(module, Conv1D):
        return True
    weight = getattr(module, "weight", None)
    sizes = (getattr(module, "out_features", None), getattr(module, "in_features", None))
    return isinstance(weight, torch.Tensor) and weight.shape == sizes and weight.is_floating_point()


@dataclass(frozen=True, eq=False)
class OutputProjection:
    """Output projection of one attention block.

    Attributes:
        module: linear map whose input is the concatenated head outputs.
        gated: whether a gate or norm multiplies the head outputs before the projection.
    """

    module: Any
    gated: bool = False
    _roots: dict[tuple[int, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def slices(self, width: int) -> torch.Tensor:
        """Return each head's part of the weight. *Shape:* ``(head, output width, head width)``.

        Args:
            width: width of one head.
        """
        slices: torch.Tensor = matrix(self.module).unflatten(1, (-1, width)).transpose(0, 1)
        return slices

    @property
    def bias(self) -> torch.Tensor | float:
        """Bias of the module. *Shape:* ``(output width,)``; 0 without one."""
        found = read_parameter(self.module, "bias")
        return 0.0 if found is None else found

    def project(self, heads: torch.Tensor) -> torch.Tensor:
        """Return the projection of concatenated head outputs, without bias.

        Args:
            heads: head outputs. *Shape:* ``(..., head, head width)``.

        Returns:
            *Shape:* ``(..., output width)``.
        """
        weight = self.slices(heads.shape[-1]).transpose(0, 1).flatten(1).to(heads.dtype)
        found: torch.Tensor = heads.flatten(-2) @ weight.T
        return found

    def adds_up(self, heads: torch.Tensor, given: torch.Tensor) -> bool:
        """Whether the module's output is the sum of the heads' projections and the bias.

        Args:
            heads: input of the module. *Shape:* ``(..., head, head width)``.
            given: output of the module.
        """
        parts = (self.project(heads) + self.bias).flatten().double()
        near = torch.finfo(given.dtype).eps ** 0.5 * given.abs().max().double()
        return bool((parts - given.flatten().double()).abs().max() <= near)

    def value_norms(self, value: torch.Tensor) -> torch.Tensor:
        """Return the norm of each key's value after the projection, for every head.

        Args:
            value: values; several consecutive heads may share a key head. *Shape:* ``(sentence,
                key_head, key, width)``.

        Returns:
            *Shape:* ``(sentence, head, key)``.
        """
        sentences, key_heads, keys, width = value.shape
        roots = self._root(width, value.dtype).unflatten(0, (key_heads, -1))
        # One product for each key head: all tokens times the roots of all heads that share it.
        wide = value.transpose(0, 1).reshape(key_heads, sentences * keys, width)
        turned = (wide @ roots.flatten(1, 2).mT).unflatten(-1, (roots.shape[1], -1))
        found: torch.Tensor = turned.square_().sum(-1).sqrt_().unflatten(1, (sentences, keys))
        return found.permute(1, 0, 3, 2).flatten(1, 2)

    def carrying(self, attention: torch.Tensor, value: torch.Tensor, factor: torch.Tensor) -> Pairs:
        """Yield attention weights times norms of gated, projected values, by blocks of queries.

        Behind a gate, the projected value of a key differs by query.

        Args:
            attention: attention weights. *Shape:* ``(sentence, head, query, key)``.
            value: values. *Shape:* ``(sentence, key_head, key, width)``.
            factor: factors of the gate. *Shape:* ``(sentence, query, head, width)``.

        Yields:
            Index of the first query, and weighted norms. *Shape:* ``(sentence, head, queries of the
            block, key)``.
        """
        sentences, heads, queries, keys = attention.shape
        wide = value.repeat_interleave(heads // value.shape[1], 1)
        root = self._root(value.shape[-1], value.dtype).mT
        if (shared := multiples(factor)) is not None:  # norms differ by the multiples only
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
        """Return R of W_O = QR for each head: since Q is orthogonal, |R v| = |W_O v|.

        No vector of output width is needed. *Shape:* ``(head, head width, head width)``.
        """
        if (width, dtype) not in self._roots:
            weight = self.slices(width)
            root = torch.linalg.qr(weight.double().cpu(), mode="r").R
            self._roots[width, dtype] = root.to(weight.device, dtype)
        return self._roots[width, dtype]
