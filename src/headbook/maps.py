"""The attention maps of one layer over a batch, and the sums that its views share."""

from functools import cached_property

import torch

from headbook import compiled, plain
from headbook.frame import Frame, Pairs, Scope
from headbook.hook import Attention


class Maps:
    """One layer of one stack over a batch of sentences.

    Args:
        scope: that of the view without the sink.
        call: the model's attention call.

    Attributes:
        attention: weights as the model computed them. *Shape:* ``(sentence, head, query, key)``.
        call: as given; queries, keys, values and the module may be missing.
    """

    def __init__(self, scope: Scope, call: Attention) -> None:
        self._scope, self.call = scope, call
        self._frame: Frame = scope.frame
        self.attention = call.weights.to(self._frame.dtype).contiguous()
        self._on: dict[int, tuple[Pairs, torch.Tensor]] = {}

    @property
    def _on_processor(self) -> bool:
        """Whether compiled loops can reach the weights."""
        return self.attention.device.type == "cpu"

    @cached_property
    def kept(self) -> torch.Tensor:
        """Weights of queries and keys that count, the sink's keys left out; the rest 0.

        *Shape:* ``(sentence, head, query, key)``.
        """
        return self.attention * self._scope.mask

    @cached_property
    def rows(self) -> plain.RowSums:
        """Sums of rows, columns and diagonals."""
        sums = compiled.row_sums if self._on_processor else plain.row_sums
        return sums(self.attention, self._scope)

    @cached_property
    def words(self) -> plain.WordSums:
        """Sums of the weights between words."""
        sums = compiled.word_sums if self._on_processor else plain.word_sums
        return sums(self.attention, self._scope)

    @cached_property
    def left(self) -> torch.Tensor:
        """What each query gives to keys outside the sink; 1 where that is nothing.

        To divide by: such a row stays 0. *Shape:* ``(sentence, head, query)``.
        """
        return self.rows.mass.masked_fill(self.rows.mass == 0, 1)

    @cached_property
    def entropy(self) -> torch.Tensor:
        """Entropy of each row, sink included, in nats. *Shape:* ``(sentence, head, query)``."""
        return -_surprisal(self.attention).sum(-1) * self._frame.rows

    @cached_property
    def sink_entropy(self) -> torch.Tensor:
        """What the sink's keys add to `entropy`; the same shape."""
        places, there = self._frame.sink_places
        at = places[:, None, None, :].expand(*self.attention.shape[:3], -1)
        counts = there[:, None, None, :] * self._frame.rows.unsqueeze(-1)
        return -_surprisal(self.attention.gather(-1, at) * counts).sum(-1)

    @cached_property
    def by_word(self) -> torch.Tensor:
        """Attention between words, see `headbook.plain.by_word`."""
        return plain.by_word(self.attention, self._scope)

    @property
    def strongest_word(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Largest weight from each word to any, and that word, the first of equals.

        *Shape:* ``(sentence, head, word)`` each.
        """
        own, best, word = self.words
        if self._frame.stack.crosses:
            return best, word
        itself = torch.arange(own.shape[-1], device=own.device)
        wins = (own > best) | ((own == best) & (itself < word))
        return torch.maximum(best, own), torch.where(wins, itself, word)

    @cached_property
    def value_norms(self) -> torch.Tensor | None:
        """Length of each key's value after the head's part of the output projection.

        *Shape:* ``(sentence, head, key)``; None where values or projection are not available.
        """
        value, projection = self.call.value, self.call.projection
        if value is None or projection is None:
            return None
        return projection.norms(value.to(self._frame.dtype))

    def on(self, pairs: Pairs) -> torch.Tensor:
        """Mass on chosen pairs: as it is, without the sink, and renormalised.

        *Shape:* ``(3, sentence, head, measure)``.
        """
        if id(pairs) not in self._on:
            sums = compiled.pair_sums if self._on_processor else plain.pair_sums
            # The pairs are kept, too, so that no id is used twice.
            self._on[id(pairs)] = pairs, sums(self.attention, self.left, pairs)
        return self._on[id(pairs)][1]


def _surprisal(weights: torch.Tensor) -> torch.Tensor:
    """A ln A of each weight, in nats; 0 where A is 0."""
    smallest = torch.finfo(weights.dtype).tiny
    return weights.clamp_min(smallest).log_().mul_(weights)
