"""Attention by vocabulary token and by pair of tokens, summed over the sample of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.attention.masks import ViewMask
from headbook.model.tokens.strings import TokenStrings
from headbook.schema import AttentionStack
from headbook.study.sums.token_sums import ANY_TOKEN, MIN_SENTENCES, NO_TEXT, Affinities
from headbook.text.batch import Batch, token_hash
from headbook.text.tokens import TokenizedSentence, TokenizedText

MAX_PAIRS = 4_000_000  # pairs of positions that are searched for tokens
MAX_STACK_BYTES = 8_000_000  # of the sums of a stack
BYTES_PER_HEAD = 3 * np.dtype(np.float64).itemsize  # sums, for each item
BYTES_PER_LAYER = MIN_SENTENCES * np.dtype(np.uint64).itemsize  # hashes, for each item
MAX_VOCABULARY = 1 << 31  # more tokens than any vocabulary has; a code holds two tokens


@dataclass(frozen=True, eq=False)
class TrackedTokens:
    """Tokens and pairs of tokens (items) whose attention is summed in one stack.

    Attributes:
        query, key: vocabulary ids of each item in ascending order, or `ANY_TOKEN`.
            *Shape:* ``(item,)``.
        floor: number of sentences below which an item is left out.
        sentences: indices of the sentences that are counted.
    """

    query: Ints
    key: Ints
    floor: int
    sentences: frozenset[int]

    def place(self, codes: Ints) -> Ints:
        """Return the position of each item, -1 if it is left out. *Shape:* that of ``codes``."""
        known_codes = _code(self.query, self.key)
        positions = np.searchsorted(known_codes, codes).clip(0, max(len(known_codes) - 1, 0))
        tracked = (
            known_codes[positions] == codes if len(known_codes) else np.zeros(codes.shape, bool)
        )
        return np.where(tracked, positions, -1)


def tracked_tokens(stack: AttentionStack, sample: Sequence[TokenizedSentence]) -> TrackedTokens:
    """Return the tokens and pairs of tokens of a sample that fit into memory, most frequent first.

    If the sample has too many pairs of positions, only the sentences with the smallest hashes are
    counted.
    """
    chosen: set[int] = set()
    item_codes, n_pairs = [np.zeros(0, np.int64)], 0
    for item in sorted(sample, key=lambda item: (token_hash(item), item.sentence.index)):
        queries, keys = item.tokens[stack.queries], item.tokens[stack.keys]
        n_pairs += len(queries) * len(keys)
        if n_pairs > MAX_PAIRS and chosen:
            break
        chosen.add(item.sentence.index)
        item_codes.append(_occurring(stack, queries, keys))
    distinct, counts = np.unique(np.concatenate(item_codes), return_counts=True)
    bytes_per_item = stack.n_layers * (stack.n_heads * BYTES_PER_HEAD + BYTES_PER_LAYER)
    max_items, floor = MAX_STACK_BYTES // bytes_per_item, 1
    while (counts >= floor).sum() > max_items:
        floor += 1
    tracked = distinct[counts >= floor]
    return TrackedTokens(
        tracked // MAX_VOCABULARY + ANY_TOKEN,
        tracked % MAX_VOCABULARY + ANY_TOKEN,
        floor,
        frozenset(chosen),
    )


def _code(query: "Ints | int", key: "Ints | int") -> Ints:
    """Encode a query and a key as one number that sorts by query, then by key."""
    return np.asarray((query - ANY_TOKEN) * MAX_VOCABULARY + key - ANY_TOKEN)


def _occurring(stack: AttentionStack, queries: TokenizedText, keys: TokenizedText) -> Ints:
    """Return the codes of a sentence's items outside the sink."""
    query_mask, key_mask = (~tokens.special.astype(bool) for tokens in (queries, keys))
    if stack.causal:
        query_mask[:1], key_mask[:1] = False, False
    i, j = np.nonzero(query_mask[:, None] & key_mask[None, :])
    if stack.causal:
        i, j = i[j <= i], j[j <= i]
    query_ids, key_ids = (
        queries.ids[query_mask].astype(np.int64),
        keys.ids[key_mask].astype(np.int64),
    )
    return np.unique(np.concatenate([
        _code(query_ids, np.full_like(query_ids, ANY_TOKEN)),
        _code(np.full_like(key_ids, ANY_TOKEN), key_ids),
        _code(queries.ids[i].astype(np.int64), keys.ids[j].astype(np.int64)),
    ]))  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Groups:
    """The cells of an attention map, grouped by sentence and item.

    Attributes:
        cells: positions of the grouped cells in a flattened table. *Shape:* ``(cell,)``.
        group: group of each cell. *Shape:* ``(cell,)``.
        item: item of each group. *Shape:* ``(group,)``.
        size: number of cells of each group. *Shape:* ``(group,)``.
        sentence: row of each group's sentence in the batch. *Shape:* ``(group,)``.
    """

    cells: torch.Tensor
    group: torch.Tensor
    item: torch.Tensor
    size: torch.Tensor
    sentence: Ints

    @classmethod
    def of(cls, mask: torch.Tensor, place: Ints) -> "_Groups":
        """Group cells by sentence and item.

        Args:
            mask: cells that count. *Shape:* ``(sentence, ...)``, boolean.
            place: item of each cell, -1 without one. *Shape:* that of ``mask``.
        """
        counted = mask.cpu().numpy() & (place >= 0)
        cells = np.flatnonzero(counted)
        sentence = cells // max(counted[0].size, 1)
        keys = np.stack([sentence, place.reshape(-1)[cells]], 1)
        sentence_items, group, size = np.unique(
            keys, axis=0, return_inverse=True, return_counts=True
        )
        device = mask.device
        return cls(
            torch.as_tensor(cells, device=device),
            torch.as_tensor(group.reshape(-1), device=device),
            torch.as_tensor(sentence_items[:, 1], device=device),
            torch.as_tensor(size, dtype=torch.float64, device=device),
            sentence_items[:, 0],
        )

    def add(self, weights: torch.Tensor, into: torch.Tensor) -> None:
        """Add the weights of each group, their squares, and their products with the group's size.

        Args:
            weights: attention by cell. *Shape:* ``(sentence, head, ...)``.
            into: the sums. *Shape:* ``(3, head, item)``.
        """
        flat = weights.transpose(0, 1).flatten(1)[:, self.cells].double()
        sums = flat.new_zeros(len(flat), len(self.item)).index_add_(1, self.group, flat)
        for number, part in enumerate((sums, sums * sums, sums * self.size)):
            into[number].index_add_(1, self.item, part)


