"""What survives of every token type of a corpus: its mean path. No torch; a study stores it."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.metrics import ids as metric_ids
from headbook.terms import State

Scalar = TypeVar("Scalar", np.float64, np.int64)
STATES = (State.MID, State.OUT)
TYPE_METRIC = metric_ids.COSINE_TO_INPUT  # what the path of a type is made of


@dataclass(frozen=True, eq=False)
class TypeSums:
    """The paths of token types, added up over their occurrences in one stack.

    Special tokens are left out.

    Attributes:
        names: as pages print them.
        ids: vocabulary entries, ascending. *Shape:* ``(type,)``.
        count, sentences: occurrences, and sentences with at least one; the same shape.
        total, squares: sums of the cosine to the input and of its square; NaN where a state cannot
            be read. *Shape:* ``(type, layer, state)``; states as in `STATES`.
    """

    names: tuple[str, ...]
    ids: Ints
    count: Ints
    sentences: Ints
    total: Floats
    squares: Floats

    def __add__(self, other: "TypeSums") -> "TypeSums":
        ids, place = np.unique(np.concatenate([self.ids, other.ids]), return_inverse=True)
        names = np.empty(len(ids), dtype=object)
        names[place] = [*self.names, *other.names]

        def added(one: NDArray[Scalar], another: NDArray[Scalar]) -> NDArray[Scalar]:
            sums = np.zeros((len(ids), *one.shape[1:]), one.dtype)
            sums[place[: len(one)]] += one
            sums[place[len(one) :]] += another
            return sums

        return TypeSums(
            tuple(names),
            ids,
            added(self.count, other.count),
            added(self.sentences, other.sentences),
            added(self.total, other.total),
            added(self.squares, other.squares),
        )

    @property
    def mean(self) -> Floats:
        """Mean cosine of each type. *Shape:* ``(type, layer, state)``."""
        return self.total / self.count[:, None, None]

    @property
    def spread(self) -> Floats:
        """Standard deviation over a type's occurrences; NaN for a single one. The same shape."""
        count = self.count[:, None, None]
        away = np.maximum(self.squares - self.total**2 / count, 0)
        spread: Floats = np.sqrt(divide(away, count - 1))
        return spread
