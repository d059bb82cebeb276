"""One reading of an input, to find every fault before a model is loaded."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headbook.inputs.records import Blank, Record
from headbook.inputs.selection import Smallest
from headbook.inputs.sentence import NO_HEAD
from headbook.inputs.sources import TREEBANK, Source, unreadable
from headbook.inputs.spool import line_of
from headbook.terms import RELATIONS, UPOS, known_relation


@dataclass(frozen=True)
class InputFile:
    """One input after it has been checked.

    Attributes:
        source: where it is read from.
        sha256: hash of its bytes, of a dataset that of the rows that were read; empty where
            nothing was.
        sentences: that are taken from it.
        blank: lines that were skipped because they are.
        left: sentences (or rows, where only the file's own count is known) that it has beside
            them; None where nobody knows, since it was not read to its end.
        foreign_tags, foreign_relations: names in its own annotation that are none of `UPOS` and
            `RELATIONS`, with how often they occur.
    """

    source: Source
    sha256: str
    sentences: int
    blank: int
    left: int | None = 0
    foreign_tags: Mapping[str, int] = field(default_factory=dict)
    foreign_relations: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How pages and the manifest call it: the file's own name, never its folder."""
        return self.source.name

    @property
    def annotated(self) -> bool:
        """Whether it brings its own words, tags and heads."""
        return self.source.kind == TREEBANK

    def sampled(self, records: Iterable[Record]) -> "InputFile":
        """The same where only these of its sentences are taken."""
        seen = _Seen()
        for record in records:
            seen.add(record)
        taken = seen.kinds[Record]
        tags, relations = seen.foreign()
        return replace(
            self,
            sentences=taken,
            left=self.sentences - taken,
            foreign_tags=tags,
            foreign_relations=relations,
        )


def checked(source: Source, room: int | None, sample: Smallest | None, number: int) -> InputFile:
    """Read an input.

    Args:
        room: how many sentences are taken at most; what stands behind them is not looked at.
        sample: what looks at all of them.
        number: of the input.

    Raises:
        InputError: a fault in it, or it cannot be read.
    """
    seen = _Seen()
    try:
        own = None if room == 0 else source.sha256()
        digest = hashlib.sha256()
        for record in source.records() if room != 0 else ():
            if isinstance(record, Record):
                if seen.kinds[Record] == room:
                    break
                if sample is not None:
                    sample.add(record, number)
            seen.add(record)
            if own is None:
                digest.update(line_of(record))
        else:
            seen.whole = room != 0
        left = 0 if seen.whole else _left(source, seen)
    except OSError as error:
        raise unreadable(source.label, error) from error
    tags, relations = seen.foreign()
    return InputFile(
        source,
        sha256=own or (digest.hexdigest() if seen.kinds else ""),
        sentences=seen.kinds[Record],
        blank=seen.kinds[Blank],
        left=left,
        foreign_tags=tags,
        foreign_relations=relations,
    )


def _left(source: Source, seen: "_Seen") -> int | None:
    """How many rows stand behind those that were read."""
    rows = source.rows()
    left = 0 if rows is None else rows - seen.kinds.total()
    return left if left > 0 else None  # there are more, whatever it says


class _Seen:
    """What the records of an input are, and how their words are annotated."""

    def __init__(self) -> None:
        self.kinds: Counter[type] = Counter()
        self.whole = False
        self._tags: Counter[str] = Counter()
        self._relations: Counter[str] = Counter()

    def add(self, record: Record | Blank) -> None:
        self.kinds[type(record)] += 1
        for word in (isinstance(record, Record) and record.words) or ():
            self._tags[word.upos] += 1
            if word.head != NO_HEAD:
                self._relations[known_relation(word.relation)] += 1

    def foreign(self) -> tuple[dict[str, int], dict[str, int]]:
        """Tags and relations that are not of Universal Dependencies, with how often they occur."""
        return _without(self._tags, UPOS), _without(self._relations, RELATIONS)


def _without(counts: Mapping[str, int], known: Sequence[str]) -> dict[str, int]:
    """Names that are not known; the empty one is none."""
    return {name: n for name, n in counts.items() if name and name not in known}
