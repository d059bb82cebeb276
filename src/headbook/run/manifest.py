"""How a study was made, for its manifest."""

import hashlib
import importlib.metadata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headbook import __version__
from headbook.config import creation_date, flag
from headbook.inputs import Sentence
from headbook.model.architecture import Architecture
from headbook.model.tokenizer import special_pattern
from headbook.run.shards import SHARD
from headbook.schema import MOST_OWN, OTHER, ModelKind, Side
from headbook.study.corpus_sums import CorpusSums
from headbook.study.manifest import (
    SCHEMA,
    Check,
    InputFacts,
    Manifest,
    ModelFacts,
    NotAvailable,
    Rounding,
    UnmeasuredSentences,
)
from headbook.text.annotate import NO_FREQUENCIES

if TYPE_CHECKING:
    from headbook.run.collect import Run

FOREIGN = (
    "not among the 17 parts of speech of Universal Dependencies: each is counted under its own "
    "name, but is neither a content nor a function word"
)
BEYOND = f"beyond the {MOST_OWN} most frequent outside Universal Dependencies: counted as '{OTHER}'"
LIBRARIES = ("torch", "transformers", "tokenizers", "spacy", "numpy", "pandas", "wordfreq")


def make_manifest(
    run: "Run",
    *,
    notes: str,
    corpus_sums: CorpusSums,
    checks: tuple[Check, ...],
    checked: int,
    gaps: tuple[NotAvailable, ...],
    rounded: tuple[Rounding, ...],
    unmeasured: tuple[UnmeasuredSentences, ...],
    smaller: tuple[str, ...],
) -> Manifest:
    """What is to be known of how a study was made."""
    annotators: dict[str, str] = {Side.SOURCE: _annotation(run)}
    if ModelKind.ENCODER_DECODER is run.architecture.kind:
        annotators[Side.TARGET] = run.texts.encoder.targets.name
    # What a path or a short name stands for, never the path itself.
    named = {"model": run.model.name, "annotator": run.texts.annotator.name}
    if run.config.tokenizer is not None and Path(run.config.tokenizer).is_dir():
        named["tokenizer"] = Path(run.config.tokenizer).resolve().name
    named["target_annotator"] = run.texts.encoder.targets.name
    named["device"] = run.model.device.type
    rarities = {side: rarity.name for side, rarity in run.texts.encoder.rarities.items()}
    named["language"] = rarities[Side.SOURCE]
    named["target_language"] = rarities.get(Side.TARGET, NO_FREQUENCIES)
    return Manifest(
        schema=SCHEMA,
        headbook=__version__,
        created=creation_date(),
        title=run.config.title or f"Attention heads of {run.model.name}",
        notes=notes,
        options=run.config.recorded() | named,
        model=_model_facts(run),
        stacks=tuple(run.architecture.stacks.values()),
        annotators=annotators,
        inputs=tuple(
            InputFacts(file.name, file.sha256, file.sentences, file.blank, file.left)
            for file in run.corpus.files
        ),
        counts=dict(corpus_sums.counts),
        versions={name: importlib.metadata.version(name) for name in LIBRARIES},
        checks=checks,
        checked_sentences=checked,
        gaps=(*gaps, *_foreign(run)),
        roundings=rounded,
        not_measured=unmeasured,
        fallbacks=smaller,
    )


def fallbacks(run: "Run") -> Iterator[str]:
    """What did not fit into memory as it was planned, in words."""
    for name, halved in run.log.halved.items():
        tokens = run.config.batch_tokens >> halved
        yield (
            f"{run.name}, {name}: at most {tokens:,} tokens in a batch, not "
            f"{run.config.batch_tokens:,}, as memory ran out."
        )


def sentences_not_measured(run: "Run", baseline_run: str = "") -> tuple[UnmeasuredSentences, ...]:
    """The sentences that could not be measured: of whole shards, and single ones.

    Args:
        baseline_run: name of the run, if it is not the model's own.
    """
    groups = [
        (run.texts.shards.shard(number, as_they_came=True), why)
        for number, why in sorted(run.log.failed.items())
    ]
    groups += [
        ([run.texts.shards.sentences[index]], why) for index, why in sorted(run.log.lost.items())
    ]
    return tuple(
        UnmeasuredSentences(tuple(map(_name, group)), why, baseline_run) for group, why in groups
    )


def _name(sentence: Sentence) -> str:
    return sentence.id or sentence.origin or f"{sentence.index + 1}"


def _annotation(run: "Run") -> str:
    """Where the words of the source texts come from."""
    own = [file.annotated for file in run.corpus.files if file.sentences]
    if all(own):
        return "as in the input (CoNLL-U)"
    name = run.texts.annotator.name
    return f"as in the CoNLL-U files, else {name}" if any(own) else name


def _foreign(run: "Run") -> Iterator[NotAvailable]:
    """What annotation outside Universal Dependencies lacks on the site."""
    tags, relations = Counter[str](), Counter[str]()
    for file in run.corpus.files:
        tags.update(file.foreign_tags)
        relations.update(file.foreign_relations)
    if tags:
        yield NotAvailable(f"tags {', '.join(sorted(tags))}", "", FOREIGN)
    scheme = run.texts.scheme
    names = (("tags", tags, scheme.tags), ("relations", relations, scheme.relations))
    for kind, found, kept in names:
        if beyond := sorted(found.keys() - {*kept}):
            yield NotAvailable(f"{kind} {', '.join(beyond)}", "", BEYOND)


def run_plan(run: "Run") -> dict[str, str]:
    """All that decides what the parts of a run hold, in words."""
    options = {f: v for f, v in run.config.recorded().items() if f not in {"title", "device"}}
    named = {"annotator": _annotation(run), "target_annotator": run.texts.encoder.targets.name}
    plan = {
        "input": run.texts.shards.digest,
        "model revision": run.model.revision,
        "device": run.model.device.type,
        "version": f"{__version__} ({_code()})",
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
        **{flag(name): str(value) for name, value in (options | named).items()},
        "longest text with maps": str(run.long.most),
        "sentences of a shard": str(SHARD),
    }
    return {name: " ".join(value.split()) for name, value in plan.items()}


def _code() -> str:
    """Hash of all of our own code."""
    folder, digest = Path(__file__).parents[1], hashlib.blake2b(digest_size=4)
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _model_facts(run: "Run") -> ModelFacts:
    model = run.model
    return ModelFacts(
        name=model.name,
        revision=model.revision,
        architecture=type(model.network).__name__,
        kind=run.architecture.kind,
        parameters=model.network.num_parameters(),
        dtype=run.config.dtype,
        device=model.device.type,
        limit=run.texts.encoder.limit,
        tokenizer=type(model.tokenizer).__name__,
        tokenizer_sha256=model.tokenizer_hash,
        special_tokens=special_pattern(model.tokenizer),
        attention=_reading(run.architecture),
        missing=model.weights.missing,
        unexpected=model.weights.unexpected,
        stored=model.weights.stored,
        bits=model.weights.bits,
    )


def _reading(architecture: Architecture) -> str:
    """How weights of attention were read."""
    read = "eager, seen by a hook" if architecture.hooked else "eager, as returned"
    return read if architecture.padded else f"{read}, without padding, which would change it"
