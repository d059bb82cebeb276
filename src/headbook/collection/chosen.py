"""The sentences that are looked at once more: those of pages, and samples looked at with them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import torch

from headbook.collection.sample import flows
from headbook.collection.texts import tokens_of
from headbook.metrics import context_metrics, token_metrics
from headbook.model.vocabulary.embedding import Embedding, read_embedding
from headbook.model.vocabulary.lens import Lens, NoLens
from headbook.passes.mapsample import MapSampler
from headbook.passes.sentencepass import SentencePass
from headbook.passes.trajectories import Tracker
from headbook.study.exemplars import Choice, choose, most_cited
from headbook.study.mapsample import SENTENCES, MapSample
from headbook.study.sentencedata import SentenceData
from headbook.study.summaries.sums import CorpusSums
from headbook.terms import Side
from headbook.text.tokens import Encoded

if TYPE_CHECKING:
    from headbook.collection.run import Run


@dataclass(frozen=True)
class Chosen:
    """Sentences by index.

    Attributes:
        first: for the self-checks, whatever is shown.
        exemplars: those of all heads.
        listed: those with pages of their own, in their order.
        traced: those of them whose queries and keys are kept.
        sampled: those over which metrics of the vocabulary are averaged.
        candidates: those whose maps may be kept for comparisons with other models.
    """

    first: int
    exemplars: tuple[Choice, ...]
    listed: tuple[int, ...]
    traced: tuple[int, ...]
    sampled: frozenset[int]
    candidates: frozenset[int]

    @property
    def paged(self) -> frozenset[int]:
        """Those that pages show."""
        return frozenset({*self.listed, *(choice.index for choice in self.exemplars)})

    @property
    def every(self) -> frozenset[int]:
        """All of them."""
        return self.paged | self.sampled | self.candidates | {self.first}


def chosen_sentences(run: "Run", corpus_sums: CorpusSums) -> Chosen:
    """Choose them by what is known of all sentences; none is too long for maps."""
    long, config = run.long, run.config
    exemplars = tuple(choice for choice in choose(corpus_sums) if choice.index not in long.texts)
    few = max(1, config.neuron_sentences)
    cited = most_cited(exemplars, few, len(run.corpus), config.n_sentence_pages)
    listed = tuple(index for index in cited if index not in long.texts | run.aside)
    asked = any(metric.sampled for metric in token_metrics(run.metrics))
    return Chosen(
        next(index for index in count() if index not in run.aside),
        exemplars,
        listed,
        listed[: config.neuron_sentences],
        long.smallest(corpus_sums, config.vocabulary_sentences) if asked else frozenset(),
        _candidates(run, corpus_sums),
    )


def _candidates(run: "Run", corpus_sums: CorpusSums) -> frozenset[int]:
    if corpus_sums.texts is None or run.long.every:
        return frozenset()
    known = corpus_sums.texts.smallest.index.tolist()
    return frozenset(run.long.within(known)[:SENTENCES])


@dataclass(frozen=True, eq=False)
class SentenceFindings:
    """What is found of the sentences that pages show, and of the samples looked at with them."""

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    map_sample: MapSample


def findings(
    run: "Run",
    chosen: Chosen,
    items: Mapping[int, Encoded],
    embeddings: Mapping[Side, Embedding],
    lens: Lens | NoLens,
) -> SentenceFindings:
    """Look at all of them together, so that each product with the vocabulary is of many rows."""
    paged, listed = chosen.paged, frozenset(chosen.listed)
    maps = MapSampler(run.architecture.stacks, (items[index] for index in chosen.candidates))
    watchers = (
        SentencePass(
            run.architecture,
            paged,
            listed,
            chosen.exemplars,
            alike=bool(context_metrics(run.metrics)),
            traced=chosen.traced,
        ),
        Tracker(
            run.model,
            run.architecture,
            tuple(token_metrics(run.metrics)),
            listed,
            chosen.sampled,
            embeddings,
            lens if isinstance(lens, Lens) else None,
        ),
        flows(run, (), listed),
        maps,
    )
    sums, parts = CorpusSums(), list[SentenceData]()
    tracked = {*listed, *chosen.sampled, *maps.indices}
    for stage, some in (("sentences", tracked), ("exemplars", paged - tracked)):
        if some:
            run.progress.stage(stage, tokens_of(items[index] for index in some))
            found = run.look(run.texts.batches(items, some), watchers)
            sums += found.corpus_sums
            parts += found.sentence_data_parts
    return SentenceFindings(sums, SentenceData.join(parts).sorted(), maps.sample())


def embeddings_of(run: "Run", items: Iterable[Encoded]) -> dict[Side, Embedding]:
    """Original encodings, with position vectors for the longest text of each side."""
    some: Sequence[Encoded] = [*items]
    return {
        side: read_embedding(
            run.model,
            run.architecture,
            side,
            run.texts.batch([max(some, key=lambda item: len(item.tokens[side]))]),
            _coarse(run),
        )
        for side in some[0].tokens
    }


def _coarse(run: "Run") -> torch.dtype | None:
    """A coarser format for the product with the vocabulary, where one is asked for."""
    exact = run.config.vocabulary_precision == "float32" or run.config.dtype == "float64"
    return None if exact else getattr(torch, run.config.vocabulary_precision)
