"""Sums by vocabulary token: attention from and to tokens, anchors of heads, mean token paths.

Also the tokens that each head favours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, N_SPLITS, RatioSums
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.metrics import ids as metric_ids
from headbook.schema import ResidualPoint, SinkView

ANY_TOKEN = -1  # entry that stands for all tokens
MIN_SENTENCES = 5  # least number of different sentences with an item that is printed
NO_TEXT = np.uint64(np.iinfo(np.uint64).max)  # hash of a missing sentence


@dataclass(frozen=True, eq=False)
class Affinities:
    """Attention by token type, the sink masked, of one stack.

    An item is a query token (its attention to all keys outside the sink), a key token (attention
    from all queries to it), or a pair of both. Sums are taken over each sentence first, so that
    intervals are clustered by sentence.

    Attributes:
        names: names of the vocabulary entries in ``entries``, as pages print them.
        entries: vocabulary entries, ascending. *Shape:* ``(entry,)``.
        query, key: entries of each item, `ANY_TOKEN` for all tokens. *Shape:* ``(item,)``.
        floor: least number of sentences of an item in each part of the sample; 1 for all items.
        looked: number of sentences in the sample.
        counts: occurrences, their squares by sentence, and sentences with at least one; a layer
            with a window may see fewer pairs. *Shape:* ``(3, layer, item)``.
        chance: sums of uniform attention. *Shape:* ``(layer, item)``.
        sums: attention, its squares by sentence, and its products with the sentence's occurrences.
            *Shape:* ``(3, layer, head, item)``.
        texts: smallest hashes of the sentences with an item, `NO_TEXT` if there are fewer, so that
            equal sentences of several studies count once. *Shape:* ``(DISTINCT, layer, item)``.
    """

    names: tuple[str, ...]
    entries: Ints
    query: Ints
    key: Ints
    floor: int
    looked: int
    counts: Floats
    chance: Floats
    sums: Floats
    texts: NDArray[np.uint64]

    def __add__(self, other: "Affinities") -> "Affinities":
        """Return the sums of both samples; an item may occur in one sample alone.

        Items that one sample alone has and the other one may have left out are left out.
        """
        floor, looked = max(self.floor, other.floor), self.looked + other.looked
        items = [np.stack([affinities.query, affinities.key], 1) for affinities in (self, other)]
        if np.array_equal(items[0], items[1]):
            return Affinities(
                self.names, self.entries, self.query, self.key, floor, looked,
                self.counts + other.counts, self.chance + other.chance, self.sums + other.sums,
                smallest(self.texts, other.texts),
            )  # fmt: skip
        merged_items, item_index = np.unique(np.concatenate(items), axis=0, return_inverse=True)
        item_index = item_index.reshape(-1)
        known = [np.ones(len(merged_items), bool) for _ in items]  # items that each sample counted
        for part, own_index, counted in zip(
            (self, other), np.split(item_index, [len(self.query)]), known, strict=True
        ):
            counted[:] = part.floor == 1
            counted[own_index] = True
        kept = known[0] & known[1]
        names_by_entry = dict(zip(self.entries.tolist(), self.names, strict=True))
        names_by_entry |= dict(zip(other.entries.tolist(), other.names, strict=True))
        entries = np.array(sorted(names_by_entry), np.int64)
        indices = item_index[: len(self.query)], item_index[len(self.query) :]

        def add(own_sums: Floats, other_sums: Floats) -> Floats:
            sums = np.zeros((*own_sums.shape[:-1], len(merged_items)))
            sums[..., indices[0]] += own_sums
            sums[..., indices[1]] += other_sums
            return sums

        def spread_texts(texts: NDArray[np.uint64], places: Ints) -> NDArray[np.uint64]:
            sums = np.full((*texts.shape[:-1], len(merged_items)), NO_TEXT)
            sums[..., places] = texts
            return sums

        return Affinities(
            tuple(names_by_entry[entry] for entry in entries.tolist()),
            entries,
            merged_items[kept, 0],
            merged_items[kept, 1],
            floor,
            looked,
            add(self.counts, other.counts)[..., kept],
            add(self.chance, other.chance)[..., kept],
            add(self.sums, other.sums)[..., kept],
            smallest(spread_texts(self.texts, indices[0]), spread_texts(other.texts, indices[1]))[
                ..., kept
            ],
        )

    @cached_property
    def even(self) -> Floats:
        """Mean uniform attention of each item. *Shape:* ``(layer, item)``."""
        return divide(self.chance, self.counts[0])

    @cached_property
    def mean_head(self) -> Floats:
        """Mean attention over all heads; NaN for items that no head sees. *Shape:* ``(item,)``."""
        means = divide(self.sums[0], self.counts[0][:, None])
        layer_has_item = self.sums[0].any(-1)  # a layer may have fewer heads, or none
        in_layer = layer_has_item[..., None] & ~np.isnan(means)
        return divide(np.where(in_layer, means, 0).sum((0, 1)), in_layer.sum((0, 1)))

    def distinct(self, layer: int) -> NDArray[np.bool_]:
        """Whether each item occurs in at least `MIN_SENTENCES` different sentences."""
        return np.asarray((self.texts[:, layer] != NO_TEXT).all(0))

    def ratios(self, layer: int) -> RatioSums:
        """Return the sums for the mean attention of a layer's heads. Cells: ``(head, item)``."""
        total, squares, products = self.sums[:, layer]
        number, count_squares, sentences = self.counts[:, layer]
        fields = (total, number, squares, count_squares, products, sentences, number, sentences)
        sums = np.zeros((len(FIELDS), N_SPLITS, *total.shape))
        for field, part in enumerate(fields):
            sums[field, 0] = part
        return RatioSums(sums)

    def named(self, entries: Ints) -> NDArray[np.object_]:
        """Return names of entries, empty for `ANY_TOKEN`. *Shape:* that of ``entries``."""
        names = np.array([*self.names, ""], dtype=object)
        index = np.searchsorted(self.entries, entries)
        named: NDArray[np.object_] = names[np.where(entries == ANY_TOKEN, len(self.names), index)]
        return named


