"""What survives of a stream of sentences: sums that add. No torch; a study stores these."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from headbook.accumulators import Ratios, Reservoir, TopK
from headbook.terms import Space, State, View


class HeadColumn(NamedTuple):
    """What one number of a head is."""

    metric: str
    view: View
    label: str


class TokenColumn(NamedTuple):
    """What one number of a layer's tokens is; ``label`` is a class of tokens."""

    metric: str
    state: State
    space: Space | None
    label: str


@dataclass(frozen=True, eq=False)
class HeadSums:
    """The attention of one stack.

    Attributes:
        columns: what the last dimension of the sums holds.
        heads: *Shape:* ``(layer, head, column)``.
        layers: the same, heads of a layer added up. *Shape:* ``(layer, column)``.
        uniform: the same measures on uniform attention. *Shape:* ``(layer, column)``.
        strongest: sentences by their largest single weight without the sink, for each head.
        sample: that weight for a sample of sentences, from which the median ones are taken.
    """

    columns: tuple[HeadColumn, ...]
    heads: Ratios
    layers: Ratios
    uniform: Ratios
    strongest: TopK
    sample: Reservoir

    def __add__(self, other: "HeadSums") -> "HeadSums":
        added = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name != "columns"
        }
        return HeadSums(self.columns, **added)

    def shifted(self, by: int) -> "HeadSums":
        """The same for sentences that come ``by`` places later."""
        best, sample = self.strongest, self.sample
        later = np.where(best.index >= 0, best.index + by, best.index)
        return replace(
            self,
            strongest=replace(best, index=later),
            sample=replace(sample, index=sample.index + by),
        )


@dataclass(frozen=True, eq=False)
class TokenSums:
    """The states of one stack.

    Attributes:
        columns: what the last dimension holds.
        layers: *Shape:* ``(layer, column)``.
    """

    columns: tuple[TokenColumn, ...]
    layers: Ratios

    def __add__(self, other: "TokenSums") -> "TokenSums":
        return TokenSums(self.columns, self.layers + other.layers)


@dataclass(frozen=True, eq=False)
class Survey:
    """All that is kept of the pass over all sentences.

    Attributes:
        heads, tokens: sums by stack.
        lookups: sums of the metrics that need the vocabulary, on a sample of sentences.
        counts: numbers of sentences, tokens, words and their like.
    """

    heads: Mapping[str, HeadSums]
    tokens: Mapping[str, TokenSums]
    lookups: Mapping[str, TokenSums]
    counts: Counter[str]

    def __add__(self, other: "Survey") -> "Survey":
        return Survey(
            _merged(self.heads, other.heads),
            _merged(self.tokens, other.tokens),
            _merged(self.lookups, other.lookups),
            self.counts + other.counts,
        )

    def shifted(self, by: int) -> "Survey":
        """The same for sentences that come ``by`` places later."""
        return replace(self, heads={name: sums.shifted(by) for name, sums in self.heads.items()})


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add what both have; keep what only one has."""
    both = {name: one[name] + other[name] for name in one if name in other}
    return {**one, **other, **both}
