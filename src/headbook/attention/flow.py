"""Decomposition of attention block outputs into mixed and kept parts, and rollout over layers.

The part from other tokens and the part from the token itself add up to the block's output, except
for biases. A norm of the block is linear once its divisor is known, so that it can be applied to
each part, with divisor and mean of the whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from headbook.model.architecture import Architecture
from headbook.model.attention_hook import AttentionCall
from headbook.model.block_match import SumWeights
from headbook.model.devices import read_parameter, read_weight
from headbook.model.output_projection import OutputProjection
from headbook.model.probe import hidden_states_of
from headbook.schema import RolloutKind
from headbook.text.batch import PaddedTexts

N_TEST_VECTORS = 3  # on which a norm is tested
RELATIVE_TOLERANCE = 1e-4  # tolerance over the largest number: many norms compute in float32
LARGE_CONSTANT = 1e4  # so large that a norm's epsilon is negligible


@dataclass(frozen=True)
class AttentionBlock:
    """Output projection, norms and scale of the attention block of a layer.

    Attributes:
        projection: output projection of the heads.
        inner: norm of the block's output before the residual is added, or None.
        outer: norm of the sum with the residual; None in pre-norm models.
        scale: factor of the block's output after its norm.
        weights: weights of the sum, if each dimension has its own; else None.
    """

    projection: OutputProjection
    inner: Any = None
    outer: Any = None
    scale: float = 1.0
    weights: SumWeights | None = None


@dataclass(frozen=True, eq=False)
class BlockParts:
    """Parts of the state after an attention block; *Shape:* ``(sentence, token, width)`` each.

    Attributes:
        mixed: contribution of other tokens.
        kept: contribution of the token itself: its own value, and the residual.
        bias: biases of the output projection and of the norm after the projection.
    """

    mixed: torch.Tensor
    kept: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, eq=False)
class LayerFlow:
    """Inputs of flow metrics for one layer of one stack over a batch.

    Attributes:
        split: norms of the mixed and of the kept part; None if attention blocks are not known.
            *Shape:* ``(2, sentence, token)``.
        rollouts: by kind, shares of the input tokens in each state after the layer; rows sum to
            1. *Shape:* ``(sentence, token, token)``.
        texts: the tokens; None if unknown.
    """

    split: torch.Tensor | None
    rollouts: dict[RolloutKind, torch.Tensor] = field(default_factory=dict)
    texts: PaddedTexts | None = None

    @property
    def mixing(self) -> torch.Tensor | None:
        """Mixing ratio, the share of the mixed part. *Shape:* ``(sentence, token)``."""
        return None if self.split is None else mixing_ratio(self.split)

    def own(self, kind: RolloutKind) -> torch.Tensor | None:
        """Return each token's own share by a kind of rollout. *Shape:* ``(sentence, token)``."""
        return self.rollouts[kind].diagonal(dim1=-2, dim2=-1) if kind in self.rollouts else None


def attention_blocks(architecture: Architecture) -> dict[tuple[str, int], AttentionBlock]:
    """Return the attention blocks whose parts are known, by stack and layer.

    Cross-attention is left out: its whole output comes from another text.
    """
    blocks = {}
    for (stack, layer), projection in architecture.ends.projections.items():
        site = architecture.ends.sites.get((stack, layer))
        if site is None or architecture.stacks[stack].crosses:
            continue
        if site.residual or site.closed is None or not site.straight:
            continue
        module = architecture.layers[stack][layer]
        last_module = module.get_submodule(site.block)
        inner = None if last_module is projection.module else last_module
        outer = module.get_submodule(site.after) if site.closed and site.after else None
        if all(norm is None or _acts_on_parts(norm) for norm in (inner, outer)):
            blocks[stack, layer] = AttentionBlock(
                projection, inner, outer, site.scale, site.weights
            )
    return blocks


def _acts_on_parts(norm: Any) -> bool:
    """Whether a module is a norm that `linear_part` reproduces, tested on a few vectors."""
    gain = read_parameter(norm)
    if gain is None or gain.ndim != 1 or _epsilon(norm) is None:
        return False
    vectors = _test_vectors(gain)
    with torch.inference_mode():
        whole = hidden_states_of(norm.forward(vectors))
        parts = linear_part(norm, vectors)(vectors) + _bias(norm, vectors)
    tolerance = max(RELATIVE_TOLERANCE, torch.finfo(gain.dtype).eps ** 0.5) * whole.abs().max()
    return bool((parts - whole).abs().max() <= tolerance)


def _test_vectors(gain: torch.Tensor) -> torch.Tensor:
    """Return vectors as wide as a norm's gain. *Shape:* ``(1, vector, width)``."""
    numbers = torch.linspace(-1, 2, N_TEST_VECTORS * len(gain)).sin()
    return numbers.view(1, N_TEST_VECTORS, -1).to(gain)


