"""What taking heads away says, in sentences, each printed only where the numbers support it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.report.findings import CHOICE, REPORT
from headbook.report.numbers.effects import primary, scale, unit, with_unit
from headbook.report.numbers.headgroups import HEAVY_NAME, REPLACEMENTS
from headbook.report.wording import STACKS, counted, head_name, number, percent, small
from headbook.study.sentencedata import HeadName
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Removals
from headbook.study.summaries.verdicts import TOGETHER, Verdict
from headbook.terms import Replacement

HEAVY = {  # groups that rest on the sink, the heaviest first; one head, and several
    HEAVY_NAME: tuple(
        f"{heads} with more than 90\u00a0% of the attention on the sink"
        for heads in ("head", "heads")
    ),
    "sink": ("sink head", "sink heads"),
}


def message(removals: Removals, groups: pd.DataFrame, pruning: pd.DataFrame) -> Iterator[str]:
    """One sentence a question."""
    yield from _verdicts(removals)
    yield from _largest(removals)
    yield from _harmful(removals)
    yield from _audit(removals)
    yield from _pruned(removals, pruning)
    yield from _heavy(removals, groups)


def _verdicts(removals: Removals) -> Iterator[str]:
    effects = verdicts.head_effects(removals, primary(removals), Replacement.MEAN)
    counts = Counter(effects.verdict)
    parts = [f"{small(n)} {verdict}" for verdict in Verdict if (n := counts[verdict])]
    most = number(verdicts.margin(removals, primary(removals)) * scale(removals))
    if parts:
        together = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
        yield (
            f"Of {counted(len(effects.head), 'head')} replaced one at a time, {together} "
            f"(margin: {most}\u00a0{unit(removals)})."
        )


def _largest(removals: Removals) -> Iterator[str]:
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
        yield (
            f"Largest change: {reported} without {head_name(head)}, chosen on the other half of "
            "the sentences."
        )


def _harmful(removals: Removals) -> Iterator[str]:
    effects = verdicts.head_effects(removals, primary(removals), Replacement.MEAN)
    heads = [
        head_name(HeadName(*removals.heads[place]))
        for place, verdict in zip(effects.head, effects.verdict, strict=True)
        if verdict == Verdict.HARMFUL
    ]
    if heads:
        yield f"The loss is lower without {', '.join(heads[:5])} (p < 0.05 family-wise)."


def _audit(removals: Removals) -> Iterator[str]:
    audit = verdicts.audit(removals, primary(removals))
    if not audit.heads or not audit.rest or np.isnan(audit.pearson):
        return
    yield (
        f"On {counted(audit.heads, 'head')} picked at random, estimates and exact changes "
        f"correlate with r = {number(audit.pearson)} (ranks: {number(audit.spearman)})."
    )
    yield (
        f"Below the margin by their estimate, above it in fact: {small(audit.missed)} of these; "
        f"with 95\u00a0% confidence at most {percent(audit.share)} of the {audit.rest} other heads."
    )


def allowed(removals: Removals) -> float:
    """The change that many heads together may make: 1 % of the loss."""
    return TOGETHER * verdicts.margin(removals, primary(removals), reported=True)


def _pruned(removals: Removals, pruning: pd.DataFrame) -> Iterator[str]:
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
    if share > 0:
        yield (
            f"Of all heads, {percent(share)} can be removed together before the change may exceed "
            f"{limit} (random order: {chance})."
        )
    else:
        yield (
            f"Even the {percent(float(steps[steps['share'] > 0]['share'].min()))} of heads of "
            f"smallest effect cannot be removed together with a change surely below {limit}."
        )


def _heavy(removals: Removals, groups: pd.DataFrame) -> Iterator[str]:
    """Whether heads that rest on the sink are dead: all three replacements decide."""
    known = groups[groups["target"] == primary(removals)]
    for stack in dict.fromkeys(known["stack"]):
        for group, about in HEAVY.items():
            rows = known[(known["stack"] == stack) & (known["group"] == group)]
            if len(rows) == len(REPLACEMENTS):
                heads = int(rows["heads"].iloc[0])
                message = f"{small(heads)} {about[heads != 1]}"
                where = "" if stack == "self" else f" ({STACKS[stack]})"
                known_by = {row["replacement"]: row for row in rows.to_dict("records")}
                yield from _dead(removals, known_by, message + where)
                break


def _dead(removals: Removals, rows: Mapping[str, Any], about: str) -> Iterator[str]:
    """One sentence; none where the intervals hold the margin."""
    most = verdicts.margin(removals, primary(removals))
    mean, without, zero = (rows[str(each)] for each in REPLACEMENTS)
    by = scale(removals)
    if mean["high"] < most and without["high"] < most:
        if zero["random_low"] <= zero["value"] <= zero["random_high"]:
            yield f"Dead by all three replacements: {about}."
        else:
            yield f"A constant is all that is lost without {about}: their mean stands in for them."
    elif mean["low"] > most:
        reported = with_unit(removals, *(float(mean[name]) for name in ("value", "low", "high")))
        ends = f"{number(mean['random_low'] * by)} to {number(mean['random_high'] * by)}"
        yield (
            f"Not dead: without {about}, the change is {reported}; random sets with as many heads "
            f"in each layer: {ends}."
        )
