"""Sentences and numbers of tasks: how well the whole model does, and the heads a task rests on.

Each sentence follows from numbers by rule. The heads of largest effect are chosen on one half of
the sentences; accuracy without them is that of the other half. Accuracy is the share of right
labels, of pairs whose acceptable sentence is preferred, or of answers before wrong ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import HELD_OUT
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.wording import number_word
from headbook.results.formats import in_hundred, interval_text, number, percent, whole_percent
from headbook.results.sentence import head_link
from headbook.schema import ABLATION, HELD_OUT_SPLIT, AblationTarget, HeadName, Replacement
from headbook.study.ablation import effect_tests, tasks
from headbook.study.ablation.results import HEAD_FIELDS, AblationResults
from headbook.study.ablation_tables import EFFECT, PATCHING, facet_effects
from headbook.study.study import Study

NAMED_LAYERS = 3  # layers that a sentence lists, not as a range
MAX_GROUPS = 6  # groups of a facet in one table
MAX_FACET_HEADS = 5  # heads of largest effect in it, beside the first of each group


class TaskWords(NamedTuple):
    """Words for a task.

    Attributes:
        name: the task as it is called in lists.
        question: title of its section.
        right: what the model does in a share of the observations.
        observations: what these are.
        guess: what chance is.
        unit: unit of changes on pages.
        change: number that measures the change.
    """

    name: str
    question: str
    right: str
    observations: str
    guess: str
    unit: str
    change: str


LOGITS, OF_DIFFERENCE = "logits", "% of the difference"
WORDS: dict[str, TaskWords] = {
    AblationTarget.LABEL: TaskWords(
        "Label", "Which heads does the right label rest on?", "gives the right label", "labels",
        "the most frequent label", "nats",
        "cross-entropy of the true label without the head minus that of the whole model",
    ),
    AblationTarget.PREFERENCE: TaskWords(
        "Preference", "Which heads does the preference for acceptable sentences rest on?",
        "prefers the acceptable sentence", "minimal pairs", "one of two sentences", "nats",
        "log probability of the acceptable sentence minus that of the other, whole model minus "
        "without the head",
    ),
    AblationTarget.ANSWER: TaskWords(
        "Answer", "Which heads does the answer rest on?", "puts the answer before the wrong one",
        "prompts", "one of two answers", LOGITS,
        "logit of the answer minus that of the wrong one, whole model minus without the head",
    ),
    AblationTarget.PATCHING: TaskWords(
        "Patching", "Which heads turn the wrong answer into the right one?",
        "puts the answer before the wrong one", "prompts", "one of two answers", OF_DIFFERENCE,
        "share of the difference of logits between prompt and corrupt prompt that one head "
        "restores (its output in the corrupt prompt is that of the prompt) or destroys (the other "
        "way round)",
    ),
}  # fmt: skip


def task_unit(target: str) -> str:
    """Return the unit of changes of a task's target on pages."""
    return "points" if target == AblationTarget.ACCURACY else WORDS[target].unit


def target_name(target: str) -> str:
    """Return the name of a task's target in lists."""
    return "Accuracy" if target == AblationTarget.ACCURACY else WORDS[target].name


def success_answer(task: AblationResults) -> Parts:
    """Return how often the whole model is right beside chance; at chance, that first."""
    name, found = task.targets[0], tasks.success(task)
    words = WORDS[name]
    row = (("claim", "whole model"), ("metric", tasks.SUCCESS), ("label", str(name)))
    does = (
        f"{words.right} in ",
        LinkedNumber(percent(found.value), "tests", row),
        f" {interval_text(found.low, found.high, share=True)} of {found.n_observations:,} "
        f"{words.observations}".replace("  ", " "),
    )
    chance = LinkedNumber(percent(found.chance), "tests", row)
    if found.beats_chance:
        return "The model ", *does, "; chance is ", chance, f" ({words.guess})."
    return (
        "The model is at chance, so no head has a verdict: it ", *does, "; chance is ", chance,
        f" ({words.guess}).",
    )  # fmt: skip


def without_number(task: AblationResults, number_of_heads: int, text: str) -> LinkedNumber:
    """Return accuracy with or without heads of largest effect, with its row.

    Args:
        task: results of the task.
        number_of_heads: number of heads that were replaced together.
        text: the number with its unit.
    """
    row = (
        ("claim", ABLATION), ("metric", tasks.SUCCESS),
        ("label", f"without {number_of_heads} heads/{Replacement.MEAN}/{task.targets[0]}"),
        ("split", HELD_OUT_SPLIT),
    )  # fmt: skip
    return LinkedNumber(text, "tests", row)


def clearly_rests_on(task: AblationResults) -> Mapping[str, Any] | None:
    """Return the heads on which a task rests, if accuracy without them is surely lower."""
    row = tasks.rests_on(task)
    return row if row and row["high"] < row["before"] else None


