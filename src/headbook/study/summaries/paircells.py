"""The attention that heads give to pairs of words by surface alone. No torch."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import Reservoir
from headbook.analysis.arithmetic import Floats, divide
from headbook.attention.paircells import BINS, NO_CELL

LEAST = 30  # pairs of a cell on the choice half; with fewer the distance alone is taken


@dataclass(frozen=True, eq=False)
class PairCells:
    """Mean attention of each head by parts of speech and distance, and the linked pairs.

    Attributes:
        mass: attention in each cell over the choice half, of every head and, last, of uniform
            attention. *Shape:* ``(layer, head + 1, cell)``.
        pairs: visible pairs in each cell over the choice half. *Shape:* ``(layer, cell)``.
        links: cells of the pairs of head and dependent of each sampled sentence, `NO_CELL` behind
            the last. *Shape* of the payload: ``(kept, layer, link)``.
    """

    mass: Floats
    pairs: Floats
    links: Reservoir

    def __add__(self, other: "PairCells") -> "PairCells":
        links = self.links + other.links
        return PairCells(self.mass + other.mass, self.pairs + other.pairs, links)

    def shifted(self, by: int) -> "PairCells":
        """Return the sums as of sentences that come ``by`` places later."""
        return replace(self, links=self.links.shifted(by))

    def means(self, layer: int) -> Floats:
        """Return the mean attention of each head in each cell. *Shape:* ``(head + 1, cell)``.

        Cells with fewer than `LEAST` pairs have the mean of all pairs at their distance.
        """
        mass, pairs = self.mass[layer], self.pairs[layer]
        near, all_near = (
            part.reshape(*part.shape[:-1], -1, BINS).sum(-2) for part in (mass, pairs)
        )
        by_distance = np.tile(np.nan_to_num(divide(near, all_near)), len(pairs) // BINS)
        return np.where(pairs >= LEAST, np.nan_to_num(divide(mass, pairs)), by_distance)

    def expected(self, layer: int) -> Floats:
        """Return what each head would give to a sentence's linked pairs by surface alone.

        *Shape:* ``(kept, head + 1)``.
        """
        links: NDArray[np.uint16] = self.links.payload[:, layer]
        sentence, place = np.nonzero(links != NO_CELL)
        means = self.means(layer)
        each = means[:, links[sentence, place]]
        found = np.zeros((len(links), len(means)))
        for head, values in enumerate(each):
            found[:, head] = np.bincount(sentence, values, len(links))
        return found
