"""Sources of sentences: files, standard input and datasets, with temporary copies if needed.

Other packages add readers by entry points of the group ``headbook.readers``, whose names are the
suffixes of their files; see `headbook.plugins`.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from headbook.errors import HeadbookError, InputError, OutputError, is_out_of_memory
from headbook.inputs.conll import read_conll
from headbook.inputs.conllu import read_conllu
from headbook.inputs.huggingface import DatasetSource, is_id
from headbook.inputs.readers import read_json, read_jsonl, read_table, read_text
from headbook.inputs.records import (
    DECOMPRESSORS,
    DEFAULT_TEXTS,
    BlankLine,
    InputLayout,
    Record,
    Records,
    TextColumns,
    Word,
    is_packed,
    suffix_of,
)
from headbook.inputs.tables import parquet_row_count, read_parquet, read_xlsx
from headbook.output_folder import temporary_folder
from headbook.plugins import READERS, load_plugins, package_of, warn_of
from headbook.resources import sha256

STDIN = "-"  # name of standard input
TREEBANK = ".conllu"  # a treebank has its own words, tags and heads
PARQUET, WORKBOOK = NOT_PACKED = (".parquet", ".xlsx")  # files that are compressed inside

Reader = Callable[[Path, str], Records]
TableReader = Callable[[Path, str, TextColumns], Records]
TEXT_READERS: dict[str, Reader] = {
    ".txt": read_text,
    TREEBANK: read_conllu,
    ".conll": read_conll,
}
TABLE_READERS: dict[str, TableReader] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".csv": read_table,
    ".tsv": read_table,
    ".tab": read_table,
    PARQUET: read_parquet,
    WORKBOOK: read_xlsx,
}
KINDS = (*TEXT_READERS, *TABLE_READERS)
WITH_HEADER = {".csv", ".tsv", ".tab", WORKBOOK}  # kinds of files that begin with a header line
READER = "a function that takes a path and yields records of headbook.inputs.records"


@cache
def other_readers() -> dict[str, tuple[str, Callable[[Path], Any]]]:
    """Return package and reader of each kind of file that another package reads, by suffix."""
    readers: dict[str, tuple[str, Callable[[Path], Any]]] = {}
    for point, reader in load_plugins(READERS, READER):
        suffix = f".{point.name.lower().removeprefix('.')}"
        owner = "Headbook itself" if suffix in KINDS else readers.get(suffix, ("",))[0]
        if owner or suffix in DECOMPRESSORS:
            warn_of(point, f"{suffix} is read by {owner or 'Headbook itself'}", "another suffix")
        elif not callable(reader):
            warn_of(point, f"got a {type(reader).__name__}", READER)
        else:
            readers[suffix] = package_of(point), reader
    return readers


def _read_by_other(path: Path, file_name: str) -> Records:
    """Yield the records of another package's reader, checked.

    Raises:
        InputError: the reader fails, or yields no record; the message names package and suffix.
    """
    kind = suffix_of(path)
    package, reader = other_readers()[kind]
    line = None
    try:
        for record in reader(path):
            if not isinstance(record, Record | BlankLine):
                raise TypeError(f"it yielded a {type(record).__name__}, not a Record or BlankLine")
            line = record.line
            if isinstance(record, Record) and not (
                isinstance(record.text, str) and record.text.strip()
            ):
                raise ValueError("it yielded a Record without text; BlankLine is for blank lines")
            yield record
    except Exception as error:
        if isinstance(error, HeadbookError | OSError) or is_out_of_memory(error):
            raise
        raise InputError(
            file_name,
            line,
            found=f"the reader of {kind} in package {package} failed, "
            f"{type(error).__name__}: {error}",
            expected="a file and a reader that go together",
        ) from error


class InputSource(Protocol):
    """A source of sentences that can be read repeatedly.

    Attributes:
        name: name on pages and in the manifest, without folder.
        kind: extension of the file, such as ``.txt``; empty if it is no file.
        label: path or id as the user gave it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - in the class

    @property
    def kind(self) -> str: ...  # noqa: D102

    @property
    def label(self) -> str: ...  # noqa: D102

    def records(self) -> Records:
        """Yield sentences and blank lines in order."""

    def rows(self) -> int | None:
        """Return the number of sentences and blank lines if known without reading, else None."""

    def sha256(self) -> str | None:
        """Return the hash of the file's bytes, or None if the source is no file."""


