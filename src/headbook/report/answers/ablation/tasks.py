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
from headbook.report.facts.tested.ablation import success_test, without_test
from headbook.report.wording import number_word
from headbook.results.formats import in_hundred, number
from headbook.results.number import PLAIN, SHARE, Number, RowAddress, Unit
from headbook.results.sentence import NOTHING, Sentence, listed, say
from headbook.schema import AblationTarget, HeadName, Replacement
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


SHARE_IN_POINTS = Unit("", in_hundred)
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


def success_answer(task: AblationResults) -> Sentence:
    """Return how often the whole model is right beside chance; at chance, that first."""
    whole, words, tested = tasks.success(task), WORDS[task.targets[0]], success_test(task)
    at_chance = "The model is at chance, so no head has a verdict: it"
    return say(
        "{start} {right} in {share:interval} of {n} {observations}; chance is {chance} ({guess}).",
        start="The model" if whole.beats_chance else at_chance, right=words.right,
        share=tested.number(SHARE), n=whole.n_observations, observations=words.observations,
        chance=tested.baseline_number(SHARE), guess=words.guess,
    )  # fmt: skip


def accuracies(task: AblationResults, row: Mapping[Any, Any]) -> tuple[Number, Number]:
    """Return accuracy with all heads, and without a set of heads: both have one row.

    Args:
        task: results of the task.
        row: row of `headbook.study.ablation.tasks.success_without`.
    """
    tested = without_test(task, row)
    return tested.baseline_number(SHARE), tested.number(SHARE)


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


def rests_sentence(task: AblationResults, row: Mapping[str, Any]) -> Sentence:
    """Return on which heads a task rests, with accuracy without them; at most 18 words.

    Args:
        task: results of the task.
        row: row of `headbook.study.ablation.tasks.success_without`.
    """
    heads, amount = row["heads"], len(row["heads"])
    before, after = accuracies(task, row)
    return say(
        "The {task} rests on {amount} {heads}{layers}: accuracy falls from {before:whole} to "
        "{after:whole} without {them}.",
        task=WORDS[task.targets[0]].name.lower(), amount=number_word(amount),
        heads=f"head{'s' * (amount > 1)}", layers=of_layers(heads), before=before, after=after,
        them="them" if amount > 1 else "it",
    )  # fmt: skip


def on_more_sentence(task: AblationResults, row: Mapping[str, Any]) -> Sentence:
    """Return that a task does not rest on few heads, with accuracy without the first of them."""
    before, after = accuracies(task, row)
    return say(
        "The {task} does not rest on few heads: without {amount}, accuracy is {after:whole}, with "
        "them {before:whole}.",
        task=WORDS[task.targets[0]].name.lower(), amount=number_word(row["number"]), after=after,
        before=before,
    )  # fmt: skip


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


def rests_answer(task: AblationResults) -> Sentence:
    """Return the heads on which a task rests, or that none were found; nothing if not measured.

    A task does not rest on few heads if accuracy without the largest set surely keeps half of the
    advantage over chance; otherwise it is not known.
    """
    table = tasks.success_without(task)
    if table.empty or not tasks.success(task).beats_chance:
        return NOTHING
    if row := clearly_rests_on(task):
        return rests_sentence(task, row)
    largest: Mapping[Any, Any] = table.iloc[-1].to_dict()
    row = surely_on_more(task) or tasks.rests_on(task) or largest
    start = "Whether the {task} rests on few heads is not known"
    if surely_on_more(task):
        start = "The {task} does not rest on few heads"
    many = int(row["number"]) > 1
    before, after = accuracies(task, row)
    return say(
        f"{start}: without {{heads}} of largest effect, accuracy is {{after:interval}}; with "
        "{them} {before}.",
        task=WORDS[task.targets[0]].name.lower(), after=after, before=before,
        heads=f"the {number_word(int(row['number']))}" if many else "the head",
        them="them" if many else "it",
    )  # fmt: skip


def rests_evidence(task: AblationResults, row: Mapping[str, Any]) -> Sentence:
    """Return interval, baseline and sentences behind a claim on the heads of a task."""
    words, (before, after) = WORDS[task.targets[0]], accuracies(task, row)
    rule = (
        "The smallest set of heads of largest effect that costs half of the advantage over chance"
        if clearly_rests_on(task)
        else "Even without these heads, those of largest effect, more than half of the advantage "
        "over chance remains"
    )
    return say(
        "{task}: the model {right} in {after:interval} of {observations} without {heads}, in "
        "{before} with all heads; chance {chance} ({guess}). {rule}; chosen on one half, accuracy "
        "on the other, {held_out} {texts}.",
        task=words.name, right=words.right, after=after, observations=words.observations,
        heads=listed(row["heads"], ", "), before=before,
        chance=success_test(task).baseline_number(SHARE), guess=words.guess, rule=rule,
        held_out=int((task.half == HELD_OUT).sum()),
        texts="pairs" if task.targets[0] == AblationTarget.PREFERENCE else "texts",
    )  # fmt: skip


def patching_answer(task: AblationResults) -> Sentence:
    """Return how many heads surely restore some, and which of these restores most.

    Intervals are not corrected for the number of heads, which the sentence says.
    """
    effects = tasks.patching_effects(task)
    restored = effects[effects["direction"] == tasks.DENOISING]
    restored = restored[restored["label"] == tasks.PATCHING_ALL]
    surely = restored[restored["low"] > 0].sort_values("value", ascending=False, kind="stable")
    if restored.empty:
        return NOTHING
    if surely.empty:
        text = "Of {all} heads patched alone, none surely restores any of the difference of logits."
        return say(text, all=len(restored))
    row = {str(name): value for name, value in surely.iloc[0].items()}
    return say(
        "Of {all} heads patched alone, {surely} {have} an interval above 0 (not corrected for the "
        "number of heads). Of these, {head} restores most: {share:interval} of the difference of "
        "logits (largest value, not tested against the others).",
        all=len(restored), surely=number_word(len(surely)),
        have="have" if len(surely) > 1 else "has",
        head=HeadName(row["stack"], int(row["layer"]), int(row["head"])),
        share=patching_number(row),
    )  # fmt: skip


def patching_number(row: Mapping[Any, Any]) -> Number:
    """Return a share of the difference of logits, with its row in the table of importance."""
    identity = (
        *((name, row[name]) for name in HEAD_FIELDS), ("metric", PATCHING),
        ("replacement", row["direction"]), ("target", str(AblationTarget.PATCHING)),
        ("label", row["label"]),
    )  # fmt: skip
    return Number(row["value"], SHARE, RowAddress("importance", identity), row["low"], row["high"])


def effect_number(target: str, row: Mapping[str, Any]) -> Number:
    """Return the change of a task's target without one head, with its row in importance.

    Args:
        target: target of the change.
        row: ``stack, layer, head, value, low, high``, and of estimates the metric.
    """
    metric = row.get("metric", EFFECT)
    identity = (
        *((name, row[name]) for name in HEAD_FIELDS), ("metric", metric),
        ("replacement", str(Replacement.MEAN)), ("target", str(target)),
    )  # fmt: skip
    address, sign = RowAddress("importance", identity), "" if metric == EFFECT else "≈"
    return Number(row["value"], effect_unit(target), address, row["low"], row["high"], sign=sign)


def effect_unit(target: str) -> Unit:
    """Return how changes of a task's target are written: without the unit, which titles name."""
    return SHARE_IN_POINTS if target == AblationTarget.ACCURACY else PLAIN


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
