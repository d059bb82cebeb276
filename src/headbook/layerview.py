"""What a metric sees of one layer: its attention over a batch, with a view applied.

Metrics ask for sums: of rows, of columns, along diagonals, over chosen pairs. They are taken in as
few passes over the maps as there can be: what a view has in common with the one it is made from is
taken from there.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from headbook.frame import Feature, Frame, Scope
from headbook.terms import View

DROPPED = 0.9  # Vig & Belinkov, footnote 4: a row with more than this on the sink is noise


class LayerView(ABC):
    """One layer of one stack over a batch of sentences, in one view.

    Attributes:
        scope: which queries and keys count.
        frame: the sentences, in any view.
        attention: weights before any view, 0 where a query cannot see a key.
            *Shape:* ``(sentence, head, query, key)``.
    """

    def __init__(self, scope: Scope, attention: torch.Tensor) -> None:
        self.scope, self.attention = scope, attention
        self.frame: Frame = scope.frame
        self._rows: dict[int, torch.Tensor] = {}

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
    def sink_mass(self) -> torch.Tensor:
        """What each query gives to the sink, before any view; 0 for queries that do not count.

        *Shape:* ``(sentence, head, query)``.
        """

    @property
    @abstractmethod
    def received_both(self) -> torch.Tensor:
        """`received`, then `received_from_words`. *Shape:* ``(sentence, head, 2, key)``."""

    @abstractmethod
    def _sum_rows(self, feature: Feature) -> torch.Tensor:
        """See `rows`."""

    @abstractmethod
    def _write(self, cells: torch.Tensor) -> None:
        """Write the weights into ``cells``, of the same shape."""

    @property
    def trusted(self) -> torch.Tensor:
        """1 for rows whose shape means something, else 0: those that see a key at all.

        *Shape:* ``(sentence, head, query)``, or one head for all where heads do not differ.
        """
        return (self.scope.n_visible > 0).to(self.attention.dtype).unsqueeze(1)

    @cached_property
    def total(self) -> torch.Tensor:
        """All mass that counts. *Shape:* ``(sentence, head)``."""
        return self.mass.sum(-1)

    @cached_property
    def total_from_words(self) -> torch.Tensor:
        """The same, every word counting once, by the mean over its pieces."""
        return (self.mass * self.frame.words.unsqueeze(1)).sum(-1)

    @property
    def received(self) -> torch.Tensor:
        """Mass that each key receives. *Shape:* ``(sentence, head, key)``."""
        return self.received_both[:, :, 0]

    @property
    def received_from_words(self) -> torch.Tensor:
        """The same, every word counting once, by the mean over its pieces."""
        return self.received_both[:, :, 1]

    @cached_property
    def by_offset(self) -> torch.Tensor:
        """Mass at each offset, key position minus query position; only where both are one text.

        *Shape:* ``(sentence, head, 2 n - 1)``; offset -(n-1) first.
        """
        sentences, heads, n, _ = self.attention.shape
        shape = torch.Size([sentences, heads, n * 2 * n])
        if shape not in self.frame.skewed:
            self.frame.skewed[shape] = self.attention.new_zeros(shape)
        flat = self.frame.skewed[shape]
        # Written into rows of 2n - 1 and read back in rows of 2n, each row stands one step
        # further left than the one above, so that a column holds a diagonal. The cells between
        # stay 0 for the next layer.
        wide = flat[..., : n * (2 * n - 1)].view(sentences, heads, n, 2 * n - 1)
        self._write(wide[..., n - 1 :])
        diagonals = flat.reshape(sentences, heads, n, 2 * n).sum(2)
        return diagonals[..., : 2 * n - 1]

    @cached_property
    def reach(self) -> torch.Tensor:
        """Mass times the distance it spans, in tokens. *Shape:* ``(sentence, head)``."""
        n = self.attention.shape[-1]
        offsets = torch.arange(1 - n, n, device=self.attention.device, dtype=self.attention.dtype)
        return self.by_offset @ offsets.abs()

    def rows(self, feature: Feature) -> torch.Tensor:
        """Mass of each row, weighted by a feature. *Shape:* ``(sentence, head, query)``."""
        if id(feature) not in self._rows:
            self._rows[id(feature)] = self._sum_rows(feature)
        return self._rows[id(feature)]

    def on(self, features: Sequence[Feature]) -> torch.Tensor:
        """Mass weighted by features of pairs. *Shape:* ``(sentence, head, label)``."""
        return torch.stack([self.rows(feature).sum(-1) for feature in features], -1)


class _Raw(LayerView):
    """Weights as the model computed them."""

    @cached_property
    def weights(self) -> torch.Tensor:
        return self.attention * self.frame.rows.unsqueeze(-1)

    @cached_property
    def mass(self) -> torch.Tensor:
        return self.attention.sum(-1) * self.frame.rows

    @cached_property
    def surprisal(self) -> torch.Tensor:
        """A ln A of each weight, in nats; never positive.

        *Shape:* ``(sentence, head, query, key)``.
        """
        smallest = torch.finfo(self.attention.dtype).tiny
        return self.attention.clamp_min(smallest).log_().mul_(self.attention)

    @cached_property
    def entropy(self) -> torch.Tensor:
        return -self.surprisal.sum(-1) * self.frame.rows

    @cached_property
    def sink_mass(self) -> torch.Tensor:
        places, there = self.frame.sink_places
        at = places[:, None, None, :].expand(*self.attention.shape[:3], -1)
        return (self.attention.gather(-1, at) * there[:, None, None, :]).sum(-1) * self.frame.rows

    @cached_property
    def received_both(self) -> torch.Tensor:
        by_token, by_word = self.frame.rows, self.frame.words.unsqueeze(1)
        return torch.stack([by_token, by_word], 2) @ self.attention

    def _sum_rows(self, feature: Feature) -> torch.Tensor:
        return (self.attention * feature.table).sum(-1) * self.frame.rows

    def _write(self, cells: torch.Tensor) -> None:
        torch.mul(self.attention, self.frame.rows.unsqueeze(-1), out=cells)


class _Nosink(LayerView):
    """The sink's keys removed; rows no longer sum to 1."""

    def __init__(self, scope: Scope, raw: _Raw) -> None:
        super().__init__(scope, raw.attention)
        self._raw = raw

    @cached_property
    def weights(self) -> torch.Tensor:
        return self.attention * self.scope.mask

    @cached_property
    def mass(self) -> torch.Tensor:
        return self.weights.sum(-1)

    @cached_property
    def entropy(self) -> torch.Tensor:
        return -(self._raw.surprisal * self.scope.mask).sum(-1)

    @property
    def sink_mass(self) -> torch.Tensor:
        return self._raw.sink_mass

    @cached_property
    def received_both(self) -> torch.Tensor:
        return self._raw.received_both * self.scope.kept[:, None, None, :]

    def _sum_rows(self, feature: Feature) -> torch.Tensor:
        if not feature.in_sink:
            return self._raw.rows(feature)
        return (self.weights * feature.table).sum(-1)

    def _write(self, cells: torch.Tensor) -> None:
        cells.copy_(self.weights)


