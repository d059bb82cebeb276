"""What attention blocks carry from token to token: each output in two parts, and layers in a row.

The part that other tokens bring and the part that a token keeps add up to the block's output, but
for biases. A norm that the block goes through is linear once its divisor is known, so that it can
be applied to each part: divisor and mean are those of the whole.
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

TRIED = 3  # vectors on which a norm is tried
NEAR = 1e-4  # of the largest number: many norms compute in float32
LARGE = 1e4  # a constant beside which a norm's epsilon is nothing


@dataclass(frozen=True)
class AttentionBlock:
    """Where the attention block of a layer ends.

    Attributes:
        inner: norm of the block's output, before the residual is added; None without one.
        outer: norm of the sum, through which the residual goes, too; None in pre-norm models.
        scale: factor of the block's output, norm included.
        weights: of the sum, where each number has its own.
    """

    projection: OutputProjection
    inner: Any = None
    outer: Any = None
    scale: float = 1.0
    weights: SumWeights | None = None


@dataclass(frozen=True, eq=False)
class BlockParts:
    """The state after an attention block, in parts; *Shape:* ``(sentence, token, width)`` each.

    Attributes:
        mixed: what other tokens bring.
        kept: what the token keeps: its own value, and the residual.
        bias: the rest: that of the output projection, and that of the norm after it.
    """

    mixed: torch.Tensor
    kept: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, eq=False)
class LayerFlow:
    """What a flow metric sees of one layer of one stack over a batch.

    Attributes:
        split: lengths of the two parts; None where attention blocks are not known. *Shape:*
            ``(2, sentence, token)``: what is mixed in, what is kept.
        rollouts: by kind, what each token's state is made of after the layer; rows sum to 1.
            *Shape:* ``(sentence, token, token)``.
    """

    split: torch.Tensor | None
    rollouts: dict[RolloutKind, torch.Tensor] = field(default_factory=dict)

    @property
    def mixing(self) -> torch.Tensor | None:
        """Share of what is mixed in. *Shape:* ``(sentence, token)``."""
        return None if self.split is None else mixing_ratio(self.split)

    def own(self, kind: RolloutKind) -> torch.Tensor | None:
        """Share of each token's own input, by a kind of rollout. *Shape:* ``(sentence, token)``."""
        return self.rollouts[kind].diagonal(dim1=-2, dim2=-1) if kind in self.rollouts else None


def attention_blocks(architecture: Architecture) -> dict[tuple[str, int], AttentionBlock]:
    """The attention blocks by stack and layer, as far as it is known what they are made of.

    Cross-attention is left out: what it brings is all of another text.
    """
    found = {}
    for (stack, layer), projection in architecture.ends.projections.items():
        site = architecture.ends.sites.get((stack, layer))
        if site is None or architecture.stacks[stack].crosses:
            continue
        if site.residual or site.closed is None or not site.straight:
            continue
        module = architecture.layers[stack][layer]
        end = module.get_submodule(site.block)
        inner = None if end is projection.module else end
        outer = module.get_submodule(site.after) if site.closed and site.after else None
        if all(norm is None or _acts_on_parts(norm) for norm in (inner, outer)):
            found[stack, layer] = AttentionBlock(projection, inner, outer, site.scale, site.weights)
    return found


def _acts_on_parts(norm: Any) -> bool:
    """Whether a module is a norm that `linear_part` tells what it does; tried on some vectors."""
    gain = read_parameter(norm)
    if gain is None or gain.ndim != 1 or _epsilon(norm) is None:
        return False
    some = torch.linspace(-1, 2, TRIED * len(gain)).sin().view(1, TRIED, -1).to(gain)
    with torch.inference_mode():
        whole = hidden_states_of(norm.forward(some))
        parts = linear_part(norm, some)(some) + _bias(norm, some)
    near = max(NEAR, torch.finfo(gain.dtype).eps ** 0.5) * whole.abs().max()
    return bool((parts - whole).abs().max() <= near)


