"""The page on ablating heads: groups, a map of heads, pruning, estimates, and a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headbook.charts import Plot
from headbook.charts.ablation import GroupEffect, effect_ends, effect_step, group_plot
from headbook.pages.importance_parts.tasks import TaskSection, task_section
from headbook.pages.parts import ablation as parts
from headbook.pages.parts.page import AnalysisPage, Question
from headbook.pages.parts.table import HeatCell, PageTable, Row, words_cell
from headbook.report.ablation import (
    HEAVY_NAME,
    KEYS,
    SINK,
    choice_text,
    effect_unit,
    head_changes,
    loss_target,
    margin_text,
    short_verdict,
    unit_factor,
)
from headbook.report.answers.ablation import importance as answers
from headbook.report.answers.ablation.tasks import gap_sentences
from headbook.report.facts.sinks import sink_heads_text
from headbook.report.families import FAMILY_OF_TYPE, Family, families, family_names, sink_tokens
from headbook.report.findings.finding import Parts, head_link
from headbook.report.head_types import OffSinkType
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, capital, count_text, interval_text
from headbook.schema import HeadName, Replacement
from headbook.study.ablation.effect_tests import ranked_target
from headbook.study.ablation.results import AblationReason, AblationResults
from headbook.study.ablation_tables import EXACT, GROUP

TITLE = "What does the model lose without a head?"
MAX_LISTED = 150  # heads of the table; the files have all of them
MAX_LINKED = 400  # heads beyond which cells of the map are no links, to keep the page small
MANY = 24  # heads of a layer from which on cells of the map are too small for numbers
REMOVE = "remove removed removal drop delete cut prune pruning removable without"
Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class HeadMap:
    """Effects of all heads of a stack on fills that show their amounts.

    Attributes:
        title: kind of attention; empty if the model has one stack.
        table: a row for each layer, a column for each head.
    """

    title: str
    table: PageTable


@dataclass(frozen=True, kw_only=True)
class ImportancePage(AnalysisPage):
    """The page on the effects of ablating heads.

    Attributes:
        ablation: results that the page shows.
        groups: groups of heads that were replaced together; None without any.
        maps: effects of all heads, by stack.
        ends: ends of the scale of the maps, as text.
        sink: three ways of replacing sink heads; None without such a group.
        pruned: curves of the change while heads are removed; None if not measured.
        layers: effects of heads within their layers.
        legend: classes and names of the families in that plot.
        estimates: estimates beside exact changes; None if all heads are exact.
        direct: direct beside total change of the true token's logit; None if not measured.
        types: heads of each type, replaced together in three ways; None if not measured.
        heads: heads with intervals and verdicts, the largest change first.
        left_out: number of heads that the table leaves out.
        tasks: sections of the tasks that were measured.
    """

    template: ClassVar[str] = "importance.html"
    styles = (*AnalysisPage.styles, "importance")
    ablation: AblationResults
    groups: Plot | None
    maps: tuple[HeadMap, ...]
    ends: tuple[str, str]
    sink: PageTable | None
    pruned: Plot | None
    layers: Plot
    legend: tuple[tuple[str, str], ...]
    estimates: Plot | None
    direct: Plot | None
    types: PageTable | None
    heads: PageTable
    left_out: int
    tasks: tuple[TaskSection, ...]

    @property
    def verdicts(self) -> list[tuple[str, str, int]]:
        """Classes of verdicts, their names and numbers of heads; without a class: no ring."""
        plain = plain_verdict(self.ablation)
        counts = answers.verdict_counter(self.ablation).most_common()
        found = [(each if each != plain else "", short_verdict(each), n) for each, n in counts]
        estimated = int((self.ablation.chosen == AblationReason.NOT_ABLATED).sum())
        return [*found, ("", "only estimated (≈)", estimated)] if estimated else found

    @property
    def measure(self) -> answers.Measure:
        """Words for what changes, and how the change is measured."""
        return answers.measure_of(self.ablation)

    @property
    def margin(self) -> str:
        """Mean change from which on a sentence counts as changed, with its unit."""
        return margin_text(self.ablation)

    @property
    def unit(self) -> str:
        """Unit of the changes in words."""
        return effect_unit(self.ablation)

    @property
    def chosen(self) -> str:
        """Reason for which the replaced heads were chosen; empty if all heads were replaced."""
        if (self.ablation.chosen != AblationReason.NOT_ABLATED).all():
            return ""
        return choice_text(self.ablation, self.ablation.chosen)

    @property
    def estimates_note(self) -> Parts:
        """Agreement of estimates with exact changes, in words; empty without a random sample."""
        return answers.estimates_note(self.ablation)

    @property
    def harmful(self) -> Parts:
        """Heads without which the loss is lower; empty without any."""
        return answers.harmful_note(self.ablation)


def has_importance(results: Results) -> bool:
    """Return whether a study has heads that were ablated or whose effect was estimated."""
    return study_of(results).corpus_sums.ablation is not None


def importance_page(results: Results) -> ImportancePage:
    """Return the page on importance of a study whose heads were replaced."""
    study = study_of(results)
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    changes = _with_styles(results, head_changes(ablation, ranked_target(ablation)))
    groups, steps = study.head_groups, study.pruning
    steps = steps[steps["target"] == loss_target(ablation)]
    steps = steps if steps["high"].notna().any() else steps[:0]
    ends = effect_ends(changes["value"].to_list())
    sink = _sink_rows(ablation, groups, results)
    return ImportancePage(
        path="importance.html",
        title=TITLE,
        description=f"What {study.manifest.model.name} loses when the outputs of heads are "
        "replaced: groups, single heads, and verdicts.",
        topic="Importance of heads",
        answer=answers.importance_answer(ablation, _last_layers(results)),
        scope=_scope(ablation, groups),
        questions=tuple(_questions(ablation, results, sink, steps)),
        absent=(*_absent(ablation, has_pruning=not steps.empty), *gap_sentences(study)),
        ablation=ablation,
        groups=_group_plot(ablation, groups, results),
        maps=tuple(_maps(ablation, changes, results, ends)),
        ends=(f"{ends[0]:,.10g}", f"{ends[1]:,.10g} {effect_unit(ablation)}"),
        sink=parts.sink_table(ablation, sink, results) if not sink.empty else None,
        pruned=None if steps.empty else parts.pruning_plot(ablation, steps),
        layers=parts.layers_plot(ablation, changes),
        legend=_legend(results),
        estimates=parts.estimates_plot(ablation, changes),
        direct=parts.direct_plot(changes, study.importance),
        types=parts.removed_table(ablation, groups[~groups["group"].isin(sink["group"])]),
        heads=_heads_table(ablation, changes),
        left_out=max(0, len(changes) - MAX_LISTED),
        tasks=tuple(task_section(task) for task in study.corpus_sums.tasks.values()),
    )


def _with_styles(results: Results, changes: pd.DataFrame) -> pd.DataFrame:
    """Return changes of heads by stack, with the class and the name of each head's family."""
    stacks = pd.Categorical(changes["stack"], categories=[*results], ordered=True)
    changes = changes.iloc[np.argsort(stacks.codes, kind="stable")]
    styles, names = [], []
    for stack, layer, head in changes[["stack", "layer", "head"]].itertuples(index=False):
        family = families(results[stack]).get((layer, head)) if stack in results else None
        styles.append(f"f-{family}" if family else "c-other")
        names.append(family_names(results[stack])[family] if family else "")
    return changes.assign(style=styles, family=names)


