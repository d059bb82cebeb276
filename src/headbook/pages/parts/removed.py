"""Heads that were replaced together, as rows of a table."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from headbook.pages.parts.cells import Cell
from headbook.pages.parts.table import Row, Table, words
from headbook.report.numbers.changes import primary, scale, unit
from headbook.report.numbers.headgroups import HEAVY_NAME, REPLACEMENTS
from headbook.report.numbers.headtypes import Rest
from headbook.report.wording import STACKS, interval, number
from headbook.study.importancetables import GROUP
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Removals

TYPES = ("sink", HEAVY_NAME, *map(str, Rest))


def removed_table(removals: Removals, groups: pd.DataFrame, stack: str = "") -> Table | None:
    """Three lines for each type of heads; None where no heads were replaced together.

    Args:
        groups: `Study.head_groups`.
        stack: whose heads; those of all stacks without it.
    """
    rows = tuple(_rows(removals, groups[groups["stack"] == stack] if stack else groups))
    titles = (
        "Heads", "Number", "Replaced by", f"Change, {unit(removals)}", "Margin",
        "Sum of single changes", "Random sets",
    )  # fmt: skip
    return Table(titles, rows, "Heads replaced together.") if rows else None


def _rows(removals: Removals, groups: pd.DataFrame) -> Iterator[Row]:
    by, most = scale(removals), verdicts.margin(removals, primary(removals))
    rows = groups[(groups["target"] == primary(removals)) & (groups["metric"] == GROUP)]
    rows = rows[rows["random_low"].notna()]
    several = groups["stack"].nunique() > 1
    rows = rows.assign(
        type=rows["group"].map([*TYPES].index),
        order=rows["replacement"].map([*map(str, REPLACEMENTS)].index),
    ).sort_values(["stack", "type", "order"], kind="stable")
    for each in rows.to_dict("records"):
        where = f" ({STACKS[each['stack']]})" if several else ""
        low, high = each["random_low"] * by, each["random_high"] * by
        cells = (
            str(int(each["heads"])),
            words(str(each["replacement"]).replace("_", " ")),
            effect_cell(each, by),
            words(_against(each, most)),
            number(each["singles"] * by),
            f"{number(low, like=high)} to {number(high)}",
        )
        yield Row(f"{each['group']}{where}", cells)


def _against(row: Mapping[Any, Any], most: float) -> str:
    """Where an interval lies; what holds the margin is undecided."""
    if row["high"] < most:
        return "below"
    return "above" if row["low"] > most else "undecided"


def effect_cell(row: Mapping[Any, Any], by: float = 1.0) -> Cell:
    """A change with its interval.

    Args:
        row: ``value``, ``low`` and ``high``.
        by: what brings them into the page's unit.
    """
    ends = interval(row["low"] * by, row["high"] * by)
    return Cell(number(row["value"] * by), ends, note="", thin=False)
