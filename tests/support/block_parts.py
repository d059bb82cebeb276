"""What pages of blocks hold: their blocks, numbers, links and charts."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import pandas as pd

from headbook.charts import Drawing, Figure, Plot
from headbook.pages.parts.blocks import Group, Page
from headbook.report.linked_rows import LinkedNumber
from headbook.results.number import Number
from headbook.site.rows import SiteRows

T = TypeVar("T")
WHOLE = (Number, LinkedNumber, Plot, Figure, Drawing)  # whose own parts are not visited


def parts_of(value: Any) -> Iterator[Any]:
    """Yield a value and everything inside it, in order."""
    yield value
    if isinstance(value, WHOLE):
        return
    if isinstance(value, tuple):
        for part in value:
            yield from parts_of(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from parts_of(getattr(value, field.name))


def every(kind: type[T], value: Any) -> list[T]:
    """Return all values of a type inside another one."""
    return [part for part in parts_of(value) if isinstance(part, kind)]


def group_of(page: Page, name: str) -> Group:
    """Return the group of a page with an id."""
    return next(each for each in every(Group, page) if each.id == name)


class Rows:
    """Rows of a site's tables, in full precision."""

    def __init__(self, rows: SiteRows) -> None:
        self._rows = rows
        self._frames: dict[str, pd.DataFrame] = {}

    def behind(self, number: Number | LinkedNumber) -> dict[str, Any]:
        """Return the row behind a number, by column."""
        name, key = number.row if isinstance(number, Number) else number.place
        table = self._rows.table(name)
        frame = self._frames.setdefault(name, table.built())
        row = frame.iloc[table.find(key).number]
        return {str(column): value for column, value in row.items()}
