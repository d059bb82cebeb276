"""Findings on ablation: sentences that are printed only if the numbers support them."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import HELD_OUT
from headbook.report.ablation import (
    HEAVY_NAME,
    REPLACEMENTS,
    change_text,
    choice_text,
    main_target,
    margin_text,
    unit,
    unit_factor,
    verdict_counts,
    verdict_target_text,
    verdict_text,
)
from headbook.report.findings.finding import Finding, Link, Parts, head_link
from headbook.report.wording import STACKS, count_text, number, number_word, percent
from headbook.schema import AblationTarget, Replacement
from headbook.study import ablation_tests
from headbook.study.ablation import AblationResults
from headbook.study.ablation_tests import COSINE_TARGETS, AblationVerdict, head_names
from headbook.study.sentence_data import HeadName
from headbook.study.study import Study

HEAVY = (HEAVY_NAME, "sink")  # names of groups of sink heads, the strictest first
PAGE = "importance.html"
NAMED = 5  # most heads that a finding names


def ablation_summary(study: Study) -> Iterator[Finding]:
    """Yield the findings of the first page: verdicts, sink heads, pruning, largest effect."""
    ablation = study.corpus_sums.ablation
    if ablation is not None:
        yield from _counts(ablation)
        yield from _heavy(ablation, study.head_groups)
        yield from _pruned(ablation, study.pruning)
        yield from _largest(ablation)
        yield from _harmful(ablation)


def ablation_findings(
    ablation: AblationResults, groups: pd.DataFrame, pruning: pd.DataFrame
) -> Iterator[Finding]:
    """Yield all findings on ablation, for the page on importance."""
    yield from _counts(ablation)
    yield from _largest(ablation)
    yield from _harmful(ablation)
    yield from _audit(ablation)
    yield from _pruned(ablation, pruning)
    yield from _heavy(ablation, groups)


def _found(ablation: AblationResults, *parts: str | Link, half: bool = False) -> Finding:
    """Return a finding with the number of sentences behind it.

    Args:
        ablation: results behind the finding.
        parts: parts of the text.
        half: whether only the held-out half of the sentences is behind the finding.
    """
    sentences = int((ablation.half == HELD_OUT).sum()) if half else len(ablation.content_hash)
    return Finding(parts, sentences)


def replaced(
    ablation: AblationResults, heads: Container[HeadName] | None = None
) -> tuple[int, str, str]:
    """Return how many heads were replaced alone, how they were chosen, and their verdicts.

    Args:
        ablation: results of all heads.
        heads: heads to count; None for all heads.
    """
    target = ablation_tests.ranked_target(ablation)
    effects = ablation_tests.head_effects(ablation, target, Replacement.MEAN)
    effects = effects[effects["verdict"] != ""]
    if heads is not None:
        effects = effects[[head in heads for head in head_names(effects)]]
    how = choice_text(ablation, effects["reason"])
    return len(effects), how and f" ({how})", verdict_counts(effects["verdict"])


def _counts(ablation: AblationResults) -> Iterator[Finding]:
    heads, how, verdicts_of = replaced(ablation)
    if not heads:
        return
    yield _found(
        ablation,
        f"Of {count_text(heads, 'head')} ",
        Link("replaced one at a time", f"{PAGE}#heads"),
        f"{how}, {verdicts_of}: a sentence counts as changed from {margin_text(ablation)} on, "
        f"measured by {verdict_target_text(ablation)}.",
    )


def _largest(ablation: AblationResults) -> Iterator[Finding]:
    """Yield the head of largest effect on the selection half, with its held-out effect."""
    target = main_target(ablation)
    found = ablation_tests.largest_effect(ablation, target)
    if found is None:
        return
    head, _, (value, low, high) = found
    if low > ablation_tests.equivalence_margin(ablation, target):
        reported = change_text(ablation, value, low, high)
        of = f" of {verdict_target_text(ablation)}" if target in COSINE_TARGETS else ""
        yield _found(
            ablation,
            f"Largest change{of}: {reported} without ",
            head_link(head),
            ", which was chosen on the other half of the sentences.",
            half=True,
        )


def _harmful(ablation: AblationResults) -> Iterator[Finding]:
    effects = ablation_tests.head_effects(ablation, main_target(ablation), Replacement.MEAN)
    harmful = head_names(effects[effects["verdict"] == AblationVerdict.HARMFUL])
    if harmful:
        links = [part for head in harmful[:NAMED] for part in (", ", head_link(head))][1:]
        yield _found(ablation, "The loss is lower without ", *links, " (p < 0.05 family-wise).")


def _audit(ablation: AblationResults) -> Iterator[Finding]:
    audit = ablation_tests.audit(ablation, main_target(ablation))
    if not audit.heads or not audit.rest or np.isnan(audit.pearson):
        return
    yield _found(
        ablation,
        f"On {count_text(audit.heads, 'head')} picked at random, estimates and exact changes "
        f"correlate with r = {number(audit.pearson)} (ranks: {number(audit.spearman)}).",
    )
    more = "exceeds" if audit.missed == 1 else "exceed"
    rest = f"{count_text(audit.rest, 'other head')} {'does' if audit.rest == 1 else 'do'}"
    yield _found(
        ablation,
        f"Of these, {number_word(audit.missed)} {more} the margin although the estimate does not; "
        "with "
        f"95\u00a0% confidence, at most {percent(audit.share)} of the {rest}.",
    )


def _pruned(ablation: AblationResults, pruning: pd.DataFrame) -> Iterator[Finding]:
    steps = pruning[pruning["target"] == main_target(ablation)]
    if steps.empty or steps["high"].isna().all():
        return
    shares, median = ablation_tests.removable_shares(ablation, steps)
    share, chance = shares["ablation_effect"], percent(median)
    most = ablation_tests.group_margin(ablation) * unit_factor(ablation)
    limit = f"{number(most)}\u00a0{unit(ablation)}"
    together = Link("removed together", f"{PAGE}#pruning")
    if share > 0:
        parts: Parts = (
            f"Of all heads, {percent(share)} can be ", together,
            f" before the change may exceed {limit} (random order: {chance}).",
        )  # fmt: skip
    else:
        least = percent(float(steps[steps["share"] > 0]["share"].min()))
        parts = (
            f"Even the {least} of heads of smallest effect cannot be ", together,
            f" with a change surely below {limit}.",
        )  # fmt: skip
    yield _found(ablation, *parts, half=True)


def _heavy(ablation: AblationResults, groups: pd.DataFrame) -> Iterator[Finding]:
    """Yield for each stack whether its sink heads are dead, by three replacements."""
    for stack in dict.fromkeys(groups["stack"]):
        there = {*groups[groups["stack"] == stack]["group"]}
        heaviest = next((group for group in HEAVY if group in there), "")
        yield from answer(ablation, groups, stack, heaviest)


def answer(
    ablation: AblationResults, groups: pd.DataFrame, stack: str, group: str, *, named: bool = True
) -> Iterator[Finding]:
    """Yield whether the heads of a group are dead; nothing if verdicts are undecided.

    Args:
        ablation: results behind the finding.
        groups: rows of `Study.head_groups`.
        stack: stack of the group.
        group: name of the group.
        named: whether to name stacks other than the only one of a model.
    """
    rows = group_rows(ablation, groups, stack, group)
    if len(rows) != len(REPLACEMENTS):
        return
    where = f" ({STACKS[stack]})" if named and stack != "self" else ""
    heads = int(rows[str(Replacement.MEAN)]["heads"])
    about = Link(f"{number_word(heads)} {group_name(group, heads)}{where}", f"{PAGE}#groups")
    for parts in _dead(ablation, rows, about):
        yield _found(ablation, *parts)


def group_rows(
    ablation: AblationResults, groups: pd.DataFrame, stack: str, group: str
) -> Mapping[str, Any]:
    """Return the row of a group for each replacement, by the target that ranks heads."""
    known = groups[groups["target"] == ablation_tests.ranked_target(ablation)]
    rows = known[(known["stack"] == stack) & (known["group"] == group)]
    return {row["replacement"]: row for row in rows.to_dict("records")}


def group_name(group: str, heads: int) -> str:
    """Return the heads of a group in words: ``sink heads``."""
    noun = "head" if heads == 1 else "heads"
    if group == HEAVY_NAME:
        return f"{noun} with more than 90\u00a0% of the attention on the sink"
    return f"{group} {noun}"


def _dead(ablation: AblationResults, rows: Mapping[str, Any], about: Link) -> Iterator[Parts]:
    """Yield one sentence if three verdicts support one: dead, a bias, or not dead."""
    mean, without, zero = (rows[str(each)] for each in REPLACEMENTS)
    if all(row["verdict"] == AblationVerdict.NO_CHANGE for row in (mean, without)):
        if _inside(zero):
            yield "Dead by all three replacements: ", about, f"{_beside(ablation, zero)}."
        elif zero["value"] > zero["random_high"] or zero["verdict"] == AblationVerdict.CHANGES:
            yield (
                "A constant is all that is lost without ", about, ", a bias and not a computation: "
                "their mean stands in for them, zero does not"
                f"{_beside(ablation, zero)}.",
            )  # fmt: skip
    elif mean["verdict"] == AblationVerdict.CHANGES:
        reported = change_text(ablation, *(float(mean[name]) for name in ("value", "low", "high")))
        kl = ablation_tests.ranked_target(ablation) == AblationTarget.KL
        what = "the KL divergence of predictions" if kl else "the change"
        yield (
            "Not dead: without ", about, f", {what} is {reported} ({verdict_text(mean, 'groups')})"
            f"{_beside(ablation, mean)}.",
        )  # fmt: skip


def _beside(ablation: AblationResults, row: Mapping[str, Any]) -> str:
    """Return the range of random sets and the rank of the group; empty without random sets."""
    sets, by = int(row["random_sets"]), unit_factor(ablation)
    if not sets:
        return ""
    ends = " to ".join(
        f"{number(row[end] * by)}\u00a0{unit(ablation)}" for end in ("random_low", "random_high")
    )
    what = "by zero, " if row["replacement"] == Replacement.ZERO else ""
    return (
        f"; {what}{sets:,} random sets with as many heads in each layer: {ends} "
        f"(rank of the group among them: {int(row['rank'])} of {sets + 1:,})"
    )


def _inside(zero: Mapping[str, Any]) -> bool:
    """Whether zeroing the group changes no more than zeroing random heads of the same layers.

    A group of all heads of its layers has no random sets. Its verdict must then be no change.
    """
    low, high = zero["random_low"], zero["random_high"]
    if np.isnan(low) or np.isclose(low, high, atol=0):
        return bool(zero["verdict"] == AblationVerdict.NO_CHANGE)
    return bool(low <= zero["value"] <= high)
