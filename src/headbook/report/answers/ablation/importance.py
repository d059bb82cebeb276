"""Answers of the page on importance: what the model loses without heads, layers and sink heads.

Each answer follows from numbers by rule. A layer answers only if one half of the sentences chooses
it and the other half confirms it; its number rests on all sentences, as the numbers of the chart
do. Heads that answer were chosen on one half of the sentences and are reported on the other;
verdicts hold for all heads together.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headbook.report.ablation import (
    CHANGING_VERDICTS,
    HEAVY_NAME,
    REPLACEMENTS,
    SINK,
    LayerRatio,
    effect_unit,
    layer_ratio,
    loss_target,
    unit_factor,
)
from headbook.report.answers.layers import layer_sentence
from headbook.report.findings.ablation import zero_is_dead
from headbook.report.findings.finding import Link, Parts, head_link
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import STACKS, capital, count_text, number, number_word, percent
from headbook.schema import ABLATION, HELD_OUT_SPLIT, AblationTarget, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import ATTRIBUTION, AblationVerdict
from headbook.study.ablation.results import AblationResults
from headbook.study.ablation_tables import EFFECT

MAX_RANDOM_P = 0.05  # two-sided p of a rank among random sets from which on it is clear
MAX_NAMED_HEADS = 5  # in one sentence


class Measure(NamedTuple):
    """Words for the change of a target.

    Attributes:
        subject: what changes, with a verb in the present tense.
        definition: the number that measures the change.
    """

    subject: str
    definition: str


MEASURES: dict[str, Measure] = {
    AblationTarget.EMBEDDING: Measure(
        "the sentence vector changes",
        "1 minus the cosine of the sentence vectors with and without the heads, in thousandths",
    ),
    AblationTarget.STATE: Measure(
        "its last states change",
        "1 minus the cosine of the last states with and without the heads, in thousandths",
    ),
    AblationTarget.KL: Measure(
        "its predictions change",
        "Kullback–Leibler divergence of the predictions with and without the heads, per token, in "
        "per cent of the loss of the whole model",
    ),
}  # fmt: skip
LOSS_MEASURE = Measure("its loss changes", "change of the loss per token, in per cent")


def measure_of(ablation: AblationResults) -> Measure:
    """Return the words for the change of the target by which heads are ranked."""
    return MEASURES.get(effect_tests.ranked_target(ablation), LOSS_MEASURE)


def change_number(ablation: AblationResults, row: Mapping[Any, Any], table: str) -> LinkedNumber:
    """Return the change of heads as a number with its row.

    Args:
        ablation: results that set the unit.
        row: row of `Study.importance` or `Study.head_groups`, whose value has its own unit.
        table: name of the table.
    """
    names = ("stack", "layer", "head", "group", "metric", "replacement", "target")
    identity = tuple((name, row[name]) for name in names if name in row)
    value = f"{short_number(float(row['value']) * unit_factor(ablation))} {effect_unit(ablation)}"
    return LinkedNumber(value, table, identity)


def short_number(value: float) -> str:
    """Return a number in two or three digits, for cells: ``0.35``, ``2.1``, ``253``."""
    if not abs(value) >= 0.995:
        return number(value)
    return number(value, like=10.0 if abs(value) < 9.95 else 100.0)


def clear_layer(ablation: AblationResults) -> tuple[str, LayerRatio] | None:
    """Return the stack and the ratio of its decisive layer; None without a clear one.

    Of several stacks with a clear layer, the first has the answer.
    """
    target = effect_tests.ranked_target(ablation)
    for stack in dict.fromkeys(head.stack for head in ablation.heads):
        ratio = layer_ratio(ablation, stack, target)
        if ratio is not None and ratio.clear:
            return stack, ratio
    return None


def importance_answer(ablation: AblationResults, last: Mapping[str, int] | None = None) -> Parts:
    """Return what the model loses without a head: by layers, else by verdicts of single heads.

    Args:
        ablation: results of all heads.
        last: last layer with attention of each stack, which writes straight into the output.
    """
    found = clear_layer(ablation)
    if found is None:
        return verdicts_answer(ablation)
    stack, ratio = found
    target = effect_tests.ranked_target(ablation)
    several = len({head.stack for head in ablation.heads}) > 1
    where = f" of {STACKS[stack]}" if several else ""
    is_last = (last or {}).get(stack) == ratio.first
    return layer_sentence(ratio, stack, where, target, is_last=is_last)


def heads_answer(ablation: AblationResults) -> Parts:
    """Return what single heads change, beyond what `importance_answer` says."""
    if clear_layer(ablation) is not None:
        return verdicts_answer(ablation)
    return largest_answer(ablation) or verdicts_answer(ablation)


def largest_answer(ablation: AblationResults) -> Parts:
    """Return the head of largest effect, chosen on the other half; nothing without a clear one."""
    target = effect_tests.ranked_target(ablation)
    largest = effect_tests.largest_effect(ablation, target)
    if largest is None:
        return ()
    head, _, (value, low, _) = largest
    if not low > effect_tests.equivalence_margin(ablation, target):
        return ()
    subject, _, verb = measure_of(ablation).subject.rpartition(" ")
    label = f"{Replacement.MEAN}/{target}"
    identity: dict[str, str | int] = {
        "claim": ABLATION, "stack": head.stack, "layer": head.layer, "head": head.head,
        "metric": EFFECT, "label": label, "split": HELD_OUT_SPLIT,
    }  # fmt: skip
    words = f"{short_number(value * unit_factor(ablation))} {effect_unit(ablation)}"
    number_part = LinkedNumber(words, "tests", tuple(identity.items()))
    return head_link(head), f" most: without it {subject} {verb} by ", number_part, "."


def verdict_counter(ablation: AblationResults) -> Counter[str]:
    """Return how many heads that were replaced one at a time have which verdict."""
    ranked = effect_tests.ranked_target(ablation)
    verdicts = effect_tests.head_effects(ablation, ranked, Replacement.MEAN)["verdict"]
    return Counter(str(verdict) for verdict in verdicts if verdict)


def verdicts_answer(ablation: AblationResults) -> Parts:
    """Return which verdicts single heads have; the others' verdict is named if they share one."""
    counts = verdict_counter(ablation)
    tested, changed = counts.total(), sum(counts[verdict] for verdict in CHANGING_VERDICTS)
    sentences = count_text(len(ablation.content_hash), "sentence")
    if not tested:
        return (f"Not known: on these {sentences}, no head has a verdict.",)
    removable, undecided = (
        counts[verdict] for verdict in (AblationVerdict.NO_CHANGE, AblationVerdict.UNDECIDED)
    )
    if undecided == tested:
        return (f"Not known: {sentences} decide for none of the heads that were replaced.",)
    amount = Link(f"{changed or removable:,} of {count_text(tested, 'head')}", "#heads")
    if not changed:
        others = "" if removable == tested else "; the others are undecided"
        return "Little without any one head: ", amount, f" can go alone{others}."
    if changed == tested:
        return "Each head counts: ", amount, " change the output when replaced one at a time."
    if not removable or not undecided:
        rest = "the others can go alone" if removable else "the others are undecided"
    else:
        rest = f"most others {'can go alone' if removable > undecided else 'are undecided'}"
        rest = rest if removable != undecided else "the others can go alone or are undecided"
    verb = "changes" if changed == 1 else "change"
    return "Replaced one at a time, ", amount, f" {verb} the output; {rest}."


