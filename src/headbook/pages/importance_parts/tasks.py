"""Sections on tasks: heads on which a task rests, by group of texts, and patched one at a time."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from headbook.pages.parts.blocks import (
    Caption,
    Columns,
    Details,
    Group,
    Question,
    Table,
    Text,
    blocks,
    row,
)
from headbook.report.ablation import choice_text, short_verdict
from headbook.report.answers.ablation import tasks as answers
from headbook.report.answers.ablation.tasks import WORDS
from headbook.report.wording import capital, count_text
from headbook.results.formats import head_name
from headbook.results.number import Number, RowAddress
from headbook.results.sentence import say
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation import effect_tests, tasks
from headbook.study.ablation.results import AblationReason, AblationResults

OPEN = 8  # heads of the open table; the others are folded
NAMED = 3  # heads that a row of the growing set names


def task_question(task: AblationResults) -> Question:
    """Return the section of a task: how well the whole model does, and on which heads it rests."""
    name = task.targets[0]
    patched = name == AblationTarget.PATCHING
    heads = _patched(task) if patched else _heads(task)
    growing = tasks.success_without(task)
    rests = answers.patching_answer(task) if patched else answers.rests_answer(task)
    observed = "pairs" if name == AblationTarget.PREFERENCE else "texts"
    about = Caption((_about(task, len(heads.rows)), *task.notes))
    more = replace(heads, rows=heads.rows[OPEN:], caption="", label="Heads of smaller effect")
    table = replace(heads, rows=heads.rows[:OPEN])
    rest = Details(f"{len(more.rows)} more heads", (more,)) if more.rows else None
    columns = blocks(
        Group(blocks(table, about, rest)), None if growing.empty else _without(task, growing)
    )
    facets = [*_by_group(task)]
    about_facets = (
        f"Change without one head, {answers.task_unit(name)}; in brackets the number of "
        f"{observed}. Heads of largest effect in all {observed} and in each group; grey: too few "
        "for an interval."
    )
    content = blocks(
        Text(rests, "evidence") if rests else None,
        Columns(columns),
        [*facets, Caption((about_facets,))] if facets else None,
    )
    return Question(f"task-{name}", WORDS[name].question, answers.success_answer(task), content)


def _without(task: AblationResults, growing: pd.DataFrame) -> Group:
    """Return accuracy without growing sets of heads, with how these were chosen."""
    before, _ = answers.accuracies(task, growing.iloc[0].to_dict())
    caption = say(
        "Heads of largest effect replaced together, chosen on one half of the sentences; accuracy "
        "on the other half, with all heads {before}.",
        before=before,
    )
    return Group((_growing(task, growing), Caption((caption,))))


def _about(task: AblationResults, replaced: int) -> str:
    """Return what the numbers of a task's heads are, how heads were chosen, and the margin."""
    patched, change = task.targets[0] == AblationTarget.PATCHING, WORDS[task.targets[0]].change
    chosen = choice_text(task, task.chosen[task.chosen != AblationReason.NOT_ABLATED])
    if patched:
        chosen = "those replaced alone for the answer" if replaced < len(task.heads) else ""
    signs = (
        "at all positions, or at the last one" if patched else "above 0 the head serves the task"
    )
    sentences = (
        f"{capital(change)}; {signs}.",
        f"{count_text(replaced, 'head')}{chosen and f' ({chosen})'}, largest first, with "
        "95\u202f% intervals.",
        answers.margin_sentence(task),
    )
    return " ".join(filter(None, sentences))


def _heads(task: AblationResults) -> Table:
    """Return the heads that were replaced alone, the largest change first."""
    target = task.targets[0]
    frames = {
        name: effect_tests.head_effects(task, name, Replacement.MEAN) for name in task.targets
    }
    order = frames[target].sort_values("value", ascending=False, kind="stable").index
    verdicts = frames[target]["verdict"]
    has_verdicts = bool((verdicts != "").any())
    titles = [f"Change, {answers.task_unit(target)}"]
    titles += [f"Accuracy, {answers.task_unit(name)}" for name in task.targets[1:]]
    rows = []
    for index in order:
        changes = [
            answers.effect_number(name, frame.loc[index].to_dict())
            for name, frame in frames.items()
        ]
        verdict = (short_verdict(verdicts[index]),) if has_verdicts else ()
        rows.append(row(task.heads[index], *changes, *verdict))
    columns = ("Head", *titles, *(("Verdict",) if has_verdicts else ()))
    return Table(columns, tuple(rows), "Without one head")


def _patched(task: AblationResults) -> Table:
    """Return the heads that were patched, those that restore most first."""
    effects = tasks.patching_effects(task)
    effects = effects.assign(way=effects["direction"] + "/" + effects["label"])
    restored = effects[effects["way"] == tasks.PATCHES[0]]
    rows = []
    for head in effect_tests.head_names(
        restored.sort_values("value", ascending=False, kind="stable")
    ):
        is_head = (effects[[*HeadName._fields]] == list(head)).all(axis=1)
        by_patch = effects[is_head].set_index("way")
        effects_of_patches = (by_patch.loc[way].to_dict() for way in tasks.PATCHES)
        rows.append(row(head, *map(answers.patching_number, effects_of_patches)))
    return Table(
        ("Head", *("all positions", "last position") * 2), tuple(rows), "Patched one at a time",
        groups=(("Restored", 2), ("Destroyed", 2)),
    )  # fmt: skip


def _growing(task: AblationResults, table: pd.DataFrame) -> Table:
    """Return accuracy without ever more of the heads of largest effect."""
    rows, before = [], frozenset[HeadName]()
    for without in table.to_dict("records"):
        added = [head_name(head) for head in without["heads"] if head not in before]
        more = f" and {len(added) - NAMED} more" if len(added) > NAMED else ""
        before = frozenset(without["heads"])
        _, accuracy = answers.accuracies(task, without)
        rows.append(row(f"{without['number']:,}", f"{', '.join(added[:NAMED])}{more}", accuracy))
    return Table(("Heads", "Added", "Accuracy"), tuple(rows), "Without several heads")


def _by_group(task: AblationResults) -> Iterator[Table]:
    """Yield a table for each facet: heads by the groups of its texts."""
    for facet, effects in answers.group_effects(task):
        sizes = effects.groupby("group")["n_sentences"].first()
        groups = [*sizes.sort_values(ascending=False, kind="stable").index]
        rows = []
        for _, of_head in effects.groupby([*HeadName._fields], sort=False):
            by_group = of_head.set_index("group", drop=False)
            changes = (_group_number(by_group.loc[group].to_dict()) for group in groups)
            (head,) = {*effect_tests.head_names(of_head)}
            rows.append(row(head, *changes))
        titles = (f"{group} ({sizes[group]:,})" for group in groups)
        yield Table(("Head", *titles), tuple(rows), f"By {facet}")


def _group_number(change: dict[str, Any]) -> Number:
    """Return the change of one head in one group; thin without an interval."""
    names = (*HeadName._fields, "target", "facet", "group")
    address = RowAddress("task_facets", tuple((name, change[name]) for name in names))
    low, high, n_sentences = change["low"], change["high"], int(change["n_sentences"])
    return Number(
        change["value"], answers.effect_unit(change["target"]), address, low, high, n_sentences,
        effective=0.0 if math.isnan(low) else math.nan,
    )  # fmt: skip
