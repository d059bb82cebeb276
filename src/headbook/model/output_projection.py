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

from headbook.model.devices import is_adapted, is_plain, read_bias, read_weight

MIN_PERTURBATION, MAX_PERTURBATION = 0.5, 2.0  # range of random factors: large, no change of sign
TOLERANCE_ROUNDINGS = 16  # roundings by which factors may differ from exact multiples


def gate_factor(outputs: torch.Tensor, projection_input: torch.Tensor) -> torch.Tensor:
    """Return the factors of a gate or norm on head outputs; 0 where the output is 0.

    Args:
        outputs: head outputs. *Shape:* ``(sentence, query, head, width)``.
        projection_input: input of the output projection, of any shape with as many numbers.

    Returns:
        Factors, in float32 at least. *Shape:* that of ``outputs``.
    """
    precise = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    is_nonzero = precise != 0
    return torch.where(
        is_nonzero,
        projection_input.reshape(precise.shape).to(precise) / precise.where(is_nonzero, 1),
        0,
    )


def multiples(factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the factors of all queries as multiples of those of one query, or None.

    Factors are multiples for gates with one number per head, and for norms.

    Args:
        factor: factors. *Shape:* ``(sentence, query, head, width)``.

    Returns:
        The factors of one query, ``(sentence, 1, head, width)``, and the multiple for each query,
        ``(sentence, query, head, 1)``.
    """
    squares = factor.square().sum(-1, keepdim=True)
    largest = squares.argmax(1, keepdim=True).expand(-1, -1, -1, factor.shape[-1])
    reference = factor.gather(1, largest)
    square = reference.square().sum(-1, keepdim=True)
    multiple = (factor * reference).sum(-1, keepdim=True) / square.masked_fill(square == 0, 1)
    eps = torch.finfo(factor.dtype).eps
    tolerance = TOLERANCE_ROUNDINGS * eps * reference.abs().amax(-1, keepdim=True)
    are_multiples = bool(((factor - multiple * reference).abs() <= tolerance).all())
    return (reference, multiple) if are_multiples else None


def perturbed(outputs: torch.Tensor) -> torch.Tensor:
    """Return head outputs with each number multiplied by another random factor."""
    generator = torch.Generator().manual_seed(outputs.numel())
    uniform = torch.rand(outputs.shape, generator=generator, dtype=torch.float64)
    factors = MIN_PERTURBATION + (MAX_PERTURBATION - MIN_PERTURBATION) * uniform
    return outputs * factors.to(outputs)


def is_gated(outputs: torch.Tensor, projection_input: torch.Tensor) -> bool:
    """Whether the input of a projection is the head outputs times independent factors.

    Args:
        outputs: head outputs for one text, original and `perturbed`. *Shape:*
            ``(2, query, head, width)``.
        projection_input: inputs of the projection for both, with as many numbers.
    """
    if outputs.shape[-1] < 2 or not torch.isfinite(projection_input).all():
        return False
    factor, perturbed_factor = gate_factor(outputs, projection_input).double()
    usable = (outputs != 0).all(0)
    if bool((((factor == 0) != (perturbed_factor == 0)) & usable).any()):
        return False
    usable &= factor != 0
    ratio = (perturbed_factor / factor).masked_fill(~usable, torch.nan)
    median = ratio.nanmedian(-1, keepdim=True).values
    # Two rows of one pass may differ in rounding, and norms compute in float32.
    eps = max(torch.finfo(outputs.dtype).eps, torch.finfo(torch.float32).eps)
    within = (ratio - median).abs() <= eps**0.5 * median.abs()
    return bool(usable.any()) and bool(within[usable].all())


MAX_BLOCK_NUMBERS = 2**23  # gated values in memory at a time
WeightedNormBlocks = Iterator[tuple[int, torch.Tensor]]  # first query of a block, weighted norms


def matrix(module: Any) -> torch.Tensor:
    """Return the weight of a linear map, dequantised and with its adapter. *Shape:* ``(out, in)``.

    The weight of the class of GPT-2 is stored transposed.
    """
    weight = read_weight(module).detach()
    return weight.T if isinstance(module, Conv1D) else weight


def is_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear map whose weight can be read.

    Some families have their own class (I-BERT), which returns more than a tensor. The weight of a
    quantised map has any shape; only maps of subclasses of `torch.nn.Linear` are known to be such.
    """
    if is_adapted(module):
        return is_linear(module.get_base_layer())  # type: ignore[operator]
    is_quantized = isinstance(module, torch.nn.Linear) and not is_plain(module)
    if is_quantized or isinstance(module, Conv1D):
        return True
    weight = getattr(module, "weight", None)
    sizes = (getattr(module, "out_features", None), getattr(module, "in_features", None))
    return isinstance(weight, torch.Tensor) and weight.shape == sizes and weight.is_floating_point()


def linear_maps(network: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the linear maps of a network with their names, without the parts of adapted maps."""
    outer = "\n"
    for name, module in network.named_modules():
        if not name.startswith(outer) and is_linear(module):
            outer = f"{name}."
            yield name, module


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
        bias = read_bias(self.module)
        return 0.0 if bias is None else bias

    def project(self, heads: torch.Tensor) -> torch.Tensor:
        """Return the projection of concatenated head outputs, without bias.

        Args:
            heads: head outputs. *Shape:* ``(..., head, head width)``.

        Returns:
            *Shape:* ``(..., output width)``.
        """
        weight = self.slices(heads.shape[-1]).transpose(0, 1).flatten(1).to(heads.dtype)
        projected: torch.Tensor = heads.flatten(-2) @ weight.T
        return projected

    def adds_up(self, heads: torch.Tensor, output: torch.Tensor) -> bool:
        """Whether the module's output is the sum of the heads' projections and the bias.

        Args:
            heads: input of the module. *Shape:* ``(..., head, head width)``.
            output: output of the module.
        """
        total = (self.project(heads) + self.bias).flatten().double()
        tolerance = torch.finfo(output.dtype).eps ** 0.5 * output.abs().max().double()
        return bool((total - output.flatten().double()).abs().max() <= tolerance)

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
        tokens = value.transpose(0, 1).reshape(key_heads, sentences * keys, width)
        rotated = (tokens @ roots.flatten(1, 2).mT).unflatten(-1, (roots.shape[1], -1))
        norms: torch.Tensor = rotated.square_().sum(-1).sqrt_().unflatten(1, (sentences, keys))
        return norms.permute(1, 0, 3, 2).flatten(1, 2)

    def carrying(
        self, attention: torch.Tensor, value: torch.Tensor, factor: torch.Tensor
    ) -> WeightedNormBlocks:
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
        values = value.repeat_interleave(heads // value.shape[1], 1)
        root = self._root(value.shape[-1], value.dtype).mT
        if (shared := multiples(factor)) is not None:  # norms differ by the multiples only
            reference, multiple = (x.to(value).transpose(1, 2) for x in shared)
            norms = self.value_norms(reference * values).unsqueeze(2) * multiple.abs()
            yield 0, attention * norms
            return
        gates = factor.to(value).transpose(1, 2)
        block_queries = max(1, MAX_BLOCK_NUMBERS // max(1, values.numel()))
        for start in range(0, queries, block_queries):
            gated = gates[:, :, start : start + block_queries, None] * values.unsqueeze(2)
            norms = (gated.flatten(2, 3) @ root).norm(dim=-1).view(sentences, heads, -1, keys)
            yield start, attention[:, :, start : start + block_queries] * norms

    def _root(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Return R of W_O = QR for each head: since Q is orthogonal, |R v| = |W_O v|.

        No vector of output width is needed. *Shape:* ``(head, head width, head width)``.
        """
        if (width, dtype) not in self._roots:
            weight = self.slices(width)
            root = torch.linalg.qr(weight.double().cpu(), mode="r").R
            self._roots[width, dtype] = root.to(weight.device, dtype)
        return self._roots[width, dtype]
