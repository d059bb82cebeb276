"""Whether two studies of the same texts hold the same numbers.

Usage: python tests/support/same_tables.py ONE OTHER [--within 1e-6]

ONE and OTHER are stored studies, or folders of Parquet files with a table each. Prints one line for
each table, and below it where the tables differ. Ends with 1 where a table lacks rows or columns of
the other, or a cell differs by more.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from headbook import Study

TABLES = (
    "heads", "functions", "layers", "controls", "compared", "pairs", "groups", "minimal_pairs",
    "geometry", "outliers", "types", "top_tokens", "class_flows", "tokens", "nearest", "uses",
    "public_demo",
    "importance", "head_groups", "pruning", "composition", "promoted_tokens", "exemplar_tokens",
    "task_facets",
)  # fmt: skip
WITHIN = 1e-6  # of a number, or of 1 where it is smaller
# Columns that say what a row is about; all others hold what was found about it.
KEYS = (
    "control", "claim", "column", "group", "checkpoint", "stack", "layer", "head", "other_layer",
    "other_head", "state", "space", "class", "metric", "view", "label", "measure", "split",
    "replacement", "target", "order", "sentence", "position", "entry", "what", "ranking", "rank",
    "first_member", "second_member", "query_class", "key_class",
)  # fmt: skip
MORE_KEYS = {
    "top_tokens": ("query", "key"),
    "pruning": ("share",),
    "composition": ("kind", "lower_layer", "lower_head"),
    "promoted_tokens": ("kind", "key_token"),
    "task_facets": ("facet",),
    "outliers": ("dimension",),
    "uses": ("word", "other_sentence", "other_position"),
}
LISTED = 5  # differing cells of a column, or rows, that a report lists


@dataclass(frozen=True)
class Difference:
    """What sets two tables of the same name apart.

    Attributes:
        table: name of both tables.
        rows: number of rows of the first table.
        largest: largest difference of two numbers, as a share of the larger one or of 1; infinite
            where columns, rows or texts differ, or only one table has a value.
        cells: number of cells that differ by more than what is allowed.
        absolute: largest difference of two numbers.
        relative: largest difference of two numbers as a share of the larger one.
        where: what differs, a line each: columns, rows, and the first few cells.
    """

    table: str
    rows: int
    largest: float = 0.0
    cells: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    where: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line, and one more for each thing that differs."""
        head = f"{self.table:14}{self.rows:10,} rows  "
        if not self.where:
            return f"{head}equal, numbers to {self.largest:.2g}"
        counts = (
            f"{self.cells:,} cells differ, by at most {self.absolute:.3g}, "
            f"{self.relative:.3g} of the number"
        )
        return "\n    ".join([head + counts, *self.where])


def differences(
    one: Mapping[str, pd.DataFrame], other: Mapping[str, pd.DataFrame], within: float = WITHIN
) -> Iterator[Difference]:
    """Yield the difference of every table that one of two studies has."""
    for name in sorted({*one, *other}):
        if name not in other:
            yield Difference(name, len(one[name]), np.inf, where=("missing: the whole table",))
        elif name not in one:
            yield Difference(name, 0, np.inf, where=("added: the whole table",))
        else:
            yield difference(name, one[name], other[name], within)


def tables(study: Study) -> dict[str, pd.DataFrame]:
    """All tables of a study by name, its exemplars and the sums of its maps among them."""
    found = {name: getattr(study, name) for name in TABLES}
    found["exemplars"] = pd.DataFrame(
        (
            (*e.head, str(e.ranking), e.rank, e.index, e.score, e.query, e.key, e.attention.sum())
            for e in study.sentence_data.exemplars
        ),
        columns=["stack", "layer", "head", "ranking", "rank", "index", "score", "query", "key",
                 "attention"],
    )  # fmt: skip
    found["maps"] = pd.DataFrame(
        (
            (stack, index, cells.sum(dtype=np.int64))
            for (stack, index), cells in sorted(study.sentence_data.maps.items())
        ),
        columns=["stack", "sentence", "sum"],
    )
    return found


