"""Findings on ablation: sentences that are printed only if the numbers support them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import HELD_OUT
from headbook.report.ablation import (
    HEAVY_NAME,
    REPLACEMENTS,
    change_text,
    effect_unit,
    largest_change,
    loss_target,
    margin_text,
    representative_verdicts,
    unit_factor,
    verdict_counts,
    verdict_target_text,
    verdict_text,
)
from headbook.report.findings.finding import Finding, Part, Parts
from headbook.report.wording import STACKS, count_text, number_word
from headbook.results.formats import number, percent
from headbook.results.sentence import Link, head_link
from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict, head_names
from headbook.study.ablation.results import EFFECT_ORDER, AblationResults
from headbook.study.study import Study

SINK_GROUPS = (HEAVY_NAME, "sink")  # names of groups of sink heads, the strictest first
PAGE = "importance.html"
MAX_NAMED_HEADS = 5  # in one finding


def ablation_summary(study: Study) -> Iterator[Finding]:
    """Yield the findings of the first page: verdicts, sink heads, pruning, largest effect."""
    ablation = study.corpus_sums.ablation
    if ablation is not None:
        yield from _counts(ablation)
        yield from _heavy(ablation, study.head_groups)
        yield from _pruned(ablation, study.pruning)
        yield from _largest(ablation)
        yield from _harmful(ablation)


def _finding(ablation: AblationResults, *parts: Part, held_out: bool = False) -> Finding:
    """Return a finding with the number of sentences behind it.

    Args:
        ablation: results behind the finding.
        parts: parts of the text.
        held_out: whether only the held-out half of the sentences is behind the finding.
    """
    sentences = int((ablation.half == HELD_OUT).sum()) if held_out else len(ablation.content_hash)
    return Finding(parts, sentences)


def _counts(ablation: AblationResults) -> Iterator[Finding]:
    verdicts, drawn = representative_verdicts(ablation)
    if verdicts:
        yield _finding(
            ablation,
            f"Of {count_text(len(verdicts), 'head')}{drawn} ",
            Link("replaced one at a time", f"{PAGE}#heads"),
            f", {verdict_counts(verdicts)}: a sentence counts as changed from "
            f"{margin_text(ablation)} on, measured by {verdict_target_text(ablation)}.",
        )


def _largest(ablation: AblationResults) -> Iterator[Finding]:
    """Yield the head of largest effect on the selection half, if the held-out half confirms it."""
    chosen = largest_change(ablation)
    if chosen is not None:
        head, change = chosen
        yield _finding(
            ablation,
            f"Largest change of the {verdict_target_text(ablation)}: {change.as_text('interval')} "
            "without ",
            head_link(head),
            " (highest value, not tested against the others).",
        )


def _harmful(ablation: AblationResults) -> Iterator[Finding]:
    effects = effect_tests.head_effects(ablation, loss_target(ablation), Replacement.MEAN)
    harmful = head_names(effects[effects["verdict"] == AblationVerdict.HARMFUL])
    if harmful:
        links = [part for head in harmful[:MAX_NAMED_HEADS] for part in (", ", head_link(head))][1:]
        n_unnamed = len(harmful) - MAX_NAMED_HEADS
        each = "any one of " if len(harmful) > 1 else ""
        more = f" and of {n_unnamed} more heads" if n_unnamed > 0 else ""
        yield _finding(
            ablation, f"The loss is lower without {each}", *links, more,
            " (p < 0.05 family-wise).",
        )  # fmt: skip


def _pruned(ablation: AblationResults, pruning: pd.DataFrame) -> Iterator[Finding]:
    steps = pruning[pruning["target"] == loss_target(ablation)]
    if steps.loc[steps["order"] == EFFECT_ORDER, "high"].isna().all():
        return
    shares, median = effect_tests.removable_shares(ablation, steps)
    share, random_share = shares[EFFECT_ORDER], percent(median)
    margin = effect_tests.group_margin(ablation) * unit_factor(ablation)
    limit = f"{number(margin)}\u00a0{effect_unit(ablation)}"
    together = Link("removed together", f"{PAGE}#pruning")
    if share > 0:
        parts: Parts = (
            f"Of all heads, {percent(share)} can be ", together,
            f" before the change may exceed {limit} (random order: {random_share}).",
        )  # fmt: skip
    else:
        smallest_step = percent(float(steps[steps["share"] > 0]["share"].min()))
        parts = (
            f"Even the {smallest_step} of heads of smallest effect cannot be ", together,
            f" with a change surely below {limit}.",
        )  # fmt: skip
    yield _finding(ablation, *parts, held_out=True)


def _heavy(ablation: AblationResults, groups: pd.DataFrame) -> Iterator[Finding]:
    """Yield for each stack whether its sink heads are dead, by three replacements."""
    for stack in dict.fromkeys(groups["stack"]):
        names = {*groups[groups["stack"] == stack]["group"]}
        strictest = next((group for group in SINK_GROUPS if group in names), "")
        yield from answer(ablation, groups, stack, strictest)


def answer(
    ablation: AblationResults, groups: pd.DataFrame, stack: str, group: str
) -> Iterator[Finding]:
    """Yield whether the heads of a group are dead; nothing if verdicts are undecided.

    Args:
        ablation: results behind the finding.
        groups: rows of `Study.head_groups`.
        stack: stack of the group.
        group: name of the group.
    """
    rows = group_rows(ablation, groups, stack, group)
    if len(rows) != len(REPLACEMENTS):
        return
    stack_note = f" ({STACKS[stack]})" if stack != "self" else ""
    heads = int(rows[str(Replacement.MEAN)]["heads"])
    group_link = Link(
        f"{number_word(heads)} {group_name(group, heads)}{stack_note}", f"{PAGE}#groups"
    )
    for parts in _dead(ablation, rows, group_link):
        yield _finding(ablation, *parts)


def group_rows(
    ablation: AblationResults, groups: pd.DataFrame, stack: str, group: str
) -> Mapping[str, Any]:
    """Return the row of a group for each replacement, by the target that ranks heads."""
    known = groups[groups["target"] == effect_tests.ranked_target(ablation)]
    rows = known[(known["stack"] == stack) & (known["group"] == group)]
    return {row["replacement"]: row for row in rows.to_dict("records")}


def group_name(group: str, heads: int) -> str:
    """Return the heads of a group in words: ``sink heads``."""
    noun = "head" if heads == 1 else "heads"
    if group == HEAVY_NAME:
        return f"{noun} with more than 90\u00a0% of the attention on the sink"
    return f"{group} {noun}"


def _dead(ablation: AblationResults, rows: Mapping[str, Any], group_link: Link) -> Iterator[Parts]:
    """Yield one sentence if three verdicts support one: dead, a bias, or not dead."""
    mean, without_sink, zero = (rows[str(replacement)] for replacement in REPLACEMENTS)
    if all(row["verdict"] == AblationVerdict.NO_CHANGE for row in (mean, without_sink)):
        if zero_is_dead(zero):
            yield (
                "Dead by all three replacements: ",
                group_link,
                f"{_random_sets_note(ablation, zero)}.",
            )
        elif zero["value"] > zero["random_high"] or zero["verdict"] == AblationVerdict.CHANGES:
            yield (
                "A constant is all that is lost without ", group_link,
                ", a bias and not a computation: their mean stands in for them, zero does not"
                f"{_random_sets_note(ablation, zero)}.",
            )  # fmt: skip
    elif mean["verdict"] == AblationVerdict.CHANGES:
        reported = change_text(ablation, *(float(mean[name]) for name in ("value", "low", "high")))
        kl = effect_tests.ranked_target(ablation) == AblationTarget.KL
        measure = "the KL divergence of predictions" if kl else "the change"
        yield (
            "Not dead: without ", group_link,
            f", {measure} is {reported} ({verdict_text(mean, 'groups')})"
            f"{_random_sets_note(ablation, mean)}.",
        )  # fmt: skip


def _random_sets_note(ablation: AblationResults, row: Mapping[str, Any]) -> str:
    """Return the range of random sets and the rank of the group; empty without random sets."""
    sets, factor = int(row["random_sets"]), unit_factor(ablation)
    if not sets:
        return ""
    random_range = " to ".join(
        f"{number(row[end] * factor)}\u00a0{effect_unit(ablation)}"
        for end in ("random_low", "random_high")
    )
    replacement = "by zero, " if row["replacement"] == Replacement.ZERO else ""
    return (
        f"; {replacement}{sets:,} random sets with as many heads in each layer: {random_range} "
        f"(rank of the group among them: {int(row['rank'])} of {sets + 1:,})"
    )


def zero_is_dead(zero: Mapping[Any, Any]) -> bool:
    """Whether zeroing the group changes no more than zeroing random heads of the same layers.

    A group of all heads of its layers has no random sets. Its verdict must then be no change.
    """
    low, high = zero["random_low"], zero["random_high"]
    if np.isnan(low) or np.isclose(low, high, atol=0):
        return bool(zero["verdict"] == AblationVerdict.NO_CHANGE)
    return bool(low <= zero["value"] <= high)
