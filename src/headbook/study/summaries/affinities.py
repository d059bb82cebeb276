"""How much heads give from which tokens to which: sums over a sample of sentences. No torch."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, HALVES, Ratios
from headbook.analysis.arithmetic import Floats, Ints, divide

ANY = -1  # in the place of a token: all of them


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
        floor: occurrences below which an item was not kept in a part of the sample; 1: all are.
        looked: sentences that were looked at.
        counts: occurrences, squares of those of each sentence, and sentences that have any.
            *Shape:* ``(3, layer, item)``; a layer with a window may see fewer pairs.
        chance: the same sums as the first of ``sums`` on uniform attention. *Shape:* ``(layer,
            item)``.
        sums: attention, its squares by sentence, and its products with the sentence's occurrences.
            *Shape:* ``(3, layer, head, item)``.
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

    def __add__(self, other: "Affinities") -> "Affinities":
        """The sums of both; items that only one has kept count for that one alone."""
        floor, looked = max(self.floor, other.floor), self.looked + other.looked
        items = [np.stack([affinities.query, affinities.key], 1) for affinities in (self, other)]
        if np.array_equal(items[0], items[1]):
            return Affinities(
                self.names, self.entries, self.query, self.key, floor, looked,
                self.counts + other.counts, self.chance + other.chance, self.sums + other.sums,
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
        )

    @cached_property
    def even(self) -> Floats:
        """Mean of uniform attention. *Shape:* ``(layer, item)``."""
        return divide(self.chance, self.counts[0])

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
