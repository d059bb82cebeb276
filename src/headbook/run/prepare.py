"""Preparation of a run: corpus, model, metrics and store, and the plan that its parts depend on."""

import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from headbook import __version__
from headbook.config import Config
from headbook.errors import ConfigError, ModelError, warn
from headbook.inputs import Corpus, InputLayout, InputSource, Selection, open_corpus
from headbook.memory import longest_text, map_memory
from headbook.metrics import chosen_metrics, head_metrics
from headbook.metrics.base import Metric, needs_regions
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.checkpoint import TOKENIZER_FILE, tokenizer_folder
from headbook.model.devices import isolated_random_state, offload_place
from headbook.model.load import Model, untrained_copy
from headbook.model.packing import Passages, pack_sentences, without_separators
from headbook.model.tokenizer import SentenceTokenizer, probe_texts, sequence_limit, shorten_text
from headbook.model.tokens.files import differences_from_file
from headbook.option_values import flag
from headbook.output_folder import temporary_folder
from headbook.passes.model_checks import verify_attention
from headbook.passes.padding import check_padding
from headbook.progress import NestedProgress, Progress
from headbook.run.languages import TextLanguages
from headbook.run.missing import LongTexts
from headbook.run.objects import ModelObject, open_model
from headbook.run.sentences import RunSentences
from headbook.run.shards import SHARD_SENTENCES, Shards, split_into_shards
from headbook.run.store import Part, Store, open_store
from headbook.schema import Baseline, BaselineRun, ModelKind, Side
from headbook.study.corpus_sums import CorpusSums
from headbook.study.groups import Facets, find_facets
from headbook.text.annotate import shuffle_words

MAX_UNSTORED_SENTENCES = 256  # sentences; measuring so few again is faster than storing parts
DEFAULT_SENTENCE_TOKENS = 32  # estimate for progress, if no sentence is read before the run
COMPARED_TEXTS = 64  # first texts whose tokens are compared with the tokenizer's file
MAX_FAILED_SHARDS = 3  # failed shards that end a run in which no shard was measured
# Libraries whose versions change numbers: manifests and plans of runs record them.
LIBRARIES = ("torch", "transformers", "tokenizers", "spacy", "numpy", "pandas", "wordfreq")


@dataclass(frozen=True)
class RunLog:
    """Failures of a run so far, and parts that took smaller batches.

    Attributes:
        failed_shards: error of each shard that failed for good, by number.
        failed_sentences: error of each excluded sentence of other shards, by index.
        halvings: number of times the token budget of a batch was halved, by name of the part.
    """

    failed_shards: dict[int, str] = field(default_factory=dict)
    failed_sentences: dict[int, str] = field(default_factory=dict)
    halvings: dict[str, int] = field(default_factory=dict)

    def record(self, name: str, part: Part[object]) -> None:
        """Note the excluded sentences and the smaller batches of a part."""
        self.failed_sentences.update(part.failed_sentences)
        if part.halvings:
            self.halvings[name] = part.halvings

    def measured(self, parts: Iterable[tuple[int, Part[CorpusSums]]]) -> Iterator[CorpusSums]:
        """Yield the sums of the shards that were measured, and note the shards that failed.

        Raises:
            ModelError: no shard was measured: `MAX_FAILED_SHARDS` failed, or all.
        """
        n_measured = 0
        for number, part in parts:
            if not part.error:
                n_measured += 1
                yield part.value
                continue
            self.failed_shards[number] = part.error
            if not n_measured and len(self.failed_shards) == MAX_FAILED_SHARDS:
                break
        if self.failed_shards and not n_measured:
            number, error = next(iter(self.failed_shards.items()))
            raise ModelError(f"no shard could be measured; of shard {number:,}: {error}")


