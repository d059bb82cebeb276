"""Sections on tasks: heads on which a task rests, by group of texts, and patched one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from headbook.pages.parts.blocks import (
    Block,
    Caption,
    Columns,
    Details,
    Group,
    Question,
    Text,
    blocks,
)
from headbook.pages.parts.table import NumberCell, PageTable, Row, words_cell
from headbook.report.ablation import choice_text, short_verdict
from headbook.report.answers.ablation import tasks as answers
from headbook.report.answers.ablation.tasks import WORDS
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import capital, count_text
from headbook.results.formats import head_name, interval_text, percent
from headbook.results.sentence import Sentence, head_link, say
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
    more = replace(heads, rows=heads.rows[OPEN:], caption="")
    table = _Before(replace(heads, rows=heads.rows[:OPEN]))
    rest = Details(f"{len(more.rows)} more heads", (_Before(more),)) if more.rows else None
    columns = blocks(
        Group(blocks(table, about, rest)), None if growing.empty else _without(task, growing)
    )
    facets = [_Before(facet) for facet in _by_group(task)]
    about_facets = (
        f"Change without one head, {answers.task_unit(name)}; in brackets the number of "
        f"{observed}. Heads of largest effect in all {observed} and in each group; grey: too few "
        "for an interval."
    )
    content = blocks(
        Text(Sentence(rests), "evidence") if rests else None,
        Columns(columns),
        [*facets, Caption((about_facets,))] if facets else None,
    )
    return Question(
        f"task-{name}", WORDS[name].question, Sentence(answers.success_answer(task)), content
    )


def _without(task: AblationResults, growing: pd.DataFrame) -> Group:
    """Return accuracy without growing sets of heads, with how these were chosen."""
    caption = say(
        "Heads of largest effect replaced together, chosen on one half of the sentences; accuracy "
        "on the other half, with all heads {all}.",
        all=answers.without_number(task, 1, percent(growing["before"].iloc[0])),
    )
    return Group((_Before(_growing(task, growing)), Caption((caption,))))


@dataclass(frozen=True)
class _Before(Block):
    """A table that still has its cells of before."""

    table: PageTable

    @property
    def macro(self) -> str:
        """Name of the macro."""
        return "before"


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


def _heads(task: AblationResults) -> PageTable:
    """Return the heads that were replaced alone, the largest change first."""
    target = task.targets[0]
    frames = {
        each: effect_tests.head_effects(task, each, Replacement.MEAN) for each in task.targets
    }
    order = frames[target].sort_values("value", ascending=False, kind="stable").index
    verdicts = (frames[target]["verdict"] != "").any()
    titles = [f"Change, {answers.task_unit(target)}"]
    titles += [f"Accuracy, {answers.task_unit(each)}" for each in task.targets[1:]]
    rows = []
    for index in order:
        cells = [effect_cell(each, frames[each].loc[index].to_dict()) for each in frames]
        row = frames[target].loc[index].to_dict()
        verdict = (words_cell(short_verdict(row["verdict"])),) if verdicts else ()
        rows.append(Row(head_link(task.heads[index]), (*cells, *verdict)))
    columns = ("Head", *titles, *(("Verdict",) if verdicts else ()))
    return PageTable(columns, tuple(rows), "Without one head")


def effect_cell(target: str, row: dict[str, Any]) -> NumberCell:
    """Return the change of a task's target without a head, with its interval and its row."""
    return _cell(answers.effect_number(target, row), answers.ends_text(target, row))


def _cell(printed: LinkedNumber, ends: str, *, too_few: bool = False) -> NumberCell:
    return NumberCell(printed.text, ends, note="", too_few=too_few, number=printed)


def _patched(task: AblationResults) -> PageTable:
    """Return the heads that were patched, those that restore most first."""
    effects = tasks.patching_effects(task)
    effects = effects.assign(way=effects["direction"] + "/" + effects["label"])
    restored = effects[effects["way"] == tasks.PATCHES[0]]
    rows = []
    for head in effect_tests.head_names(
        restored.sort_values("value", ascending=False, kind="stable")
    ):
        mine = effects[(effects[[*HeadName._fields]] == list(head)).all(axis=1)].set_index("way")
        cells = []
        for way in tasks.PATCHES:
            row: dict[Any, Any] = mine.loc[way].to_dict()
            ends = interval_text(row["low"], row["high"], share=True)
            cells.append(_cell(answers.patching_number(row), ends))
        rows.append(Row(head_link(head), tuple(cells)))
    return PageTable(
        ("Head", *("all positions", "last position") * 2), tuple(rows), "Patched one at a time",
        groups=(("Restored", 2), ("Destroyed", 2)),
    )  # fmt: skip


def _growing(task: AblationResults, table: pd.DataFrame) -> PageTable:
    """Return accuracy without ever more of the heads of largest effect."""
    rows, before = [], frozenset[HeadName]()
    for row in table.to_dict("records"):
        added = [head_name(head) for head in row["heads"] if head not in before]
        more = f" and {len(added) - NAMED} more" if len(added) > NAMED else ""
        before = frozenset(row["heads"])
        printed = answers.without_number(task, row["number"], percent(row["after"]))
        ends = interval_text(row["low"], row["high"], share=True)
        cells = (words_cell(f"{', '.join(added[:NAMED])}{more}"), _cell(printed, ends))
        rows.append(Row(f"{row['number']:,}", cells))
    return PageTable(("Heads", "Added", "Accuracy"), tuple(rows), "Without several heads")


def _by_group(task: AblationResults) -> Iterator[PageTable]:
    """Yield a table for each facet: heads by the groups of its texts."""
    for facet, effects in answers.group_effects(task):
        sizes = effects.groupby("group")["n_sentences"].first()
        groups = [*sizes.sort_values(ascending=False, kind="stable").index]
        rows = []
        for _, mine in effects.groupby([*HeadName._fields], sort=False):
            by_group = mine.set_index("group", drop=False)
            cells = [_group_cell(by_group.loc[group].to_dict()) for group in groups]
            (head,) = {*effect_tests.head_names(mine)}
            rows.append(Row(head_link(head), tuple(cells)))
        titles = (f"{group} ({sizes[group]:,})" for group in groups)
        yield PageTable(("Head", *titles), tuple(rows), f"By {facet}")


def _group_cell(row: dict[str, Any]) -> NumberCell:
    """Return the change of one head in one group, grey without an interval."""
    names = (*HeadName._fields, "target", "facet", "group")
    identity = tuple((name, row[name]) for name in names)
    text = answers.effect_text(row["target"], row["value"])
    ends = answers.ends_text(row["target"], row)
    return _cell(LinkedNumber(text, "task_facets", identity), ends, too_few=not ends)
