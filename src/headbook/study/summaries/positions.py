"""Mean attention by position: sums over sentences for the first positions. No torch."""

from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.terms import Stack

FIRST = 12  # positions of queries and of keys that are kept
FIRST_OF_MANY = 8  # where a layer has `MANY` heads or more
MANY = 24


def kept_positions(stack: Stack) -> int:
    """How many positions are kept of a stack's maps."""
    return FIRST_OF_MANY if stack.n_heads >= MANY else FIRST


@dataclass(frozen=True, eq=False)
class PositionSums:
    """Attention between the first positions of one stack, summed over all sentences.

    All keys as the model weights them, and all queries, special tokens included. A key that a
    query may not see adds 0.

    Attributes:
        total: weights added up. *Shape:* ``(layer, head, query, key)``.
        count: sentences long enough for a query and a key there. *Shape:* ``(query, key)``.
    """

    total: Floats
    count: Ints

    def __add__(self, other: "PositionSums") -> "PositionSums":
        return PositionSums(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Floats:
        """Mean weight; NaN where no sentence is long enough. The shape of ``total``."""
        found: Floats = divide(self.total, self.count.astype(np.float64))
        return found

    @classmethod
    def zero(cls, stack: Stack) -> "PositionSums":
        """Sums of no sentence."""
        side = kept_positions(stack)
        cells = (stack.n_layers, stack.n_heads, side, side)
        return cls(np.zeros(cells), np.zeros((side, side), np.int64))
