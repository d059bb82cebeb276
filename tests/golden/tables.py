"""Write the tables of the golden studies, or compare them with those that are stored.

Usage: python tests/golden/tables.py write|compare [FOLDER] [--only NAME ...] [--sites FOLDER]

FOLDER holds a folder for each of `studies.SITES`, with a Parquet file for each table in ``data/``
of its site; by default it is ``tests/golden/tables``. With ``--sites``, sites are built there and
stay, and those that are there already are taken as they are. ``compare`` ends with 1 if a cell
differs by more than ``--tolerance``.
"""

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TESTS = Path(__file__).parents[1]
# As in pytest, for scripts.
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent / "benchmarks")]

from golden.studies import SITES, build  # noqa: E402
from same_tables import WITHIN, differences, stored_tables  # noqa: E402

STORED = Path(__file__).with_name("tables")
# Renamed since the tables were stored, by the stored names.
TABLES: dict[str, str] = {}  # such as {"pairs": "head_pairs"}
_SENTENCES = {"sentences": "n_sentences"}
_COUNTS = _SENTENCES | {"events": "n_observations"}
COLUMNS: dict[str, dict[str, str]] = {  # by stored table
    "alignments": _COUNTS | {"even": "uniform"},
    "compared": _COUNTS | {"control": "baseline"},
    "controls": _COUNTS,
    "differences": _SENTENCES,
    "geometry": _COUNTS,
    "groups": _COUNTS | {"column": "facet"},
    "half_rise": {"clusters": "n_clusters"},
    "head_groups": _SENTENCES | {"singles": "sum_of_single_effects"},
    "heads": _COUNTS,
    "importance": _COUNTS | {"kind": "method"},
    "layers": _COUNTS,
    "matching": _SENTENCES,
    "pairs": _SENTENCES,
    "top_tokens": _SENTENCES | {"what": "role", "chance": "uniform"},
    "types": _SENTENCES | {"spread": "std"},
}
# What may differ although nothing changed, by table and column, with the reason.
EXCLUDED: dict[tuple[str, str], str] = {}


def site_tables(site: Path) -> dict[str, pd.DataFrame]:
    """Read all tables of a site under the names that they and their columns are stored by."""
    found = stored_tables(site / "data")
    exemplars = _exemplars(site / "data")
    if exemplars is not None:
        found["exemplars"] = exemplars
    return stored_names(found, TABLES, COLUMNS)


def stored_names(
    found: dict[str, pd.DataFrame], tables: dict[str, str], columns: dict[str, dict[str, str]]
) -> dict[str, pd.DataFrame]:
    """Rename tables and columns back, given the new names by the stored ones."""
    back = {new: old for old, new in tables.items()}
    named = {back.get(name, name): table for name, table in found.items()}
    return {
        name: table.rename(columns={new: old for old, new in columns.get(name, {}).items()})
        for name, table in named.items()
    }


def _exemplars(data: Path) -> pd.DataFrame | None:
    """Read the exemplars of heads; what is nested in them becomes JSON."""
    file, packed = data / "exemplars.jsonl", data / "exemplars.jsonl.gz"
    if packed.exists():
        content = gzip.decompress(packed.read_bytes())
    elif file.exists():
        content = file.read_bytes()
    else:
        return None
    rows: list[dict[str, Any]] = [json.loads(line) for line in content.splitlines()]
    return pd.DataFrame(
        {
            name: json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
            for name, value in row.items()
        }
        for row in rows
    )


def write(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Store tables as small Parquet files, in place of those that are in the folder.

    Floats are stored in full width, but with 28 bits of their fraction, 2e-9 of a number; the zeros
    behind these compress well.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, frame in tables.items():
        short = frame.copy()
        for column in frame.columns[frame.dtypes == np.float64]:
            short[column] = _shortened(frame[column])
        table = pa.Table.from_pandas(short, preserve_index=False).replace_schema_metadata(None)
        floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
        varied = [n for n in floats if pc.count_distinct(table[n]).as_py() > len(table) / 2]
        pq.write_table(
            table,
            folder / f"{name}.parquet",
            compression="zstd",
            compression_level=19,
            use_dictionary=[name for name in table.column_names if name not in varied],
            use_byte_stream_split=varied,
        )


def _shortened(numbers: pd.Series) -> np.ndarray:
    """Return numbers whose last 24 bits are rounded to zeros."""
    bits = numbers.to_numpy(np.float64, copy=True).view(np.int64)
    bits += 1 << 23
    bits &= ~((1 << 24) - 1)
    return np.where(np.isfinite(numbers), bits.view(np.float64), numbers)


def compare(
    stored: dict[str, pd.DataFrame], found: dict[str, pd.DataFrame], within: float = WITHIN
) -> tuple[bool, list[str]]:
    """Compare all tables of a site with the stored ones.

    Returns:
        Whether they are equal, and a report of each table.
    """
    every = [*differences(_without_excluded(stored), _without_excluded(found), within)]
    return not any(each.where for each in every), [str(each) for each in every]


def _without_excluded(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {
        name: table.drop(columns=[n for t, n in EXCLUDED if t == name and n in table])
        for name, table in tables.items()
    }


@contextmanager
def folder_of_sites(given: Path | None) -> Iterator[Path]:
    """Yield the folder where sites are built: the one given, else one for this run."""
    if given is not None:
        yield given.resolve()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def arguments(doc: str, stored: Path) -> argparse.ArgumentParser:
    """Parser of the command line of golden tables and golden pages."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("folder", nargs="?", type=Path, default=stored)
    parser.add_argument("--only", nargs="+", choices=SITES, default=[*SITES], metavar="NAME")
    parser.add_argument("--sites", type=Path)
    return parser


def main() -> None:
    """Write or compare."""
    parser = arguments(__doc__, STORED)
    parser.add_argument("--tolerance", type=float, default=WITHIN)
    given = parser.parse_args()
    equal = True
    with folder_of_sites(given.sites) as sites:
        for name in given.only:
            found = site_tables(build(name, sites))
            if given.what == "write":
                write(found, given.folder / name)
            else:
                stored = stored_tables(given.folder / name)
                same, lines = compare(stored, found, given.tolerance)
                equal = equal and same
                print("\n".join([f"{name}:", *lines]), flush=True)  # noqa: T201
    sys.exit(not equal)


if __name__ == "__main__":
    main()