def smallest(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the smallest different hashes of two arrays, `MIN_SENTENCES` for each cell.

    Args:
        first, second: hashes, `NO_TEXT` if there are fewer. *Shape:* ``(DISTINCT, *cells)``.
    """
    hashes = np.sort(np.concatenate([first, second]), 0)
    hashes[1:][hashes[1:] == hashes[:-1]] = NO_TEXT
    return np.sort(hashes, 0)[:MIN_SENTENCES]


TRUE_ORDER, SHUFFLED_ORDER = 0, 1  # indices of tokens in their order, and in random order
MIN_ANCHOR_TEXTS = 10  # least number of texts with a token that may be an anchor


class AnchorColumn(NamedTuple):
    """Metric, view and label of the anchors of all heads."""

    metric: str
    view: SinkView
    label: str


@dataclass(frozen=True, eq=False)
class Anchors:
    """The token type of each head whose pairs with other tokens are high most often.

    Attributes:
        columns: metric, view and label.
        names: printed form of each anchor, by vocabulary entry as text.
        token: vocabulary entry of each head's anchor, -1 without one. *Shape:* ``(column, order,
            layer, head)``, orders `TRUE_ORDER` and `SHUFFLED_ORDER`.
        lift: share of high pairs among the anchor's pairs, over the share among all pairs; NaN
            without an anchor. The shape of ``token``.
        low: lower end of the lift, two standard errors below it. The shape of ``token``.
    """

    columns: tuple[AnchorColumn, ...]
    names: Mapping[str, str]
    token: Ints
    lift: Floats
    low: Floats


Scalar = TypeVar("Scalar", np.float64, np.int64)
# States of each layer whose cosines to the input embedding are summed.
PATH_STATES = (ResidualPoint.MID, ResidualPoint.POST)
PATH_METRIC = metric_ids.COSINE_TO_INPUT  # metric of the path of a token type


@dataclass(frozen=True, eq=False)
class TokenTypeSums:
    """Paths of token types through one stack, summed over occurrences; no special tokens.

    Attributes:
        names: names of the types, as pages print them.
        ids: vocabulary entries, ascending. *Shape:* ``(type,)``.
        count: number of occurrences. *Shape:* ``(type,)``.
        sentences: number of sentences with at least one occurrence. *Shape:* ``(type,)``.
        total, squares: sums of the cosine to the input embedding and of its square; NaN if a state
            cannot be read. *Shape:* ``(type, layer, state)``; states as in `PATH_STATES`.
    """

    names: tuple[str, ...]
    ids: Ints
    count: Ints
    sentences: Ints
    total: Floats
    squares: Floats

    def __add__(self, other: "TokenTypeSums") -> "TokenTypeSums":
        ids, type_index = np.unique(np.concatenate([self.ids, other.ids]), return_inverse=True)
        names = np.empty(len(ids), dtype=object)
        names[type_index] = [*self.names, *other.names]

        def add(own_sums: NDArray[Scalar], other_sums: NDArray[Scalar]) -> NDArray[Scalar]:
            sums = np.zeros((len(ids), *own_sums.shape[1:]), own_sums.dtype)
            sums[type_index[: len(own_sums)]] += own_sums
            sums[type_index[len(own_sums) :]] += other_sums
            return sums

        return TokenTypeSums(
            tuple(names),
            ids,
            add(self.count, other.count),
            add(self.sentences, other.sentences),
            add(self.total, other.total),
            add(self.squares, other.squares),
        )

    @property
    def mean(self) -> Floats:
        """Mean cosine of each type. *Shape:* ``(type, layer, state)``."""
        return self.total / self.count[:, None, None]

    @property
    def spread(self) -> Floats:
        """Standard deviation over a type's occurrences; NaN for one. The shape of ``mean``."""
        count = self.count[:, None, None]
        squared_deviations = np.maximum(self.squares - self.total**2 / count, 0)
        spread: Floats = np.sqrt(divide(squared_deviations, count - 1))
        return spread


