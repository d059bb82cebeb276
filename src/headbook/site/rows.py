"""Rows of a site's tables behind the numbers that pages print.

The address of a `LinkedNumber` names a table and the values of columns that identify a row.
`SiteRows` finds the row: it computes a table when a page asks for the table first, and keeps an
index of the columns that are asked for, so that a number takes microseconds in a table of a million
rows. `PageRows` puts the lines of the rows into the addresses on one page, and collects the rows
for a file in ``data/rows``, which ``templates/assets/rows.js`` loads when a reader clicks on a
number.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Ints
from headbook.pages.parts.blocks import Cell, Table, row
from headbook.report.answers.data import NumberExample
from headbook.results.number import RowAddress
from headbook.results.sentence import Marked
from headbook.site import export, markup
from headbook.study.tables import RowKey, TableSpec

ROWS_FOLDER = "data/rows"  # folder of the files of pages' rows, from the site's root
MAX_SHARED_ROWS = 100_000  # rows of a table that other processes get instead of computing it
# The address of a row by its values (`LinkedNumber.href`), and the rest of its element.
ROW_ADDRESS = re.compile(r'(?P<page>data\.html\?row=(?P<table>\w+):)(?P<row>\w+=[^"#]*)(?=#\w+")')
ELEMENT_TEXT = re.compile(r"[^>]*>(.*?)</a>", re.DOTALL)
MISSING = ""  # how an address names a missing value, as the CSV has it


class RowPlace(NamedTuple):
    """Place of a row in a table.

    Attributes:
        number: number of the row, from 0.
        line: line of the CSV on which the row begins, from 1; the first line names the columns.
    """

    number: int
    line: int


class _Index(NamedTuple):
    """The rows of a table by the values of some columns.

    Attributes:
        codes: number of each value of each column, from 1; 0 for missing values.
        sizes: how many numbers the values of each column have.
        keys: the values of each row as one number, in ascending order.
        order: row of each key.
    """

    codes: tuple[Mapping[str, int], ...]
    sizes: tuple[int, ...]
    keys: Ints
    order: Ints


class KeptTable:
    """A table with an index of each set of columns by which pages name rows.

    Args:
        frame: the table; texts are kept as categories, which take a tenth of the memory.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._types = frame.dtypes.to_dict()
        texts = [name for name, kind in self._types.items() if pd.api.types.is_string_dtype(kind)]
        self._kept = frame.astype(dict.fromkeys(texts, "category"))
        self._indices: dict[tuple[str, ...], _Index] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._kept)

    def built(self, _: Any = None) -> pd.DataFrame:
        """Return the table as its builder returned it."""
        return self._kept.astype(self._types)

    @property
    def n_lines(self) -> int:
        """Number of lines of the CSV."""
        return len(self) + 1 + int(self._breaks[-1])

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [*self._kept]

    def values(self, places: Iterable[RowPlace]) -> list[list[Any]]:
        """Return the values of some rows, with numbers as the CSV has them; None if missing."""
        # Column by column: frames of texts and numbers are slow to convert.
        rows = export.as_in_csv(self._kept.iloc[[place.number for place in places]])
        columns = (rows[name].tolist() for name in rows)
        cells = zip(*columns, strict=True)
        return [[None if pd.isna(value) else value for value in row] for row in cells]

    def find(self, row: RowKey) -> RowPlace:
        """Return the place of the row with some values of columns.

        Rows that are equal in all columns count as one.

        Raises:
            LookupError: no row or several rows have the values.
        """
        names = tuple(name for name, _ in row)
        if names not in self._indices:
            self._indices[names] = self._index(names)
        codes, sizes, keys, order = self._indices[names]
        key = 0
        for of_column, size, (name, value) in zip(codes, sizes, row, strict=True):
            if (text := str(value)) not in of_column:
                raise LookupError(f"no row has {value!r} in column {name}")
            key = key * size + of_column[text]
        first, end = (int(np.searchsorted(keys, key, side)) for side in ("left", "right"))
        found = order[first:end]
        if not len(found):
            raise LookupError("no row has all of these values")
        if len(found) > 1 and len(self._kept.iloc[found].drop_duplicates()) > 1:
            raise LookupError(f"{len(found):,} rows have these values; expected one")
        number = int(found[0])
        return RowPlace(number, number + 2 + int(self._breaks[min(number, len(self._breaks) - 1)]))

    @cached_property
    def _breaks(self) -> Ints:
        """Line feeds in the rows before each row, and in all rows.

        *Shape:* ``(row + 1,)``; ``(1,)`` if no text has a line feed.
        """
        counts = []
        for name in export.text_columns(self._kept):
            numbers, values = pd.factorize(self._kept[name])  # -1: missing
            of_value = [str(value).count("\n") for value in values]
            if any(of_value):
                counts.append(np.array([*of_value, 0], np.int64)[numbers])
        return np.concatenate([[0], np.cumsum(sum(counts))] if counts else [[0]])

    def _index(self, names: tuple[str, ...]) -> _Index:
        """Return the rows by the values of some columns.

        Raises:
            LookupError: the table lacks a column.
        """
        keys, codes, sizes = np.zeros(len(self), np.int64), [], []
        for name in names:
            if name not in self._kept:
                raise LookupError(f"it has no column {name}")
            numbers, values = pd.factorize(self._kept[name])  # -1: missing
            codes.append({MISSING: 0} | {_text(v): n for n, v in enumerate(values.tolist(), 1)})
            sizes.append(len(values) + 1)
            keys = keys * sizes[-1] + numbers + 1
        order = np.argsort(keys, kind="stable")
        return _Index(tuple(codes), tuple(sizes), keys[order], order)