def split_block_output(
    call: AttentionCall, residual: torch.Tensor, block: AttentionBlock
) -> BlockParts:
    """Split an attention block's output into its mixed part, its kept part and biases.

    The bias of values belongs to the value's token; biases of the output projection and of norms
    belong to neither part (Kobayashi et al. 2021).

    Args:
        call: attention call with values and output.
        residual: residual that is added to the block's output; its number format is that of the
            result. *Shape:* ``(sentence, token, width)``.
        block: norms and scale of the block.
    """
    assert call.value is not None
    assert call.output is not None
    maps, value, output = (x.to(residual) for x in (call.weights, call.value, call.output))
    heads_per_value = maps.shape[1] // value.shape[1]  # query heads for each value head
    own_weights = maps.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    own_values = own_weights * value.repeat_interleave(heads_per_value, 1)
    own_values = own_values.transpose(1, 2)  # (sentence, token, head, width)
    mixed = block.projection.project(call.gated(output - own_values))
    kept = block.projection.project(call.gated(own_values))
    bias = _bias(block.projection.module, residual)
    if block.inner is not None:
        apply_norm = linear_part(block.inner, mixed + kept + bias)
        mixed, kept = apply_norm(mixed), apply_norm(kept)
        bias = apply_norm(bias) + _bias(block.inner, residual)
    if block.weights is None:
        mixed, kept, bias = (block.scale * part for part in (mixed, kept, bias))
        kept = kept + residual
    else:
        weights = block.weights.to(residual)
        mixed, kept, bias = (weights.block * part for part in (mixed, kept, bias))
        kept, bias = kept + weights.residual * residual, bias + weights.bias
    if block.outer is not None:
        apply_norm = linear_part(block.outer, mixed + kept + bias)
        mixed, kept = apply_norm(mixed), apply_norm(kept)
        bias = apply_norm(bias) + _bias(block.outer, residual)
    return BlockParts(mixed, kept, bias.expand_as(residual))


def _bias(module: Any, like: torch.Tensor) -> torch.Tensor:
    """Return a module's bias, or zeros. *Shape:* ``(width,)``, or one that broadcasts to it."""
    bias = read_parameter(module, "bias")
    return like.new_zeros(like.shape) if bias is None else bias.detach().to(like)


def linear_part(norm: Any, whole: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a norm as a linear map on parts of a sum: without bias, with the sum's divisor.

    Args:
        norm: a layer norm or RMS norm.
        whole: sum of the parts. *Shape:* ``(..., width)``.
    """
    if isinstance(norm, torch.nn.LayerNorm) or _centres(norm):
        gain = read_weight(norm).detach().to(whole)
        divisor = (whole.var(-1, unbiased=False, keepdim=True) + (_epsilon(norm) or 0)).sqrt()
        return lambda part: gain * (part - part.mean(-1, keepdim=True)) / divisor
    # Some RMS norms store the gain, others the gain minus 1: the output for a constant shows it.
    gain = hidden_states_of(norm.forward(torch.full_like(whole[:1, :1], LARGE_CONSTANT))).to(whole)
    divisor = (whole.square().mean(-1, keepdim=True) + (_epsilon(norm) or 0)).sqrt()
    return lambda part: gain * part / divisor


def _centres(norm: Any) -> bool:
    """Whether a module subtracts the mean: a constant that is added changes nothing (DeBERTa)."""
    gain = read_parameter(norm)
    if gain is None or gain.ndim != 1:
        return False
    vectors = _test_vectors(gain)
    whole, shifted = (hidden_states_of(norm.forward(x)) for x in (vectors, vectors + 1))
    tolerance = max(RELATIVE_TOLERANCE, torch.finfo(gain.dtype).eps ** 0.5) * whole.abs().max()
    return bool((shifted - whole).abs().max() <= tolerance)


def _epsilon(norm: Any) -> float | None:
    """Return the epsilon that a norm adds to the mean square, or None if unknown."""
    epsilon = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return None if epsilon is None else float(epsilon)


def part_norms(parts: BlockParts) -> torch.Tensor:
    """Return the norms of the mixed and the kept part. *Shape:* ``(2, sentence, token)``."""
    return torch.stack([parts.mixed.norm(dim=-1), parts.kept.norm(dim=-1)])


def mixing_ratio(norms: torch.Tensor) -> torch.Tensor:
    """Return the share of the mixed part; 0 if both parts are 0. *Shape:* ``(sentence, token)``.

    Args:
        norms: norms of both parts, from `part_norms`.
    """
    mixed, total = norms[0], norms.sum(0)
    return mixed / total.clamp_min(torch.finfo(total.dtype).tiny)


def half_step(attention: torch.Tensor) -> torch.Tensor:
    """Return half attention, half identity, as in rollout (Abnar & Zuidema 2020).

    Args:
        attention: mean over heads; rows sum to 1. *Shape:* ``(sentence, token, token)``.

    Returns:
        Shares of the previous layer's states in each state; rows sum to 1. *Shape:* that of
        ``attention``.
    """
    return 0.5 * attention + 0.5 * _identity(attention)


def measured_step(attention: torch.Tensor, mixing: torch.Tensor) -> torch.Tensor:
    """Return rollout with measured shares: mixing ratio by attention, the rest on the token.

    Args:
        attention: mean over heads; rows sum to 1, the diagonal is ignored. *Shape:* ``(sentence,
            token, token)``.
        mixing: mixing ratio. *Shape:* ``(sentence, token)``.
    """
    others = attention * (1 - _identity(attention))
    total = others.sum(-1, keepdim=True)
    has_others = total > torch.finfo(total.dtype).tiny
    share = torch.where(has_others, mixing.unsqueeze(-1), 0)
    return share * others / torch.where(has_others, total, 1) + (1 - share) * _identity(attention)


def _identity(like: torch.Tensor) -> torch.Tensor:
    """Return an identity matrix of the size, number format and device of another tensor."""
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
