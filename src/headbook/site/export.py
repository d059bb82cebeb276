"""The numbers of a site as files: tables and records."""

import copy
import csv
import gc
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headbook import charts
from headbook.memory import give_back_freed_memory
from headbook.report.numbers.alignmenttable import alignment_table
from headbook.report.numbers.results import results
from headbook.report.tables import Study
from headbook.report.wording import visible
from headbook.site.described import DESCRIBED
from headbook.study.sentencedata import STEPS, Exemplar
from headbook.study.tables import MOST_OF, MOST_ROWS, UNCOMPRESSED
from headbook.terms import Side

MOST_CSV = 10_000_000  # bytes of a CSV file; above that there is the Parquet file alone
# The same of the most used.
UNCOMPRESSED_ONES = dict.fromkeys(("heads", "layers", "differences", "tests", "words"), 5_000_000)
AT_ONCE = 20_000  # rows of a CSV file that are written before it is looked whether it is too large
LEVEL = 12  # of compression: a seventh of the time of 19, a hundredth more bytes
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so would run in a spreadsheet
DIGITS = 6  # of numbers in CSV files; Parquet has them exactly

NUMBERS = {
    "value": "ratio of sums over sentences; empty where there is no observation",
    "low": "lower end of the 95 % confidence interval, clustered by sentence",
    "high": "upper end",
    "sentences": "sentences that contribute",
    "events": "observations behind the value, for example query tokens",
}
PLACE = {"stack": "self; or encoder, decoder, cross", "layer": "counted from 0"}
METRIC = {
    "metric": "as in the addresses of the metrics' pages",
    "view": "keys: raw (all), nosink (sink masked) or renorm (sink masked and renormalised); "
    "empty for token metrics",
    "label": "what the value is about where a metric has several; else empty",
}
TOKEN = {
    "sentence": "number in the input, counted from 1",
    "position": "of the token in the sequence, counted from 0",
    "token": "in the text's own spelling",
    **PLACE,
    "state": "mid: after attention; out: after the layer",
}


class Table(NamedTuple):
    """A table of the site: what it holds and what its columns mean."""

    what: str
    columns: Mapping[str, str]