def _text(value: Any) -> str:
    """Return a value as addresses have it: a whole number without decimals."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _value(value: Any, *, is_printed: bool) -> Cell:
    """Return the value of a column, bold if a page prints it."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return Marked(text, "b") if is_printed else text


@dataclass(frozen=True, eq=False)
class SiteRows:
    """Rows of all tables of a site.

    Attributes:
        tables: the tables by name.
        source: study, comparison or checkpoints from which tables are computed.
        kept: tables that pages asked for.
    """

    tables: Mapping[str, TableSpec[Any]] = field(default_factory=dict)
    source: Any = None
    kept: dict[str, KeptTable] = field(default_factory=dict)

    def table(self, name: str) -> KeptTable:
        """Return a table; it is computed once.

        Raises:
            LookupError: the site has no such table.
        """
        if name not in self.kept:
            if name not in self.tables:
                raise LookupError(f"there is no table {name}")
            self.kept[name] = KeptTable(self.tables[name].build(self.source))
        return self.kept[name]

    @property
    def entries(self) -> Iterator[TableSpec[Any]]:
        """Entries of all tables; tables that pages asked for are not computed again."""
        for name, table in self.tables.items():
            yield replace(table, build=self.kept[name].built) if name in self.kept else table

    def example(self, example: NumberExample, facts: Mapping[str, Mapping[str, Any]]) -> Table:
        """Return the row of an example as a table: columns with their values and meanings.

        Args:
            facts: files and columns of tables, as from `headbook.site.export.table_facts`.
        """
        name, key = example.number.row
        table, of_table = self.table(name), facts[name]
        place = table.find(key)
        cells = tuple(
            row(column, _value(value, is_printed=column == example.column), meaning)
            for (column, meaning, _), value in zip(
                of_table["columns"], table.values([place])[0], strict=True
            )
            if value not in {None, ""}
        )
        file = of_table["files"][0]
        where = f"row {place.number + 1:,}" if file.endswith("parquet") else f"line {place.line:,}"
        return Table(
            ("column", "value", "meaning"), cells, f"{file}, {where}", style="numbers record"
        )

    def shared(self) -> "SiteRows":
        """Return the small tables that pages asked for, to be sent to another process."""
        small = {name: kept for name, kept in self.kept.items() if len(kept) <= MAX_SHARED_ROWS}
        return SiteRows(kept=small)

    def of_page(self, path: str) -> "PageRows":
        """Return the rows of a page, none at first.

        Args:
            path: address of the page from the site's root.
        """
        return PageRows(self, path.removesuffix(".html"))


@dataclass(frozen=True, eq=False)
class PageRows:
    """Rows behind the numbers of one page.

    Attributes:
        site: rows of the site.
        page: address of the page without its ending.
        found: place of each row by table and key.
    """

    site: SiteRows
    page: str
    found: dict[RowAddress, RowPlace] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the rows in scripts."""
        return f"rows-{self.page.replace('/', '-')}"

    @property
    def file(self) -> str:
        """Address of the file of the rows, from the site's root."""
        return f"{ROWS_FOLDER}/{self.name.removeprefix('rows-')}.js"

    def line(self, row: RowAddress) -> int:
        """Return the line of a row in its table's CSV, and collect the row.

        Raises:
            LookupError: there is no such row, or there are several.
        """
        if row not in self.found:
            try:
                self.found[row] = self.site.table(row.table).find(row.key)
            except LookupError as error:
                values = ", ".join(f"{name} {value!r}" for name, value in row.key)
                raise LookupError(
                    f"{self.page}.html: table {row.table}, {values}: {error.args[0]}"
                ) from error
        return self.found[row].line

    def with_lines(self, html: str) -> str:
        """Return the page with lines of rows in place of values, and collect the rows.

        Raises:
            LookupError: an address leads to no row or to several rows.
        """
        return ROW_ADDRESS.sub(self._with_line, html)

    def _with_line(self, match: re.Match[str]) -> str:
        pairs = (part.partition("=") for part in match["row"].split(";"))
        row = tuple((name, unquote(value, errors="surrogatepass")) for name, _, value in pairs)
        try:
            place = self.site.table(match["table"]).find(row)
        except LookupError as error:
            text = ELEMENT_TEXT.match(match.string, match.end())
            values = ", ".join(f"{name} {value!r}" for name, value in row)
            raise LookupError(
                f"{self.page}.html: “{text[1] if text else ''}” is linked to table "
                f"{match['table']}, {values}: {error.args[0]}"
            ) from error
        self.found[RowAddress(match["table"], row)] = place
        return f"{match['page']}{place.line}&amp;on={self.page}"

    def script(self) -> str:
        """Return the page's file: for each table the lines of its CSV and the rows by line.

        A row is a list: first the numbers of the columns that identify the row, then all values.
        """
        tables = dict.fromkeys(table for table, _ in self.found)
        return markup.script(self.name, {table: self._rows(table) for table in tables})

    def _rows(self, name: str) -> dict[str, Any]:
        table = self.site.table(name)
        places = {column: number for number, column in enumerate(table.columns)}
        keys = {place: row for (of, row), place in self.found.items() if of == name}
        rows = {
            str(place.line): [[places[column] for column, _ in key], *values]
            for (place, key), values in zip(keys.items(), table.values(keys), strict=True)
        }
        return {"lines": table.n_lines, "rows": rows}
