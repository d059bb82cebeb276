"""Masks of the queries and keys that count, for a stack over a batch and for each view."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.memory import CachedByFunction
from headbook.schema import AttentionStack, SinkView
from headbook.text.batch import PaddedTexts


class QueryKeyPairs(NamedTuple):
    """Chosen pairs of query and key with their weights in several measures.

    The pairs of each sentence are padded to the largest number of pairs.

    Attributes:
        place: index of the pair in a flattened map. *Shape:* ``(sentence, pair)``.
        query: position of the pair's query. *Shape:* ``(sentence, pair)``.
        counts: weight of the pair in each measure. *Shape:* ``(sentence, pair, measure)``.
        kept: weights with 0 for the sink's keys. *Shape:* ``(sentence, pair, measure)``.
        number: number of pairs of each sentence. *Shape:* ``(sentence,)``.
    """

    place: torch.Tensor
    query: torch.Tensor
    counts: torch.Tensor
    kept: torch.Tensor
    number: torch.Tensor


@dataclass(eq=False)
class BatchMask(CachedByFunction):
    """Queries and keys of a batch that count in one stack, for all layers with one attention mask.

    A query counts unless it is padding, special, or sees a single key in a causal stack. The sink
    consists of special tokens and, in a causal stack, position 0.

    Attributes:
        stack: the stack.
        queries, keys: padded texts of queries and keys.
        attention_mask: whether a query sees a key by the model's mask, without padding. *Shape:*
            ``(sentence, query, key)``.
    """

    stack: AttentionStack
    queries: PaddedTexts
    keys: PaddedTexts
    attention_mask: torch.Tensor
    _made: dict[Callable[[Any], Any], Any] = field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        """Number format of masks and sums."""
        return self.keys.share.dtype

    @cached_property
    def counted_queries(self) -> torch.Tensor:
        """Queries that count. *Shape:* ``(sentence, query)``, boolean."""
        counted = self.queries.ordinary
        return counted & (self.attention_mask.sum(-1) > 1) if self.stack.causal else counted

    @cached_property
    def sink(self) -> torch.Tensor:
        """Keys of the sink. *Shape:* ``(sentence, key)``, boolean."""
        sink = self.keys.special | self.keys.first if self.stack.causal else self.keys.special
        return self.keys.valid & sink

    @cached_property
    def sink_places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions of the sink's keys, ascending and padded, and 1 for keys, 0 for padding.

        *Shape:* ``(sentence, place)`` each.
        """
        n_places = max(int(self.sink.sum(1).max()), 1)
        places = self.sink.to(self.dtype).topk(n_places, dim=1).indices.sort(1).values
        return places, self.sink.gather(1, places).to(self.dtype)

    @cached_property
    def rows(self) -> torch.Tensor:
        """1 for queries that count, else 0. *Shape:* ``(sentence, 1, query)``."""
        return self.counted_queries.to(self.dtype).unsqueeze(1)

    @cached_property
    def n_queries(self) -> torch.Tensor:
        """Number of queries that count. *Shape:* ``(sentence, 1)``, to broadcast over heads."""
        return self.rows.sum(-1)

    @cached_property
    def word_weights(self) -> torch.Tensor:
        """Weight of each query, so that every word counts once. *Shape:* ``(sentence, query)``.

        1 over the number of the word's pieces that count; in a causal text the first piece may not.
        """
        word = self.queries.word
        pieces = (word[:, :, None] == word[:, None, :]) & self.counted_queries[:, None, :]
        counts = self.counted_queries & (self.queries.share > 0)
        return counts / pieces.sum(-1).clamp(min=1).to(self.dtype)

    @cached_property
    def word_rows(self) -> torch.Tensor:
        """Weights of the queries in the mean of each word's rows; they sum to 1.

        *Shape:* ``(sentence, word, query)``.
        """
        return _members(self.queries).to(self.dtype).mT * self.word_weights.unsqueeze(1)

    @cached_property
    def word_columns(self) -> torch.Tensor:
        """Membership of keys in words, as 0 and 1. *Shape:* ``(sentence, key, word)``."""
        return _members(self.keys).to(self.dtype)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of keys up to the last that is no padding. *Shape:* ``(sentence,)``."""
        places = torch.arange(1, self.keys.n_tokens + 1, device=self.attention_mask.device)
        lengths: NDArray[np.int64] = (self.keys.valid * places).amax(1).cpu().numpy()
        return lengths

    @cached_property
    def offset(self) -> torch.Tensor:
        """Position of the key minus position of the query. *Shape:* ``(query, key)``."""
        device = self.attention_mask.device
        queries = torch.arange(self.queries.n_tokens, device=device, dtype=self.dtype)
        keys = torch.arange(self.keys.n_tokens, device=device, dtype=self.dtype)
        return keys[None, :] - queries[:, None]

    def pairs(self, tables: Sequence[torch.Tensor]) -> QueryKeyPairs:
        """Return the pairs that count in any measure, from tables ``(sentence, query, key)``."""
        rows = self.rows.squeeze(1).unsqueeze(-1)
        counted = [(table * rows).flatten(1) for table in tables]
        chosen = torch.stack([table != 0 for table in counted]).any(0)
        number = chosen.sum(1)
        sentence, flat_index = chosen.nonzero(as_tuple=True)
        first = number.cumsum(0) - number  # index of each sentence's first pair
        column = torch.arange(len(flat_index), device=flat_index.device) - first[sentence]
        place = flat_index.new_zeros((len(number), max(int(number.max()), 1)))
        place[sentence, column] = flat_index
        counts = rows.new_zeros((*place.shape, len(tables)))
        measures = [table[sentence, flat_index] for table in counted]
        counts[sentence, column] = torch.stack(measures, -1)
        query, key = place // self.keys.n_tokens, place % self.keys.n_tokens
        kept = counts * (~self.sink.gather(1, key)).to(self.dtype).unsqueeze(-1)
        return QueryKeyPairs(place, query, counts, kept, number)


@dataclass(eq=False)
class ViewMask(CachedByFunction):
    """Mask of a batch in one view; except in the raw view, keys of the sink are masked."""

    frame: BatchMask
    view: SinkView
    _made: dict[Callable[[Any], Any], Any] = field(default_factory=dict)

    @cached_property
    def kept_keys(self) -> torch.Tensor:
        """Keys that count. *Shape:* ``(sentence, key)``, boolean."""
        valid = self.frame.keys.valid
        return valid if self.view is SinkView.RAW else valid & ~self.frame.sink

    @cached_property
    def visible(self) -> torch.Tensor:
        """Pairs that count. *Shape:* ``(sentence, query, key)``, boolean."""
        return (
            self.frame.attention_mask
            & self.frame.counted_queries[:, :, None]
            & self.kept_keys[:, None, :]
        )

    @cached_property
    def mask(self) -> torch.Tensor:
        """The mask `visible` as 0 and 1. *Shape:* ``(sentence, 1, query, key)``."""
        return self.visible.unsqueeze(1).to(self.frame.dtype)

    def sees_at(self, offset: int) -> torch.Tensor:
        """Return which queries see the key at an offset from their position.

        *Shape:* ``(sentence, query)``, boolean.
        """
        sees = self.visible.new_zeros(self.visible.shape[:2])
        diagonal = self.visible.diagonal(offset, 1, 2)
        sees.narrow(1, min(max(-offset, 0), sees.shape[1]), diagonal.shape[1]).copy_(diagonal)
        return sees

    @cached_property
    def word_visible(self) -> torch.Tensor:
        """Pairs of words if a piece of the first word sees a piece of the second.

        *Shape:* ``(sentence, word, word)``, boolean.
        """
        seen = self.frame.word_rows @ self.mask.squeeze(1) @ self.frame.word_columns
        return seen > 0

    @cached_property
    def n_visible(self) -> torch.Tensor:
        """Number of keys that each query sees. *Shape:* ``(sentence, query)``."""
        return self.mask.sum(-1).squeeze(1)

    @cached_property
    def has_choice(self) -> torch.Tensor:
        """Queries that see at least two keys. *Shape:* ``(sentence, query)``, boolean."""
        return self.n_visible > 1


def _members(texts: PaddedTexts) -> torch.Tensor:
    """Return the membership of tokens in words. *Shape:* ``(sentence, token, word)``, boolean."""
    numbers = torch.arange(texts.n_words, device=texts.word.device)
    return texts.word.unsqueeze(-1) == numbers
