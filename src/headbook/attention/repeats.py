"""Pairs of tokens in repeated sequences. No torch at import: metrics name these functions."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from headbook.attention.frame import Frame
    from headbook.attention.layerattention import LayerAttention

Table = Callable[[Any], Any]  # which pairs: (sentence, query, key), boolean


def same_token(frame: "Frame") -> "torch.Tensor":
    """The key is an earlier place of the query's token."""
    same = frame.queries.ids[:, :, None] == frame.keys.ids[:, None, :]
    return same & (frame.offset < 0) & frame.seen & _ordinary(frame)


def after_same_token(frame: "Frame") -> "torch.Tensor":
    """The key comes after an earlier place of the query's token."""
    earlier = frame.once(same_token)
    after = earlier.new_zeros(earlier.shape)
    after[..., 1:] = earlier[..., :-1]
    return after & frame.seen


def previous(frame: "Frame") -> "torch.Tensor":
    """The key stands just before the query."""
    return (frame.offset == -1) & frame.seen & _ordinary(frame)


def _ordinary(frame: "Frame") -> "torch.Tensor":
    return ~frame.keys.special[:, None, :]


def on_pairs(layer: "LayerAttention", table: Table) -> "tuple[torch.Tensor, torch.Tensor]":
    """Mass on some pairs, and queries that have one. *Shape:* ``(sentence, head)``."""
    chosen = layer.frame.once(table)
    counted = (chosen.any(-1) & layer.frame.counted).sum(-1, keepdim=True)
    return layer.on(layer.frame.once(pairs_of(table))).squeeze(-1), counted


@cache
def pairs_of(table: Table) -> Table:
    """What makes pairs of a table: the same function each time, by which frames remember them."""

    def pairs(frame: "Frame") -> Any:
        return frame.pairs([frame.once(table)])

    return pairs
