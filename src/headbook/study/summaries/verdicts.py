"""Whether a model needs a head, from what is lost without it: tests of equivalence. No torch.

*Removable* says that the loss is surely below a margin, *needed* that it is surely above, *harmful*
that the answer is surely better without the head, tested over all heads at once. All else is
*undecided*: a loss that is not shown is no proof that there is none.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis import intervals
from headbook.analysis.accumulators import Ratios
from headbook.analysis.arithmetic import NOTHING, Floats, Ints, divide
from headbook.analysis.flips import LEVEL
from headbook.analysis.intervals import ANYTHING, Limits, at_most
from headbook.analysis.resampled import family_wise_above
from headbook.study.summaries.removals import Chosen, Removals, SetKind
from headbook.terms import Replacement, Target

ATTRIBUTION = "attribution_estimate"
SHARE = 0.005  # of the whole model's loss: the margin of one head
ANGLE = 0.001  # the same of targets that are cosines
TOGETHER = 2.0  # margins that many heads together may lose
TOP = "top_2_percent"  # label of what is taken at tokens for which a head says most
NOT_NEGATIVE: dict[str, Limits] = {
    Target.KL: (0, np.inf),
    Target.STATE: (0, 2),
    Target.EMBEDDING: (0, 2),
}


class Verdict(StrEnum):
    """What the interval of a head's effect supports."""

    NEEDED = "needed"
    REMOVABLE = "removable"
    HARMFUL = "harmful"
    UNDECIDED = "undecided"


class Effects(NamedTuple):
    """Effects of heads that were taken away one by one; each of *shape* ``(head,)``.

    Attributes:
        head: places in `Removals.heads`.
        p: family-wise p of an effect below 0; NaN where there can be none.
    """

    head: NDArray[np.intp]
    value: Floats
    low: Floats
    high: Floats
    sentences: Ints
    events: Floats
    p: Floats
    verdict: tuple[Verdict, ...]


class Audit(NamedTuple):
    """What estimates are worth, seen on heads that were picked at random.

    Attributes:
        heads: how many were audited.
        rest: how many heads have estimates alone.
        pearson, spearman: correlation of estimates and exact effects over the audited heads; NaN
            with fewer than three.
        above: audited heads whose effect is above the margin.
        missed: those of them whose estimate is not.
        share: at most this share of the rest is missed likewise, with 95 % confidence.
    """

    heads: int
    rest: int
    pearson: float
    spearman: float
    above: int
    missed: int
    share: float


def limits_of(target: str) -> Limits:
    """Least and largest possible change."""
    return NOT_NEGATIVE.get(target, ANYTHING)


def margin(removals: Removals, target: str, *, reported: bool = False) -> float:
    """The change of a target below which it counts as none; NaN of logits, which have no verdict.

    Args:
        reported: on the second half of the sentences.
    """
    if target in {Target.STATE, Target.EMBEDDING}:
        return ANGLE
    if target == Target.LOGIT:
        return float("nan")
    return SHARE * removals.loss(removals.targets[0], reported=reported)


def ranked_target(removals: Removals) -> str:
    """The target that heads are compared by."""
    return Target.KL if Target.KL in removals.targets else Target.STATE


def head_effects(removals: Removals, target: str, replacement: str) -> Effects:
    """What is lost without each head that was taken away."""
    sets = places(removals, replacement)
    ratios = removals.ratios(target, sets)
    low, high = _bounds(removals, target, sets, ratios)
    p = np.full(len(sets), np.nan)
    if target not in NOT_NEGATIVE and len(sets):
        p = family_wise_above(-removals.changes[target][:, sets])
    most = margin(removals, target)
    verdicts = [_verdict(*each, most) for each in zip(low, high, p, strict=True)]
    return Effects(
        removals.members[sets].argmax(1),
        ratios.value,
        low,
        high,
        ratios.sentences,
        ratios.events,
        p,
        tuple(verdicts),
    )


def _bounds(
    removals: Removals, target: str, sets: NDArray[np.intp], ratios: Ratios
) -> tuple[Floats, Floats]:
    """Intervals; where no sentence changes beyond rounding, the smallest and largest change."""
    low, high = ratios.interval(limits_of(target))
    changes, counts = removals.changes[target][:, sets], removals.counts[target][:, None]
    still = (np.abs(changes) <= NOTHING).all(0) & (ratios.effective >= intervals.FEW)
    each = divide(changes, counts)[removals.counts[target] > 0]
    return (
        np.where(still, each.min(0, initial=np.inf), low),
        np.where(still, each.max(0, initial=-np.inf), high),
    )


