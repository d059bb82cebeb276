"""Facts about the effect of heads: what the model loses without heads, layers and sink heads.

Each fact follows from numbers by rule. A layer answers only if one half of the sentences chooses
it and the other half confirms it; its number rests on all sentences, as the numbers of the chart
do. Verdicts hold for all heads together.
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
    change_unit,
    largest_change,
    layer_ratio,
    loss_target,
    representative_verdicts,
)
from headbook.report.facts.groups import zero_is_dead
from headbook.report.facts.tested.ablation import (
    MISSED,
    RANK_CORRELATION,
    audit_tests,
    margin_test,
    removable_tests,
    step_test,
)
from headbook.report.layers import layer_sentence, ratio_test
from headbook.report.wording import STACKS, capital, count_text, number_word
from headbook.results.fact import Fact
from headbook.results.formats import percent
from headbook.results.number import PLAIN, SHARE, Number, RowAddress
from headbook.results.sentence import NOTHING, Link, Sentence, listed, say
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict
from headbook.study.ablation.results import EFFECT_ORDER, AblationReason, AblationResults

MAX_RANDOM_P = 0.05  # two-sided p of a rank among random sets from which on it is clear
MAX_NAMED_HEADS = 5  # in one sentence
ROW_COLUMNS = ("stack", "layer", "head", "group", "metric", "replacement", "target")


class Measure(NamedTuple):
    """Words for the change of a target.

    Attributes:
        subject, verb: what changes, and how.
        definition: the number that measures the change.
    """

    subject: str
    verb: str
    definition: str


MEASURES: dict[str, Measure] = {
    AblationTarget.EMBEDDING: Measure(
        "the sentence vector", "changes",
        "1 minus the cosine of the sentence vectors with and without the heads, in thousandths",
    ),
    AblationTarget.STATE: Measure(
        "its last states", "change",
        "1 minus the cosine of the last states with and without the heads, in thousandths",
    ),
    AblationTarget.KL: Measure(
        "its predictions", "change",
        "Kullback–Leibler divergence of the predictions with and without the heads, per token, in "
        "per cent of the loss of the whole model",
    ),
}  # fmt: skip
LOSS_MEASURE = Measure("its loss", "changes", "change of the loss per token, in per cent")


def measure_of(ablation: AblationResults, target: str = "") -> Measure:
    """Return the words for the change of a target; by default that by which heads are ranked."""
    return MEASURES.get(target or effect_tests.ranked_target(ablation), LOSS_MEASURE)


def change(ablation: AblationResults, row: Mapping[Any, Any], table: str) -> Number:
    """Return the change of heads, from a row of `Study.importance` or `Study.head_groups`."""
    key = tuple((name, row[name]) for name in ROW_COLUMNS if name in row)
    low, high = float(row["low"]), float(row["high"])
    return Number(float(row["value"]), change_unit(ablation), RowAddress(table, key), low, high)


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


def main_loss(ablation: AblationResults, last: Mapping[str, int]) -> Fact:
    """Return what the model loses without a head: by layers, else by verdicts of single heads.

    Args:
        ablation: results of all heads.
        last: last layer with attention of each stack, which writes straight into the output.
    """
    chosen = clear_layer(ablation)
    if chosen is None:
        return Fact("main_loss", verdicts(ablation), holds=False)
    stack, ratio = chosen
    several = len({head.stack for head in ablation.heads}) > 1
    where = f" of {STACKS[stack]}" if several else ""
    tested = ratio_test(ablation, stack, ratio, effect_tests.ranked_target(ablation))
    is_last = last.get(stack) == ratio.first
    return Fact("main_loss", layer_sentence(tested, ratio, where, is_last=is_last), (tested,))


def heads_answer(ablation: AblationResults) -> Sentence:
    """Return what single heads change, beyond what `main_loss` says."""
    if clear_layer(ablation) is not None:
        return verdicts(ablation)
    return largest(ablation) or verdicts(ablation)


def largest(ablation: AblationResults) -> Sentence:
    """Return the head whose replacement changes most; nothing without a clear one."""
    chosen = largest_change(ablation)
    if chosen is None:
        return NOTHING
    head, change_of_head = chosen
    measure = measure_of(ablation)
    return say(
        "{head} most: without it {subject} {verb} by {n:short}.",
        head=head, subject=measure.subject, verb=measure.verb, n=change_of_head,
    )  # fmt: skip


def verdict_counter(ablation: AblationResults) -> Counter[str]:
    """Return how many heads that were replaced one at a time have which verdict."""
    ranked = effect_tests.ranked_target(ablation)
    of_heads = effect_tests.head_effects(ablation, ranked, Replacement.MEAN)["verdict"]
    return Counter(str(verdict) for verdict in of_heads if verdict)


def verdicts(ablation: AblationResults) -> Sentence:
    """Return which verdicts single heads have; the others' verdict is named if they share one."""
    known, drawn = representative_verdicts(ablation)
    counts = Counter(known)
    tested, changed = counts.total(), sum(counts[verdict] for verdict in CHANGING_VERDICTS)
    sentences = count_text(len(ablation.content_hash), "sentence")
    removable, undecided = (
        counts[verdict] for verdict in (AblationVerdict.NO_CHANGE, AblationVerdict.UNDECIDED)
    )
    if not tested:
        return say("Not known: on these {sentences}, no head has a verdict.", sentences=sentences)
    if undecided == tested:
        text = "Not known: {sentences} decide for none of the heads that were replaced."
        return say(text, sentences=sentences)
    named = f"{changed or removable:,} of {count_text(tested, 'head')}{drawn}"
    amount = Link(named, "importance.html#heads")
    if not changed and removable == tested:
        return say("Little without any one head: {amount} can go alone.", amount=amount)
    if not changed:
        text = "Little without any one head: {amount} can go alone; the others are undecided."
        return say(text, amount=amount)
    if changed == tested:
        text = "Each head counts: {amount} change the output when replaced one at a time."
        return say(text, amount=amount)
    if not removable or not undecided:
        rest = "the others can go alone" if removable else "the others are undecided"
    elif removable == undecided:
        rest = "the others can go alone or are undecided"
    else:
        rest = f"most others {'can go alone' if removable > undecided else 'are undecided'}"
    return say(
        "Replaced one at a time, {amount} {change} the output; {rest}.",
        amount=amount, change="changes" if changed == 1 else "change", rest=rest,
    )  # fmt: skip