def _last_layers(results: Results) -> dict[str, int]:
    """Return the last layer of each stack that writes into the output of the model."""
    stacks = [name for name in results if name != "encoder"]
    return {name: results[name].stack.attention_layers[-1] for name in stacks}


def _scope(ablation: AblationResults, groups: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    measured = (
        "Sentences",
        f"{len(ablation.content_hash):,}, those with the smallest hashes of their content; a "
        "head’s output is replaced by its mean over the other half.",
    )
    sets = int(groups["random_sets"].max()) if len(groups) else 0
    random = f", and {sets:,} random sets with as many heads in each layer" if sets else ""
    return measured, ("Compared with", f"the whole model{random}.")


def _absent(ablation: AblationResults, *, has_pruning: bool) -> Iterator[str]:
    """Yield the parts that were not measured, with the option that measures each."""
    if not has_pruning:
        yield (
            "How many heads can go together, and heads of each type: --importance full measures it."
        )
    estimated = int((ablation.chosen == AblationReason.NOT_ABLATED).sum())
    if estimated:
        heads = count_text(estimated, "head")
        yield f"Exact changes of {heads}, which are estimated: --importance full measures them."


def _questions(
    ablation: AblationResults, results: Results, sink: pd.DataFrame, steps: pd.DataFrame
) -> Iterator[Question]:
    """Yield the further questions: single heads, sink heads, and heads that go together."""
    yield Question(
        "heads", "Which heads count when replaced alone?", answers.heads_answer(ablation),
        "important matter needed strongest effect",
    )  # fmt: skip
    if removable := answers.removable_answer(ablation):
        yield Question("removable", "Which heads could go?", removable, f"{REMOVE} useless spare")
    if not sink.empty:
        tokens = sink_tokens(results[sink["stack"].iloc[0]])
        answer = answers.sink_answer(ablation, sink, tokens)
        yield Question("sink", "Are the sink heads dead?", answer, f"dead useless no-op {tokens}")
    if not steps.empty:
        answer = answers.pruning_answer(ablation, steps)
        yield Question("pruning", "How many heads can go together?", answer, REMOVE)


def _sink_rows(ablation: AblationResults, groups: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return the rows of the sink heads of the first stack that has such a group."""
    found = (answers.sink_rows(groups, stack, ranked_target(ablation)) for stack in results)
    return next((rows for rows in found if len(rows)), groups[:0])


def _group_plot(ablation: AblationResults, groups: pd.DataFrame, results: Results) -> Plot | None:
    """Return the plot of all groups but those of shared keys, the largest effect first."""
    rows = groups[
        (groups["target"] == ranked_target(ablation))
        & (groups["metric"] == GROUP)
        & (groups["replacement"] == Replacement.MEAN)
        & ~groups["group"].str.contains(KEYS, regex=False)
    ].sort_values("value", ascending=False, kind="stable")
    if rows.empty:
        return None
    effects = [_group_effect(ablation, row, results) for row in rows.to_dict("records")]
    caption = ["All heads of a group at once. Dot and bar: change with its 95 % interval."]
    if rows["sum_of_single_effects"].notna().any():
        caption.append("Upright line: sum of the changes without each of these heads alone.")
    if rows["random_low"].notna().any():
        caption.append("Grey: range of random sets with as many heads in each layer.")
    for stack in rows.loc[rows["group"] == SINK, "stack"]:
        of = f" of {STACKS[stack]}" if len(results) > 1 else ""
        caption.append(f"Sink heads{of}: {sink_heads_text(results[stack])}.")
    return group_plot("importance-groups", " ".join(caption), effects, unit=effect_unit(ablation))


def _group_effect(
    ablation: AblationResults, row: Mapping[Any, Any], results: Results
) -> GroupEffect:
    """Return the effect of a group in the unit of pages."""
    factor, group = unit_factor(ablation), str(row["group"])
    tokens = sink_tokens(results[row["stack"]])
    names = {SINK: f"Sink heads ({tokens})", HEAVY_NAME: f"Over 90 % on {tokens}"}
    name = names.get(group, capital(group))
    family = FAMILY_OF_TYPE.get(OffSinkType(group)) if group in [*OffSinkType] else None
    family = Family.SINK if group in names else family
    beside, supported = answers.random_rank(row)
    printed = answers.change_number(ablation, row, "head_groups")
    return GroupEffect(
        name=f"{name} ({STACKS[row['stack']]})" if len(results) > 1 else name,
        style=f"f-{family}" if family else "",
        heads=int(row["heads"]),
        value=float(row["value"]) * factor,
        low=float(row["low"]) * factor,
        high=float(row["high"]) * factor,
        singles=float(row["sum_of_single_effects"]) * factor,
        random_low=float(row["random_low"]) * factor,
        random_high=float(row["random_high"]) * factor,
        printed=printed._replace(text=answers.short_number(float(row["value"]) * factor)),
        beside=beside,
        supported=supported and group in names,
    )


def plain_verdict(ablation: AblationResults) -> str:
    """Return the verdict that has no ring: the commonest one, if no head is only estimated."""
    counts = answers.verdict_counter(ablation)
    if (ablation.chosen == AblationReason.NOT_ABLATED).any() or not counts:
        return ""
    return counts.most_common(1)[0][0]


def _maps(
    ablation: AblationResults,
    changes: pd.DataFrame,
    results: Results,
    ends: tuple[float, float],
) -> Iterator[HeadMap]:
    """Yield a map of all heads for each stack."""
    plain, linked = plain_verdict(ablation), len(changes) <= MAX_LINKED
    for stack in results:
        of_stack = changes[changes["stack"] == stack]
        rows = []
        for layer, heads in of_stack.groupby("layer", sort=True):
            cells = tuple(
                _cell(ablation, row, ends, plain, linked=linked)
                for row in heads.sort_values("head").to_dict("records")
            )
            rows.append(Row(f"layer {layer}", cells))
        numbers = sorted(of_stack["head"].unique())
        style = "heat effects-map" + (" small" if len(numbers) >= MANY else "")
        titles = ("layer", *(f"H{n}" for n in numbers))
        caption = f"Change without each head, {effect_unit(ablation)}"
        table = PageTable(titles, tuple(rows), caption, style)
        yield HeadMap(capital(STACKS[stack]) if len(results) > 1 else "", table)


def _cell(
    ablation: AblationResults,
    row: Mapping[Any, Any],
    ends: tuple[float, float],
    plain: str,
    *,
    linked: bool,
) -> HeatCell:
    """Return the cell of a head: its change on a fill, with a ring for its verdict.

    Args:
        ablation: results of all heads.
        row: row of `head_changes`.
        ends: ends of the scale of fills.
        plain: verdict without a ring; empty if each verdict has one.
        linked: whether the number leads to its row.
    """
    exact, verdict = row["method"] == EXACT, row["verdict"]
    fill = effect_step(row["value"], ends)
    fill += "" if exact else " estimated"
    fill += f" ring {verdict}" if verdict and verdict != plain else ""
    printed = answers.effect_row(ablation, row, exact=exact)
    if np.isnan(row["value"]):
        return HeatCell(printed.text.removeprefix("≈\u202f"), "q0")
    note = f"{parts.row_name(row)}: {printed.text} {effect_unit(ablation)} {_change_text(row)}"
    return HeatCell(printed.text, fill, printed if linked else None, note)


def _change_text(row: Mapping[Any, Any]) -> str:
    """Return interval, verdict and family of a head in words."""
    verdict = short_verdict(row["verdict"]) if row["method"] == EXACT else "estimated"
    words = ", ".join(filter(None, (verdict, row["family"])))
    return f"{interval_text(row['low'], row['high'])} {words}".strip()


def _heads_table(ablation: AblationResults, changes: pd.DataFrame) -> PageTable:
    """Return the table of heads, the largest change first."""
    rows = changes.sort_values("value", ascending=False, kind="stable").head(MAX_LISTED)
    titles = ("Head", "Family", f"Change, {effect_unit(ablation)}", "Verdict")
    lines = []
    for row in rows.to_dict("records"):
        head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
        exact = row["method"] == EXACT
        verdict = short_verdict(row["verdict"]) if exact else "estimated"
        cells = (words_cell(row["family"]), parts.effect_cell(row), words_cell(verdict))
        lines.append(Row(head_link(head), cells))
    return PageTable(titles, tuple(lines), "Largest change first, with 95 % intervals.")


def _legend(results: Results) -> tuple[tuple[str, str], ...]:
    """Return classes and names of the families of heads, in the order of families."""
    names = {
        family: name
        for each in results.values()
        for family, name in family_names(each).items()
        if family in families(each).values()
    }
    return tuple((f"f-{family}", names[family]) for family in Family if family in names)
