"""What the model loses without each head: map, estimates, pruning, groups, and the heads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from headbook.charts import Figure
from headbook.charts.ablation import RANDOM, compared_effects, effect_map, pruning_curves
from headbook.pages.parts.ablation import ablation_by_layer, effect_cell, removed_table
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import PageTable, Row, words_cell
from headbook.report.ablation import (
    TARGET_NAMES,
    choice_text,
    drawn_unit,
    head_changes,
    main_target,
    margin_text,
    short_verdict,
    unit,
    unit_factor,
    verdict_target_text,
)
from headbook.report.findings import Finding
from headbook.report.findings.ablation import ablation_findings
from headbook.report.findings.finding import head_link
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, count_text, head_name
from headbook.schema import AblationTarget, Replacement
from headbook.study import ablation_tests
from headbook.study.ablation import AblationReason, AblationResults
from headbook.study.ablation_tables import DIRECT, EFFECT, EXACT
from headbook.study.sentence_data import HeadName

ORDERS = {
    "ablation_effect": "smallest effect first",
    "reversed": "largest effect first",
    "gradient_importance": "smallest gradient importance first",
    "attribution_estimate": "smallest estimate first",
    "type": "type by type",
}
LISTED, MOST = 20, 200  # heads of the table that are in sight, and in all


@dataclass(frozen=True)
class StackMap:
    """One kind of attention and the map of its heads."""

    stack: str
    title: str
    figure: Figure


@dataclass(frozen=True, kw_only=True)
class ImportancePage(Page):
    """What the model loses without heads.

    Attributes:
        target, unit: what changes, and the unit of all numbers.
        each: what a change is counted by: scored tokens or sentences.
        margin: mean change from which on a sentence counts as changed, with its unit.
        verdict_target: target of the verdicts, in words.
        chosen: how the heads that were replaced had been chosen; empty if all were.
        sample: sentences behind it.
        findings: what the numbers say.
        maps: of all heads, by stack.
        estimates: estimate against exact effect; none where all are exact.
        pruned: curves; none at the fast level.
        direct: direct against total change of the true token's logit; none without one.
        groups: heads replaced together.
        layers: whole layers replaced.
        sink: whether heads that rest on the sink are among them.
        heads, others: that were replaced, in sight and folded; the first `MOST`.
    """

    template: ClassVar[str] = "importance.html"
    target: str
    each: str
    unit: str
    margin: str
    verdict_target: str
    chosen: str
    sample: str
    findings: tuple[Finding, ...]
    maps: tuple[StackMap, ...]
    estimates: tuple[Figure, ...]
    pruned: tuple[Figure, ...]
    direct: tuple[Figure, ...]
    groups: PageTable | None
    layers: PageTable | None
    sink: bool
    heads: PageTable
    others: PageTable | None


def has_importance(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has heads that were ablated or whose effect was estimated."""
    return study_of(results).corpus_sums.ablation is not None


def importance_page(results: Mapping[str, StackResults]) -> ImportancePage:
    """The page of importance, where heads were replaced."""
    study = study_of(results)
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    table = study.importance
    rows = (*_heads(ablation),)
    groups = removed_table(ablation, study.head_groups)
    titles = ("Head", f"Change, {unit(ablation)}", "Verdict")
    return ImportancePage(
        path="importance.html",
        title="Importance of heads",
        description=f"What {study.manifest.model.name} loses when heads are replaced by their "
        "mean output: every head, estimates and exact effects, and verdicts.",
        target=TARGET_NAMES.get(main_target(ablation), main_target(ablation)),  # type: ignore[call-overload]
        each="sentence" if main_target(ablation) == AblationTarget.EMBEDDING else "scored token",
        unit=unit(ablation),
        margin=margin_text(ablation),
        verdict_target=verdict_target_text(ablation),
        chosen=choice_text(ablation, ablation.chosen),
        sample=count_text(len(ablation.content_hash), "sentence"),
        findings=tuple(ablation_findings(ablation, study.head_groups, study.pruning)),
        maps=tuple(_maps(results, ablation)),
        estimates=tuple(_estimates(ablation)),
        pruned=tuple(_pruned(ablation, study.pruning)),
        direct=tuple(_direct(table)),
        groups=groups,
        layers=ablation_by_layer(ablation, study.head_groups),
        sink=groups is not None and any("sink" in row.name for row in groups.rows),
        heads=PageTable(titles, rows[:LISTED], "Largest change first, with 95 % intervals."),
        others=PageTable(titles, rows[LISTED:MOST], "Smaller changes.") if rows[LISTED:] else None,
    )