def removable_heads(ablation: AblationResults) -> Sentence:
    """Return which heads can go alone, those of smallest change by name; nothing without any."""
    target = effect_tests.ranked_target(ablation)
    effects = effect_tests.head_effects(ablation, target, Replacement.MEAN)
    tested = count_text(int((effects["verdict"] != "").sum()), "head")
    replaced = "" if (ablation.chosen != AblationReason.NOT_ABLATED).all() else " replaced"
    removable = effects[effects["verdict"] == AblationVerdict.NO_CHANGE]
    heads = effect_tests.head_names(removable.sort_values("value", key=abs, kind="stable"))
    if not heads:
        return NOTHING
    if len(heads) == 1:
        text = "One of {tested}{replaced} can go alone: {head}."
        return say(text, tested=tested, replaced=replaced, head=heads[0])
    return say(
        "Each alone, {amount} can go; {named} {heads}.",
        amount=Link(f"{len(heads):,} of the {tested}{replaced}", "importance.html#list"),
        named="least changes without" if len(heads) > MAX_NAMED_HEADS else "these are",
        heads=listed(heads[:MAX_NAMED_HEADS]),
    )  # fmt: skip


def harmful(ablation: AblationResults) -> Sentence:
    """Return which heads make the loss worse; nothing without any."""
    effects = effect_tests.head_effects(ablation, loss_target(ablation), Replacement.MEAN)
    heads = effect_tests.head_names(effects[effects["verdict"] == AblationVerdict.HARMFUL])
    if not heads:
        return NOTHING
    more = len(heads) - MAX_NAMED_HEADS
    named: list[HeadName | str] = [*heads[:MAX_NAMED_HEADS]]
    named += [f"of {number_word(more)} more heads"] if more > 0 else []
    return say(
        "The loss is lower without {any}{heads} (p < 0.05 family-wise).",
        any="any one of " if len(heads) > 1 else "",
        heads=listed(named, " and " if more > 0 else ", "),
    )


def sink_rows(groups: pd.DataFrame, stack: str, target: str) -> pd.DataFrame:
    """Return the rows of the sink heads of a stack, by replacement.

    The group of all sink heads answers, as on the page of patterns; without it, the strictest one.

    Args:
        groups: rows of `Study.head_groups`.
        stack: stack of the heads.
        target: target of the effects.
    """
    known = groups[(groups["stack"] == stack) & (groups["target"] == target)]
    of_groups = (known[known["group"] == group] for group in (SINK, HEAVY_NAME))
    return next((rows for rows in of_groups if len(rows)), known[:0])


