"""Collection of a study: `headbook.collect`, stage by stage from top to bottom.

The sample holds the sentences with the smallest hashes: the same ones for every metric, whatever
the order of the input.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Unpack

from headbook.ablation.costs import costs_of
from headbook.ablation.importance import AblationPlan, NotEnoughMemory, parameters_of
from headbook.author import known_heads, read_words
from headbook.circuits.towards import MovedVectors
from headbook.config import Config, lists_options
from headbook.errors import ModelError, warn
from headbook.inputs import InputLayout, InputSource, input_sources
from headbook.memory import trim_memory
from headbook.metrics import (
    attention_metrics,
    chosen_metrics,
    context_metrics,
    metrics_without_outliers,
    sampled_metrics,
    token_metrics,
)
from headbook.metrics.base import Source
from headbook.model.devices import isolated_random_state
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.model.tokenizer import MAX_RANDOM_TOKENS, random_sequences
from headbook.options import Options
from headbook.passes.batch_sums import bucket_sums
from headbook.passes.corpus_pass import CorpusPass
from headbook.passes.queries_and_keys import (
    first_within,
    stacks_without_queries_keys,
    within_site,
)
from headbook.passes.self_checks import roundings, self_checks, worst_checks
from headbook.progress import NoProgress, Progress, reporter
from headbook.python_options import names_arguments
from headbook.report.answers.text_notes import text_notes
from headbook.report.facts.groups import groups_of_auto, head_groups
from headbook.report.results import stack_results
from headbook.report.tables import Study
from headbook.run.arguments import check_arguments
from headbook.run.circuits import head_ablator, measure_circuits, moves_vectors, sample_of
from headbook.run.manifest import make_manifest
from headbook.run.missing import find_gaps
from headbook.run.objects import ModelObject, model_and_options
from headbook.run.prepare import Run, RunLog, baseline_of, open_run, prepare, run_plan
from headbook.run.reread import (
    SentenceMeasures,
    bucket_accumulators,
    measure_sample,
    measure_sentences,
    read_embeddings,
)
from headbook.run.retries import measure_part, shard_error
from headbook.run.sentences import baseline_runs, choose_sentences, warn_of_cut_texts
from headbook.run.shards import MAX_TRIES, sum_shards
from headbook.run.store import Part, Store, check_same_plan
from headbook.run.tasks import CannotMeasure, chosen_tasks, task_plans
from headbook.run.workers import WorkerJob, measure_in_workers
from headbook.schema import BaselineRun
from headbook.study.ablation.results import AUTO, AblationResults
from headbook.study.corpus_sums import CorpusSums, HeadTable
from headbook.study.manifest import NotAvailable
from headbook.study.study import head_tables

NO_IMPORTANCE = "off"  # value of --importance


@lists_options
@names_arguments
def collect(
    inputs: Any,
    model: Any = None,
    tokenizer: Any = None,
    *,
    config: Config | None = None,
    name: str | None = None,
    work: str | Path | None = None,
    progress: Progress | bool = True,
    **options: Unpack[Options],
) -> Study:
    """Run a model over sentences and return what pages and tables need.

    ```python
    study = headbook.collect(["The cat sees a dog."], model, tokenizer)
    ```

    The state of the process is restored. A model object is read through a copy that shares its
    weights.

    Args:
        inputs: a list of texts, of (source, target) pairs or of dicts; a `pandas.DataFrame`; a
            dataset of Hugging Face; or files, folders and ids of datasets, where ``-`` is standard
            input. See `headbook.inputs.input_sources` for a list of `str`.
        model: a `transformers.PreTrainedModel`, a `peft.PeftModel`, a `SentenceTransformer`, or a
            name: hub id, folder or file, ``demo`` or ``demo-causal``.
        tokenizer: the tokenizer of a model object; a name replaces the tokenizer of a name.
        config: all options as one `headbook.Config`, in place of options by name.
        name: name of a model object on pages; by default its checkpoint, or its class and size.
        work: folder for finished parts, from which the same call continues after it was stopped,
            and says so; for at most `MAX_UNSTORED_SENTENCES` sentences in one process no part is
            stored.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.
        options: options by name. ``dtype`` and ``device`` of a model object are its own by default.

    Raises:
        HeadbookError: options, input or model do not fit; in one line.
    """
    source, config = model_and_options(model, tokenizer, options, config, name)
    sources = input_sources(inputs, InputLayout.of(config))
    folder = None if work is None else Path(work)
    with reporter(progress) as bar:
        return collect_study(sources, config, source=source, progress=bar, work=folder)


def collect_study(
    inputs: Sequence[str | InputSource],
    config: Config,
    *,
    source: ModelObject | None = None,
    progress: Progress | None = None,
    work: Path | None = None,
) -> Study:
    """Return a study of inputs whose kinds are known; see `collect`.

    Args:
        inputs: files, folders and ids of datasets, or sources in memory.
        config: options.
        source: a caller's model; None for the one that the options name.
        progress: reporter of the run's progress.
        work: folder for finished parts.

    Raises:
        HeadbookError: options, input or model do not fit; in one line.
    """
    check_arguments(inputs, config, *([config.model] if source is None else []))
    words = read_words(config.notes, config.section)
    with prepare(inputs, config, progress or NoProgress(), work, source) as run:
        tasks = chosen_tasks(run)
        # No variable holds the study, so that its sums can leave memory while heads are ablated.
        words = known_heads(words, run.architecture.stacks.values(), config.notes)
        study = measure_study(run, words)
        warn_of_cut_texts(run.model, study.manifest.counts, study.manifest.model.limit)
        study, moved = measure_importance(run, study, tasks)
        return measure_circuits(run, study, moved)


def measure_study(run: Run, words: Mapping[str, Any]) -> Study:
    """Measure a study without the importance of heads; ``words`` are those of the author."""
    sums = measure_sums(run)
    chosen = choose_sentences(
        sums,
        run.config,
        metrics=run.metrics,
        n_sentences=len(run.corpus),
        long=run.long,
        not_measured=run.not_measured,
    )
    tokenized = {item.sentence.index: item for item in run.sentences.reread(chosen.indices)}
    most = run.config.query_key_bytes
    traced = first_within(chosen.traced, tokenized, run.architecture.stacks.values(), most)
    chosen = replace(chosen, traced=traced)
    embeddings = read_embeddings(run, tokenized.values())
    lens = make_logit_lens(run.model, run.architecture)
    state_means = sums.state_means
    read_back = run.store.spill(CorpusSums, sums)
    del sums  # frees memory for products with the vocabulary
    measures = measure_part(
        run,
        "sentences",
        SentenceMeasures,
        lambda budget, _: measure_sentences(
            run, chosen, tokenized, embeddings, lens, state_means=state_means, budget=budget
        ),
    ).value
    sums = read_back() + measures.sums
    batch = run.sentences.check_batch(list(tokenized.values()), run.long.texts)
    check_batches = [batch]
    longest = run.sentences.longest(run.corpus, run.long.most)
    if longest is not None:
        check_batches.append(run.sentences.batch([*run.sentences.reread([longest])]))
    checks = worst_checks(
        self_checks(run.model, run.architecture, each, embeddings, lens) for each in check_batches
    )
    rank_changes = roundings(run.model, run.architecture, batch, embeddings)
    baselines, logs = measure_baselines(run)
    gaps = find_gaps(
        run.model,
        run.architecture,
        run.metrics,
        embeddings,
        sums.counts,
        lens=lens,
        rarities=run.sentences.encoder.rarities,
        pack=run.config.pack,
    )
    long_gaps = run.long.gaps(chosen_metrics(run.config.metrics).values())
    trace_gaps = stacks_without_queries_keys(
        run.architecture, measures.sentence_data, chosen.traced
    )
    manifest = make_manifest(
        run,
        words=words,
        counts=sums.counts,
        checks=checks,
        n_checked=len({i.sentence.index for each in check_batches for i in each.items}),
        gaps=(*gaps, *long_gaps, *trace_gaps),
        rounded=rank_changes,
        baselines=logs,
    )
    for note in text_notes(manifest):
        warn(f"{note.text}; {note.advice}")
    data = within_site(measures.sentence_data, most)
    return Study(manifest, sums, data, baselines, map_sample=measures.map_sample)


def measure_sums(run: Run) -> CorpusSums:
    """Return the sums over the corpus, over random sequences, and over the sample."""
    sums = measure_corpus(run) + measure_random_sequences(run)
    sample_indices = run.long.smallest(sums, run.config.sample_sentences)
    # Read before the store is asked, so that a resumed run parses sentences in the same groups.
    sentences = [*run.sentences.reread(sample_indices)]
    read_back = run.store.spill(CorpusSums, sums)
    del sums  # frees memory for tables of all heads
    sample = measure_part(
        run, "sample", CorpusSums, lambda budget, _: measure_sample(run, sentences, budget)
    )
    return read_back() + sample.value


def measure_corpus(run: Run) -> CorpusSums:
    """Return the sums over all sentences, measured shard by shard, by workers if requested.

    Raises:
        ModelError: no shard could be measured.
    """
    n_shards = len(run.shards)
    run.progress.stage("corpus", run.corpus_tokens)
    if done := run.store.count(f"{run.name}/corpus"):
        run.progress.message(f"resuming: {done:,} of {n_shards:,} shards done")
    shared = run.config.shared and run.store.folder is not None and not run.is_baseline
    failed = measure_shards_in_workers(run) if shared else {}
    tries = MAX_TRIES if n_shards > 1 else 1  # the error of an only shard is the run's
    numbers = (number for number in range(n_shards) if included(run, number))
    parts = ((n, failed[n] if n in failed else measure_shard(run, n, tries)) for n in numbers)
    sums = sum_shards(run.log.measured(parts))
    # Store failures only at the end of the pass: a run that is stopped before tries them again.
    for number, error in run.log.failed_shards.items():
        part = Part(CorpusSums(), error=error)
        run.store.save(f"{run.name}/{shard_name(number)}", Part[CorpusSums], part)
    return sums


def shard_name(number: int) -> str:
    """Return the name of a shard's part in the store of a run."""
    return f"corpus/{number:06}"


