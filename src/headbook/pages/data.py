"""The page of a site's files: a number with its row, and what the columns of each file mean."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headbook.pages.parts.blocks import (
    Block,
    Group,
    Lead,
    Page,
    Symbols,
    Table,
    Text,
    blocks,
)
from headbook.report.answers.data import NumberExample
from headbook.report.wording import count_text, number_word, size_text
from headbook.results.sentence import Link, Marked, Sentence, listed, say
from headbook.study.tables import TableSpec

DescribedFile = tuple[str, Mapping[str, str]]  # content of a file, and its columns
Facts = Mapping[str, Mapping[str, Any]]
WITHOUT_SCRIPTS = "a number is a link to its table here; the address names the line."


def data_page(
    data: Path,
    tables: Mapping[str, TableSpec[Any]],
    facts: Facts,
    records: Mapping[str, DescribedFile],
    *,
    figures: int,
    left_out: Sequence[str] = (),
    example: tuple[NumberExample, Table] | None = None,
) -> Page:
    """Return the page of a site's files.

    Args:
        data, tables: folder of tables and records, and the tables by name.
        facts: files and rows of each table, as from `headbook.site.export.table_facts`.
        records: other files with content and fields; a file may be missing.
        left_out: a message for each file that is too large.
        figures: number of charts.
        example: a number with its row; None if no head has a number.
    """
    return Page(
        path="data.html",
        topic="Data",
        title="Where does a number come from?",
        description="Every number of this site as a file, with the meaning of each column.",
        answer=_answer(example),
        scope=(("Files", _formats(facts)), ("Without scripts", WITHOUT_SCRIPTS)),
        blocks=(_origin(*example),) if example else (),
        closer=(
            Group(
                blocks(_tables(data, tables, facts), _left_out(left_out)),
                "Tables", "most rows first", id="tables", link="tables",
            ),
            Group(tuple(_records(data, records)), "Other files", id="records", link="other files"),
            Group((_charts(figures),), "Charts", id="figures", link="charts"),
        ),
        measured=_measured(example),
        scripts=("rows",),
        styles=("plots", "analysis", "blocks", "rows"),  # not every site has small maps
    )  # fmt: skip


def _answer(example: tuple[NumberExample, Table] | None) -> Sentence:
    """Return the answer of the page, with a number as an example if there is one."""
    number = say(", such as {number},", number=example[0].number) if example else ""
    return say(
        "From one row of one table: click a number{example} and its row opens.", example=number
    )


def _formats(facts: Facts) -> str:
    """Return how many tables there are, and how many of them are too large for CSV."""
    plain = [name for name in facts if any(".csv" in href for href in facts[name]["files"])]
    count, others = count_text(len(facts), "table"), len(facts) - len(plain)
    if not others:
        return f"{count}, each as CSV and Parquet."
    return f"{count} as Parquet, all but {number_word(others)} also as CSV."


def _origin(example: NumberExample, row: Table) -> Lead:
    """Return a number beside its row."""
    caption = (
        "What opens on a click: every column of the row with its meaning, the line of Python and "
        "of R that reads the row, and a link that can be cited."
    )
    return Lead(blocks=(Text(example.sentence, "example"), row), caption=caption, id="origin")


def _tables(data: Path, tables: Mapping[str, TableSpec[Any]], facts: Facts) -> Iterator[Group]:
    """Yield the tables of a site, the longest first, each with its files and columns."""
    for name in sorted(facts, key=lambda name: -facts[name]["rows"]):
        note = f"{count_text(facts[name]['rows'], 'row')}: {tables[name].description}"
        files = [(href, data.parent / href) for href in facts[name]["files"]]
        yield _file(name, note, files, tables[name].columns)


def _records(data: Path, records: Mapping[str, DescribedFile]) -> Iterator[Group]:
    """Yield the files that are no tables and that the site has."""
    for name, (what, fields) in records.items():
        if (data / name).exists():
            yield _file(name, what, [(f"data/{name}", data / name)], fields)


def _file(
    name: str, note: str, files: Sequence[tuple[str, Path]], columns: Mapping[str, str]
) -> Group:
    """Return a file, folded, with its addresses and sizes and the meaning of its columns."""
    links = (
        say("{link} {size}", link=Link(href, href),
            size=Marked(size_text(file.stat().st_size), "small"))
        for href, file in files
    )  # fmt: skip
    meanings = tuple((say("{name}", name=Marked(column, "code")), meaning)
                     for column, meaning in columns.items())  # fmt: skip
    of_columns = Symbols(meanings, of_file=True) if meanings else None
    return Group(
        blocks(Text(listed(links, " · ", " · ")), of_columns),
        say("{name}", name=Marked(name, "code")), note, id=name, folded=True,
    )  # fmt: skip


def _left_out(messages: Sequence[str]) -> Text | None:
    """Return which files were too large."""
    return Text(f"{'; '.join(messages)}.", "hint") if messages else None


def _charts(figures: int) -> Text:
    return Text(say(
        "Charts in {folder}: {figures}, each as SVG and PDF (dark on white), and as CSV with the "
        "numbers shown. Links are below the charts. {command} writes them from the study as wide "
        "as a column of a paper, too.",
        folder=Marked("figures/", "code"), figures=figures,
        command=Marked("headbook figures", "code"),
    ))  # fmt: skip


def _measured(example: tuple[NumberExample, Table] | None) -> tuple[Block, ...]:
    """Return what holds for the values of all tables, with a worked example."""
    symbols = Symbols((
        ("value", "Sum of numerators over sum of denominators, over sentences; never a mean of "
         "sentences’ ratios."),
        ("low, high", "Ends of the 95 % confidence interval, clustered by sentence."),
        ("empty", "No observation; – on pages."),
        ("view", "Keys: all, with the sink masked, or with the sink masked and rows renormalised."),
        ("CSV", "UTF-8, commas; large files with gzip, which pandas and R read as they are. "
         "Numbers have six significant digits, ends of intervals are rounded outwards to a "
         "hundredth of their width. Text that begins with = + - or @ is prefixed with an "
         "apostrophe (spreadsheet safety)."),
        ("Parquet", "The same rows, with numbers exactly."),
        ("line", "Line of the CSV, counted from 1; line 1 names the columns."),
    ))  # fmt: skip
    worked = example[0].worked if example else ""
    return blocks(symbols, Text(worked, "eg") if worked else None)
