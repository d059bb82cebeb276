"""The attention hook for all architectures that use transformers' attention interface.

The registered function lets the model's own eager attention compute weights and output, so that
both equal those of the unhooked model bit for bit, for any scaling, masks, soft caps, position
biases or grouped heads. Then it shows them to the observer.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from headbook.model.output_projection import OutputProjection

NAME = "headbook"  # of the attention implementation in transformers
FLOAT32_MIN = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention function: one layer of one stack over a batch.

    Attributes:
        module: attention module that made the call; None if only weights are known.
        query: queries; None if not available. *Shape:* ``(sentence, head, query, width)``.
        key, value: keys and values; None if not available. *Shape:* ``(sentence, key_head, key,
            width)``.
        mask: additive mask of the scores, 0 where a query sees a key; None if every query sees
            every key. *Shape:* ``(sentence, 1, query, key)``.
        weights: attention weights; each row sums to 1. *Shape:* ``(sentence, head, query, key)``.
        output: head outputs; None if not available. *Shape:* ``(sentence, query, head, width)``.
        projection: output projection of the heads; None if unknown.
        scaling: factor of the products of queries and keys; None for the default by width.
        factor: factors of a gate or norm between outputs and projection; None without one.
            *Shape:* that of ``output``.
    """

    module: torch.nn.Module | None
    query: torch.Tensor | None
    key: torch.Tensor | None
    value: torch.Tensor | None
    mask: torch.Tensor | None
    weights: torch.Tensor
    output: torch.Tensor | None
    projection: OutputProjection | None = None
    scaling: float | None = None
    factor: torch.Tensor | None = None

    def gated(self, heads: torch.Tensor) -> torch.Tensor:
        """Return head outputs, or a part of them, with the factors of a gate or norm applied.

        Factors, including a norm's divisor, are those of the whole output, so that parts of outputs
        add up.

        Args:
            heads: head outputs. *Shape:* that of ``output``.
        """
        return heads if self.factor is None else heads * self.factor.to(heads)


class NoEagerAttention(Exception):  # noqa: N818 - a signal, not a failure
    """A model uses the attention interface but has no eager attention function."""


Observer = Callable[[AttentionCall], torch.Tensor | None]
_observer: ContextVar[Observer | None] = ContextVar("headbook_watcher", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show every attention call inside the block to the observer ``observer``.

    A tensor that the observer returns replaces the head outputs; None keeps them.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def hooked_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention by the model's own eager function, and show it to the observer.

    Returns:
        Output ``(sentence, query, head, width)`` and weights ``(sentence, head, query, key)``.

    Raises:
        NoEagerAttention: the model's module has no eager function.
    """
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise NoEagerAttention(type(module).__name__)
    output, weights = eager(module, query, key, value, attention_mask, **options)
    if is_observed():
        scaling = options.get("scaling")
        fields = (module, query, key, value, attention_mask, weights, output)
        replacement = replaced_output(AttentionCall(*fields, scaling=scaling))
        output = output if replacement is None else replacement
    return output, weights


def is_observed() -> bool:
    """Whether an observer is set."""
    return _observer.get() is not None


def replaced_output(attention: AttentionCall) -> torch.Tensor | None:
    """Show an attention call to the observer and return its replacement output, or None."""
    observer = _observer.get()
    return None if observer is None else observer(attention)


def finite_mask(*sizes: Any, **options: Any) -> torch.Tensor | None:
    """Return the model's own eager mask, with values clamped to float32's lowest number.

    A model in float64 may compute its softmax in float32, where float64's lowest number becomes
    -inf and yields NaN in rows that see no key: padding in a layer with a window.
    """
    mask = eager_mask(*sizes, **options)
    is_float64 = mask is not None and mask.dtype == torch.float64
    return mask.clamp(min=FLOAT32_MIN) if is_float64 else mask


def register() -> None:
    """Register the hook with transformers under `NAME`; repeated calls are harmless."""
    AttentionInterface.register(NAME, hooked_attention)
    AttentionMaskInterface.register(NAME, finite_mask)
