"""What is lost without each head, in the unit of pages, and verdicts in words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.report.wording import counted, interval, number, percent, small
from headbook.study.importancetables import ESTIMATED, EXACT
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Chosen, Removals
from headbook.study.summaries.verdicts import Verdict
from headbook.terms import Replacement, Target

COSINES = {Target.STATE, Target.EMBEDDING}
NAMES = {
    Target.LOSS: "loss of the next token",
    Target.MASKED_LOSS: "loss of masked tokens",
    Target.STATE: "1 minus the cosine of last states with and without the head",
    Target.EMBEDDING: "1 minus the cosine of sentence vectors with and without the head",
}
JUDGED = {
    Target.KL: "predictions (KL divergence)",
    Target.STATE: "last states (1 minus their cosine)",
    Target.EMBEDDING: "sentence vectors (1 minus their cosine)",
}
SHORT = {
    Verdict.CHANGES: "changes the output",
    Verdict.NO_CHANGE: "can go alone",
    Verdict.HARMFUL: "harmful",
    Verdict.UNDECIDED: "undecided",
}
COUNTED = {  # of one head, and of several
    Verdict.CHANGES: ("changes the output", "change the output"),
    Verdict.NO_CHANGE: ("can go alone", "can go alone"),
    Verdict.HARMFUL: ("is harmful", "are harmful"),
    Verdict.UNDECIDED: ("is undecided", "are undecided"),
}
AFTER = "×\u202f10⁻³"


def primary(removals: Removals) -> str:
    """The target that pages are about: the loss, else the cosine of sentence vectors or states."""
    return removals.targets[0]


def scale(removals: Removals) -> float:
    """By what changes are multiplied to be in the pages' unit."""
    if primary(removals) in COSINES:
        return 1000.0
    return 100 / removals.loss(primary(removals))


def unit(removals: Removals) -> str:
    """The pages' unit: per cent of the loss, or thousandths of a cosine."""
    return AFTER if primary(removals) in COSINES else "% of the loss"


def drawn_unit(removals: Removals) -> str:
    """The same in letters that fonts of figures have."""
    return "thousandths" if primary(removals) in COSINES else unit(removals)


def with_unit(removals: Removals, value: float, low: float, high: float) -> str:
    """A change in the pages' unit, with its interval."""
    by = scale(removals)
    ends = interval(low * by, high * by)
    return f"{number(value * by)}\u00a0{unit(removals)}{ends and f' {ends}'}"


def judged_by(removals: Removals) -> str:
    """Return the target of verdicts in lists, in words."""
    target = verdicts.ranked_target(removals)
    return JUDGED.get(Target(target), NAMES.get(Target(target), target))


def margin_text(removals: Removals) -> str:
    """Return the margin of verdicts in lists, with its unit."""
    most = verdicts.margin(removals, verdicts.ranked_target(removals)) * scale(removals)
    return f"{number(most)}\u00a0{unit(removals)}"


def short_verdict(verdict: str) -> str:
    """Return a verdict for lists; empty without one."""
    return SHORT[Verdict(verdict)] if verdict else ""


def verdict_text(row: Mapping[Any, Any], together: str = "heads") -> str:
    """Return a verdict in full; empty without one.

    Args:
        row: of `Study.importance` or `Study.head_groups`.
        together: what the bounds hold for together.
    """
    if not row["verdict"]:
        return ""
    sentences = int(row["sentences"])
    changed = round(row["share_changed"] * sentences)
    of = f"{changed:,} of {counted(sentences, 'sentence')}"
    match Verdict(row["verdict"]):
        case Verdict.CHANGES:
            return f"changes {of}"
        case Verdict.HARMFUL:
            return f"changes {of}, and the loss is lower without"
        case Verdict.NO_CHANGE:
            return (
                f"leaves {sentences - changed:,} of {counted(sentences, 'sentence')} as they were; "
                f"at most {percent(row['share_high'])} would change (95\u00a0%, all {together} "
                "together)"
            )
    return "undecided"


def verdict_counts(found: Iterable[str]) -> str:
    """Return how many heads have which verdict: ``11 change the output and one is undecided``."""
    counts = Counter(found)
    parts = [
        f"{small(n)} {COUNTED[verdict][n > 1]}" for verdict in Verdict if (n := counts[verdict])
    ]
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + "".join(parts[-1:])


def choice_text(removals: Removals, heads: Iterable[int]) -> str:
    """Return how heads that were replaced alone had been chosen, in words; empty if all were.

    Args:
        heads: places in `Removals.heads`.
    """
    if removals.chosen.all() and not (removals.chosen == Chosen.AUDIT).any():
        return ""
    counts = Counter(Chosen(int(removals.chosen[place])) for place in heads)
    why = {Chosen.FIRST: "with the largest estimates", Chosen.AUDIT: "picked at random"}
    return ", ".join(f"{counts[each]:,} {text}" for each, text in why.items() if counts[each])


def head_changes(removals: Removals) -> pd.DataFrame:
    """A row for each head, in the pages' unit, its mean in its place.

    Columns ``stack, layer, head, value, low, high, kind, verdict``; estimates have neither interval
    nor verdict. Verdicts are those of the target that ranks heads.
    """
    target, by = primary(removals), scale(removals)
    frame = pd.DataFrame(removals.heads)
    frame["value"] = verdicts.estimated(removals, target, Replacement.MEAN) * by
    frame = frame.assign(low=np.nan, high=np.nan, kind=ESTIMATED, verdict="")
    effects = verdicts.head_effects(removals, target, Replacement.MEAN)
    for name in ("value", "low", "high"):
        frame.loc[effects.head, name] = getattr(effects, name) * by
    frame.loc[effects.head, "kind"] = EXACT
    ranked = verdicts.head_effects(removals, verdicts.ranked_target(removals), Replacement.MEAN)
    frame.loc[ranked.head, "verdict"] = list(ranked.verdict)
    return frame
