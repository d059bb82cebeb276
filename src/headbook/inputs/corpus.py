"""Several files as one stream of sentences."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from headbook.errors import InputError, OutputError
from headbook.inputs.readers import read_csv, read_jsonl, read_parquet, read_text
from headbook.inputs.records import Blank, Record, Records
from headbook.inputs.sentence import NO_HEAD, Sentence
from headbook.inputs.treebank import read_conllu
from headbook.resources import sha256
from headbook.terms import RELATIONS, UPOS, Scheme, known_relation
from headbook.workspace import temporary

STDIN = "-"
BLOCK = 1 << 20  # bytes that are read at once
TREEBANK = ".conllu"  # files of this kind bring their own words, tags and heads

READERS = {
    ".txt": read_text,
    ".jsonl": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
    TREEBANK: read_conllu,
}


@dataclass(frozen=True)
class InputFile:
    """One input file after it has been checked.

    Attributes:
        name: how pages and the manifest call it: the file's own name, never its folder.
        sha256: hash of its bytes.
        sentences, blank: sentences it holds and blank lines that were skipped.
        foreign_tags, foreign_relations: names in its own annotation that are none of `UPOS` and
            `RELATIONS`, with how often they occur.
    """

    name: str
    path: Path
    sha256: str
    sentences: int
    blank: int
    foreign_tags: Mapping[str, int] = field(default_factory=dict)
    foreign_relations: Mapping[str, int] = field(default_factory=dict)


class Corpus:
    """Checked input files; iterating reads them again from the disk.

    Close it, or use it in a ``with`` block, to remove what standard input was kept in.
    """

    def __init__(self, files: Sequence[InputFile], keep: ExitStack) -> None:
        self.files = tuple(files)
        self._keep = keep

    def __len__(self) -> int:
        return sum(file.sentences for file in self.files)

    def __iter__(self) -> Iterator[Sentence]:
        index = 0
        for file in self.files:
            for record in _records(file.path, file.name):
                if isinstance(record, Record):
                    yield _sentence(record, index, file.name)
                    index += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep.close()

    @property
    def scheme(self) -> Scheme:
        """The names of its own annotation; the same in whatever order files and sentences come."""
        tags, relations = Counter[str](), Counter[str]()
        for file in self.files:
            tags.update(file.foreign_tags)
            relations.update(file.foreign_relations)
        return Scheme.of(tags, relations)

    @property
    def pairs(self) -> bool:
        """Whether the first sentence comes with a target."""
        return any(sentence.target is not None for sentence, _ in zip(self, range(1), strict=False))


def open_corpus(inputs: Sequence[str | Path]) -> Corpus:
    """Check input files and open them as one corpus.

    Args:
        inputs: file names; ``-`` is standard input, one sentence a line.

    Raises:
        InputError: a file is missing, of an unknown kind, not UTF-8, broken or without text.
        OutputError: there is no room to keep standard input.
    """
    with ExitStack() as keep:
        files = [_check(str(name), keep) for name in inputs]
        if not any(file.sentences for file in files):
            raise InputError(
                ", ".join(file.name for file in files) or "input",
                None,
                came="no text at all",
                expected="at least one line that is not blank",
            )
        return Corpus(files, keep.pop_all())


def _check(name: str, keep: ExitStack) -> InputFile:
    path = _spool(keep) if name == STDIN else Path(name)
    file_name = "standard input" if name == STDIN else path.name
    _check_name(file_name)
    try:
        if not path.is_file():
            raise InputError(name, None, came="no such file", expected="a file that exists")
        seen = _Seen()
        for record in _records(path, file_name):
            seen.add(record)
    except OSError as error:
        raise InputError(
            name, None, came=str(error.strerror), expected="a file that can be read"
        ) from error
    return InputFile(
        name=file_name,
        path=path,
        sha256=sha256(path),
        sentences=seen.kinds[Record],
        blank=seen.kinds[Blank],
        foreign_tags=_without(seen.tags, UPOS),
        foreign_relations=_without(seen.relations, RELATIONS),
    )


def _without(counts: Mapping[str, int], known: Sequence[str]) -> dict[str, int]:
    """Names that are not known; the empty one is none."""
    return {name: n for name, n in counts.items() if name and name not in known}


class _Seen:
    """What the records of a file are, and how their words are annotated."""

    def __init__(self) -> None:
        self.kinds: Counter[type] = Counter()
        self.tags: Counter[str] = Counter()
        self.relations: Counter[str] = Counter()

    def add(self, record: Record | Blank) -> None:
        self.kinds[type(record)] += 1
        for word in (isinstance(record, Record) and record.words) or ():
            self.tags[word.upos] += 1
            if word.head != NO_HEAD:
                self.relations[known_relation(word.relation)] += 1


def _spool(keep: ExitStack) -> Path:
    """Standard input as a file, since it is read more than once."""
    if sys.stdin is None or sys.stdin.closed:
        raise _stdin_fault("closed")
    try:
        path = keep.enter_context(temporary("stdin")) / "stdin.txt"
        with path.open("wb") as file:
            while block := _read():
                file.write(block)
    except OSError as error:
        raise OutputError(
            f"standard input: {error.strerror} in {tempfile.gettempdir()}, where it is kept while "
            "it is read; expected room for it; the variable TMPDIR names another place"
        ) from error
    return path


def _read() -> bytes:
    """The next bytes of standard input; none at its end."""
    try:
        return sys.stdin.buffer.read(BLOCK)
    except (OSError, ValueError) as error:  # the latter where it is open for writing alone
        raise _stdin_fault(getattr(error, "strerror", None) or str(error)) from error


def _stdin_fault(came: str) -> InputError:
    return InputError(
        "standard input", None, came=came, expected="one sentence a line, from a pipe or a file"
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


def _records(path: Path, file_name: str) -> Records:
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise InputError(
            file_name,
            None,
            came=f"a file of kind '{suffix or path.name}'",
            expected=f"one of {' '.join(READERS)}",
        )
    return READERS[suffix](path, file_name)


def _sentence(record: Record, index: int, file: str) -> Sentence:
    return Sentence(
        index=index,
        id=record.id,
        text=record.text,
        target=record.target,
        words=record.words,
        metadata=record.metadata,
        origin=f"{file}:{record.line}",
    )
