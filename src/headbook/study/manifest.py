"""What a study says about itself: how it was made, on what, and what was checked."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headbook.errors import StudyError
from headbook.output_folder import MANIFEST
from headbook.study.gaps import Gap
from headbook.terms import MILLION, Kind, Side, Stack

SCHEMA = 4


@dataclass(frozen=True)
class Check:
    """A check that ran while the study was collected.

    Attributes:
        name: what should hold.
        stack: where it was checked; empty where it concerns the whole model.
        error: largest absolute difference, relative to the largest value compared.
        tolerance: what rounding explains.
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
        """What should hold, in which stack, and how far it is from that."""
        where = f" ({self.stack})" if self.stack else ""
        return f"{self.name}{where}, difference {self.error:.2g}"


@dataclass(frozen=True)
class Rounding:
    """What a coarser product with the vocabulary does to ranks.

    Attributes:
        states: states whose ranks were compared with those of the exact product.
        changed: how many of the ranks differ.
        largest: the largest difference.
    """

    side: str
    space: str
    states: int
    changed: int
    largest: int

    def __add__(self, other: "Rounding") -> "Rounding":
        return replace(
            self,
            states=self.states + other.states,
            changed=self.changed + other.changed,
            largest=max(self.largest, other.largest),
        )


@dataclass(frozen=True)
class SetAside:
    """Sentences that could not be measured.

    Attributes:
        sentences: their ids; files and lines of those without.
        why: the error.
        twin: what the model is compared with, if only that has no numbers of them; else empty.
    """

    sentences: tuple[str, ...]
    why: str
    twin: str = ""


@dataclass(frozen=True)
class InputFacts:
    """An input: its name, its hash, and what was found in it.

    Attributes:
        sha256: of a file's bytes, or of a dataset's rows; empty where nothing was read.
        sentences: that were taken.
        blank: lines that were skipped because they are.
        left: sentences that were left out by ``--limit`` or ``--sample``; None where their number
            is not known.
    """

    name: str
    sha256: str
    sentences: int
    blank: int
    left: int | None = 0


@dataclass(frozen=True)
class ModelFacts:
    """A model as it was loaded.

    Attributes:
        revision: commit of a hub model; hash of the weights of a folder or file.
        limit: longest sequence that was let in, in tokens.
        special_tokens: what the tokenizer adds to a text, in order, ``…`` for the text itself.
        missing: parameters that the checkpoint lacks; they are random.
        unexpected: parameters of the checkpoint that the model does not use.
        stored: number formats of the GGUF file that it came from; empty for safetensors.
        bits: those of most weights in that file, where they are quantised; else 0.
    """

    name: str
    revision: str
    architecture: str
    kind: Kind
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


@dataclass(frozen=True)
class Manifest:
    """How a study was made.

    Attributes:
        created: date of the collection, ISO 8601; empty in anonymous studies.
        notes: the author's own words, in Markdown.
        options: every option that decides numbers or pages.
        annotators: name and version of the annotator by side.
        counts: sentences, tokens, words and their like.
        versions: of the libraries that computed the numbers.
        checked_sentences: sentences on which the checks ran.
        roundings: what a coarser product with the vocabulary did there, where it was asked for.
        set_aside: sentences that could not be measured.
        fallbacks: what was measured in another way than planned, in words.
    """

    schema: int
    headbook: str
    created: str
    title: str
    notes: str
    options: Mapping[str, Any]
    model: ModelFacts
    stacks: tuple[Stack, ...]
    annotators: Mapping[str, str]
    inputs: tuple[InputFacts, ...]
    counts: Mapping[str, int]
    versions: Mapping[str, str]
    checks: tuple[Check, ...]
    checked_sentences: int
    gaps: tuple[Gap, ...]
    roundings: tuple[Rounding, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    fallbacks: tuple[str, ...] = ()

    def stack(self, name: str) -> Stack:
        """A stack by name."""
        return next(stack for stack in self.stacks if stack.name == name)

    @property
    def failed(self) -> tuple[str, ...]:
        """The self-checks that failed: what should hold, where, and the difference."""
        return tuple(check.message() for check in self.checks if not check.passed)

    @property
    def places(self) -> int:
        """Sentences that were to be measured; indices of sentences are below it."""
        own = [each for each in self.set_aside if not each.twin]
        return self.counts["sentences"] + sum(len(each.sentences) for each in own)

    @property
    def lacking(self) -> tuple[str, ...]:
        """What was set aside, in words: how many sentences, with the error of the most of them."""
        found: dict[str, Counter[str]] = {}
        for each in self.set_aside:
            found.setdefault(each.twin, Counter())[each.why] += len(each.sentences)
        return tuple(
            f"{errors.total():,} of {self.places:,} sentences could not be measured"
            f"{f' with {twin}' if twin else ''}: {errors.most_common(1)[0][0]}"
            f"{f' (other errors: {len(errors) - 1:,})' if len(errors) > 1 else ''}"
            for twin, errors in found.items()
        )

    def learned_share(self, stack: Stack) -> float:
        """Which share of a stack's attention goes to the learned sink of its softmax."""
        rows = self.counts.get(stack.rows_counted, 0)
        return self.counts.get(stack.learned_counted, 0) / MILLION / rows if rows else 0.0

    def count(self, side: Side, what: str) -> int:
        """A count of one side's texts, 0 where there was none."""
        return self.counts.get(f"{side}.{what}", 0)

    def to_json(self) -> str:
        """The same bytes for the same content."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, indent=1, ensure_ascii=True)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read that of a stored study.

        Raises:
            StudyError: the folder holds none, or one that cannot be read.
        """
        file = folder / MANIFEST
        if not file.is_file():
            raise StudyError(f"{folder}: no {MANIFEST}; expected a folder that collect has written")
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StudyError(f"{file}: {error}; expected a manifest") from error
        return cls.from_json(text)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read what `to_json` wrote.

        Raises:
            StudyError: it was written by another version, or is not a manifest.
        """
        try:
            table = json.loads(text)
            if table["schema"] != SCHEMA:
                raise StudyError(
                    f"manifest.json: schema {table['schema']} came; this version reads {SCHEMA}; "
                    "collect the study again"
                )
            model = table.pop("model")
            model |= {name: tuple(model[name]) for name in ("missing", "unexpected")}
            lists: dict[str, Any] = {
                name: tuple(kind(**row) for row in table.pop(name))
                for name, kind in (("inputs", InputFacts), ("checks", Check), ("gaps", Gap))
            }
            lists["set_aside"] = tuple(
                SetAside(**(row | {"sentences": tuple(row["sentences"])}))
                for row in table.pop("set_aside", ())
            )
            lists["fallbacks"] = tuple(table.pop("fallbacks", ()))
            lists["roundings"] = tuple(Rounding(**row) for row in table.pop("roundings", ()))
            stacks = tuple(_stack(row) for row in table.pop("stacks"))
            facts = ModelFacts(**(model | {"kind": Kind(model["kind"])}))
            return cls(model=facts, stacks=stacks, **lists, **table)
        except (ValueError, KeyError, TypeError) as error:
            raise StudyError(f"manifest.json: {error!r}; expected a manifest") from error


def _stack(row: dict[str, Any]) -> Stack:
    return Stack(
        **(
            row
            | {
                "attention_layers": tuple(row["attention_layers"]),
                "queries": Side(row["queries"]),
                "keys": Side(row["keys"]),
            }
        )
    )
