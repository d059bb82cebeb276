"""The manifest of a study: how it was made, what was checked, what is missing and why.

Manifests are stored as JSON, and the type of every value is checked (`headbook.json_values`).
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

from headbook import __version__
from headbook.author import HeadNote, costly_markdown, head_key
from headbook.config import Config
from headbook.errors import StudyError
from headbook.json_values import read_value
from headbook.output_folder import MANIFEST
from headbook.schema import MILLION, STACK_NAMES, AttentionStack, ModelKind, Side
from headbook.study.input_facts import InputFacts, cut_texts


class MissingPart(StrEnum):
    """Parts of a study that may be missing; studies store these words."""

    TAGS = "tags"
    TREE = "tree"
    VALUES = "values"
    OUTPUTS = "outputs"
    PASSAGES = "passages"
    QUERIES = "queries"
    WEIGHTS = "weights"
    """Attention weights that do not follow from queries and keys."""
    GROUPS = "groups"
    GEOMETRY = "geometry"


@dataclass(frozen=True)
class NotAvailable:
    """Something that a study does not have, with the reason.

    Attributes:
        what: name of the missing part, in words.
        stack: stack that lacks the part; empty for the whole model.
        why: the reason.
        key: a `MissingPart` or the id of a metric; empty if no page needs the part.
    """

    what: str
    stack: str
    why: str
    key: str = ""


# Fields of a manifest that `render` replaces.
WORDS = (
    "title", "author", "text_source", "text_license", "notes", "head_notes", "page_notes",
    "sections",
)  # fmt: skip
NOT_GIVEN = "not given"  # printed for a source, a licence or an author that nobody gave
SCHEMA = 12  # version of the layout of stored studies
SUMS_KEY = "sha256"  # key of the sums of a study's files in its manifest


@dataclass(frozen=True)
class Check:
    """A check that ran while the study was collected.

    Attributes:
        name: condition that should hold.
        stack: stack that was checked; empty for the whole model.
        error: largest absolute difference, relative to the largest value compared.
        tolerance: largest error that rounding explains.
    """

    name: str
    stack: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether rounding explains the difference."""
        return self.error <= self.tolerance

    def message(self) -> str:
        """Return the condition, the stack and the difference, as a message."""
        where = f" ({self.stack})" if self.stack else ""
        return f"{self.name}{where}, difference {self.error:.2g}"


@dataclass(frozen=True)
class Rounding:
    """Changes of ranks by a product with the vocabulary in lower precision.

    Attributes:
        side: side of the texts.
        space: vocabulary space of the ranks.
        states: number of states whose ranks were compared with those of the exact product.
        changed: number of ranks that differ.
        largest: largest difference of ranks.
    """

    side: str
    space: str
    states: int
    changed: int
    largest: int


@dataclass(frozen=True)
class UnmeasuredSentences:
    """Sentences that could not be measured.

    Attributes:
        sentences: ids of the sentences; file and line of a sentence without an id.
        why: message of the error.
        baseline: the baseline that lacks the sentences; empty if the model itself lacks them.
    """

    sentences: tuple[str, ...]
    why: str
    baseline: str = ""