def surely_on_more(task: AblationResults) -> Mapping[str, Any] | None:
    """Return the largest set of heads, if without it half of the advantage surely remains."""
    table = tasks.success_without(task)
    if table.empty or not tasks.success(task).beats_chance or tasks.rests_on(task):
        return None
    row = {str(name): value for name, value in table.iloc[-1].items()}
    return row if row["low"] > _half_advantage(task, row) else None


def _half_advantage(task: AblationResults, row: Mapping[str, Any]) -> float:
    """Return the accuracy at which half of the advantage over chance is lost."""
    before: float = row["before"]
    return before - tasks.LOST_SHARE * (before - tasks.chance(task))


def rests_sentence(task: AblationResults, row: Mapping[str, Any]) -> Parts:
    """Return on which heads a task rests, with accuracy without them; at most 18 words.

    Args:
        task: results of the task.
        row: row of `headbook.study.ablation.tasks.success_without`.
    """
    heads, amount = row["heads"], len(row["heads"])
    before, after = (whole_percent(row[side]) for side in ("before", "after"))
    return (
        f"The {WORDS[task.targets[0]].name.lower()} rests on {number_word(amount)} "
        f"head{'s' * (amount > 1)}{of_layers(heads)}: accuracy falls from ",
        without_number(task, row["number"], before.removesuffix("\u202f%")),
        " to ",
        without_number(task, row["number"], after),
        f" without {'them' if amount > 1 else 'it'}.",
    )


def on_more_sentence(task: AblationResults, row: Mapping[str, Any]) -> Parts:
    """Return that a task does not rest on few heads, with accuracy without the first of them."""
    amount = number_word(row["number"])
    return (
        f"The {WORDS[task.targets[0]].name.lower()} does not rest on few heads: without {amount}, "
        "accuracy is ",
        without_number(task, row["number"], whole_percent(row["after"])),
        ", with them ",
        without_number(task, row["number"], whole_percent(row["before"])),
        ".",
    )


def of_layers(heads: Sequence[HeadName]) -> str:
    """Return up to three layers of heads, or the range of more; empty for several stacks."""
    if len({head.stack for head in heads}) > 1:
        return ""
    layers = [str(layer) for layer in sorted({head.layer for head in heads})]
    if len(layers) == 1:
        return f" of layer {layers[0]}"
    if len(layers) > NAMED_LAYERS:
        return f" of layers {layers[0]}–{layers[-1]}"
    return f" of layers {', '.join(layers[:-1])} and {layers[-1]}"


def rests_answer(task: AblationResults) -> Parts:
    """Return the heads on which a task rests, or that none were found; empty if not measured.

    A task does not rest on few heads if accuracy without the largest set surely keeps half of the
    advantage over chance; otherwise it is not known.
    """
    table = tasks.success_without(task)
    if table.empty or not tasks.success(task).beats_chance:
        return ()
    if row := clearly_rests_on(task):
        return rests_sentence(task, row)
    subject = WORDS[task.targets[0]].name.lower()
    largest: Mapping[Any, Any] = table.iloc[-1].to_dict()
    row = surely_on_more(task) or tasks.rests_on(task) or largest
    start = (
        f"The {subject} does not rest on few heads"
        if surely_on_more(task)
        else f"Whether the {subject} rests on few heads is not known"
    )
    many = int(row["number"]) > 1
    heads = f"the {number_word(int(row['number']))}" if many else "the head"
    return (
        f"{start}: without {heads} of largest effect, accuracy is ",
        without_number(task, row["number"], percent(row["after"])),
        f" {interval_text(row['low'], row['high'], share=True)}; with {'them' if many else 'it'} ",
        without_number(task, row["number"], percent(row["before"])),
        ".",
    )


def rests_evidence(task: AblationResults, row: Mapping[str, Any]) -> Parts:
    """Return interval, baseline and sentences behind a claim on the heads of a task."""
    found, words = tasks.success(task), WORDS[task.targets[0]]
    heads: list[Any] = [part for head in row["heads"] for part in (", ", head_link(head))][1:]
    whole = (("claim", "whole model"), ("metric", tasks.SUCCESS), ("label", str(task.targets[0])))
    held_out = int((task.half == HELD_OUT).sum())
    rule = (
        "The smallest set of heads of largest effect that costs half of the advantage over chance"
        if clearly_rests_on(task)
        else "Even without these heads, those of largest effect, more than half of the advantage "
        "over chance remains"
    )
    return (
        f"{words.name}: the model {words.right} in ",
        without_number(task, row["number"], percent(row["after"])),
        f" {interval_text(row['low'], row['high'], share=True)} of {words.observations} without ",
        *heads,
        ", in ",
        without_number(task, row["number"], percent(row["before"])),
        " with all heads; chance ",
        LinkedNumber(percent(found.chance), "tests", whole),
        f" ({words.guess}). {rule}; chosen on one half, accuracy on the other, {held_out:,} "
        f"{'pairs' if task.targets[0] == AblationTarget.PREFERENCE else 'texts'}.",
    )