QUERY, KEY, PAIR = KINDS = ("query", "key", "pair")
MAX_FAVOURED = 50  # rows of each kind and head


@dataclass(frozen=True, eq=False)
class FavouredTokens:
    """Items of one kind for the heads of a layer, in the order in which each favours them.

    Attributes:
        item: positions among the items of the sums. *Shape:* ``(head, row)``, as all fields.
        count, n_sentences: occurrences, and sentences with at least one.
        mean, low, high: mean attention and its interval.
        uniform: mean uniform attention.
        mean_head: mean attention over all heads.
    """

    item: Ints
    count: Ints
    n_sentences: Ints
    mean: Floats
    low: Floats
    high: Floats
    uniform: Floats
    mean_head: Floats

    @property
    def ratio(self) -> Floats:
        """Ratio to uniform attention."""
        return divide(self.mean, self.uniform)

    @property
    def mean_head_ratio(self) -> Floats:
        """Ratio to the mean head."""
        return divide(self.mean, self.mean_head)

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether the whole interval lies above uniform attention and above the mean head."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.low > self.uniform) & (self.low > self.mean_head))


def favoured_tokens(sums: Affinities, layer: int, kind: str) -> FavouredTokens:
    """Return the items of a kind that occur in enough sentences, for all heads of a layer.

    Items whose interval lies above uniform attention and above the mean head come first, then items
    by their ratio to uniform attention; ties are in the order of entries.

    Args:
        sums: attention by token type.
        layer: layer, from 0.
        kind: `QUERY`, `KEY` or `PAIR`.
    """
    has_query_key = {QUERY: (True, False), KEY: (False, True), PAIR: (True, True)}[kind]
    of_kind = ((sums.query != ANY_TOKEN) == has_query_key[0]) & (
        (sums.key != ANY_TOKEN) == has_query_key[1]
    )
    items = np.flatnonzero(of_kind & sums.distinct(layer))
    ratios = sums.ratios(layer)[:, items]
    low, high = ratios.interval((0.0, np.inf if kind == KEY else 1.0))
    fields = (
        items, ratios.n_observations.round().astype(int), ratios.n_sentences, ratios.value, low,
        high, sums.even[layer, items], sums.mean_head[items],
    )  # fmt: skip
    candidates = FavouredTokens(*(np.broadcast_to(field, low.shape) for field in fields))
    ratio = np.nan_to_num(candidates.ratio, nan=-1).round(9)
    order = np.lexsort((-ratio, ~candidates.clear), axis=-1)[:, :MAX_FAVOURED]
    return FavouredTokens(
        *(np.take_along_axis(part, order, -1) for part in vars(candidates).values())
    )