TABLES = {
    "heads": Table(
        "Every number of every head.", PLACE | {"head": "counted from 0"} | METRIC | NUMBERS
    ),
    "layers": Table(
        "The same for the heads of a layer together, and token metrics averaged over the tokens "
        "of a layer (label: state/space/class of tokens).",
        PLACE | METRIC | NUMBERS,
    ),
    "controls": Table(
        "The same metrics on uniform attention: equal weights on all visible keys.",
        {"control": "which comparison"} | PLACE | METRIC | NUMBERS,
    ),
    "pairs": Table(
        "Metrics of every two heads of an attention type, each pair once; with more than 144 heads "
        "of similar pairs only, and beside them the squared Hellinger distance of all pairs.",
        PLACE
        | {
            "head": "counted from 0",
            "other_layer": "the other head's layer",
            "other_head": "its number there",
            "metric": "as in the addresses of the metrics' pages, or squared Hellinger distance",
            "view": "raw or renorm",
            "value": "mean over rows; empty where there is none",
            "sentences": "sentences that were compared",
            "rows": "query tokens whose rows count in both heads",
        },
    ),
    "alignments": Table(
        "How each head of cross-attention aligns the target and source tokens of the sentences "
        "that have a page.",
        PLACE
        | {
            "head": "counted from 0",
            "measure": "monotone: Kendall's tau-b; diagonal, same_form: shares of target tokens; "
            "aer, precision, recall, f1: against gold alignments, where there are any",
        }
        | NUMBERS
        | {"even": "the same if every source token were chosen equally often; empty without one"},
    ),
    "groups": Table(
        "The same numbers of every head by group of sentences; those without any data are left "
        f"out. Where there would be more than {MOST_ROWS:,}, those that groups are compared by.",
        {"column": "metadata column of the input", "group": "what the sentences have in it"}
        | PLACE
        | {"head": "counted from 0"}
        | METRIC
        | NUMBERS,
    ),
    "minimal_pairs": Table(
        "What differs within pairs of sentences (column pair_id of the input), for every head.",
        PLACE
        | {"head": "counted from 0"}
        | METRIC
        | {
            "first_member": "what the first member of each pair has in the column that tells "
            "members apart; or first",
            "second_member": "the same of the second one; or second",
            "first": "mean over pairs of the first member's own value",
            "second": "the same of the second one",
            "value": "first minus second; empty where there is no pair",
            "low": "lower end of the 95 % confidence interval over pairs",
            "high": "upper end",
            "p": "two-sided, by flips of signs; family-wise over all rows of a stack",
            "pairs": "pairs in which both members have a value",
        },
    ),
    "geometry": Table(
        "Every number of the states of a layer: input and output of each layer, on a sample.",
        {
            "stack": PLACE["stack"],
            "layer": "counted from 0; empty for the input",
            "state": "input: what enters layer 0; out: layer output",
            "metric": METRIC["metric"],
            "label": "as on the metric's page; for layer_cka the other state, input or the number "
            "of its layer; for outlier_dimensions also the ten largest by name",
            "value": "see the metric's page; empty where there is none",
            "low": "lower end of the 95 % confidence interval, a jackknife over sentences",
            "high": "upper end",
            "sentences": "sentences of the sample",
            "events": "tokens, vocabulary tokens, or minibatches behind the value",
        },
    ),
    "compared": Table(
        "The same metrics of every head on what the model is compared with: the same "
        "architecture with random weights, and the same words in random order.",
        {"control": "which comparison, and its seed"}
        | PLACE
        | {"head": "counted from 0"}
        | METRIC
        | NUMBERS,
    ),
    "top_tokens": Table(
        "Query tokens, key tokens and pairs of both to which each head gives most against uniform "
        "attention, the sink masked: up to 50 of each that occur in at least 5 different sentences "
        "of the sample. Those whose interval lies above uniform attention and above the mean head "
        "come first, then the larger ratio.",
        PLACE
        | {
            "head": "counted from 0",
            "what": "query: attention of the token to all keys off the sink; key: attention it "
            "receives from all queries; pair: attention of the query to the key",
            "query": "vocabulary token; empty for all",
            "key": "the same of the key",
            "count": "occurrences",
            "sentences": "sentences with at least one",
            "mean": "mean attention of an occurrence",
            "low": NUMBERS["low"],
            "high": "upper end",
            "chance": "the same on uniform attention",
            "ratio": "mean over chance",
            "mean_head": "the same of the mean over all heads",
            "mean_head_ratio": "mean over mean_head",
        },
    ),
    "tokens": Table(
        "Token metrics of every token of the sentences that have a page.",
        TOKEN
        | {
            "metric": "as in the addresses of the metrics' pages",
            "space": "positional (token + position embedding), raw (token embedding), or empty",
            "value": "see the metric's page",
        },
    ),
    "types": Table(
        "Mean cosine to the input embedding of every vocabulary token of the corpus, by layer.",
        {
            "stack": PLACE["stack"],
            "entry": "number in the vocabulary",
            "token": "the vocabulary token in letters",
            "layer": "counted from 0",
            "state": TOKEN["state"],
            "value": "mean over occurrences",
            "spread": "standard deviation over occurrences; empty for a single one",
            "count": "occurrences",
            "sentences": "sentences with at least one",
        },
    ),
    "nearest": Table(
        "The nearest vocabulary tokens of each of those tokens in each layer.",
        TOKEN
        | {
            "space": "positional or raw; logits: what the logit lens gives",
            "rank": "1: nearest, or most probable",
            "neighbour": "vocabulary token",
            "cosine": "of its embedding to the state; in space logits its probability",
        },
    ),
}
TABLES |= {name: Table(*pair) for name, pair in DESCRIBED.items()}
# Columns of texts from outside.
TEXTS = (
    "token", "query", "key", "neighbour", "column", "group", "first_member", "second_member",
)  # fmt: skip
# Tables that are left out where nobody asked for their numbers.
OPTIONAL = {
    "alignments",
    "compared",
    "effect_tokens",
    "geometry",
    "groups",
    "head_groups",
    "importance",
    "minimal_pairs",
    "pairs",
    "pruning",
    "tests",
    "top_tokens",
    "types",
    "words",
}
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