def removable_answer(ablation: AblationResults) -> Parts:
    """Return which heads can go alone, those of smallest change by name; empty without any."""
    target = effect_tests.ranked_target(ablation)
    effects = effect_tests.head_effects(ablation, target, Replacement.MEAN)
    tested = int((effects["verdict"] != "").sum())
    removable = effects[effects["verdict"] == AblationVerdict.NO_CHANGE]
    if removable.empty:
        return ()
    removable = removable.sort_values("value", key=abs, kind="stable")
    heads = effect_tests.head_names(removable)
    if len(heads) == 1:
        return (f"One of {count_text(tested, 'head')} replaced can go alone: ",
                head_link(heads[0]), ".")  # fmt: skip
    links = [part for head in heads[:MAX_NAMED_HEADS] for part in (", ", head_link(head))][1:]
    links[-2] = " and "
    named = "least changes without " if len(heads) > MAX_NAMED_HEADS else "these are "
    amount = Link(f"{len(heads):,} of the {count_text(tested, 'head')}", "#list")
    return "Each alone, ", amount, f" that were replaced can go; {named}", *links, "."


def harmful_note(ablation: AblationResults) -> Parts:
    """Return which heads make the loss worse; nothing without any."""
    effects = effect_tests.head_effects(ablation, loss_target(ablation), Replacement.MEAN)
    harmful = effect_tests.head_names(effects[effects["verdict"] == AblationVerdict.HARMFUL])
    if not harmful:
        return ()
    links = [part for head in harmful[:MAX_NAMED_HEADS] for part in (", ", head_link(head))][1:]
    unnamed = len(harmful) - MAX_NAMED_HEADS
    more = f" and of {number_word(unnamed)} more heads" if unnamed > 0 else ""
    each = "any one of " if len(harmful) > 1 else ""
    return f"The loss is lower without {each}", *links, f"{more} (p < 0.05 family-wise)."


def sink_rows(groups: pd.DataFrame, stack: str, target: str) -> pd.DataFrame:
    """Return the rows of the sink heads of a stack, by replacement.

    The group of all sink heads answers, as on the page of patterns; without it, the strictest one.

    Args:
        groups: rows of `Study.head_groups`.
        stack: stack of the heads.
        target: target of the effects.
    """
    known = groups[(groups["stack"] == stack) & (groups["target"] == target)]
    found = (known[known["group"] == group] for group in (SINK, HEAVY_NAME))
    return next((rows for rows in found if len(rows)), known[:0])


