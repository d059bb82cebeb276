"""Which pairs of tokens count in each attention call of a batch, and the call in every view."""

from collections.abc import Mapping

import torch

from headbook.attention.frame import Frame, Scope
from headbook.attention.layerattention import LayerAttention, layer_attentions
from headbook.attention.maps import Maps
from headbook.model import hook
from headbook.terms import Stack, View
from headbook.text.batch import Batch
from headbook.text.texts import Texts


def seen(attention: hook.Attention, stack: Stack, queries: Texts, keys: Texts) -> torch.Tensor:
    """What each query may look at, by the mask that the model applied.

    Returns:
        *Shape:* ``(sentence, query, key)``, boolean.
    """
    shape = (keys.ids.shape[0], queries.n_tokens, keys.n_tokens)
    open_ = torch.ones(shape, dtype=torch.bool, device=keys.ids.device)
    if attention.mask is not None:
        lowest = max(torch.finfo(attention.mask.dtype).min, hook.LOWEST)
        open_ = (attention.mask[:, 0] > lowest / 2).expand(shape)
    elif stack.causal:  # only where the mask is out of reach
        open_ = open_.tril()
    return open_ & keys.valid[:, None, :]


class Scopes:
    """The scopes of a batch, made once for all layers that share a mask."""

    def __init__(self, batch: Batch, stacks: Mapping[str, Stack]) -> None:
        self._batch, self._stacks = batch, stacks
        self._known: dict[tuple[str, int], dict[View, Scope]] = {}
        self._masks: list[torch.Tensor | None] = []  # kept, so that no id is used twice
        self._last: tuple[hook.Attention, dict[View, LayerAttention]] | None = None

    def get(self, name: str, attention: hook.Attention) -> dict[View, Scope]:
        """The scopes of one attention call, by view; the same object for the same mask."""
        key = (name, id(attention.mask))
        if key not in self._known:
            stack = self._stacks[name]
            queries, keys = self._batch.texts[stack.queries], self._batch.texts[stack.keys]
            frame = Frame(stack, queries, keys, seen(attention, stack, queries, keys))
            self._known[key] = {view: Scope(frame, view) for view in View}
            self._masks.append(attention.mask)
        return self._known[key]

    def views(self, name: str, attention: hook.Attention) -> dict[View, LayerAttention]:
        """One attention call in every view; the same objects until another one is asked for."""
        if self._last is None or self._last[0] is not attention:
            self._last = None  # before its sums are there twice
            scopes = self.get(name, attention)
            maps = Maps(scopes[View.NOSINK], attention)
            self._last = attention, layer_attentions(scopes, maps)
        return self._last[1]
