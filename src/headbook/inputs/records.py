"""Sentences and words, records of files, reading of (compressed) lines, selection of records."""

import gzip
import hashlib
import heapq
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from headbook.config import Config
from headbook.errors import InputError
from headbook.inputs.encoding import BYTE_ORDER_MARK, raw_lines
from headbook.schema import PAIR_REGIONS

if TYPE_CHECKING:
    from io import BufferedReader

# Raised for a file that cannot be read; without an errno, the file is a damaged archive.
READ_ERRORS = (EOFError, OSError, zlib.error)


def open_decompressed(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed according to its name.

    Raises:
        READ_ERRORS: the file cannot be opened, here or when it is read.
    """
    unpack = DECOMPRESSORS.get(path.suffix.lower())
    return path.open("rb") if unpack is None else unpack(path)


def suffix_of(name: str | Path) -> str:
    """Return the extension in lower case, without a compression's: ``.jsonl`` of ``A.JSONL.gz``."""
    path = Path(str(name).lower())
    return path.with_suffix("").suffix if path.suffix in DECOMPRESSORS else path.suffix


def is_packed(path: Path) -> bool:
    """Whether the name of a file has the extension of a compression."""
    return path.suffix.lower() in DECOMPRESSORS


def _gzip(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb"))


def _bzip2(path: Path) -> BinaryIO:
    import bz2  # noqa: PLC0415 - a Python may be built without it

    is_empty = path.stat().st_size == 0  # as the other formats, of which no bytes are no text
    return path.open("rb") if is_empty else cast("BinaryIO", bz2.open(path, "rb"))


def _zstd(path: Path) -> BinaryIO:
    import pyarrow as pa  # noqa: PLC0415 - only such files need it

    stream = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    return cast("BinaryIO", io.BufferedReader(stream))


DECOMPRESSORS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": _gzip,
    ".bz2": _bzip2,
    ".zst": _zstd,
}


BETWEEN_TEXTS = "\n"  # between the texts of a pair, where both are one text
NO_HEAD = -1  # index of the head of a root, and of a word without a known head


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a sentence.

    Attributes:
        start, end: character offsets into the sentence's text, end exclusive.
        upos: Universal part of speech, empty if unknown.
        head: index of the syntactic head among the sentence's words; `NO_HEAD` for a root or if
            unknown.
        relation: dependency relation to the head, or empty.
    """

    start: int
    end: int
    upos: str = ""
    head: int = NO_HEAD
    relation: str = ""


class Region(NamedTuple):
    """A named part of a text, such as one text of a pair.

    Attributes:
        name: name of the region, which texts of the corpus share.
        start, end: character offsets into the text, end exclusive.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A sentence or passage of the input.

    Attributes:
        index: place in the input, counted from 0 over all files.
        id: name in the input, or empty.
        text: source text, never normalised.
        target: target text of a source-target pair, or None.
        words: words annotated in the input, or None.
        metadata: other columns of the input.
        class_numbers: numbers of the classes that metadata names, by column.
        bare_words: whether `words` are without tags and heads, which the annotator adds.
        origin: file and line, for messages.
        parts: character spans of the sentences of a passage; empty for a single sentence.
        regions: named parts of the text, in order; those of a pair of texts are the two texts.
        is_pair: whether the text consists of two texts, which the tokenizer takes as a pair.
        left_out, target_left_out: number of characters cut from the end of a very long text, or
            of its target, before tokenization.
    """

    index: int
    id: str
    text: str
    target: str | None = None
    words: tuple[Word, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    class_numbers: Mapping[str, int] = field(default_factory=dict)
    bare_words: bool = False
    origin: str = ""
    parts: tuple[tuple[int, int], ...] = ()
    regions: tuple[Region, ...] = ()
    is_pair: bool = False
    left_out: int = 0
    target_left_out: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The two texts of a pair, or the text."""
        if not self.is_pair:
            return (self.text,)
        return tuple(self.text[region.start : region.end] for region in self.regions)

    @property
    def annotated_alone(self) -> tuple[tuple[int, int], ...]:
        """Character spans annotated one by one: sentences of a passage, texts of a pair."""
        if self.is_pair:
            return tuple((region.start, region.end) for region in self.regions)
        return self.parts or ((0, len(self.text)),)


def joined_pair(first: str, second: str) -> tuple[str, tuple[Region, ...]]:
    """Return two texts as one, with the regions of both."""
    start = len(first) + len(BETWEEN_TEXTS)
    regions = (
        Region(PAIR_REGIONS[0], 0, len(first)),
        Region(PAIR_REGIONS[1], start, start + len(second)),
    )
    return f"{first}{BETWEEN_TEXTS}{second}", regions


def within(regions: tuple[Region, ...], length: int) -> tuple[Region, ...]:
    """Return the parts of regions that lie within the first characters of a text."""
    return tuple(
        region._replace(end=min(region.end, length)) for region in regions if region.start < length
    )


def joined_words(parts: Iterable[tuple[int, tuple[Word, ...]]]) -> tuple[Word, ...]:
    """Return the words of several sentences with indices and spans in their joined text.

    Args:
        parts: start of each sentence in the text, and the sentence's words.
    """
    joined: list[Word] = []
    for start, words in parts:
        n_before = len(joined)
        if start == n_before == 0:  # spans and indices of the first sentence stay
            joined.extend(words)
            continue
        for word in words:
            head = word.head if word.head == NO_HEAD else word.head + n_before
            joined.append(replace(word, start=word.start + start, end=word.end + start, head=head))
    return tuple(joined)


MAX_LINE_BYTES = 64 << 20  # a line is held in memory, and models take a few thousand tokens
MAX_COMPRESSION_RATIO = 400  # of an archive; text has a ratio of 3 to 30
MAX_BLANK_LINES = 1 << 20  # in a row; reading more takes minutes and gives no sentence
TOO_MANY_BLANK_LINES = "more than {:,} blank lines in a row"
MIN_ARCHIVE_BYTES = 64 << 20  # to which every archive may inflate, whatever its ratio


class Remark(StrEnum):
    """Remark of a reader on what it skipped, or read in another way; counted in a study."""

    COMMENTS = "blocks of comments skipped"
    LINE_ENDS = "rows with a line end in a cell, which a quote that is not closed makes, too"
    FORMS = "sentences read from their forms, which do not spell their text"


@dataclass(frozen=True, slots=True)
class Record:
    r"""One sentence of a file.

    Attributes:
        line: line or row of the file, counted from 1.
        text: source text.
        target: target text of a pair, or None.
        second: second text of a pair for an encoder, or None. Two texts that a program gives
            without names are both target and second text: the model decides.
        id: name in the file, or empty.
        words: words annotated in the file, or None.
        metadata: other columns.
        class_numbers: numbers of the classes that metadata names, by column.
        remarks: what was done beyond reading the sentence, each with its cause in words.
        bare_words: whether `words` are without tags and heads, which the annotator adds.
        regions: named parts of the text, in order and without overlaps; a pair's follow from its
            texts.
    """

    line: int
    text: str
    target: str | None = None
    second: str | None = None
    id: str = ""
    words: tuple[Word, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    class_numbers: Mapping[str, int] = field(default_factory=dict)
    remarks: Mapping[Remark, str] = field(default_factory=dict)
    bare_words: bool = False
    regions: tuple[Region, ...] = ()

    @property
    def region_names(self) -> tuple[str, ...]:
        """Names of the regions of the text, each once."""
        names = (region.name for region in self.regions)
        return tuple(dict.fromkeys(names)) if self.second is None else PAIR_REGIONS


@dataclass(frozen=True, slots=True)
class BlankLine:
    """A blank line, a row without text, or lines that a remark describes; skipped and counted."""

    line: int
    remark: Remark | None = None


Records = Iterator[Record | BlankLine]


class TextColumns(NamedTuple):
    """Columns of the texts that the user has named.

    Attributes:
        text: column of the text; None for a default column.
        pair: column of the second text of a pair; None for a default column, if there is one.
    """

    text: str | None = None
    pair: str | None = None


DEFAULT_TEXTS = TextColumns()


@dataclass(frozen=True)
class InputLayout:
    """Names of column, subset and split for inputs that offer a choice.

    Attributes:
        text_column: column of the text in tables and datasets; None for the default names.
        pair_column: column of the second text of a pair; None for the default names.
        subset: subset of a dataset; None for the only one.
        split: split of a dataset; None for the default.
    """

    text_column: str | None = None
    pair_column: str | None = None
    subset: str | None = None
    split: str | None = None

    @classmethod
    def of(cls, config: Config) -> "InputLayout":
        """Return the layout that the options of a run name."""
        return cls(config.text_column, config.pair_column, config.subset, config.split)

    @property
    def texts(self) -> TextColumns:
        """Columns of the texts."""
        return TextColumns(self.text_column, self.pair_column)


def decoded_lines(path: Path, file_name: str) -> Iterator[str]:
    r"""Yield the lines of a file in UTF-8 or UTF-16 with their line ends, without byte order marks.

    Lines end at ``\n`` alone, or at ``\r`` in a file that has no ``\n``: other Unicode separators
    are part of the text.

    Raises:
        InputError: the file holds bytes that are not of its encoding or a NUL, is a damaged
            archive, has a line longer than `MAX_LINE_BYTES`, more than `MAX_BLANK_LINES` blank
            lines in a row, or a compression ratio above `MAX_COMPRESSION_RATIO`.
    """
    number = 0
    try:
        max_bytes: float = math.inf
        if is_packed(path):
            max_bytes = max(MIN_ARCHIVE_BYTES, MAX_COMPRESSION_RATIO * path.stat().st_size)
        with open_decompressed(path) as stream:
            lines = raw_lines(cast("BufferedReader", stream), MAX_LINE_BYTES)
            for number, line in _lines_within_limits(lines, file_name, max_bytes):
                yield _decoded(line, number, file_name)
    except UnicodeDecodeError as error:  # of UTF-16; that of UTF-8 has the number of its line
        raise InputError(
            file_name,
            number + 1,
            found=f"a line that is not {error.encoding.upper()}",
            expected="UTF-8; convert the file, for example with iconv",
        ) from None
    except READ_ERRORS as error:
        if not is_packed(path) or getattr(error, "errno", None) is not None:
            raise  # a fault of the disk
        kind = path.suffix.lower()
        raise InputError(
            file_name,
            number or None,
            found=f"an archive that is damaged ({' '.join(str(error).split())})",
            expected=f"a whole {kind} file; copy it again, or give the file that it was made from",
        ) from None


def _lines_within_limits(
    lines: Iterable[bytes], file_name: str, max_bytes: float
) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers, counted from 1.

    Raises:
        InputError: a line, a run of blank lines or the whole stream exceeds its limit.
    """
    n_bytes, n_blank = 0, 0  # bytes read so far; blank lines in a row
    for number, line in enumerate(lines, start=1):
        n_bytes += len(line)
        n_blank = n_blank + 1 if line.isspace() else 0
        if len(line) > MAX_LINE_BYTES:
            raise _too_large(file_name, number, f"a line of more than {MAX_LINE_BYTES >> 20} MiB")
        if n_blank > MAX_BLANK_LINES:
            raise _too_large(file_name, number, TOO_MANY_BLANK_LINES.format(MAX_BLANK_LINES))
        if n_bytes > max_bytes:
            ratio = f"{MAX_COMPRESSION_RATIO} times its size"
            raise InputError(
                file_name,
                number,
                found=f"an archive that inflates to more than {ratio}",
                expected="text, which compresses less; if that is meant, unpack it",
            )
        yield number, line


def within_blank_limit(records: Records, name: str) -> Records:
    """Yield the records of a table or dataset.

    Raises:
        InputError: more than `MAX_BLANK_LINES` rows without text follow each other.
    """
    n_blank = 0
    for record in records:
        n_blank = n_blank + 1 if isinstance(record, BlankLine) else 0
        if n_blank > MAX_BLANK_LINES:
            raise _too_large(name, record.line, TOO_MANY_BLANK_LINES.format(MAX_BLANK_LINES))
        yield record


def _too_large(file_name: str, number: int, found: str) -> InputError:
    """Return the error to raise for lines that would fill the memory or take minutes to read."""
    return InputError(file_name, number, found=found, expected="one sentence or passage a line")


def _decoded(line: bytes, number: int, file_name: str) -> str:
    """Return a line as text, without byte order marks, which joined files have in later lines."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            file_name,
            number,
            found=f"byte 0x{line[error.start]:02x} at column {error.start + 1}",
            expected="UTF-8; convert the file, for example with iconv",
        ) from None
    if "\0" in text:
        raise InputError(
            file_name,
            number,
            found=f"a NUL character at column {text.index(chr(0)) + 1}",
            expected="text in UTF-8; convert the file, for example with iconv",
        )
    return text.replace(BYTE_ORDER_MARK, "")


@dataclass(frozen=True)
class Selection:
    """Choice of sentences of the input.

    Attributes:
        limit: number of sentences, the first ones; the rest is not read.
        sample: number of sentences, those with the smallest hashes; the whole input is read once.
    """

    limit: int | None = None
    sample: int | None = None

    @classmethod
    def of(cls, config: Config) -> "Selection":
        """Return the selection that the options of a run name."""
        return cls(config.limit, config.sample)


def record_hash(record: Record) -> int:
    """Return a hash of a sentence's texts, independent of its position."""
    others = [text for text in (record.target, record.second) if text is not None]
    return _hash("\0".join([record.text, *dict.fromkeys(others)]))


class SmallestHashes:
    """Sample of the records with the smallest hashes of a stream, in constant memory.

    Equal texts have equal hashes. If not all of them fit into the sample, their ids, metadata and
    words decide, so that the sample does not depend on the order of sentences or files.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # A min-heap of negative hashes, so that the largest hash is first to leave.
        self._heap: list[tuple[int, int, int, int, Record]] = []
        self._seen = 0

    def add(self, record: Record, file: int) -> None:
        """Add the next record of the stream, from the file with a number."""
        self._seen += 1
        negative_hash = -record_hash(record)
        full = len(self._heap) == self._size
        if full and negative_hash < self._heap[0][0]:
            return
        annotation = repr((record.id, sorted(record.metadata.items()), record.words))
        entry = (negative_hash, -_hash(annotation), -self._seen, file, record)
        if full:
            heapq.heappushpop(self._heap, entry)
        else:
            heapq.heappush(self._heap, entry)

    def chosen(self) -> Iterator[tuple[int, Record]]:
        """Yield the sampled records with the numbers of their files, in input order."""
        for *_, file, record in sorted(self._heap, key=lambda entry: -entry[2]):
            yield file, record


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