@dataclass(frozen=True)
class FileSource:
    """A file as a source of sentences.

    Attributes:
        path: path of the file.
        name: file name, or ``standard input``.
        label: path as the user gave it.
        chosen: columns of the texts in a table.
    """

    path: Path
    name: str
    label: str
    chosen: TextColumns = DEFAULT_TEXTS

    @property
    def kind(self) -> str:
        """Extension of the file below that of a compression."""
        return suffix_of(self.path)

    def records(self) -> Records:
        """Yield sentences and blank lines in order."""
        if self.kind in TABLE_READERS:
            return TABLE_READERS[self.kind](self.path, self.name, self.chosen)
        return TEXT_READERS.get(self.kind, _read_by_other)(self.path, self.name)

    def rows(self) -> int | None:
        """Return the number of rows in a Parquet file's metadata; None for other files."""
        return parquet_row_count(self.path) if self.kind == PARQUET else None

    def sha256(self) -> str:
        """Return the hash of the file's bytes on disk."""
        return sha256(self.path)


def source_of(
    name: str, layout: InputLayout, keep: ExitStack, limit: int | None = None
) -> InputSource:
    """Return the source for the name of an input.

    Args:
        name: path, id of a dataset, or ``-`` for standard input.
        keep: stack that removes temporary copies when it is closed.
        limit: largest number of sentences of all inputs; one more is read from standard input, to
            know whether there are more.

    Raises:
        InputError: the input cannot be read.
        OutputError: no disk space for a copy of standard input.
    """
    if name == STDIN:
        return FileSource(_copy_stdin(keep, limit), "standard input", "standard input")
    path = input_file(name)
    if path is None:
        return DatasetSource.of(name, layout)
    return FileSource(path, path.name, name, layout.texts)


def input_file(name: str) -> Path | None:
    """Return the path of an input file; None for standard input and possible datasets.

    Raises:
        InputError: the input cannot be read.
    """
    if name == STDIN:
        return None
    path = Path(name)
    _check_name(path.name or path.resolve().name)
    try:
        exists, is_file = os.path.lexists(path), path.is_file()
        if path.is_dir() or (not exists and suffix_of(path) not in all_kinds() and is_id(name)):
            return None
        if not is_file:
            path.stat()
            raise InputError(
                name,
                None,
                found="a device or pipe, not a file",
                expected=f"a file, which is read more than once, or {STDIN} for standard input",
            )
    except FileNotFoundError:
        raise InputError(name, None, found="no such file", expected="a file that exists") from None
    except OSError as error:
        raise unreadable_error(name, error) from error
    _check_kind(path, path.name)
    return path


def all_kinds() -> tuple[str, ...]:
    """Return the suffixes of all files that are read, those of other packages last."""
    return (*KINDS, *other_readers())


def ending(name: str) -> str:
    """Return the extension of an input's name, with compression, such as ``.jsonl.gz``, or ""."""
    has_known_suffix = suffix_of(name) in all_kinds()
    return name[name.lower().rindex(suffix_of(name)) :] if has_known_suffix else ""


def unreadable_error(name: str, error: OSError) -> InputError:
    """Return the error to raise if a file cannot be read."""
    return InputError(name, None, found=str(error.strerror), expected="a file that can be read")


def _check_kind(path: Path, file_name: str) -> None:
    """Raise an error for a kind of file that is not read, or not read if compressed."""
    kind = suffix_of(path)
    not_packed = (*NOT_PACKED, *other_readers())
    if kind not in all_kinds():
        compressions = ", ".join(DECOMPRESSORS)
        raise InputError(
            file_name,
            None,
            found=f"a file of kind '{kind or path.name}'",
            expected=f"one of {' '.join(all_kinds())}; all but {' '.join(not_packed)} also with "
            f"{compressions}; or two files of parallel lines such as a.en a.de",
        )
    if kind in not_packed and is_packed(path):
        reason = "which is compressed inside" if kind in NOT_PACKED else "as its reader takes it"
        raise InputError(
            file_name,
            None,
            found=f"a compressed {kind} file",
            expected=f"the {kind} file itself, {reason}; unpack it",
        )


def _check_name(file_name: str) -> None:
    """Raise an error for a name that is not UTF-8, since pages print names of files."""
    try:
        file_name.encode()
    except UnicodeEncodeError:
        name = ascii(file_name).strip("'")
        raise InputError(
            name, None, found="a name that is not UTF-8", expected="one that is; rename the file"
        ) from None


