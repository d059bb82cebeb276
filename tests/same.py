"""Whether two studies of the same texts hold the same numbers.

Usage: python tests/same.py STUDY STUDY [--within 1e-6]

Prints one line for each table: its rows, the largest difference of a number and where it is.
Ends with 1 where a table has other rows, or a number differs by more.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook import Study

TABLES = (
    "heads", "layers", "controls", "compared", "pairs", "groups", "minimal_pairs", "geometry",
    "types", "top_tokens", "tokens", "nearest", "importance", "head_groups", "pruning",
)  # fmt: skip
WITHIN = 1e-6  # of a number, or of 1 where it is smaller


class Difference(NamedTuple):
    """What two tables of the same name have in common.

    Attributes:
        largest: difference of two numbers, as a share of the larger one or of 1; infinite where
            rows, texts or what is missing differ.
        where: the column and the row of the first with that difference.
    """

    table: str
    rows: int
    largest: float
    where: str


def differences(one: Study, other: Study) -> Iterator[Difference]:
    """Every table of two studies, and the maps that pages show."""
    for name, table in tables(one).items():
        yield _difference(name, table, tables(other)[name])


def tables(study: Study) -> dict[str, pd.DataFrame]:
    """All tables of a study by name, its exemplars and the sums of its maps among them."""
    found = {name: getattr(study, name) for name in TABLES}
    found["exemplars"] = pd.DataFrame(
        (*e.head, str(e.ranking), e.rank, e.index, e.score, e.query, e.key, e.attention.sum())
        for e in study.sentence_data.exemplars
    )
    found["maps"] = pd.DataFrame(
        (stack, index, cells.sum(dtype=np.int64))
        for (stack, index), cells in sorted(study.sentence_data.maps.items())
    )
    return {name: table.reset_index(drop=True) for name, table in found.items()}


def _difference(name: str, one: pd.DataFrame, other: pd.DataFrame) -> Difference:
    if one.shape != other.shape or [*one.columns] != [*other.columns]:
        message = f"{one.shape} with {[*one.columns]}, {other.shape} with {[*other.columns]}"
        return Difference(name, len(one), np.inf, message)
    worst = Difference(name, len(one), 0.0, "")
    for column in one.columns:
        apart = _apart(one[column], other[column])
        if len(apart) and apart.max() > worst.largest:
            row = int(apart.argmax())
            message = f"{column} of row {row}: {one[column][row]} and {other[column][row]}"
            worst = Difference(name, len(one), float(apart.max()), message)
    return worst


def _apart(one: pd.Series, other: pd.Series) -> np.ndarray:
    """Differences row by row; infinite where only one is missing, or texts differ."""
    if not pd.api.types.is_numeric_dtype(one) or one.dtype == bool:
        same = (one == other) | (one.isna() & other.isna())
        return np.where(same, 0.0, np.inf)
    mine, theirs = (series.to_numpy(np.float64, na_value=np.nan) for series in (one, other))
    both, size = np.isnan(mine) & np.isnan(theirs), np.maximum(abs(mine), abs(theirs))
    apart = abs(mine - theirs) / np.maximum(size, 1)
    return np.where(both | (mine == theirs), 0.0, np.where(np.isnan(apart), np.inf, apart))


def main() -> None:
    """Compare and say so."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("studies", nargs=2)
    parser.add_argument("--within", type=float, default=WITHIN)
    given = parser.parse_args()
    rows = [*differences(*map(Study.load, given.studies))]
    for each in rows:
        print(f"{each.table:14}{each.rows:10,}  {each.largest:8.2g}  {each.where}")  # noqa: T201
    sys.exit(any(difference.largest > given.within for difference in rows))


if __name__ == "__main__":
    main()
