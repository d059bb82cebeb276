"""Effects of ablation with their intervals, and verdicts from the share of changed sentences.

A sentence is *changed* if the absolute mean of its own change exceeds the margin, the change that
matters in practice. Exact bounds of the share of changed sentences, for all heads together, decide:
*changes* (surely more than a fifth), *no_change* (surely less), *harmful* (changes, and the loss is
lower without the head, tested over all heads at once), else *undecided*. No torch.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis import intervals
from headbook.analysis.accumulators import HELD_OUT, SELECTION, RatioSums
from headbook.analysis.arrays import MIN_NUMERATOR, Floats, divide, mean_ranks
from headbook.analysis.intervals import share_bounds, share_upper_bound
from headbook.analysis.multiple_testing import ALPHA, bootstrap_p_above, bootstrap_t
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.results import (
    CHANGE_LIMITS,
    HEAD_FIELDS,
    AblationReason,
    AblationResults,
    AttributionKey,
    HeadSetKind,
    limits_of,
)
from headbook.study.ablation.tasks import is_task, task_margin

ATTRIBUTION = "attribution_estimate"
LOSS_MARGIN = 0.005  # margin of losses, as a share of the unablated model's loss
DISTANCE_MARGIN = 0.01  # margin of cosines, as a share of the mean distance between sentences
ROUNDING_FACTOR = 10.0  # smallest margin, in mean changes by rounding weights to bfloat16
VERDICT_SHARE = 0.2  # share of changed sentences that verdicts compare with
MAX_BOOTSTRAP_SENTENCES = 500  # sentences; larger samples have linearised intervals, for speed
GROUP_MARGIN_FACTOR = 2.0  # margin of many heads together, in margins of one head
TOP_TOKENS_LABEL = "top_2_percent"  # label of self-repair at the tokens of largest direct effect
RANDOM_ORDER_PREFIX = "random"  # beginning of the names of random pruning orders
COSINE_TARGETS = {AblationTarget.STATE, AblationTarget.EMBEDDING}  # 1 minus a cosine


class AblationVerdict(StrEnum):
    """Verdicts on a set of heads, by the share of changed sentences."""

    CHANGES = "changes"
    NO_CHANGE = "no_change"
    HARMFUL = "harmful"
    UNDECIDED = "undecided"


class EstimateAudit(NamedTuple):
    """Agreement of estimates with exact effects, on heads that were drawn at random.

    Attributes:
        heads: number of audited heads.
        rest: number of heads that have estimates only.
        pearson, spearman: correlation of estimates and exact effects of the audited heads; NaN
            with fewer than three heads.
        above: audited heads whose effect is above the margin.
        missed: audited heads whose effect is above the margin and whose estimate is not.
        share: upper 95 % bound of the share of missed heads among those with estimates only.
    """

    heads: int
    rest: int
    pearson: float
    spearman: float
    above: int
    missed: int
    share: float


def equivalence_margin(ablation: AblationResults, target: str, *, reported: bool = False) -> float:
    """Return the change of a target from which on a sentence counts as changed.

    The margin is 1 % of the mean distance between sentences for cosines, 0.5 % of the unablated
    model's loss for losses and divergences, or the value of ``--margin``; at least 10 times the
    mean absolute change of a sentence by rounding weights to bfloat16. The margin is NaN for
    logits, and if the distance or the loss is unknown. Tasks have margins of their own, see
    `headbook.study.ablation.tasks.task_margin`.

    Args:
        ablation: results whose loss or distance is the yardstick.
        target: target of the margin.
        reported: whether to take the loss of the held-out half of the sentences.
    """
    if target == AblationTarget.LOGIT:
        return float("nan")
    margin = ablation.asked_margin
    if is_task(ablation):
        margin = task_margin(ablation, target, reported=reported)
    elif np.isnan(margin):
        if target in COSINE_TARGETS:
            margin = DISTANCE_MARGIN * ablation.sentence_distance.get(target, float("nan"))
        else:
            margin = LOSS_MARGIN * ablation.loss(ablation.targets[0], reported=reported)
    if np.isnan(margin):
        return margin
    return max(margin, ROUNDING_FACTOR * rounding_change(ablation, target))


def rounding_change(ablation: AblationResults, target: str) -> float:
    """Return the mean absolute change of a sentence by rounding weights; 0 if not measured."""
    if target not in ablation.rounding:
        return 0.0
    counts = ablation.counts[target]
    changes = divide(ablation.rounding[target], counts)
    return float(np.abs(changes[counts > 0]).mean())


def ranked_target(ablation: AblationResults) -> str:
    """Return the target by which heads are ranked and listed verdicts are given."""
    return AblationTarget.KL if AblationTarget.KL in ablation.targets else ablation.targets[0]


def token_target(ablation: AblationResults) -> str:
    """Return the target of single tokens, as in `AblationResults.missed`: loss or states."""
    return next(target for target in ablation.targets if target != AblationTarget.EMBEDDING)


def head_effects(ablation: AblationResults, target: str, replacement: str) -> pd.DataFrame:
    """Return the effects of heads that were replaced one at a time, with a row for each head.

    Columns are ``stack, layer, head``, the columns of `set_effects`, ``reason`` (the
    `AblationReason` of the head) and ``estimate`` (the estimate of the value). The index of a row
    is the index of the head in `AblationResults.heads`. Effects are computed once.
    """
    return _head_effects(ablation, target, replacement).copy()


@lru_cache(maxsize=16)  # intervals take a bootstrap, and every sentence on heads needs them
def _head_effects(ablation: AblationResults, target: str, replacement: str) -> pd.DataFrame:
    sets = ablation.select(HeadSetKind.HEAD, replacement)
    head_index = ablation.first_heads(sets)
    heads = pd.DataFrame([ablation.heads[k] for k in head_index], columns=[*HEAD_FIELDS])
    effects = pd.concat([heads, set_effects(ablation, target, sets)], axis=1)
    return effects.assign(
        reason=ablation.chosen[head_index],
        estimate=estimated_effects(ablation, target, replacement)[head_index],
    ).set_index(head_index)


def head_names(effects: pd.DataFrame) -> list[HeadName]:
    """Return the head of each row of `head_effects`."""
    return [HeadName(*head) for head in effects[[*HEAD_FIELDS]].itertuples(index=False)]


def set_effects(ablation: AblationResults, target: str, sets: NDArray[np.intp]) -> pd.DataFrame:
    """Return effects and verdicts of sets of heads, with a row for each set.

    P-values and bounds hold for all of the sets together. Columns:

    - ``set``: index into `AblationResults.sets`.
    - ``value, low, high``: mean change per scored token, with its 95 % interval.
    - ``n_sentences, n_observations``: sentences and scored tokens behind the value.
    - ``p``: family-wise p of an effect below 0; NaN for targets that cannot be negative.
    - ``margin``: absolute mean change from which on a sentence counts as changed; NaN if unknown.
    - ``changed, share_changed``: changed sentences, and their share; the share is NaN without a
      margin.
    - ``share_low, share_high``: bounds of the share; the probability that one of them is wrong for
      any of the sets is at most 5 %.
    - ``verdict``: an `AblationVerdict`; empty without a margin.

    Args:
        ablation: results that hold the sets.
        target: target whose changes are tested.
        sets: indices into `AblationResults.sets`.
    """
    ratios = ablation.ratios(target, sets)
    changes, counts = ablation.changes[target][:, sets], ablation.counts[target]
    low, high = effect_interval(changes, counts, target)
    p = np.full(len(sets), np.nan)
    if target not in CHANGE_LIMITS and len(sets):
        p = bootstrap_p_above(-changes)
    margin = equivalence_margin(ablation, target)
    sentence_changes = np.abs(divide(changes, np.broadcast_to(counts[:, None], changes.shape)))
    changed = (sentence_changes > margin).sum(0)
    bounds = np.full((2, len(sets)), np.nan)
    if not np.isnan(margin) and len(sets):
        bounds[:] = share_bounds(changed, ratios.n_sentences, 1 - ALPHA / len(sets))
    harmful = (ratios.value < 0) & (p < ALPHA)
    share = divide(changed.astype(np.float64), ratios.n_sentences.astype(np.float64))
    return pd.DataFrame(
        {
            "set": sets,
            "value": ratios.value,
            "low": low,
            "high": high,
            "n_sentences": ratios.n_sentences,
            "n_observations": ratios.n_observations,
            "p": p,
            "margin": np.full(len(sets), margin),
            "changed": changed,
            "share_changed": np.where(np.isnan(bounds[0]), np.nan, share),
            "share_low": bounds[0],
            "share_high": bounds[1],
            "verdict": [
                _verdict(*bounds_of_set) for bounds_of_set in zip(*bounds, harmful, strict=True)
            ],
        }
    )


def effect_interval(changes: Floats, counts: Floats, target: str) -> tuple[Floats, Floats]:
    """Return 95 % intervals of changes per scored token, clustered by sentence.

    Up to `MAX_BOOTSTRAP_SENTENCES` sentences have bootstrap-t intervals, since linearised intervals
    of rare large effects are too narrow. If no sentence changes beyond rounding, the ends are the
    smallest and largest change of any sentence. Intervals of fewer than `intervals.MIN_EFFECTIVE`
    effective sentences are NaN.

    Args:
        changes: sums over scored tokens; NaN if not measured. *Shape:* ``(sentence, set)``.
        counts: scored tokens. *Shape:* ``(sentence,)``.
        target: target of the changes, which limits the intervals.
    """
    scored_tokens = np.where(np.isnan(changes), 0.0, counts[:, None])
    sums = np.nan_to_num(changes)
    ratios = RatioSums.of(sums, scored_tokens, scored_tokens, np.zeros(len(counts), np.int64))
    low, high = ratios.interval(limits_of(target))
    if len(counts) <= MAX_BOOTSTRAP_SENTENCES:
        known = intervals.has_interval(ratios.n_effective, ratios.n_sentences)
        ends = bootstrap_t(sums, scored_tokens, limits_of(target))
        low, high = (np.where(known, end, np.nan) for end in ends)
    unchanged = (np.abs(sums) <= MIN_NUMERATOR).all(0) & (
        ratios.n_effective >= intervals.MIN_EFFECTIVE
    )
    sentence_changes = np.where(scored_tokens > 0, divide(sums, scored_tokens), np.nan)
    smallest, largest = (
        reduction(np.nan_to_num(sentence_changes, nan=fill), axis=0, initial=fill)
        for reduction, fill in ((np.min, np.inf), (np.max, -np.inf))
    )
    return np.where(unchanged, smallest, low), np.where(unchanged, largest, high)


def held_out(ablation: AblationResults, target: str, index: int) -> tuple[float, float, float]:
    """Return the effect of one set on the held-out half of the sentences, with its interval.

    Effect and ends are NaN if the held-out half is empty, as it may be with one or two sentences.

    Args:
        ablation: results that hold the set.
        target: target whose change is returned.
        index: index of the set in `AblationResults.sets`.
    """
    rows = ablation.half == HELD_OUT
    changes, counts = ablation.changes[target][rows][:, [index]], ablation.counts[target][rows]
    if not counts.sum():
        return math.nan, math.nan, math.nan
    low, high = effect_interval(changes, counts, target)
    return float(changes.sum() / counts.sum()), float(low[0]), float(high[0])


def largest_effect(
    ablation: AblationResults, target: str
) -> tuple[HeadName, float, tuple[float, float, float]] | None:
    """Find the head of largest effect on the selection half, replaced by its mean.

    Returns:
        The head, its effect on the selection half, and its effect on the held-out half with the
        ends of the interval; None if no head was replaced alone.
    """
    sets = ablation.select(HeadSetKind.HEAD, Replacement.MEAN)
    effects = ablation.ratios(target, sets).split(SELECTION).value
    if np.isnan(effects).all():
        return None
    best = int(np.nanargmax(effects))
    head = ablation.heads[ablation.first_heads(sets)[best]]
    return head, float(effects[best]), held_out(ablation, target, int(sets[best]))


def _verdict(low: float, high: float, harmful: bool) -> str:
    """Return the verdict for bounds of the share of changed sentences."""
    if np.isnan(low):
        return ""
    if low > VERDICT_SHARE:
        return AblationVerdict.HARMFUL if harmful else AblationVerdict.CHANGES
    return AblationVerdict.NO_CHANGE if high < VERDICT_SHARE else AblationVerdict.UNDECIDED


def estimated_effects(ablation: AblationResults, target: str, replacement: str) -> Floats:
    """Return the estimated effect of each head; NaN if not estimated. *Shape:* ``(head,)``."""
    key = AttributionKey(ATTRIBUTION, replacement, target, "")
    if key not in ablation.columns:
        return np.full(len(ablation.heads), np.nan)
    value: Floats = ablation.estimates.value[:, ablation.columns.index(key)]
    return value


def audit(ablation: AblationResults, target: str) -> EstimateAudit:
    """Compare estimates with exact effects on audited heads, replaced by their mean."""
    effects = head_effects(ablation, target, Replacement.MEAN)
    audited = effects[effects["reason"] == AblationReason.AUDIT]
    exact, estimated = audited["value"].to_numpy(), audited["estimate"].to_numpy()
    margin, n_audited = equivalence_margin(ablation, target), len(exact)
    above = exact > margin
    missed = int((above & (estimated <= margin)).sum())
    return EstimateAudit(
        heads=n_audited,
        rest=int((ablation.chosen == AblationReason.NOT_ABLATED).sum()),
        pearson=_correlation(exact, estimated),
        spearman=_correlation(mean_ranks(exact), mean_ranks(estimated)),
        above=int(above.sum()),
        missed=missed,
        share=share_upper_bound(missed, n_audited) if n_audited else 1.0,
    )


def _correlation(exact: Floats, estimated: Floats) -> float:
    if len(exact) < 3 or not exact.std() or not estimated.std():
        return float("nan")
    return float(np.corrcoef(exact, estimated)[0, 1])


def removable_share(
    shares: Sequence[float], upper_bounds: Sequence[float], max_change: float
) -> float:
    """Return the largest share of heads that can be removed at a change of at most ``max_change``.

    The upper bound of each step up to this share is at most ``max_change``. The first step with a
    higher bound ends the search, so all steps together err with the probability of one of them.

    Args:
        shares: shares of removed heads, ascending.
        upper_bounds: upper bounds of the change at each share.
        max_change: largest change that is accepted.
    """
    value = 0.0
    for share, bound in zip(shares, upper_bounds, strict=True):
        if not bound <= max_change:  # a bound of NaN ends the search, too
            break
        value = share
    return value


def group_margin(ablation: AblationResults) -> float:
    """Return the change of the main target that many heads together may make.

    The margin is 1 % of the loss, or 2 % of the mean distance between sentences.
    """
    return GROUP_MARGIN_FACTOR * equivalence_margin(ablation, ablation.targets[0], reported=True)


def removable_shares(
    ablation: AblationResults, pruning: pd.DataFrame
) -> tuple[dict[str, float], float]:
    """Return the share of heads that can be removed in each pruning order, by the main target.

    Args:
        ablation: results that set the margin.
        pruning: rows of `Study.pruning`.

    Returns:
        The share for each order that is not random, and the median of random orders; NaN without
        random orders.
    """
    max_change, steps = group_margin(ablation), pruning[pruning["target"] == ablation.targets[0]]
    shares = {
        str(order): removable_share([*rows["share"]], [*rows["high"]], max_change)
        for order, rows in steps.groupby("order", sort=False)
    }
    random = [share for order, share in shares.items() if order.startswith(RANDOM_ORDER_PREFIX)]
    named = {
        order: share for order, share in shares.items() if not order.startswith(RANDOM_ORDER_PREFIX)
    }
    return named, float(np.median(random)) if random else math.nan


def self_repair(ablation: AblationResults) -> pd.DataFrame:
    """Return the part of each head's direct effect that the rest of the model compensates.

    The part is the total change of the true token's logit minus the direct change, over minus the
    direct change, sums over sums. It is 1 if nothing is lost in the end, 0 if the loss is the
    direct effect of the head, and below 0 if more is lost, since later layers needed the head.

    Columns ``stack, layer, head, label, value, low, high, n_sentences, n_observations``. The label
    is empty for all scored tokens, and `TOP_TOKENS_LABEL` for the tokens of largest direct effect
    of each head, whose threshold is taken from the other half of the sentences.
    """
    sets = ablation.select(HeadSetKind.HEAD, Replacement.MEAN)
    if AblationTarget.LOGIT not in ablation.changes or not len(sets):
        return pd.DataFrame()
    head_index = ablation.first_heads(sets)
    total, direct = ablation.changes[AblationTarget.LOGIT][:, sets], ablation.direct[:, head_index]
    measured = np.abs(direct).sum(0) > 0
    n_sentences_tokens = len(total), ablation.counts[AblationTarget.LOGIT].sum()
    changes = np.stack([total, direct])[:, :, measured]
    tables = [
        _repaired(ablation, head_index[measured], changes, n_sentences_tokens).assign(label="")
    ]
    if ablation.top.size:
        total, direct, tokens = ablation.top[:, :, head_index[measured]]
        in_both = (tokens.sum(0) > 0) & ~np.isnan(total).any(0)
        n_sentences_tokens = (tokens > 0).sum(0)[in_both], tokens.sum(0)[in_both]
        changes = np.stack([total, direct])[:, :, in_both]
        tables.append(
            _repaired(ablation, head_index[measured][in_both], changes, n_sentences_tokens).assign(
                label=TOP_TOKENS_LABEL
            )
        )
    return pd.concat(tables, ignore_index=True)


def _repaired(
    ablation: AblationResults,
    heads: NDArray[np.intp],
    changes: Floats,
    n_sentences_tokens: tuple[Any, Any],
) -> pd.DataFrame:
    """Return rows of `self_repair`, one for each head.

    Args:
        ablation: results that hold the heads.
        heads: indices into `AblationResults.heads`.
        changes: total and direct changes of the logit. *Shape:* ``(2, sentence, head)``.
        n_sentences_tokens: numbers of sentences and of tokens, of all heads together or of each
            head.
    """
    total, direct = changes
    value, low, high = intervals.signed_ratio_interval(total - direct, -direct)
    names = pd.DataFrame([ablation.heads[k] for k in heads], columns=[*HEAD_FIELDS])
    sentences, tokens = n_sentences_tokens
    return names.assign(
        value=value, low=low, high=high, n_sentences=sentences, n_observations=tokens
    )


def interaction(ablation: AblationResults, target: str, index: int) -> RatioSums | None:
    """Return the effect of two heads together minus the sum of their effects alone.

    Args:
        ablation: results that hold the pair.
        target: target whose changes are compared.
        index: index of the pair in `AblationResults.sets`.

    Returns:
        Sums over the held-out half; None if a head was not ablated alone.
    """
    singles = ablation.select(HeadSetKind.HEAD, ablation.sets[index].replacement)
    heads = np.flatnonzero(ablation.members[index])
    single_sets = singles[np.isin(ablation.first_heads(singles), heads)]
    if len(single_sets) < len(heads):
        return None
    changes = ablation.changes[target]
    return ablation.ratios_of(target, changes[:, index] - changes[:, single_sets].sum(1))