def _copy_stdin(keep: ExitStack, limit: int | None) -> Path:
    """Copy standard input to a temporary file, since inputs are read more than once."""
    if sys.stdin is None or sys.stdin.closed:
        raise _stdin_fault("closed")
    try:
        path = keep.enter_context(temporary_folder("stdin")) / "stdin.txt"
        with path.open("wb") as file:
            n_sentences = 0
            while (limit is None or n_sentences <= limit) and (line := _stdin_line()):
                file.write(line)
                n_sentences += not line.isspace()
    except OSError as error:
        raise disk_full_error("standard input", error) from error
    return path


def disk_full_error(label: str, error: OSError) -> OutputError:
    """Return the error to raise if the disk has no space for a temporary copy."""
    return OutputError(
        f"{label}: {error.strerror} in {tempfile.gettempdir()}, where it is kept while "
        "it is read; expected room for it; the variable TMPDIR names another place"
    )


def _stdin_line() -> bytes:
    """Return the next line of standard input; empty at the end."""
    try:
        return sys.stdin.buffer.readline()
    except (OSError, ValueError) as error:  # ValueError: the stream is open for writing only
        raise _stdin_fault(getattr(error, "strerror", None) or str(error)) from error


def _stdin_fault(found: str) -> InputError:
    return InputError(
        "standard input", None, found=found, expected="one sentence a line, from a pipe or a file"
    )


@dataclass(frozen=True)
class SpooledDataset:
    """Temporary copy of the rows of a dataset read over the network."""

    origin: DatasetSource
    path: Path

    @property
    def name(self) -> str:
        """Name of the dataset, with subset and split."""
        return self.origin.name

    @property
    def kind(self) -> str:
        """Empty: a dataset has no extension."""
        return self.origin.kind

    @property
    def label(self) -> str:
        """Id of the dataset as the user gave it."""
        return self.origin.label

    def records(self) -> Records:
        """Yield the copied rows in order."""
        with self.path.open("rb") as stream:
            yield from map(_record_of_line, stream)

    def rows(self) -> int | None:
        """Return the number of rows of the whole dataset, or None if unknown."""
        return self.origin.rows()

    def sha256(self) -> None:
        """Return None: rows are hashed as those of other datasets."""


def spool(source: InputSource, limit: int | None, keep: ExitStack) -> InputSource:
    """Copy an input that is read over the network to the disk; return other inputs unchanged.

    Args:
        limit: number of sentences; one more is copied, to know whether there are more.
        keep: stack that removes the copy when it is closed.

    Raises:
        OutputError: no disk space for the copy.
    """
    if not isinstance(source, DatasetSource) or not source.remote:
        return source
    lines = _first_sentences(source.records(), limit)  # raises InputError, so not caught below
    try:
        path = keep.enter_context(temporary_folder("dataset")) / "rows.jsonl"
        with path.open("wb") as file:
            file.writelines(map(line_of, lines))
    except OSError as error:
        raise disk_full_error(source.label, error) from error
    return SpooledDataset(source, path)


def _first_sentences(records: Records, limit: int | None) -> Iterator[Record | BlankLine]:
    """Yield records up to one sentence more than the limit."""
    n_sentences = 0
    for record in records:
        yield record
        n_sentences += isinstance(record, Record)
        if limit is not None and n_sentences > limit:
            return


def line_of(record: Record | BlankLine) -> bytes:
    """Return a record as a line of JSON; its words are places alone, as rows have no others."""
    fields: list[Any] = [record.line]
    if isinstance(record, Record):
        words = None if record.words is None else [(w.start, w.end) for w in record.words]
        fields += [
            record.text, record.target, record.second, record.id, words, dict(record.metadata),
            dict(record.class_numbers),
        ]  # fmt: skip
    return json.dumps(fields).encode() + b"\n"


def _record_of_line(line: bytes) -> Record | BlankLine:
    """Return the record of a line that `line_of` has made."""
    number, *fields = json.loads(line)
    if not fields:
        return BlankLine(number)
    text, target, second, name, places, metadata, class_numbers = fields
    words = None if places is None else tuple(Word(*place) for place in places)
    return Record(
        number,
        text,
        target=target,
        second=second,
        id=name,
        words=words,
        metadata=metadata,
        class_numbers=class_numbers,
        bare_words=words is not None,
    )
