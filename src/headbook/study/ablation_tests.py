"""Whether the model's answer changes without a head, from the share of sentences that change.

A margin says which change matters in practice. A sentence is *changed* if the absolute mean of its
own change exceeds the margin. Exact bounds of the share of changed sentences, all heads together,
decide: *changes* (surely more than a fifth), *no_change* (surely less), *harmful* (changes, and the
loss is lower without the head, tested over all heads at once), else *undecided*. No torch.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis import intervals
from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import NOTHING, Floats, Ints, divide
from headbook.analysis.intervals import share_bounds, share_upper_bound
from headbook.analysis.multiple_testing import ALPHA, bootstrap_p_above, bootstrap_t
from headbook.schema import AblationTarget, Replacement
from headbook.study.ablation import AblationReason, AblationResults, HeadSetKind

ATTRIBUTION = "attribution_estimate"
LOSS_MARGIN = 0.005  # margin of losses, as a share of the whole model's loss
APART = 0.01  # margin of cosines, as a share of the mean distance between sentences
ROUNDED = 10.0  # least margin, in changes by rounding weights to bfloat16
FIFTH = 0.2  # share of sentences that decides
RESAMPLED = 500  # sentences up to which intervals are bootstrap-t intervals
GROUP_MARGIN = 2.0  # margins that many heads together may lose
TOP = "top_2_percent"  # label of what is taken at tokens for which a head says most
NOT_NEGATIVE: dict[str, tuple[float, float]] = {
    AblationTarget.KL: (0, np.inf),
    AblationTarget.STATE: (0, 2),
    AblationTarget.EMBEDDING: (0, 2),
}


class AblationVerdict(StrEnum):
    """What the share of changed sentences supports."""

    CHANGES = "changes"
    NO_CHANGE = "no_change"
    HARMFUL = "harmful"
    UNDECIDED = "undecided"


class HeadEffects(NamedTuple):
    """Effects of sets of heads that were replaced; arrays of *shape* ``(set,)``.

    Attributes:
        place: places in `AblationResults.sets`.
        head: places in `AblationResults.heads` of each set's first head.
        low, high: ends of the 95 % interval of the value.
        sentences: sentences that contribute.
        events: scored tokens.
        p: family-wise p of an effect below 0; NaN for targets that cannot be negative.
        margin: absolute mean change from which on a sentence is changed; NaN without a verdict.
        changed: changed sentences.
        share_low, share_high: bounds of the share of changed sentences; each errs in any of the
            sets with a probability of at most 5 %.
        verdict: a `AblationVerdict`; empty without a margin.
    """

    place: NDArray[np.intp]
    head: NDArray[np.intp]
    value: Floats
    low: Floats
    high: Floats
    sentences: Ints
    events: Floats
    p: Floats
    margin: float
    changed: Ints
    share_low: Floats
    share_high: Floats
    verdict: tuple[str, ...]

    @property
    def share_changed(self) -> Floats:
        """Share of changed sentences; NaN without a margin."""
        found = divide(self.changed.astype(np.float64), self.sentences.astype(np.float64))
        return np.where(np.isnan(self.share_low), np.nan, found)


class EstimateAudit(NamedTuple):
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


def limits_of(target: str) -> tuple[float, float]:
    """Return the least and largest possible change of a target."""
    return NOT_NEGATIVE.get(target, (-np.inf, np.inf))


def equivalence_margin(ablation: AblationResults, target: str, *, reported: bool = False) -> float:
    """Return the change of a target from which on a sentence counts as changed.

    1 % of the mean distance between sentences for cosines, 0.5 % of the whole model's loss for
    losses and divergences, or what ``--margin`` sets; at least 10 times the mean absolute change
    of a sentence by rounding weights to bfloat16. NaN for logits, and if the yardstick is missing.

    Args:
        reported: take the loss of the second half of the sentences.
    """
    if target == AblationTarget.LOGIT:
        return float("nan")
    found = ablation.asked_margin
    if np.isnan(found):
        if target in {AblationTarget.STATE, AblationTarget.EMBEDDING}:
            found = APART * ablation.sentence_distance.get(target, float("nan"))
        else:
            found = LOSS_MARGIN * ablation.loss(ablation.targets[0], reported=reported)
    return found if np.isnan(found) else max(found, ROUNDED * rounding_change(ablation, target))


def rounding_change(ablation: AblationResults, target: str) -> float:
    """Return the mean absolute change of a sentence by rounding weights; 0 if not measured."""
    if target not in ablation.rounding:
        return 0.0
    each = divide(ablation.rounding[target], ablation.counts[target])
    return float(np.abs(each[ablation.counts[target] > 0]).mean())


def ranked_target(ablation: AblationResults) -> str:
    """Return the target that ranks heads, and whose verdict lists show."""
    return AblationTarget.KL if AblationTarget.KL in ablation.targets else ablation.targets[0]


def token_target(ablation: AblationResults) -> str:
    """Return the target of single tokens (`AblationResults.missed`): the loss, else states."""
    return next(target for target in ablation.targets if target != AblationTarget.EMBEDDING)


def head_effects(ablation: AblationResults, target: str, replacement: str) -> HeadEffects:
    """Return the effects of heads that were replaced one at a time."""
    return set_effects(ablation, target, single_head_rows(ablation, replacement))


def group_effects(ablation: AblationResults, target: str, replacement: str) -> HeadEffects:
    """Return the effects of groups of heads."""
    return set_effects(ablation, target, single_head_rows(ablation, replacement, HeadSetKind.GROUP))


def set_effects(ablation: AblationResults, target: str, sets: NDArray[np.intp]) -> HeadEffects:
    """Return effects and verdicts of sets of heads, all of which are one family.

    Args:
        sets: places in `AblationResults.sets`.
    """
    ratios = ablation.ratios(target, sets)
    changes, counts = ablation.changes[target][:, sets], ablation.counts[target]
    low, high = effect_interval(changes, counts, target)
    p = np.full(len(sets), np.nan)
    if target not in NOT_NEGATIVE and len(sets):
        p = bootstrap_p_above(-changes)
    most = equivalence_margin(ablation, target)
    own = np.abs(divide(changes, np.broadcast_to(counts[:, None], changes.shape)))
    changed = (own > most).sum(0)
    bounds = np.full((2, len(sets)), np.nan)
    if not np.isnan(most) and len(sets):
        bounds[:] = share_bounds(changed, ratios.n_sentences, 1 - ALPHA / len(sets))
    harmful = (ratios.value < 0) & (p < ALPHA)
    return HeadEffects(
        place=sets,
        head=ablation.members[sets].argmax(1),
        value=ratios.value,
        low=low,
        high=high,
        sentences=ratios.n_sentences,
        events=ratios.n_observations,
        p=p,
        margin=most,
        changed=changed,
        share_low=bounds[0],
        share_high=bounds[1],
        verdict=tuple(_verdict(*each) for each in zip(*bounds, harmful, strict=True)),
    )


def effect_interval(changes: Floats, counts: Floats, target: str) -> tuple[Floats, Floats]:
    """Return 95 % intervals of changes per scored token, clustered by sentence.

    Bootstrap-t intervals of up to `RESAMPLED` sentences: linearised ones of rare large effects
    are too narrow. If no sentence changes beyond rounding, the smallest and largest change of any
    sentence. NaN below `intervals.MIN_EFFECTIVE` effective sentences.

    Args:
        changes: sums over scored tokens; NaN if not measured. *Shape:* ``(sentence, set)``.
        counts: scored tokens. *Shape:* ``(sentence,)``.
    """
    tokens = np.where(np.isnan(changes), 0.0, counts[:, None])
    sums = np.nan_to_num(changes)
    ratios = RatioSums.of(sums, tokens, tokens, np.zeros(len(counts), np.int64))
    low, high = ratios.interval(limits_of(target))
    if len(counts) <= RESAMPLED:
        there = intervals.has_interval(ratios.n_effective, ratios.n_sentences)
        ends = bootstrap_t(sums, tokens, limits_of(target))
        low, high = (np.where(there, end, np.nan) for end in ends)
    still = (np.abs(sums) <= NOTHING).all(0) & (ratios.n_effective >= intervals.MIN_EFFECTIVE)
    each = np.where(tokens > 0, divide(sums, tokens), np.nan)
    least, most = (
        function(np.nan_to_num(each, nan=fill), axis=0, initial=fill)
        for function, fill in ((np.min, np.inf), (np.max, -np.inf))
    )
    return np.where(still, least, low), np.where(still, most, high)


def held_out(ablation: AblationResults, target: str, place: int) -> tuple[float, float, float]:
    """Return the effect of one set on the second half of the sentences, with its interval.

    All three are NaN if that half is empty, as it may be with one sentence or two.

    Args:
        place: of the set in `AblationResults.sets`.
    """
    rows = ablation.half == 1
    changes, counts = ablation.changes[target][rows][:, [place]], ablation.counts[target][rows]
    if not counts.sum():
        return math.nan, math.nan, math.nan
    low, high = effect_interval(changes, counts, target)
    return float(changes.sum() / counts.sum()), float(low[0]), float(high[0])


def _verdict(low: float, high: float, harmful: bool) -> str:
    """Return the verdict of bounds of the share of changed sentences."""
    if np.isnan(low):
        return ""
    if low > FIFTH:
        return AblationVerdict.HARMFUL if harmful else AblationVerdict.CHANGES
    return AblationVerdict.NO_CHANGE if high < FIFTH else AblationVerdict.UNDECIDED


def single_head_rows(
    ablation: AblationResults, replacement: str, kind: HeadSetKind = HeadSetKind.HEAD
) -> NDArray[np.intp]:
    """Return where sets of a kind, by default single heads, stand in `AblationResults.sets`."""
    return np.array(
        [
            index
            for index, each in enumerate(ablation.sets)
            if each.kind == kind and each.replacement == replacement
        ],
        dtype=np.intp,
    )


def estimated_effects(ablation: AblationResults, target: str, replacement: str) -> Floats:
    """The estimate of what is lost without each head. *Shape:* ``(head,)``."""
    position = next(
        k
        for k, column in enumerate(ablation.columns)
        if (column.metric, column.target, column.replacement) == (ATTRIBUTION, target, replacement)
    )
    value: Floats = ablation.estimates.value[:, position]
    return value


def audit(ablation: AblationResults, target: str) -> EstimateAudit:
    """Estimates against exact effects of the mean in a head's place."""
    effects = head_effects(ablation, target, Replacement.MEAN)
    picked = ablation.chosen[effects.head] == AblationReason.AUDIT
    exact = effects.value[picked]
    guess = estimated_effects(ablation, target, Replacement.MEAN)[effects.head[picked]]
    above, n = exact > equivalence_margin(ablation, target), len(exact)
    missed = int((above & (guess <= equivalence_margin(ablation, target))).sum())
    return EstimateAudit(
        heads=n,
        rest=int((ablation.chosen == AblationReason.NOT).sum()),
        pearson=_correlation(exact, guess),
        spearman=_correlation(*map(_ranks, (exact, guess))),
        above=int(above.sum()),
        missed=missed,
        share=share_upper_bound(missed, n) if n else 1.0,
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


def removable_share(shares: Sequence[float], high: Sequence[float], most: float) -> float:
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


def self_repair_top_tokens(
    ablation: AblationResults,
) -> tuple[NDArray[np.intp], tuple[Floats, Floats, Floats]]:
    """The same on the tokens for which each head says most, whose threshold is the other half's."""
    head, _ = self_repair(ablation)
    if not ablation.top.size:
        return head[:0], (np.zeros(0), np.zeros(0), np.zeros(0))
    total, direct, tokens = ablation.top[:, :, head]
    there = (tokens.sum(0) > 0) & ~np.isnan(total).any(0)
    return head[there], intervals.signed_ratio_interval(
        (total - direct)[:, there], -direct[:, there]
    )


def self_repair(
    ablation: AblationResults,
) -> tuple[NDArray[np.intp], tuple[Floats, Floats, Floats]]:
    """Which part of a head's direct effect the rest of the model makes up for.

    (Total change of the true token's logit minus the direct one) over minus the direct one, sums
    over sums, on all scored tokens: 1 where nothing is lost in the end, 0 where the loss is what
    the head itself said, below 0 where more is lost, for later layers needed it.

    Returns:
        Places of heads in `AblationResults.heads`, and value, low and high of each.
    """
    sets = single_head_rows(ablation, Replacement.MEAN)
    head = ablation.members[sets].argmax(1)
    if AblationTarget.LOGIT not in ablation.changes or not len(sets):
        return head[:0], (np.zeros(0), np.zeros(0), np.zeros(0))
    direct, total = ablation.direct[:, head], ablation.changes[AblationTarget.LOGIT][:, sets]
    there = np.abs(direct).sum(0) > 0
    return head[there], intervals.signed_ratio_interval(
        (total - direct)[:, there], -direct[:, there]
    )


def interaction(ablation: AblationResults, target: str, place: int) -> RatioSums | None:
    """What two heads lose together beyond what each loses alone; None where that is not known.

    Args:
        place: of the pair in `AblationResults.sets`.
    """
    singles = single_head_rows(ablation, ablation.sets[place].replacement)
    heads = np.flatnonzero(ablation.members[place])
    alone = [k for k in singles if ablation.members[k].argmax() in heads]
    if len(alone) < len(heads):
        return None
    changes = ablation.changes[target]
    more = changes[:, place] - changes[:, alone].sum(1)
    counts = np.where(np.isnan(more), 0, ablation.counts[target])
    return RatioSums.of(np.nan_to_num(more), counts, counts, ablation.half)
