"""Files of text, compressed or not, as streams of bytes."""

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

# What reading a damaged archive raises; of these, only faults of the disk have a number.
DAMAGE = (EOFError, OSError, zlib.error)


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked by what its name ends in.

    Raises:
        DAMAGE: here or when it is read.
    """
    unpack = PACKED.get(path.suffix.lower())
    return path.open("rb") if unpack is None else unpack(path)


def kind_of(name: str | Path) -> str:
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
