"""From input files and a model to a study."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from headbook.collection.arguments import check_arguments
from headbook.collection.engines.local import Job, shared_out
from headbook.collection.long import Long
from headbook.collection.record import plan_of
from headbook.collection.removing import with_importance
from headbook.collection.run import Run
from headbook.collection.shards import sharded
from headbook.collection.texts import Texts
from headbook.collection.tries import Batching, fault_of_shard
from headbook.collection.work import Work, check_same, working
from headbook.config import Config, read_notes
from headbook.inputs import Corpus, Layout, Selection, open_corpus
from headbook.metrics import chosen_metrics
from headbook.model.architecture import examine
from headbook.model.encode import Encoder, sequence_limit, shortened
from headbook.model.model import Model, load_model
from headbook.model.passages import Passages, packed
from headbook.model.sequences import probes
from headbook.model.weights.offload import set_aside
from headbook.output_folder import temporary_folder
from headbook.passes.checks.ownattention import settle
from headbook.progress import Progress, Silent
from headbook.randomness import own_randomness
from headbook.report.tables import Study
from headbook.room import longest, room
from headbook.study.facets import facets
from headbook.terms import Side
from headbook.text.annotate import Annotator
from headbook.text.rarity import Rarity

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
        run = _prepared(stack, files, config, progress or Silent())
        if len(run.corpus) > FEW or config.engine != "local":
            run = _kept(stack, run, files, work)
        return with_importance(run, run.study(notes))


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
    plan = plan_of(run)
    run = replace(run, work=stack.enter_context(working(work, plan, restart=config.restart)))
    if not config.shared:
        return run
    job = Job((*map(str, files),), Path.cwd(), config, work.resolve(), plan, _measurer)
    return replace(run, share=partial(_engine(config), job))


def _engine(config: Config) -> Callable[..., None]:
    """What has shards measured."""
    if config.engine == "local":
        return shared_out
    from headbook.collection.engines import ray  # noqa: PLC0415 - it needs an extra

    return ray.shared_out


@contextmanager
def _measurer(job: Job, device: str) -> Iterator[Callable[[int], str]]:
    """Measure shards as a worker.

    Raises:
        HeadbookError: the input or anything else is not what the work was begun with, or what is
            done cannot be kept.
    """
    with ExitStack() as stack:
        config = replace(job.config, device=device)
        run = _prepared(stack, job.inputs, config, Silent())
        run = replace(run, config=job.config, work=Work(job.folder))
        check_same(job.folder, job.plan, plan_of(run))

        def measure(number: int) -> str:
            try:
                run.shard(number)
            except Exception as error:  # noqa: BLE001 - what is not the shard's fault is raised
                return fault_of_shard(error)
            return ""

        yield measure


def _prepared(
    stack: ExitStack, files: Sequence[str | Path], config: Config, progress: Progress
) -> Run:
    """Return a run that can begin."""
    opened = open_corpus(files, Selection.of(config), Layout.of(config))
    stack.enter_context(own_randomness(config.seed, _gpu(config.devices[0])))
    corpus = stack.enter_context(opened)
    columns = facets(corpus, config.facet, config.pair_member)
    model = load_model(
        config.model,
        revision=config.revision,
        device=config.devices[0],
        dtype=config.dtype,
        tokenizer=config.tokenizer,
        verbose=config.verbose,
        offload=stack.enter_context(set_aside(config.offload)),
    )
    limit = sequence_limit(model, config.max_length)
    corpus.shorten = partial(shortened, tokenizer=model.tokenizer, limit=limit)
    texts: Corpus | Passages = corpus
    if config.pack is not None:
        texts = packed(corpus, model, config.pack, limit)
        columns = facets(texts, config.facet, config.pair_member)
    encoder = Encoder(
        model,
        limit=limit,
        targets=Annotator.load(config.target_annotator),
        rarities=_rarities(config, corpus, model),
    )
    listed = islice(texts, int(min(config.n_sentence_pages, len(texts))))
    amounts = [sum(length.values()) for length in encoder.lengths(listed)] or [USUAL]
    architecture = settle(model, examine(model), probes(encoder))
    most = longest(architecture.stacks.values(), room(config.memory_bytes))
    long = Long.of(texts, encoder, most)
    paired = bool(model.config.is_encoder_decoder)
    measured = long.measured(chosen_metrics(config.metrics).values())
    prepared = Texts(
        stack.enter_context(sharded(texts, len(texts), paired=paired)),
        Annotator.load(config.annotator),
        encoder,
        architecture.padded,
        corpus.scheme,
        torch.float64 if config.dtype == "float64" else torch.float32,
        Batching(config.batch_tokens),
        progress,
    )
    metrics = tuple(metric.under(corpus.scheme) for metric in measured)
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


def _rarities(config: Config, corpus: Corpus, model: Model) -> dict[Side, Rarity]:
    """What is known of the frequencies of words on each side that the model takes."""
    rarities = {Side.SOURCE: Rarity.load(config.language, (s.text for s in corpus))}
    if model.config.is_encoder_decoder:
        targets = (s.target for s in corpus if s.target is not None)
        rarities[Side.TARGET] = Rarity.load(config.target_language, targets)
    return rarities