@dataclass(frozen=True)
class ModelFacts:
    """A model as it was loaded.

    Attributes:
        name: name or folder of the model, with `` + `` and the name of an adapter.
        revision: commit of a hub model; hash of the weights of a folder or file.
        architecture: class of the model in transformers.
        kind: encoder, decoder, or both.
        parameters: number of parameters.
        dtype: number format in which the model ran.
        device: device on which the model ran.
        limit: length of the longest sequence, in tokens.
        tokenizer: class of the tokenizer.
        tokenizer_sha256: hash of the tokenizer.
        special_tokens: special tokens that the tokenizer adds, in order, with ``…`` for the text.
        attention: how attention weights were read.
        missing: parameters that the checkpoint lacks; their values are random.
        unexpected: parameters of the checkpoint that the model does not use.
        stored: number formats of a GGUF file or of quantised weights; empty for others.
        bits: bits of most weights of a quantised model; else 0.
        pooling: pooling of a sentence encoder, such as ``mean``; empty for other models.
        width: numbers in the state of a token; 0 if not known.
        adapter: name of an adapter, with its method and whether it was merged; empty without one.
        adapter_revision: commit of a hub adapter; hash of the files of a folder.
        adapter_base: base model that the adapter names, if it is not this model.
        remote_code: classes whose code came from the model's repository.
        configuration: configuration of a model that a program held in memory; else empty.
        license: licence that the model's card or GGUF file names; empty if neither names one.
    """

    name: str
    revision: str
    architecture: str
    kind: ModelKind
    parameters: int
    dtype: str
    device: str
    limit: int
    tokenizer: str
    tokenizer_sha256: str
    special_tokens: str
    attention: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    stored: str = ""
    bits: int = 0
    pooling: str = ""
    width: int = 0
    adapter: str = ""
    adapter_revision: str = ""
    adapter_base: str = ""
    remote_code: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""


