"""One collection: the passes over texts and model, one after the other."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain, count
from operator import add
from typing import Any, TypeVar

import torch

from headbook.collection.gaps import find_gaps
from headbook.collection.long import Long
from headbook.collection.record import fallbacks, manifest_of, set_aside
from headbook.collection.shards import Shards, reduced
from headbook.collection.tries import (
    Batching,
    ShardResult,
    Tally,
    in_smaller_batches,
    tried,
    without_lost,
)
from headbook.collection.work import Work
from headbook.config import Config
from headbook.inputs import Corpus, Sentence
from headbook.memory import give_back_freed_memory
from headbook.metrics import (
    anchor_metrics,
    attention_metrics,
    chosen_metrics,
    context_metrics,
    flow_metrics,
    head_metrics,
    layer_metrics,
    layer_pair_metrics,
    pair_metrics,
    sampled_metrics,
    token_metrics,
)
from headbook.metrics.base import AttentionMetric, HeadMetric, Metric, Source
from headbook.model.architecture import Architecture, examine
from headbook.model.encode import Encoder
from headbook.model.model import Model, untrained
from headbook.model.passages import Passages
from headbook.model.sequences import RANDOM_TOKENS, random_sequences
from headbook.model.vocabulary.embedding import Embedding, read_embedding
from headbook.model.vocabulary.lens import Lens, read_lens
from headbook.passes.checks.rounding import roundings
from headbook.passes.checks.selfcheck import self_checks
from headbook.passes.context import ContextSampler, FirstLook, SecondLook
from headbook.passes.corpuspass import CorpusPass
from headbook.passes.demonstration import NEEDED, demonstrate, refusal
from headbook.passes.flowpass import FlowTracker
from headbook.passes.geometry import Gathering, Geometer
from headbook.passes.mapsample import MapSampler
from headbook.passes.pairs import PairSampler
from headbook.passes.retrace import untraced
from headbook.passes.sampler import Sampler
from headbook.passes.sentencepass import SentencePass
from headbook.passes.tables.affinitytable import items_of
from headbook.passes.tables.buckettable import BucketTable
from headbook.passes.tables.headtable import MEDIANS
from headbook.passes.trajectories import Tracker
from headbook.passes.watch import PassResults, Watcher, look
from headbook.progress import Inside, Progress
from headbook.randomness import own_randomness
from headbook.study.exemplars import choose, most_cited
from headbook.study.facets import Facets
from headbook.study.mapsample import SENTENCES, MapSample
from headbook.study.sentencedata import SentenceData
from headbook.study.study import Study, head_tables
from headbook.study.summaries.sums import CorpusSums
from headbook.terms import Baseline, Scheme, Side, Twin
from headbook.text.annotate import Annotator
from headbook.text.baselines import shuffled
from headbook.text.baselines import twins as twins_of
from headbook.text.batch import Batch, by_budget
from headbook.text.tokens import Encoded

T = TypeVar("T")
KEPT = 1024  # sentences of a whole corpus that stay as tokens after the first pass
CHECKED_TOKENS = 512  # the self-checks run on one batch of this size


def as_it_is(sentence: Sentence) -> Sentence:
    """The sentence itself."""
    return sentence


@dataclass(frozen=True, eq=False)
class SentenceFindings:
    """What is found of the sentences that pages show, and of the samples looked at with them."""

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    map_sample: MapSample


@dataclass(frozen=True)
class Run:
    """One collection: what is fixed while it runs."""

    corpus: Corpus | Passages
    config: Config
    progress: Progress
    model: Model
    architecture: Architecture
    metrics: tuple[Metric, ...]
    annotator: Annotator
    encoder: Encoder
    arrange: Callable[[Sentence], Sentence] = as_it_is
    facets: Facets = field(default_factory=Facets)
    tokens: bool = True  # whether sums of single tokens and pairs of tokens are taken
    length: float = 1.0  # tokens of a sentence, about; for progress alone
    long: Long = field(default_factory=Long)
    scheme: Scheme = field(default_factory=Scheme)
    # Those that later passes may want, by index; each run (a twin is one, too) has its own.
    _kept: dict[int, Encoded] = field(default_factory=dict, init=False)
    tally: Tally = field(default_factory=Tally, init=False)  # of the pass over the corpus
    without: frozenset[int] = frozenset()  # sentences that are left out: set aside elsewhere
    compared: bool = True  # whether what comparisons with other models need is kept
    work: Work | None = None  # where finished parts are kept, if anywhere
    name: str = "model"  # of the folder of its parts there
    share: Callable[..., None] | None = None  # has shards measured by others; see `shared_out`
    _: KW_ONLY
    shards: Shards
    batching: Batching

    def study(self, notes: str) -> Study:
        """Sums of the corpus, data of sentences, manifest."""
        corpus_sums = self._measured()
        sampled = self._sampled(corpus_sums)
        choices = [choice for choice in choose(corpus_sums) if choice.index not in self.long.texts]
        first, pages = max(1, self.config.neuron_sentences), self.config.n_sentence_pages
        cited = most_cited(choices, first, len(self.corpus), pages)
        unmapped = self.long.texts | self._aside
        chosen = [index for index in cited if index not in unmapped]
        listed = frozenset(chosen)
        paged = {*listed, *(choice.index for choice in choices)}
        # The first sentence is for the self-checks, whatever is shown.
        first_index = next(index for index in count() if index not in self._aside)
        candidates = self._candidates(corpus_sums)
        wanted = {first_index} | paged | sampled | candidates
        items = {item.sentence.index: item for item in self._encoded(wanted)}
        embeddings = self._embeddings(list(items.values()))
        lens = read_lens(self.model, self.architecture)
        traced = chosen[: self.config.neuron_sentences]
        taken_up = self.put_by(corpus_sums)
        del corpus_sums

        def found_of_sentences() -> SentenceFindings:
            """Together, so that each product with the vocabulary is of many rows."""
            maps = MapSampler(self.architecture.stacks, (items[index] for index in candidates))
            watchers = (
                SentencePass(
                    self.architecture,
                    paged,
                    listed,
                    choices,
                    alike=bool(context_metrics(self.metrics)),
                    traced=traced,
                ),
                Tracker(
                    self.model,
                    self.architecture,
                    tuple(token_metrics(self.metrics)),
                    listed,
                    sampled,
                    embeddings,
                    lens if isinstance(lens, Lens) else None,
                ),
                self._flows((), listed),
                maps,
            )
            sums, parts = CorpusSums(), list[SentenceData]()
            tracked = {*listed, *sampled, *maps.indices}
            for stage, some in (("sentences", tracked), ("exemplars", paged - tracked)):
                if some:
                    self.progress.stage(stage, tokens_of(items[index] for index in some))
                pass_results = self._look(self._batches(items, some), watchers)
                sums += pass_results.corpus_sums
                parts += pass_results.sentence_data_parts
            if first_index in listed:
                parts.append(self._demonstration(items[first_index], embeddings[Side.SOURCE]))
            return SentenceFindings(sums, SentenceData.join(parts).sorted(), maps.sample())

        found: SentenceFindings = self.stage(
            SentenceFindings,
            "sentences",
            partial(self.patiently, "sentences", found_of_sentences),
        )
        corpus_sums, sentence_data = taken_up() + found.corpus_sums, found.sentence_data
        few = self._few(list(items.values()))
        checks = self_checks(self.model, self.architecture, few, embeddings, lens)
        gaps = find_gaps(
            self.model,
            self.architecture,
            self.metrics,
            embeddings,
            corpus_sums.counts,
            lens=lens,
            rarities=self.encoder.rarities,
        )
        twins, aside, smaller = {}, [*set_aside(self)], [*fallbacks(self)]
        for twin in twins_of(self.config.control, self.config.control_seeds):
            run = replace(self._twin(twin), name=str(twin))
            self.progress.stage(str(twin), run._measured_tokens)  # noqa: SLF001
            twins[twin] = head_tables(run._measured())  # noqa: SLF001 - of this kind
            aside += set_aside(run, run.name)
            smaller += fallbacks(run)
        manifest = manifest_of(
            self,
            notes=notes,
            corpus_sums=corpus_sums,
            checks=checks,
            checked=len(few.items),
            gaps=(
                *gaps,
                *self.long.gaps(chosen_metrics(self.config.metrics).values()),
                *untraced(self.architecture, sentence_data, traced),
            ),
            rounded=roundings(self.model, self.architecture, few, embeddings),
            aside=tuple(aside),
            smaller=tuple(smaller),
        )
        return Study(manifest, corpus_sums, sentence_data, twins, map_sample=found.map_sample)

    @cached_property
    def _aside(self) -> frozenset[int]:
        """Sentences that could not be measured, once it is known."""
        places = (self.shards.places(number).tolist() for number in self.tally.failed)
        return frozenset(chain(self.tally.lost, *places))

    def _candidates(self, corpus_sums: CorpusSums) -> frozenset[int]:
        """Sentences whose maps may be kept for comparisons: those with the smallest hashes."""
        if corpus_sums.texts is None or self.long.every:
            return frozenset()
        known = corpus_sums.texts.smallest.index.tolist()
        return frozenset(self.long.within(known)[:SENTENCES])

    @property
    def _tokens(self) -> int:
        """Tokens of the whole corpus, about."""
        return round(self.length * len(self.corpus))

    @property
    def _measured_tokens(self) -> int:
        """Tokens of the passes over the corpus, random sequences and the sample, about."""
        sample = min(len(self.corpus), self.config.sample_sentences) if self._sampling else 0
        random = RANDOM_TOKENS if attention_metrics(self.metrics, Source.RANDOM) else 0
        return self._tokens + random + round(2 * sample * self.length)

    @property
    def _sampling(self) -> bool:
        """Whether anything is taken on the sample."""
        return bool(sampled_metrics(self.metrics) or context_metrics(self.metrics))

    def _twin(self, twin: Twin) -> "Run":
        """The same run with another model, or with other texts."""
        same = replace(
            self,
            metrics=tuple(head_metrics(self.metrics)),
            facets=Facets(),
            tokens=False,
            compared=False,
            share=None,
            without=self._aside,
            progress=Inside(self.progress),
        )
        if twin.baseline is Baseline.SHUFFLED:
            return replace(same, arrange=partial(shuffled, seed=twin.seed))
        model, mine = untrained(self.model, twin.seed), self.architecture
        architecture = examine(model, instead=mine.unhooked)
        architecture = replace(architecture, stacks=mine.stacks, padded=mine.padded)
        return replace(same, model=model, architecture=architecture)

    def _measured(self) -> CorpusSums:
        """What is kept of all sentences, of random sequences and of the sample."""
        corpus_sums = self._corpus_sums() + self._random()
        return corpus_sums + self._sample(corpus_sums)

    def put_by(self, corpus_sums: CorpusSums) -> Callable[[], CorpusSums]:
        """Sums of many sentences, which are large, while memory is needed for something else."""
        if self.work is None:
            return lambda: corpus_sums
        return self.work.put_by(CorpusSums, corpus_sums)

    def stage(self, kind: Any, name: str, make: Callable[[], Any]) -> Any:
        """Something that is done once, whatever stops the run; as it was stored, where that is so.

        Args:
            kind: its type.
            name: of its file.
        """
        give_back_freed_memory()
        if self.work is None:
            return make()
        with self._randomness():
            value = self.work.kept(kind, f"{self.name}/{name}", make)
        halved = self._halved(name)
        if self.work.there(halved):
            self.tally.halved[name] = self.work.kept(int, halved, int)
        return value

    def patiently(self, name: str, make: Callable[[], T]) -> T:
        """A part, in smaller batches where memory does not suffice, which is written down."""

        def at(tokens: int) -> T:
            self.batching.tokens = tokens
            with self._randomness():
                return make()

        value, halved = in_smaller_batches(at, self.config.batch_tokens)
        if halved:
            self.tally.halved[name] = halved
            if self.work is not None:
                self.work.kept(int, self._halved(name), lambda: halved)
        return value

    def _halved(self, name: str) -> str:
        return f"{self.name}/halved/{name.replace('/', '-')}"

    def _randomness(self) -> AbstractContextManager[None]:
        """Parts begin with the same random numbers, whichever of them are there already."""
        if self.work is None:
            return nullcontext()
        return own_randomness(self.config.seed, self.model.device)

    def _corpus_sums(self) -> CorpusSums:
        """The pass over all sentences."""
        self.progress.stage("corpus", self._tokens)
        shards = len(self.shards)
        done = 0 if self.work is None else self.work.done(f"{self.name}/corpus")
        if done:
            self.progress.say(f"resuming: {done:,} of {shards:,} shards done")
        failed = self._shared_out() if self.share is not None and self.work is not None else {}
        numbers = (number for number in range(shards) if self._left(number))
        results = ((number, self._result(number, failed)) for number in numbers)
        sums = reduced(self.tally.sums(results))
        # Only now: a run that ends before tries them again.
        for number, why in self.tally.failed.items():
            self._keep(number, partial(ShardResult, CorpusSums(), why=why))
        return sums

    def _shared_out(self) -> dict[int, str]:
        """Have others measure what is missing; of shards that failed for good, why."""
        assert self.work is not None
        assert self.share is not None
        failed: dict[int, str] = {}

        def came(number: int, why: str) -> None:
            if why:
                failed[number] = why
            tokens = round(self.length * len(self.shards.places(number)))
            self.progress.advance(tokens, tokens)

        names = {n: f"{self.name}/{_shard_name(n)}" for n in range(len(self.shards))}
        self.share([n for n, name in names.items() if not self.work.there(name)], came)
        return failed

    def _result(self, number: int, failed: Mapping[int, str]) -> ShardResult:
        """What came of one part of the corpus, which may be set aside where it is not the only one.

        Args:
            failed: why others could not measure parts.
        """
        if number in failed:
            return ShardResult(CorpusSums(), why=failed[number])
        measure = partial(self.shard, number)
        return measure() if len(self.shards) == 1 else tried(measure)

    def shard(self, number: int) -> ShardResult:
        """What one part of the corpus gives."""
        return self._keep(number, partial(self._shard, number))

    def _keep(self, number: int, make: Callable[[], ShardResult]) -> ShardResult:
        result: ShardResult = self.stage(ShardResult, _shard_name(number), make)
        return result

    def _shard(self, number: int) -> ShardResult:
        def measured(lost: Collection[int]) -> CorpusSums:
            without = self.without.union(lost)
            return self.patiently(_shard_name(number), partial(self._sums_of, number, without))

        return without_lost(measured, len(self._left(number)))

    def _left(self, number: int) -> set[int]:
        """The sentences of a shard that are not left out."""
        return {*self.shards.places(number).tolist()} - self.without

    def _sums_of(self, number: int, without: Collection[int]) -> CorpusSums:
        metrics = tuple(attention_metrics(self.metrics, Source.ALL))
        buckets = self._buckets(metrics)
        corpus_pass = CorpusPass(
            self.model,
            self.architecture,
            metrics,
            tuple(metric for metric in token_metrics(self.metrics) if not metric.sampled),
            self.config.exemplars,
            self.facets,
            buckets,
        )
        # After they are parsed, so that all others are parsed in the same groups.
        items = (i for i in self._of_shard(number) if i.sentence.index not in without)
        batches = self._in_batches(items)
        return reduce(add, map(corpus_pass.corpus_sums, batches)) + _of_buckets(buckets)

    def _buckets(
        self, metrics: Sequence[HeadMetric], *, once: bool = False
    ) -> dict[str, BucketTable]:
        """Room for sums of groups of sentences, by stack; none where nothing is compared."""
        stacks = self.architecture.stacks.items() if self.compared and metrics else ()
        return {name: BucketTable(stack, metrics, once=once) for name, stack in stacks}

    def _sample(self, corpus_sums: CorpusSums) -> CorpusSums:
        """What is taken on the sentences with the smallest hashes: in one pass, or in two.

        What heads write is looked at twice: first for what is similar, then for the rest.
        """
        smallest = _smallest(corpus_sums, self.config.sample_sentences, self.long)
        # Before it is known what is done, so that sentences are parsed in the same groups.
        items = [*self._encoded(smallest)]
        sums: CorpusSums = self.stage(
            CorpusSums,
            "sample",
            partial(self.patiently, "sample", partial(self._of_sample, smallest, items)),
        )
        return sums

    def _of_sample(self, smallest: Collection[int], items: Sequence[Encoded]) -> CorpusSums:
        pairs, geometry = self._pairs(), self._geometry(items)
        context = self._context()
        first = FirstLook(context, context.step(items)) if context else None
        flows = self._flows(smallest, ())
        watchers = (self._sampler(items), pairs, geometry, first, flows)
        asked = [watcher for watcher in watchers if watcher is not None]
        self.progress.stage("sample", tokens_of(items))
        budget = pairs.tokens(max(item.length for item in items)) if pairs else None
        pass_results = self._look(self._in_batches(items, budget), asked)
        sums = pass_results.corpus_sums + (geometry.sums() if geometry else CorpusSums())
        near = pairs.nearest(sums.distances) if pairs else None
        again: list[Watcher] = [near] if near else []
        buckets: dict[str, BucketTable] = {}
        if context is not None and first is not None:
            buckets = self._buckets(context.metrics)
            again.append(SecondLook(context, first.thresholds(), buckets))
        if again:
            self.progress.stage("sample again", tokens_of(items))
            sums += self._look(self._in_batches(items, budget if near else None), again).corpus_sums
        sums += _of_buckets(buckets)
        return sums

    def _look(self, batches: Iterable[Batch], watchers: Sequence[Watcher]) -> PassResults:
        """One pass over some batches."""

        def seen(batch: Batch) -> PassResults:
            give_back_freed_memory()
            return look(self.model, self.architecture, batch, watchers)

        return PassResults.together(map(seen, batches))

    def _sampler(self, items: Sequence[Encoded]) -> Sampler | None:
        """Statistics of single sentences, and sums of tokens and pairs of tokens."""
        metrics = tuple(sampled_metrics(self.metrics))
        summed = self.tokens and head_metrics(self.metrics) and not self.long.every
        stacks = self.architecture.stacks if summed else {}
        wanted = {name: items_of(stack, items) for name, stack in stacks.items()}
        if not metrics and not wanted:
            return None
        return Sampler(self.model, self.architecture, metrics, self.config.sample_sentences, wanted)

    def _pairs(self) -> PairSampler | None:
        """Every two heads."""
        metrics = tuple(pair_metrics(self.metrics))
        return PairSampler(self.model, self.architecture, metrics) if metrics else None

    def _geometry(self, items: Sequence[Encoded]) -> Gathering | None:
        """The shape of the states, over sentences of the sample."""
        metrics, pairs = tuple(layer_metrics(self.metrics)), tuple(layer_pair_metrics(self.metrics))
        geometer = Geometer(self.model, self.architecture, metrics, pairs, self.config.seed)
        asked = (metrics or pairs) and geometer.stacks
        return geometer.gathering(items) if asked else None

    def _context(self) -> ContextSampler | None:
        """What heads write."""
        metrics, anchors = context_metrics(self.metrics), anchor_metrics(self.metrics)
        given = tuple(metrics), tuple(anchors), self.config.seed
        asked = metrics or anchors
        return ContextSampler(self.model, self.architecture, *given) if asked else None

    def _random(self) -> CorpusSums:
        """The metrics that are taken on random sequences."""
        metrics = tuple(attention_metrics(self.metrics, Source.RANDOM))
        if not metrics:
            return CorpusSums()
        make = partial(self._of_random, metrics)
        sums: CorpusSums = self.stage(CorpusSums, "random", partial(self.patiently, "random", make))
        return sums

    def _of_random(self, metrics: tuple[AttentionMetric, ...]) -> CorpusSums:
        buckets = self._buckets(metrics, once=True)
        corpus_pass = CorpusPass(
            self.model, self.architecture, metrics, (), exemplars=1, buckets=buckets
        )
        self.progress.stage("random sequences", RANDOM_TOKENS)
        sequences = self._in_batches(random_sequences(self.encoder, self.config.seed))
        heads = reduce(add, map(corpus_pass.corpus_sums, sequences)).heads
        random = CorpusSums(random={name: sums.table for name, sums in heads.items()})
        return random + _of_buckets(buckets)

    def _sampled(self, corpus_sums: CorpusSums) -> frozenset[int]:
        """The sentences with the smallest hashes, on which vocabulary metrics are averaged."""
        if not any(metric.sampled for metric in token_metrics(self.metrics)):
            return frozenset()
        return _smallest(corpus_sums, self.config.vocabulary_sentences, self.long)

    def _flows(self, sampled: Collection[int], listed: Collection[int]) -> FlowTracker:
        """What follows attention from token to token; no sentence where nobody asks for it."""
        metrics = tuple(flow_metrics(self.metrics))
        return FlowTracker(self.model, self.architecture, metrics, listed, sampled)

    def _demonstration(self, item: Encoded, embedding: Embedding) -> SentenceData:
        """A sentence as a public demonstration computes it, where that fits model and metrics."""
        asked = {metric.id for metric in self.metrics}.issuperset(NEEDED)
        own = embedding.vocabulary
        if (
            not asked
            or own is None
            or own.positions is None
            or refusal(self.model, self.architecture)
        ):
            return SentenceData()
        return demonstrate(self.model, self.architecture, self.batch([item]), own)

    def smallest(self, corpus_sums: CorpusSums, size: int) -> list[Encoded]:
        """The sentences with the smallest hashes."""
        return [*self._encoded(_smallest(corpus_sums, size, self.long))]

    def _of_shard(self, number: int) -> Iterator[Encoded]:
        """The sentences of a shard; those of a small corpus are kept, so none is parsed again."""
        few = len(self.corpus) <= KEPT
        for item in self._encode(self.shards.shard(number)):
            if few:
                self._kept[item.sentence.index] = item
            yield item

    def _encoded(self, wanted: Collection[int]) -> Iterator[Encoded]:
        """Some of the sentences again, in their order; only those not kept are read again."""
        missing = set(wanted) - self._kept.keys()
        if len(self.corpus) <= KEPT:
            # By whole shards: in the groups in which they are parsed where none is done yet.
            for number in range(len(self.shards) if missing else 0):
                if not missing.isdisjoint(self.shards.places(number).tolist()):
                    deque(self._of_shard(number), maxlen=0)
        else:
            unknown = map(self.shards.sentences.__getitem__, sorted(missing))
            self._kept.update((item.sentence.index, item) for item in self._encode(unknown))
        return (self._kept[index] for index in sorted(wanted))

    def _encode(self, sentences: Iterable[Sentence]) -> Iterator[Encoded]:
        """Annotated, arranged as this run wants them, and tokenised."""
        return self.encoder.encode(map(self.arrange, self.annotator.annotate(sentences)))

    def _embeddings(self, items: Sequence[Encoded]) -> dict[Side, Embedding]:
        """Original encodings, with position vectors for the longest text of each side."""
        return {
            side: read_embedding(
                self.model,
                self.architecture,
                side,
                self.batch([max(items, key=lambda item: len(item.tokens[side]))]),
                self._coarse,
            )
            for side in items[0].tokens
        }

    @property
    def _coarse(self) -> torch.dtype | None:
        """A coarser format for the product with the vocabulary, where one is asked for."""
        exact = self.config.vocabulary_precision == "float32" or self.config.dtype == "float64"
        return None if exact else getattr(torch, self.config.vocabulary_precision)

    def _batches(self, items: Mapping[int, Encoded], wanted: Collection[int]) -> Iterator[Batch]:
        return self._in_batches(items[index] for index in sorted(wanted))

    def _in_batches(self, items: Iterable[Encoded], budget: int | None = None) -> Iterator[Batch]:
        """Batches by token budget; progress is told when the next one is asked for."""
        alike = not self.architecture.padded
        for group in by_budget(items, budget or self.batching.tokens, alike=alike):
            yield self.batch(group)
            tokens = tokens_of(group)
            self.progress.advance(tokens, tokens)

    def batch(self, group: Sequence[Encoded]) -> Batch:
        """Sentences as the model takes them."""
        dtype = torch.float64 if self.config.dtype == "float64" else torch.float32
        return Batch.of(group, self.model.device, dtype, self.scheme)

    def _few(self, every: Sequence[Encoded]) -> Batch:
        """The first sentences, for the self-checks; of long ones alone the beginning of the first.

        They hold the weights of all layers at once.
        """
        items = [item for item in every if item.sentence.index not in self.long.texts]
        if not items:
            short = replace(self.encoder, limit=CHECKED_TOKENS)
            items = [*short.encode([every[0].sentence])]
        few = [items[0]]
        for item in items[1:]:
            if max(item.length, *(f.length for f in few)) * (len(few) + 1) > CHECKED_TOKENS:
                break
            if self.architecture.padded or item.lengths == few[0].lengths:
                few.append(item)
        return self.batch(few)


def _shard_name(number: int) -> str:
    return f"corpus/{number:06}"


def _of_buckets(tables: Mapping[str, BucketTable]) -> CorpusSums:
    """What tables of buckets hold."""
    return CorpusSums(buckets={name: table.sums() for name, table in tables.items()})


def tokens_of(items: Iterable[Encoded]) -> int:
    """How many they have, on all sides."""
    return sum(len(text) for item in items for text in item.tokens.values())


def _smallest(corpus_sums: CorpusSums, size: int, long: Long) -> frozenset[int]:
    """Places of the sentences with the smallest hashes, without long ones if there are others."""
    sample = next(iter(corpus_sums.heads.values())).sample
    known = sample.first(MEDIANS if long.texts else size).index.tolist()
    return frozenset(long.within(known)[:size] or [long.first_short])