def included(run: Run, number: int) -> set[int]:
    """Return the indices of the sentences of a shard that are not excluded from the run."""
    return {*run.shards.places(number).tolist()} - run.excluded


def measure_shard(run: Run, number: int, tries: int) -> Part[CorpusSums]:
    """Return the sums of a shard from the store, or measure them."""
    metrics = tuple(attention_metrics(run.metrics, Source.ALL))
    averaged = tuple(metric for metric in token_metrics(run.metrics) if not metric.sampled)

    def measure(budget: int, failed: Collection[int]) -> CorpusSums:
        excluded, buckets = run.excluded.union(failed), bucket_accumulators(run, metrics)
        corpus_pass = CorpusPass(
            run.model,
            run.architecture,
            metrics,
            averaged,
            run.config.exemplars,
            run.facets,
            buckets,
            state_means=not run.is_baseline and bool(metrics_without_outliers(run.metrics)),
        )
        # Exclude sentences after parsing, so that the others are parsed in the same groups.
        items = (
            item for item in run.sentences.of_shard(number) if item.sentence.index not in excluded
        )
        batches = run.sentences.batches(items, budget)
        return reduce(add, map(corpus_pass.batch_sums, batches)) + bucket_sums(buckets)

    size = len(included(run, number))
    return measure_part(run, shard_name(number), CorpusSums, measure, size=size, tries=tries)


