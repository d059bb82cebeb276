"""What one process hands to others: its arrays through one file that all of them map.

Pickled into a pipe, a study would be in memory twice over in the process that sends it, and once
more in each that receives it. Mapped, its arrays stay on the disk until somebody reads them, and
processes share what they have read. What stands in a file already, as a stored study's large arrays
do, is not written again: all of them map that one.
"""

import io
import mmap
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headbook.study.mappedarrays import Place, place_of

ALIGNED = 64  # bytes; arrays begin at multiples of it


class MappedPickle(NamedTuple):
    """What another process can take up again.

    Attributes:
        pickled: everything but the arrays.
        file: holds these; it must be there until they are taken up.
        ends: where each of them begins and ends.
    """

    pickled: bytes
    file: Path
    ends: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, value: Any, file: Path) -> "MappedPickle":
        """Write the arrays of a picklable value into a file.

        Raises:
            OSError: the file cannot be written.
        """
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
        pickled = stream.getvalue()
        ends = []
        with file.open("wb") as written:
            for buffer in buffers:
                written.write(b"\0" * (-written.tell() % ALIGNED))
                start = written.tell()
                written.write(buffer.raw())
                ends.append((start, written.tell()))
        return cls(pickled, file, tuple(ends))

    def taken(self) -> Any:
        """The value; what is written into its arrays stays in this process."""
        return pickle.loads(self.pickled, buffers=self._mapped())  # noqa: S301 - our own

    def _mapped(self) -> Iterator[memoryview]:
        if not self.file.stat().st_size:  # nothing to map
            yield from (memoryview(b"") for _ in self.ends)
            return
        with self.file.open("rb") as stream:
            whole = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY))
        yield from (whole[start:end] for start, end in self.ends)


class _Pickler(pickle.Pickler):
    """What leaves arrays in files where they are."""

    def reducer_override(self, value: Any) -> tuple[Callable[[Place], Any], tuple[Place]] | Any:
        """How a value is pickled; as usual, but for such an array."""
        place = place_of(value) if isinstance(value, np.ndarray) else None
        return NotImplemented if place is None else (Place.array, (place,))
