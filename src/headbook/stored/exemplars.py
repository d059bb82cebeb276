"""Which sentences stand on the page of a head: by rank, never picked by hand."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.stored.shown import HeadName, Ranking
from headbook.summaries.accumulators import Reservoir
from headbook.summaries.sums import HeadSums

MEDIANS_SHOWN = 3


@dataclass(frozen=True)
class Choice:
    """An exemplar before its map is known; fields as in `headbook.stored.shown.Exemplar`."""

    head: HeadName
    ranking: Ranking
    rank: int
    index: int
    score: float


def choose(
    heads: Mapping[str, HeadSums], among: Mapping[HeadName, Collection[int]] | None = None
) -> Iterator[Choice]:
    """The exemplars of every head: the strongest sentences, and those around the median.

    Args:
        among: by head, the sentences that can be shown; by default all.
    """
    for stack, sums in heads.items():
        for layer, head in np.ndindex(sums.strongest.score.shape[:2]):
            name = HeadName(stack, layer, head)
            shown = None if among is None else among.get(name, ())
            best = sums.strongest.index[layer, head]
            for rank, index in enumerate(best[best >= 0], start=1):
                score = float(sums.strongest.score[layer, head, rank - 1])
                yield Choice(name, Ranking.STRONGEST, rank, int(index), score)
            yield from _medians(name, sums.sample, shown)


def _medians(name: HeadName, sample: Reservoir, shown: Collection[int] | None) -> Iterator[Choice]:
    """The sentences nearest to the middle of the ranking, equal texts once."""
    # To six decimals, as in `TopK`, so that the last bits decide nothing.
    scores = sample.payload[:, name.layer, name.head].astype(np.float64).round(6)
    first = np.argsort(sample.index, kind="stable")
    first = first[np.unique(sample.key[first], return_index=True)[1]]
    first = first[np.isfinite(scores[first])]
    order = first[np.lexsort((sample.index[first], -scores[first]))]
    ranks = np.arange(len(order))
    if shown is not None:
        ranks = ranks[np.isin(sample.index[order], list(shown))]
    middle = np.argsort(abs(ranks - (len(order) - 1) / 2), kind="stable")[:MEDIANS_SHOWN]
    for rank in sorted(ranks[middle]):
        place = order[rank]
        score = float(scores[place])
        yield Choice(name, Ranking.MEDIAN, int(rank) + 1, int(sample.index[place]), score)
