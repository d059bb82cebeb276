"""How much heads give from which tokens to which: sums over a sample of sentences. No torch."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, HALVES, Ratios
from headbook.analysis.arithmetic import Floats, Ints, divide

ANY = -1  # in the place of a token: all of them
DISTINCT = 5  # different sentences that an item must occur in to be printed
NO_TEXT = np.uint64(np.iinfo(np.uint64).max)  # in the place of a hash


@dataclass(frozen=True, eq=False)
class Affinities:
    """Attention by token type, the sink masked, of one stack.

    An item is a query token (what it gives to all keys off the sink), a key token (what it gets
    from all queries), or a pair of both. Sums are taken over each sentence first, so that intervals
    are clustered by sentence.

    Attributes:
        names: of the vocabulary entries in ``entries``, as pages print them.
        entries: ascending. *Shape:* ``(entry,)``.
        query, key: entries of each item, `ANY` in the place of all. *Shape:* ``(item,)``.
        floor: sentences below which an item was not kept in a part of the sample; 1: all are.
        looked: sentences that were looked at.
        counts: occurrences, squares of those of each sentence, and sentences that have any.
            *Shape:* ``(3, layer, item)``; a layer with a window may see fewer pairs.
        chance: the same sums as the first of ``sums`` on uniform attention. *Shape:* ``(layer,
            item)``.
        sums: attention, its squares by sentence, and its products with the sentence's occurrences.
            *Shape:* ``(3, layer, head, item)``.
        texts: the smallest hashes of the sentences that an item occurs in, `NO_TEXT` in the place
            of those that are missing: equal sentences count once, whatever studies are added up.
            *Shape:* ``(DISTINCT, layer, item)``.
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
        """The sums of both; items that only one has kept count for that one alone."""
        floor, looked = max(self.floor, other.floor), self.looked + other.looked
        items = [np.stack([affinities.query, affinities.key], 1) for affinities in (self, other)]
        if np.array_equal(items[0], items[1]):
            return Affinities(
                self.names, self.entries, self.query, self.key, floor, looked,
                self.counts + other.counts, self.chance + other.chance, self.sums + other.sums,
                smallest(self.texts, other.texts),
            )  # fmt: skip
        kept, place = np.unique(np.concatenate(items), axis=0, return_inverse=True)
        place = place.reshape(-1)
        named = dict(zip(self.entries.tolist(), self.names, strict=True))
        named |= dict(zip(other.entries.tolist(), other.names, strict=True))
        entries = np.array(sorted(named), np.int64)
        own = place[: len(self.query)], place[len(self.query) :]

        def added(one: Floats, another: Floats) -> Floats:
            found = np.zeros((*one.shape[:-1], len(kept)))
            found[..., own[0]] += one
            found[..., own[1]] += another
            return found

        def placed(texts: NDArray[np.uint64], places: Ints) -> NDArray[np.uint64]:
            found = np.full((*texts.shape[:-1], len(kept)), NO_TEXT)
            found[..., places] = texts
            return found

        return Affinities(
            tuple(named[entry] for entry in entries.tolist()),
            entries,
            kept[:, 0],
            kept[:, 1],
            floor,
            looked,
            added(self.counts, other.counts),
            added(self.chance, other.chance),
            added(self.sums, other.sums),
            smallest(placed(self.texts, own[0]), placed(other.texts, own[1])),
        )

    @cached_property
    def even(self) -> Floats:
        """Mean of uniform attention. *Shape:* ``(layer, item)``."""
        return divide(self.chance, self.counts[0])

    @cached_property
    def mean_head(self) -> Floats:
        """Mean attention over all heads; NaN for items that no head sees. *Shape:* ``(item,)``."""
        means = divide(self.sums[0], self.counts[0][:, None])
        there = self.sums[0].any(-1)  # a layer may have fewer heads, or none
        known = there[..., None] & ~np.isnan(means)
        return divide(np.where(known, means, 0).sum((0, 1)), known.sum((0, 1)))

    def distinct(self, layer: int) -> NDArray[np.bool_]:
        """Whether each item occurs in at least `DISTINCT` different sentences."""
        return np.asarray((self.texts[:, layer] != NO_TEXT).all(0))

    def ratios(self, layer: int) -> Ratios:
        """Mean attention of a layer's heads. Cells: ``(head, item)``."""
        total, squares, products = self.sums[:, layer]
        number, own, sentences = self.counts[:, layer]
        parts = (total, number, squares, own, products, sentences, number, sentences)
        sums = np.zeros((len(FIELDS), HALVES, *total.shape))
        for field, part in enumerate(parts):
            sums[field, 0] = part
        return Ratios(sums)

    def named(self, entries: Ints) -> NDArray[np.object_]:
        """Entries as pages print them, empty for `ANY`. *Shape:* that of ``entries``."""
        names = np.array([*self.names, ""], dtype=object)
        place = np.searchsorted(self.entries, entries)
        found: NDArray[np.object_] = names[np.where(entries == ANY, len(self.names), place)]
        return found


def smallest(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the smallest different hashes of both.

    Args:
        one, other: *Shape:* ``(DISTINCT, *cells)``; `NO_TEXT` where there are fewer.
    """
    both = np.sort(np.concatenate([one, other]), 0)
    both[1:][both[1:] == both[:-1]] = NO_TEXT
    return np.sort(both, 0)[:DISTINCT]
