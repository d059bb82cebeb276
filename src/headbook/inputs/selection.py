"""A part of a large input: its first sentences, or a sample that needs no seed."""

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.config import Config
from headbook.inputs.records import Record


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


def content_hash(record: Record) -> int:
    """Hash of a sentence's text and target, the same wherever the sentence stands."""
    return _hash(record.text if record.target is None else f"{record.text}\0{record.target}")


class Smallest:
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
        content = -content_hash(record)
        full = len(self._heap) == self._size
        if full and content < self._heap[0][0]:
            return
        entry = (content, -_hash(_rest(record)), -self._seen, file, record)
        if full:
            heapq.heappushpop(self._heap, entry)
        else:
            heapq.heappush(self._heap, entry)

    def chosen(self) -> Iterator[tuple[int, Record]]:
        """Each with the number of its file, in the order in which they came."""
        for *_, file, record in sorted(self._heap, key=lambda entry: -entry[2]):
            yield file, record


def _rest(record: Record) -> str:
    return repr((record.id, sorted(record.metadata.items()), record.words))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
