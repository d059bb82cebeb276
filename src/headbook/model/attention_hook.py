"""The attention hook for all architectures that use transformers' attention interface.

The registered function lets the model's own eager attention compute weights and output, so that
both equal those of the unhooked model bit for bit, for any scaling, masks, soft caps, position
biases or grouped heads. Then it shows them to the observer.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from headbook.model import restore_import_loggers
from headbook.model.output_projection import OutputProjection

restore_import_loggers()  # `AttentionInterface` is of the module that imports torchao
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
        positions: parts of the scores that are products of queries, or of keys, with vectors of
            positions. *Shape:* that of ``weights`` each.
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
    positions: tuple[torch.Tensor, ...] = ()

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


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    AttentionInterface: hooked_attention,
    AttentionMaskInterface: finite_mask,
}
_lock = threading.RLock()  # networks may be collected, and end their use, inside the lock
_users: set[object] = set()  # one for each network that looks up `NAME`
_earlier: dict[Any, Any] = {}  # what transformers had under `NAME` before, by interface
_scope: ContextVar[list[Callable[[], Any]] | None] = ContextVar("headbook_scope", default=None)


def hook_into(network: Any) -> None:
    """Let a network call `hooked_attention`; it stays "eager" if its code supports no other.

    The hook is registered with transformers under `NAME` until the network is no longer in memory,
    or until the `hooks_removed` block ends in which this is called.
    """
    user = object()
    with _lock:
        _users.add(user)
        if not _earlier:
            for interface, function in FUNCTIONS.items():
                _earlier[interface] = _registered(interface).get(NAME)
                interface.register(NAME, function)
    end = weakref.finalize(network, _end_use, user)
    end.atexit = False
    if (ends := _scope.get()) is not None:
        ends.append(end)
    network.set_attn_implementation(NAME)


@contextmanager
def hooks_removed() -> Iterator[None]:
    """Take the hook from transformers after the block, unless networks from outside it use it.

    Networks that the block has hooked cannot run after it.
    """
    ends: list[Callable[[], Any]] = []
    token = _scope.set(ends)
    try:
        yield
    finally:
        _scope.reset(token)
        for end in ends:
            end()


def _end_use(user: object) -> None:
    """Note that a network does not look up `NAME` again; after the last, restore transformers."""
    with _lock:
        _users.discard(user)
        if _users:
            return
        while _earlier:
            interface, function = _earlier.popitem()
            if function is None:
                _registered(interface).pop(NAME, None)
            else:
                interface.register(NAME, function)


def _registered(interface: Any) -> dict[str, Any]:
    """Return all functions of an interface by name; transformers can register, but not remove."""
    functions: dict[str, Any] = interface._global_mapping  # noqa: SLF001 - see above
    return functions
