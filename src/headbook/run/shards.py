"""Fixed shards of a corpus, and the sum over shards, which is equal for any number of workers.

The sentences are ordered by bucket and hash of their texts. A shard of a large corpus then touches
one or two of the buckets by which models are compared, and its sums stay small. A corpus of one
shard keeps the order of the input.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.inputs import TextRecord
from headbook.inputs.sources import disk_full_error
from headbook.output_folder import temporary_folder
from headbook.study.corpus_sums import CorpusSums
from headbook.study.storage import PackedArrays, from_layout, to_layout
from headbook.study.sums.buckets import MAX_BUCKETS, bucket_of
from headbook.text.batch import SORT_WINDOW, text_hash

SHARD_SENTENCES = SORT_WINDOW  # sentences of a shard; with fewer, batches have more padding
MAX_TRIES = 3  # attempts per shard, after which the run continues without it
SHARDS_PER_GROUP = 64  # shards that are added up before their sum is added to the total


class Readable(Protocol):
    """Collection that returns a sentence by its place in the input."""

    def __getitem__(self, place: int, /) -> TextRecord: ...


@dataclass(frozen=True, eq=False)
class Shards:
    """Shards of a corpus.

    Attributes:
        sentences: sentences by their place in the input.
        order: places of the sentences in the input, in the order of the shards.
            *Shape:* ``(sentence,)``.
        digest: hash of texts, annotation and metadata of all sentences, in the order of the input.
    """

    sentences: Readable
    order: Ints
    digest: str

    def __len__(self) -> int:
        return (len(self.order) + SHARD_SENTENCES - 1) // SHARD_SENTENCES

    def places(self, number: int) -> Ints:
        """Return the places of the sentences of a shard in the input."""
        return self.order[number * SHARD_SENTENCES : (number + 1) * SHARD_SENTENCES]

    def shard(self, number: int, *, as_they_came: bool = False) -> list[TextRecord]:
        """Return the sentences of a shard, in its order or in the order of the input."""
        places = self.places(number)
        ordered = np.sort(places) if as_they_came else places
        return [self.sentences[int(place)] for place in ordered]


def canonical_order(hashes: NDArray[np.uint64]) -> Ints:
    """Order places of sentences by bucket, hash and place; in one shard, by place alone.

    Args:
        hashes: hashes of the sentences' texts. *Shape:* ``(sentence,)``.
    """
    if len(hashes) <= SHARD_SENTENCES:
        return np.arange(len(hashes))
    return np.lexsort((hashes, bucket_of(hashes, MAX_BUCKETS)))


@contextmanager
def split_into_shards(
    sentences: Iterable[TextRecord], size: int, *, paired: bool
) -> Iterator[Shards]:
    """Read sentences once, store them on the disk until the block ends, and divide them.

    Args:
        sentences: sentences in the order of the input.
        size: number of sentences.
        paired: whether the model reads targets, too.

    Raises:
        OutputError: the disk is full.
    """
    digest, hashes = hashlib.blake2b(digest_size=16), np.zeros(size, np.uint64)
    with temporary_folder("sentences") as folder, (folder / "sentences.jsonl").open("w+b") as file:
        offsets = np.zeros(size + 1, np.int64)
        for index, sentence in enumerate(sentences):
            line = json.dumps(to_layout(sentence, "", PackedArrays())).encode() + b"\n"
            digest.update(line)
            texts = (sentence.text, sentence.target if paired else None)
            hashes[index] = text_hash(text for text in texts if text is not None)
            offsets[index + 1] = offsets[index] + len(line)
            _write(file, line)
        _write(file, b"")
        yield Shards(_SentenceFile(file, offsets), canonical_order(hashes), digest.hexdigest())


def _write(file: IO[bytes], line: bytes) -> None:
    """Write a line; without a line, flush the file."""
    try:
        if line:
            file.write(line)
        else:
            file.flush()
    except OSError as error:
        raise disk_full_error("the sentences", error) from error


@dataclass(frozen=True, eq=False)
class _SentenceFile:
    """Sentences as lines of JSON in a file.

    Attributes:
        file: the file.
        offsets: byte at which each line begins, and the end of the last line.
            *Shape:* ``(sentence + 1,)``.
    """

    file: IO[bytes]
    offsets: Ints

    def __getitem__(self, place: int) -> TextRecord:
        start, end = int(self.offsets[place]), int(self.offsets[place + 1])
        self.file.seek(start)
        line = self.file.read(end - start)
        sentence: TextRecord = from_layout(TextRecord, json.loads(line), PackedArrays())
        return sentence


def sum_shards(parts: Iterable[CorpusSums]) -> CorpusSums:
    """Add the sums of shards in their order, with three sums in memory at a time.

    Every addition copies the total. Groups of `SHARDS_PER_GROUP` shards are therefore added up
    first: their sums are small, and the total is copied once for each group.
    """
    total: CorpusSums | None = None
    group: CorpusSums | None = None
    for number, part in enumerate(parts, 1):
        group = part if group is None else group + part
        if number % SHARDS_PER_GROUP == 0:
            total = group if total is None else total + group
            group = None
    if total is None or group is None:
        return total or group or CorpusSums()
    return total + group
