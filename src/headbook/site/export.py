"""The numbers of a site as files: tables and records."""

import csv
import gc
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headbook import charts
from headbook.errors import warn
from headbook.memory import trim_memory
from headbook.report.wording import count_text, visible
from headbook.schema import Side
from headbook.study.sentence_data import UINT8_STEPS, Exemplar
from headbook.study.study import Study
from headbook.study.tables import TableSpec

MAX_CSV_BYTES = 10_000_000  # of a CSV file; larger tables are written as Parquet alone
MAX_PLAIN_CSV_BYTES = 100_000  # of a CSV file that is not compressed, for most tables
CSV_BLOCK_ROWS = 20_000  # rows of a CSV file after which its size is checked
PARQUET_LEVEL = 12  # of compression: a seventh of the time of 19, one per cent more bytes
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a cell that begins so
MAX_NAMED = 40  # characters without a glyph in one message
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)  # such a text is no formula, with a sign, too
CSV_DIGITS = 6  # significant digits of numbers in CSV files; Parquet files have all

# Fields of each line of exemplars.jsonl.
EXEMPLARS = {
    "stack, layer, head": "the head",
    "ranking, rank": "why it is shown, and the place in that ranking, from 1. strongest, q90, q75, "
    "median: by the largest single weight, sink masked, from the top and near the 90th, 75th "
    "and 50th percentile; mass: by the mean attention off the sink; variability: by the share of "
    "the head's attention variability",
    "sentence, id": "number in the input, counted from 1, and the input's own name for it",
    "score": "number of the ranking",
    "weight": "the largest weight, sink masked, in steps of 1/255",
    "query, key": "positions of query and key of the largest weight, sink masked",
    "query_token, key_token": "the same in letters",
    "texts": "the sentence's texts by side",
    "metadata": "other columns of the input",
}


def write_tables(tables: Iterable[TableSpec[Any]], numbers: Any, folder: Path) -> list[str]:
    """Write tables as CSV and Parquet; optional ones only if they have rows.

    Args:
        tables: entries with the builders of their rows.
        numbers: study, comparison or checkpoints, from which the builders make rows.

    Returns:
        A message for each CSV that was left out because of its size.
    """
    left_out = []
    for table in tables:
        frame = table.build(numbers)
        if not (frame.empty and table.optional):
            left_out += write_table(frame, table, folder)
    return left_out


def write_table(frame: pd.DataFrame, table: TableSpec[Any], folder: Path) -> list[str]:
    """Write one table as Parquet and as CSV, with gzip if the CSV is large.

    Returns:
        A message if the CSV was left out because of its size.
    """
    name = table.name
    rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    _write_parquet(rows, folder / f"{name}.parquet")
    max_bytes = min(MAX_CSV_BYTES, table.csv_limit or MAX_CSV_BYTES)
    text = _csv(frame, max_bytes)
    if text is None:
        return [f"{name}.csv would hold more than {max_bytes:,} bytes; use the Parquet file"]
    if len(text) > (table.plain_csv_limit or MAX_PLAIN_CSV_BYTES):
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    else:
        (folder / f"{name}.csv").write_bytes(text)
    return []


def _write_parquet(table: pa.Table, file: Path) -> None:
    """Write a table as Parquet: numbers split by byte unless many repeat, texts once."""
    numbers = {field.name for field in table.schema if pa.types.is_floating(field.type)}
    with_few_repeats = [
        name
        for name in table.column_names
        if name in numbers
        and 7 * pc.count_distinct(table[name]).as_py() > 6 * (len(table) - table[name].null_count)
    ]
    pq.write_table(
        table,
        file,
        compression="zstd",
        compression_level=PARQUET_LEVEL,
        use_dictionary=[name for name in table.column_names if name not in numbers],
        use_byte_stream_split=with_few_repeats,
    )


