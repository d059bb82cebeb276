"""What can be read only once, kept on the disk."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headbook.inputs.huggingface import DatasetSource
from headbook.inputs.records import Blank, Record, Records
from headbook.inputs.sources import Source, no_room
from headbook.output_folder import temporary_folder


@dataclass(frozen=True)
class Spooled:
    """Rows of a dataset that came over the network."""

    origin: DatasetSource
    path: Path

    @property
    def name(self) -> str:
        """The dataset's."""
        return self.origin.name

    @property
    def kind(self) -> str:
        """The dataset's."""
        return self.origin.kind

    @property
    def label(self) -> str:
        """The dataset's."""
        return self.origin.label

    def records(self) -> Records:
        """What came, in its order."""
        with self.path.open("rb") as stream:
            for line in stream:
                number, *fields = json.loads(line)
                yield Record(number, *fields) if fields else Blank(number)

    def rows(self) -> int | None:
        """How many the dataset says that it has, not only those kept."""
        return self.origin.rows()

    def sha256(self) -> None:
        """None: rows are hashed as those of other datasets are."""


def spooled(source: Source, room: int | None, keep: ExitStack) -> Source:
    """Keep an input that comes over the network; any other is given back.

    Args:
        room: how many sentences are wanted; one more is kept, which tells that there are more.

    Raises:
        OutputError: there is no room for it.
    """
    if not isinstance(source, DatasetSource) or not source.remote:
        return source
    lines = _first(source.records(), room)  # its faults are no faults of the disk
    try:
        path = keep.enter_context(temporary_folder("dataset")) / "rows.jsonl"
        with path.open("wb") as file:
            file.writelines(map(line_of, lines))
    except OSError as error:
        raise no_room(source.label, error) from error
    return Spooled(source, path)


def _first(records: Records, room: int | None) -> Iterator[Record | Blank]:
    taken = 0
    for record in records:
        yield record
        taken += isinstance(record, Record)
        if room is not None and taken > room:
            return


def line_of(record: Record | Blank) -> bytes:
    """A row as a line of JSON."""
    fields = (
        [record.line, record.text, record.target, record.id, None, dict(record.metadata)]
        if isinstance(record, Record)
        else [record.line]
    )
    return json.dumps(fields).encode() + b"\n"
