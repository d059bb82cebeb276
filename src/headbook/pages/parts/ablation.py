"""Effects of ablation as tables and plots: groups of heads, single heads, pruning."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.charts import Plot
from headbook.charts import ablation as charts
from headbook.pages.parts.blocks import Cell, Table
from headbook.report.ablation import (
    HEAVY_NAME,
    REPLACEMENTS,
    effect_unit,
    head_change,
    unit_factor,
    verdict_text,
)
from headbook.report.facts.functions import FAMILY_NAMES, FunctionFamily
from headbook.report.facts.importance import change, random_rank
from headbook.report.wording import STACKS, capital, count_text
from headbook.results.formats import MISSING, head_name, number
from headbook.results.number import RowAddress
from headbook.schema import HeadName, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import equivalence_margin, ranked_target
from headbook.study.ablation.results import EFFECT_ORDER, AblationReason, AblationResults
from headbook.study.ablation_tables import DIRECT, EFFECT, EXACT, GROUP

RANDOM = "random order"
ORDERS = {  # names of pruning orders, with the class of their line
    EFFECT_ORDER: ("smallest effect first", "model"),
    "reversed": ("largest effect first", "other"),
    "gradient_importance": ("smallest gradient importance first", "other"),
    "attribution_estimate": ("smallest estimate first", "other"),
    "family": ("family by family", "other"),
}
MIN_POINTS = 3  # heads from which on two of their numbers are compared
GROUPS = ("sink", HEAVY_NAME, *map(str, FAMILY_NAMES))  # groups of heads that tables list


def group_name(group: str) -> str:
    """Return the name of a group of heads on pages: that of a family, or as in the tables."""
    return FAMILY_NAMES[FunctionFamily(group)] if group in [*FAMILY_NAMES] else capital(group)


def removed_table(ablation: AblationResults, groups: pd.DataFrame) -> Table | None:
    """Return three rows for each family of heads; None if no heads were replaced together.

    Args:
        groups: `Study.head_groups` without sink heads.
    """
    unit = effect_unit(ablation)
    rows = tuple(_rows(ablation, groups))
    titles = (
        "Heads", "Number", "Replaced by", f"Change, {unit}", "Verdict",
        f"Sum of single changes, {unit}", f"Random sets, {unit}", "Rank among them",
    )  # fmt: skip
    return Table(titles, rows, "Heads replaced together.") if rows else None


INSTEAD = {  # what stands in place of the outputs of sink heads
    Replacement.MEAN: "their mean output",
    Replacement.WITHOUT_SINK: "the same, {sink} masked",
    Replacement.ZERO: "zero",
}


def sink_table(ablation: AblationResults, groups: pd.DataFrame, tokens: str) -> Table:
    """Return a row for each replacement of all sink heads at once.

    Args:
        ablation: results behind the rows.
        groups: rows of the sink heads of one stack in `Study.head_groups`.
        tokens: sink tokens, in words.
    """
    rows = sorted(_groups_with_verdict(ablation, groups).to_dict("records"), key=_order)
    columns = (
        "In their place", f"Change, {effect_unit(ablation)}", "Sentences", "Beside random sets",
    )  # fmt: skip
    lines = tuple(
        (
            INSTEAD[Replacement(each["replacement"])].format(sink=tokens),
            change(ablation, each, "head_groups").bare,
            verdict_text(each, "layers and groups"),
            random_rank(each)[0] or MISSING,
        )
        for each in rows
    )
    heads = count_text(int(groups["heads"].iloc[0]), "sink head")
    return Table(columns, lines, f"{heads} replaced together.")


def _order(row: Mapping[Any, Any]) -> int:
    """Return the place of a replacement among those of sink heads."""
    return REPLACEMENTS.index(row["replacement"])


def _groups_with_verdict(ablation: AblationResults, groups: pd.DataFrame) -> pd.DataFrame:
    """Return the groups by the target whose verdicts pages show."""
    target = groups["target"] == ranked_target(ablation)
    return groups[target & (groups["metric"] == GROUP)]


def _rows(ablation: AblationResults, groups: pd.DataFrame) -> Iterator[tuple[Cell, ...]]:
    by = unit_factor(ablation)
    rows = _groups_with_verdict(ablation, groups)
    rows = rows[rows["group"].isin(GROUPS)]
    several = groups["stack"].nunique() > 1
    rows = rows.assign(
        place=rows["group"].map([*GROUPS].index),
        order=rows["replacement"].map([*map(str, REPLACEMENTS)].index),
    ).sort_values(["stack", "place", "order"], kind="stable")
    for each in rows.to_dict("records"):
        where = f" ({STACKS[each['stack']]})" if several else ""
        low, high = each["random_low"] * by, each["random_high"] * by
        sets = int(each["random_sets"])
        yield (
            f"{group_name(each['group'])}{where}",
            int(each["heads"]),
            str(each["replacement"]).replace("_", " "),
            change(ablation, each, "head_groups").bare,
            verdict_text(each, "layers and groups"),
            number(each["sum_of_single_effects"] * by),
            f"{sets:,}: {number(low, like=high)} to {number(high)}" if sets else MISSING,
            f"{int(each['rank'])} of {sets + 1:,}" if sets else MISSING,
        )


def row_name(row: Mapping[Any, Any]) -> str:
    """Return the name of the head that a row of `head_changes` is about."""
    return head_name(HeadName(row["stack"], int(row["layer"]), int(row["head"])))


def _effects_of(ablation: AblationResults, changes: pd.DataFrame) -> list[charts.HeadEffect]:
    """Return the changes of heads for plots."""
    several = changes["stack"].nunique() > 1
    return [
        charts.HeadEffect(
            f"{row['stack'] + ' ' if several else 'layer '}{row['layer']}",
            row_name(row),
            row["style"],
            float(row["value"]),
            row["method"] == EXACT,
            head_change(ablation, row, exact=row["method"] == EXACT).row,
        )
        for row in changes.to_dict("records")
    ]


def layers_plot(ablation: AblationResults, changes: pd.DataFrame) -> Plot:
    """Return the changes without single heads, by layer."""
    margin = equivalence_margin(ablation, ranked_target(ablation)) * unit_factor(ablation)
    hollow = "" if (changes["method"] == EXACT).all() else " Hollow: estimated."
    dashed = "" if np.isnan(margin) else " Dashed: the margin from which on a sentence is changed."
    caption = (
        f"Change without each head, {effect_unit(ablation)}, on a logarithmic scale; the largest "
        f"of a layer is named.{hollow}{dashed}"
    )
    heads = _effects_of(ablation, changes)
    return charts.layers_plot(
        "importance-layers", caption, heads, margin=margin, unit=effect_unit(ablation)
    )


def estimates_plot(ablation: AblationResults, changes: pd.DataFrame) -> Plot | None:
    """Return estimates beside exact changes; None if all heads are exact, or few are."""
    exact = changes[changes["method"] == EXACT]
    target, factor = ranked_target(ablation), unit_factor(ablation)
    every = effect_tests.estimated_effects(ablation, target, Replacement.MEAN) * factor
    estimates = every[exact.index.to_numpy()]
    known = ~np.isnan(estimates) & exact["value"].notna().to_numpy()
    if known.sum() < MIN_POINTS or not (ablation.chosen != AblationReason.SELECTED).any():
        return None
    caption = (
        f"Estimate and exact change of {count_text(int(known.sum()), 'head')}, "
        f"{effect_unit(ablation)}. Dashed: both equal."
    )
    heads, titles = _effects_of(ablation, exact[known]), ("estimate", "exact")
    return charts.compared_plot(
        "importance-estimates", caption, heads, [*estimates[known]], titles=titles,
        unit=effect_unit(ablation), log=True,
    )  # fmt: skip


def direct_plot(changes: pd.DataFrame, table: pd.DataFrame) -> Plot | None:
    """Return direct beside total change of the true token's logit; None if not measured."""
    keys = ["stack", "layer", "head"]
    logits = table[(table["target"] == "logit") & (table["replacement"] == "mean")]
    direct, total = (
        logits[logits["metric"] == metric].set_index(keys)["value"] for metric in (DIRECT, EFFECT)
    )
    points = pd.DataFrame({"direct": direct, "total": total}).dropna()
    points = points.join(changes.set_index(keys)["style"])
    if len(points) < MIN_POINTS:
        return None
    caption = (
        "Change of the true token's logit (above the mean of all) without each head: by the "
        "residual path alone, and in all. Above the dashed line later layers make up for it."
    )
    heads = []
    for place, total, style in zip(points.index, points["total"], points["style"], strict=True):
        row = (*zip(keys, place, strict=True), ("metric", EFFECT), ("replacement", "mean"))
        found = RowAddress("importance", (*row, ("target", "logit")))
        name = head_name(HeadName(*place))
        heads.append(charts.HeadEffect("", name, style, total, True, found))
    return charts.compared_plot(
        "importance-direct", caption, heads, [*points["direct"]], titles=("direct", "total"),
        unit="logits", log=False,
    )  # fmt: skip


def pruning_plot(ablation: AblationResults, steps: pd.DataFrame) -> Plot:
    """Return the change of the main target while ever more heads are removed, by order."""
    chance = steps["order"].str.startswith(effect_tests.RANDOM_ORDER_PREFIX)
    shares = steps[chance].groupby("share")["value"]
    band = pd.DataFrame({"value": shares.median(), "low": shares.min(), "high": shares.max()})
    band = band.reset_index().assign(order=RANDOM, kind="baseline")
    orders = steps[~chance & steps["order"].isin([*ORDERS])]
    orders = orders.assign(
        kind=orders["order"].map(lambda order: ORDERS[order][1]),
        order=orders["order"].map(lambda order: ORDERS[order][0]),
    )
    rows = pd.concat([band, orders], ignore_index=True)
    rows = rows[["order", "kind", "share", "value", "low", "high"]]
    rows[["value", "low", "high"]] *= unit_factor(ablation)
    caption = (
        "Change as ever more heads are replaced by their mean output. Orders come from one half of "
        "the sentences, curves from the other. Bands: 95 % intervals; of random orders all "
        f"{steps.loc[chance, 'order'].nunique()}."
    )
    return charts.pruning_plot("importance-pruning", caption, rows, unit=effect_unit(ablation))
