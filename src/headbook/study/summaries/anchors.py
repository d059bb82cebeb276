"""The tokens that stand in pairs of high similarity, counted for every head. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.terms import View

Counts = NDArray[np.integer]
TRUE, SHUFFLED = 0, 1  # tokens where they stand, and in random order


class AnchorColumn(NamedTuple):
    """What one count of a head is of."""

    metric: str
    view: View
    label: str


class Best(NamedTuple):
    """The most frequent token of each head; all arrays ``(layer, head)``.

    Attributes:
        token: vocabulary entry, -1 without pairs; of equals the one with the smallest number.
        ends: how many of them are this token.
        total: all ends.
    """

    token: Counts
    ends: Counts
    total: Counts


@dataclass(frozen=True, eq=False)
class Anchors:
    """Ends of pairs by head and token, for the heads of one stack.

    Attributes:
        columns: what is counted.
        shape: numbers of columns, of orders (`TRUE` and `SHUFFLED`), of layers and of heads.
        names: tokens by vocabulary entry, as texts.
        cell: place in an array of that shape, ascending. *Shape:* ``(entry,)``.
        token: vocabulary entry; those of a cell ascend.
        count: ends; all others are 0.
    """

    columns: tuple[AnchorColumn, ...]
    shape: tuple[int, ...]
    names: Mapping[str, str]
    cell: Counts
    token: Counts
    count: Counts

    @classmethod
    def of(
        cls,
        columns: tuple[AnchorColumn, ...],
        names: Mapping[str, str],
        tokens: Counts,
        counts: Counts,
    ) -> "Anchors":
        """From counts by column, order, layer, head and token.

        Args:
            tokens: vocabulary entries, ascending.
            counts: their ends. *Shape:* ``(column, order, layer, head, token)``.
        """
        shape = counts.shape[:-1]
        cell, place = np.nonzero(counts.reshape(-1, len(tokens)))
        count = counts.reshape(-1, len(tokens))[cell, place]
        small = (each.astype(np.int32) for each in (cell, tokens[place], count))
        return cls(columns, shape, names, *small)

    def __add__(self, other: "Anchors") -> "Anchors":
        cell = np.concatenate([self.cell, other.cell])
        token = np.concatenate([self.token, other.token])
        order = np.lexsort((token, cell))
        cell, token = cell[order], token[order]
        count = np.concatenate([self.count, other.count])[order]
        new = np.ones(len(cell), bool)
        new[1:] = (cell[1:] != cell[:-1]) | (token[1:] != token[:-1])
        starts = np.flatnonzero(new)
        summed = np.add.reduceat(count, starts) if len(starts) else count
        names = {**self.names, **other.names}
        return Anchors(self.columns, self.shape, names, cell[new], token[new], summed)

    def best(self, column: AnchorColumn, order: int = TRUE) -> Best:
        """The anchor of each head."""
        _, orders, *shape = self.shape
        n_heads = int(np.prod(shape))
        start = (self.columns.index(column) * orders + order) * n_heads
        own = slice(*np.searchsorted(self.cell, (start, start + n_heads)))
        cell, tokens, counts = self.cell[own] - start, self.token[own], self.count[own]
        token, ends, total = np.full(n_heads, -1), *np.zeros((2, n_heads), np.int64)
        np.add.at(total, cell, counts)
        np.maximum.at(ends, cell, counts)
        most = np.flatnonzero(counts == ends[cell])[::-1]  # the smallest number comes last
        token[cell[most]] = tokens[most]
        return Best(*(each.reshape(shape) for each in (token, ends, total)))
