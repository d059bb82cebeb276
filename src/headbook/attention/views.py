"""What a metric sees of a layer: raw, sink masked, or sink masked and renormalised.

Metrics ask for sums: of rows, of columns, along diagonals, over chosen pairs, over words. They are
taken for all views at once; `AttentionMaps` holds what they share.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import torch

from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import BatchMask, QueryKeyPairs, ViewMask
from headbook.memory import CachedByFunction
from headbook.model import attention_hook
from headbook.schema import MAX_SINK_MASS, AttentionStack, SinkView
from headbook.text.batch import Batch, PaddedTexts


class Strongest(NamedTuple):
    """The strongest weight of each row and its key, the first of equals.

    Both *Shape:* ``(sentence, head, query)``; weight 0 where a row has none.
    """

    weight: torch.Tensor
    key: torch.Tensor


class LayerAttention(CachedByFunction, ABC):
    """One layer of one stack over a batch of sentences, in one view.

    Attributes:
        scope: which queries and keys count.
        frame: the sentences, in any view.
        maps: what views share; ``maps.call`` is the model's own attention call, on a sample only:
            over all sentences several layers are measured together, their heads side by side.
    """

    def __init__(self, scope: ViewMask, maps: AttentionMaps) -> None:
        self.scope, self.maps = scope, maps
        self.frame: BatchMask = scope.frame
        self._made = {}

    @property
    def attention(self) -> torch.Tensor:
        """Weights before any view, 0 where a query cannot see a key.

        *Shape:* ``(sentence, head, query, key)``.
        """
        return self.maps.attention

    @property
    @abstractmethod
    def weights(self) -> torch.Tensor:
        """Attention weights in this view; 0 for queries and keys that do not count.

        *Shape:* ``(sentence, head, query, key)``.
        """

    @property
    @abstractmethod
    def mass(self) -> torch.Tensor:
        """What each query gives to the keys that count. *Shape:* ``(sentence, head, query)``."""

    @property
    @abstractmethod
    def entropy(self) -> torch.Tensor:
        """Entropy of each row, in nats. *Shape:* ``(sentence, head, query)``."""

    @property
    @abstractmethod
    def strongest(self) -> Strongest:
        """The strongest weight of each row."""

    @property
    @abstractmethod
    def received_both(self) -> torch.Tensor:
        """`received`, then `received_from_words`. *Shape:* ``(sentence, head, 2, key)``."""

    @property
    @abstractmethod
    def by_offset(self) -> torch.Tensor:
        """Mass at each offset, key position minus query position; only where both are one text.

        *Shape:* ``(sentence, head, 2 n - 1)``; offset -(n-1) first.
        """

    @abstractmethod
    def mass_on_pairs(self, pairs: QueryKeyPairs) -> torch.Tensor:
        """Mass on chosen pairs, by measure. *Shape:* ``(sentence, head, measure)``."""

    @property
    def sink_mass(self) -> torch.Tensor:
        """What each query gives to the sink, before any view; 0 for queries that do not count.

        *Shape:* ``(sentence, head, query)``.
        """
        return self.maps.rows.sink_mass + self.learned_mass

    @cached_property
    def learned_mass(self) -> torch.Tensor:
        """What each query gives to the softmax's learned sink, which is no key; 0 without one.

        *Shape:* ``(sentence, head, query)``.
        """
        rows = self.maps.rows
        if not self.frame.stack.learned_sink:
            return torch.zeros_like(rows.mass)
        return (self.frame.rows - rows.mass - rows.sink_mass).clamp_min(0)

    @property
    def trusted_rows(self) -> torch.Tensor:
        """1 for rows whose shape means something, else 0: those that see a key at all.

        *Shape:* ``(sentence, head, query)``, or one head for all where heads do not differ.
        """
        return (self.scope.n_visible > 0).to(self.frame.dtype).unsqueeze(1)

    @cached_property
    def total(self) -> torch.Tensor:
        """All mass that counts. *Shape:* ``(sentence, head)``."""
        return self.mass.sum(-1)

    @cached_property
    def total_from_words(self) -> torch.Tensor:
        """The same, every word counting once, by the mean over its pieces."""
        return (self.mass * self.frame.word_weights.unsqueeze(1)).sum(-1)

    @property
    def received(self) -> torch.Tensor:
        """Mass that each key receives. *Shape:* ``(sentence, head, key)``."""
        return self.received_both[:, :, 0]

    @property
    def received_from_words(self) -> torch.Tensor:
        """The same, every word counting once, by the mean over its pieces."""
        return self.received_both[:, :, 1]

    @cached_property
    def distance_mass(self) -> torch.Tensor:
        """Mass times the distance it spans, in tokens. *Shape:* ``(sentence, head)``."""
        sums = self.by_offset
        n = (sums.shape[-1] + 1) // 2
        return sums @ torch.arange(1 - n, n, device=sums.device, dtype=sums.dtype).abs()


class _Raw(LayerAttention):
    """Weights as the model computed them."""

    @cached_property
    def weights(self) -> torch.Tensor:
        return self.attention * self.frame.rows.unsqueeze(-1)

    @cached_property
    def mass(self) -> torch.Tensor:
        return self.maps.rows.mass + self.maps.rows.sink_mass

    @property
    def entropy(self) -> torch.Tensor:
        return self.maps.entropies[0]

    @property
    def strongest(self) -> Strongest:
        return Strongest(self.maps.rows.best_any, self.maps.rows.best_any_key)

    @property
    def received_both(self) -> torch.Tensor:
        return self.maps.rows.columns[:, :, :2]

    @property
    def by_offset(self) -> torch.Tensor:
        return self.maps.rows.diagonals[:, :, 0]

    def mass_on_pairs(self, pairs: QueryKeyPairs) -> torch.Tensor:
        return self.maps.on(pairs)[0]


class _Nosink(LayerAttention):
    """The sink's keys removed; rows no longer sum to 1."""

    @property
    def weights(self) -> torch.Tensor:
        return self.maps.kept

    @property
    def mass(self) -> torch.Tensor:
        return self.maps.rows.mass

    @property
    def entropy(self) -> torch.Tensor:
        return self.maps.entropies[1]

    @property
    def strongest(self) -> Strongest:
        return Strongest(self.maps.rows.best, self.maps.rows.best_key)

    @cached_property
    def received_both(self) -> torch.Tensor:
        return self.maps.rows.columns[:, :, :2] * self.scope.kept_keys[:, None, None, :]

    @property
    def by_offset(self) -> torch.Tensor:
        return self.maps.rows.diagonals[:, :, 1]

    def mass_on_pairs(self, pairs: QueryKeyPairs) -> torch.Tensor:
        return self.maps.on(pairs)[1]


