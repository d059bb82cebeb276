"""Readers of text, JSON lines, CSV/TSV and Parquet files."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.records import BlankLine, Record, Records, decoded_lines, suffix_of

TEXT, SOURCE, TARGET, ID = "text", "source", "target", "id"
DEFAULT_COLUMNS = f"a column '{TEXT}', or '{SOURCE}' and '{TARGET}'; --text-column takes another"


def read_text(path: Path, file_name: str) -> Records:
    """Yield one sentence or passage per line."""
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        text = line.strip()
        yield Record(number, text) if text else BlankLine(number)


def read_jsonl(path: Path, file_name: str, column: str | None = None) -> Records:
    """Yield one record per line with a JSON object; ``column`` is the key of its text, if given."""
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        if not line.strip():
            yield BlankLine(number)
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: numbers beyond all limits, too
            too_deep = isinstance(error, RecursionError)
            found = "JSON nested too deeply" if too_deep else str(error)
            raise InputError(file_name, number, found=found, expected="a JSON object") from None
        if not isinstance(row, dict):
            raise InputError(
                file_name, number, found=f"a JSON {type(row).__name__}", expected="a JSON object"
            )
        yield record_of(row, number, file_name, column)


def read_csv(path: Path, file_name: str, column: str | None = None) -> Records:
    """Yield one record per row of comma- or tab-separated columns with a header line."""
    delimiter = "\t" if suffix_of(path) == ".tsv" else ","
    rows = csv.reader(decoded_lines(path, file_name), delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        check_header(header, file_name, column)
        for row in rows:
            if not any(cell.strip() for cell in row):
                yield BlankLine(rows.line_num)
            elif len(row) != len(header):
                raise InputError(
                    file_name,
                    rows.line_num,
                    found=f"{len(row)} columns",
                    expected=f"{len(header)}, as in the header line",
                )
            else:
                named = dict(zip(header, row, strict=True))
                yield record_of(named, rows.line_num, file_name, column)
    except csv.Error as error:
        raise InputError(
            file_name, rows.line_num, found=str(error), expected="columns with matching quotes"
        ) from None


def check_header(header: list[str], file_name: str, column: str | None) -> None:
    """Raise an error if columns lack the text, or two have the same name.

    Args:
        column: column of the text; None for a default column.

    Raises:
        InputError: no column has the text, or a name occurs twice.
    """
    has_default_columns = TEXT in header or {SOURCE, TARGET} <= set(header)
    if not (has_default_columns if column is None else column in header):
        names = ", ".join(f"'{name}'" for name in header) or "nothing"
        raise InputError(file_name, 1, found=f"columns {names}", expected=_expected_columns(column))
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise InputError(
            file_name, 1, found=f"column '{repeated}' twice", expected="each column name once"
        )


def _expected_columns(column: str | None) -> str:
    return DEFAULT_COLUMNS if column is None else f"a column '{column}', as --text-column says"


def record_of(
    row: Mapping[str, Any], number: int, file_name: str, column: str | None = None
) -> Record:
    """Return a record from named columns; columns other than the text become metadata.

    Args:
        number: line or row, counted from 1.
        column: column of the text, without targets; None for the default columns.

    Raises:
        InputError: the column is missing, or holds no text.
    """
    text_column = column or (TEXT if TEXT in row else SOURCE)
    if text_column not in row:
        raise InputError(
            file_name,
            number,
            found=f"keys {', '.join(map(repr, row)) or 'none'}",
            expected=_expected_columns(column),
        )
    text, target = row[text_column], None if column else row.get(TARGET)
    if not isinstance(text, str) or not text.strip():
        found = f"{text_column} = {_shortened(text)}"
        raise InputError(file_name, number, found=found, expected="text that is not blank")
    if target is not None and not isinstance(target, str):
        found = f"{TARGET} = {_shortened(target)}"
        raise InputError(file_name, number, found=found, expected="text")
    for string in (text, target or "", *map(str, row), *map(str, row.values())):
        _check_unicode(string, number, file_name)
    own_columns = {text_column, ID} if column else {text_column, TARGET, ID}
    metadata = {
        key: value if isinstance(value, str) else json.dumps(value, default=str)
        for key, value in row.items()
        if key not in own_columns and value is not None
    }
    target = (target or "").strip() or None
    return Record(number, text.strip(), target=target, id=str(row.get(ID) or ""), metadata=metadata)


def is_blank(row: Mapping[str, Any], column: str | None) -> bool:
    """Whether the text of a row is missing or blank; a wrong column or value is no blank.

    Args:
        column: column of the text; None for the default columns.
    """
    for name in (column,) if column else (TEXT, SOURCE):
        if name in row:
            value = row[name]
            return value is None or (isinstance(value, str) and not value.strip())
    return False


def _check_unicode(text: str, number: int, file_name: str) -> None:
    """Raise an error for lone surrogates, which JSON can spell and no encoding can represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            file_name,
            number,
            found=f"the lone surrogate {text[error.start]!a}",
            expected="whole Unicode characters",
        ) from None


def _shortened(value: Any) -> str:
    """Return the representation of a value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


ROWS, BLOCK = 1024, 1 << 16  # rows converted at a time, bytes of a column read at a time


def read_parquet(path: Path, file_name: str, column: str | None = None) -> Records:
    """Yield one record per row of a Parquet table.

    Columns are read block by block, independently of the size of the file's row groups.
    """
    import pyarrow as pa  # noqa: PLC0415 - only this format needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    number = 0
    try:
        with pq.ParquetFile(path, buffer_size=BLOCK, pre_buffer=False) as table:
            check_header(table.schema_arrow.names, file_name, column)
            for batch in table.iter_batches(batch_size=ROWS):
                for row in _rows(batch, number, file_name):
                    number += 1
                    empty = not any(str(value or "").strip() for value in row.values())
                    yield (
                        BlankLine(number) if empty else record_of(row, number, file_name, column)
                    )
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            file_name,
            number or None,
            found="damage behind this row" if number else "a file that is not Parquet, or damaged",
            expected="a whole Parquet table",
        ) from None


def parquet_row_count(path: Path) -> int | None:
    """Return the number of rows in a file's metadata, or None if it cannot be read."""
    import pyarrow as pa  # noqa: PLC0415 - only this format needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):  # reported when the rows are read
        return None


def _rows(batch: Any, n_before: int, file_name: str) -> list[dict[str, Any]]:
    """Return the rows of a batch as Python values, whose range is smaller than Parquet's."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError):
        name, position, value = next(_unrepresentable(batch))
        raise InputError(
            file_name,
            n_before + position + 1,
            found=f"{name} = {value}",
            expected="a date or time from year 1 to 9999, or text",
        ) from None
    return rows


def _unrepresentable(batch: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield column, row and content of values that have no Python equivalent."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for index, value in enumerate(column):
            try:
                value.as_py()
            except (ValueError, OverflowError):
                yield name, index, f"{getattr(value, 'value', '?')} ({value.type})"
