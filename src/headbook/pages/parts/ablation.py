"""Heads that were replaced together, as rows of a table."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from headbook.pages.parts.table import NumberCell, PageTable, Row, words_cell
from headbook.report.ablation import HEAVY_NAME, REPLACEMENTS, unit, unit_factor, verdict_text
from headbook.report.head_types import OffSinkType
from headbook.report.wording import MISSING, STACKS, interval_text, number
from headbook.study.ablation import AblationResults
from headbook.study.ablation_tables import GROUP
from headbook.study.ablation_tests import ranked_target

TYPES = ("sink", HEAVY_NAME, *map(str, OffSinkType))


def removed_table(
    ablation: AblationResults, groups: pd.DataFrame, stack: str = ""
) -> PageTable | None:
    """Three lines for each type of heads; None where no heads were replaced together.

    Args:
        groups: `Study.head_groups`.
        stack: whose heads; those of all stacks without it.
    """
    rows = tuple(_rows(ablation, groups[groups["stack"] == stack] if stack else groups))
    titles = (
        "Heads", "Number", "Replaced by", f"Change, {unit(ablation)}", "Verdict",
        f"Sum of single changes, {unit(ablation)}",
        f"Random sets, {unit(ablation)}", "Rank among them",
    )  # fmt: skip
    return PageTable(titles, rows, "Heads replaced together.") if rows else None


def ablation_by_layer(ablation: AblationResults, groups: pd.DataFrame) -> PageTable | None:
    """A line for each layer without all of its heads; None where none was replaced."""
    some = _groups_with_verdict(ablation, groups)
    some = some[some["group"].str.fullmatch(r"layer \d+")]
    several, by = some["stack"].nunique() > 1, unit_factor(ablation)
    rows = tuple(
        Row(
            each["group"] + (f" ({STACKS[each['stack']]})" if several else ""),
            (
                str(int(each["heads"])),
                effect_cell(each, by),
                words_cell(verdict_text(each, "layers and groups")),
                number(each["sum_of_single_effects"] * by),
            ),
        )
        for each in some.to_dict("records")
    )
    titles = (
        "Layer", "Heads", f"Change, {unit(ablation)}", "Verdict",
        f"Sum of single changes, {unit(ablation)}",
    )  # fmt: skip
    return (
        PageTable(titles, rows, "All heads of a layer replaced by their means.") if rows else None
    )


def _groups_with_verdict(ablation: AblationResults, groups: pd.DataFrame) -> pd.DataFrame:
    """Groups by the target whose verdicts pages show."""
    target = groups["target"] == ranked_target(ablation)
    return groups[target & (groups["metric"] == GROUP)]


def _rows(ablation: AblationResults, groups: pd.DataFrame) -> Iterator[Row]:
    by = unit_factor(ablation)
    rows = _groups_with_verdict(ablation, groups)
    rows = rows[rows["group"].isin(TYPES)]
    several = groups["stack"].nunique() > 1
    rows = rows.assign(
        type=rows["group"].map([*TYPES].index),
        order=rows["replacement"].map([*map(str, REPLACEMENTS)].index),
    ).sort_values(["stack", "type", "order"], kind="stable")
    for each in rows.to_dict("records"):
        where = f" ({STACKS[each['stack']]})" if several else ""
        low, high, sets = (
            each["random_low"] * by,
            each["random_high"] * by,
            int(each["random_sets"]),
        )
        cells = (
            str(int(each["heads"])),
            words_cell(str(each["replacement"]).replace("_", " ")),
            effect_cell(each, by),
            words_cell(verdict_text(each, "layers and groups")),
            number(each["sum_of_single_effects"] * by),
            f"{sets:,}: {number(low, like=high)} to {number(high)}" if sets else MISSING,
            f"{int(each['rank'])} of {sets + 1:,}" if sets else MISSING,
        )
        yield Row(f"{each['group']}{where}", cells)


def effect_cell(row: Mapping[Any, Any], by: float = 1.0) -> NumberCell:
    """A change with its interval.

    Args:
        row: ``value``, ``low`` and ``high``.
        by: what brings them into the page's unit.
    """
    ends = interval_text(row["low"] * by, row["high"] * by)
    return NumberCell(number(row["value"] * by), ends, note="", too_few=False)