def sinks_dead(ablation: AblationResults, groups: pd.DataFrame, tokens: str) -> Sentence:
    """Return whether the sink heads of a stack are dead, by three replacements.

    They are dead only if few sentences change by their mean and without what they take from the
    sink, and zero changes no more than random sets of heads do.

    Args:
        ablation: results behind the rows.
        groups: rows of these heads in `Study.head_groups`, one for each replacement.
        tokens: sink tokens, in words.
    """
    rows = {str(row["replacement"]): row for row in groups.to_dict("records")}
    if set(rows) != set(map(str, REPLACEMENTS)):
        return say("Not known: not all three replacements were measured.")
    mean, without_sink, zero = (rows[str(replacement)] for replacement in REPLACEMENTS)
    hardly, row, text = without_sink["verdict"] == AblationVerdict.NO_CHANGE, zero, ""
    if mean["verdict"] == AblationVerdict.NO_CHANGE and hardly:
        if zero_is_dead(zero):
            text = "Yes: even with zero in place of their outputs {subject} {verb} by {n:short}."
        elif zero["value"] > zero["random_high"] or zero["verdict"] in CHANGING_VERDICTS:
            text = (
                "All that is lost is a constant: with zero {subject} {verb} by {n:short}, with "
                "their mean few sentences change."
            )
    elif mean["verdict"] in CHANGING_VERDICTS:
        row, text = mean, "No: without all of them {subject} {verb} by {n:short}."
        if hardly:
            text = text[:-1] + ", but hardly without what they take from {tokens}."
    measure = measure_of(ablation)
    return say(
        text or "Not known: these sentences do not decide it.",
        subject=measure.subject, verb=measure.verb, n=change(ablation, row, "head_groups"),
        tokens=tokens,
    )  # fmt: skip


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


def pruning_steps(ablation: AblationResults, pruning: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of all orders by the loss, or by cosines; empty without a curve.

    Args:
        ablation: results behind the rows.
        pruning: rows of `Study.pruning`.
    """
    steps = pruning[pruning["target"] == loss_target(ablation)]
    known = steps.loc[steps["order"] == EFFECT_ORDER, "high"].notna().any()
    return steps if known else steps[:0]


def group_margin(ablation: AblationResults) -> Number:
    """Return the change that several heads together may make, with its row."""
    return margin_test(ablation).number(change_unit(ablation))


def together(ablation: AblationResults, steps: pd.DataFrame) -> Sentence:
    """Return what changes without about as many heads together as can go alone.

    Args:
        ablation: results behind the rows.
        steps: rows of `pruning_steps`.
    """
    alone = verdict_counter(ablation)[AblationVerdict.NO_CHANGE]
    curve = steps[(steps["order"] == EFFECT_ORDER) & (steps["share"] > 0) & steps["low"].notna()]
    amounts = (curve["share"] * len(ablation.heads)).round()
    if not (amounts <= alone).any():
        return NOTHING
    row = curve[amounts <= alone].iloc[-1]
    limit = group_margin(ablation)
    surely = "surely" if row["high"] <= limit.value or row["low"] > limit.value else "perhaps"
    measure = measure_of(ablation, row["target"])
    return say(
        "Without the {heads} of smallest effect together, {subject} {verb} by {n:short}, {surely} "
        "{side} than {limit}, the margin of several heads.",
        heads=count_text(int(amounts[amounts <= alone].iloc[-1]), "head"), subject=measure.subject,
        verb=measure.verb, surely=surely, side="less" if row["high"] <= limit.value else "more",
        n=step_test(ablation, row.to_dict()).number(change_unit(ablation)), limit=limit,
    )  # fmt: skip


def pruning(ablation: AblationResults, steps: pd.DataFrame) -> Sentence:
    """Return the share of heads that can be removed together, beside random orders.

    Args:
        ablation: results behind the rows.
        steps: rows of `pruning_steps`, at least one.
    """
    removable, limit = removable_tests(ablation, steps)[EFFECT_ORDER], group_margin(ablation)
    if not removable.value.value > 0:
        return say(
            "Hardly any: even without the {least} of smallest effect, the change may exceed a "
            "margin of {limit}.",
            least=percent(float(steps.loc[steps["share"] > 0, "share"].min())), limit=limit,
        )  # fmt: skip
    return say(
        "{share} of all heads, before the change may exceed a margin of {limit}; in random order "
        "{median}.",
        share=removable.number(SHARE), limit=limit, median=removable.baseline_number(SHARE),
    )  # fmt: skip


def estimates_note(ablation: AblationResults) -> Sentence:
    """Return how well estimates agree with exact changes on heads picked at random."""
    target = effect_tests.ranked_target(ablation)
    audit = effect_tests.audit(ablation, target)
    if not audit.heads or not audit.rest or np.isnan(audit.spearman):
        return NOTHING
    tests = {tested.metric: tested for tested in audit_tests(ablation, target)}
    share = Number(audit.share, SHARE, tests[MISSED].row)
    return say(
        "On {heads} picked at random, estimates and exact changes have a rank correlation of "
        "{rho}. {Missed} of these changes more than the margin although the estimate does not; of "
        "the heads with estimates alone at most {share} do, with 95 % confidence.",
        heads=count_text(audit.heads, "head"), rho=tests[RANK_CORRELATION].number(PLAIN),
        Missed=capital(number_word(audit.missed)), share=share,
    )  # fmt: skip