class _Renorm(LayerAttention):
    """The sink's keys removed and each row divided by what is left."""

    @cached_property
    def weights(self) -> torch.Tensor:
        return self.maps.kept / self.maps.mass_off_sink.unsqueeze(-1)

    @cached_property
    def mass(self) -> torch.Tensor:
        return (self.maps.rows.mass > 0).to(self.frame.dtype)

    @cached_property
    def entropy(self) -> torch.Tensor:
        # With a = A / s:  -sum a ln a  =  (-sum A ln A) / s + ln s
        return (
            self.maps.entropies[1] / self.maps.mass_off_sink + self.maps.mass_off_sink.log()
        ).clamp_min(0)

    @cached_property
    def strongest(self) -> Strongest:
        return Strongest(self.maps.rows.best / self.maps.mass_off_sink, self.maps.rows.best_key)

    @cached_property
    def trusted_rows(self) -> torch.Tensor:
        """The rows that have not lost almost all of their mass to the sink, either."""
        return super().trusted_rows * (self.sink_mass <= MAX_SINK_MASS)

    @cached_property
    def received_both(self) -> torch.Tensor:
        # Of the sink's keys the rest of a row can be a huge multiple.
        received = self.maps.rows.columns[:, :, 2:]
        return received.masked_fill(~self.scope.kept_keys[:, None, None, :], 0)

    @property
    def by_offset(self) -> torch.Tensor:
        return self.maps.rows.diagonals[:, :, 2]

    def mass_on_pairs(self, pairs: QueryKeyPairs) -> torch.Tensor:
        return self.maps.on(pairs)[2]


def layer_views(
    scopes: Mapping[SinkView, ViewMask], maps: AttentionMaps
) -> dict[SinkView, LayerAttention]:
    """One layer's attention in every view."""
    return {
        SinkView.RAW: _Raw(scopes[SinkView.RAW], maps),
        SinkView.NOSINK: _Nosink(scopes[SinkView.NOSINK], maps),
        SinkView.RENORM: _Renorm(scopes[SinkView.RENORM], maps),
    }


def mask_of_call(
    attention: attention_hook.AttentionCall,
    stack: AttentionStack,
    queries: PaddedTexts,
    keys: PaddedTexts,
) -> torch.Tensor:
    """What each query may look at, by the mask that the model applied.

    Returns:
        *Shape:* ``(sentence, query, key)``, boolean.
    """
    shape = (keys.ids.shape[0], queries.n_tokens, keys.n_tokens)
    open_ = torch.ones(shape, dtype=torch.bool, device=keys.ids.device)
    if attention.mask is not None:
        lowest = max(torch.finfo(attention.mask.dtype).min, attention_hook.LOWEST)
        open_ = (attention.mask[:, 0] > lowest / 2).expand(shape)
    elif stack.causal:  # only where the mask is out of reach
        open_ = open_.tril()
    return open_ & keys.valid[:, None, :]


class ViewMasks:
    """The scopes of a batch, made once for all layers that share a mask."""

    def __init__(self, batch: Batch, stacks: Mapping[str, AttentionStack]) -> None:
        self._batch, self._stacks = batch, stacks
        self._known: dict[tuple[str, int], dict[SinkView, ViewMask]] = {}
        self._masks: list[torch.Tensor | None] = []  # kept, so that no id is used twice
        self._last: tuple[attention_hook.AttentionCall, dict[SinkView, LayerAttention]] | None = (
            None
        )

    def get(self, name: str, attention: attention_hook.AttentionCall) -> dict[SinkView, ViewMask]:
        """The scopes of one attention call, by view; the same object for the same mask."""
        key = (name, id(attention.mask))
        if key not in self._known:
            stack = self._stacks[name]
            queries, keys = self._batch.texts[stack.queries], self._batch.texts[stack.keys]
            frame = BatchMask(stack, queries, keys, mask_of_call(attention, stack, queries, keys))
            self._known[key] = {view: ViewMask(frame, view) for view in SinkView}
            self._masks.append(attention.mask)
        return self._known[key]

    def views(
        self, name: str, attention: attention_hook.AttentionCall
    ) -> dict[SinkView, LayerAttention]:
        """One attention call in every view; the same objects until another one is asked for."""
        if self._last is None or self._last[0] is not attention:
            self._last = None  # before its sums are there twice
            scopes = self.get(name, attention)
            maps = AttentionMaps(scopes[SinkView.NOSINK], attention)
            self._last = attention, layer_views(scopes, maps)
        return self._last[1]
