"""`headbook.collect`, top to bottom.

Prepare, corpus, random sequences, sample, sentences, checks, controls, manifest, ablation.

The sample are the sentences with the smallest hashes, the same for every metric and in any order
of the input.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain, islice
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import torch

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.importance import FAST, AblationPlan, NotEnoughMemory, parameters_of
from headbook.ablation.sample import ablation_sample, costs_of
from headbook.ablation.targets import target_functions
from headbook.config import Config, read_notes
from headbook.errors import ModelError
from headbook.inputs import Corpus, InputLayout, Selection, open_corpus
from headbook.memory import longest_text, map_memory, trim_memory
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
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.devices import isolated_random_state, offload_place
from headbook.model.embedding import Embedding, read_embedding
from headbook.model.intervention import make_patchable
from headbook.model.load import Model, load_model, untrained_copy
from headbook.model.logit_lens import LogitLens, NoLogitLens, make_logit_lens
from headbook.model.packing import Passages, pack_sentences
from headbook.model.tokenizer import (
    RANDOM_TOKENS,
    SentenceTokenizer,
    probe_texts,
    random_sequences,
    sequence_limit,
    shorten_text,
)
from headbook.output_folder import temporary_folder
from headbook.passes.attention_flow import FlowTracker
from headbook.passes.batch_sums import BucketAccumulator, bucket_sums
from headbook.passes.corpus_pass import CorpusPass
from headbook.passes.head_outputs import HeadOutputMeasures, HeadOutputSums, SimilarityThresholds
from headbook.passes.head_pairs import HeadPairDistances
from headbook.passes.model_checks import verify_attention
from headbook.passes.observers import PassObserver, PassResults, run_pass
from headbook.passes.sample_statistics import SampleStatistics, tracked_tokens
from headbook.passes.self_checks import roundings, self_checks
from headbook.passes.sentence_maps import MapSampler, SentencePass, stacks_without_queries_keys
from headbook.passes.state_geometry import StateCollector, StateGeometry
from headbook.passes.trajectories import TokenTracker
from headbook.progress import NestedProgress, NoProgress, Progress
from headbook.report.ablation import head_groups, layers_and_sinks
from headbook.report.results import stack_results
from headbook.report.tables import Study
from headbook.run.arguments import check_arguments
from headbook.run.manifest import fallbacks, make_manifest, run_plan, sentences_not_measured
from headbook.run.missing import LongTexts, find_gaps
from headbook.run.retries import (
    BatchBudget,
    RunLog,
    ShardResult,
    shard_error,
    with_retries,
    with_smaller_batches,
    without_failing_sentences,
)
from headbook.run.sentences import ChosenSentences, RunSentences, choose_sentences, tokens_of
from headbook.run.sentences import baseline_runs as baseline_runs_of
from headbook.run.shards import split_into_shards, sum_shards
from headbook.run.store import Store, check_same_plan, open_store
from headbook.run.workers import WorkerJob, measure_in_processes
from headbook.schema import Baseline, BaselineRun, Side
from headbook.study.ablation import AblationResults
from headbook.study.corpus_sums import CorpusSums
from headbook.study.groups import Facets, find_facets
from headbook.study.manifest import NotAvailable
from headbook.study.sentence_data import MapSample, SentenceData
from headbook.study.study import head_tables
from headbook.text.annotate import Annotator, WordFrequencies, shuffle_words
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence


@dataclass(frozen=True, eq=False)
class SentenceMeasures:
    """What is found of the sentences that pages show, and of the samples looked at with them."""

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    map_sample: MapSample


def measure_sentences(
    run: "Run",
    chosen: ChosenSentences,
    items: Mapping[int, TokenizedSentence],
    embeddings: Mapping[Side, Embedding],
    lens: LogitLens | NoLogitLens,
) -> SentenceMeasures:
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
        TokenTracker(
            run.model,
            run.architecture,
            tuple(token_metrics(run.metrics)),
            listed,
            chosen.sampled,
            embeddings,
            lens if isinstance(lens, LogitLens) else None,
        ),
        flows(run, (), listed),
        maps,
    )
    sums, parts = CorpusSums(), list[SentenceData]()
    tracked = {*listed, *chosen.sampled, *maps.indices}
    for stage, some in (("sentences", tracked), ("exemplars", paged - tracked)):
        if some:
            run.progress.stage(stage, tokens_of(items[index] for index in some))
            found = run.run_pass(run.texts.batches(items, some), watchers)
            sums += found.corpus_sums
            parts += found.sentence_data_parts
    return SentenceMeasures(sums, SentenceData.join(parts).sorted(), maps.sample())


def read_embeddings(run: "Run", items: Iterable[TokenizedSentence]) -> dict[Side, Embedding]:
    """Original encodings, with position vectors for the longest text of each side."""
    some: Sequence[TokenizedSentence] = [*items]
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
    texts: RunSentences
    facets: Facets = field(default_factory=Facets)
    tokens: bool = True  # whether sums of single tokens and pairs of tokens are taken
    length: float = 1.0  # tokens of a sentence, about; for progress alone
    long: LongTexts = field(default_factory=LongTexts)
    log: RunLog = field(default_factory=RunLog, init=False)  # of the pass over the corpus
    without: frozenset[int] = frozenset()  # sentences that are left out: set aside elsewhere
    compared: bool = True  # whether what comparisons with other models need is kept
    work: Store | None = None  # where finished parts are kept, if anywhere
    name: str = "model"  # of the folder of its parts there
    share: Callable[..., None] | None = None  # has shards measured by others; see `shared_out`

    def study(self, notes: str) -> Study:
        """Sums of the corpus, data of sentences, manifest."""
        corpus_sums = self._measured()
        chosen = choose_sentences(self, corpus_sums)
        items = {item.sentence.index: item for item in self.texts.reread(chosen.every)}
        embeddings = read_embeddings(self, items.values())
        lens = make_logit_lens(self.model, self.architecture)
        taken_up = self.spill(corpus_sums)
        del corpus_sums
        measure = partial(measure_sentences, self, chosen, items, embeddings, lens)
        found: SentenceMeasures = self.part(SentenceMeasures, "sentences", measure)
        corpus_sums, sentence_data = taken_up() + found.corpus_sums, found.sentence_data
        few = self.texts.check_batch(list(items.values()), self.long.texts)
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
        baseline_runs, unmeasured, smaller = {}, [*sentences_not_measured(self)], [*fallbacks(self)]
        for baseline_run in baseline_runs_of(self.config.control, self.config.control_seeds):
            run = replace(self._baseline_run(baseline_run), name=str(baseline_run))
            self.progress.stage(str(baseline_run), run._measured_tokens)  # noqa: SLF001
            baseline_runs[baseline_run] = head_tables(run._measured())  # noqa: SLF001 - of this kind
            unmeasured += sentences_not_measured(run, run.name)
            smaller += fallbacks(run)
        manifest = make_manifest(
            self,
            notes=notes,
            corpus_sums=corpus_sums,
            checks=checks,
            checked=len(few.items),
            gaps=(
                *gaps,
                *self.long.gaps(chosen_metrics(self.config.metrics).values()),
                *stacks_without_queries_keys(self.architecture, sentence_data, chosen.traced),
            ),
            rounded=roundings(self.model, self.architecture, few, embeddings),
            unmeasured=tuple(unmeasured),
            smaller=tuple(smaller),
        )
        return Study(
            manifest, corpus_sums, sentence_data, baseline_runs, map_sample=found.map_sample
        )

    @cached_property
    def not_measured(self) -> frozenset[int]:
        """Sentences that could not be measured, once it is known."""
        places = (self.texts.shards.places(number).tolist() for number in self.log.failed)
        return frozenset(chain(self.log.lost, *places))

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

    def _baseline_run(self, baseline_run: BaselineRun) -> "Run":
        """The same run with another model, or with other texts."""
        progress = NestedProgress(self.progress)
        same = replace(
            self,
            metrics=tuple(head_metrics(self.metrics)),
            facets=Facets(),
            tokens=False,
            compared=False,
            share=None,
            without=self.not_measured,
            progress=progress,
            texts=replace(self.texts, progress=progress),
        )
        if baseline_run.baseline is Baseline.SHUFFLED:
            arrange = partial(shuffle_words, seed=baseline_run.seed)
            return replace(same, texts=replace(same.texts, arrange=arrange))
        model, mine = untrained_copy(self.model, baseline_run.seed), self.architecture
        architecture = probe_architecture(model, instead=mine.unhooked)
        architecture = replace(architecture, stacks=mine.stacks, padded=mine.padded)
        return replace(same, model=model, architecture=architecture)

    def _measured(self) -> CorpusSums:
        """What is kept of all sentences, of random sequences and of the sample."""
        corpus_sums = self._corpus_sums() + measure_random_sequences(self)
        smallest = self.long.smallest(corpus_sums, self.config.sample_sentences)
        taken_up = self.spill(corpus_sums)
        del corpus_sums
        sample = measure_sample(self, smallest)
        return taken_up() + sample

    def spill(self, corpus_sums: CorpusSums) -> Callable[[], CorpusSums]:
        """Sums of many sentences, which are large, while memory is needed for something else."""
        if self.work is None:
            return lambda: corpus_sums
        return self.work.spill(CorpusSums, corpus_sums)

    def stage(self, kind: Any, name: str, make: Callable[[], Any]) -> Any:
        """Something that is done once, whatever stops the run; as it was stored, where that is so.

        Args:
            kind: its type.
            name: of its file.
        """
        trim_memory()
        if self.work is None:
            return make()
        with self._randomness():
            value = self.work.load_or_compute(kind, f"{self.name}/{name}", make)
        halved = self._halved(name)
        if self.work.has(halved):
            self.log.halved[name] = self.work.load_or_compute(int, halved, int)
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

        value, halved = with_smaller_batches(at, self.config.batch_tokens)
        if halved:
            self.log.halved[name] = halved
            if self.work is not None:
                self.work.load_or_compute(int, self._halved(name), lambda: halved)
        return value

    def _halved(self, name: str) -> str:
        return f"{self.name}/halved/{name.replace('/', '-')}"

    def _randomness(self) -> AbstractContextManager[None]:
        """Parts begin with the same random numbers, whichever of them are there already."""
        if self.work is None:
            return nullcontext()
        return isolated_random_state(self.config.seed, self.model.device)

    def _corpus_sums(self) -> CorpusSums:
        """The pass over all sentences."""
        self.progress.stage("corpus", self._tokens)
        shards = len(self.texts.shards)
        done = 0 if self.work is None else self.work.count(f"{self.name}/corpus")
        if done:
            self.progress.message(f"resuming: {done:,} of {shards:,} shards done")
        failed = self._shared_out() if self.share is not None and self.work is not None else {}
        numbers = (number for number in range(shards) if self._left(number))
        results = ((number, self._result(number, failed)) for number in numbers)
        sums = sum_shards(self.log.sums(results))
        # Only now: a run that ends before tries them again.
        for number, why in self.log.failed.items():
            self._keep(number, partial(ShardResult, CorpusSums(), error=why))
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
        self.share([n for n, name in names.items() if not self.work.has(name)], came)
        return failed

    def _result(self, number: int, failed: Mapping[int, str]) -> ShardResult:
        """What came of one part of the corpus, which may be set aside where it is not the only one.

        Args:
            failed: why others could not measure parts.
        """
        if number in failed:
            return ShardResult(CorpusSums(), error=failed[number])
        measure = partial(self.shard, number)
        return measure() if len(self.texts.shards) == 1 else with_retries(measure)

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

        return without_failing_sentences(measured, len(self._left(number)))

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
        return reduce(add, map(corpus_pass.batch_sums, batches)) + bucket_sums(buckets)

    def buckets(
        self, metrics: Sequence[HeadMetric], *, once: bool = False
    ) -> dict[str, BucketAccumulator]:
        """Room for sums of groups of sentences, by stack; none where nothing is compared."""
        stacks = self.architecture.stacks.items() if self.compared and metrics else ()
        return {name: BucketAccumulator(stack, metrics, once=once) for name, stack in stacks}

    def run_pass(self, batches: Iterable[Batch], watchers: Sequence[PassObserver]) -> PassResults:
        """One pass over some batches."""

        def seen(batch: Batch) -> PassResults:
            trim_memory()
            return run_pass(self.model, self.architecture, batch, watchers)

        return PassResults.merge(map(seen, batches))


def _shard_name(number: int) -> str:
    return f"corpus/{number:06}"


FEW = 256  # sentences that are done again sooner than they are kept
USUAL = 32  # tokens of a sentence, where none is looked at before the run begins


def collect(
    inputs: Sequence[str | Path] | str | Path,
    config: Config | None = None,
    *,
    progress: Progress | None = None,
    work: Path | None = None,
    **options: Any,
) -> Study:
    """Run a model over sentences and keep what pages and tables need.

    The process is left as it was, but for a name that transformers then knows our attention by.

    Args:
        inputs: input files, folders or ids of datasets; ``-`` is standard input.
        config: options as one value; or give them by name.
        progress: told how far the run has come.
        work: a folder where finished parts are kept, so that the same call goes on from there
            after it was stopped; None, or with at most `FEW` sentences in one process: nothing is.
            Remove it when the study is saved.

    Raises:
        HeadbookError: in one line, what does not fit in options, input or model.
    """
    config = config or Config.of(**options)
    files = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    check_arguments([*map(str, files)], config, config.model)
    notes = read_notes(config.notes)
    with ExitStack() as stack:
        run = _prepared(stack, files, config, progress or NoProgress())
        if len(run.corpus) > FEW or config.engine != "local":
            run = _kept(stack, run, files, work)
        return measure_importance(run, run.study(notes))


def _kept(stack: ExitStack, run: Run, files: Sequence[str | Path], work: Path | None) -> Run:
    """The same run, whose parts are kept in a folder; by other processes, if they are asked for.

    Args:
        work: the folder, which outlasts the run; None for one of its own where it needs any.
    """
    config = run.config
    if work is None:
        if not config.shared:
            return run
        work = stack.enter_context(temporary_folder("work")) / "parts"
    plan = run_plan(run)
    run = replace(run, work=stack.enter_context(open_store(work, plan, restart=config.restart)))
    if not config.shared:
        return run
    job = WorkerJob((*map(str, files),), Path.cwd(), config, work.resolve(), plan, _measurer)
    return replace(run, share=partial(_engine(config), job))


def _engine(config: Config) -> Callable[..., None]:
    """What has shards measured."""
    if config.engine == "local":
        return measure_in_processes
    from headbook.run import workers  # noqa: PLC0415 - it needs an extra

    return workers.measure_on_ray


@contextmanager
def _measurer(job: WorkerJob, device: str) -> Iterator[Callable[[int], str]]:
    """Measure shards as a worker.

    Raises:
        HeadbookError: the input or anything else is not what the work was begun with, or what is
            done cannot be kept.
    """
    with ExitStack() as stack:
        config = replace(job.config, device=device)
        run = _prepared(stack, job.inputs, config, NoProgress())
        run = replace(run, config=job.config, work=Store(job.folder))
        check_same_plan(job.folder, job.plan, run_plan(run))

        def measure(number: int) -> str:
            try:
                run.shard(number)
            except Exception as error:  # noqa: BLE001 - what is not the shard's fault is raised
                return shard_error(error)
            return ""

        yield measure


def _prepared(
    stack: ExitStack, files: Sequence[str | Path], config: Config, progress: Progress
) -> Run:
    """Return a run that can begin."""
    opened = open_corpus(files, Selection.of(config), InputLayout.of(config))
    stack.enter_context(isolated_random_state(config.seed, _gpu(config.devices[0])))
    corpus = stack.enter_context(opened)
    columns = find_facets(corpus, config.facet, config.pair_member)
    model = load_model(
        config.model,
        revision=config.revision,
        device=config.devices[0],
        dtype=config.dtype,
        tokenizer=config.tokenizer,
        verbose=config.verbose,
        offload=stack.enter_context(offload_place(config.offload)),
    )
    limit = sequence_limit(model, config.max_length)
    corpus.shorten = partial(shorten_text, tokenizer=model.tokenizer, limit=limit)
    texts: Corpus | Passages = corpus
    if config.pack is not None:
        texts = pack_sentences(corpus, model, config.pack, limit)
        columns = find_facets(texts, config.facet, config.pair_member)
    encoder = SentenceTokenizer(
        model,
        limit=limit,
        targets=Annotator.load(config.target_annotator),
        rarities=_rarities(config, corpus, model),
    )
    listed = islice(texts, int(min(config.n_sentence_pages, len(texts))))
    amounts = [sum(length.values()) for length in encoder.lengths(listed)] or [USUAL]
    architecture = verify_attention(model, probe_architecture(model), probe_texts(encoder))
    most = longest_text(architecture.stacks.values(), map_memory(config.memory_bytes))
    long = LongTexts.of(texts, encoder, most)
    paired = bool(model.config.is_encoder_decoder)
    measured = long.measured(chosen_metrics(config.metrics).values())
    prepared = RunSentences(
        stack.enter_context(split_into_shards(texts, len(texts), paired=paired)),
        Annotator.load(config.annotator),
        encoder,
        architecture.padded,
        corpus.scheme,
        torch.float64 if config.dtype == "float64" else torch.float32,
        BatchBudget(config.batch_tokens),
        progress,
    )
    metrics = tuple(metric.with_scheme(corpus.scheme) for metric in measured)
    return Run(
        texts,
        config,
        progress,
        model,
        architecture,
        metrics,
        prepared,
        facets=columns,
        length=sum(amounts) / len(amounts),
        long=long,
    )


def _gpu(device: str) -> torch.device | None:
    """The GPU that will be used, if any."""
    asked = device.startswith(("auto", "cuda")) and torch.cuda.is_available()
    return torch.device("cuda" if device == "auto" else device) if asked else None


def _rarities(config: Config, corpus: Corpus, model: Model) -> dict[Side, WordFrequencies]:
    """What is known of the frequencies of words on each side that the model takes."""
    rarities = {Side.SOURCE: WordFrequencies.load(config.language, (s.text for s in corpus))}
    if model.config.is_encoder_decoder:
        targets = (s.target for s in corpus if s.target is not None)
        rarities[Side.TARGET] = WordFrequencies.load(config.target_language, targets)
    return rarities


OFF, STAGE = "off", "importance"

TRIED = 2  # sentences on which it is tried whether passes can begin at later layers
MISSING = "importance of heads"


def measure_importance(run: Run, study: Study) -> Study:
    """Take heads away, as the options ask for; the study without that where it cannot be done."""
    if run.config.importance == OFF:
        return study
    ablation, manifest = None, study.manifest
    taken_up: Callable[[], CorpusSums] = lambda: study.corpus_sums  # noqa: E731
    try:
        importance = _importance(run, study)
        run.progress.message(importance.message)
        taken_up = run.spill(study.corpus_sums)
        study = replace(study, corpus_sums=CorpusSums())
        ablation = run.stage(AblationResults, "importance", importance.run)
    except (ModelError, NotEnoughMemory) as error:
        gap = NotAvailable(MISSING, "", str(error))
        manifest = replace(manifest, gaps=(*manifest.gaps, gap))
    return replace(study, manifest=manifest, corpus_sums=replace(taken_up(), ablation=ablation))


def _importance(run: Run, study: Study) -> AblationPlan:
    """What is to be done.

    Raises:
        ModelError: heads of this model cannot be replaced.
        NoRoom: slopes need maps of all heads at once, and every text is too long for these.
    """
    if run.long.every:
        raise NotEnoughMemory(run.long.reason)
    smallest = run.long.smallest(study.corpus_sums, run.config.importance_sentences)
    items = [*run.texts.reread(smallest)]
    sample = ablation_sample(
        items, run.config.batch_tokens, run.texts.batch, alike=not run.architecture.padded
    )
    heads = make_patchable(
        run.model, run.architecture, run.texts.batch(sample.small[0].items[:TRIED])
    )
    lens = make_logit_lens(run.model, run.architecture)
    functions = target_functions(
        lens if isinstance(lens, LogitLens) else None,
        run.architecture.stacks[heads.read].queries,
        run.model.tokenizer.mask_token_id,
        logits=True,
        pooling=run.model.pooling,
    )
    ablator, level = HeadAblator(heads, functions), run.config.importance
    groups = head_groups(stack_results(study))
    if level == FAST:
        groups = layers_and_sinks(groups)
    costs = costs_of(ablator, *parameters_of(run.model))
    importance = AblationPlan(
        ablator, costs, level, sample, run.config.seed, tuple(groups), run.config.margin
    )
    run.progress.stage(STAGE, importance.steps)
    return replace(importance, advanced=lambda steps: run.progress.advance(steps, 0))


def measure_sample(run: "Run", smallest: Collection[int]) -> CorpusSums:
    """What is taken on the sample: in one pass, or in two.

    What heads write is looked at twice: first for what is similar, then for the rest.

    Args:
        smallest: the sentences of the sample, by index.
    """
    # Before it is known what is done, so that sentences are parsed in the same groups.
    items = [*run.texts.reread(smallest)]
    sums: CorpusSums = run.part(CorpusSums, "sample", partial(_two_passes, run, smallest, items))
    return sums


def _two_passes(
    run: "Run", smallest: Collection[int], items: Sequence[TokenizedSentence]
) -> CorpusSums:
    pairs, geometry, context = _pairs(run), _geometry(run, items), _context(run)
    first = SimilarityThresholds(context, context.step(items)) if context else None
    watchers = (_sampler(run, items), pairs, geometry, first, flows(run, smallest, ()))
    asked = [watcher for watcher in watchers if watcher is not None]
    run.progress.stage("sample", tokens_of(items))
    budget = pairs.tokens(max(item.length for item in items)) if pairs else None
    sums = run.run_pass(run.texts.in_batches(items, budget), asked).corpus_sums
    sums += geometry.sums() if geometry else CorpusSums()
    near = pairs.nearest(sums.distances) if pairs else None
    again: list[PassObserver] = [near] if near else []
    buckets: dict[str, BucketAccumulator] = {}
    if context is not None and first is not None:
        buckets = run.buckets(context.metrics)
        again.append(HeadOutputSums(context, first.thresholds(), buckets))
    if again:
        run.progress.stage("sample again", tokens_of(items))
        batches = run.texts.in_batches(items, budget if near else None)
        sums += run.run_pass(batches, again).corpus_sums
    return sums + bucket_sums(buckets)


def _sampler(run: "Run", items: Sequence[TokenizedSentence]) -> SampleStatistics | None:
    """Statistics of single sentences, and sums of tokens and pairs of tokens."""
    metrics = tuple(sampled_metrics(run.metrics))
    summed = run.tokens and head_metrics(run.metrics) and not run.long.every
    stacks = run.architecture.stacks if summed else {}
    wanted = {name: tracked_tokens(stack, items) for name, stack in stacks.items()}
    if not metrics and not wanted:
        return None
    return SampleStatistics(
        run.model, run.architecture, metrics, run.config.sample_sentences, wanted
    )


def _pairs(run: "Run") -> HeadPairDistances | None:
    """Every two heads."""
    metrics = tuple(pair_metrics(run.metrics))
    return HeadPairDistances(run.model, run.architecture, metrics) if metrics else None


def _geometry(run: "Run", items: Sequence[TokenizedSentence]) -> StateCollector | None:
    """The shape of the states, over sentences of the sample."""
    metrics, pairs = tuple(layer_metrics(run.metrics)), tuple(layer_pair_metrics(run.metrics))
    geometer = StateGeometry(run.model, run.architecture, metrics, pairs, run.config.seed)
    asked = (metrics or pairs) and geometer.stacks
    return geometer.gathering(items) if asked else None


def _context(run: "Run") -> HeadOutputMeasures | None:
    """What heads write."""
    metrics, anchors = context_metrics(run.metrics), anchor_metrics(run.metrics)
    given = tuple(metrics), tuple(anchors), run.config.seed
    return HeadOutputMeasures(run.model, run.architecture, *given) if metrics or anchors else None


def flows(run: "Run", sampled: Collection[int], listed: Collection[int]) -> FlowTracker:
    """What follows attention from token to token; no sentence where nobody asks for it."""
    metrics = tuple(flow_metrics(run.metrics))
    return FlowTracker(run.model, run.architecture, metrics, listed, sampled)


def measure_random_sequences(run: "Run") -> CorpusSums:
    """The metrics that are taken on random sequences."""
    metrics = tuple(attention_metrics(run.metrics, Source.RANDOM))
    if not metrics:
        return CorpusSums()
    sums: CorpusSums = run.part(CorpusSums, "random", partial(_random, run, metrics))
    return sums


def _random(run: "Run", metrics: tuple[AttentionMetric, ...]) -> CorpusSums:
    buckets = run.buckets(metrics, once=True)
    corpus_pass = CorpusPass(run.model, run.architecture, metrics, (), exemplars=1, buckets=buckets)
    run.progress.stage("random sequences", RANDOM_TOKENS)
    sequences = run.texts.in_batches(random_sequences(run.texts.encoder, run.config.seed))
    heads = reduce(add, map(corpus_pass.batch_sums, sequences)).heads
    random = CorpusSums(random={name: sums.table for name, sums in heads.items()})
    return random + bucket_sums(buckets)
