"""The sentences of a run as its model takes them: parsed, arranged, tokenised, in batches."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import torch

from headbook.inputs import Sentence
from headbook.metrics import token_metrics
from headbook.model.tokenizer import SentenceTokenizer
from headbook.progress import Progress
from headbook.run.retries import BatchBudget
from headbook.run.shards import Shards
from headbook.schema import AnnotationScheme, Baseline, BaselineRun
from headbook.study.corpus_sums import CorpusSums
from headbook.study.exemplars import ExemplarChoice, choose_exemplars, most_cited
from headbook.study.sentence_data import SENTENCES
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch, batches_by_tokens
from headbook.text.tokens import TokenizedSentence

if TYPE_CHECKING:
    from headbook.run.collect import Run


@dataclass(frozen=True)
class ChosenSentences:
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
    exemplars: tuple[ExemplarChoice, ...]
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


def choose_sentences(run: "Run", corpus_sums: CorpusSums) -> ChosenSentences:
    """Choose them by what is known of all sentences; none is too long for maps."""
    long, config = run.long, run.config
    exemplars = tuple(
        choice for choice in choose_exemplars(corpus_sums) if choice.index not in long.texts
    )
    few = max(1, config.query_key_sentences)
    cited = most_cited(exemplars, few, len(run.corpus), config.n_sentence_pages)
    listed = tuple(index for index in cited if index not in long.texts | run.not_measured)
    asked = any(metric.sampled for metric in token_metrics(run.metrics))
    return ChosenSentences(
        next(index for index in count() if index not in run.not_measured),
        exemplars,
        listed,
        listed[: config.query_key_sentences],
        long.smallest(corpus_sums, config.vocabulary_sentences) if asked else frozenset(),
        _candidates(run, corpus_sums),
    )


def _candidates(run: "Run", corpus_sums: CorpusSums) -> frozenset[int]:
    if corpus_sums.texts is None or run.long.every:
        return frozenset()
    known = corpus_sums.texts.smallest.index.tolist()
    return frozenset(run.long.within(known)[:SENTENCES])


KEPT = 1024  # sentences of a whole corpus that stay as tokens after the first pass
CHECKED_TOKENS = 512  # the self-checks run on one batch of this size


def as_it_is(sentence: Sentence) -> Sentence:
    """The sentence itself."""
    return sentence


@dataclass(frozen=True)
class RunSentences:
    """The sentences of a run.

    Attributes:
        padded: whether sentences of several lengths may stand in a batch.
        progress: told when the next batch is asked for.
        arrange: makes of each sentence what a baseline reads instead.
    """

    shards: Shards
    annotator: Annotator
    encoder: SentenceTokenizer
    padded: bool
    scheme: AnnotationScheme
    dtype: torch.dtype
    batching: BatchBudget
    progress: Progress
    arrange: Callable[[Sentence], Sentence] = as_it_is
    # Those that later passes may want, by index; what is arranged in another way has its own.
    _kept: dict[int, TokenizedSentence] = field(default_factory=dict, init=False)

    def of_shard(self, number: int) -> Iterator[TokenizedSentence]:
        """The sentences of a shard; those of a small corpus are kept, so none is parsed again."""
        for item in self._encode(self.shards.shard(number)):
            if self._few:
                self._kept[item.sentence.index] = item
            yield item

    def reread(self, wanted: Collection[int]) -> Iterator[TokenizedSentence]:
        """Some of the sentences again, in their order; only those not kept are read again."""
        missing = set(wanted) - self._kept.keys()
        if self._few:
            # By whole shards: in the groups in which they are parsed where none is done yet.
            for number in range(len(self.shards) if missing else 0):
                if not missing.isdisjoint(self.shards.places(number).tolist()):
                    deque(self.of_shard(number), maxlen=0)
        else:
            unknown = map(self.shards.sentences.__getitem__, sorted(missing))
            self._kept.update((item.sentence.index, item) for item in self._encode(unknown))
        return (self._kept[index] for index in sorted(wanted))

    @property
    def _few(self) -> bool:
        """Whether all are kept."""
        return len(self.shards.order) <= KEPT

    def _encode(self, sentences: Iterable[Sentence]) -> Iterator[TokenizedSentence]:
        """Annotated, arranged as this run wants them, and tokenised."""
        return self.encoder.tokenize(map(self.arrange, self.annotator.annotate(sentences)))

    def batches(
        self, items: Mapping[int, TokenizedSentence], wanted: Collection[int]
    ) -> Iterator[Batch]:
        """Batches of some sentences."""
        return self.in_batches(items[index] for index in sorted(wanted))

    def in_batches(
        self, items: Iterable[TokenizedSentence], budget: int | None = None
    ) -> Iterator[Batch]:
        """Batches by token budget."""
        for group in batches_by_tokens(
            items, budget or self.batching.tokens, alike=not self.padded
        ):
            yield self.batch(group)
            tokens = tokens_of(group)
            self.progress.advance(tokens, tokens)

    def batch(self, group: Sequence[TokenizedSentence]) -> Batch:
        """Sentences as the model takes them."""
        return Batch.of(group, self.encoder.model.device, self.dtype, self.scheme)

    def check_batch(self, every: Sequence[TokenizedSentence], long: Collection[int]) -> Batch:
        """The first sentences, for the self-checks, which hold the weights of all layers at once.

        Args:
            long: those that are too long for that, by index; of these the beginning of the first,
                where there are no others.
        """
        items = [item for item in every if item.sentence.index not in long]
        if not items:
            short = replace(self.encoder, limit=CHECKED_TOKENS)
            items = [*short.tokenize([every[0].sentence])]
        few = [items[0]]
        for item in items[1:]:
            if max(item.length, *(f.length for f in few)) * (len(few) + 1) > CHECKED_TOKENS:
                break
            if self.padded or item.lengths == few[0].lengths:
                few.append(item)
        return self.batch(few)


def tokens_of(items: Iterable[TokenizedSentence]) -> int:
    """How many they have, on all sides."""
    return sum(len(text) for item in items for text in item.tokens.values())


def baseline_runs(baseline: str, seeds: int) -> Iterator[BaselineRun]:
    """Everything that an option asks for, in order.

    Args:
        baseline: kinds separated by commas, or ``none``.
        seeds: how many untrained twins; words are shuffled once.
    """
    for kind in Baseline:
        if kind in baseline.split(","):
            for seed in range(seeds if kind is Baseline.UNTRAINED else 1):
                yield BaselineRun(kind, seed)
