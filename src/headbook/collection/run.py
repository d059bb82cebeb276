"""One collection: the passes over texts and model, one after the other."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain
from operator import add
from typing import Any, TypeVar

from headbook.collection.chosen import (
    SentenceFindings,
    chosen_sentences,
    embeddings_of,
    findings,
)
from headbook.collection.gaps import find_gaps
from headbook.collection.long import Long
from headbook.collection.record import fallbacks, manifest_of, set_aside
from headbook.collection.sample import of_random, of_sample
from headbook.collection.shards import reduced
from headbook.collection.texts import Texts
from headbook.collection.tries import ShardResult, Tally, in_smaller_batches, tried, without_lost
from headbook.collection.work import Work
from headbook.config import Config
from headbook.inputs import Corpus
from headbook.memory import give_back_freed_memory
from headbook.metrics import (
    attention_metrics,
    chosen_metrics,
    context_metrics,
    head_metrics,
    sampled_metrics,
    token_metrics,
)
from headbook.metrics.base import HeadMetric, Metric, Source
from headbook.model.architecture import Architecture, examine
from headbook.model.model import Model, untrained
from headbook.model.passages import Passages
from headbook.model.sequences import RANDOM_TOKENS
from headbook.model.vocabulary.lens import read_lens
from headbook.passes.checks.rounding import roundings
from headbook.passes.checks.selfcheck import self_checks
from headbook.passes.corpuspass import CorpusPass
from headbook.passes.retrace import untraced
from headbook.passes.tables.buckettable import BucketTable, sums_of
from headbook.passes.watch import PassResults, Watcher, look
from headbook.progress import Inside, Progress
from headbook.randomness import own_randomness
from headbook.study.facets import Facets
from headbook.study.study import Study, head_tables
from headbook.study.summaries.sums import CorpusSums
from headbook.terms import Baseline, Twin
from headbook.text.baselines import shuffled
from headbook.text.baselines import twins as twins_of
from headbook.text.batch import Batch

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One collection: what is fixed while it runs."""

    corpus: Corpus | Passages
    config: Config
    progress: Progress
    model: Model
    architecture: Architecture
    metrics: tuple[Metric, ...]
    texts: Texts
    facets: Facets = field(default_factory=Facets)
    tokens: bool = True  # whether sums of single tokens and pairs of tokens are taken
    length: float = 1.0  # tokens of a sentence, about; for progress alone
    long: Long = field(default_factory=Long)
    tally: Tally = field(default_factory=Tally, init=False)  # of the pass over the corpus
    without: frozenset[int] = frozenset()  # sentences that are left out: set aside elsewhere
    compared: bool = True  # whether what comparisons with other models need is kept
    work: Work | None = None  # where finished parts are kept, if anywhere
    name: str = "model"  # of the folder of its parts there
    share: Callable[..., None] | None = None  # has shards measured by others; see `shared_out`

    def study(self, notes: str) -> Study:
        """Sums of the corpus, data of sentences, manifest."""
        corpus_sums = self._measured()
        chosen = chosen_sentences(self, corpus_sums)
        items = {item.sentence.index: item for item in self.texts.again(chosen.every)}
        embeddings = embeddings_of(self, items.values())
        lens = read_lens(self.model, self.architecture)
        taken_up = self.put_by(corpus_sums)
        del corpus_sums
        look_again = partial(findings, self, chosen, items, embeddings, lens)
        found: SentenceFindings = self.part(SentenceFindings, "sentences", look_again)
        corpus_sums, sentence_data = taken_up() + found.corpus_sums, found.sentence_data
        few = self.texts.checked(list(items.values()), self.long.texts)
        checks = self_checks(self.model, self.architecture, few, embeddings, lens)
        gaps = find_gaps(
            self.model,
            self.architecture,
            self.metrics,
            embeddings,
            corpus_sums.counts,
            lens=lens,
            rarities=self.texts.encoder.rarities,
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
                *untraced(self.architecture, sentence_data, chosen.traced),
            ),
            rounded=roundings(self.model, self.architecture, few, embeddings),
            aside=tuple(aside),
            smaller=tuple(smaller),
        )
        return Study(manifest, corpus_sums, sentence_data, twins, map_sample=found.map_sample)

    @cached_property
    def aside(self) -> frozenset[int]:
        """Sentences that could not be measured, once it is known."""
        places = (self.texts.shards.places(number).tolist() for number in self.tally.failed)
        return frozenset(chain(self.tally.lost, *places))

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
        progress = Inside(self.progress)
        same = replace(
            self,
            metrics=tuple(head_metrics(self.metrics)),
            facets=Facets(),
            tokens=False,
            compared=False,
            share=None,
            without=self.aside,
            progress=progress,
            texts=replace(self.texts, progress=progress),
        )
        if twin.baseline is Baseline.SHUFFLED:
            arrange = partial(shuffled, seed=twin.seed)
            return replace(same, texts=replace(same.texts, arrange=arrange))
        model, mine = untrained(self.model, twin.seed), self.architecture
        architecture = examine(model, instead=mine.unhooked)
        architecture = replace(architecture, stacks=mine.stacks, padded=mine.padded)
        return replace(same, model=model, architecture=architecture)

    def _measured(self) -> CorpusSums:
        """What is kept of all sentences, of random sequences and of the sample."""
        corpus_sums = self._corpus_sums() + of_random(self)
        smallest = self.long.smallest(corpus_sums, self.config.sample_sentences)
        taken_up = self.put_by(corpus_sums)
        del corpus_sums
        sample = of_sample(self, smallest)
        return taken_up() + sample

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

    def part(self, kind: Any, name: str, make: Callable[[], Any]) -> Any:
        """Such a thing, made in smaller batches where memory does not suffice."""
        return self.stage(kind, name, partial(self._patiently, name, make))

    def _patiently(self, name: str, make: Callable[[], T]) -> T:
        """It, in smaller batches where memory does not suffice, which is written down."""

        def at(tokens: int) -> T:
            self.texts.batching.tokens = tokens
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
        shards = len(self.texts.shards)
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
            tokens = round(self.length * len(self.texts.shards.places(number)))
            self.progress.advance(tokens, tokens)

        names = {n: f"{self.name}/{_shard_name(n)}" for n in range(len(self.texts.shards))}
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
        return measure() if len(self.texts.shards) == 1 else tried(measure)

    def shard(self, number: int) -> ShardResult:
        """What one part of the corpus gives."""
        return self._keep(number, partial(self._shard, number))

    def _keep(self, number: int, make: Callable[[], ShardResult]) -> ShardResult:
        result: ShardResult = self.stage(ShardResult, _shard_name(number), make)
        return result

    def _shard(self, number: int) -> ShardResult:
        def measured(lost: Collection[int]) -> CorpusSums:
            without = self.without.union(lost)
            return self._patiently(_shard_name(number), partial(self._sums_of, number, without))

        return without_lost(measured, len(self._left(number)))

    def _left(self, number: int) -> set[int]:
        """The sentences of a shard that are not left out."""
        return {*self.texts.shards.places(number).tolist()} - self.without

    def _sums_of(self, number: int, without: Collection[int]) -> CorpusSums:
        metrics = tuple(attention_metrics(self.metrics, Source.ALL))
        buckets = self.buckets(metrics)
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
        items = (i for i in self.texts.of_shard(number) if i.sentence.index not in without)
        batches = self.texts.in_batches(items)
        return reduce(add, map(corpus_pass.corpus_sums, batches)) + sums_of(buckets)

    def buckets(
        self, metrics: Sequence[HeadMetric], *, once: bool = False
    ) -> dict[str, BucketTable]:
        """Room for sums of groups of sentences, by stack; none where nothing is compared."""
        stacks = self.architecture.stacks.items() if self.compared and metrics else ()
        return {name: BucketTable(stack, metrics, once=once) for name, stack in stacks}

    def look(self, batches: Iterable[Batch], watchers: Sequence[Watcher]) -> PassResults:
        """One pass over some batches."""

        def seen(batch: Batch) -> PassResults:
            give_back_freed_memory()
            return look(self.model, self.architecture, batch, watchers)

        return PassResults.together(map(seen, batches))


def _shard_name(number: int) -> str:
    return f"corpus/{number:06}"
