"""Parquet tables, read block by block."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.readers import check_header, record_of
from headbook.inputs.records import Blank, Records

ROWS, BLOCK = 1024, 1 << 16  # rows that are made at a time, bytes of a column that are read


def read_parquet(path: Path, file_name: str, column: str | None = None) -> Records:
    """A Parquet table; its lines are its rows.

    Columns are read block by block, however large the groups are in which the file keeps its rows.
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
                    yield (Blank(number) if empty else record_of(row, number, file_name, column))
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            file_name,
            number or None,
            came="damage behind this row" if number else "a file that is not Parquet, or damaged",
            expected="a whole Parquet table",
        ) from None


def rows_of(path: Path) -> int | None:
    """How many rows the end of a file says that it has; None where it cannot be read."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):  # told where it is read
        return None


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