@dataclass(frozen=True)
class Manifest:
    """The record of how a study was made.

    Attributes:
        schema: version of the layout of stored studies.
        headbook: version of Headbook.
        created: date of the collection, ISO 8601; empty in anonymous studies.
        title, notes: title of the site, and the author's notes on the overview, in Markdown.
        options: every option that changes numbers or pages.
        model: the model as it was loaded.
        stacks: stacks of attention layers of the model.
        annotators: name and version of the annotator by side.
        inputs: inputs in their order.
        counts: numbers of sentences, tokens and words.
        versions: versions of the libraries that computed the numbers.
        checks, checked_sentences: self-checks with their errors, and on how many sentences.
        gaps: parts that the study does not have.
        roundings: changes of ranks by a vocabulary product in lower precision, if one was used.
        not_measured: sentences that could not be measured.
        fallbacks: deviations from the planned computation, in words.
        packages: package and version of metrics, by id, and readers, by suffix, of other packages.
        head_notes: the author's names of heads and notes on them, by `headbook.author.head_key`.
        page_notes, sections: the author's notes on other pages, by address, and pages, in Markdown.
        parts: number of studies that were merged into this one; 1 for one that was collected.
        repeated: number of texts that stand in several of these parts.
        pooled: numbers that each part made in its own way and that were averaged, in words.
        author: author of the site, as in BibTeX; empty if not given.
        text_source, text_license: origin and licence of texts but samples; empty if not given.
    """

    schema: int
    headbook: str
    created: str
    title: str
    notes: str
    options: Mapping[str, Any]
    model: ModelFacts
    stacks: tuple[AttentionStack, ...]
    annotators: Mapping[str, str]
    inputs: tuple[InputFacts, ...]
    counts: Mapping[str, int]
    versions: Mapping[str, str]
    checks: tuple[Check, ...]
    checked_sentences: int
    gaps: tuple[NotAvailable, ...]
    roundings: tuple[Rounding, ...] = ()
    not_measured: tuple[UnmeasuredSentences, ...] = ()
    fallbacks: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    head_notes: Mapping[str, HeadNote] = field(default_factory=dict)
    page_notes: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[str, ...] = ()
    parts: int = 1
    repeated: int = 0
    pooled: tuple[str, ...] = ()
    author: str = ""
    text_source: str = ""
    text_license: str = ""

    @property
    def words(self) -> dict[str, Any]:
        """The author's words by field: title, author, source of texts, notes, sections."""
        return {name: getattr(self, name) for name in WORDS}

    def with_words(self, words: Mapping[str, Any]) -> "Manifest":
        """Return a manifest with other words of the author.

        Args:
            words: some of the fields of `words`.
        """
        titled = words.get("title", self.title) != self.title
        options = {**self.options, "title": words["title"]} if titled else self.options
        return replace(self, options=options, **words)

    def note_on(self, head: tuple[str, int, int]) -> HeadNote:
        """Return the author's words on a head, given by stack, layer and head."""
        return self.head_notes.get(head_key(head), HeadNote())

    def stack(self, name: str) -> AttentionStack:
        """Return the stack with a name."""
        return next(stack for stack in self.stacks if stack.name == name)

    @property
    def text_noun(self) -> str:
        """Noun of texts: ``pair`` if all are two for an encoder, ``passage``, or ``sentence``."""
        pairs = self.counts.get("pairs", 0)
        if pairs and pairs == self.counts["sentences"]:
            return "pair"
        return "passage" if self.options.get("pack") else "sentence"

    @property
    def failed(self) -> tuple[str, ...]:
        """Messages of the self-checks that failed."""
        return tuple(check.message() for check in self.checks if not check.passed)

    @property
    def places(self) -> int:
        """Number of sentences of the input, measured or not; all indices are below this number."""
        of_model = [group for group in self.not_measured if not group.baseline]
        return self.counts["sentences"] + sum(len(group.sentences) for group in of_model)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Messages on sentences that could not be measured, with the most frequent error."""
        errors_by_baseline: dict[str, Counter[str]] = {}
        for group in self.not_measured:
            errors_by_baseline.setdefault(group.baseline, Counter())[group.why] += len(
                group.sentences
            )
        return tuple(
            f"{errors.total():,} of {self.places:,} sentences could not be measured"
            f"{f' with {baseline_run}' if baseline_run else ''}: {errors.most_common(1)[0][0]}"
            f"{f' (other errors: {len(errors) - 1:,})' if len(errors) > 1 else ''}"
            for baseline_run, errors in errors_by_baseline.items()
        )

    @property
    def cut(self) -> tuple[str, ...]:
        """Messages on texts that were longer than the longest sequence, one for each side."""
        return tuple(cut_texts(self.counts, self.model.limit))

    def learned_share(self, stack: AttentionStack) -> float:
        """Return the share of a stack's attention on the learned sink of the softmax."""
        rows = self.counts.get(stack.rows_counted, 0)
        return self.counts.get(stack.learned_counted, 0) / MILLION / rows if rows else 0.0

    def count(self, side: Side, what: str) -> int:
        """Return a count of one side's texts; 0 if nothing was counted."""
        return self.counts.get(f"{side}.{what}", 0)

    def to_json(self) -> str:
        """Return the manifest as JSON; equal manifests give equal bytes."""
        return _to_json(dataclasses.asdict(self))

    def sealed(self, sums: Mapping[str, str]) -> str:
        """Return the manifest of a stored study, with SHA-256 sums.

        Args:
            sums: sum of each other file of the study, by name.
        """
        own_sum = {MANIFEST: hashlib.sha256(self.to_json().encode()).hexdigest()}
        return _to_json(dataclasses.asdict(self) | {SUMS_KEY: {**sums, **own_sum}})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a stored study.

        Raises:
            StudyError: the folder holds no manifest, or one that cannot be read or was changed.
        """
        return read_sealed(folder)[0]

    @classmethod
    def from_json(cls, text: str, place: str = MANIFEST) -> "Manifest":
        """Read a manifest from the text of `to_json` or `sealed`, without checking SHA-256 sums.

        Args:
            place: the file, for messages.

        Raises:
            StudyError: the text was written by another version, or is not a manifest.
        """
        return _check_manifest(_parse_json(text, place), place)


def read_sealed(folder: Path) -> tuple[Manifest, dict[str, str]]:
    """Return the manifest of a stored study and the SHA-256 sums of the study's other files.

    Raises:
        StudyError: the folder holds no manifest, or one that cannot be read or was changed.
    """
    file = folder / MANIFEST
    if not file.is_file():
        raise StudyError(f"{folder}: no {MANIFEST}; expected a folder that collect has written")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{file}: {error}; expected a manifest") from error
    table = _parse_json(text, str(file))
    sums = table.get(SUMS_KEY)
    if not isinstance(sums, dict):
        raise StudyError(f"{file}: no {SUMS_KEY} of the study's files; collect the study again")
    unsealed = {name: part for name, part in table.items() if name != SUMS_KEY}
    own_sum = hashlib.sha256(_to_json(unsealed).encode()).hexdigest()
    if sums.pop(MANIFEST, None) != own_sum:
        raise changed(file)
    return _check_manifest(table, str(file)), sums


def changed(file: Path) -> StudyError:
    """Return the error to raise if a file of a study differs from its SHA-256 sum."""
    return StudyError(
        f"{file}: changed since the study was saved (another SHA-256 sum); expected the file as it "
        "was written: copy the study again, or collect it again"
    )


def _to_json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, sort_keys=True, indent=1, ensure_ascii=True)


def _parse_json(text: str, place: str) -> dict[str, Any]:
    """Return the JSON object of a manifest that this version reads."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise StudyError(f"{place}: {error}; expected a manifest") from error
    except RecursionError as error:
        raise StudyError(f"{place}: nested too deeply; expected a manifest") from error
    if not isinstance(table, dict) or "schema" not in table:
        raise StudyError(f"{place}: no schema; expected a manifest")
    if table["schema"] != SCHEMA:
        writer = table.get("headbook")
        build = "another build of " if writer == __version__ else ""
        raise StudyError(
            f"{place}: got a study of schema {table['schema']!a:.20}, expected {SCHEMA}; collect "
            f"it again, or read it with {build}Headbook {writer!a:.20}, which wrote it"
        )
    return table