def _verdict(low: float, high: float, p: float, margin: float) -> Verdict:
    if high < 0 and p < LEVEL:
        return Verdict.HARMFUL
    if high < margin:
        return Verdict.REMOVABLE
    return Verdict.NEEDED if low > margin else Verdict.UNDECIDED


def places(removals: Removals, replacement: str) -> NDArray[np.intp]:
    """Where sets of single heads stand in `Removals.sets`."""
    return np.array(
        [
            index
            for index, each in enumerate(removals.sets)
            if each.kind == SetKind.HEAD and each.replacement == replacement
        ],
        dtype=np.intp,
    )


def estimated(removals: Removals, target: str, replacement: str) -> Floats:
    """The estimate of what is lost without each head. *Shape:* ``(head,)``."""
    position = next(
        k
        for k, column in enumerate(removals.columns)
        if (column.metric, column.target, column.replacement) == (ATTRIBUTION, target, replacement)
    )
    value: Floats = removals.estimates.value[:, position]
    return value


def audit(removals: Removals, target: str) -> Audit:
    """Estimates against exact effects of the mean in a head's place."""
    effects = head_effects(removals, target, Replacement.MEAN)
    picked = removals.chosen[effects.head] == Chosen.AUDIT
    exact = effects.value[picked]
    guess = estimated(removals, target, Replacement.MEAN)[effects.head[picked]]
    above, n = exact > margin(removals, target), len(exact)
    missed = int((above & (guess <= margin(removals, target))).sum())
    return Audit(
        heads=n,
        rest=int((removals.chosen == Chosen.NOT).sum()),
        pearson=_correlation(exact, guess),
        spearman=_correlation(*map(_ranks, (exact, guess))),
        above=int(above.sum()),
        missed=missed,
        share=at_most(missed, n) if n else 1.0,
    )


def _correlation(one: Floats, other: Floats) -> float:
    if len(one) < 3 or not one.std() or not other.std():
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Ranks from 0, equal ones in the middle of theirs."""
    _, place, number = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(number)
    ranks: Floats = (last - (number + 1) / 2)[place]
    return ranks


def can_go(shares: Sequence[float], high: Sequence[float], most: float) -> float:
    """The largest share of heads that can be removed without losing more than ``most``.

    Each step up to there has its upper bound at most there: the first that has not ends the row, so
    that all of them together err with no more than the probability of one.

    Args:
        shares: ascending.
        high: upper bounds.
    """
    value = 0.0
    for share, bound in zip(shares, high, strict=True):
        if not bound <= most:  # NaN ends it, too
            break
        value = share
    return value


def self_repair_on_top(
    removals: Removals,
) -> tuple[NDArray[np.intp], tuple[Floats, Floats, Floats]]:
    """The same on the tokens for which each head says most, whose threshold is the other half's."""
    head, _ = self_repair(removals)
    if not removals.top.size:
        return head[:0], (np.zeros(0), np.zeros(0), np.zeros(0))
    total, direct, tokens = removals.top[:, :, head]
    there = (tokens.sum(0) > 0) & ~np.isnan(total).any(0)
    return head[there], intervals.of_signed((total - direct)[:, there], -direct[:, there])


def self_repair(removals: Removals) -> tuple[NDArray[np.intp], tuple[Floats, Floats, Floats]]:
    """Which part of a head's direct effect the rest of the model makes up for.

    (Total change of the true token's logit minus the direct one) over minus the direct one, sums
    over sums, on all scored tokens: 1 where nothing is lost in the end, 0 where the loss is what
    the head itself said, below 0 where more is lost, for later layers needed it.

    Returns:
        Places of heads in `Removals.heads`, and value, low and high of each.
    """
    sets = places(removals, Replacement.MEAN)
    head = removals.members[sets].argmax(1)
    if Target.LOGIT not in removals.changes or not len(sets):
        return head[:0], (np.zeros(0), np.zeros(0), np.zeros(0))
    direct, total = removals.direct[:, head], removals.changes[Target.LOGIT][:, sets]
    there = np.abs(direct).sum(0) > 0
    return head[there], intervals.of_signed((total - direct)[:, there], -direct[:, there])


def interaction(removals: Removals, target: str, place: int) -> Ratios | None:
    """What two heads lose together beyond what each loses alone; None where that is not known.

    Args:
        place: of the pair in `Removals.sets`.
    """
    singles = places(removals, removals.sets[place].replacement)
    heads = np.flatnonzero(removals.members[place])
    alone = [k for k in singles if removals.members[k].argmax() in heads]
    if len(alone) < len(heads):
        return None
    changes = removals.changes[target]
    more = changes[:, place] - changes[:, alone].sum(1)
    counts = np.where(np.isnan(more), 0, removals.counts[target])
    return Ratios.of(np.nan_to_num(more), counts, counts, removals.half)
