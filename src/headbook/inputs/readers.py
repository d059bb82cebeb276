"""Readers of lines of text, JSON, and comma- or tab-separated columns."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.records import (
    DEFAULT_TEXTS,
    BlankLine,
    Record,
    Records,
    Remark,
    TextColumns,
    decoded_lines,
    suffix_of,
)
from headbook.inputs.rows import check_header, names_text, record_of, record_of_cells

COMMA, SEMICOLON, TAB = ",", ";", "\t"
SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n?", re.IGNORECASE)  # which spreadsheets write
QUOTE = '"'
TAB_SUFFIXES = (".tsv", ".tab")  # of files whose columns are separated by tabs


def read_text(path: Path, file_name: str) -> Records:
    """Yield one sentence or passage per line."""
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        text = line.strip()
        yield Record(number, text) if text else BlankLine(number)


def read_jsonl(path: Path, file_name: str, chosen: TextColumns = DEFAULT_TEXTS) -> Records:
    """Yield one record per line with a JSON object; ``chosen`` names the keys of its texts."""
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        if not line.strip():
            yield BlankLine(number)
            continue
        row = _parsed(line, number, file_name, "a JSON object")
        yield _record_of_object(row, number, file_name, chosen)


def read_json(path: Path, file_name: str, chosen: TextColumns = DEFAULT_TEXTS) -> Records:
    """Yield one record per object of a list, or per line as `read_jsonl` does.

    A list is held in memory; the number of a record is its place in the list, from 1.
    """
    lines = decoded_lines(path, file_name)
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("["):
        rows = _parsed("".join(chain([first], lines)), None, file_name, "a list of JSON objects")
        for number, row in enumerate(rows, start=1):
            yield _record_of_object(row, number, file_name, chosen)
    else:
        yield from read_jsonl(path, file_name, chosen)


def _parsed(text: str, number: int | None, file_name: str, expected: str) -> Any:
    """Return the value of a text of JSON.

    Raises:
        InputError: the text is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: numbers beyond all limits, too
        too_deep = isinstance(error, RecursionError)
        found = "JSON nested too deeply" if too_deep else str(error)
        raise InputError(file_name, number, found=found, expected=expected) from None


def _record_of_object(
    row: Any, number: int, file_name: str, chosen: TextColumns
) -> Record | BlankLine:
    """Return the record of a value of JSON.

    Raises:
        InputError: the value is no object, or has no text.
    """
    if not isinstance(row, dict):
        found = f"a JSON {type(row).__name__}"
        raise InputError(file_name, number, found=found, expected="a JSON object")
    return record_of(row, number, file_name, chosen)


def read_table(path: Path, file_name: str, chosen: TextColumns = DEFAULT_TEXTS) -> Records:
    """Yield one record per row of columns with a header line.

    Columns are separated by the character that the suffix stands for, or else by the one with
    which the header has a column of text, or by the one that a first line such as ``sep=;`` names.
    """
    lines = decoded_lines(path, file_name)
    n_before, first = 0, next(lines, "")
    if match := SEPARATOR_LINE.fullmatch(first):
        n_before, first = 1, next(lines, "")
        separator = match[1]
    else:
        separator = _separator(first, chosen, TAB if suffix_of(path) in TAB_SUFFIXES else COMMA)
    rows = _rows(chain([first], lines), separator)
    try:
        _, header = next(rows)
        check_header(header, file_name, chosen)
        for number, cells in rows:
            record = record_of_cells(header, cells, n_before + number, file_name, chosen)
            if isinstance(record, Record) and any("\n" in cell or "\r" in cell for cell in cells):
                record = replace(record, remarks={Remark.LINE_ENDS: f"line {n_before + number}"})
            yield record
    except CellError as error:
        raise InputError(
            file_name, n_before + error.line, found=str(error), expected=error.expected
        ) from None


class CellError(Exception):
    """Quotes that do not enclose whole cells, or a cell that is too long, with its line."""

    def __init__(self, error: csv.Error, line: int) -> None:
        limit = csv.field_size_limit()
        too_long = "field limit" in str(error)
        super().__init__(f"a cell of more than {limit:,} characters" if too_long else str(error))
        self.line = line
        self.expected = (
            "shorter cells, and quotes that close; long texts can be lines of a .txt or .jsonl file"
            if too_long
            else "columns with matching quotes"
        )


def _rows(lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the last line and the cells of each row.

    Cells between tabs hold no line end, as corpora write them: quotes are part of the text unless
    they enclose the cell and all quotes inside are doubled.

    Raises:
        CellError: the quotes of rows with another separator do not match, or a cell is too long.
    """
    if separator == TAB:
        for number, line in enumerate(lines, start=1):
            yield number, [*map(_unquoted, line.rstrip("\r\n").split(TAB))]
        return
    rows = csv.reader(lines, delimiter=separator, strict=True)
    try:
        for cells in rows:
            yield rows.line_num, cells
    except csv.Error as error:
        raise CellError(error, rows.line_num) from None


def _unquoted(cell: str) -> str:
    """Return a cell without the quotes around it, if all quotes inside are doubled."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell.startswith(QUOTE) and cell.endswith(QUOTE)
    if not quoted or QUOTE in inner.replace(2 * QUOTE, ""):
        return cell
    return inner.replace(2 * QUOTE, QUOTE)


def _separator(header: str, chosen: TextColumns, usual: str) -> str:
    """Return the usual separator, or another that makes a column of text of a header line."""
    separators = (usual, *(mark for mark in (COMMA, SEMICOLON, TAB) if mark != usual))
    return next((mark for mark in separators if _has_text(header, mark, chosen)), usual)


def _has_text(header: str, separator: str, chosen: TextColumns) -> bool:
    """Whether a header line that is split at a separator names the column of a text."""
    try:
        _, cells = next(_rows([header], separator))
    except CellError:
        return False
    return names_text(cells, chosen)
