"""What taking heads away says, in sentences, each printed only where the numbers support it."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.report.findings.finding import Finding, Link, Parts, head_link
from headbook.report.numbers.changes import COSINES, primary, scale, unit, with_unit
from headbook.report.numbers.headgroups import HEAVY_NAME, REPLACEMENTS
from headbook.report.wording import STACKS, counted, number, percent, small
from headbook.study.sentencedata import HeadName
from headbook.study.study import Study
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Removals
from headbook.study.summaries.verdicts import TOGETHER, Verdict
from headbook.terms import Replacement

HEAVY = (HEAVY_NAME, "sink")  # groups that rest on the sink, the heaviest first
PAGE = "importance.html"
NAMED = 5  # heads that a sentence names


def needed(study: Study) -> Iterator[Finding]:
    """What is worth saying about a whole model: how many heads can go, and what is lost most."""
    removals = study.corpus_sums.removals
    if removals is not None:
        yield from _counts(removals)
        yield from _heavy(removals, study.head_groups)
        yield from _pruned(removals, study.pruning)
        yield from _largest(removals)
        yield from _harmful(removals)


def message(removals: Removals, groups: pd.DataFrame, pruning: pd.DataFrame) -> Iterator[Finding]:
    """One sentence a question."""
    yield from _counts(removals)
    yield from _largest(removals)
    yield from _harmful(removals)
    yield from _audit(removals)
    yield from _pruned(removals, pruning)
    yield from _heavy(removals, groups)


def _found(removals: Removals, *parts: str | Link, half: bool = False) -> Finding:
    """A sentence with how many sentences it rests on.

    Args:
        half: whether it rests on the second half alone.
    """
    sentences = int((removals.half == REPORT).sum()) if half else len(removals.content_hash)
    return Finding(parts, sentences)


def replaced(removals: Removals, heads: Collection[int] | None = None) -> tuple[int, str]:
    """How many heads were replaced one at a time, and how many of them have which verdict.

    Args:
        heads: places in `Removals.heads` to look among; all without it.
    """
    effects = verdicts.head_effects(removals, primary(removals), Replacement.MEAN)
    found = zip(effects.head, effects.verdict, strict=True)
    counts = Counter(verdict for place, verdict in found if heads is None or place in heads)
    parts = [f"{small(n)} {verdict}" for verdict in Verdict if (n := counts[verdict])]
    if parts:
        amount, _, rest = parts[0].partition(" ")
        parts[0] = f"{amount} {'is' if amount == 'one' else 'are'} {rest}"
    text = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + "".join(parts[-1:])
    return counts.total(), text


def _counts(removals: Removals) -> Iterator[Finding]:
    heads, verdicts_of = replaced(removals)
    if not heads:
        return
    most = number(verdicts.margin(removals, primary(removals)) * scale(removals))
    what = ", of 1 minus the cosine of last states" if primary(removals) in COSINES else ""
    yield _found(
        removals,
        f"Of {counted(heads, 'head')} ",
        Link("replaced one at a time", f"{PAGE}#heads"),
        f", {verdicts_of} (margin: {most}\u00a0{unit(removals)}{what}).",
    )


def _largest(removals: Removals) -> Iterator[Finding]:
    """The head of largest effect on one half of the sentences, with its effect on the other."""
    target = primary(removals)
    effects = verdicts.head_effects(removals, target, Replacement.MEAN)
    if not len(effects.head):
        return
    ratios = removals.ratios(target, verdicts.places(removals, Replacement.MEAN))
    first = ratios.half(CHOICE).value
    if np.isnan(first).all():
        return
    position = int(np.nanargmax(first))
    other = ratios.half(REPORT)[position]
    low, high = (float(end) for end in other.interval(verdicts.limits_of(target)))
    if low > verdicts.margin(removals, target):
        head = HeadName(*removals.heads[effects.head[position]])
        reported = with_unit(removals, float(other.value), low, high)
        of = " of last states (1 minus their cosine)" if target in COSINES else ""
        yield _found(
            removals,
            f"Largest change{of}: {reported} without ",
            head_link(head),
            ", which was chosen on the other half of the sentences.",
            half=True,
        )


def _harmful(removals: Removals) -> Iterator[Finding]:
    effects = verdicts.head_effects(removals, primary(removals), Replacement.MEAN)
    heads = [
        head_link(HeadName(*removals.heads[place]))
        for place, verdict in zip(effects.head, effects.verdict, strict=True)
        if verdict == Verdict.HARMFUL
    ]
    if heads:
        links = [part for head in heads[:NAMED] for part in (", ", head)][1:]
        yield _found(removals, "The loss is lower without ", *links, " (p < 0.05 family-wise).")


def _audit(removals: Removals) -> Iterator[Finding]:
    audit = verdicts.audit(removals, primary(removals))
    if not audit.heads or not audit.rest or np.isnan(audit.pearson):
        return
    yield _found(
        removals,
        f"On {counted(audit.heads, 'head')} picked at random, estimates and exact changes "
        f"correlate with r = {number(audit.pearson)} (ranks: {number(audit.spearman)}).",
    )
    more = "exceeds" if audit.missed == 1 else "exceed"
    rest = f"{counted(audit.rest, 'other head')} {'does' if audit.rest == 1 else 'do'}"
    yield _found(
        removals,
        f"Of these, {small(audit.missed)} {more} the margin although the estimate does not; with "
        f"95\u00a0% confidence, at most {percent(audit.share)} of the {rest}.",
    )


def allowed(removals: Removals) -> float:
    """The change that many heads together may make: 1 % of the loss."""
    return TOGETHER * verdicts.margin(removals, primary(removals), reported=True)


def _pruned(removals: Removals, pruning: pd.DataFrame) -> Iterator[Finding]:
    steps = pruning[pruning["target"] == primary(removals)]
    if steps.empty or steps["high"].isna().all():
        return
    most = allowed(removals)
    shares = {
        str(order): verdicts.can_go([*rows["share"]], [*rows["high"]], most)
        for order, rows in steps.groupby("order", sort=False)
    }
    random = [share for order, share in shares.items() if order.startswith("random")]
    share, chance = shares["ablation_effect"], percent(float(np.median(random)))
    limit = f"{number(most * scale(removals))}\u00a0{unit(removals)}"
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
    yield _found(removals, *parts, half=True)


def _heavy(removals: Removals, groups: pd.DataFrame) -> Iterator[Finding]:
    """Whether heads that rest on the sink are dead: all three replacements decide."""
    for stack in dict.fromkeys(groups["stack"]):
        there = {*groups[groups["stack"] == stack]["group"]}
        heaviest = next((group for group in HEAVY if group in there), "")
        yield from answer(removals, groups, stack, heaviest)


def answer(
    removals: Removals, groups: pd.DataFrame, stack: str, group: str, *, named: bool = True
) -> Iterator[Finding]:
    """Whether the heads of a group are dead; nothing where the intervals hold the margin.

    Args:
        groups: `Study.head_groups`.
        named: whether to name the stack where it is not the only one.
    """
    rows = group_rows(removals, groups, stack, group)
    if len(rows) != len(REPLACEMENTS):
        return
    where = f" ({STACKS[stack]})" if named and stack != "self" else ""
    heads = int(rows[str(Replacement.MEAN)]["heads"])
    about = Link(f"{small(heads)} {group_name(group, heads)}{where}", f"{PAGE}#groups")
    for parts in _dead(removals, rows, about):
        yield _found(removals, *parts)


def group_rows(
    removals: Removals, groups: pd.DataFrame, stack: str, group: str
) -> Mapping[str, Any]:
    """What is lost without the heads of a group, by replacement."""
    known = groups[groups["target"] == primary(removals)]
    rows = known[(known["stack"] == stack) & (known["group"] == group)]
    return {row["replacement"]: row for row in rows.to_dict("records")}


def group_name(group: str, heads: int) -> str:
    """The heads of a group in words: ``sink heads``."""
    noun = "head" if heads == 1 else "heads"
    if group == HEAVY_NAME:
        return f"{noun} with more than 90\u00a0% of the attention on the sink"
    return f"{group} {noun}"


def _dead(removals: Removals, rows: Mapping[str, Any], about: Link) -> Iterator[Parts]:
    """One sentence; none where the intervals hold the margin."""
    most = verdicts.margin(removals, primary(removals))
    mean, without, zero = (rows[str(each)] for each in REPLACEMENTS)
    by = scale(removals)
    if mean["high"] < most and without["high"] < most:
        if _inside(zero, most):
            yield "Dead by all three replacements: ", about, "."
        elif zero["value"] > most:
            yield (
                "A constant is all that is lost without ", about,
                ": their mean stands in for them.",
            )  # fmt: skip
    elif mean["low"] > most:
        reported = with_unit(removals, *(float(mean[name]) for name in ("value", "low", "high")))
        ends = f"{number(mean['random_low'] * by)} to {number(mean['random_high'] * by)}"
        yield (
            "Not dead: without ", about, f", the change is {reported}; random sets with as many "
            f"heads in each layer: {ends}.",
        )  # fmt: skip


def _inside(zero: Mapping[str, Any], most: float) -> bool:
    """Whether heads lose no more to zero than others of their layers would.

    A group of all heads of its layers has no others: then it must be surely nothing.
    """
    low, high = zero["random_low"], zero["random_high"]
    if np.isclose(low, high, atol=0):
        return bool(zero["high"] < most)
    return bool(low <= zero["value"] <= high)
