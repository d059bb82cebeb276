"""A whole comparison: everything that two studies of the same sentences say of each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from headbook.comparison.drift import drifts, floor
from headbook.comparison.headdifferences import HeadDifferences, head_differences
from headbook.comparison.sides import Sides, StackPair, sides
from headbook.study.study import Study
from headbook.terms import Heads

DIFFERENCES = (
    "stack", "layer", "head", "metric", "view", "label", "a", "b", "difference", "low", "high",
    "p", "sentences",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models on the same sentences.

    Attributes:
        sides: the studies, and whether heads correspond by their numbers.
        heads: differences of corresponding heads, by the name of the pair of stacks; empty where
            heads do not correspond.
    """

    sides: Sides
    heads: Mapping[str, HeadDifferences] = field(default_factory=dict)

    @property
    def differences(self) -> pd.DataFrame:
        """A row for each number of each head; columns as in ``differences.csv``."""
        pairs = {pair.name: pair for pair in self.sides.stacks}
        frames = [_rows(pairs[name], found) for name, found in self.heads.items()]
        return (
            pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*DIFFERENCES])
        )


def compare(
    a: Study,
    b: Study,
    heads: Heads = Heads.AUTO,
    *,
    names: tuple[str, str] = ("", ""),
    rounded: Study | None = None,
) -> Comparison:
    """Compare two studies of the same sentences; differences are what ``b`` has more.

    Args:
        heads: which heads are held against each other.
        names: what pages call the models; by default their own names.
        rounded: the first model in bfloat16, for what rounding alone does.

    Raises:
        StudyError: the studies are of different sentences, or heads do not correspond although
            that was asked for.
    """
    both = sides(a, b, heads, names)
    if not both.same_heads:
        return Comparison(both)
    below = sides(a, rounded, Heads.SAME) if rounded is not None else None
    return Comparison(both, {pair.name: _heads(both, pair, below) for pair in both.stacks})


def _heads(both: Sides, pair: StackPair, below: Sides | None) -> HeadDifferences:
    parts = [head_differences(both, pair), *drifts(both, pair)]
    if below is not None:
        parts += [*floor(below, pair)]
    return HeadDifferences.beside(parts)


def _rows(pair: StackPair, found: HeadDifferences) -> pd.DataFrame:
    """The numbers of one pair of stacks, those that there are."""
    _, n_heads, n_columns = found.value.shape
    present = [*pair.a.attention_layers]
    size = len(present) * n_heads
    frame = {
        "stack": pair.name,
        "layer": np.repeat(present, n_heads * n_columns),
        "head": np.tile(np.repeat(np.arange(n_heads), n_columns), len(present)),
        **{
            name: np.tile(np.array([getattr(c, name) for c in found.columns], object), size)
            for name in ("metric", "view", "label")
        },
    }
    for name, part in {
        "a": found.a, "b": found.b, "difference": found.value, "low": found.low,
        "high": found.high, "p": found.p, "sentences": found.sentences,
    }.items():  # fmt: skip
        frame[name] = part[present].reshape(-1)
    table = pd.DataFrame(frame)[[*DIFFERENCES]]
    return table[table["difference"].notna()].reset_index(drop=True)