def stored_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a folder of Parquet files, by the names of the files."""
    return {file.stem: pd.read_parquet(file) for file in sorted(folder.glob("*.parquet"))}


def difference(
    name: str, one: pd.DataFrame, other: pd.DataFrame, within: float = WITHIN
) -> Difference:
    """Compare two tables row by row, rows with the same keys, whatever their order."""
    columns = [column for column in one if column in other]
    where = [
        *(f"missing: column {column}" for column in one if column not in other),
        *(f"added: column {column}" for column in other if column not in one),
    ]
    if not where and columns != [*other]:
        where.append(f"columns stand in another order: {', '.join(map(str, other))}")
    keys = [column for column in columns if column in (*KEYS, *MORE_KEYS.get(name, ()))]
    mine, theirs = _keys(one, keys), _keys(other, keys)
    where += _listed("missing: row", mine.difference(theirs, sort=False))
    where += _listed("added: row", theirs.difference(mine, sort=False))
    places = theirs.get_indexer(mine)
    if not where and (np.diff(places) < 0).any():
        where.append("rows stand in another order")
    shared = places >= 0
    cells = _Cells(one[shared], other.iloc[places[shared]], mine[shared], within)
    for column in columns:
        cells.add(str(column))
    return Difference(
        name,
        len(one),
        np.inf if where else cells.largest,
        cells.count,
        cells.absolute,
        cells.relative,
        (*where, *cells.first),
    )


class _Cells:
    """Cells that differ in columns of two tables whose rows stand side by side."""

    def __init__(
        self, one: pd.DataFrame, other: pd.DataFrame, keys: pd.Index, within: float
    ) -> None:
        self._one, self._other, self._keys, self._within = one, other, keys, within
        self.largest = self.absolute = self.relative = 0.0
        self.count = 0
        self.first: list[str] = []

    def add(self, column: str) -> None:
        """Count the cells of a column that differ, and note the first few of them."""
        one, other = self._one[column], self._other[column]
        if _numeric(one) and _numeric(other):
            apart = self._of_numbers(one, other)
        else:
            same = (one.to_numpy(object) == other.to_numpy(object)) | (
                one.isna().to_numpy() & other.isna().to_numpy()
            )
            apart = np.where(same.astype(bool), 0.0, np.inf)
        self.largest = max(self.largest, float(apart.max(initial=0.0)))
        rows = np.flatnonzero(apart > self._within)
        self.count += len(rows)
        self.first += [
            f"{column} of {self._keys[row]}: {one.iloc[row]} and {other.iloc[row]}"
            for row in rows[:LISTED]
        ]
        if len(rows) > LISTED:
            self.first.append(f"{column}: {len(rows) - LISTED:,} more")

    def _of_numbers(self, one: pd.Series, other: pd.Series) -> np.ndarray:
        """Differences row by row; infinite where only one is missing."""
        mine, theirs = (series.to_numpy(np.float64, na_value=np.nan) for series in (one, other))
        size = np.fmax(abs(mine), abs(theirs))
        equal = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):  # infinity less itself
            apart = np.where(equal, 0.0, abs(mine - theirs))
            share = apart / np.fmax(size, 1)
        known = np.isfinite(apart) & (size > 0)
        self.absolute = max(self.absolute, float(apart[known].max(initial=0.0)))
        self.relative = max(self.relative, float((apart[known] / size[known]).max(initial=0.0)))
        return np.where(equal, 0.0, np.where(np.isfinite(apart), share, np.inf))


def _numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and column.dtype != bool


def _keys(table: pd.DataFrame, columns: list[str]) -> pd.Index:
    """Return the subject of each row in words, with a number if several rows share it."""
    words = pd.Series("", index=range(len(table)), dtype=object)
    for column in columns:
        texts = table[column].reset_index(drop=True)
        if _numeric(texts):  # 3 and 3.0 are the same layer
            texts = texts.astype("Float64").map("{:g}".format, na_action="ignore")
        filled = texts.astype(object).where(texts.notna(), "").astype(str)
        words += np.where(filled == "", "", f" {column}=" + filled)
    again = words.groupby(words).cumcount()
    return pd.Index(words.str.strip() + np.where(again > 0, " #" + (again + 1).astype(str), ""))


def _listed(what: str, keys: pd.Index) -> list[str]:
    named = [f"{what} {key}" for key in keys[:LISTED]]
    return [*named, f"{what}s: {len(keys) - LISTED:,} more"] if len(keys) > LISTED else named


def main() -> None:
    """Compare and say so."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("places", nargs=2, type=Path)
    parser.add_argument("--within", type=float, default=WITHIN)
    given = parser.parse_args()
    one, other = (
        tables(Study.load(place)) if (place / "manifest.json").exists() else stored_tables(place)
        for place in given.places
    )
    rows = [*differences(one, other, given.within)]
    for each in rows:
        print(each)  # noqa: T201
    sys.exit(any(each.where for each in rows))


if __name__ == "__main__":
    main()
