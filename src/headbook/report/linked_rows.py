"""Numbers of pages with the row of the table that holds each."""

from typing import NamedTuple
from urllib.parse import quote

from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests
from headbook.report.results import StackResults
from headbook.results.number import Number, RowAddress
from headbook.results.sentence import Link
from headbook.schema import ALL, RELATION, HeadKey, HeadName, Place
from headbook.study.tables import RowKey

Column = HeadKey | tuple[str, str, str]  # metric, view and label


class LinkedNumber(NamedTuple):
    """A printed number that leads to the row of a table that holds it.

    Attributes:
        text: the number with its unit.
        table: name of the table, as in the file ``data/<table>.csv``.
        row: columns and values that identify the row.
    """

    text: str
    table: str
    row: RowKey

    @property
    def place(self) -> RowAddress:
        """Row that holds the number."""
        return RowAddress(self.table, self.row)

    @property
    def href(self) -> str:
        """Address of the row by its values; a written page has the line in place of the values."""
        values = (f"{name}={quote(str(v), '', errors='surrogatepass')}" for name, v in self.row)
        return f"data.html?row={self.table}:{';'.join(values)}#{self.table}"


Part = str | Link | LinkedNumber
Parts = tuple[Part, ...]  # a sentence: words, links and numbers in order


def address_of(target: str | RowAddress) -> str:
    """Return the address of a page, or of a row by its values, from the site's root."""
    return target if isinstance(target, str) else LinkedNumber("", *target).href


def linked(number: Number, format_name: str = "") -> LinkedNumber:
    """Return a number in one of its formats as a part of an answer."""
    return LinkedNumber(number.as_text(format_name), *number.row)


def head_number(text: str, head: HeadName, column: Column) -> LinkedNumber:
    """Return a number of one head, from the table of heads."""
    return LinkedNumber(text, "heads", (*_head(head), *_column(column)))


def relation_number(results: StackResults, tests: RelationTests, n: int, text: str) -> LinkedNumber:
    """Return a number of a tested relation over all sentences, from the table of tests.

    Args:
        n: index of the label.
        text: the number with its unit.
    """
    head = HeadName(results.stack.name, *map(int, tests.head[n]))
    column = METRIC, str(VIEW), tests.labels[n]
    row = (("claim", RELATION), *_head(head), *_column(column), ("split", ALL))
    return LinkedNumber(text, "tests", row)


def head_row(results: StackResults, key: HeadKey, place: Place, text: str) -> LinkedNumber:
    """Return a number of a head that leads to its row."""
    return head_number(text, HeadName(results.stack.name, *place), key)


def _head(head: HeadName) -> RowKey:
    return (("stack", head.stack), ("layer", head.layer), ("head", head.head))


def _column(column: Column) -> RowKey:
    metric, view, label = map(str, column)
    return (("metric", metric), ("view", view), ("label", label))
