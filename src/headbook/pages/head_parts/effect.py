"""The section on the effects of ablating a head."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headbook.charts import Drawing
from headbook.charts.one_head import EffectScale, effect_dots, effect_picture
from headbook.pages.parts.table import NumberCell, PageTable, Row, words_cell
from headbook.report import ablation as report
from headbook.report.answers.ablation import tasks
from headbook.report.linked_rows import LinkedNumber, linked
from headbook.report.results import StackResults
from headbook.report.wording import count_text, ordinal, sentence_page
from headbook.results.formats import THIN, head_file, head_name, interval_text, number, percent
from headbook.results.number import Number
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.effect_tests import ATTRIBUTION, COSINE_TARGETS, token_target
from headbook.study.ablation.results import AblationResults, MissedToken
from headbook.study.ablation.tasks import DENOISING, PATCHING_ALL, patching_effects
from headbook.study.ablation_tables import DIRECT, EFFECT, EXACT, REPAIR

LISTED = 5  # ranks of tokens that are listed, with the median one in addition


@dataclass(frozen=True)
class MissedTokenRow:
    """A token at which the head is missed.

    Attributes:
        rank: rank of the token among all tokens, in words.
        preceding, token, following: the token and the text around it.
        before, after: score at the token with the head and without; ``before`` may be empty.
        sentence, href: number of the sentence, and its page; empty if it has none.
    """

    rank: str
    preceding: str
    token: str
    following: str
    before: str
    after: str
    sentence: int
    href: str


@dataclass(frozen=True)
class AblationSection:
    """The effects of ablating a head.

    Attributes:
        value: change if the head's output is replaced by its mean; None if unknown.
        what: interval of the change, target, and rank among all heads.
        picture: all heads on a logarithmic axis; None without enough effects above 0.
        verdict: conclusion from the sentences that change, or why there is none; empty if the
            change is unknown.
        margin: margin of verdicts, with its unit.
        verdict_target: target of verdicts, in words.
        target: target of the table, in words.
        instead: changes by replacement of the output.
        remarks: direct and total change, and heads that back it up, in sentences.
        tokens: tokens at which the head is missed most; empty if the head was not replaced.
        scores: meaning of ``before`` and ``after`` of the tokens, in words.
        tasks: changes of tasks without the head; None without tasks.
    """

    value: LinkedNumber | None
    what: str
    picture: Drawing | None
    verdict: str
    margin: str
    verdict_target: str
    target: str
    instead: PageTable
    remarks: tuple[str, ...]
    tokens: tuple[MissedTokenRow, ...]
    scores: str
    tasks: PageTable | None


def ablation_section(results: StackResults, head: HeadName) -> AblationSection | None:
    """Return the effects of ablating a head; None if no head was replaced."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return None
    rows = results.cached(report.rows_by_head).get(head, {})
    target = AblationTarget(report.main_target(ablation))
    columns = ("In its place", f"Change, {report.effect_unit(ablation)}", "Verdict")
    backed = results.cached(report.backups).get(head)
    value, what = _change(results, ablation, head)
    return AblationSection(
        value=value,
        what=what,
        picture=_picture(results, ablation, head),
        verdict=_verdict(ablation, rows) if value else "",
        margin=report.margin_text(ablation),
        verdict_target=report.verdict_target_text(ablation),
        target=report.TARGET_NAMES[target],
        instead=PageTable(columns, tuple(_instead(ablation, rows))),
        remarks=(*_repaired(rows), *((backed,) if backed else ())),
        tokens=results.cached(_tokens).get(head, ()),
        scores="probability of the true token"
        if report.loss_target(ablation) in ablation.unablated
        else "1 minus the cosine of the token's last state",
        tasks=_tasks(results, head),
    )


def _tasks(results: StackResults, head: HeadName) -> PageTable | None:
    """Return a row for each target of each task: the change without the head, and the verdict."""
    effects, rows = results.cached(report.rows_by_head).get(head, {}), []
    for task in results.study.corpus_sums.tasks.values():
        for target in task.targets:
            row = effects.get((EFFECT, Replacement.MEAN, target))
            row = row or effects.get((ATTRIBUTION, Replacement.MEAN, target))
            if row is None or math.isnan(row["value"]):
                continue
            words = words_cell(report.short_verdict(row["verdict"]))
            if row["method"] != EXACT:
                words = words_cell("estimated")
            name = f"{tasks.target_name(target)}, {tasks.task_unit(target)}"
            rows.append(Row(name, (_cell_of(tasks.effect_number(target, row)), words)))
        rows += _patched(results, task, head)
    columns = ("Task", "Lost without it", "Verdict")
    return PageTable(columns, tuple(rows)) if rows else None