def _csv(frame: pd.DataFrame, max_bytes: int) -> bytes | None:
    """Return a table as CSV, or None if it has more than ``max_bytes``, estimated by first rows."""
    parts, size = [], 0
    for start in range(0, max(len(frame), 1), CSV_BLOCK_ROWS):
        part = csv_rows(frame.iloc[start : start + CSV_BLOCK_ROWS], header=start == 0)
        size += len(part)
        if size > max_bytes or size * len(frame) > 2 * max_bytes * (start + CSV_BLOCK_ROWS):
            return None
        parts.append(part)
    return b"".join(parts)


def csv_rows(frame: pd.DataFrame, *, header: bool) -> bytes:
    """Return rows of a table as CSV, with rounded numbers."""
    return (
        _with_rounded_intervals(spreadsheet_safe(frame))
        .to_csv(
            index=False,
            header=header,
            float_format=f"%.{CSV_DIGITS}g",
            lineterminator="\n",
            quoting=csv.QUOTE_MINIMAL,
        )
        .encode()
    )


def as_in_csv(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the numbers of its CSV."""
    rounded = _with_rounded_intervals(frame)
    decimals = [str(name) for name in rounded if rounded[name].dtype.kind == "f"]
    return rounded.assign(**{name: rounded[name].map(_csv_number) for name in decimals})


def _csv_number(value: float) -> float:
    return float(f"{value:.{CSV_DIGITS}g}")


def _with_rounded_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """Round ends of intervals outwards, by a hundredth of their distance at most."""
    ends = [name for name in ("low", "high") if name in frame and frame[name].dtype.kind == "f"]
    if len(ends) < 2:
        return frame
    low, high = (frame[name].to_numpy(np.float64) for name in ("low", "high"))
    width = np.where(high > low, high - low, np.nan)
    steps_per_unit = 10.0 ** np.ceil(2 - np.log10(width))  # steps in one
    rounded_ends = (
        np.floor((low * steps_per_unit).round(6)) / steps_per_unit,
        np.ceil((high * steps_per_unit).round(6)) / steps_per_unit,
    )
    is_rounded = np.isfinite(steps_per_unit)
    return frame.assign(
        low=np.where(is_rounded, rounded_ends[0], low),
        high=np.where(is_rounded, rounded_ends[1], high),
    )


def table_facts(tables: Iterable[TableSpec[Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return facts about each table that a site has, by name, for scripts and the Data page.

    Returns:
        ``files``: addresses from the site's root, the CSV first if the site has one; ``rows``:
        their number; ``columns``: name, description and whether the column is one of texts.
    """
    facts = {}
    for table in tables:
        parquet = folder / f"{table.name}.parquet"
        if not parquet.exists():
            continue
        names = (f"{table.name}{suffix}" for suffix in (".csv", ".csv.gz", ".parquet"))
        texts = {
            column.name
            for column in pq.read_schema(parquet)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        }
        facts[table.name] = {
            "files": [f"{folder.name}/{name}" for name in names if (folder / name).exists()],
            "rows": pq.read_metadata(parquet).num_rows,
            "columns": [[name, text, name in texts] for name, text in table.columns.items()],
        }
    return facts


def write_exemplars(study: Study, folder: Path) -> None:
    """Write one JSON object a line for each exemplar, with gzip if that is large."""
    lines = [
        json.dumps(_exemplar(study, exemplar), sort_keys=True)
        for exemplar in study.sentence_data.exemplars
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    is_large = len(text) > MAX_PLAIN_CSV_BYTES
    file = folder / ("exemplars.jsonl.gz" if is_large else "exemplars.jsonl")
    file.write_bytes(gzip.compress(text, mtime=0) if is_large else text)


def _exemplar(study: Study, exemplar: Exemplar) -> dict[str, Any]:
    stack = study.manifest.stack(exemplar.head.stack)
    sentence = study.sentence_data.sentences[exemplar.index]
    return {
        **exemplar.head._asdict(),
        "ranking": str(exemplar.ranking),
        "rank": exemplar.rank,
        "sentence": sentence.number,
        "id": sentence.id,
        "score": float(f"{exemplar.score:.6g}"),
        "weight": round(int(exemplar.attention[exemplar.query, exemplar.key]) / UINT8_STEPS, 6),
        "query": exemplar.query,
        "key": exemplar.key,
        "query_token": sentence.texts[stack.queries].pieces[exemplar.query],
        "key_token": sentence.texts[stack.keys].pieces[exemplar.key],
        "texts": {str(side): sentence.texts[side].text for side in Side if side in sentence.texts},
        "metadata": dict(sentence.metadata),
    }


def spreadsheet_safe(frame: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before cells that a spreadsheet would take for a formula."""
    return frame.assign(**{name: _without_formulas(frame[name]) for name in text_columns(frame)})


def text_columns(frame: pd.DataFrame) -> list[str]:
    """Return the names of all columns but those of numbers: their texts may be of inputs."""
    return [str(name) for name in frame if not pd.api.types.is_numeric_dtype(frame[name].dtype)]


def _without_formulas(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    numbers, values = pd.factorize(texts)  # -1: missing
    safe = [*map(_safe_cell, values.tolist()), None]
    return pd.Series(np.array(safe, object)[numbers], index=texts.index)


def _safe_cell(value: Any) -> Any:
    """Return a text that no spreadsheet takes for a formula; a number stays as it is."""
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    text = value.replace("\r", "␍")  # the writer quotes line feeds alone
    return f"'{text}" if value.startswith(FORMULA_STARTS) else text


def write_figure(figure: charts.Drawable, folder: Path, *, columns: bool = True) -> set[str]:
    """Write a figure's files, named after it, and return its characters; see `figure_files`."""
    files = figure_files(figure, columns=columns)
    for suffix, content in files.items():
        (folder / f"{figure.name}{suffix}").write_bytes(content)
    return {*"".join(ET.fromstring(files[".svg"]).itertext())}  # noqa: S314 - our own


def warn_of_missing_glyphs(characters: Iterable[str]) -> None:
    """Warn of characters of figures that the fonts of this machine do not have."""
    missing = charts.without_glyph(characters)
    if missing:
        more = f" and {len(missing) - MAX_NAMED:,} more" if len(missing) > MAX_NAMED else ""
        warn(
            "figures: the fonts of this machine have no glyph for "
            f"{count_text(len(missing), 'character')}: {' '.join(missing[:MAX_NAMED])}{more}; PDFs "
            "show a box for each, and cannot be searched for them; install fonts that have them, "
            "such as Noto"
        )


def figure_files(figure: charts.Drawable, *, columns: bool = True) -> dict[str, bytes]:
    """Return a figure as files, by suffix: SVG, PDF, and a CSV of what its picture shows.

    Numbers have the digits of the tables; they come last. Empty columns of data are left out.

    Args:
        columns: whether the figure is also drawn as wide as a column of a paper.
    """
    files = figure.paper(columns=columns)
    if figure.rows is None:
        return files
    rows = figure.rows
    filled_columns = [str(name) for name in rows if (rows[name] != "").any()]
    texts = {
        name: _printed(rows[name])
        for name in filled_columns
        if not pd.api.types.is_numeric_dtype(rows[name])
    }
    rows = rows.assign(**texts)[
        sorted(filled_columns, key=lambda name: rows[name].dtype.kind == "f")
    ]
    text = _with_rounded_intervals(rows).to_csv(
        index=False, float_format=f"%.{CSV_DIGITS}g", lineterminator="\n"
    )
    return files | {".csv": text.encode()}


def _printed(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return texts of pages, safe in spreadsheets."""
    return _without_formulas(texts.map(visible))


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each file below a folder, by its address in the folder."""
    return {file.relative_to(folder).as_posix(): file.stat().st_size for file in walk(folder)}


def walk(folder: Path) -> Iterator[Path]:
    """Return all files below a folder, in one order on every system."""
    return iter(sorted(file for file in folder.rglob("*") if file.is_file()))


def release_memory() -> None:
    """Free garbage and the memory of tables, and return it to the system if possible."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim_memory()
