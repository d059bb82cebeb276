"""What an input may be (file, standard input, dataset).

And a copy on disk of what can be read only once.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headbook.errors import InputError, OutputError
from headbook.inputs.conllu import read_conllu
from headbook.inputs.huggingface import DatasetSource, is_id
from headbook.inputs.readers import parquet_row_count, read_csv, read_jsonl, read_parquet, read_text
from headbook.inputs.records import (
    PACKED,
    BlankLine,
    InputLayout,
    Record,
    Records,
    is_packed,
    suffix_of,
)
from headbook.output_folder import temporary_folder
from headbook.resources import sha256

STDIN = "-"
TREEBANK, PARQUET = ".conllu", ".parquet"  # the former brings its own words, tags and heads

Reader = Callable[[Path, str], Records]
TableReader = Callable[[Path, str, str | None], Records]
LINES: dict[str, Reader] = {".txt": read_text, TREEBANK: read_conllu}
TABLES: dict[str, TableReader] = {
    ".jsonl": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_csv,
    PARQUET: read_parquet,
}
KINDS = (*LINES, *TABLES)
WITH_HEADER = {".csv", ".tsv"}


class InputSource(Protocol):
    """Something that sentences are read from, as often as asked.

    Attributes:
        name: how pages and the manifest call it; never its folder.
        kind: of file, such as ``.txt``; empty for what is none.
        label: where it is, as the user said it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - above

    @property
    def kind(self) -> str: ...  # noqa: D102

    @property
    def label(self) -> str: ...  # noqa: D102

    def records(self) -> Records:
        """Sentences and blanks, in order."""

    def rows(self) -> int | None:
        """How many those are, where that is known without reading them."""

    def sha256(self) -> str | None:
        """Hash of its bytes; None where it has none of its own."""


@dataclass(frozen=True)
class FileSource:
    """A file.

    Attributes:
        column: of its text, where it is a table and this is not a usual one.
    """

    path: Path
    name: str
    label: str
    column: str | None = None

    @property
    def kind(self) -> str:
        """What its name ends in, whatever it is packed with."""
        return suffix_of(self.path)

    def records(self) -> Records:
        """Its sentences and blank lines."""
        if self.kind in TABLES:
            return TABLES[self.kind](self.path, self.name, self.column)
        return LINES[self.kind](self.path, self.name)

    def rows(self) -> int | None:
        """How many rows the end of a Parquet file says that it has; None for all others."""
        return parquet_row_count(self.path) if self.kind == PARQUET else None

    def sha256(self) -> str:
        """Hash of its bytes, as they are on the disk."""
        return sha256(self.path)


def source_of(
    name: str, layout: InputLayout, keep: ExitStack, limit: int | None = None
) -> InputSource:
    """Find out what an input is.

    Args:
        keep: what must be closed at the end.
        limit: how many sentences are wanted of all inputs; of standard input no more are read than
            tell that there are more.

    Raises:
        InputError: it is nothing that can be read.
        OutputError: there is no room to keep standard input.
    """
    if name == STDIN:
        return FileSource(_spool(keep, limit), "standard input", "standard input")
    path = input_file(name)
    if path is None:
        return DatasetSource.of(name, layout)
    return FileSource(path, path.name, name, layout.text_column)


def input_file(name: str) -> Path | None:
    """The file that an input is; None for standard input and what may be a dataset.

    Raises:
        InputError: it is nothing that can be read.
    """
    if name == STDIN:
        return None
    path = Path(name)
    _check_name(path.name or path.resolve().name)
    try:
        there, is_file = os.path.lexists(path), path.is_file()
        if path.is_dir() or (not there and suffix_of(path) not in KINDS and is_id(name)):
            return None
        if not is_file:
            path.stat()
            raise InputError(
                name,
                None,
                came="a device or pipe, not a file",
                expected=f"a file, which is read more than once, or {STDIN} for standard input",
            )
    except FileNotFoundError:
        raise InputError(name, None, came="no such file", expected="a file that exists") from None
    except OSError as error:
        raise unreadable_error(name, error) from error
    _check_kind(path, path.name)
    return path


def ending(name: str) -> str:
    """What says of a name which kind of file it is: ``.jsonl.gz`` of ``a.jsonl.gz``."""
    known = suffix_of(name) in KINDS
    return name[name.lower().rindex(suffix_of(name)) :] if known else ""


