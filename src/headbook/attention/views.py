r"""Sink views of a layer's attention: raw, sink masked, or sink masked and renormalised.

Metrics read sums: of rows, of columns, along diagonals, over chosen pairs, over words.
`AttentionMaps` computes them for all views at once.
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
    """Strongest weight of each row and its key, the first of equals.

    Attributes:
        weight: largest weight; 0 for rows without weights. *Shape:* ``(sentence, head, query)``.
        key: index of its key. *Shape:* ``(sentence, head, query)``.
    """

    weight: torch.Tensor
    key: torch.Tensor


class LayerAttention(CachedByFunction, ABC):
    """Attention of one layer of one stack over a batch of sentences, in one view.

    Attributes:
        scope: mask of the view.
        frame: mask of the batch in any view.
        maps: maps and sums shared by all views; ``maps.call``, the model's attention call, exists
            on samples only, since several layers are measured together over all sentences.
    """

    def __init__(self, scope: ViewMask, maps: AttentionMaps) -> None:
        self.scope, self.maps = scope, maps
        self.frame: BatchMask = scope.frame
        self._made = {}

    @property
    def attention(self) -> torch.Tensor:
        """Raw attention weights, 0 if a query cannot see a key.

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
        """Attention of each query on the keys that count. *Shape:* ``(sentence, head, query)``."""

    @property
    @abstractmethod
    def entropy(self) -> torch.Tensor:
        """Entropy of each row, in nats. *Shape:* ``(sentence, head, query)``."""

    @property
    @abstractmethod
    def strongest(self) -> Strongest:
        """Strongest weight of each row, with its key."""

    @property
    @abstractmethod
    def received_both(self) -> torch.Tensor:
        """Values of `received`, then of `received_from_words`.

        *Shape:* ``(sentence, head, 2, key)``.
        """

    @property
    @abstractmethod
    def by_offset(self) -> torch.Tensor:
        """Mass at each offset, key position minus query position, for stacks with one text.

        *Shape:* ``(sentence, head, 2 n - 1)``; offset -(n-1) first.
        """

    @abstractmethod
    def mass_on_pairs(self, pairs: QueryKeyPairs) -> torch.Tensor:
        """Return the mass on chosen pairs, by measure. *Shape:* ``(sentence, head, measure)``."""

    @property
    def sink_mass(self) -> torch.Tensor:
        """Raw attention of each query on the sink; 0 for queries that do not count.

        *Shape:* ``(sentence, head, query)``.
        """
        return self.maps.rows.sink_mass + self.learned_mass

    @cached_property
    def learned_mass(self) -> torch.Tensor:
        """Attention of each query on the softmax's learned sink, which is no key; 0 without one.

        *Shape:* ``(sentence, head, query)``.
        """
        rows = self.maps.rows
        if not self.frame.stack.learned_sink:
            return torch.zeros_like(rows.mass)
        return (self.frame.rows - rows.mass - rows.sink_mass).clamp_min(0)

    @property
    def trusted_rows(self) -> torch.Tensor:
        """1 for rows whose distribution is meaningful, else 0: those that see a key.

        *Shape:* ``(sentence, head, query)``, with a head dimension of 1 if heads do not differ.
        """
        return (self.scope.n_visible > 0).to(self.frame.dtype).unsqueeze(1)

    @cached_property
    def total(self) -> torch.Tensor:
        """Total attention on keys that count. *Shape:* ``(sentence, head)``."""
        return self.mass.sum(-1)

    @cached_property
    def total_from_words(self) -> torch.Tensor:
        """Total attention by word: the mean over its pieces. *Shape:* ``(sentence, head)``."""
        return (self.mass * self.frame.word_weights.unsqueeze(1)).sum(-1)

    @property
    def received(self) -> torch.Tensor:
        """Attention that each key receives from tokens. *Shape:* ``(sentence, head, key)``."""
        return self.received_both[:, :, 0]

    @property
    def received_from_words(self) -> torch.Tensor:
        r"""Attention that each key receives from words, with the mean over a word's pieces.

        *Shape:* ``(sentence, head, key)``.
        """
        return self.received_both[:, :, 1]

    @cached_property
    def distance_mass(self) -> torch.Tensor:
        """Sum of attention times distance in tokens. *Shape:* ``(sentence, head)``."""
        sums = self.by_offset
        n = (sums.shape[-1] + 1) // 2
        return sums @ torch.arange(1 - n, n, device=sums.device, dtype=sums.dtype).abs()


class _Raw(LayerAttention):
    """Raw view: weights as the model computed them."""

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
        return self.maps.mass_on(pairs)[0]


class _Nosink(LayerAttention):
    """View with the sink's keys removed; rows no longer sum to 1."""

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
        return self.maps.mass_on(pairs)[1]


class _Renorm(LayerAttention):
    """View with the sink's keys removed and each row divided by its remaining sum."""

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
        """1 for rows that see a key and have at most `MAX_SINK_MASS` on the sink, else 0."""
        return super().trusted_rows * (self.sink_mass <= MAX_SINK_MASS)

    @cached_property
    def received_both(self) -> torch.Tensor:
        # Masked, since renormalised weights on the sink's keys can be huge.
        received = self.maps.rows.columns[:, :, 2:]
        return received.masked_fill(~self.scope.kept_keys[:, None, None, :], 0)

    @property
    def by_offset(self) -> torch.Tensor:
        return self.maps.rows.diagonals[:, :, 2]

    def mass_on_pairs(self, pairs: QueryKeyPairs) -> torch.Tensor:
        return self.maps.mass_on(pairs)[2]


def layer_views(
    scopes: Mapping[SinkView, ViewMask], maps: AttentionMaps
) -> dict[SinkView, LayerAttention]:
    """Return the attention of one layer in every view."""
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
    """Return which keys each query may attend to, by the mask that the model applied.

    Returns:
        *Shape:* ``(sentence, query, key)``, boolean.
    """
    shape = (keys.ids.shape[0], queries.n_tokens, keys.n_tokens)
    allowed = torch.ones(shape, dtype=torch.bool, device=keys.ids.device)
    if attention.mask is not None:
        lowest = max(torch.finfo(attention.mask.dtype).min, attention_hook.FLOAT32_MIN)
        allowed = (attention.mask[:, 0] > lowest / 2).expand(shape)
    elif stack.causal:  # the model's mask is not available
        allowed = allowed.tril()
    return allowed & keys.valid[:, None, :]


class ViewMasks:
    """Masks of a batch by view, shared by all layers with the same attention mask."""

    def __init__(self, batch: Batch, stacks: Mapping[str, AttentionStack]) -> None:
        self._batch, self._stacks = batch, stacks
        self._known: dict[tuple[str, int], dict[SinkView, ViewMask]] = {}
        self._masks: list[torch.Tensor | None] = []  # references, so that ids of masks stay unique
        self._last_call: attention_hook.AttentionCall | None = None
        self._last_views: dict[SinkView, LayerAttention] = {}

    def get(self, name: str, attention: attention_hook.AttentionCall) -> dict[SinkView, ViewMask]:
        """Return the masks of an attention call by view; the same object for the same mask."""
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
        """Return an attention call in every view; the same objects until the next call."""
        if self._last_call is not attention:
            # The sums of the last call are freed before new ones are computed.
            self._last_call, self._last_views = None, {}
            scopes = self.get(name, attention)
            maps = AttentionMaps(scopes[SinkView.NOSINK], attention)
            self._last_call, self._last_views = attention, layer_views(scopes, maps)
        return self._last_views
