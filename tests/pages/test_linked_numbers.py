"""A number that is a link leads to the row of a table that holds it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from block_parts import every
from headbook.pages.data import data_page
from headbook.report.answers.data import first_number, number_example
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import stack_results
from headbook.report.tables import STUDY_TABLES
from headbook.results.number import Number
from headbook.site import export, rows
from headbook.site.rows import KeptTable, PageRows, SiteRows
from headbook.study.tables import TableSpec
from html_pages import data_file, written_html
from linked_numbers import (
    ADDRESS,
    frame_of,
    holds,
    in_line,
    lines_of,
    linked,
    loss_of,
    numbers_of,
    pages_of,
)
from printed_numbers import tree_of
from sites import Site


def test_a_linked_number_is_the_value_of_its_row(any_site: Site) -> None:
    data, wrong, count = any_site.folder / "data", [], 0
    for page, numbers in pages_of(any_site):
        for number in numbers:
            count += 1
            row = in_line(data, number.table, number.line)
            if not holds(row, number.text, loss_of(data)):
                wrong.append((page.name, *number, row))
    assert count
    assert not wrong


def test_another_line_does_not_hold_the_number(any_site: Site) -> None:
    """The check above finds a link to a wrong row."""
    data = any_site.folder / "data"
    (number, *_) = numbers_of(any_site.folder, any_site.folder / "data.html")
    others = [line for line in (2, 20, 200) if line != number.line]
    found = [in_line(data, number.table, line) for line in others]
    assert not any(holds(row, number.text, loss_of(data)) for row in found)


def test_the_file_of_a_page_has_the_rows_of_its_numbers_and_no_other(any_site: Site) -> None:
    folder = any_site.folder / "data/rows"
    files = {file.name for file in folder.iterdir()}
    for page, numbers in pages_of(any_site):
        name = page.relative_to(any_site.folder).as_posix().removesuffix(".html").replace("/", "-")
        assert (f"{name}.js" in files) == bool(numbers)
        files.discard(f"{name}.js")
        if numbers:
            called, tables = data_file(folder / f"{name}.js")
            assert called == f"rows-{name}"
            in_file = {(table, int(line)) for table, of in tables.items() for line in of["rows"]}
            assert in_file == {(number.table, number.line) for number in numbers}
            check_rows(any_site.folder / "data", tables)
    assert not files


def check_rows(data: Path, tables: dict[str, Any]) -> None:
    """Compare the rows of a page's file with the lines of the tables."""
    _, facts = data_file(data / "tables.js")
    for table, of in tables.items():
        columns = [name for name, *_ in facts[table]["columns"]]
        assert of["lines"] == len(lines_of(data, table)) - 1
        for line, (by, *values) in of["rows"].items():
            row = in_line(data, table, int(line))
            assert [*row] == columns
            assert all(columns[place] in row for place in by)
            for written, value in zip(row.values(), values, strict=True):
                texts = {"" if value is None else str(value), f"'{value}"}
                assert float(written) == value if isinstance(value, float) else written in texts


def test_facts_of_tables_are_those_of_the_files(any_site: Site) -> None:
    data = any_site.folder / "data"
    _, facts = data_file(data / "tables.js")
    assert set(facts) == {file.stem for file in data.glob("*.parquet")}
    for name, of in facts.items():
        frame = frame_of(data, name)
        assert of["rows"] == len(frame)
        assert [(column, text) for column, text, _ in of["columns"]] == [
            *STUDY_TABLES[name].columns.items()
        ]
        texts = {column for column, _, is_text in of["columns"] if is_text}
        assert texts == {c for c in frame if pd.api.types.is_string_dtype(frame[c])}
        assert of["files"][-1] == f"data/{name}.parquet"
        assert all((any_site.folder / file).is_file() for file in of["files"])


# Rows of tables.

SMALL = pd.DataFrame(
    {
        "token": ["a\nb", "=", "", "c"],
        "layer": pd.array([0, 0, 1, None], dtype="Int64"),
        "value": [0.123456789, 2.0, np.nan, 4.0],
        "low": [0.1, 1.9, np.nan, 3.9],
        "high": [0.2, 2.1, np.nan, 4.1],
    }
)
ENTRY: TableSpec[pd.DataFrame] = TableSpec(
    "small", "A small table.", dict.fromkeys([*SMALL], "a column"), lambda frame: frame
)


def address(*row: tuple[str, str | int], table: str = "small") -> str:
    number = LinkedNumber("0.12", table, row)
    return f'<a class="n" href="../{number.href}">{number.text}</a>'


def of_page(path: str = "heads/L00-H01.html") -> PageRows:
    return SiteRows({"small": ENTRY}, SMALL).of_page(path)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ((("token", "a\nb"),), 2),
        ((("token", "="), ("layer", 0)), 4),  # behind a token that fills two lines
        ((("token", ""),), 5),
        ((("layer", ""),), 6),  # a missing value
        ((("value", 2),), 4),
    ],
)
def test_a_row_is_found_by_its_values(
    row: tuple[tuple[str, str | int], ...], line: int, tmp_path: Path
) -> None:
    export.write_table(SMALL, ENTRY, tmp_path)
    page = of_page()
    html = page.with_lines(address(*row))
    assert html == (
        f'<a class="n" href="../data.html?row=small:{line}&amp;on=heads/L00-H01#small">0.12</a>'
    )
    written = in_line(tmp_path, "small", line)
    for name, value in row:
        assert written[name].removeprefix("'") == str(value)
    assert page.file == "data/rows/heads-L00-H01.js"


