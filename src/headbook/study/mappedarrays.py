"""Large arrays that stay in their file: what is looked at takes memory, once for all processes.

A process that hands such an array to another one hands over where it stands (`Place`).
"""

import json
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST = 1 << 20  # bytes of an array from which on it stays in its file; smaller ones are many
LENGTH = 8  # bytes that say how long the header of a safetensors file is
KINDS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


class Place(NamedTuple):
    """Where an array stands in a file.

    Attributes:
        offset: in bytes.
        written: when the file was written; the same file has the same.
    """

    file: Path
    kind: str
    shape: tuple[int, ...]
    offset: int
    written: int

    def array(self) -> NDArray[Any]:
        """The array, which nobody can write into.

        Raises:
            OSError: the file is not there any more, or another one is.
        """
        if self.file.stat().st_mtime_ns != self.written:
            raise OSError(f"{self.file}: written anew while it was read")
        mapped = _Mapped(self.file, np.dtype(self.kind), "r", self.offset, self.shape)
        mapped.place = self
        return mapped.view(np.ndarray)


class _Mapped(np.memmap[Any, Any]):
    """What maps a part of a file; arrays are views of it."""

    place: Place


def large(path: Path) -> dict[str, NDArray[Any]]:
    """The large arrays of a safetensors file, which stay there.

    Raises:
        OSError, ValueError, LookupError, TypeError: it is none.
    """
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH), "little")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    written, first = path.stat().st_mtime_ns, LENGTH + length
    return {
        name: Place(
            path, KINDS[each["dtype"]], tuple(each["shape"]), first + start, written
        ).array()
        for name, each in header.items()
        for start, end in [each["data_offsets"]]
        if end - start >= LEAST
    }


def place_of(array: NDArray[Any]) -> Place | None:
    """Where an array stands that `large` has given, or a part of one; None of any other."""
    owner = _owner(array)
    if owner is None or not array.flags.c_contiguous:
        return None
    offset = owner.place.offset + array.ctypes.data - owner.ctypes.data
    return owner.place._replace(kind=array.dtype.str, shape=array.shape, offset=offset)


def leave(array: NDArray[Any]) -> None:
    """Let what this process has looked at of such an array stand in the file alone again."""
    owner = _owner(array)
    if owner is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped: Any = owner.base
        mapped.madvise(mmap.MADV_DONTNEED)


def _owner(array: NDArray[Any]) -> _Mapped | None:
    """What maps the file that an array stands in."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, _Mapped):
        owner = owner.base
    return owner if isinstance(owner, _Mapped) else None
