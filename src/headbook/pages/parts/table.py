"""Tables as pages print them: titles, rows, and what stands in a cell (`templates/macros.html`)."""

from dataclasses import dataclass
from typing import NamedTuple

from headbook.charts import Drawing
from headbook.pages.parts.cells import Cell
from headbook.report.findings.finding import Link


class Mark(NamedTuple):
    """Words of a cell in an element: ``small``, ``b``, ``bdi``, or ``hidden`` for readers alone."""

    text: str
    tag: str


Part = str | Link | Mark


@dataclass(frozen=True)
class Words:
    """A cell of words.

    Attributes:
        parts: words, links and marked words in order.
        style: class of the cell.
        foreign: whether they are words of the corpus, in any direction of writing.
    """

    parts: tuple[Part, ...]
    style: str = ""
    foreign: bool = False

    @property
    def text(self) -> str:
        """The words alone."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)


def words(*parts: Part, style: str = "", foreign: bool = False) -> Words:
    """A cell of words from its parts; those that are empty are left out."""
    return Words(tuple(p for p in parts if p and p[0]), style, foreign)


DASH = words("–")

Title = str | int | Link | Words  # an integer is the number of a layer
# What stands in a cell: a string is a number without an interval, None what does not apply.
Content = str | Link | Words | Cell | Drawing | None


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        head: what the row is about; None in a row of numbers alone.
        cells: one for each other column.
        style: class of the row.
    """

    head: str | Link | Words | None
    cells: tuple[Content, ...]
    style: str = ""

    @property
    def name(self) -> str:
        """What the row is about, as words."""
        return self.head if isinstance(self.head, str) else self.head.text if self.head else ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: titles.
        rows: in order.
        caption: above it; pages that have links there give it themselves.
        style: class of the table.
        groups: titles above those of all columns but the first, and how many columns each spans.
    """

    columns: tuple[Title, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    style: str = "numbers"
    groups: tuple[tuple[Title, int], ...] = ()
