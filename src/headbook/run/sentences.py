"""Annotated, tokenized and batched sentences of a run, and the choice of those to read again.

Sentences are chosen after the corpus pass, from the sums of all sentences.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, tee

import torch

from headbook.config import Config
from headbook.errors import warn
from headbook.inputs import TextRecord
from headbook.metrics import token_metrics
from headbook.metrics.base import Metric
from headbook.model.load import Model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.progress import Progress
from headbook.run.missing import LongTexts
from headbook.run.shards import Shards
from headbook.schema import AnnotationScheme, Baseline, BaselineRun
from headbook.study.corpus_sums import CorpusSums
from headbook.study.exemplars import ExemplarChoice, choose_exemplars, most_cited
from headbook.study.input_facts import cut_texts
from headbook.study.sentence_data import MAX_MAPPED_SENTENCES
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch, batches_by_tokens
from headbook.text.tokens import TokenizedSentence

# Sentences; a corpus of at most so many stays tokenized in memory after the first pass.
MAX_CACHED_SENTENCES = 1024
FIRST_SENTENCES = 2  # of the input, which have pages before any exemplar
MAX_CHECK_TOKENS = 512  # tokens of the batch that the self-checks run on


@dataclass(frozen=True)
class ChosenSentences:
    """Indices of the sentences that are read again after the corpus pass.

    Attributes:
        first_measured: first sentence that could be measured; so the self-checks have a sentence.
        exemplars: exemplars of all heads.
        listed: sentences with a page of their own, in the order of the pages.
        traced: listed sentences whose queries and keys may be stored.
        sampled: sentences that vocabulary metrics are averaged over.
        candidates: sentences whose maps may be stored for comparisons with other models.
    """

    first_measured: int
    exemplars: tuple[ExemplarChoice, ...]
    listed: tuple[int, ...]
    traced: tuple[int, ...]
    sampled: frozenset[int]
    candidates: frozenset[int]

    @property
    def paged(self) -> frozenset[int]:
        """Sentences that pages show: listed ones and exemplars."""
        return frozenset({*self.listed, *(choice.index for choice in self.exemplars)})

    @property
    def indices(self) -> frozenset[int]:
        """Indices of all chosen sentences."""
        return self.paged | self.sampled | self.candidates | {self.first_measured}


def choose_sentences(
    sums: CorpusSums,
    config: Config,
    *,
    metrics: Iterable[Metric],
    n_sentences: int,
    long: LongTexts,
    not_measured: Collection[int],
) -> ChosenSentences:
    """Choose the sentences that are read again after the corpus pass.

    Exemplars, listed sentences and candidates exclude texts that are too long for attention maps.
    Sampled sentences include such texts only if all texts are too long. The first measured sentence
    may have any length.

    Args:
        sums: sums of the corpus, with the exemplars of each head.
        config: options.
        metrics: metrics that are measured.
        n_sentences: number of sentences in the corpus.
        long: texts that are too long.
        not_measured: indices of the sentences that could not be measured.
    """
    traced = config.query_key_sentences
    exemplars = tuple(c for c in choose_exemplars(sums) if c.index not in long.texts)
    cited = most_cited(
        exemplars,
        first=FIRST_SENTENCES if traced is None else max(1, traced),
        total=n_sentences,
        most=config.n_sentence_pages,
    )
    listed = tuple(index for index in cited if index not in long.texts.union(not_measured))
    averaged = any(m.sampled or m.without_outliers for m in token_metrics(metrics))
    candidates = frozenset[int]()
    if sums.texts is not None and not long.every:
        candidates = frozenset(
            long.within(sums.texts.smallest.index.tolist())[:MAX_MAPPED_SENTENCES]
        )
    return ChosenSentences(
        first_measured=next(index for index in count() if index not in not_measured),
        exemplars=exemplars,
        listed=listed,
        traced=listed[:traced],
        sampled=long.smallest(sums, config.vocabulary_sentences) if averaged else frozenset(),
        candidates=candidates,
    )


def unchanged(sentence: TextRecord) -> TextRecord:
    """Return the sentence itself."""
    return sentence


@dataclass(frozen=True)
class RunSentences:
    """Sentences of a run: annotated, tokenized and in batches.

    Attributes:
        shards: shards of the corpus.
        annotator: annotator of source texts without words.
        encoder: tokenizer of the model, with the annotator of targets.
        padded: whether a batch may hold sentences of several lengths.
        shared_length: tokens of the longest sentence that may share a batch.
        scheme: tags and relations of the corpus.
        dtype: number format of the tables of a batch.
        progress: reporter that is advanced when the batch after the reported one is requested.
        arrange: function that changes each sentence for a baseline.
    """

    shards: Shards
    annotator: Annotator
    encoder: SentenceTokenizer
    padded: bool
    shared_length: float
    scheme: AnnotationScheme
    dtype: torch.dtype
    progress: Progress
    arrange: Callable[[TextRecord], TextRecord] = unchanged
    # Sentences that later passes may need, by index. `replace` gives a baseline an empty cache.
    _kept: dict[int, TokenizedSentence] = field(default_factory=dict, init=False)

    def of_shard(self, number: int) -> Iterator[TokenizedSentence]:
        """Yield the sentences of a shard; those of a small corpus are kept for later passes."""
        for item in self._tokenize(self.shards.shard(number)):
            if self._keeps_all:
                self._kept[item.sentence.index] = item
            yield item

    def reread(self, indices: Collection[int]) -> Iterator[TokenizedSentence]:
        """Return some sentences by index, in ascending order; kept ones are not parsed again."""
        missing = set(indices) - self._kept.keys()
        if missing and self._keeps_all:
            self._keep_shards_with(missing)
        elif missing:
            not_kept = map(self.shards.sentences.__getitem__, sorted(missing))
            self._kept.update((item.sentence.index, item) for item in self._tokenize(not_kept))
        return (self._kept[index] for index in sorted(indices))

    def _keep_shards_with(self, indices: Collection[int]) -> None:
        """Read and keep all sentences of the shards that hold some sentences."""
        # Parse whole shards, as the first pass does: a parser's output depends on its batch.
        for number in range(len(self.shards)):
            if not set(indices).isdisjoint(self.shards.places(number).tolist()):
                for item in self.of_shard(number):
                    self._kept[item.sentence.index] = item

    @property
    def _keeps_all(self) -> bool:
        """Whether all sentences of the corpus are kept."""
        return len(self.shards.order) <= MAX_CACHED_SENTENCES

    def _tokenize(self, sentences: Iterable[TextRecord]) -> Iterator[TokenizedSentence]:
        return self.encoder.tokenize(map(self.arrange, self.annotator.annotate(sentences)))

    def batches(self, items: Iterable[TokenizedSentence], budget: int) -> Iterator[Batch]:
        """Yield batches of sentences and report progress; see `groups`."""
        for group in self.groups(items, budget):
            yield self.batch(group)
            tokens = count_tokens(group)
            self.progress.advance(tokens, tokens)

    def groups(
        self, items: Iterable[TokenizedSentence], budget: int
    ) -> Iterator[list[TokenizedSentence]]:
        """Yield the sentences of each batch.

        Args:
            items: sentences.
            budget: most tokens of a batch, padding included.
        """
        return batches_by_tokens(
            items, budget, alike=not self.padded, shared_length=self.shared_length
        )

    def batch(self, group: Sequence[TokenizedSentence]) -> Batch:
        """Return sentences as one batch on the device of the model."""
        return Batch.of(group, self.encoder.model.device, self.dtype, self.scheme)

    def check_batch(self, candidates: Sequence[TokenizedSentence], long: Collection[int]) -> Batch:
        """Return a batch of the first sentences for the self-checks.

        The batch is small, since self-checks hold the attention weights of all layers at once.

        Args:
            candidates: sentences to take from.
            long: indices of texts that are too long. If all candidates are too long, the batch is
                the beginning of the first one.
        """
        short_items = [item for item in candidates if item.sentence.index not in long]
        if not short_items:
            truncating = replace(self.encoder, limit=MAX_CHECK_TOKENS)
            short_items = [*truncating.tokenize([candidates[0].sentence])]
        batch_items = [short_items[0]]
        for item in short_items[1:]:
            longest = max(item.length, *(other.length for other in batch_items))
            if longest * (len(batch_items) + 1) > MAX_CHECK_TOKENS:
                break
            if longest > self.shared_length:
                break
            if self.padded or item.lengths == batch_items[0].lengths:
                batch_items.append(item)
        return self.batch(batch_items)

    def longest(self, texts: Iterable[TextRecord], most: int) -> int | None:
        """Return the index of the longest text that cannot share a batch, or None without one.

        Args:
            texts: texts of the corpus; they are read only if some model could need it.
            most: tokens of the longest text whose attention maps fit into the memory.
        """
        if self.encoder.limit <= self.shared_length:
            return None
        texts, lengths = tee(texts)
        sizes = (max(length.values()) for length in self.encoder.lengths(lengths))
        found = [
            (size, text.index)
            for text, size in zip(texts, sizes, strict=True)
            if self.shared_length < size <= most
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None


def count_tokens(items: Iterable[TokenizedSentence]) -> int:
    """Count the tokens of sentences, on all sides."""
    return sum(len(text) for item in items for text in item.tokens.values())


def baseline_runs(baseline: str, seeds: int) -> Iterator[BaselineRun]:
    """Yield the baselines of the option ``--control``, in order.

    Args:
        baseline: kinds separated by commas, or ``none``.
        seeds: number of untrained models; texts are changed once.
    """
    for kind in Baseline:
        if kind in baseline.split(","):
            for seed in range(seeds if kind is Baseline.UNTRAINED else 1):
                yield BaselineRun(kind, seed)


def warn_of_cut_texts(model: Model, counts: Mapping[str, int], limit: int) -> None:
    """Warn of texts that were cut at the longest sequence of a run, with their number.

    Args:
        model: the model, which may take longer sequences.
        counts: numbers of texts and tokens, as in a manifest.
        limit: length of the longest sequence, in tokens.
    """
    takes_longer = model.positions is None or model.positions > limit
    for text in cut_texts(counts, limit):
        warn(f"{text}; --max-length takes longer ones" if takes_longer else text)
