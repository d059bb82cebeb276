"""What a file reader yields, and the lines it reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headbook.errors import InputError
from headbook.inputs.sentence import Word


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


def decoded_lines(path: Path, file_name: str) -> Iterator[str]:
    r"""Lines of a UTF-8 file, each with its end; a byte order mark is dropped.

    Lines end at ``\n`` alone: other Unicode separators are part of the text.

    Raises:
        InputError: bytes that are not UTF-8, with their line.
    """
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    file_name,
                    number,
                    came=f"byte 0x{raw[error.start]:02x} at column {error.start + 1}",
                    expected="UTF-8; convert the file, for example with iconv",
                ) from None
