"""What taking heads away says, in sentences, each printed only where the numbers support it."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.report.ablation import (
    COSINES,
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
from headbook.study.ablation_tests import GROUP_MARGIN, AblationVerdict
from headbook.study.study import Study

HEAVY = (HEAVY_NAME, "sink")  # groups that rest on the sink, the heaviest first
PAGE = "importance.html"
NAMED = 5  # heads that a sentence names


def ablation_summary(study: Study) -> Iterator[Finding]:
    """What is worth saying about a whole model: how many heads can go, and what is lost most."""
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
    """One sentence a question."""
    yield from _counts(ablation)
    yield from _largest(ablation)
    yield from _harmful(ablation)
    yield from _audit(ablation)
    yield from _pruned(ablation, pruning)
    yield from _heavy(ablation, groups)


def _found(ablation: AblationResults, *parts: str | Link, half: bool = False) -> Finding:
    """A sentence with how many sentences it rests on.

    Args:
        half: whether it rests on the second half alone.
    """
    sentences = int((ablation.half == HELD_OUT).sum()) if half else len(ablation.content_hash)
    return Finding(parts, sentences)


def replaced(
    ablation: AblationResults, heads: Collection[int] | None = None
) -> tuple[int, str, str]:
    """Return how many heads were replaced alone, how they were chosen, and their verdicts.

    Args:
        heads: places in `AblationResults.heads` to look among; all without it.
    """
    target = ablation_tests.ranked_target(ablation)
    effects = ablation_tests.head_effects(ablation, target, Replacement.MEAN)
    found = {
        int(place): verdict
        for place, verdict in zip(effects.head, effects.verdict, strict=True)
        if verdict and (heads is None or place in heads)
    }
    how = choice_text(ablation, found)
    return len(found), how and f" ({how})", verdict_counts(found.values())


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
    """The head of largest effect on one half of the sentences, with its effect on the other."""
    target = main_target(ablation)
    effects = ablation_tests.head_effects(ablation, target, Replacement.MEAN)
    if not len(effects.head):
        return
    sets = ablation_tests.single_head_rows(ablation, Replacement.MEAN)
    ratios = ablation.ratios(target, sets)
    first = ratios.split(SELECTION).value
    if np.isnan(first).all():
        return
    position = int(np.nanargmax(first))
    value, low, high = ablation_tests.held_out(ablation, target, int(sets[position]))
    if low > ablation_tests.equivalence_margin(ablation, target):
        head = ablation.heads[effects.head[position]]
        reported = change_text(ablation, value, low, high)
        of = f" of {verdict_target_text(ablation)}" if target in COSINES else ""
        yield _found(
            ablation,
            f"Largest change{of}: {reported} without ",
            head_link(head),
            ", which was chosen on the other half of the sentences.",
            half=True,
        )


def _harmful(ablation: AblationResults) -> Iterator[Finding]:
    effects = ablation_tests.head_effects(ablation, main_target(ablation), Replacement.MEAN)
    heads = [
        head_link(ablation.heads[place])
        for place, verdict in zip(effects.head, effects.verdict, strict=True)
        if verdict == AblationVerdict.HARMFUL
    ]
    if heads:
        links = [part for head in heads[:NAMED] for part in (", ", head)][1:]
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


def group_margin(ablation: AblationResults) -> float:
    """The change that many heads together may make: 1 % of the loss."""
    return GROUP_MARGIN * ablation_tests.equivalence_margin(
        ablation, main_target(ablation), reported=True
    )


def _pruned(ablation: AblationResults, pruning: pd.DataFrame) -> Iterator[Finding]:
    steps = pruning[pruning["target"] == main_target(ablation)]
    if steps.empty or steps["high"].isna().all():
        return
    most = group_margin(ablation)
    shares = {
        str(order): ablation_tests.removable_share([*rows["share"]], [*rows["high"]], most)
        for order, rows in steps.groupby("order", sort=False)
    }
    random = [share for order, share in shares.items() if order.startswith("random")]
    share, chance = shares["ablation_effect"], percent(float(np.median(random)))
    limit = f"{number(most * unit_factor(ablation))}\u00a0{unit(ablation)}"
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
    """Whether heads that rest on the sink are dead: all three replacements decide."""
    for stack in dict.fromkeys(groups["stack"]):
        there = {*groups[groups["stack"] == stack]["group"]}
        heaviest = next((group for group in HEAVY if group in there), "")
        yield from answer(ablation, groups, stack, heaviest)


def answer(
    ablation: AblationResults, groups: pd.DataFrame, stack: str, group: str, *, named: bool = True
) -> Iterator[Finding]:
    """Whether the heads of a group are dead; nothing where verdicts are undecided.

    Args:
        groups: `Study.head_groups`.
        named: whether to name the stack where it is not the only one.
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
    """What is lost without the heads of a group, by replacement."""
    known = groups[groups["target"] == ablation_tests.ranked_target(ablation)]
    rows = known[(known["stack"] == stack) & (known["group"] == group)]
    return {row["replacement"]: row for row in rows.to_dict("records")}


def group_name(group: str, heads: int) -> str:
    """The heads of a group in words: ``sink heads``."""
    noun = "head" if heads == 1 else "heads"
    if group == HEAVY_NAME:
        return f"{noun} with more than 90\u00a0% of the attention on the sink"
    return f"{group} {noun}"


def _dead(ablation: AblationResults, rows: Mapping[str, Any], about: Link) -> Iterator[Parts]:
    """One sentence if three verdicts support one: dead, a bias, or not dead."""
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
    """Random sets and the group's rank among them; empty without any."""
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
    """Whether heads lose no more to zero than others of their layers would.

    A group of all heads of its layers has no others: then the verdict has to be that of no change.
    """
    low, high = zero["random_low"], zero["random_high"]
    if np.isnan(low) or np.isclose(low, high, atol=0):
        return bool(zero["verdict"] == AblationVerdict.NO_CHANGE)
    return bool(low <= zero["value"] <= high)