def split_block_output(
    call: AttentionCall, residual: torch.Tensor, block: AttentionBlock
) -> BlockParts:
    """The two parts of an attention block's output.

    The bias of values goes with its token through the attention; that of the output projection
    and that of norms belong to neither part (Kobayashi et al. 2021).

    Args:
        call: with values and output.
        residual: what is added to the block's output; decides the number format. *Shape:*
            ``(sentence, token, width)``.
    """
    assert call.value is not None
    assert call.output is not None
    maps, value, output = (x.to(residual) for x in (call.weights, call.value, call.output))
    shared = maps.shape[1] // value.shape[1]  # heads for each that has values
    own = maps.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) * value.repeat_interleave(shared, 1)
    own = own.transpose(1, 2)  # (sentence, token, head, width)
    mixed, kept = (block.projection.project(call.gated(part)) for part in (output - own, own))
    bias = _bias(block.projection.module, residual)
    if block.inner is not None:
        scale = linear_part(block.inner, mixed + kept + bias)
        mixed, kept = scale(mixed), scale(kept)
        bias = scale(bias) + _bias(block.inner, residual)
    if block.weights is None:
        mixed, kept, bias = (block.scale * part for part in (mixed, kept, bias))
        kept = kept + residual
    else:
        weights = block.weights.to(residual)
        mixed, kept, bias = (weights.block * part for part in (mixed, kept, bias))
        kept, bias = kept + weights.residual * residual, bias + weights.bias
    if block.outer is not None:
        scale = linear_part(block.outer, mixed + kept + bias)
        mixed, kept = scale(mixed), scale(kept)
        bias = scale(bias) + _bias(block.outer, residual)
    return BlockParts(mixed, kept, bias.expand_as(residual))


def _bias(module: Any, like: torch.Tensor) -> torch.Tensor:
    """A module's bias; 0 without one. *Shape:* ``(width,)``, or one that broadcasts to it."""
    bias = read_parameter(module, "bias")
    return like.new_zeros(like.shape) if bias is None else bias.detach().to(like)


def linear_part(norm: Any, at: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A norm as it acts on the parts of a sum: without bias, divided by what it divides the sum by.

    Args:
        norm: layer norm, or a norm that takes no mean (RMS).
        at: the sum. *Shape:* ``(..., width)``.
    """
    if isinstance(norm, torch.nn.LayerNorm):
        gain = read_weight(norm).detach().to(at)
        divisor = (at.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        return lambda part: gain * (part - part.mean(-1, keepdim=True)) / divisor
    # Some keep their gain as it is, others less 1: what becomes of a constant tells.
    gain = hidden_states_of(norm.forward(torch.full_like(at[:1, :1], LARGE))).to(at)
    divisor = (at.square().mean(-1, keepdim=True) + (_epsilon(norm) or 0)).sqrt()
    return lambda part: gain * part / divisor


def _epsilon(norm: Any) -> float | None:
    """What a norm adds to the mean square; None where it does not say."""
    found = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return None if found is None else float(found)


def part_norms(parts: BlockParts) -> torch.Tensor:
    """Length of what is mixed in and of what is kept. *Shape:* ``(2, sentence, token)``."""
    return torch.stack([parts.mixed.norm(dim=-1), parts.kept.norm(dim=-1)])


def mixing_ratio(split_lengths: torch.Tensor) -> torch.Tensor:
    """Share of what is mixed in; 0 where there is nothing at all. *Shape:* ``(sentence, token)``.

    Args:
        split_lengths: as `part_norms` gives them.
    """
    mixed, total = split_lengths[0], split_lengths.sum(0)
    return mixed / total.clamp_min(torch.finfo(total.dtype).tiny)


def half_step(attention: torch.Tensor) -> torch.Tensor:
    """Half attention, half the token itself (Abnar & Zuidema 2020).

    Args:
        attention: mean over heads; rows sum to 1. *Shape:* ``(sentence, token, token)``.

    Returns:
        What each state is made of, one layer before. The same shape; rows sum to 1.
    """
    return 0.5 * attention + 0.5 * _identity(attention)


def measured_step(attention: torch.Tensor, mixing: torch.Tensor) -> torch.Tensor:
    """The mixing ratio goes to other tokens, by their attention; the rest is the token itself.

    Args:
        attention: as in `half_step`; its diagonal does not matter.
        mixing: *Shape:* ``(sentence, token)``.
    """
    others = attention * (1 - _identity(attention))
    total = others.sum(-1, keepdim=True)
    there = total > torch.finfo(total.dtype).tiny
    part = torch.where(there, mixing.unsqueeze(-1), 0)
    return part * others / torch.where(there, total, 1) + (1 - part) * _identity(attention)


def _identity(like: torch.Tensor) -> torch.Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
