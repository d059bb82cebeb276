"""The heads nearest to a head."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headbook.report.numbers.results import StackResults
from headbook.report.numbers.similar import Likeness, likeness
from headbook.report.wording import FEW_WORDS, MISSING, THIN, VIEWS, head_name, head_page
from headbook.study.sentencedata import HeadName
from headbook.terms import View

NEAREST = 5


@dataclass(frozen=True)
class Distance:
    """How far two heads are from each other in one view, and whether few rows are behind it."""

    text: str
    note: str
    thin: bool

    @classmethod
    def of(cls, found: Likeness, one: int, other: int) -> "Distance":
        """In nats."""
        value, rows = found.value[one, other], int(found.rows[one, other])
        behind = f"{found.sentences:,} sentences, {rows:,} rows that count for both heads"
        return cls(nats(value), behind, not np.isnan(value) and rows < FEW_WORDS)


@dataclass(frozen=True)
class Neighbour:
    """Another head.

    Attributes:
        name, href: the head and its page.
        distances: by view, in the order of the table.
    """

    name: str
    href: str
    distances: tuple[Distance, ...]


@dataclass(frozen=True)
class Neighbours:
    """The heads nearest to one in a view; ``views`` are the columns of the table."""

    view: str
    views: tuple[str, ...]
    rows: tuple[Neighbour, ...]

    @property
    def title(self) -> str:
        """The keys that decide which heads are nearest, in words."""
        return VIEWS[View(self.view)]

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of the table."""
        return tuple(VIEWS[View(view)] for view in self.views)


def neighbours(results: StackResults) -> Mapping[HeadName, tuple[Neighbours, ...]]:
    """For every head the nearest ones, by view; empty where distances were not measured."""
    found = results.once(likeness)
    heads = next(iter(found.values())).heads if found else ()
    return {
        head: tuple(
            Neighbours(view, tuple(found), tuple(neighbour(found, index, other) for other in near))
            for view, each in found.items()
            if (near := each.nearest(index, NEAREST))
        )
        for index, head in enumerate(heads)
    }


def neighbour(found: Mapping[View, Likeness], one: int, other: int) -> Neighbour:
    """A head as seen from another one."""
    head = next(iter(found.values())).heads[other]
    return Neighbour(
        name=head_name(head),
        href=head_page(head),
        distances=tuple(Distance.of(each, one, other) for each in found.values()),
    )


def nats(value: float) -> str:
    """A divergence in three decimals; what is not nothing never becomes 0 by rounding."""
    if np.isnan(value):
        return MISSING
    return f"<{THIN}0.001" if 0 < value < 0.0005 else f"{value:.3f}"
