"""What is kept of groups of sentences, and of sentences that form pairs. No torch.

Which columns of the input say so, `headbook.study.facets` finds out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Ratios
from headbook.analysis.arithmetic import Ints

ENOUGH = 3  # sentences of a pair that are kept: a third one tells that it is no pair


@dataclass(frozen=True, eq=False)
class Group:
    """The sentences that have one value in a metadata column, for one stack.

    Columns of numbers are those of the table of all sentences. Halves are not kept apart.

    Attributes:
        column, value: what the sentences share.
        sentences: how many there are.
        heads: *Shape:* ``(layer, head, column)``.
        layers: the same, heads of a layer added up. *Shape:* ``(layer, column)``.
        uniform: the same measures on uniform attention. *Shape:* ``(layer, column)``.
    """

    column: str
    value: str
    sentences: int
    heads: Ratios
    layers: Ratios
    uniform: Ratios

    def __add__(self, other: "Group") -> "Group":
        return Group(
            self.column,
            self.value,
            self.sentences + other.sentences,
            self.heads + other.heads,
            self.layers + other.layers,
            self.uniform + other.uniform,
        )


def together(groups: Iterable[Group]) -> tuple[Group, ...]:
    """One group for each column and value, in the order of their names."""
    found: dict[tuple[str, str], Group] = {}
    for group in groups:
        name = group.column, group.value
        found[name] = found[name] + group if name in found else group
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, eq=False)
class Members:
    """Single sentences that form pairs, of the pairs with the smallest hashes.

    Of each pair at most `ENOUGH` sentences are kept, those that come first.

    Attributes:
        size: how many pairs are kept.
        places: which columns of the table of all sentences the values are of.
        pair: hash of what the sentences of a pair share. *Shape:* ``(kept,)``.
        index: places in the input; the same shape.
        labels: by metadata column, the text of each sentence; empty where it has none.
        values: numbers of each sentence, NaN where it has none. *Shape:*
            ``(kept, layer, head, place)``.
    """

    size: int
    places: tuple[int, ...]
    pair: NDArray[np.uint64]
    index: Ints
    labels: Mapping[str, tuple[str, ...]]
    values: NDArray[np.float32]

    def __add__(self, other: "Members") -> "Members":
        names = dict.fromkeys([*self.labels, *other.labels])
        return Members(
            self.size,
            self.places,
            np.concatenate([self.pair, other.pair]),
            np.concatenate([self.index, other.index]),
            {name: self.texts(name) + other.texts(name) for name in names},
            np.concatenate([self.values, other.values]),
        ).smallest()

    def texts(self, column: str) -> tuple[str, ...]:
        """What a metadata column says of each sentence; empty where it says nothing."""
        return self.labels.get(column, ("",) * len(self.index))

    def shifted(self, by: int) -> "Members":
        """The same for sentences that come ``by`` places later."""
        return replace(self, index=self.index + by)

    def smallest(self) -> "Members":
        """Those of the pairs with the smallest hashes, in their order."""
        order = np.lexsort((self.index, self.pair))
        _, starts, rank = np.unique(self.pair[order], return_index=True, return_inverse=True)
        within = np.arange(len(order)) - starts[rank]
        kept = order[(rank < self.size) & (within < ENOUGH)]
        return replace(
            self,
            pair=self.pair[kept],
            index=self.index[kept],
            labels={name: tuple(texts[i] for i in kept) for name, texts in self.labels.items()},
            values=self.values[kept],
        )