def unreadable_error(name: str, error: OSError) -> InputError:
    """What is said of a file that the system does not give."""
    return InputError(name, None, came=str(error.strerror), expected="a file that can be read")


def _check_kind(path: Path, file_name: str) -> None:
    kind = suffix_of(path)
    if kind not in KINDS:
        raise InputError(
            file_name,
            None,
            came=f"a file of kind '{kind or path.name}'",
            expected=f"one of {' '.join(KINDS)}; all but {PARQUET} also with {' or '.join(PACKED)}",
        )
    if kind == PARQUET and is_packed(path):
        raise InputError(
            file_name,
            None,
            came="a compressed Parquet file",
            expected=f"the {PARQUET} file itself, which is compressed inside; unpack it",
        )


def _check_name(file_name: str) -> None:
    """Pages name their files, in UTF-8."""
    try:
        file_name.encode()
    except UnicodeEncodeError:
        name = ascii(file_name).strip("'")
        raise InputError(
            name, None, came="a name that is not UTF-8", expected="one that is; rename the file"
        ) from None


def _spool(keep: ExitStack, limit: int | None) -> Path:
    """Standard input as a file, since it is read more than once."""
    if sys.stdin is None or sys.stdin.closed:
        raise _stdin_fault("closed")
    try:
        path = keep.enter_context(temporary_folder("stdin")) / "stdin.txt"
        with path.open("wb") as file:
            taken = 0
            while (limit is None or taken <= limit) and (line := _read()):
                file.write(line)
                taken += not line.isspace()
    except OSError as error:
        raise disk_full_error("standard input", error) from error
    return path


def disk_full_error(what: str, error: OSError) -> OutputError:
    """What is said where the disk does not take what is read only once."""
    return OutputError(
        f"{what}: {error.strerror} in {tempfile.gettempdir()}, where it is kept while "
        "it is read; expected room for it; the variable TMPDIR names another place"
    )


def _read() -> bytes:
    """The next line of standard input; nothing at its end."""
    try:
        return sys.stdin.buffer.readline()
    except (OSError, ValueError) as error:  # the latter where it is open for writing alone
        raise _stdin_fault(getattr(error, "strerror", None) or str(error)) from error


def _stdin_fault(came: str) -> InputError:
    return InputError(
        "standard input", None, came=came, expected="one sentence a line, from a pipe or a file"
    )


@dataclass(frozen=True)
class SpooledDataset:
    """Rows of a dataset that came over the network."""

    origin: DatasetSource
    path: Path

    @property
    def name(self) -> str:
        """The dataset's."""
        return self.origin.name

    @property
    def kind(self) -> str:
        """The dataset's."""
        return self.origin.kind

    @property
    def label(self) -> str:
        """The dataset's."""
        return self.origin.label

    def records(self) -> Records:
        """What came, in its order."""
        with self.path.open("rb") as stream:
            for line in stream:
                number, *fields = json.loads(line)
                yield Record(number, *fields) if fields else BlankLine(number)

    def rows(self) -> int | None:
        """How many the dataset says that it has, not only those kept."""
        return self.origin.rows()

    def sha256(self) -> None:
        """None: rows are hashed as those of other datasets are."""


def spool(source: InputSource, limit: int | None, keep: ExitStack) -> InputSource:
    """Keep an input that comes over the network; any other is given back.

    Args:
        limit: how many sentences are wanted; one more is kept, which tells that there are more.

    Raises:
        OutputError: there is no room for it.
    """
    if not isinstance(source, DatasetSource) or not source.remote:
        return source
    lines = _first(source.records(), limit)  # its faults are no faults of the disk
    try:
        path = keep.enter_context(temporary_folder("dataset")) / "rows.jsonl"
        with path.open("wb") as file:
            file.writelines(map(line_of, lines))
    except OSError as error:
        raise disk_full_error(source.label, error) from error
    return SpooledDataset(source, path)


def _first(records: Records, limit: int | None) -> Iterator[Record | BlankLine]:
    taken = 0
    for record in records:
        yield record
        taken += isinstance(record, Record)
        if limit is not None and taken > limit:
            return


def line_of(record: Record | BlankLine) -> bytes:
    """A row as a line of JSON."""
    fields = (
        [record.line, record.text, record.target, record.id, None, dict(record.metadata)]
        if isinstance(record, Record)
        else [record.line]
    )
    return json.dumps(fields).encode() + b"\n"