def measure_shards_in_workers(run: Run) -> dict[int, Part[CorpusSums]]:
    """Measure missing shards in worker processes and return the shards that failed for good."""
    assert run.store.folder is not None
    folder = run.store.folder.resolve()
    job = WorkerJob(run.inputs, Path.cwd(), run.config, folder, run_plan(run), shard_worker)
    failed: dict[int, Part[CorpusSums]] = {}

    def on_done(number: int, error: str) -> None:
        if error:
            failed[number] = Part(CorpusSums(), error=error)
        tokens = round(run.mean_length * len(run.shards.places(number)))
        run.progress.advance(tokens, tokens)

    names = {n: f"{run.name}/{shard_name(n)}" for n in range(len(run.shards))}
    missing = [number for number, name in names.items() if not run.store.has(name)]
    measure_in_workers(job, missing, on_done)
    return failed


@contextmanager
def shard_worker(job: WorkerJob, device: str) -> Iterator[Callable[[int], str]]:
    """Load the model of a worker and yield the function that `WorkerJob.begin` describes.

    Raises:
        HeadbookError: the input has changed since the run began, or results cannot be stored.
    """
    config = replace(job.config, device=device)
    with open_run(job.inputs, config, NoProgress()) as opened_run:
        run = replace(opened_run, config=job.config, store=Store(job.folder))
        check_same_plan(job.folder, job.plan, run_plan(run))

        def measure(number: int) -> str:
            try:
                measure_shard(run, number, tries=1)  # the pool counts attempts
            except Exception as error:  # noqa: BLE001 - `shard_error` raises those of all shards
                return shard_error(error)
            return ""

        yield measure


def measure_random_sequences(run: Run) -> CorpusSums:
    """Return the sums over sequences of random tokens, which some metrics are measured on."""
    metrics = tuple(attention_metrics(run.metrics, Source.RANDOM))
    if not metrics:
        return CorpusSums()

    def measure(budget: int, _: object) -> CorpusSums:
        buckets = bucket_accumulators(run, metrics, once=True)
        corpus_pass = CorpusPass(
            run.model, run.architecture, metrics, (), exemplars=1, buckets=buckets
        )
        run.progress.stage("random sequences", MAX_RANDOM_TOKENS)
        sequences = random_sequences(run.sentences.encoder, run.config.seed)
        batches = run.sentences.batches(sequences, budget)
        heads = reduce(add, map(corpus_pass.batch_sums, batches)).heads
        sums = CorpusSums(random={name: table.table for name, table in heads.items()})
        return sums + bucket_sums(buckets)

    return measure_part(run, "random", CorpusSums, measure).value