def _check_manifest(table: Mapping[str, Any], place: str) -> Manifest:
    """Convert the JSON object of a manifest, and refuse impossible values.

    Raises:
        StudyError: a value has the wrong type or is impossible; the message has its path.
    """
    try:
        unsealed = {name: part for name, part in table.items() if name != SUMS_KEY}
        manifest: Manifest = read_value(Manifest, unsealed)
        for name, expected in _impossible_values(manifest):
            raise ValueError(f"{name}, expected {expected}")
    except ValueError as error:
        raise StudyError(f"{place}: {error}") from error
    return manifest


def _impossible_values(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield values that have the right type and are impossible, each with what is expected."""
    names = [stack.name for stack in manifest.stacks]
    if not names or len({*names}) < len(names):
        yield f"stacks: got {', '.join(names) or 'none'}", "one or more, each once"
    for stack in manifest.stacks:
        yield from _impossible_stack_values(stack)
    if manifest.model.limit < 1:
        yield f"model/limit: got {manifest.model.limit}", "at least 1"
    for name, count in {"sentences": -1, **manifest.counts}.items():
        if count < 0:
            yield f"counts/{name}: got {count}", "at least 0"
    for name in ("sample_sentences", "vocabulary_precision"):
        if name not in manifest.options:
            yield f"options/{name}: got nothing", "its value"
    yield from _impossible_notes(manifest)
    kinds = get_type_hints(Config)
    for name, value in manifest.options.items():
        if name in kinds:
            read_value(kinds[name], value, f"options/{name}")


def _impossible_notes(manifest: Manifest) -> Iterator[tuple[str, str]]:
    notes = [manifest.notes, *manifest.page_notes.values(), *manifest.sections]
    notes += [note.text for note in manifest.head_notes.values()]
    for costly in filter(None, map(costly_markdown, notes)):
        yield f"notes: got {costly}", "Markdown that is converted within seconds"


def _impossible_stack_values(stack: AttentionStack) -> Iterator[tuple[str, str]]:
    place = f"stacks/{stack.name}"
    if stack.name not in STACK_NAMES:
        yield f"stacks: got {stack.name}", " or ".join(STACK_NAMES)
    lower_bounds = {"n_layers": 1, "n_heads": 1, "n_key_heads": 0, "head_width": 0}  # 0: not known
    for name, low in lower_bounds.items():
        if getattr(stack, name) < low:
            yield f"{place}/{name}: got {getattr(stack, name)}", f"at least {low}"
    layers = stack.attention_layers
    in_order = all(layer < next_layer for layer, next_layer in pairwise(layers))
    if not layers or not in_order or layers[0] < 0 or layers[-1] >= stack.n_layers:
        problem = f"{place}/attention_layers: got {layers!s:.40}"
        yield problem, f"layers below {stack.n_layers}, ascending"
