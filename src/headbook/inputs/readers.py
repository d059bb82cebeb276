"""One reader a file format; each yields records and blanks, and names file and line of a fault."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.records import Blank, Record, Records, decoded_lines

TEXT, SOURCE, TARGET, ID = "text", "source", "target", "id"
COLUMNS = f"a column '{TEXT}', or '{SOURCE}' and '{TARGET}'"


def read_text(path: Path, file_name: str) -> Records:
    """A sentence or passage a line."""
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        text = line.strip()
        yield Record(number, text) if text else Blank(number)


def read_jsonl(path: Path, file_name: str) -> Records:
    """A JSON object a line."""
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        if not line.strip():
            yield Blank(number)
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: numbers beyond all limits, too
            raise InputError(file_name, number, came=str(error), expected="a JSON object") from None
        if not isinstance(row, dict):
            raise InputError(
                file_name, number, came=f"a JSON {type(row).__name__}", expected="a JSON object"
            )
        yield _from_columns(row, number, file_name)


def read_csv(path: Path, file_name: str) -> Records:
    """Comma- or tab-separated columns with a header line."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = csv.reader(decoded_lines(path, file_name), delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        _check_header(header, file_name)
        for row in rows:
            if not any(cell.strip() for cell in row):
                yield Blank(rows.line_num)
            elif len(row) != len(header):
                raise InputError(
                    file_name,
                    rows.line_num,
                    came=f"{len(row)} columns",
                    expected=f"{len(header)}, as in the header line",
                )
            else:
                yield _from_columns(dict(zip(header, row, strict=True)), rows.line_num, file_name)
    except csv.Error as error:
        raise InputError(
            file_name, rows.line_num, came=str(error), expected="columns with matching quotes"
        ) from None


def read_parquet(path: Path, file_name: str) -> Records:
    """A Parquet table; its lines are its rows."""
    import pyarrow as pa  # noqa: PLC0415 - only this format needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    number = 0
    try:
        table = pq.ParquetFile(path)
        _check_header(table.schema_arrow.names, file_name)
        for batch in table.iter_batches(batch_size=1024):
            for row in _rows(batch, number, file_name):
                number += 1
                empty = not any(str(value or "").strip() for value in row.values())
                yield Blank(number) if empty else _from_columns(row, number, file_name)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            file_name,
            number or None,
            came="damage behind this row" if number else "a file that is not Parquet, or damaged",
            expected="a whole Parquet table",
        ) from None


def _rows(batch: Any, before: int, file_name: str) -> list[dict[str, Any]]:
    """Rows of a batch as Python's values, which do not go as far as Parquet's."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError):
        name, position, value = next(_beyond(batch))
        raise InputError(
            file_name,
            before + position + 1,
            came=f"{name} = {value}",
            expected="a date or time from year 1 to 9999, or text",
        ) from None
    return rows


def _beyond(batch: Any) -> Iterator[tuple[str, int, Any]]:
    """Columns and rows of values that Python does not have, and what Parquet holds there."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for index, value in enumerate(column):
            try:
                value.as_py()
            except (ValueError, OverflowError):
                yield name, index, f"{getattr(value, 'value', '?')} ({value.type})"


def _check_header(header: list[str], file_name: str) -> None:
    if TEXT not in header and not {SOURCE, TARGET} <= set(header):
        names = ", ".join(f"'{name}'" for name in header) or "nothing"
        raise InputError(file_name, 1, came=f"columns {names}", expected=COLUMNS)
    double = next((name for name in header if header.count(name) > 1), None)
    if double is not None:
        raise InputError(
            file_name, 1, came=f"column '{double}' twice", expected="each column name once"
        )


def _from_columns(row: Mapping[str, Any], number: int, file_name: str) -> Record:
    """A record from named columns; the columns that are not text are metadata."""
    first = TEXT if TEXT in row else SOURCE
    if first not in row:
        raise InputError(
            file_name, number, came=f"keys {', '.join(map(repr, row)) or 'none'}", expected=COLUMNS
        )
    text, target = row[first], row.get(TARGET)
    if not isinstance(text, str) or not text.strip():
        raise InputError(
            file_name, number, came=f"{first} = {text!r}", expected="text that is not blank"
        )
    if target is not None and not isinstance(target, str):
        raise InputError(file_name, number, came=f"{TARGET} = {target!r}", expected="text")
    for written in (text, target or "", *map(str, row), *map(str, row.values())):
        _check_unicode(written, number, file_name)
    others = {
        key: value if isinstance(value, str) else json.dumps(value, default=str)
        for key, value in row.items()
        if key not in {first, TARGET, ID} and value is not None
    }
    target = (target or "").strip() or None
    return Record(number, text.strip(), target=target, id=str(row.get(ID) or ""), metadata=others)


def _check_unicode(text: str, number: int, file_name: str) -> None:
    """JSON can spell halves of characters, which no encoding holds."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            file_name,
            number,
            came=f"the lone surrogate {text[error.start]!a}",
            expected="whole Unicode characters",
        ) from None
