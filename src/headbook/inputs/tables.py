"""Readers of Parquet tables and Excel workbooks."""

import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.records import (
    DEFAULT_TEXTS,
    MAX_COMPRESSION_RATIO,
    MAX_LINE_BYTES,
    MIN_ARCHIVE_BYTES,
    READ_ERRORS,
    Records,
    TextColumns,
    within_blank_limit,
)
from headbook.inputs.rows import check_header, record_of, record_of_cells

ROWS, BLOCK = 1024, 1 << 16  # rows converted at a time, bytes of a column read at a time
ROWS_BYTES = 1 << 28  # to which rows that are read at a time may grow
ITEM_BYTES = 32  # that a word of a list counts as besides its letters, for it becomes an object
# First bytes of the header of a page, and what begins its next field, a number.
PAGE_HEADER_BYTES, INT32_FIELD = 16, b"\x15"
# Rows that a table may have whatever its size, and rows a byte beyond: more repeat a few texts.
MIN_REPEATED_ROWS, MAX_ROWS_A_BYTE = 1 << 20, 8
INSTALL_COMMAND = "pip install 'headbook[xlsx]'"
# Raised for a workbook that is damaged, which is an archive of XML.
FAULTS = (zipfile.BadZipFile, *READ_ERRORS, KeyError, ValueError, IndexError, SyntaxError)


def read_parquet(path: Path, file_name: str, chosen: TextColumns = DEFAULT_TEXTS) -> Records:
    """Yield one record per row of a Parquet table."""
    return within_blank_limit(_parquet_records(path, file_name, chosen), file_name)


def _parquet_records(path: Path, file_name: str, chosen: TextColumns) -> Records:
    """Yield one record per row of a Parquet table.

    Columns are read block by block, independently of the size of the file's row groups. A text that
    many rows share is written out for a few of them at a time, so that a small file cannot fill the
    memory.
    """
    import pyarrow as pa  # noqa: PLC0415 - only this format needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    number, n_bytes, file_bytes = 0, 0, path.stat().st_size
    max_bytes = max(MIN_ARCHIVE_BYTES, MAX_COMPRESSION_RATIO * file_bytes)
    try:
        with pq.ParquetFile(path, buffer_size=BLOCK, pre_buffer=False) as table:
            check_header(table.schema_arrow.names, file_name, chosen)
            if table.metadata.num_rows > max(MIN_REPEATED_ROWS, MAX_ROWS_A_BYTE * file_bytes):
                raise _inflated(file_name, f"a table of {table.metadata.num_rows:,} rows")
            for batch in table.iter_batches(batch_size=_rows_at_once(path, table.metadata)):
                for part, size in _small_parts(batch, number, file_name):
                    n_bytes += size
                    if n_bytes > max_bytes:
                        raise _inflated(file_name, "a table")
                    for row in _rows(part, number, file_name):
                        number += 1
                        yield record_of(row, number, file_name, chosen)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            file_name,
            number or None,
            found="damage behind this row" if number else "a file that is not Parquet, or damaged",
            expected="a whole Parquet table",
        ) from None


