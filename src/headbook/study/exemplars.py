"""Which sentences stand on the page of a head: by rank, never picked by hand."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.analysis.accumulators import HashSample, TopK
from headbook.analysis.arrays import Floats, Ints
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sampled_metrics import variability_contributions
from headbook.study.sentence_data import HeadName, Ranking

# Of the same ranking: the part of the sentences that is weaker, and how many are shown.
QUANTILES = {Ranking.Q90: (0.9, 2), Ranking.Q75: (0.75, 2), Ranking.MEDIAN: (0.5, 3)}
MOST_OTHERS = 2  # of every other ranking


@dataclass(frozen=True)
class ExemplarChoice:
    """An exemplar before its map is known; fields as in `headbook.study.allowed.Exemplar`."""

    head: HeadName
    ranking: Ranking
    rank: int
    index: int
    score: float


@dataclass(frozen=True)
class SentenceRanking:
    """Sentences in the order of a ranking, equal texts once.

    Attributes:
        index: places in the input. *Shape:* ``(sentence,)``.
        score: of each, descending; the same shape.
    """

    index: Ints
    score: Floats

    @classmethod
    def of(cls, sample: HashSample, scores: Floats) -> "SentenceRanking":
        """The sentences of a sample by some score.

        To six decimals, as in `TopK`, so that the last bits decide nothing; ties go to the
        earlier sentence, and one without a finite score takes no part.
        """
        rounded = scores.astype(np.float64).round(6)
        first = np.argsort(sample.index, kind="stable")
        first = first[np.unique(sample.content_hash[first], return_index=True)[1]]
        first = first[np.isfinite(rounded[first])]
        order = first[np.lexsort((sample.index[first], -rounded[first]))]
        return cls(sample.index[order], rounded[order])

    def ranks(self, allowed: Collection[int] | None) -> Ints:
        """The ranks, from 0, of those that can be shown."""
        every = np.arange(len(self.index))
        return every if allowed is None else every[np.isin(self.index, list(allowed))]


def choose_exemplars(
    corpus_sums: CorpusSums, among: Mapping[HeadName, Collection[int]] | None = None
) -> Iterator[ExemplarChoice]:
    """The exemplars of every head, ranking by ranking.

    Args:
        among: by head, the sentences that can be shown; by default all.
    """
    for stack, sums in corpus_sums.heads.items():
        sampled = corpus_sums.sampled.get(stack)
        moved = None if sampled is None else variability_contributions(sampled)
        for layer, head in np.ndindex(sums.strongest.score.shape[:2]):
            name = HeadName(stack, layer, head)
            allowed = None if among is None else among.get(name, ())
            yield from _best(name, Ranking.STRONGEST, sums.strongest)
            yield from _quantiles(name, rank_by_weight(sums.sample, name), allowed)
            yield from _best(name, Ranking.MASS, sums.mass_off_sink)
            if moved is not None and sampled is not None:
                ranked = SentenceRanking.of(sampled.stats, moved[:, layer, head])
                yield from _first(name, Ranking.VARIABILITY, ranked, allowed)


def most_cited(choices: Iterable[ExemplarChoice], first: int, total: int, most: float) -> list[int]:
    """The sentences whose pages show all heads, in order.

    Half of them are the first ones of the input, then those that exemplars of most heads cite, then
    the next of the input.

    Args:
        first: how many of the input's first sentences are taken at least.
        total: sentences of the input.
        most: how many are wanted.
    """
    size = int(min(total, most))
    cited = Counter(index for index, _ in {(c.index, c.head) for c in choices})
    start = range(min(max(first, size // 2), size))
    others = {*range(size), *cited} - {*start}  # nobody sorts a million sentences
    ranked = sorted(others, key=lambda index: (-cited[index], index))
    return sorted([*start, *ranked[: size - len(start)]])


def rank_by_weight(sample: HashSample, head: HeadName) -> SentenceRanking:
    """The sampled sentences by one head's largest weight without the sink."""
    return SentenceRanking.of(sample, sample.payload[:, head.layer, head.head])


def _best(name: HeadName, ranking: Ranking, best: TopK) -> Iterator[ExemplarChoice]:
    """What a list of the best holds."""
    index = best.index[name.layer, name.head]
    for rank, place in enumerate(index[index >= 0], start=1):
        score = float(best.score[name.layer, name.head, rank - 1])
        yield ExemplarChoice(name, ranking, rank, int(place), score)


def _quantiles(
    name: HeadName, ranked: SentenceRanking, allowed: Collection[int] | None
) -> Iterator[ExemplarChoice]:
    """The sentences nearest to some quantiles of the ranking."""
    ranks = ranked.ranks(allowed)
    for ranking, (part, number) in QUANTILES.items():
        away = abs(ranks - (1 - part) * (len(ranked.index) - 1))
        near = np.argsort(away.round(6), kind="stable")[:number]
        yield from _at(name, ranking, ranked, np.sort(ranks[near]))


def _first(
    name: HeadName, ranking: Ranking, ranked: SentenceRanking, allowed: Collection[int] | None
) -> Iterator[ExemplarChoice]:
    """The first sentences of a ranking that contribute anything."""
    ranks = ranked.ranks(allowed)[:MOST_OTHERS]
    yield from _at(name, ranking, ranked, ranks[ranked.score[ranks] > 0])


def _at(
    name: HeadName, ranking: Ranking, ranked: SentenceRanking, ranks: Ints
) -> Iterator[ExemplarChoice]:
    for rank in ranks:
        index, score = int(ranked.index[rank]), float(ranked.score[rank])
        yield ExemplarChoice(name, ranking, int(rank) + 1, index, score)