def files_of(tables: Mapping[str, Table]) -> dict[str, Table]:
    """The same by the names of the files that each may have."""
    suffixes = (".csv", ".csv.gz", ".parquet")
    return {f"{name}{suffix}": tables[name] for name in tables for suffix in suffixes}


def table_of(study: Study, name: str) -> pd.DataFrame:
    """A table of `TABLES`."""
    if name == "alignments":  # from maps, which a study itself knows nothing of
        return alignment_table(results(study))
    frame: pd.DataFrame = getattr(copy.copy(study), name)  # else the study would keep it
    return frame


def write_tables(study: Study, folder: Path) -> list[str]:
    """Write every table as CSV and Parquet, with gzip if its CSV is large.

    Returns:
        A message for each CSV that was left out because of its size.
    """
    left_out = []
    _ = study.head_tables, study.pair_differences  # made once: pages need them, too
    for name in TABLES:
        frame = table_of(study, name)
        if frame.empty and name in OPTIONAL:
            continue
        left_out += write_table(frame, name, folder)
    return left_out


def write_table(frame: pd.DataFrame, name: str, folder: Path) -> list[str]:
    """Write one table as Parquet and as CSV, with gzip if the CSV is large.

    Returns:
        A message if the CSV was left out because of its size.
    """
    schema = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    _write_parquet(schema, folder / f"{name}.parquet")
    most = min(MOST_CSV, MOST_OF.get(name, MOST_CSV))
    text = _csv(frame, most)
    if text is None:
        return [f"{name}.csv would hold more than {most:,} bytes; use the Parquet file"]
    if len(text) > UNCOMPRESSED_ONES.get(name, UNCOMPRESSED):
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    else:
        (folder / f"{name}.csv").write_bytes(text)
    return []


def _write_parquet(table: pa.Table, file: Path) -> None:
    """Numbers byte by byte, which compresses them best unless many are repeated; texts once."""
    numbers = {field.name for field in table.schema if pa.types.is_floating(field.type)}
    spread = [
        name
        for name in table.column_names
        if name in numbers
        and 7 * pc.count_distinct(table[name]).as_py() > 6 * (len(table) - table[name].null_count)
    ]
    pq.write_table(
        table,
        file,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=[name for name in table.column_names if name not in numbers],
        use_byte_stream_split=spread,
    )


def _csv(frame: pd.DataFrame, most: int) -> bytes | None:
    """A table as CSV; None if it has more bytes than ``most``, or the first rows say twice that."""
    parts, size = [], 0
    for start in range(0, max(len(frame), 1), AT_ONCE):
        part = _csv_rows(frame.iloc[start : start + AT_ONCE], header=start == 0)
        size += len(part)
        if size > most or size * len(frame) > 2 * most * (start + AT_ONCE):
            return None
        parts.append(part)
    return b"".join(parts)


def _csv_rows(frame: pd.DataFrame, *, header: bool) -> bytes:
    return (
        _ended(_spreadsheet_safe(frame))
        .to_csv(
            index=False,
            header=header,
            float_format=f"%.{DIGITS}g",
            lineterminator="\n",
            quoting=csv.QUOTE_MINIMAL,
        )
        .encode()
    )