def measure_baselines(
    run: Run,
) -> tuple[dict[BaselineRun, dict[str, HeadTable]], dict[str, RunLog]]:
    """Measure the baselines of the option ``--control``; return their tables and logs, in order."""
    tables, logs = {}, {}
    for baseline in baseline_runs(run.config.control, run.config.control_seeds):
        baseline_pass = baseline_of(run, baseline)
        run.progress.stage(str(baseline), expected_tokens(baseline_pass))
        tables[baseline] = head_tables(measure_sums(baseline_pass))
        logs[baseline_pass.name] = baseline_pass.log
        del baseline_pass  # with its model, before the next one is made
    return tables, logs


def expected_tokens(run: Run) -> int:
    """Estimate the tokens of the passes over corpus, random sequences and sample."""
    sampled = sampled_metrics(run.metrics) or context_metrics(run.metrics)
    sample = min(len(run.corpus), run.config.sample_sentences) if sampled else 0
    random = MAX_RANDOM_TOKENS if attention_metrics(run.metrics, Source.RANDOM) else 0
    return run.corpus_tokens + random + round(2 * sample * run.mean_length)


def measure_importance(
    run: Run, study: Study, tasks: Sequence[str]
) -> tuple[Study, MovedVectors | None]:
    """Ablate heads as the option ``--importance`` says; if impossible, note it in the manifest.

    Returns:
        The study, and changes of sentence vectors; None if they need passes of their own.
    """
    if run.config.importance == NO_IMPORTANCE:
        return study, None
    moved = None
    ablation, results = None, dict[str, AblationResults]()
    gaps: list[NotAvailable] = []
    read_back: Callable[[], CorpusSums] = lambda: study.corpus_sums  # noqa: E731
    try:
        plan = ablation_plan(run, study)
        if plan.n_single == len(plan.heads) and moves_vectors(run):
            moved = MovedVectors(plan.ablator, plan.sample)
        plans, gaps = task_plans(run, tasks, plan)
        for message in (plan.message, *(task.plan.message for task in plans)):
            run.progress.message(message)
        read_back = run.store.spill(CorpusSums, study.corpus_sums)
        study = replace(study, corpus_sums=CorpusSums())
        trim_memory()
        ablation = ablate_stage(
            run, "importance", plan.steps,
            lambda advanced: replace(plan, advanced=advanced, observe=moved).run(),
        )  # fmt: skip
        for task in plans:
            try:
                results[task.name] = ablate_stage(
                    run, f"task {task.name}", task.plan.steps, partial(task.run, results)
                )
            except (CannotMeasure, NotEnoughMemory) as error:
                gaps.append(NotAvailable(f"task {task.name}", "", str(error)))
    except (ModelError, NotEnoughMemory) as error:
        gaps.append(NotAvailable("importance of heads", "", str(error)))
    sums = replace(read_back(), ablation=ablation, tasks=results)
    manifest = replace(study.manifest, gaps=(*study.manifest.gaps, *gaps))
    return replace(study, manifest=manifest, corpus_sums=sums), moved


def ablate_stage(
    run: Run, name: str, steps: int, ablate: Callable[[Callable[[int], None]], AblationResults]
) -> AblationResults:
    """Return results of ablation from the store, or measure and store them.

    Args:
        run: the run.
        name: name of the stage.
        steps: number of sets times batches, for the progress bar.
        ablate: measures the results; its argument is a progress callback.
    """
    run.progress.stage(name, steps)
    part = f"{run.name}/{name.replace(' ', '/')}"
    stored = run.store.load(part, AblationResults)
    if stored is not None:
        return stored
    with isolated_random_state(run.config.seed, run.model.device):
        results = ablate(lambda done: run.progress.advance(done, 0))
    return run.store.save(part, AblationResults, results)


def ablation_plan(run: Run, study: Study) -> AblationPlan:
    """Return which heads are ablated, and on which sentences.

    Raises:
        ModelError: outputs of the model's heads cannot be replaced.
        NotEnoughMemory: gradients need maps of all heads at once, and every text is too long.
    """
    if run.long.every:
        raise NotEnoughMemory(run.long.reason)
    sample = sample_of(run, study, run.config.importance_sentences)
    lens = make_logit_lens(run.model, run.architecture)
    ablator = head_ablator(run, sample, lens if isinstance(lens, LogitLens) else None)
    level = run.config.importance
    groups = head_groups(stack_results(study))
    if level == AUTO:
        groups = groups_of_auto(groups)
    costs = costs_of(ablator, *parameters_of(run.model))
    return AblationPlan(
        ablator, costs, level, sample, run.config.seed, tuple(groups), run.config.margin
    )