def _maps(results: Mapping[str, StackResults], ablation: AblationResults) -> Iterator[StackMap]:
    every = head_changes(ablation)
    least, most = float(every["value"].min()), float(every["value"].max())
    end = max(abs(least), abs(most)) or 1.0
    domain = (-end, end) if least < 0 else (0.0, end)
    for stack in results:
        rows = every[every["stack"] == stack].drop(columns="stack").reset_index(drop=True)
        caption = (
            f"Change without each head ({STACKS[stack]}), {unit(ablation)}. A line across a cell: "
            "estimated. ○ can go alone, × harmful, ? undecided; other exact ones change the output."
        )
        figure = effect_map(
            f"importance-{stack}",
            caption,
            rows,
            title=f"change, {drawn_unit(ablation)}",
            domain=domain,
        )
        yield StackMap(stack, STACKS[stack], figure)


def _estimates(ablation: AblationResults) -> Iterator[Figure]:
    by = unit_factor(ablation)
    effects = ablation_tests.head_effects(ablation, main_target(ablation), Replacement.MEAN)
    why = {AblationReason.SELECTED: "largest estimates", AblationReason.AUDIT: "picked at random"}
    rows = pd.DataFrame(
        {
            "head": [head_name(head) for head in ablation_tests.head_names(effects)],
            "series": effects["reason"].map(why),
            "x": effects["estimate"] * by,
            "y": effects["value"] * by,
        }
    ).sort_values("series", kind="stable", ignore_index=True)
    if len(rows) > 2:
        caption = "Estimate and exact change of each head that was replaced. Dashed: both equal."
        titles = (f"estimate, {drawn_unit(ablation)}", f"exact change, {drawn_unit(ablation)}")
        yield compared_effects("importance-estimates", caption, rows, titles=titles)


def _direct(table: pd.DataFrame) -> Iterator[Figure]:
    """Direct and total change of the true token's logit."""
    keys = ["stack", "layer", "head"]
    logits = table[(table["target"] == "logit") & (table["replacement"] == "mean")]
    direct, total = (
        logits[logits["metric"] == m].set_index(keys)["value"] for m in (DIRECT, EFFECT)
    )
    points = pd.DataFrame({"x": direct, "y": total}).dropna()
    if len(points) > 2:
        names = [head_name(HeadName(*each)) for each in points.index]
        points = points.assign(head=names, series="").reset_index(drop=True)
        caption = (
            "Change of the true token's logit (above the mean of all) without each head: by the "
            "residual path alone, and in all. Above the dashed line later layers make up for it."
        )
        titles = ("direct change of the logit", "total change of the logit")
        yield compared_effects("importance-direct", caption, points, titles=titles)


def _pruned(ablation: AblationResults, pruning: pd.DataFrame) -> Iterator[Figure]:
    steps = pruning[pruning["target"] == main_target(ablation)]
    if steps.empty:
        return
    chance = steps["order"].str.startswith("random")
    shares = steps[chance].groupby("share")["value"]
    band = pd.DataFrame({"value": shares.median(), "low": shares.min(), "high": shares.max()})
    rows = steps[~chance].assign(order=lambda each: each["order"].map(ORDERS))
    rows = pd.concat([rows, band.reset_index().assign(order=RANDOM)], ignore_index=True)
    rows = rows[["order", "share", "value", "low", "high"]]
    rows[["value", "low", "high"]] *= unit_factor(ablation)
    caption = (
        "Change as ever more heads are replaced by their mean output. Orders from one half of the "
        "sentences, curves from the other. Bands: 95 % intervals; of random orders all 20."
    )
    title = f"change, {drawn_unit(ablation)}"
    yield pruning_curves("importance-pruning", caption, rows, title=title)


def _heads(ablation: AblationResults) -> Iterator[Row]:
    """The heads that were replaced, those of largest effect first."""
    rows = head_changes(ablation)
    rows = rows[rows["method"] == EXACT].sort_values("value", ascending=False, kind="stable")
    for each in rows.to_dict("records"):
        head = HeadName(each["stack"], int(each["layer"]), int(each["head"]))
        yield Row(head_link(head), (effect_cell(each), words_cell(short_verdict(each["verdict"]))))
