"""Choice of the exemplar sentences of each head, strictly by rank."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.analysis.accumulators import HashSample, TopK
from headbook.analysis.arrays import Floats, Ints
from headbook.schema import HeadName
from headbook.study.corpus_sums import CorpusSums, variability_contributions
from headbook.study.sentence_data import Ranking

# Quantiles of the ranking by largest weight: share of weaker sentences, and number of exemplars.
QUANTILES = {Ranking.Q90: (0.9, 2), Ranking.Q75: (0.75, 2), Ranking.MEDIAN: (0.5, 3)}
EXEMPLARS_PER_RANKING = 2  # exemplars of each ranking that is not in `QUANTILES`


@dataclass(frozen=True)
class ExemplarChoice:
    """An exemplar without its map; fields as in `headbook.study.sentence_data.Exemplar`."""

    head: HeadName
    ranking: Ranking
    rank: int
    index: int
    score: float


@dataclass(frozen=True)
class SentenceRanking:
    """Sentences in the order of a ranking, equal texts once.

    Attributes:
        index: place of each sentence in the input. *Shape:* ``(sentence,)``.
        score: score of each sentence, descending. *Shape:* ``(sentence,)``.
    """

    index: Ints
    score: Floats

    @classmethod
    def of(cls, sample: HashSample, scores: Floats) -> "SentenceRanking":
        """Rank the sentences of a sample by their scores.

        Scores are rounded to six decimals, as in `TopK`, so that differences in the last bits do
        not change the order. The earlier of two equal sentences comes first; sentences without a
        finite score are left out.
        """
        rounded = scores.astype(np.float64).round(6)
        distinct = np.argsort(sample.index, kind="stable")
        distinct = distinct[np.unique(sample.content_hash[distinct], return_index=True)[1]]
        distinct = distinct[np.isfinite(rounded[distinct])]
        order = distinct[np.lexsort((sample.index[distinct], -rounded[distinct]))]
        return cls(sample.index[order], rounded[order])

    def ranks(self, allowed: Collection[int] | None) -> Ints:
        """Return the ranks, from 0, of the allowed sentences; of all sentences for None."""
        ranks = np.arange(len(self.index))
        return ranks if allowed is None else ranks[np.isin(self.index, list(allowed))]


def choose_exemplars(
    corpus_sums: CorpusSums, among: Mapping[HeadName, Collection[int]] | None = None
) -> Iterator[ExemplarChoice]:
    """Yield the exemplars of every head, ranking by ranking.

    Args:
        corpus_sums: sums over all sentences, with the samples that sentences are ranked in.
        among: sentences to choose from, by head; by default all.
    """
    for stack, sums in corpus_sums.heads.items():
        sampled = corpus_sums.sampled.get(stack)
        contributions = None if sampled is None else variability_contributions(sampled)
        for layer, head in np.ndindex(sums.strongest.score.shape[:2]):
            name = HeadName(stack, layer, head)
            allowed = None if among is None else among.get(name, ())
            yield from _choose_top(name, Ranking.STRONGEST, sums.strongest)
            yield from _choose_quantiles(name, rank_by_weight(sums.sample, name), allowed)
            yield from _choose_top(name, Ranking.MASS, sums.mass_off_sink)
            if contributions is not None and sampled is not None:
                ranked = SentenceRanking.of(sampled.stats, contributions[:, layer, head])
                ranks = ranked.ranks(allowed)[:EXEMPLARS_PER_RANKING]
                ranks = ranks[ranked.score[ranks] > 0]
                yield from _choices_at(name, Ranking.VARIABILITY, ranked, ranks)


def most_cited(choices: Iterable[ExemplarChoice], first: int, total: int, most: float) -> list[int]:
    """Return the indices of the sentences whose pages show all heads, in order.

    The first half consists of the first sentences of the input. The other half are the sentences
    that are exemplars of most heads and, if there are too few, the next sentences of the input.

    Args:
        choices: exemplars of all heads.
        first: smallest number of first sentences of the input.
        total: number of sentences of the input.
        most: largest number of sentences to return.
    """
    n_chosen = int(min(total, most))
    cited = Counter(index for index, _ in {(c.index, c.head) for c in choices})
    first_sentences = range(min(max(first, n_chosen // 2), n_chosen))
    # Only these candidates are sorted, since the input may have a million sentences.
    candidates = {*range(n_chosen), *cited} - {*first_sentences}
    ranked = sorted(candidates, key=lambda index: (-cited[index], index))
    return sorted([*first_sentences, *ranked[: n_chosen - len(first_sentences)]])


def rank_by_weight(sample: HashSample, head: HeadName) -> SentenceRanking:
    """Rank the sampled sentences by one head's largest weight without the sink."""
    return SentenceRanking.of(sample, sample.payload[:, head.layer, head.head])


def _choose_top(name: HeadName, ranking: Ranking, best: TopK) -> Iterator[ExemplarChoice]:
    """Yield the sentences of highest score of one head, in the order of their ranks."""
    index = best.index[name.layer, name.head]
    for rank, sentence in enumerate(index[index >= 0], start=1):
        score = float(best.score[name.layer, name.head, rank - 1])
        yield ExemplarChoice(name, ranking, rank, int(sentence), score)


def _choose_quantiles(
    name: HeadName, ranked: SentenceRanking, allowed: Collection[int] | None
) -> Iterator[ExemplarChoice]:
    """Yield the sentences nearest to the quantiles `QUANTILES` of a ranking."""
    ranks = ranked.ranks(allowed)
    for ranking, (weaker_share, n_exemplars) in QUANTILES.items():
        rank_distance = abs(ranks - (1 - weaker_share) * (len(ranked.index) - 1))
        nearest = np.argsort(rank_distance.round(6), kind="stable")[:n_exemplars]
        yield from _choices_at(name, ranking, ranked, np.sort(ranks[nearest]))


def _choices_at(
    name: HeadName, ranking: Ranking, ranked: SentenceRanking, ranks: Ints
) -> Iterator[ExemplarChoice]:
    for rank in ranks:
        index, score = int(ranked.index[rank]), float(ranked.score[rank])
        yield ExemplarChoice(name, ranking, int(rank) + 1, index, score)
