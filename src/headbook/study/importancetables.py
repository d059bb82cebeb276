"""What the model loses without heads as tables: heads, groups of them, and pruning."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Ratios
from headbook.analysis.arithmetic import Floats
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import Removals, RemovedSet, SetKind
from headbook.terms import Replacement, Target

EXACT, ESTIMATED = "exact", "estimated"
EFFECT, GRADIENT, GROUP, INTERACTION, DIRECT, REPAIR = (
    "ablation_effect", "gradient_importance", "group_effect", "interaction", "direct_effect",
    "self_repair",
)  # fmt: skip
IMPORTANCE = (
    "stack", "layer", "head", "metric", "replacement", "target", "label", "value", "low", "high",
    "sentences", "events", "kind", "margin", "share_changed", "share_low", "share_high", "verdict",
)  # fmt: skip
GROUPS = (
    "stack", "group", "heads", "metric", "replacement", "target", "value", "low", "high",
    "sentences", "singles", "random_low", "random_high", "random_sets", "rank", "margin",
    "share_changed", "share_low", "share_high", "verdict",
)  # fmt: skip
SHARES = ("margin", "share_changed", "share_low", "share_high")
UNJUDGED: dict[str, Any] = dict.fromkeys(SHARES, np.nan) | {"verdict": ""}
TOKENS = (
    "stack", "layer", "head", "replacement", "target", "rank", "tokens", "sentence", "position",
    "token", "change", "before", "after",
)  # fmt: skip
PRUNING = ("stack", "order", "replacement", "target", "share", "value", "low", "high")


def importance_table(removals: Removals | None) -> pd.DataFrame:
    """A row for each number of a head."""
    made = (_exact, _from_slopes, _direct, _repaired)
    rows = [row for make in made for row in make(removals)] if removals else []
    order = ["stack", "layer", "head", "metric", "replacement", "target", "label"]
    return pd.DataFrame(rows, columns=[*IMPORTANCE]).sort_values(order, ignore_index=True)


def _exact(removals: Removals) -> Iterator[dict[str, Any]]:
    for replacement in Replacement:
        for target in removals.targets:
            effects = verdicts.head_effects(removals, target, replacement)
            for k, place in enumerate(effects.head):
                yield removals.heads[place]._asdict() | {
                    "metric": EFFECT,
                    "replacement": str(replacement),
                    "target": target,
                    "label": "",
                    "value": effects.value[k],
                    "low": effects.low[k],
                    "high": effects.high[k],
                    "sentences": effects.sentences[k],
                    "events": effects.events[k],
                    "kind": EXACT,
                    **_judged(effects, k),
                }


def _judged(effects: verdicts.Effects, k: int) -> dict[str, Any]:
    """Columns of the verdict on one set of heads."""
    shares = effects.share_changed[k], effects.share_low[k], effects.share_high[k]
    numbers = dict(zip(SHARES, (effects.margin, *shares), strict=True))
    return numbers | {"verdict": effects.verdict[k]}


def _direct(removals: Removals) -> Iterator[dict[str, Any]]:
    """What heads say to the logits themselves, where that is known."""
    if Target.LOGIT not in removals.counts or np.isnan(removals.direct).all():
        return
    counts = np.broadcast_to(removals.counts[Target.LOGIT][:, None], removals.direct.shape)
    ratios = Ratios.of(removals.direct, counts, counts, removals.half)
    low, high = ratios.interval()
    for place in np.flatnonzero(np.abs(removals.direct).sum(0)):
        numbers = ratios.value[place], low[place], high[place]
        about = int(ratios.sentences[place]), ratios.events[place]
        yield _of_logits(removals, int(place), DIRECT, numbers, about)


def _repaired(removals: Removals) -> Iterator[dict[str, Any]]:
    heads, (value, low, high) = verdicts.self_repair(removals)
    for k, head in enumerate(heads):
        about = len(removals.content_hash), removals.counts[Target.LOGIT].sum()
        yield _of_logits(removals, int(head), REPAIR, (value[k], low[k], high[k]), about)
    heads, (value, low, high) = verdicts.self_repair_on_top(removals)
    for k, head in enumerate(heads):
        tokens = removals.top[2, :, head]
        about = int((tokens > 0).sum()), tokens.sum()
        row = _of_logits(removals, int(head), REPAIR, (value[k], low[k], high[k]), about)
        yield row | {"label": verdicts.TOP}


def _of_logits(
    removals: Removals,
    place: int,
    metric: str,
    numbers: tuple[float, float, float],
    about: tuple[int, float],
) -> dict[str, Any]:
    return removals.heads[place]._asdict() | {
        "metric": metric,
        "replacement": str(Replacement.MEAN),
        "target": str(Target.LOGIT),
        "label": "",
        **dict(zip(("value", "low", "high"), numbers, strict=True)),
        **dict(zip(("sentences", "events"), about, strict=True)),
        "kind": EXACT,
        **UNJUDGED,
    }


def _from_slopes(removals: Removals) -> Iterator[dict[str, Any]]:
    """Numbers from one backward pass; estimates have no interval, for theirs would not hold."""
    ratios = removals.estimates
    low, high = ratios.interval()
    normalised = _normalised(removals)
    for (position, head), (k, column) in (
        (one, other) for one in enumerate(removals.heads) for other in enumerate(removals.columns)
    ):
        exact = column.metric == GRADIENT
        row = head._asdict() | column._asdict() | {
            "value": ratios.value[position, k],
            "low": low[position, k] if exact else np.nan,
            "high": high[position, k] if exact else np.nan,
            "sentences": ratios.sentences[position, k],
            "events": ratios.events[position, k],
            "kind": EXACT if exact else ESTIMATED,
            **UNJUDGED,
        }  # fmt: skip
        yield row
        if exact and not column.label:
            by_layer = {"label": "layer_normalised", "value": normalised[position, k]}
            yield row | by_layer | {"low": np.nan, "high": np.nan}


def _normalised(removals: Removals) -> Floats:
    """Values over the root of the sum of squares of their layer. *Shape:* ``(head, column)``."""
    layers = [(head.stack, head.layer) for head in removals.heads]
    _, place = np.unique(layers, axis=0, return_inverse=True)
    value = removals.estimates.value
    squares = np.zeros((place.max() + 1, value.shape[1]))
    np.add.at(squares, place, value**2)
    size = np.sqrt(squares)[place]
    found: Floats = np.divide(value, size, out=np.full_like(value, np.nan), where=size > 0)
    return found


def groups_table(removals: Removals | None) -> pd.DataFrame:
    """A row for each group of heads and each pair."""
    rows = [*_groups(removals), *_pairs(removals)] if removals else []
    return pd.DataFrame(rows, columns=[*GROUPS])


def _groups(removals: Removals) -> Iterator[dict[str, Any]]:
    for target in removals.targets:
        values = removals.ratios(target, np.arange(len(removals.sets))).value
        random: dict[tuple[str, str, str], list[float]] = {}
        for value, each in zip(values, removals.sets, strict=True):
            if each.kind == SetKind.RANDOM:
                random.setdefault(_key(each), []).append(value)
        for replacement in Replacement:
            alone = _alone(removals, target, replacement)
            effects = verdicts.group_effects(removals, target, replacement)
            for k, place in enumerate(effects.place):
                each, members = removals.sets[place], removals.members[place]
                band = random.get(_key(each), [])
                larger = sum(value > effects.value[k] for value in band)
                yield {
                    "stack": each.stack,
                    "group": each.name,
                    "heads": int(members.sum()),
                    "metric": GROUP,
                    "replacement": each.replacement,
                    "target": target,
                    "value": effects.value[k],
                    "low": effects.low[k],
                    "high": effects.high[k],
                    "sentences": effects.sentences[k],
                    "singles": alone[members].sum(),
                    "random_low": min(band, default=np.nan),
                    "random_high": max(band, default=np.nan),
                    "random_sets": len(band),
                    "rank": larger + 1 if band else np.nan,
                    **_judged(effects, k),
                }


def _key(each: RemovedSet) -> tuple[str, str, str]:
    return each.stack, each.name, each.replacement


def _alone(removals: Removals, target: str, replacement: str) -> Floats:
    """The effect of each head alone; NaN where it is not known. *Shape:* ``(head,)``."""
    found: Floats = np.full(len(removals.heads), np.nan)
    effects = verdicts.head_effects(removals, target, replacement)
    found[effects.head] = effects.value
    return found


def _pairs(removals: Removals) -> Iterator[dict[str, Any]]:
    for target in removals.targets:
        for index, each in enumerate(removals.sets):
            ratios = None
            if each.kind == SetKind.PAIR:
                ratios = verdicts.interaction(removals, target, index)
            if ratios is not None:
                low, high = ratios.interval()
                whole = removals.ratios(target, np.array([index])).value[0]
                yield {
                    "stack": each.stack,
                    "group": each.name,
                    "heads": 2,
                    "metric": INTERACTION,
                    "replacement": each.replacement,
                    "target": target,
                    "value": float(ratios.value),
                    "low": float(low),
                    "high": float(high),
                    "sentences": int(ratios.sentences),
                    "singles": whole - float(ratios.value),
                    "random_low": np.nan,
                    "random_high": np.nan,
                    "random_sets": 0,
                    "rank": np.nan,
                    **UNJUDGED,
                }


def pruning_table(removals: Removals | None) -> pd.DataFrame:
    """A row for each share of heads that was removed in an order."""
    rows = [*_steps(removals)] if removals else []
    return pd.DataFrame(rows, columns=[*PRUNING])


def _steps(removals: Removals) -> Iterator[dict[str, Any]]:
    for target in removals.targets:
        ratios = removals.ratios(target, np.arange(len(removals.sets)))
        low, high = ratios.interval(verdicts.limits_of(target))
        before = ""
        for index, each in enumerate(removals.sets):
            if each.kind != SetKind.ORDER:
                continue
            row = {
                "stack": each.stack,
                "order": each.name,
                "replacement": each.replacement,
                "target": target,
            }
            if each.name != before:
                yield row | {"share": 0.0, "value": 0.0, "low": 0.0, "high": 0.0}
            before = each.name
            yield row | {
                "share": each.number / len(removals.heads),
                "value": ratios.value[index],
                "low": low[index],
                "high": high[index],
            }


def tokens_table(removals: Removals | None) -> pd.DataFrame:
    """A row for each token at which a head is missed."""
    rows = [*_missed(removals)] if removals else []
    return pd.DataFrame(rows, columns=[*TOKENS])


def _missed(removals: Removals) -> Iterator[dict[str, Any]]:
    """Losses as probabilities of the true token; of states the cosine afterwards."""
    target = verdicts.token_target(removals)
    for missed in removals.missed:
        before, after = np.nan, 1 - missed.change
        if target in removals.full:
            before, after = np.exp(-missed.before), np.exp(-missed.before - missed.change)
        yield removals.heads[missed.head]._asdict() | {
            "replacement": str(Replacement.MEAN),
            "target": target,
            "rank": missed.rank,
            "tokens": missed.tokens,
            "sentence": missed.sentence + 1,
            "position": missed.position,
            "token": missed.token,
            "change": missed.change,
            "before": before,
            "after": after,
        }