def _patched(results: StackResults, task: AblationResults, head: HeadName) -> Iterator[Row]:
    """Yield how much of the difference of logits the head restores, if the task is patching."""
    if task.targets[0] != AblationTarget.PATCHING:
        return
    effects = results.cached(_patching_effects)
    for row in effects[(effects[[*HeadName._fields]] == list(head)).all(axis=1)].to_dict("records"):
        cell = _cell_of(tasks.patching_number(row))
        yield Row("Restored when patched, all positions", (cell, words_cell()))


def _cell_of(change: Number) -> NumberCell:
    return NumberCell(
        change.as_text(), change.as_text("ends"), note="", too_few=False, number=linked(change)
    )


def _patching_effects(results: StackResults) -> pd.DataFrame:
    """Return what each patched head restores at all positions."""
    effects = patching_effects(results.study.corpus_sums.tasks[AblationTarget.PATCHING])
    return effects[(effects["direction"] == DENOISING) & (effects["label"] == PATCHING_ALL)]


def _change(
    results: StackResults, ablation: AblationResults, head: HeadName
) -> tuple[LinkedNumber | None, str]:
    """Return the change without a head with its unit, and its target and rank in words."""
    row = report.change_row(
        ablation, results.cached(report.rows_by_head).get(head, {}), Replacement.MEAN
    )
    if row is None or math.isnan(row["value"]):
        return None, ""
    cell = _cell(ablation, row)
    columns = ("stack", "layer", "head", "metric", "replacement", "target")
    text = f"{cell.text} {report.effect_unit(ablation)}"
    linked = LinkedNumber(text, "importance", tuple((name, row[name]) for name in columns))
    target = report.main_target(ablation)
    moved = "sentence vector" if target == AblationTarget.EMBEDDING else "last states"
    interval = cell.interval and f"{cell.interval}: "
    what = (
        f"{interval}change of the {moved} (1 − cosine)"
        if target in COSINE_TARGETS
        else f"{interval}change of the {report.TARGET_NAMES[AblationTarget(target)]}"
    )
    values = results.cached(effects_of_heads)["value"]
    above = int((values > row["value"] * report.unit_factor(ablation)).sum())
    known = int(values.notna().sum())
    estimated = "" if row["method"] == EXACT else ", estimated"
    return linked, f"{what}{estimated}; {rank_words(above + 1)} of {count_text(known, 'head')}"


def _verdict(ablation: AblationResults, rows: report.Rows) -> str:
    """Return the verdict on a head as a sentence; for an estimate, that there is none."""
    verdict = report.verdict_of_row(ablation, rows, Replacement.MEAN)
    if verdict:
        return f"Verdict: {verdict}."
    if (EFFECT, Replacement.MEAN, report.main_target(ablation)) in rows:
        return ""
    return "No verdict: the head was not replaced, its change is only estimated (first order)."


def rank_words(rank: int) -> str:
    """Return a rank from the top in words: ``largest``, ``second largest``, ``41st largest``."""
    names = {1: "largest", 2: "second largest", 3: "third largest"}
    return names.get(rank, f"{ordinal(rank)} largest")


def effects_of_heads(results: StackResults) -> pd.DataFrame:
    """Return the change without each head of the model, in the unit of pages."""
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    return report.head_changes(ablation)


def _still(results: StackResults) -> tuple[EffectScale, str] | None:
    """Return the axis of all effects, and all heads on it; None without enough effects."""
    effects = results.cached(effects_of_heads)
    values = effects["value"].to_numpy(np.float64)
    scale = EffectScale.of(values)
    exact = (effects["method"] == EXACT).to_numpy()
    return None if scale is None else (scale, effect_dots(scale, values, exact))