def patching_answer(task: AblationResults) -> Parts:
    """Return how many heads surely restore some, and which of these restores most.

    Intervals are not corrected for the number of heads, which the sentence says.
    """
    found = tasks.patching_effects(task)
    found = found[(found["direction"] == tasks.DENOISING) & (found["label"] == tasks.PATCHING_ALL)]
    surely = found[found["low"] > 0].sort_values("value", ascending=False, kind="stable")
    if found.empty:
        return ()
    amount = f"{len(found):,} heads patched alone"
    if surely.empty:
        return (f"Of {amount}, none surely restores any of the difference of logits.",)
    row = {str(name): value for name, value in surely.iloc[0].items()}
    return (
        f"Of {amount}, {number_word(len(surely))} {'have' if len(surely) > 1 else 'has'} an "
        "interval above 0 (not corrected for the number of heads). Of these, ",
        head_link(HeadName(row["stack"], int(row["layer"]), int(row["head"]))),
        " restores most: ",
        patching_number(row),
        f" {interval_text(row['low'], row['high'], share=True)} of the difference of logits "
        "(largest value, not tested against the others).",
    )


def patching_number(row: Mapping[Any, Any]) -> LinkedNumber:
    """Return a share of the difference of logits, with its row in the table of importance."""
    identity = (
        *((name, row[name]) for name in HEAD_FIELDS), ("metric", PATCHING),
        ("replacement", row["direction"]), ("target", str(AblationTarget.PATCHING)),
        ("label", row["label"]),
    )  # fmt: skip
    return LinkedNumber(percent(row["value"]), "importance", identity)


def effect_number(target: str, row: Mapping[str, Any]) -> LinkedNumber:
    """Return the change of a task's target without one head, with its row in importance.

    Args:
        target: target of the change.
        row: ``stack, layer, head, value``, and of estimates the metric.
    """
    metric = row.get("metric", EFFECT)
    about = "" if metric == EFFECT else "≈\u202f"
    identity = (
        *((name, row[name]) for name in HEAD_FIELDS), ("metric", metric),
        ("replacement", str(Replacement.MEAN)), ("target", str(target)),
    )  # fmt: skip
    text = f"{about}{effect_text(target, row['value'])}"
    return LinkedNumber(text, "importance", identity)


def effect_text(target: str, value: float) -> str:
    """Return a change of a task's target in the unit of pages."""
    if target == AblationTarget.ACCURACY:
        return in_hundred(value)
    return number(value)


def ends_text(target: str, row: Mapping[str, Any]) -> str:
    """Return the interval of a change in the unit of pages; empty without one."""
    if target == AblationTarget.ACCURACY:
        return interval_text(row["low"], row["high"], share=True)
    return interval_text(row["low"], row["high"])


def margin_sentence(task: AblationResults) -> str:
    """Return the margin of verdicts as a sentence; empty without verdicts."""
    target = task.targets[0]
    margin = effect_tests.equivalence_margin(task, target)
    if np.isnan(margin):
        return ""
    limit = number(margin)
    return f"Margin of verdicts: {limit}\u00a0{task_unit(target)}."


def group_effects(task: AblationResults) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield facets with the effects of heads in their groups, rows of `facet_effects`.

    Groups are the largest `MAX_GROUPS` of a facet, heads those of largest effect on all sentences
    and in each of these groups.
    """
    target = task.targets[0]
    effects = facet_effects(task, target) if target != AblationTarget.PATCHING else pd.DataFrame()
    if effects.empty:
        return
    ranked = effect_tests.head_effects(task, target, Replacement.MEAN)
    ranked = ranked.sort_values("value", ascending=False, kind="stable")
    largest = effect_tests.head_names(ranked.head(MAX_FACET_HEADS))
    order = {head: place for place, head in enumerate(effect_tests.head_names(ranked))}
    for facet, every in effects.groupby("facet", sort=False):
        sizes = every.groupby("group")["n_sentences"].first()
        groups = sizes.sort_values(ascending=False, kind="stable").index[:MAX_GROUPS]
        kept = every[every["group"].isin(groups)]
        first = effect_tests.head_names(kept.loc[kept.groupby("group")["value"].idxmax()])
        names = pd.Series(effect_tests.head_names(kept), index=kept.index)
        kept = kept.assign(order=names.map(order))[names.isin({*largest, *first})]
        yield str(facet), kept.sort_values("order", kind="stable")


def gap_sentences(study: Study) -> Iterator[str]:
    """Yield why tasks could not be measured that the columns ask for."""
    for gap in study.manifest.gaps:
        word, _, name = gap.what.partition(" ")
        if word == "task" and name in WORDS:
            yield f"{WORDS[name].name}: {gap.why}"
