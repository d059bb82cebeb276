"""What is lost without each head, in the unit of pages: exact where it was replaced, or not."""

import numpy as np
import pandas as pd

from headbook.report.wording import interval, number
from headbook.study.importancetables import ESTIMATED, EXACT
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Removals
from headbook.terms import Replacement, Target

COSINES = {Target.STATE, Target.EMBEDDING}
NAMES = {
    Target.LOSS: "loss of the next token",
    Target.MASKED_LOSS: "loss of masked tokens",
    Target.STATE: "1 minus the cosine of last states with and without the head",
}
AFTER = "×\u202f10⁻³"


def primary(removals: Removals) -> str:
    """The target that pages are about: the loss, else the cosine of states."""
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


def head_changes(removals: Removals) -> pd.DataFrame:
    """A row for each head, in the pages' unit, its mean in its place.

    Columns ``stack, layer, head, value, low, high, kind, verdict``; estimates have neither interval
    nor verdict.
    """
    target, by = primary(removals), scale(removals)
    frame = pd.DataFrame(removals.heads)
    frame["value"] = verdicts.estimated(removals, target, Replacement.MEAN) * by
    frame = frame.assign(low=np.nan, high=np.nan, kind=ESTIMATED, verdict="")
    effects = verdicts.head_effects(removals, target, Replacement.MEAN)
    for name in ("value", "low", "high"):
        frame.loc[effects.head, name] = getattr(effects, name) * by
    frame.loc[effects.head, "kind"] = EXACT
    frame.loc[effects.head, "verdict"] = [str(verdict) for verdict in effects.verdict]
    return frame
