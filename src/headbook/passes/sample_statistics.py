"""Statistics of sampled sentences, and attention by vocabulary token.

The sample has the sentences with the smallest hashes of their content, so that no seed is needed
and two samples merge into the sample of both corpora.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import SELECTION, HashSample
from headbook.analysis.arrays import Ints
from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import ViewMask
from headbook.attention.surface_rules import (
    NO_CELL,
    linked_cells,
    mass_by_cell,
    pairs_by_surface,
    pairs_in_cells,
)
from headbook.attention.views import LayerAttention, ViewMasks, layer_views
from headbook.metrics.base import SampledMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.load import Model, TokenStrings
from headbook.passes.head_sums import uniform_attention
from headbook.passes.observers import BatchObserver, PassResults
from headbook.schema import AttentionStack, SinkView
from headbook.study.corpus_sums import ABOUT, UNIFORM, CorpusSums, SampleColumn, SampleSums
from headbook.study.token_sums import ANY, DISTINCT, NO_TEXT, Affinities
from headbook.study.word_samples import PairCells
from headbook.text.batch import Batch, token_hash
from headbook.text.tokens import TokenizedSentence, TokenizedText

MOST_PAIRS = 4_000_000  # most pairs of positions that are searched for tokens
MOST_BYTES = 8_000_000  # most bytes of the sums of a stack
CELL = 3 * np.dtype(np.float64).itemsize  # bytes of the sums of a head and an item
TEXTS = DISTINCT * np.dtype(np.uint64).itemsize  # bytes of the hashes of a layer and an item
KEYS = 1 << 31  # larger than every vocabulary


@dataclass(frozen=True, eq=False)
class TrackedTokens:
    """Tokens and pairs of tokens (items) whose attention is summed in one stack.

    Attributes:
        query, key: vocabulary ids of each item in ascending order, or `ANY`. *Shape:* ``(item,)``.
        floor: number of sentences below which an item is left out.
        sentences: indices of the sentences that are counted.
    """

    query: Ints
    key: Ints
    floor: int
    sentences: frozenset[int]

    def place(self, codes: Ints) -> Ints:
        """Return the position of each item, -1 if it is left out. *Shape:* that of ``codes``."""
        own = _code(self.query, self.key)
        found = np.searchsorted(own, codes).clip(0, max(len(own) - 1, 0))
        there = own[found] == codes if len(own) else np.zeros(codes.shape, bool)
        return np.where(there, found, -1)


def tracked_tokens(stack: AttentionStack, sample: Sequence[TokenizedSentence]) -> TrackedTokens:
    """Return the tokens and pairs of tokens of a sample that fit into memory, most frequent first.

    If the sample has too many pairs of positions, only the sentences with the smallest hashes are
    counted.
    """
    chosen: set[int] = set()
    codes, pairs = [np.zeros(0, np.int64)], 0
    for item in sorted(sample, key=lambda each: (token_hash(each), each.sentence.index)):
        queries, keys = item.tokens[stack.queries], item.tokens[stack.keys]
        pairs += len(queries) * len(keys)
        if pairs > MOST_PAIRS and chosen:
            break
        chosen.add(item.sentence.index)
        codes.append(_occurring(stack, queries, keys))
    found, number = np.unique(np.concatenate(codes), return_counts=True)
    most, floor = MOST_BYTES // (stack.n_layers * (stack.n_heads * CELL + TEXTS)), 1
    while (number >= floor).sum() > most:
        floor += 1
    kept = found[number >= floor]
    return TrackedTokens(kept // KEYS + ANY, kept % KEYS + ANY, floor, frozenset(chosen))


def _code(query: "Ints | int", key: "Ints | int") -> Ints:
    """Encode a query and a key as one number that sorts by query, then by key."""
    return np.asarray((query - ANY) * KEYS + key - ANY)


def _occurring(stack: AttentionStack, queries: TokenizedText, keys: TokenizedText) -> Ints:
    """Return the codes of a sentence's items outside the sink."""
    here, there = (~tokens.special.astype(bool) for tokens in (queries, keys))
    if stack.causal:
        here[:1], there[:1] = False, False
    i, j = np.nonzero(here[:, None] & there[None, :])
    if stack.causal:
        i, j = i[j <= i], j[j <= i]
    first, second = queries.ids[here].astype(np.int64), keys.ids[there].astype(np.int64)
    return np.unique(np.concatenate([
        _code(first, np.full_like(first, ANY)),
        _code(np.full_like(second, ANY), second),
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
    def of(cls, there: torch.Tensor, place: Ints) -> "_Groups":
        """Group cells by sentence and item.

        Args:
            there: mask of the cells that count. *Shape:* ``(sentence, ...)``, boolean.
            place: item of each cell, -1 without one. *Shape:* that of ``there``.
        """
        counted = there.cpu().numpy() & (place >= 0)
        cells = np.flatnonzero(counted)
        sentence = cells // max(counted[0].size, 1)
        known = np.stack([sentence, place.reshape(-1)[cells]], 1)
        each, group, size = np.unique(known, axis=0, return_inverse=True, return_counts=True)
        device = there.device
        return cls(
            torch.as_tensor(cells, device=device),
            torch.as_tensor(group.reshape(-1), device=device),
            torch.as_tensor(each[:, 1], device=device),
            torch.as_tensor(size, dtype=torch.float64, device=device),
            each[:, 0],
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
        self._texts = np.full((DISTINCT, stack.n_layers, size), NO_TEXT)
        self._made: dict[int, tuple[tuple[_Groups, _Groups, _Groups], NDArray[np.uint64]]] = {}

    def add(self, layer: int, weights: torch.Tensor, scope: ViewMask) -> None:
        """Add one layer's weights as the model computed them.

        *Shape:* ``(sentence, head, query, key)``.

        Args:
            scope: mask of the view without the sink.
        """
        if not self._looked.any():
            return
        key = id(scope)
        if key not in self._made:
            made = self._groups(scope)
            self._made[key] = made, self._smallest(made)
        (groups, self._texts[:, layer]), mask = self._made[key], scope.visible.unsqueeze(1)
        kept = torch.where(mask, weights, 0)
        self._spread(groups, kept, self._sums[:, layer, : kept.shape[1]])
        share = 1 / scope.frame.attention_mask.sum(-1, keepdim=True).clamp(min=1).double()
        even = torch.where(mask, share.unsqueeze(1), 0)
        chance = self._chance.new_zeros(3, 1, self._chance.shape[1])
        self._spread(groups, even, chance)
        self._chance[layer] += chance[0, 0]
        for group in groups:
            for number, part in enumerate((group.size, group.size**2, group.size > 0)):
                self._counts[number, layer].index_add_(0, group.item, part.double())

    def _smallest(self, groups: Sequence[_Groups]) -> NDArray[np.uint64]:
        """Return the smallest different hashes of the sentences of each item.

        *Shape:* ``(DISTINCT, item)``.
        """
        found = np.full((DISTINCT, self._chance.shape[1]), NO_TEXT)
        for group in groups:
            item, texts = group.item.cpu().numpy(), self._batch.content_hash[group.sentence]
            order = np.lexsort((texts, item))
            item, texts = item[order], texts[order]
            new = np.ones(len(item), bool)
            new[1:] = (item[1:] != item[:-1]) | (texts[1:] != texts[:-1])
            item, texts = item[new], texts[new]
            rank = np.arange(len(item)) - np.searchsorted(item, item)
            kept = rank < DISTINCT
            found[rank[kept], item[kept]] = texts[kept]
        return found

    @staticmethod
    def _spread(
        groups: tuple[_Groups, _Groups, _Groups], weights: torch.Tensor, into: torch.Tensor
    ) -> None:
        """Add the sums over each query, over each key, and over each pair of query and key."""
        for group, part in zip(groups, (weights.sum(-1), weights.sum(-2), weights), strict=True):
            group.add(part, into)

    def _groups(self, scope: ViewMask) -> tuple[_Groups, _Groups, _Groups]:
        """Return the groups of queries, of keys, and of pairs."""
        looked = torch.as_tensor(self._looked, device=scope.visible.device)
        visible = scope.visible & looked[:, None, None]
        queries = self._batch.texts[self._stack.queries].ids.cpu().numpy().astype(np.int64)
        keys = self._batch.texts[self._stack.keys].ids.cpu().numpy().astype(np.int64)
        place = self._items.place
        return (
            _Groups.of(visible.any(-1), place(_code(queries, ANY))),
            _Groups.of(visible.any(-2), place(_code(ANY, keys))),
            _Groups.of(visible, place(_code(queries[:, :, None], keys[:, None, :]))),
        )

    def sums(self) -> Affinities:
        """Return the attention by vocabulary token of this batch."""
        items = self._items
        entries = np.unique(np.concatenate([items.query, items.key]))
        entries = entries[entries != ANY]
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


Floats = NDArray[np.floating]


@dataclass(frozen=True)
class SampleStatistics:
    """Observer that computes the statistics of sampled metrics for a run.

    Attributes:
        size: number of sentences in the sample.
        items: by stack, the tokens and pairs of tokens to sum; empty for none.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[SampledMetric, ...]
    size: int
    items: Mapping[str, TrackedTokens] = field(default_factory=dict)

    def observe(self, batch: Batch) -> BatchObserver:
        """Return callbacks that compute the statistics of one batch."""
        stacks = {
            name: _Statistics(stack, self.metrics, batch)
            for name, stack in self.architecture.stacks.items()
        }
        affinities = {
            name: AffinityAccumulator(
                self.architecture.stacks[name], batch, items, self.model.token_strings
            )
            for name, items in self.items.items()
        }

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            stacks[place.stack].add(place.layer, attention, scopes)
            if place.stack in affinities:
                scope = scopes.get(place.stack, attention)[SinkView.NOSINK]
                affinities[place.stack].add(place.layer, attention.weights, scope)

        def found() -> PassResults:
            return PassResults(
                CorpusSums(
                    affinities={name: table.sums() for name, table in affinities.items()},
                    sampled={
                        name: SampleSums(
                            tuple(table.columns),
                            HashSample.of(self.size, batch.content_hash, batch.index, table.whole),
                            table.cells(self.size),
                        )
                        for name, table in stacks.items()
                        if table.columns
                    },
                )
            )

        return BatchObserver(found, attend)


class _Cells(NamedTuple):
    """The arrays of `PairCells` for one layer and one batch."""

    mass: NDArray[np.float64]
    pairs: NDArray[np.float64]
    links: NDArray[np.uint16]


class _Statistics:
    """The statistics of one stack over one batch, filled by layer."""

    def __init__(
        self, stack: AttentionStack, metrics: Sequence[SampledMetric], batch: Batch
    ) -> None:
        self._stack, self._batch, self._sentences = stack, batch, len(batch.items)
        self._asked = [(m, view) for m in metrics if m.applies(stack) for view in m.views]
        self._even: dict[int, list[Floats]] = {}
        self._filled: dict[int, Floats] = {}
        self._cells: dict[int, _Cells] = {}
        self._even_mass: dict[int, Floats] = {}
        self.columns: list[SampleColumn] = []

    def add(self, layer: int, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Measure one layer."""
        if not self._asked:
            return
        found = scopes.get(self._stack.name, attention)
        views = scopes.views(self._stack.name, attention)
        heads = self._measure(views)
        if id(found) not in self._even:
            maps = AttentionMaps(found[SinkView.NOSINK], uniform_attention(found))
            even_views = layer_views(found, maps)
            self._even[id(found)] = self._measure(even_views)
            if self._asks_cells:
                even_mass = mass_by_cell(even_views[SinkView.NOSINK], self._choice(found))
                self._even_mass[id(found)] = even_mass
        if self._asks_cells:
            self._cells[layer] = self._cells_of(found, views[SinkView.NOSINK])
        about, even = self._about(found), self._even[id(found)]
        tables = [self._table(*parts) for parts in zip(heads, even, about, strict=True)]
        self.columns = [
            SampleColumn(metric.id, view, table.shape[-1])
            for (metric, view), table in zip(self._asked, tables, strict=True)
        ]
        self._filled[layer] = np.concatenate(tables, -1)

    @property
    def _asks_cells(self) -> bool:
        return any(metric.expected_at is not None for metric, _ in self._asked)

    def _choice(self, scopes: Mapping[SinkView, ViewMask]) -> NDArray[np.bool_]:
        """Return the sentences from which attention by surface is estimated."""
        counted = scopes[SinkView.NOSINK].cached(pairs_by_surface).counted.cpu().numpy()
        chosen: NDArray[np.bool_] = (self._batch.half == SELECTION) & counted
        return chosen

    def _cells_of(self, scopes: Mapping[SinkView, ViewMask], view: LayerAttention) -> "_Cells":
        choice, scope = self._choice(scopes), scopes[SinkView.NOSINK]
        mass = np.zeros((self._stack.n_heads + 1, self._even_mass[id(scopes)].shape[1]))
        own = mass_by_cell(view, choice)
        mass[: len(own)], mass[-1] = own, self._even_mass[id(scopes)][0]
        return _Cells(mass, pairs_in_cells(scope, choice), linked_cells(scope))

    def cells(self, size: int) -> PairCells | None:
        """Return attention by parts of speech and distance; None if no metric asks for it.

        Args:
            size: number of sentences in the sample.
        """
        if not self._cells:
            return None
        one = next(iter(self._cells.values()))
        nothing = np.full_like(one.links, NO_CELL)
        empty = _Cells(np.zeros_like(one.mass), np.zeros_like(one.pairs), nothing)
        layers = [self._cells.get(layer, empty) for layer in range(self._stack.n_layers)]
        mass, pairs, links = (np.stack(parts) for parts in zip(*layers, strict=True))
        batch = self._batch
        links = np.moveaxis(links, 0, 1)
        return PairCells(mass, pairs, HashSample.of(size, batch.content_hash, batch.index, links))

    @property
    def whole(self) -> Floats:
        """Statistics of all layers; 0 in layers without attention.

        *Shape:* ``(sentence, layer, head + 2, statistic)``.
        """
        empty = np.zeros_like(next(iter(self._filled.values())))
        return np.stack([self._filled.get(i, empty) for i in range(self._stack.n_layers)], 1)

    def _measure(self, views: Mapping[SinkView, LayerAttention]) -> list[Floats]:
        return [metric.measure(views[view]).cpu().numpy() for metric, view in self._asked]

    def _about(self, scopes: Mapping[SinkView, ViewMask]) -> list[Floats]:
        """Return the statistics of the sentences themselves, for each metric and view.

        *Shape:* ``(sentence, statistic)`` each.
        """
        return [
            np.zeros((self._sentences, 0))
            if metric.sentence_statistics is None
            else metric.sentence_statistics(scopes[view]).cpu().numpy()
            for metric, view in self._asked
        ]

    def _table(self, heads: Floats, even: Floats, about: Floats) -> Floats:
        """Return the statistics of heads, of uniform attention and of sentences in one table.

        *Shape:* ``(sentence, head + 2, statistic)``, as wide as the widest of the three.
        """
        n_heads = self._stack.n_heads
        width = max(heads.shape[-1], about.shape[-1])
        table = np.zeros((self._sentences, n_heads + 2, width), heads.dtype)
        table[:, : heads.shape[1], : heads.shape[2]] = heads
        table[:, n_heads + 2 + UNIFORM, : even.shape[2]] = even[:, 0]
        table[:, n_heads + 2 + ABOUT, : about.shape[1]] = about
        return table