def _rows_at_once(path: Path, metadata: Any) -> int:
    """Return how many rows of a Parquet table can be read at a time.

    Values that are stored once, in the dictionary of a column, are written out for each row: a row
    may be as large as the dictionary.
    """
    largest = 1
    with path.open("rb") as file:
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(number)
                if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY":
                    file.seek(chunk.dictionary_page_offset)
                    size = _page_bytes(file.read(PAGE_HEADER_BYTES))
                    largest = max(largest, chunk.total_uncompressed_size if size is None else size)
    return max(1, min(ROWS, ROWS_BYTES // largest))


def _page_bytes(header: bytes) -> int | None:
    """Return the size of a page before compression, from its header; None if it has another form.

    The header begins with two numbers in the compact protocol of Thrift: kind and size of the page.
    """
    values, rest = [], header
    for _ in range(2):
        if rest[:1] != INT32_FIELD:
            return None
        length = next((n for n, byte in enumerate(rest[1:], start=1) if byte < 0x80), None)
        if length is None:
            return None
        values.append(sum((byte & 0x7F) << 7 * n for n, byte in enumerate(rest[1 : length + 1])))
        rest = rest[length + 1 :]
    return values[1] >> 1  # zigzag: signs are in the last bit


def _small_parts(batch: Any, n_before: int, file_name: str) -> Iterator[tuple[Any, int]]:
    """Yield a batch with the bytes of its rows; row by row if they would fill the memory.

    Raises:
        InputError: a row is larger than a line of a text may be.
    """
    size = _plain_bytes(batch)
    if size <= MAX_LINE_BYTES:
        yield batch, size
        return
    for place in range(len(batch)):
        row = batch.slice(place, 1)
        size = _plain_bytes(row)
        if size > MAX_LINE_BYTES:
            raise InputError(
                file_name,
                n_before + place + 1,
                found=f"a row of more than {MAX_LINE_BYTES >> 20} MiB",
                expected="one sentence or passage a row",
            )
        yield row, size


def _plain_bytes(batch: Any) -> int:
    """Return the bytes of the rows of a batch, in which each row has texts of its own."""
    import pyarrow as pa  # noqa: PLC0415 - only this format needs it
    import pyarrow.compute as pc  # noqa: PLC0415

    size = len(batch)  # as a line has its end
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
            lengths = pc.binary_length(column.dictionary).cast(pa.int64())
            size += pc.sum(lengths.take(column.indices)).as_py() or 0
        else:
            items = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
            size += column.nbytes + (ITEM_BYTES * len(column.flatten()) if items else 0)
    return size


def _is_text(kind: Any) -> bool:
    """Whether values of a type of Arrow are strings, or bytes of any length."""
    import pyarrow as pa  # noqa: PLC0415 - only this format needs it

    tests = ("is_string", "is_large_string", "is_binary", "is_large_binary")
    return any(getattr(pa.types, test)(kind) for test in tests)


def _inflated(file_name: str, what: str) -> InputError:
    """Return the error to raise for a file that is no text, for text compresses less."""
    return InputError(
        file_name,
        None,
        found=f"{what} that inflates to more than {MAX_COMPRESSION_RATIO} times its size",
        expected="text, which compresses less",
    )


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


def read_xlsx(path: Path, file_name: str, chosen: TextColumns = DEFAULT_TEXTS) -> Records:
    """Yield one record per row of the first sheet of a workbook, below its header row.

    Cells with formulas have the values that were stored with them.
    """
    rows = _sheet_rows(path, file_name)
    header = ["" if name is None else str(name) for name in next(rows, ())]
    check_header(header, file_name, chosen)
    for number, cells in enumerate(rows, start=2):
        yield record_of_cells(header, cells, number, file_name, chosen)


def _sheet_rows(path: Path, file_name: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the rows of a workbook's first sheet.

    Raises:
        InputError: the file is no workbook, or the library that reads it is missing.
    """
    try:
        from openpyxl import load_workbook  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(
            file_name,
            None,
            found="an Excel workbook",
            expected=f"the library that reads it, {INSTALL_COMMAND}; or a .csv file",
        ) from None
    try:
        _check_size(path, file_name)
        with closing(load_workbook(path, read_only=True, data_only=True)) as workbook:
            yield from workbook.worksheets[0].iter_rows(values_only=True)
    except FAULTS as error:
        if getattr(error, "errno", None) is not None:
            raise  # a fault of the disk
        raise InputError(
            file_name,
            None,
            found="a file that is no Excel workbook, or damaged",
            expected="a whole .xlsx file with a sheet of cells",
        ) from None


def _check_size(path: Path, file_name: str) -> None:
    """Raise an error for an archive that inflates to more than any text."""
    with zipfile.ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > max(MIN_ARCHIVE_BYTES, MAX_COMPRESSION_RATIO * path.stat().st_size):
        raise _inflated(file_name, "a workbook")
