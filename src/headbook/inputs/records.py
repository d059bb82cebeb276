"""Sentences with their words, records as readers yield them, plain or compressed lines.

And which records are taken (the first, or a hash sample).
"""

import gzip
import hashlib
import heapq
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from headbook.config import Config
from headbook.errors import InputError

# What reading a damaged archive raises; of these, only faults of the disk have a number.
DAMAGE = (EOFError, OSError, zlib.error)


def open_decompressed(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked by what its name ends in.

    Raises:
        DAMAGE: here or when it is read.
    """
    unpack = PACKED.get(path.suffix.lower())
    return path.open("rb") if unpack is None else unpack(path)


def suffix_of(name: str | Path) -> str:
    """What kind of file a name stands for: ``.jsonl`` of ``a.jsonl`` and of ``A.JSONL.gz``."""
    path = Path(str(name).lower())
    return path.with_suffix("").suffix if path.suffix in PACKED else path.suffix


def is_packed(path: Path) -> bool:
    """Whether its name says that it is compressed."""
    return path.suffix.lower() in PACKED


def _gzip(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb"))


def _zstd(path: Path) -> BinaryIO:
    import pyarrow as pa  # noqa: PLC0415 - only such files need it

    stream = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    return cast("BinaryIO", io.BufferedReader(stream))


PACKED: dict[str, Callable[[Path], BinaryIO]] = {".gz": _gzip, ".zst": _zstd}


NO_HEAD = -1


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a sentence.

    Attributes:
        start, end: character offsets into the sentence's text, end exclusive.
        upos: Universal part of speech, or empty where unknown.
        head: index of the syntactic head among the sentence's words; `NO_HEAD` for a root or
            where unknown.
        relation: dependency relation to the head, or empty.
    """

    start: int
    end: int
    upos: str = ""
    head: int = NO_HEAD
    relation: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or passage as it came.

    Attributes:
        index: place in the input, counted from 0 over all files.
        id: the name the input gives it, or empty.
        text: source text, never normalised.
        target: target text of a source-target pair, or None.
        words: annotation that came with the input, or None.
        metadata: the input's other columns.
        origin: file and line, for messages.
        parts: where the sentences of a passage begin and end; empty where it is all one.
        left_out, target_left_out: characters at the end of a very long text, or of its target, that
            were left out before it was tokenized.
    """

    index: int
    id: str
    text: str
    target: str | None = None
    words: tuple[Word, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    parts: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
    target_left_out: int = 0


def joined_words(parts: Iterable[tuple[int, tuple[Word, ...]]]) -> tuple[Word, ...]:
    """The words of several sentences as those of one text.

    Args:
        parts: where each sentence begins in the text, and its words.
    """
    found: list[Word] = []
    for start, words in parts:
        before = len(found)
        if start == before == 0:  # no word moves
            found.extend(words)
            continue
        for word in words:
            head = word.head if word.head == NO_HEAD else word.head + before
            found.append(replace(word, start=word.start + start, end=word.end + start, head=head))
    return tuple(found)


LONGEST = 64 << 20  # bytes of a line, which is held in memory; models take a few thousand tokens
INFLATED = 400  # times its size that an archive may inflate to; text does so 3 to 30 times
BLANKS = 1 << 20  # blank lines in a row; more would be read for minutes, without a sentence
FREE = 64 << 20  # bytes that any archive may inflate to


@dataclass(frozen=True, slots=True)
class Record:
    """One sentence as a file holds it; ``line`` is its line or row, counted from 1."""

    line: int
    text: str
    target: str | None = None
    id: str = ""
    words: tuple[Word, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BlankLine:
    """A blank line, skipped and counted."""

    line: int


Records = Iterator[Record | BlankLine]


@dataclass(frozen=True)
class InputLayout:
    """Where texts stand, in inputs that leave a choice.

    Attributes:
        text_column: of tables and datasets; None: the usual names.
        subset: of a dataset; None: the only one.
        split: the same; None: the usual one.
    """

    text_column: str | None = None
    subset: str | None = None
    split: str | None = None

    @classmethod
    def of(cls, config: Config) -> "InputLayout":
        """What the options say."""
        return cls(config.text_column, config.subset, config.split)


def decoded_lines(path: Path, file_name: str) -> Iterator[str]:
    r"""Lines of a UTF-8 file, each with its end; a byte order mark is dropped.

    Lines end at ``\n`` alone: other Unicode separators are part of the text.

    Raises:
        InputError: bytes that are not UTF-8, with their line; an archive that is damaged; a line
            longer than `LONGEST`, more than `BLANKS` blank lines in a row, or an archive that
            inflates beyond `INFLATED`.
    """
    number, taken, blank = 0, 0, 0  # lines and bytes that could be read; blank lines in a row
    try:
        most = max(FREE, INFLATED * path.stat().st_size) if is_packed(path) else math.inf
        with open_decompressed(path) as stream:
            for number, raw in enumerate(iter(partial(stream.readline, LONGEST + 1), b""), start=1):
                taken += len(raw)
                blank = blank + 1 if raw.isspace() else 0
                if len(raw) > LONGEST:
                    came = f"a line of more than {LONGEST >> 20} MiB"
                    raise _too_large(file_name, number, came)
                if blank > BLANKS:
                    raise _too_large(
                        file_name, number, f"more than {BLANKS:,} blank lines in a row"
                    )
                if taken > most:
                    raise InputError(
                        file_name,
                        number,
                        came=f"an archive that inflates to more than {INFLATED} times its size",
                        expected="text, which compresses less; if that is meant, unpack it",
                    )
                yield _decoded(raw, number, file_name)
    except DAMAGE as error:
        if not is_packed(path) or getattr(error, "errno", None) is not None:
            raise  # of the disk
        kind = path.suffix.lower()
        raise InputError(
            file_name,
            number or None,
            came=f"an archive that is damaged ({' '.join(str(error).split())})",
            expected=f"a whole {kind} file; copy it again, or give the file that it was made from",
        ) from None


def _too_large(file_name: str, number: int, came: str) -> InputError:
    """Return the error to raise if a file would fill the memory, or keep its reader for minutes."""
    return InputError(file_name, number, came=came, expected="one sentence or passage a line")


def _decoded(raw: bytes, number: int, file_name: str) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            file_name,
            number,
            came=f"byte 0x{raw[error.start]:02x} at column {error.start + 1}",
            expected="UTF-8; convert the file, for example with iconv",
        ) from None


@dataclass(frozen=True)
class Selection:
    """Which sentences are taken.

    Attributes:
        limit: the first so many; what stands behind them is not read.
        sample: those with the smallest hashes of their content; all is read, once.
    """

    limit: int | None = None
    sample: int | None = None

    @classmethod
    def of(cls, config: Config) -> "Selection":
        """What the options say."""
        return cls(config.limit, config.sample)


def record_hash(record: Record) -> int:
    """Hash of a sentence's text and target, the same wherever the sentence stands."""
    return _hash(record.text if record.target is None else f"{record.text}\0{record.target}")


class SmallestHashes:
    """The records with the smallest hashes of a stream; no more are kept at any time.

    Equal ones have equal hashes. Where not all of them fit, what else is known of them decides,
    so that neither their order nor the split into files does.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # Largest first: both hashes negative, then the place, file and record.
        self._heap: list[tuple[int, int, int, int, Record]] = []
        self._seen = 0

    def add(self, record: Record, file: int) -> None:
        """Look at the next record of the stream, which stands in a file of that number."""
        self._seen += 1
        content = -record_hash(record)
        full = len(self._heap) == self._size
        if full and content < self._heap[0][0]:
            return
        rest = repr((record.id, sorted(record.metadata.items()), record.words))
        entry = (content, -_hash(rest), -self._seen, file, record)
        if full:
            heapq.heappushpop(self._heap, entry)
        else:
            heapq.heappush(self._heap, entry)

    def chosen(self) -> Iterator[tuple[int, Record]]:
        """Each with the number of its file, in the order in which they came."""
        for *_, file, record in sorted(self._heap, key=lambda entry: -entry[2]):
            yield file, record


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