@dataclass(frozen=True)
class Run:
    """Settings and handles of a run, fixed while it lasts; results are in its store and log.

    Attributes:
        inputs: files, folders and ids of datasets, or sources in memory.
        config: options.
        progress: reporter of the run's progress.
        corpus: sentences, or passages that sentences are packed in.
        model: the loaded model.
        architecture: attention layers of the model and how to read them.
        metrics: metrics that are measured.
        sentences: sentences as the model takes them.
        facets: metadata columns by which sentences are compared.
        long: texts that are too long for tables of all pairs of tokens.
        mean_length: estimated tokens of a sentence, for progress.
        store: finished parts.
        log: failures so far.
        name: folder of the run's parts in the store.
        excluded: indices of sentences that are not measured.
        is_baseline: whether only head metrics are measured, to compare another run with.
    """

    inputs: tuple[str | InputSource, ...]
    config: Config
    progress: Progress
    corpus: Corpus | Passages
    model: Model
    architecture: Architecture
    metrics: tuple[Metric, ...]
    sentences: RunSentences
    facets: Facets
    long: LongTexts
    mean_length: float
    store: Store = field(default_factory=Store)
    log: RunLog = field(default_factory=RunLog)
    name: str = "model"
    excluded: frozenset[int] = frozenset()
    is_baseline: bool = False

    @property
    def shards(self) -> Shards:
        """Shards of the corpus."""
        return self.sentences.shards

    @property
    def corpus_tokens(self) -> int:
        """Estimated tokens of the corpus."""
        return round(self.mean_length * len(self.corpus))

    @property
    def not_measured(self) -> frozenset[int]:
        """Indices of the sentences that could not be measured, once all shards are done."""
        places = (self.shards.places(number).tolist() for number in self.log.failed_shards)
        return frozenset(chain(self.log.failed_sentences, *places))

    @property
    def annotator_name(self) -> str:
        """Origin of the words of the source texts."""
        annotated = [file.annotated for file in self.corpus.files if file.sentences]
        if all(annotated):
            return "as in the input (CoNLL-U)"
        name = self.sentences.annotator.name
        return f"as in the CoNLL-U files, else {name}" if any(annotated) else name


@contextmanager
def prepare(
    inputs: Sequence[str | InputSource],
    config: Config,
    progress: Progress,
    work: Path | None,
    source: ModelObject | None = None,
) -> Iterator[Run]:
    """Open the inputs, load the model, and open the store of finished parts.

    Args:
        inputs: files, folders and ids of datasets.
        config: options.
        progress: reporter of the run's progress.
        work: folder of the store; None for a temporary one if workers need it, else for none.
        source: a caller's model; None for the one that the options name.

    Raises:
        HeadbookError: the inputs, the model, a metric or the folder cannot be used.
    """
    with ExitStack() as stack:
        run = stack.enter_context(open_run(inputs, config, progress, source))
        _check_metrics(run)
        is_small = len(run.corpus) <= MAX_UNSTORED_SENTENCES and config.engine == "local"
        if work is None and config.shared and not is_small:
            work = stack.enter_context(temporary_folder("work")) / "parts"
        if work is not None and not is_small:
            store = open_store(work, run_plan(run), restart=config.restart)
            run = replace(run, store=stack.enter_context(store))
        yield run


@contextmanager
def open_run(
    inputs: Sequence[str | InputSource],
    config: Config,
    progress: Progress,
    source: ModelObject | None = None,
) -> Iterator[Run]:
    """Open the inputs and load the model, without a store.

    Args:
        inputs: files, folders and ids of datasets, or sources in memory.
        config: options; the run uses the first of its devices.
        progress: reporter of the run's progress.
        source: a caller's model; None for the one that the options name.
    """
    device = config.devices[0]
    with ExitStack() as stack:
        unopened = open_corpus(inputs, Selection.of(config), InputLayout.of(config))
        stack.enter_context(isolated_random_state(config.seed, _gpu(device)))
        stack.enter_context(attention_hook.hooks_removed())
        corpus = stack.enter_context(unopened)
        if config.pack is not None and corpus.has_two_texts:
            raise ConfigError("--pack: got pairs of texts, expected one text in each row")
        facets = find_facets(corpus, config.facet, config.pair_member)
        model = open_model(
            source,
            config,
            device=device,
            offload=stack.enter_context(offload_place(config.offload)),
            progress=progress,
            check=partial(_check_texts, corpus, config.model),
        )
        architecture = probe_architecture(model)
        corpus.read_by(architecture.kind, model.name)
        for warning in model.weights.warnings():
            progress.message(f"warning: {warning}")
        limit = sequence_limit(model, config.max_length)
        corpus.shorten = partial(shorten_text, tokenizer=model.tokenizer, limit=limit)
        texts: Corpus | Passages = corpus
        if config.pack is not None:
            texts = pack_sentences(corpus, model, config.pack, limit)
            facets = find_facets(texts, config.facet, config.pair_member)
        languages = TextLanguages.of(config, corpus, model, limit)
        encoder = SentenceTokenizer(
            model,
            limit=limit,
            targets=languages.annotators[Side.TARGET],
            rarities=languages.rarities,
        )
        _compare_with_file(texts, model)
        mean_length = _mean_length(texts, encoder, config.n_sentence_pages)
        architecture = verify_attention(model, architecture, probe_texts(encoder))
        max_map_tokens = longest_text(architecture.stacks.values(), map_memory(config.memory_bytes))
        long = LongTexts.of(texts, encoder, max_map_tokens)
        paired = bool(model.config.is_encoder_decoder)
        metrics = [
            metric
            for metric in long.measurable(chosen_metrics(config.metrics).values())
            if corpus.regions or not needs_regions(metric)
        ]
        yield Run(
            inputs=tuple(inputs),
            config=config,
            progress=progress,
            corpus=texts,
            model=model,
            architecture=architecture,
            metrics=tuple(metric.with_scheme(corpus.scheme) for metric in metrics),
            sentences=RunSentences(
                stack.enter_context(split_into_shards(texts, len(texts), paired=paired)),
                languages.annotators[Side.SOURCE],
                encoder,
                architecture.padded,
                architecture.shared_length,
                corpus.scheme,
                torch.float64 if config.dtype == "float64" else torch.float32,
                progress,
            ),
            facets=facets,
            long=long,
            mean_length=mean_length,
        )


