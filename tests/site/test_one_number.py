"""A quantity has one value and one unit on all pages of a site, outside evidence."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from linked_numbers import frame_of, in_line, pages_of
from printed_numbers import NUMBER
from site_tables import SCALES, rounds_to
from sites import Site

pytestmark = pytest.mark.slow

PLACES = ("layer", "head", "other_layer", "other_head", "lower_layer", "lower_head")
COUNT = re.compile(r"\d of \d")  # a count, which is no number of a column of values
UNITS = {1.0, *SCALES.values()}


class Quantity(NamedTuple):
    """What a printed number is of: the key columns of its row, and the column that it is from."""

    key: tuple[tuple[str, str], ...]
    column: str


class Printing(NamedTuple):
    """A quantity as one page prints it.

    Attributes:
        value: value of the row.
        units: the factors by which the printed digits may have been scaled.
        page: the page.
        text: the printed number.
    """

    value: float
    units: frozenset[float]
    page: str
    text: str


@cache
def key_columns(data: Path, table: str) -> tuple[str, ...]:
    """Return the columns of a table that identify a row, but for the split."""
    frame = frame_of(data, table)
    return tuple(
        str(name)
        for name, values in frame.items()
        if name != "split"
        and not str(name).startswith("n_")
        and (name in PLACES or not pd.api.types.is_float_dtype(values))
    )


def printings(site: Site) -> Iterator[tuple[Quantity, Printing]]:
    """Yield every printed number with a row that is not evidence of one half of the sentences."""
    data = site.folder / "data"
    for page, numbers in pages_of(site):
        for number in numbers:
            row = in_line(data, number.table, number.line)
            text = number.text.replace("\u202f", " ").replace("\xa0", " ").rpartition(": ")[2]
            match = None if COUNT.search(text) else NUMBER.search(text)
            if match is None or row.get("split", "all") != "all":
                continue
            keys = key_columns(data, number.table)
            of = _column_of(row, keys, match[1], (match[2] or "").strip())
            if of is not None:
                column, value, units = of
                key = tuple((name, row[name]) for name in keys if row[name])
                table = () if "metric" in row else (("table", number.table),)
                name = page.relative_to(site.folder).as_posix()
                yield Quantity((*table, *key), column), Printing(value, units, name, number.text)


def _column_of(
    row: dict[str, str], keys: tuple[str, ...], digits: str, unit: str
) -> tuple[str, float, frozenset[float]] | None:
    """Return the first column of values that a page prints as these digits, with its scales."""
    scales = {SCALES[unit]} if unit in SCALES else UNITS
    for column, text in row.items():
        if column in keys or column == "split" or not text:
            continue
        value = pd.to_numeric(text, errors="coerce")
        values = np.array([value, -value], float)
        fitting = frozenset(s for s in scales if rounds_to(values, digits, s).any())
        if fitting:
            return column, float(value), fitting
    return None


def contradictions(found: dict[Quantity, list[Printing]]) -> dict[Quantity, list[Printing]]:
    """Return the quantities with several values, or without a unit that all pages share."""
    return {
        quantity: prints
        for quantity, prints in found.items()
        if len({round(each.value, 9) for each in prints}) > 1
        or not frozenset.intersection(*(each.units for each in prints))
    }


def by_quantity(site: Site) -> dict[Quantity, list[Printing]]:
    found: dict[Quantity, list[Printing]] = defaultdict(list)
    for quantity, printing in printings(site):
        found[quantity].append(printing)
    return found


def test_a_quantity_has_one_value_and_one_unit_on_all_pages(any_site: Site) -> None:
    found = by_quantity(any_site)
    assert sum(len({each.page for each in prints}) > 1 for prints in found.values()) > 20
    assert [*contradictions(found).items()] == []


def test_values_of_two_sets_of_sentences_and_of_two_units_are_seen() -> None:
    of = Quantity((("metric", "entropy"),), "value")
    share = Printing(0.25, frozenset({0.01}), "a.html", "25.0 %")
    alike, other_value, other_unit = (
        share._replace(page="b.html"),
        share._replace(value=0.26, page="b.html"),
        share._replace(units=frozenset({1.0}), page="b.html"),
    )
    assert not contradictions({of: [share, alike]})
    assert contradictions({of: [share, other_value]})
    assert contradictions({of: [share, other_unit]})
