"""Manifest of a study: how it was made, and what is missing in it."""

import importlib.metadata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headbook import __version__
from headbook.inputs import InputFile, TextRecord
from headbook.inputs.sources import other_readers
from headbook.languages import NO_LANGUAGE
from headbook.model.tokens.special import special_pattern
from headbook.option_values import creation_date
from headbook.report.answers.text_notes import N_EXAMPLES, is_unknown
from headbook.resources import sample_hashes
from headbook.run.prepare import LIBRARIES, Run, RunLog
from headbook.schema import MAX_OWN_NAMES, OTHER, UNKNOWN, ModelKind, Side
from headbook.study.input_facts import InputFacts
from headbook.study.manifest import (
    SCHEMA,
    Check,
    Manifest,
    ModelFacts,
    NotAvailable,
    Rounding,
    UnmeasuredSentences,
)

MAX_UNKNOWN_PIECES = 200  # that are searched for different ones
FOREIGN_TAGS_REASON = (
    "not among the 17 parts of speech of Universal Dependencies: each is counted under its own "
    "name, but is neither a content nor a function word"
)
RARE_LABELS_REASON = (
    f"beyond the {MAX_OWN_NAMES} most frequent outside Universal Dependencies: counted as '{OTHER}'"
)


def make_manifest(
    run: Run,
    *,
    words: Mapping[str, Any],
    counts: Mapping[str, int],
    checks: tuple[Check, ...],
    n_checked: int,
    gaps: tuple[NotAvailable, ...],
    rounded: tuple[Rounding, ...],
    baselines: Mapping[str, RunLog],
) -> Manifest:
    """Return the manifest of a study.

    Args:
        run: the run that measured the study.
        words: fields of the manifest from the options ``--notes`` and ``--section``.
        counts: numbers of sentences, tokens and words.
        checks: results of the self-checks.
        n_checked: number of sentences that the self-checks ran on.
        gaps: measures that are not available, and why.
        rounded: differences that coarser products with the vocabulary make.
        baselines: logs of the runs of baselines, by name.
    """
    annotators: dict[str, str] = {Side.SOURCE: run.annotator_name}
    if ModelKind.ENCODER_DECODER is run.architecture.kind:
        annotators[Side.TARGET] = run.sentences.encoder.targets.name
    return Manifest(
        schema=SCHEMA,
        headbook=__version__,
        created=creation_date(),
        title=run.config.title or f"Attention heads of {run.model.name}",
        options=run.config.recorded() | _resolved_options(run),
        model=_model_facts(run),
        stacks=tuple(run.architecture.stacks.values()),
        annotators=annotators,
        inputs=tuple(map(facts_of, run.corpus.files)),
        counts={**counts, **_unknown_examples(run, counts)},
        versions={name: importlib.metadata.version(name) for name in LIBRARIES},
        checks=checks,
        checked_sentences=n_checked,
        gaps=(*gaps, *_foreign_annotation(run)),
        roundings=rounded,
        not_measured=tuple(
            group
            for baseline, log in {"": run.log, **baselines}.items()
            for group in _sentences_not_measured(run, log, baseline)
        ),
        fallbacks=tuple(_smaller_batches(run, {run.name: run.log, **baselines})),
        packages={metric.id: metric.package for metric in run.metrics if metric.package}
        | {
            kind: package
            for kind, (package, _) in other_readers().items()
            if any(file.source.kind == kind for file in run.corpus.files)
        },
        author=run.config.author or "",
        text_source=run.config.text_source or "",
        text_license=run.config.text_license or "",
        **{"notes": "", **words},
    )


def facts_of(file: InputFile) -> InputFacts:
    """Return what a manifest says of an input."""
    remarks = {str(remark): number for remark, number in file.remarks.items()}
    sample = file.sha256 in sample_hashes()
    return InputFacts(
        file.name, file.sha256, file.sentences, file.blank, file.left, remarks, sample
    )


def _resolved_options(run: Run) -> dict[str, str | None]:
    """Return the values that options were resolved to; a path is replaced by its last part."""
    encoder = run.sentences.encoder
    rarities = {side: rarity.name for side, rarity in encoder.rarities.items()}
    resolved = {
        "model": run.model.name,
        "adapter": run.model.weights.adapter.rpartition(" (")[0] or None,
        "annotator": run.sentences.annotator.name,
        "target_annotator": encoder.targets.name,
        "device": run.model.device.type,
        "language": rarities[Side.SOURCE],
        "target_language": rarities.get(Side.TARGET, NO_LANGUAGE),
    }
    if run.config.tokenizer is not None and Path(run.config.tokenizer).is_dir():
        resolved["tokenizer"] = Path(run.config.tokenizer).resolve().name
    return resolved