class _Renorm(LayerView):
    """The sink's keys removed and each row divided by what is left."""

    def __init__(self, scope: Scope, nosink: _Nosink) -> None:
        super().__init__(scope, nosink.attention)
        self._nosink = nosink

    @cached_property
    def _left(self) -> torch.Tensor:
        """Row sums to divide by. *Shape:* ``(sentence, head, query)``; never 0.

        A row whose whole mass is on the sink stays 0 instead of becoming 0/0.
        """
        return self._nosink.mass.masked_fill(self._nosink.mass == 0, 1)

    @cached_property
    def weights(self) -> torch.Tensor:
        return self._nosink.weights / self._left.unsqueeze(-1)

    @cached_property
    def mass(self) -> torch.Tensor:
        return (self._nosink.mass > 0).to(self.attention.dtype)

    @cached_property
    def entropy(self) -> torch.Tensor:
        # With a = A / s:  -sum a ln a  =  (-sum A ln A) / s + ln s
        return self._nosink.entropy / self._left + self._left.log()

    @property
    def sink_mass(self) -> torch.Tensor:
        return self._nosink.sink_mass

    @cached_property
    def trusted(self) -> torch.Tensor:
        """The rows that have not lost almost all of their mass to the sink, either."""
        return super().trusted * (self.sink_mass <= DROPPED)

    @cached_property
    def received_both(self) -> torch.Tensor:
        shares = self.frame.rows / self._left
        words = self.frame.words.unsqueeze(1) / self._left
        found = torch.stack([shares, words], 2) @ self.attention
        return found * self.scope.kept[:, None, None, :]

    def _sum_rows(self, feature: Feature) -> torch.Tensor:
        return self._nosink.rows(feature) / self._left

    def _write(self, cells: torch.Tensor) -> None:
        torch.div(self._nosink.weights, self._left.unsqueeze(-1), out=cells)


def layer_views(scopes: Mapping[View, Scope], attention: torch.Tensor) -> dict[View, LayerView]:
    """One layer's attention in every view."""
    attention = attention.to(scopes[View.RAW].frame.dtype)
    raw = _Raw(scopes[View.RAW], attention)
    nosink = _Nosink(scopes[View.NOSINK], raw)
    return {
        View.RAW: raw,
        View.NOSINK: nosink,
        View.RENORM: _Renorm(scopes[View.RENORM], nosink),
    }
