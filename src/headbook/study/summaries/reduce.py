"""From a batch's ratios to the sums that survive it, in float64."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, HALVES
from headbook.analysis.arithmetic import Floats, divide
from headbook.attention import compiled
from headbook.metrics.base import Ratio


@dataclass(frozen=True)
class Parts:
    """Many measures side by side.

    Labels of one measure often share a denominator, measures theirs, and most are the same for all
    heads; each is kept once.

    Attributes:
        n: numerators, a column for each label that is given. *Shape:* ``(sentence, head, given)``.
        shared: denominators and events that are the same for all heads; the last column is 0.
            *Shape:* ``(sentence, column)``.
        own: those of each head. *Shape:* ``(sentence, head, column)``.
        given: where the columns of ``n`` stand among all labels.
        d_of, events_of: the column that each label takes of ``shared`` and, after it, ``own``.
    """

    n: NDArray[np.floating]
    shared: Floats
    own: Floats
    given: NDArray[np.int64]
    d_of: NDArray[np.int64]
    events_of: NDArray[np.int64]

    @classmethod
    def of(cls, ratios: Sequence[Ratio], n_labels: Sequence[int], n_heads: int) -> "Parts":
        """Put ratios side by side.

        Args:
            n_labels: how many labels each has, given or not.
        """
        numerators = [_columns(ratio.numerator, n_heads) for ratio in ratios]
        events = [r.denominator if r.events is None else r.events for r in ratios]
        below = [[ratio.denominator for ratio in ratios], events]
        known = {id(part): part for parts in below for part in parts}
        shared = {key: part for key, part in known.items() if part.shape[1] == 1}
        own = {key: part for key, part in known.items() if key not in shared}
        tables = [[_columns(part, size) for part in parts.values()]
                  for parts, size in ((shared, 1), (own, n_heads))]  # fmt: skip
        nothing = numerators[0].new_zeros(len(numerators[0]), 1, 1)
        kept = _beside([*tables[0], nothing]).squeeze(1)
        widths = [part.shape[2] for table in tables for part in table]
        widths.insert(len(shared), 1)
        places = dict(zip([*shared, None, *own], _spans(widths), strict=True))
        labels = [
            np.arange(count) if ratio.labels is None else np.asarray(ratio.labels, np.int64)
            for ratio, count in zip(ratios, n_labels, strict=True)
        ]
        starts = [span.start for span in _spans(n_labels)]
        taken = [[places[id(part)] for part in parts] for parts in below]
        return cls(
            torch.cat(numerators, -1).cpu().numpy(),
            kept,
            _beside(tables[1]) if own else np.zeros((len(kept), n_heads, 0)),
            np.concatenate([start + label for start, label in zip(starts, labels, strict=True)]),
            *(_taken(each, labels, n_labels, kept.shape[1] - 1) for each in taken),
        )

    def of_some(self, sentences: Sequence[int]) -> "Parts":
        """The same of some of the sentences."""
        taken = [*sentences]
        return replace(self, n=self.n[taken], shared=self.shared[taken], own=self.own[taken])

    def values(self, sentences: Sequence[int], labels: Sequence[int]) -> Floats:
        """Ratios of single sentences; NaN where a sentence takes no part.

        *Shape:* ``(sentence, head, label)``.
        """
        some, found = self.of_some(sentences), []
        n_shared = self.shared.shape[1]
        for label in labels:
            place = self.d_of[label]
            one_of_own = place >= n_shared
            d = some.own[..., place - n_shared] if one_of_own else some.shared[:, place, None]
            given = np.flatnonzero(self.given == label)
            n = some.n[..., given].sum(-1, dtype=np.float64)
            found.append(divide(n, d) if len(given) else np.full(n.shape, np.nan))
        return np.stack(found, -1)

    def sums(self, half: NDArray[np.int64], starts: Sequence[int] = ()) -> tuple[Floats, Floats]:
        """What `Ratios` keeps of a batch; a sentence with denominator 0 takes no part.

        Args:
            half: the half, 0 or 1, of each sentence.
            starts: the first head of each layer, and the number of heads; by default one layer.

        Returns:
            Of each head, *Shape:* ``(8, 2, head, label)``, and of the heads of each layer added
            up, as one, ``(8, 2, layer, label)``.
        """
        n_heads, shape = self.n.shape[1], (len(FIELDS), HALVES)
        ends = np.array(starts or (0, n_heads))
        found = [np.zeros((*shape, size, len(self.d_of))) for size in (n_heads, len(ends) - 1)]
        taken = self.d_of[self.given]
        above = compiled.label_sums(self.n, self.shared, self.own, taken, half, ends)
        for room, sums in zip(found, above, strict=True):
            for field, part in zip((0, 2, 4, 7), sums, strict=True):
                room[field][..., self.given] = part
        for room, sums in zip(found, self._below(half, ends), strict=True):
            for field, part in zip((1, 3, 5), sums, strict=True):
                room[field] = part[..., self.d_of]
            room[6] = sums[0][..., self.events_of]
        return found[0], found[1]

    def _below(self, half: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Sums of denominators, of their squares, and how many are not 0.

        *Shape:* ``(3, 2, head, column)``, and of each layer's heads added up
        ``(3, 2, layer, column)``.
        """
        shared = compiled.power_sums(self.shared[:, None], half)
        own = compiled.power_sums(self.own, half)
        heads = np.concatenate([np.repeat(shared, self.n.shape[1], 2), own], -1)
        of_layers = self.shared[:, None] * np.diff(starts)[:, None]
        added = np.stack([self.own[:, a:b].sum(1) for a, b in pairwise(starts)], 1)
        both = [compiled.power_sums(part, half) for part in (of_layers, added)]
        return heads, np.concatenate(both, -1)


def _taken(
    places: Sequence[slice],
    labels: Sequence[NDArray[np.int64]],
    n_labels: Sequence[int],
    nothing: int,
) -> NDArray[np.int64]:
    """For each label the column that it takes; ``nothing`` where it is not given."""
    found = []
    for place, given, count in zip(places, labels, n_labels, strict=True):
        width = place.stop - place.start
        own = np.full(count, place.start if width == 1 else nothing)
        if width > 1:
            own[given] = np.arange(place.start, place.stop)
        found.append(own)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _columns(part: torch.Tensor, n_heads: int) -> torch.Tensor:
    """``(sentence, head, label)``, whatever the measure left out."""
    part = part.unsqueeze(-1) if part.ndim == 2 else part
    return part.expand(-1, n_heads, -1)


def _beside(tables: Iterable[torch.Tensor]) -> Floats:
    """Tables side by side, in float64."""
    return torch.cat([*tables], -1).double().cpu().numpy()


def _spans(widths: Sequence[int]) -> list[slice]:
    """Where each part's columns stand, side by side."""
    ends = [*accumulate(widths)]
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