def _unknown_examples(run: Run, counts: Mapping[str, int]) -> Counter[str]:
    """Count a few pieces that the vocabulary lacks in the first texts that have some.

    The names end with a quotation mark, so that no piece can be taken for the name of a count.
    """
    examples = Counter[str]()
    for side in filter(partial(is_unknown, counts), Side):
        target = side is Side.TARGET
        texts = chain.from_iterable((s.target,) if target else s.texts for s in run.corpus)
        pieces = run.sentences.encoder.unknown_pieces(filter(None, texts), target=target)
        for piece in islice(pieces, MAX_UNKNOWN_PIECES):
            examples[f"{side}.{UNKNOWN}.{piece!r}"] += 1
            if len(examples) == N_EXAMPLES:
                break
    return examples


def _smaller_batches(run: Run, logs: Mapping[str, RunLog]) -> Iterator[str]:
    """Yield a message for each part that was measured in smaller batches than requested."""
    budget = run.config.batch_tokens
    for name, log in logs.items():
        for part, halvings in log.halvings.items():
            yield (
                f"{name}, {part}: at most {budget >> halvings:,} tokens in a batch, "
                f"not {budget:,}, as memory ran out."
            )


def _sentences_not_measured(run: Run, log: RunLog, baseline: str) -> Iterator[UnmeasuredSentences]:
    """Yield sentences that could not be measured: those of whole shards, then single ones.

    Args:
        run: the run of the study, whose baselines have the same shards.
        log: log of the run or of a baseline's.
        baseline: name of the baseline, or empty.
    """
    for number, error in sorted(log.failed_shards.items()):
        names = tuple(map(_sentence_name, run.shards.shard(number, as_they_came=True)))
        yield UnmeasuredSentences(names, error, baseline)
    for index, error in sorted(log.failed_sentences.items()):
        yield UnmeasuredSentences((_sentence_name(run.shards.sentences[index]),), error, baseline)


def _sentence_name(sentence: TextRecord) -> str:
    return sentence.id or sentence.origin or f"{sentence.index + 1}"


def _foreign_annotation(run: Run) -> Iterator[NotAvailable]:
    """Yield what the site lacks for tags and relations outside Universal Dependencies."""
    tags, relations = Counter[str](), Counter[str]()
    for file in run.corpus.files:
        tags.update(file.foreign_tags)
        relations.update(file.foreign_relations)
    if tags:
        yield NotAvailable(f"tags {', '.join(sorted(tags))}", "", FOREIGN_TAGS_REASON)
    scheme = run.sentences.scheme
    annotations = (("tags", tags, scheme.tags), ("relations", relations, scheme.relations))
    for kind, counts, known_labels in annotations:
        if beyond := sorted(counts.keys() - {*known_labels}):
            yield NotAvailable(f"{kind} {', '.join(beyond)}", "", RARE_LABELS_REASON)


def _model_facts(run: Run) -> ModelFacts:
    model, architecture = run.model, run.architecture
    attention = "eager, seen by a hook" if architecture.hooked else "eager, as returned"
    if not architecture.padded:
        attention += ", without padding, which would change it"
    return ModelFacts(
        name=model.name,
        revision=model.revision,
        architecture=type(model.network).__name__,
        kind=architecture.kind,
        parameters=model.network.num_parameters(),
        dtype=run.config.dtype,
        device=model.device.type,
        limit=run.sentences.encoder.limit,
        tokenizer=type(model.tokenizer).__name__,
        tokenizer_sha256=model.tokenizer_hash,
        special_tokens=special_pattern(model),
        attention=attention,
        missing=model.weights.missing,
        unexpected=model.weights.unexpected,
        stored=model.weights.stored,
        bits=model.weights.bits,
        pooling=model.pooling,
        width=int(getattr(model.config, "hidden_size", 0)),
        adapter=model.weights.adapter,
        adapter_revision=model.weights.adapter_revision,
        adapter_base=model.weights.adapter_base,
        remote_code=model.weights.remote_code,
        configuration=model.configuration,
        license=model.license,
    )