def test_rows_have_the_digits_of_the_csv(tmp_path: Path) -> None:
    page = of_page()
    page.with_lines(address(("token", "a\nb"), ("layer", 0)))
    (tmp_path / "rows.js").write_text(page.script())
    name, tables = data_file(tmp_path / "rows.js")
    assert name == "rows-heads-L00-H01"
    assert tables == {"small": {"lines": 6, "rows": {"2": [[0, 1], "a\nb", 0, 0.123457, 0.1, 0.2]}}}


@pytest.mark.parametrize(
    ("html", "why"),
    [
        (address(("token", "d")), "no row has 'd' in column token"),
        (address(("token", "="), ("layer", 1)), "no row has all of these values"),
        (address(("layer", 0)), "2 rows have these values; expected one"),
        (address(("head", 0)), "it has no column head"),
        (address(("head", 0), table="big"), "there is no table big"),
    ],
)
def test_a_number_without_its_row_is_an_error_that_names_page_and_number(
    html: str, why: str
) -> None:
    with pytest.raises(LookupError, match=re.escape(why)) as error:
        of_page().with_lines(html)
    assert "heads/L00-H01.html: “0.12” is linked to table" in str(error.value)


def test_equal_rows_count_as_one() -> None:
    twice = pd.concat([SMALL, SMALL], ignore_index=True)
    assert KeptTable(twice).find((("token", "c"),)).number == 3


def test_a_table_is_computed_once_and_given_back_as_it_was() -> None:
    made = []

    def build(frame: pd.DataFrame) -> pd.DataFrame:
        made.append(len(frame))
        return frame

    entry: TableSpec[pd.DataFrame] = TableSpec("small", "", dict.fromkeys([*SMALL], ""), build)
    site = SiteRows({"small": entry, "other": ENTRY}, SMALL)
    for path in ("a.html", "b.html"):
        site.of_page(path).with_lines(address(("token", "c")))
    small, other = site.entries
    pd.testing.assert_frame_equal(small.build(SMALL), SMALL)
    assert made == [len(SMALL)]
    assert other is ENTRY
    assert set(site.kept) == {"small"}


def test_other_processes_get_small_tables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = SiteRows({"small": ENTRY}, SMALL)
    site.table("small")
    assert set(site.shared().kept) == {"small"}
    assert (site.shared().source, site.shared().tables) == (None, {})
    monkeypatch.setattr(rows, "MAX_SHARED_ROWS", len(SMALL) - 1)
    assert not site.shared().kept


# The page of files.


def test_the_example_is_the_largest_share_of_the_sink(encoder_site: Site) -> None:
    study = encoder_site.study
    example = number_example(stack_results(study))
    assert example
    row = dict(example.number.row.key)
    heads = study.heads
    shares = heads[(heads["metric"] == "sink_share") & (heads["view"] == "raw")]
    largest = shares.iloc[int(shares["value"].argmax())]
    assert all(largest[name] == value for name, value in row.items())
    assert f"their ratio is {largest['value']:.6g}." in example.worked
    top, bottom = re.findall(r"(?:numerators|denominators) ([\d,.e+-]+),", example.worked)
    ratio = float(top.replace(",", "")) / float(bottom.replace(",", ""))
    assert ratio == pytest.approx(largest["value"], rel=1e-5)


def test_without_shares_of_the_sink_another_number_is_the_example(pair_site: Site) -> None:
    example = number_example(pair_site.results)
    assert example
    assert dict(example.number.row.key)["metric"] != "sink_share"
    assert example.number.as_text() in written_html(pair_site.folder / "data.html")


def test_the_first_number_of_a_table_names_its_row() -> None:
    frame = pd.DataFrame(
        {
            "stack": "self", "layer": [0, 1], "head": pd.array([None, 2], dtype="Int64"),
            "metric": "sink_share", "view": "raw", "label": "", "a": 0.5,
            "difference": [0.3, 0.25],
        }
    )  # fmt: skip
    entry: TableSpec[Any] = TableSpec(
        "differences", "", dict.fromkeys([*frame], ""), lambda _: frame
    )
    example = first_number(entry, frame, "difference")
    assert example
    assert example.number.row.key == (
        ("stack", "self"), ("layer", 1), ("head", 2), ("metric", "sink_share"), ("view", "raw"),
        ("label", ""),
    )  # fmt: skip
    assert KeptTable(frame).find(example.number.row.key).number == 1
    assert first_number(entry, frame.assign(difference=np.nan), "difference") is None


def test_without_a_number_the_page_of_files_has_no_example(tmp_path: Path) -> None:
    export.write_table(SMALL, ENTRY, tmp_path)
    tables = {"small": ENTRY}
    facts = export.table_facts(tables.values(), tmp_path)
    page = data_page(tmp_path, tables, facts, {}, figures=0)
    assert page.blocks == ()
    assert not every(Number, page.answer)


def test_the_page_of_files_shows_the_row_of_its_example(any_site: Site) -> None:
    main = next(tree_of(written_html(any_site.folder / "data.html")).every("main"))
    (figure,) = main.every("figure")
    answer = next(node for node in main.every("p") if node.attributes.get("class") == "answer")
    (number,), (again,) = linked(figure), linked(answer)
    assert number.text() == again.text()
    match = ADDRESS.fullmatch(number.attributes["href"])
    assert match
    table, line = match[1], int(match[2])
    row = in_line(any_site.folder / "data", table, line)
    (body,) = figure.every("tbody")
    values = {name.text(): value.text() for name, value, _ in (r.elements for r in body.elements)}
    assert set(values) == {name for name, value in row.items() if value}
    for name, value in values.items():
        written = row[name]
        assert value == written or float(value) == pytest.approx(float(written), rel=1e-5)
    assert f"line {line:,}" in figure.text()