class AffinityAccumulator:
    """Sums of attention by vocabulary token of one stack over one batch, filled by layer.

    Args:
        items: tokens and pairs of tokens to sum.
        names: printed form of vocabulary tokens.
    """

    def __init__(
        self, stack: AttentionStack, batch: Batch, items: TrackedTokens, names: TokenStrings
    ) -> None:
        self._stack, self._batch, self._items, self._names = stack, batch, items, names
        self._looked = np.array([index in items.sentences for index in batch.index.tolist()])
        size, device = len(items.query), batch.texts[stack.keys].ids.device
        self._sums = torch.zeros(3, stack.n_layers, stack.n_heads, size, dtype=torch.float64,
                                 device=device)  # fmt: skip
        self._counts = torch.zeros(3, stack.n_layers, size, dtype=torch.float64, device=device)
        self._chance = torch.zeros(stack.n_layers, size, dtype=torch.float64, device=device)
        self._texts = np.full((MIN_SENTENCES, stack.n_layers, size), NO_TEXT)
        self._made: dict[int, tuple[tuple[_Groups, _Groups, _Groups], NDArray[np.uint64]]] = {}

    def add(self, layer: int, weights: torch.Tensor, scope: ViewMask) -> None:
        """Add one layer's weights as the model computed them.

        *Shape:* ``(sentence, head, query, key)``.

        Args:
            scope: mask of the view without the sink.
        """
        if not self._looked.any():
            return
        mask_id = id(scope)
        if mask_id not in self._made:
            groups_of_scope = self._groups(scope)
            self._made[mask_id] = groups_of_scope, self._smallest(groups_of_scope)
        (groups, self._texts[:, layer]), mask = self._made[mask_id], scope.visible.unsqueeze(1)
        kept = torch.where(mask, weights, 0)
        self._spread(groups, kept, self._sums[:, layer, : kept.shape[1]])
        uniform_share = 1 / scope.frame.attention_mask.sum(-1, keepdim=True).clamp(min=1).double()
        uniform = torch.where(mask, uniform_share.unsqueeze(1), 0)
        chance = self._chance.new_zeros(3, 1, self._chance.shape[1])
        self._spread(groups, uniform, chance)
        self._chance[layer] += chance[0, 0]
        for group in groups:
            for number, counts_of_group in enumerate((group.size, group.size**2, group.size > 0)):
                self._counts[number, layer].index_add_(0, group.item, counts_of_group.double())

    def _smallest(self, groups: Sequence[_Groups]) -> NDArray[np.uint64]:
        """Return the smallest different hashes of the sentences of each item.

        *Shape:* ``(MIN_SENTENCES, item)``.
        """
        hashes = np.full((MIN_SENTENCES, self._chance.shape[1]), NO_TEXT)
        for group in groups:
            item, texts = group.item.cpu().numpy(), self._batch.content_hash[group.sentence]
            order = np.lexsort((texts, item))
            item, texts = item[order], texts[order]
            is_new = np.ones(len(item), bool)
            is_new[1:] = (item[1:] != item[:-1]) | (texts[1:] != texts[:-1])
            item, texts = item[is_new], texts[is_new]
            rank = np.arange(len(item)) - np.searchsorted(item, item)
            is_kept = rank < MIN_SENTENCES
            hashes[rank[is_kept], item[is_kept]] = texts[is_kept]
        return hashes

    @staticmethod
    def _spread(
        groups: tuple[_Groups, _Groups, _Groups], weights: torch.Tensor, into: torch.Tensor
    ) -> None:
        """Add the sums over each query, over each key, and over each pair of query and key."""
        for group, part in zip(groups, (weights.sum(-1), weights.sum(-2), weights), strict=True):
            group.add(part, into)

    def _groups(self, scope: ViewMask) -> tuple[_Groups, _Groups, _Groups]:
        """Return the groups of queries, of keys, and of pairs."""
        counted = torch.as_tensor(self._looked, device=scope.visible.device)
        visible = scope.visible & counted[:, None, None]
        queries = self._batch.texts[self._stack.queries].ids.cpu().numpy().astype(np.int64)
        keys = self._batch.texts[self._stack.keys].ids.cpu().numpy().astype(np.int64)
        place = self._items.place
        return (
            _Groups.of(visible.any(-1), place(_code(queries, ANY_TOKEN))),
            _Groups.of(visible.any(-2), place(_code(ANY_TOKEN, keys))),
            _Groups.of(visible, place(_code(queries[:, :, None], keys[:, None, :]))),
        )

    def sums(self) -> Affinities:
        """Return the attention by vocabulary token of this batch."""
        items = self._items
        entries = np.unique(np.concatenate([items.query, items.key]))
        entries = entries[entries != ANY_TOKEN]
        return Affinities(
            names=tuple(self._names.of(entries)),
            entries=entries,
            query=items.query,
            key=items.key,
            floor=items.floor,
            looked=int(self._looked.sum()),
            counts=self._counts.cpu().numpy(),
            chance=self._chance.cpu().numpy(),
            sums=self._sums.cpu().numpy(),
            texts=self._texts,
        )