def _check_texts(corpus: Corpus, name: str, configuration: Any) -> None:
    """Raise an error if an encoder-decoder is given pairs for an encoder, by its configuration."""
    if configuration.is_encoder_decoder:
        corpus.read_by(ModelKind.ENCODER_DECODER, name)


def _check_metrics(run: Run) -> None:
    """Check that no metric of a run reads the padding of batches.

    Raises:
        ModelError: a metric does.
    """
    sentences = run.sentences
    check_padding(
        run.model,
        run.architecture,
        run.metrics,
        probe_texts(sentences.encoder),
        dtype=sentences.dtype,
        scheme=sentences.scheme,
    )


def _mean_length(texts: Corpus | Passages, encoder: SentenceTokenizer, max_texts: float) -> float:
    """Estimate the mean tokens of a text, on all sides, from the first texts of the corpus."""
    first_texts = islice(texts, int(min(max_texts, len(texts))))
    lengths = [sum(length.values()) for length in encoder.lengths(first_texts)]
    return sum(lengths) / len(lengths) if lengths else DEFAULT_SENTENCE_TOKENS


def _compare_with_file(texts: Corpus | Passages, model: Model) -> None:
    """Warn if the tokenizer makes other tokens of the first texts than its file describes."""
    folder = tokenizer_folder(str(getattr(model.tokenizer, "name_or_path", "")))
    if folder is None:
        return
    first = islice(texts, COMPARED_TEXTS)
    message = differences_from_file(
        model.tokenizer,
        folder / TOKENIZER_FILE,
        [text for sentence in first for text in (*sentence.texts, sentence.target) if text],
    )
    if message:
        warn(f"model '{model.name}': {message}")


def _gpu(device: str) -> torch.device | None:
    """Return the GPU that a device option means, or None for other devices."""
    use_gpu = device.startswith(("auto", "cuda")) and torch.cuda.is_available()
    return torch.device("cuda" if device == "auto" else device) if use_gpu else None


def baseline_of(run: Run, baseline: BaselineRun) -> Run:
    """Return the run of a baseline: head metrics of an untrained model, or of changed texts."""
    progress = NestedProgress(run.progress)
    baseline_run = replace(
        run,
        progress=progress,
        metrics=tuple(head_metrics(run.metrics)),
        sentences=replace(run.sentences, progress=progress),
        facets=Facets(),
        log=RunLog(),
        name=str(baseline),
        excluded=run.not_measured,
        is_baseline=True,
    )
    if baseline.baseline is not Baseline.UNTRAINED:
        split = run.sentences.encoder.targets.split
        shuffle = partial(shuffle_words, seed=baseline.seed, split=split)
        arrange = shuffle if baseline.baseline is Baseline.SHUFFLED else without_separators
        return replace(baseline_run, sentences=replace(baseline_run.sentences, arrange=arrange))
    model, trained = untrained_copy(run.model, baseline.seed), run.architecture
    architecture = probe_architecture(model, why_not_hook=trained.unhooked)
    architecture = replace(architecture, stacks=trained.stacks, padded=trained.padded)
    return replace(baseline_run, model=model, architecture=architecture)


def run_plan(run: Run) -> dict[str, str]:
    """Return the values that the parts of a run depend on, by name: input, model, options, code."""
    options = {
        name: value
        for name, value in run.config.recorded().items()
        if name not in {"title", "device"}
    }
    resolved = {
        "annotator": run.annotator_name,
        "target_annotator": run.sentences.encoder.targets.name,
    }
    plan = {
        "input": run.shards.digest,
        "model revision": run.model.revision,
        "adapter revision": run.model.weights.adapter_revision,
        "tokenizer": run.model.tokenizer_hash,
        "device": run.model.device.type,
        "version": f"{__version__} ({_code_hash()})",
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
        **{flag(name): str(value) for name, value in (options | resolved).items()},
        "longest text with maps": str(run.long.most),
        "sentences of a shard": str(SHARD_SENTENCES),
    }
    return {name: " ".join(value.split()) for name, value in plan.items()}


def _code_hash() -> str:
    """Return a hash of the code of this package."""
    folder, digest = Path(__file__).parents[1], hashlib.blake2b(digest_size=4)
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