def _ended(frame: pd.DataFrame) -> pd.DataFrame:
    """Ends of intervals outwards to a hundredth of their distance at most."""
    if not {"low", "high"} <= {*frame} or {frame[n].dtype.kind for n in ("low", "high")} != {"f"}:
        return frame
    low, high = (frame[name].to_numpy(np.float64) for name in ("low", "high"))
    wide = np.where(high > low, high - low, np.nan)
    unit = 10.0 ** np.ceil(2 - np.log10(wide))  # steps in one
    ends = np.floor((low * unit).round(6)) / unit, np.ceil((high * unit).round(6)) / unit
    kept = np.isfinite(unit)
    return frame.assign(low=np.where(kept, ends[0], low), high=np.where(kept, ends[1], high))


def write_exemplars(study: Study, folder: Path) -> None:
    """One JSON object a line for each exemplar; with gzip where that is large."""
    lines = [json.dumps(_exemplar(study, e), sort_keys=True) for e in study.sentence_data.exemplars]
    text = "".join(f"{line}\n" for line in lines).encode()
    packed = len(text) > UNCOMPRESSED
    file = folder / ("exemplars.jsonl.gz" if packed else "exemplars.jsonl")
    file.write_bytes(gzip.compress(text, mtime=0) if packed else text)


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
        "weight": round(int(exemplar.attention[exemplar.query, exemplar.key]) / STEPS, 6),
        "query": exemplar.query,
        "key": exemplar.key,
        "query_token": sentence.texts[stack.queries].pieces[exemplar.query],
        "key_token": sentence.texts[stack.keys].pieces[exemplar.key],
        "texts": {str(side): sentence.texts[side].text for side in Side if side in sentence.texts},
        "metadata": dict(sentence.metadata),
    }


def _spreadsheet_safe(frame: pd.DataFrame) -> pd.DataFrame:
    """Cells of text that a spreadsheet would take for a formula get a leading apostrophe."""
    texts = [name for name in TEXTS if name in frame]
    return frame.assign(**{name: _prefixed(frame[name]) for name in texts})


def _prefixed(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    letters = texts.astype(str)
    safe = letters.where(~letters.str.startswith(FORMULA), "'" + letters)
    return safe.str.replace("\r", "␍")  # the writer quotes line feeds alone


def write_figure(figure: charts.Picture, folder: Path, *, columns: bool = True) -> None:
    """Write a figure's files, named after it; see `figure_files`."""
    for suffix, content in figure_files(figure, columns=columns).items():
        (folder / f"{figure.name}{suffix}").write_bytes(content)


def figure_files(figure: charts.Picture, *, columns: bool = True) -> dict[str, bytes]:
    """A figure as files, by suffix: SVG, PDF, and a CSV of what its picture shows.

    Numbers have the digits of the tables; they come last. Empty columns of data are left out.

    Args:
        columns: also as wide as a column of a paper.
    """
    drawn = charts.files(figure, columns=columns)
    if figure.rows is None:
        return drawn
    rows = figure.rows
    filled = [str(name) for name in rows if (rows[name] != "").any()]
    texts = {n: _printed(rows[n]) for n in filled if not pd.api.types.is_numeric_dtype(rows[n])}
    rows = rows.assign(**texts)[sorted(filled, key=lambda name: rows[name].dtype.kind == "f")]
    text = _ended(rows).to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
    return drawn | {".csv": text.encode()}


def _printed(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    """Texts of pages, safe in spreadsheets; offsets are whole numbers, which are safe."""
    letters = texts.map(visible)
    return letters.where(letters.str.fullmatch(r"[+-]?\d+"), _prefixed(letters))


def sizes(folder: Path) -> dict[str, int]:
    """Bytes of each file below a folder, by its address there."""
    return {file.relative_to(folder).as_posix(): file.stat().st_size for file in walk(folder)}


def walk(folder: Path) -> Iterator[Path]:
    """All files below a folder, in the same order everywhere."""
    return iter(sorted(file for file in folder.rglob("*") if file.is_file()))


def let_go() -> None:
    """Give memory that tables took, and garbage, back to the system, where it takes any."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    give_back_freed_memory()