def sink_answer(ablation: AblationResults, groups: pd.DataFrame, tokens: str) -> Parts:
    """Return whether the sink heads of a stack are dead, by three replacements.

    They are dead only if few sentences change by their mean and without what they take from the
    sink, and zero changes no more than random sets of heads do.

    Args:
        ablation: results behind the rows.
        groups: rows of these heads in `Study.head_groups`, one for each replacement.
        tokens: sink tokens, in words.
    """
    measure = measure_of(ablation)
    rows = {str(row["replacement"]): row for row in groups.to_dict("records")}
    if set(rows) != set(map(str, REPLACEMENTS)):
        return ("Not known: not all three replacements were measured.",)
    mean, without_sink, zero = (rows[str(each)] for each in REPLACEMENTS)
    subject, _, verb = measure.subject.rpartition(" ")
    hardly = without_sink["verdict"] == AblationVerdict.NO_CHANGE
    if mean["verdict"] == AblationVerdict.NO_CHANGE and hardly:
        change = change_number(ablation, zero, "head_groups")
        if zero_is_dead(zero):
            return (
                f"Yes: even with zero in place of their outputs {subject} {verb} by ",
                change,
                ".",
            )
        if zero["value"] > zero["random_high"] or zero["verdict"] in CHANGING_VERDICTS:
            return (
                f"All that is lost is a constant: with zero {subject} {verb} by ", change,
                ", with their mean few sentences change.",
            )  # fmt: skip
    elif mean["verdict"] in CHANGING_VERDICTS:
        change = change_number(ablation, mean, "head_groups")
        parts = f"No: without all of them {subject} {verb} by ", change
        if hardly:
            return *parts, f", but hardly without what they take from {tokens}."
        return *parts, "."
    return ("Not known: these sentences do not decide it.",)


def random_rank(row: Mapping[Any, Any]) -> tuple[str, bool]:
    """Return the place of a group among its random sets, in words, and whether it is clear."""
    sets = int(row["random_sets"])
    if not sets or np.isclose(row["random_low"], row["random_high"], atol=0):
        return "", False
    above = int(row["rank"]) - 1
    below = sets - above
    clear = 2 * (1 + min(above, below)) / (sets + 1) <= MAX_RANDOM_P
    side, amount = ("above", below) if 2 * below >= sets else ("below", above)
    of = f"all {sets:,}" if amount == sets else f"{amount:,} of {sets:,}"
    return f"{side} {of} random sets", clear


def pruning_answer(ablation: AblationResults, pruning: pd.DataFrame) -> Parts:
    """Return the share of heads that can be removed together, beside random orders."""
    shares, median = effect_tests.removable_shares(ablation, pruning)
    share = shares["ablation_effect"]
    margin = effect_tests.group_margin(ablation) * unit_factor(ablation)
    limit = f"{number(margin)} {effect_unit(ablation)}"
    label = f"ablation_effect/{Replacement.MEAN}/{loss_target(ablation)}"
    row = (("metric", "share that can go"), ("label", label))
    if share > 0:
        return (
            LinkedNumber(percent(share), "tests", row),
            f" of all heads, before the change may exceed a margin of {limit}; in random order "
            f"{percent(median)}.",
        )
    least = percent(float(pruning.loc[pruning["share"] > 0, "share"].min()))
    return (
        f"Hardly any: even without the {least} of smallest effect, the change may exceed a margin "
        f"of {limit}.",
    )


def estimates_note(ablation: AblationResults) -> Parts:
    """Return how well estimates agree with exact changes on heads picked at random."""
    target = effect_tests.ranked_target(ablation)
    audit = effect_tests.audit(ablation, target)
    if not audit.heads or not audit.rest or np.isnan(audit.spearman):
        return ()
    label = ("label", f"{Replacement.MEAN}/{target}")
    ranks = (("metric", "audit: correlation of ranks"), label)
    missed = (("metric", "audit: missed"), label)
    return (
        f"On {count_text(audit.heads, 'head')} picked at random, estimates and exact changes have "
        "a rank correlation of ",
        LinkedNumber(number(audit.spearman), "tests", ranks),
        f". {capital(number_word(audit.missed))} of these changes more than the margin although "
        "the estimate does not; of the heads with estimates alone at most ",
        LinkedNumber(percent(audit.share), "tests", missed),
        " do, with 95\u00a0% confidence.",
    )


def effect_row(ablation: AblationResults, row: Mapping[Any, Any], exact: bool) -> LinkedNumber:
    """Return the change of one head with its row in the table of importance.

    Args:
        ablation: results behind the row.
        row: row of `head_changes`, in the unit of pages.
        exact: whether the head was replaced.
    """
    metric = EFFECT if exact else ATTRIBUTION
    identity = (
        ("stack", row["stack"]), ("layer", int(row["layer"])), ("head", int(row["head"])),
        ("metric", metric), ("replacement", str(Replacement.MEAN)),
        ("target", str(effect_tests.ranked_target(ablation))),
    )  # fmt: skip
    about = "" if exact else "≈\u202f"
    return LinkedNumber(f"{about}{short_number(float(row['value']))}", "importance", identity)
