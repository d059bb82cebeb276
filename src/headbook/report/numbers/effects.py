"""Changes without heads in the unit that pages print them in."""

from headbook.report.wording import interval, number
from headbook.study.summaries.removals import Removals
from headbook.terms import Target

COSINES = {Target.STATE, Target.EMBEDDING}
NAMES = {
    Target.LOSS: "loss of the next token",
    Target.MASKED_LOSS: "loss of masked tokens",
    Target.STATE: "1 minus the cosine of last states with and without the head",
}
AFTER = "×\u202f10⁻³"


def primary(removals: Removals) -> str:
    """The target that the page is about: the loss, else the cosine of states."""
    return removals.targets[0]


def scale(removals: Removals) -> float:
    """By what changes are multiplied to be in the page's unit."""
    if primary(removals) in COSINES:
        return 1000.0
    return 100 / removals.loss(primary(removals))


def unit(removals: Removals) -> str:
    """The page's unit: per cent of the loss, or thousandths of a cosine."""
    return AFTER if primary(removals) in COSINES else "% of the loss"


def with_unit(removals: Removals, value: float, low: float, high: float) -> str:
    """A change in the page's unit, with its interval."""
    by = scale(removals)
    ends = interval(low * by, high * by)
    return f"{number(value * by)}\u00a0{unit(removals)}{ends and f' {ends}'}"
