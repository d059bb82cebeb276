"""The page of a site's files: a number with its row, and what the columns of each file mean."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from headbook.pages.parts.page import AnalysisPage, SentenceParts
from headbook.report.answers.data import NumberExample
from headbook.report.wording import count_text, number_word, size_text
from headbook.study.tables import TableSpec

DescribedFile = tuple[str, Mapping[str, str]]  # content of a file, and its columns
WITHOUT_SCRIPTS = "a number is a link to its table here; the address names the line."


@dataclass(frozen=True)
class DataFile:
    """A table or a record of the site.

    Attributes:
        name: name of its files without their endings.
        what: content of the table or record.
        columns: names of columns or fields with their meaning.
        files: address and size of each of its files.
        rows: number of rows; None for a record.
        width: width of the bar of a table, in per cent: the square root of its share of rows.
    """

    name: str
    what: str
    columns: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    rows: int | None = None
    width: float = 0.0


@dataclass(frozen=True)
class ExampleRow:
    """A number and the row that holds it.

    Attributes:
        example: words with the number.
        place: file and line of the row.
        cells: column, value and meaning of each value that the row has.
    """

    example: NumberExample
    place: str
    cells: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, kw_only=True)
class DataPage(AnalysisPage):
    """The site's files.

    Attributes:
        row: a number with its row; None if no head has a number.
        tables: tables with their columns, the longest first.
        records: other files with their fields.
        figures: how many charts are in ``figures/``.
        left_out: files that were too large, in words.
    """

    template: ClassVar[str] = "data.html"
    scripts = ("rows",)
    styles = ("plots", "analysis", "rows", "data")  # not every site has small maps
    row: ExampleRow | None
    tables: tuple[DataFile, ...]
    records: tuple[DataFile, ...]
    figures: int
    left_out: tuple[str, ...]


def data_page(
    data: Path,
    tables: Mapping[str, TableSpec[Any]],
    facts: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, DescribedFile],
    *,
    figures: int,
    left_out: Sequence[str] = (),
    row: ExampleRow | None = None,
) -> DataPage:
    """Return the page of a site's files.

    Args:
        data: the folder of tables and records.
        tables: entries of tables by name.
        facts: files and number of rows of each table that the site has, as from
            `headbook.site.export.table_facts`.
        records: what other files hold, and their fields, by name; a file may be missing.
        figures: how many charts are files.
        left_out: a message for each file that is too large.
        row: a number with its row.
    """
    listed = _tables(data, tables, facts)
    return DataPage(
        path="data.html",
        topic="Data",
        title="Where does a number come from?",
        description="Every number of this site as a file, with the meaning of each column.",
        answer=_answer(row),
        scope=(
            ("Files", _formats(listed)),
            ("Without scripts", WITHOUT_SCRIPTS),
        ),
        row=row,
        tables=tuple(listed),
        records=tuple(_records(data, records)),
        figures=figures,
        left_out=tuple(left_out),
    )


def _tables(
    data: Path, tables: Mapping[str, TableSpec[Any]], facts: Mapping[str, Mapping[str, Any]]
) -> list[DataFile]:
    """Return the tables of a site, the longest first."""
    longest = max((of["rows"] for of in facts.values()), default=0)
    listed = [
        DataFile(
            name=name,
            what=tables[name].description,
            columns=tuple(tables[name].columns.items()),
            files=tuple((href, _size(data.parent / href)) for href in of["files"]),
            rows=of["rows"],
            width=round(100 * math.sqrt(of["rows"] / max(longest, 1)), 2),
        )
        for name, of in facts.items()
    ]
    return sorted(listed, key=lambda table: -(table.rows or 0))


def _records(data: Path, records: Mapping[str, DescribedFile]) -> Iterator[DataFile]:
    """Yield the files that are no tables and that the site has."""
    for name, (what, fields) in records.items():
        if (data / name).exists():
            size = _size(data / name)
            yield DataFile(name, what, tuple(fields.items()), ((f"data/{name}", size),))


def _answer(row: ExampleRow | None) -> SentenceParts:
    """Return the answer of the page, with a number as an example if there is one."""
    example: SentenceParts = (", such as ", row.example.number, ",") if row else ()
    return ("From one row of one table: click a number", *example, " and its row opens.")


def _formats(tables: Sequence[DataFile]) -> str:
    """Return how many tables there are, and how many of them are too large for CSV."""
    plain = [t for t in tables if any(".csv" in href for href, _ in t.files)]
    count, others = count_text(len(tables), "table"), len(tables) - len(plain)
    if not others:
        return f"{count}, each as CSV and Parquet."
    return f"{count} as Parquet, all but {number_word(others)} also as CSV."


def _size(file: Path) -> str:
    return size_text(file.stat().st_size)