def _picture(results: StackResults, ablation: AblationResults, head: HeadName) -> Drawing | None:
    """Return the change without one head among those of all heads."""
    still, effects = results.cached(_still), results.cached(effects_of_heads)
    mine = effects[
        (effects["stack"] == head.stack)
        & (effects["layer"] == head.layer)
        & (effects["head"] == head.head)
    ]
    if still is None or mine.empty or math.isnan(mine["value"].iloc[0]):
        return None
    scale, dots = still
    value, low, high = (float(mine[name].iloc[0]) for name in ("value", "low", "high"))
    known = count_text(int(effects["value"].notna().sum()), "head")
    interval = "" if math.isnan(low) else f"; bar: its 95{THIN}% interval"
    caption = f"All {known} on a logarithmic scale, {report.effect_unit(ablation)}{interval}."
    if (effects["method"] != EXACT).any():
        caption += " Pale dots: estimates."
    margin = report.drawn_margin(ablation)
    if scale.low < margin < scale.high:
        caption += (
            f" Dashed: the margin of verdicts, {number(margin)} {report.effect_unit(ablation)}; a "
            "sentence that changes by more counts as changed."
        )
    if scale.cut(effects["value"]):
        caption += " Changes below the axis stand at its left end."
    caption += " Output replaced by its mean over the other half of the sentences."
    return effect_picture(
        f"effect-{head_file(head)}", caption, scale, dots,
        label=head_name(head), value=value, ends=(low, high), margin=margin,
    )  # fmt: skip


def _cell(ablation: AblationResults, row: Mapping[str, Any]) -> NumberCell:
    by = report.unit_factor(ablation)
    about = "" if row["method"] == EXACT else "≈\u2009"
    ends = interval_text(row["low"] * by, row["high"] * by) if row["method"] == EXACT else ""
    return NumberCell(f"{about}{number(row['value'] * by)}", ends, note="", too_few=False)


def _instead(ablation: AblationResults, rows: report.Rows) -> Iterator[Row]:
    for replacement, what in report.REPLACEMENT_NAMES.items():
        row = report.change_row(ablation, rows, replacement)
        if row is not None:
            verdict = report.verdict_of_row(ablation, rows, replacement)
            outcome = verdict if row["method"] == EXACT else "estimated"
            yield Row(what, (_cell(ablation, row), words_cell(outcome)))


def _repaired(rows: report.Rows) -> Iterator[str]:
    """Yield a sentence on the direct and the total change of the logit of the true token."""
    keys = (Replacement.MEAN, AblationTarget.LOGIT)
    direct, total, repair = (rows.get((metric, *keys)) for metric in (DIRECT, EFFECT, REPAIR))
    if direct and total:
        made_up = ""
        if repair and not math.isnan(repair["value"]):
            ends = interval_text(repair["low"], repair["high"], share=True)
            made_up = f"; later layers make up for {percent(repair['value'])} {ends}".rstrip()
        yield (
            f"Logit of the true token: {_with_ends(direct)} by the residual path alone, "
            f"{_with_ends(total)} in all{made_up}."
        )


def _with_ends(row: Mapping[str, Any]) -> str:
    return f"{number(row['value'])} {interval_text(row['low'], row['high'])}".rstrip()


def _after(ablation: AblationResults, missed: MissedToken, probability: float) -> str:
    if report.loss_target(ablation) in ablation.unablated:
        return number(probability)
    change = number(missed.change * report.unit_factor(ablation))
    return f"{change}\u00a0{report.effect_unit(ablation)}"


def _tokens(results: StackResults) -> dict[HeadName, tuple[MissedTokenRow, ...]]:
    """Return the tokens at which each head is missed: the first ranks, and the median one."""
    ablation = results.study.corpus_sums.ablation
    paged = {sentence.index for sentence in results.study.sentence_data.paged}
    assert ablation is not None
    table = results.study.effect_tokens
    table = table[table["target"] == token_target(ablation)]
    by_head: dict[HeadName, list[MissedTokenRow]] = {}
    for missed, (before, after) in zip(
        ablation.missed, table[["before", "after"]].itertuples(index=False), strict=True
    ):
        head = ablation.heads[missed.head]
        middle = missed.rank - 1 == (missed.tokens - 1) // 2
        if head.stack == results.stack.name and (missed.rank <= LISTED or middle):
            rank = f"rank {missed.rank:,} of {missed.tokens:,}{', the median' if middle else ''}"
            by_head.setdefault(head, []).append(
                MissedTokenRow(
                    rank, missed.preceding, missed.token, missed.following,
                    "" if math.isnan(before) else number(before), _after(ablation, missed, after),
                    missed.sentence + 1,
                    sentence_page(missed.sentence + 1) if missed.sentence in paged else "",
                )
            )  # fmt: skip
    return {head: tuple(tokens) for head, tokens in by_head.items()}
