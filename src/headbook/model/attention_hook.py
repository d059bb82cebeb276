"""The one attention hook, for every architecture that asks transformers for its attention.

The registered function lets the model's own eager attention compute weights and output, so both
are what the model would have computed, bit for bit, whatever it does with scaling, masks, soft
caps, position biases or grouped heads. In between it shows them to whoever is watching.
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

NAME = "headbook"
LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention function: one layer of one stack over a batch.

    Attributes:
        module: the attention module that made the call; None where only weights are known.
        query: *Shape:* ``(sentence, head, query, width)``; None where not available.
        key, value: *Shape:* ``(sentence, key_head, key, width)``; None where not available.
        mask: what was added to the scores, ``(sentence, 1, query, key)``, 0 where a query sees a
            key; None where every query sees every key.
        weights: *Shape:* ``(sentence, head, query, key)``; each row sums to 1.
        output: *Shape:* ``(sentence, query, head, width)``; None where not available.
        projection: what the heads' outputs go through next; None where not known.
        scaling: of the products of queries and keys; None where the model leaves it to the width.
        factor: what a gate or a norm multiplies the outputs by before the projection; None without
            one. *Shape:* that of ``output``.
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
        """Outputs of heads, or a part of them, as they go into the projection.

        The factor is held as it is, a norm's divisor, too: so parts of outputs add up.

        Args:
            heads: *Shape:* that of ``output``.
        """
        return heads if self.factor is None else heads * self.factor.to(heads)


class NoEagerAttention(Exception):  # noqa: N818 - it reports, it does not fail
    """The model uses the attention interface without an eager function of its own."""


Observer = Callable[[AttentionCall], torch.Tensor | None]
_observer: ContextVar[Observer | None] = ContextVar("headbook_watcher", default=None)


@contextmanager
def observing(watcher: Observer) -> Iterator[None]:
    """Show every attention call inside the block to ``watcher``.

    What it returns, other than None, takes the place of the heads' outputs.
    """
    token = _observer.set(watcher)
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
    """Attention as the model's own eager function computes it, seen by the watcher.

    Returns:
        Output ``(sentence, query, head, width)`` and weights ``(sentence, head, query, key)``.

    Raises:
        NoEagerAttention: there is no eager function to ask.
    """
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise NoEagerAttention(type(module).__name__)
    output, weights = eager(module, query, key, value, attention_mask, **options)
    if is_observed():
        scaling = options.get("scaling")
        seen = (module, query, key, value, attention_mask, weights, output)
        instead = replaced_output(AttentionCall(*seen, scaling=scaling))
        output = output if instead is None else instead
    return output, weights


def is_observed() -> bool:
    """Whether somebody watches."""
    return _observer.get() is not None


def replaced_output(attention: AttentionCall) -> torch.Tensor | None:
    """Show a call to who watches; gives what takes the place of the heads' outputs, if anything."""
    watcher = _observer.get()
    return None if watcher is None else watcher(attention)


def finite_mask(*sizes: Any, **options: Any) -> torch.Tensor | None:
    """The model's own eager mask, with hidden pairs at float32's lowest number at the lowest.

    A model in float64 may take its softmax in float32, where float64's lowest number is -inf and
    makes NaN of a row that sees no key: padding in a layer with a window.
    """
    mask = eager_mask(*sizes, **options)
    wide = mask is not None and mask.dtype == torch.float64
    return mask.clamp(min=LOWEST) if wide else mask


def register() -> None:
    """Make the hook known to transformers under `NAME`; harmless to repeat."""
    AttentionInterface.register(NAME, hooked_attention)
    AttentionMaskInterface.register(NAME, finite_mask)
