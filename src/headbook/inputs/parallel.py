"""Parallel files: two files of texts whose names differ in the extension alone, line by line."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from headbook.errors import InputError
from headbook.inputs.readers import read_text
from headbook.inputs.records import (
    DECOMPRESSORS,
    BlankLine,
    Record,
    Records,
    is_packed,
    suffix_of,
)
from headbook.inputs.sources import InputSource, all_kinds

LANGUAGE = re.compile(r"\.[a-z]{2,3}([-_][a-z0-9]+)*")  # an extension such as .en, .eng_latn


@dataclass(frozen=True)
class ParallelSource:
    """Two files as a source of pairs.

    Attributes:
        source, target: the files.
        label: both paths as the user gave them.
    """

    source: Path
    target: Path
    label: str

    @property
    def name(self) -> str:
        """Names of both files."""
        return f"{self.source.name} + {self.target.name}"

    @property
    def kind(self) -> str:
        """Empty: the extensions are those of languages."""
        return ""

    def records(self) -> Records:
        """Yield pairs in order; lines without a source text are blank.

        Raises:
            InputError: one file has more lines than the other, or is no text.
        """
        sides = [read_text(path, path.name) for path in (self.source, self.target)]
        number = 0
        for number, (source, target) in enumerate(zip_longest(*sides), start=1):
            if source is None or target is None:
                longer, shorter = self.source.name, self.target.name
                if source is None:
                    longer, shorter = shorter, longer
                found = f"no line beside line {number} of {longer}"
                raise InputError(shorter, number, found=found, expected="as many lines in both")
            if isinstance(source, BlankLine):
                yield source
            else:
                text = target.text if isinstance(target, Record) else None
                yield Record(number, source.text, target=text)

    def rows(self) -> None:
        """Return None: lines are counted as they are read."""

    def sha256(self) -> None:
        """Return None: pairs are hashed as they are read."""


def with_pairs(
    inputs: Sequence[str | Path | InputSource],
) -> Iterator[str | Path | InputSource]:
    """Yield inputs, two adjacent parallel files as one source of pairs."""
    rest = [*inputs]
    while rest:
        first, *rest = rest
        if rest and isinstance(first, str | Path) and isinstance(rest[0], str | Path):
            source, target = Path(first), Path(rest[0])
            if are_parallel(source, target):
                yield ParallelSource(source, target, f"{first} {rest.pop(0)}")
                continue
        yield first


def are_parallel(source: Path, target: Path) -> bool:
    """Whether two files exist whose names differ in an extension for a language alone."""
    suffixes = {suffix_of(source), suffix_of(target)}
    return (
        len(suffixes) == 2
        and all(map(LANGUAGE.fullmatch, suffixes))
        and suffixes.isdisjoint({*all_kinds(), *DECOMPRESSORS})
        and _stem(source) == _stem(target)
        and all(map(os.path.isfile, (source, target)))
    )


def _stem(path: Path) -> Path:
    """Return a path without its extension, and without that of a compression."""
    return (path.with_suffix("") if is_packed(path) else path).with_suffix("")
