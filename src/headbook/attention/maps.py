"""Attention maps of one layer over a batch, with the sums that its views share."""

from collections.abc import Sequence
from functools import cached_property

import torch

from headbook.attention import map_sums
from headbook.attention.masks import BatchMask, QueryKeyPairs, ViewMask
from headbook.model.attention_hook import AttentionCall


class AttentionMaps:
    """Attention maps of one layer of one stack over a batch of sentences.

    Args:
        scope: mask of the view without the sink.
        call: the model's attention call.

    Attributes:
        call: the model's attention call; queries, keys, values and the module may be None.
    """

    def __init__(self, scope: ViewMask, call: AttentionCall) -> None:
        self._scope, self.call = scope, call
        self._frame: BatchMask = scope.frame
        self._weights = call.weights.to(self._frame.dtype).contiguous()
        self._pair_sums: dict[int, tuple[QueryKeyPairs, torch.Tensor]] = {}

    @property
    def attention(self) -> torch.Tensor:
        """Weights as the model computed them. *Shape:* ``(sentence, head, query, key)``."""
        return self._weights

    @property
    def on_cpu(self) -> bool:
        """Whether the weights are on the CPU, where compiled loops can read them."""
        return self.attention.device.type == "cpu"

    @cached_property
    def kept(self) -> torch.Tensor:
        """Weights of queries and keys that count, without the sink's keys; 0 elsewhere.

        *Shape:* ``(sentence, head, query, key)``.
        """
        return self.attention * self._scope.mask

    @cached_property
    def rows(self) -> map_sums.RowSums:
        """Sums of rows, columns and diagonals."""
        sums = map_sums.numba_row_sums if self.on_cpu else map_sums.torch_row_sums
        return sums(self.attention, self._scope)

    @cached_property
    def words(self) -> map_sums.WordSums:
        """Sums of the weights between words."""
        sums = map_sums.numba_word_sums if self.on_cpu else map_sums.torch_word_sums
        return sums(self.attention, self._scope)

    @cached_property
    def mass_off_sink(self) -> torch.Tensor:
        """Attention of each query on keys outside the sink; 1 instead of 0, to divide by.

        *Shape:* ``(sentence, head, query)``.
        """
        return self.rows.mass.masked_fill(self.rows.mass == 0, 1)

    @cached_property
    def entropies(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Entropy of each row, and the contribution of keys outside the sink to it, in nats.

        *Shape:* ``(sentence, head, query)`` each.
        """
        tiny = torch.finfo(self.attention.dtype).tiny
        terms = self.attention.clamp_min(tiny).log_().mul_(self.attention)  # A ln A
        places, is_key = self._frame.sink_places
        of_sink = terms.gather(-1, places[:, None, None, :].expand(*terms.shape[:3], -1))
        sums = terms.sum(-1), (of_sink * is_key[:, None, None, :]).sum(-1)
        all_keys, sink = (-entropy_sums * self._frame.rows for entropy_sums in sums)
        # Clamped, because rounding could make the difference negative.
        return all_keys, (all_keys - sink).clamp_min(0)

    @cached_property
    def by_word(self) -> torch.Tensor:
        """Attention between words, from `headbook.attention.map_sums.by_word`."""
        return map_sums.by_word(self.attention, self._scope)

    @property
    def strongest_word(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Largest weight from each word to any word, and that word, the first of equals.

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
        """Norm of each key's value after the head's part of the output projection.

        With a gate, whose factors differ by query, the mean over queries that count, weighted by
        their attention to the key. *Shape:* ``(sentence, head, key)``; None if values or
        projection are not available.
        """
        value, projection = self.call.value, self.call.projection
        if value is None or projection is None:
            return None
        if self._gated_sums is None:
            return projection.value_norms(value.to(self._frame.dtype))
        received = self.rows.columns[:, :, 0]
        _, by_key = self._gated_sums
        return by_key / received.masked_fill(received == 0, 1)

    @cached_property
    def value_weighted_mass(self) -> torch.Tensor | None:
        """Value-weighted attention of each query: sum over keys of weight times value norm.

        *Shape:* ``(sentence, head, query)``; None if values or projection are not available.
        """
        if self._gated_sums is not None:
            by_query, _ = self._gated_sums
            return by_query
        norms = self.value_norms
        return None if norms is None else (self.attention @ norms.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def _gated_sums(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Sums of weights times norms of gated values, by query and by key; None without a gate.

        *Shape:* ``(sentence, head, query)`` and ``(sentence, head, key)``; by key only over
        queries that count.
        """
        call, weights = self.call, self.attention
        if call.factor is None or call.value is None or call.projection is None:
            return None
        by_query, by_key = (
            weights.new_zeros(weights.shape[:3]),
            weights.new_zeros(*weights.shape[:2], weights.shape[3]),
        )
        for start, block in call.projection.carrying(weights, call.value.to(weights), call.factor):
            queries = slice(start, start + block.shape[2])
            by_query[:, :, queries] = block.sum(3)
            by_key += (self._frame.rows[:, :, None, queries] @ block).squeeze(2)
        return by_query, by_key

    def mass_on(self, pairs: QueryKeyPairs) -> torch.Tensor:
        """Return the mass on chosen pairs: raw, without the sink, and renormalised.

        *Shape:* ``(3, sentence, head, measure)``.
        """
        if id(pairs) not in self._pair_sums:
            sums = map_sums.numba_pair_sums if self.on_cpu else map_sums.torch_pair_sums
            # A reference to the pairs prevents that another object gets their id.
            self._pair_sums[id(pairs)] = pairs, sums(self.attention, self.rows.mass, pairs)
        return self._pair_sums[id(pairs)][1]


class ConcatenatedMaps(AttentionMaps):
    """Attention maps of several layers as those of one layer with more heads, by their sums.

    The maps themselves are concatenated only at first access, since this copies all of them. The
    attribute ``call`` does not exist, since each layer has its own call.

    Args:
        scope: mask of the view without the sink, for all layers.
        layers: maps of each layer.
        pairs: tables of pairs that metrics may read with `mass_on`.
    """

    def __init__(
        self, scope: ViewMask, layers: Sequence[AttentionMaps], pairs: Sequence[QueryKeyPairs]
    ) -> None:
        self._scope, self._frame = scope, scope.frame
        maps = [layer.attention for layer in layers]
        if all(layer.on_cpu for layer in layers):
            self.rows, self.words, pair_sums = map_sums.layer_sums(maps, scope, pairs)
        else:
            self.rows = map_sums.RowSums(*_heads_of([layer.rows for layer in layers]))
            self.words = map_sums.WordSums(*_heads_of([layer.words for layer in layers]))
            pair_sums = [
                torch.cat([layer.mass_on(chosen) for layer in layers], 2) for chosen in pairs
            ]
        all_keys, kept = _heads_of([layer.entropies for layer in layers])
        self.entropies = all_keys, kept
        self._pair_sums = {
            id(chosen): (chosen, sums) for chosen, sums in zip(pairs, pair_sums, strict=True)
        }
        self._layers = tuple(layers)

    @cached_property
    def value_norms(self) -> torch.Tensor | None:
        """Value norms by head; 0 for layers without any, None if no layer has any.

        *Shape:* ``(sentence, head, key)``.
        """
        return _norms_of(self._layers)

    @cached_property
    def attention(self) -> torch.Tensor:
        """Weights of all layers as the model computed them, copied into one tensor.

        Read shapes and number formats from the sums, which need no copy. *Shape:*
        ``(sentence, head, query, key)``.
        """
        return torch.cat([layer.attention for layer in self._layers], 1)

    def mass_on(self, pairs: QueryKeyPairs) -> torch.Tensor:
        """Return the mass on pairs announced at construction: raw, without the sink, renormalised.

        Raises:
            KeyError: the pairs were not announced; see `HeadMetric.pairs`.
        """
        return self._pair_sums[id(pairs)][1]


def _heads_of(layers: Sequence[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
    """Return each field of several layers with the heads concatenated."""
    return [torch.cat(parts, 1) for parts in zip(*layers, strict=True)]


def _norms_of(layers: Sequence[AttentionMaps]) -> torch.Tensor | None:
    """Return the value norms of several layers; 0 for layers without any, None if all lack them."""
    norms = [layer.value_norms for layer in layers]
    if all(norm is None for norm in norms):
        return None
    shapes = [(len(layer.attention), *layer.attention.shape[1::2]) for layer in layers]
    return torch.cat(
        [
            layer.attention.new_zeros(shape) if norm is None else norm
            for layer, shape, norm in zip(layers, shapes, norms, strict=True)
        ],
        1,
    )
