"""What a file reader yields, and the lines it reads."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headbook.config import Config
from headbook.errors import InputError
from headbook.inputs.packed import DAMAGE, is_packed, opened
from headbook.inputs.sentence import Word

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
class Blank:
    """A blank line, skipped and counted."""

    line: int


Records = Iterator[Record | Blank]


@dataclass(frozen=True)
class Layout:
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
    def of(cls, config: Config) -> "Layout":
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
        with opened(path) as stream:
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
