"""The tables importance, head_groups, pruning and effect_tokens.

With their columns and descriptions.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats
from headbook.schema import AblationTarget, Replacement
from headbook.study import ablation_tests
from headbook.study.ablation import AblationResults, HeadSet, HeadSetKind

STACK = "self; or encoder, decoder, cross"
REPLACED = (
    "what stands in place of the heads' outputs: mean (over query tokens of the same class in the "
    "other half of the sentences), zero, uniform (mean of all visible values) or without_sink"
)
TARGET = (
    "what of the answer changes: loss or masked_loss (nats per scored token), kl (divergence from "
    "the whole model, nats), logit (of the true token above the mean of all; less is worse), state "
    "or embedding (1 minus the cosine)"
)

VERDICT_COLUMNS = {
    "margin": "mean change from which on a sentence counts as changed: 1 % of the mean distance "
    "between two sentences (embedding) or tokens of different sentences (state), 0.5 % of the "
    "whole model's loss (losses, kl), or --margin; at least 10 times the change by rounding all "
    "weights to bfloat16. Empty for logits",
    "share_changed": "share of sentences whose own mean change exceeds the margin",
    "share_low": "exact lower bound of this share (Clopper and Pearson), at 95 % over all heads "
    "(or groups) with this replacement together",
    "share_high": "exact upper bound",
    "verdict": "changes: the lower bound is above 20 %; no_change: the upper bound is below 20 %; "
    "harmful: changes, and the loss is surely lower without, tested over all at once; else "
    "undecided. Empty without a margin, and for what was not replaced",
}

ABLATION_TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "importance": (
        "What the model loses without each head, on a sample: exact where the head was taken away, "
        "else estimated from slopes.",
        {
            "stack": STACK,
            "layer": "counted from 0",
            "head": "counted from 0",
            "metric": "ablation_effect, attribution_estimate (the same from slopes), "
            "gradient_importance (output times slope of the loss), direct_effect (by the residual "
            "path alone) or self_repair (the part of the direct effect that the rest makes up for)",
            "replacement": f"{REPLACED}; empty for gradients",
            "target": TARGET,
            "label": "of gradients: per_token, signed, or layer_normalised; empty for the sum of "
            "absolute values by sentence. Of self_repair: top_2_percent, on the tokens for which "
            "the head says most (threshold from the other half); empty for all tokens",
            "value": "change of the target per scored token",
            "low": "lower end of the 95 % confidence interval, clustered by sentence (bootstrap-t "
            "of up to 500 sentences); empty for estimates",
            "high": "upper end",
            "n_sentences": "sentences that contribute",
            "n_observations": "scored tokens",
            "method": "exact or estimated",
            **VERDICT_COLUMNS,
        },
    ),
    "head_groups": (
        "What the model loses without several heads at once.",
        {
            "stack": STACK,
            "group": "a type of heads, a layer, heads that share keys; or a pair, for interaction",
            "heads": "how many",
            "metric": "group_effect; or interaction: of two heads, the loss beyond that of each",
            "replacement": REPLACED,
            "target": TARGET,
            "value": "change of the target per scored token; pairs on the second half of the "
            "sentences, for they were chosen on the first",
            "low": "lower end of the 95 % confidence interval, clustered by sentence (bootstrap-t "
            "of up to 500 sentences, of pairs linearised)",
            "high": "upper end",
            "n_sentences": "sentences that contribute",
            "sum_of_single_effects": "sum over its heads of what each alone loses",
            "random_low": "least of the random sets with as many heads in each layer",
            "random_high": "largest of them",
            "random_sets": "how many there are: 100 with --importance full, 20 with fast, and for "
            "sink heads alone",
            "rank": "place of the group among itself and its random sets, 1 for the largest change",
            **VERDICT_COLUMNS,
        },
    ),
    "pruning": (
        "What the model loses as ever more heads are taken away, in several orders; the order is "
        "from one half of the sentences, the loss from the other.",
        {
            "stack": f"{STACK}; all where heads of all are taken together",
            "order": "ablation_effect (least first), reversed, gradient_importance or "
            "attribution_estimate, type (type by type), random-00 to random-19",
            "replacement": REPLACED,
            "target": TARGET,
            "share": "of all heads, 0 to 1",
            "value": "change of the target per scored token",
            "low": "lower end of the 95 % confidence interval, clustered by sentence",
            "high": "upper end",
        },
    ),
    "effect_tokens": (
        "The ten tokens at which each head that was taken away is missed most, and the one in the "
        "middle of all, strictly by rank.",
        {
            "stack": STACK,
            "layer": "counted from 0",
            "head": "counted from 0",
            "replacement": "what stands in place of the head's outputs",
            "target": TARGET,
            "rank": "from 1: largest change first",
            "tokens": "how many were ranked",
            "sentence": "counted from 1",
            "position": "of the token that the target is about, from 0",
            "token": "as in the text",
            "change": "of the target at this token",
            "before": "probability of the true token in the whole model; empty for states",
            "after": "the same without the head; for states the cosine with the state in the whole "
            "model",
        },
    ),
}

BEHIND = {
    "n_sentences": "sentences that contribute",
    "n_observations": "observations behind the value, for example words or query tokens",
}
ENDS = {
    "low": "lower end of the 95 % confidence interval, clustered by sentence; empty without one"
}
ENDS |= {"high": "upper end"}

TESTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "tests": (
        "What pages claim, with baseline, difference and p: relations, effects of heads, the "
        "evidence on each head's role, and heads and layers that were chosen on one half of the "
        "sentences and reported on the other.",
        {
            "claim": "what is claimed; of the highest head of many, chosen on the choice half",
            "stack": f"{STACK}; all where heads of all are taken together",
            "layer": "counted from 0; empty for several layers",
            "head": "counted from 0; empty for several heads",
            "metric": "as in the addresses of the metrics' pages, or in the tables on importance",
            "view": "keys: raw (all), nosink (sink masked) or renorm (sink masked and "
            "renormalised); of effects of heads what stands in place of their outputs",
            "label": "what the value is about where a metric has several; of types the type; of "
            "effects of heads the target",
            "split": "choice: the half of the sentences on which heads, layers and baselines are "
            "chosen; held_out: the other half; all: all sentences",
            "value": "in the metric's unit; shares from 0 to 1",
            **ENDS,
            "baseline": "the rule's name, for example uniform attention or fixed offset +1",
            "baseline_value": "what the baseline reaches on the same sentences",
            "difference": "value minus baseline",
            "difference_low": "lower end of its 95 % confidence interval, paired by sentence; "
            "empty where it was not tested",
            "difference_high": "upper end",
            "p": "family-wise over all heads, relations and directions, or over all heads; empty "
            "where it was not tested",
            **BEHIND,
        },
    ),
}
WORDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "words": (
        "Token metrics by class of words, averaged over the tokens of a layer; classes without a "
        "token are left out.",
        {
            "class": "all, content, function, initial or continuation subword tokens, special "
            "tokens, or a part of speech (UPOS)",
            "stack": STACK,
            "layer": "counted from 0",
            "state": "mid: after attention; out: after the layer",
            "metric": "as in the addresses of the metrics' pages",
            "space": "positional (token + position embedding), raw (token embedding), or empty",
            "value": "mean over tokens; of ranks the mean of log10(1 + rank)",
            **ENDS,
            **BEHIND,
        },
    ),
}
DESCRIBED = {**ABLATION_TABLES, **TESTS, **WORDS}


EXACT, ESTIMATED = "exact", "estimated"
EFFECT, GRADIENT, GROUP, INTERACTION, DIRECT, REPAIR = (
    "ablation_effect", "gradient_importance", "group_effect", "interaction", "direct_effect",
    "self_repair",
)  # fmt: skip
IMPORTANCE_COLUMNS = (
    "stack", "layer", "head", "metric", "replacement", "target", "label", "value", "low", "high",
    "n_sentences", "n_observations", "method",
    "margin", "share_changed", "share_low", "share_high", "verdict",
)  # fmt: skip
GROUPS = (
    "stack", "group", "heads", "metric", "replacement", "target", "value", "low", "high",
    "n_sentences", "sum_of_single_effects",
    "random_low", "random_high", "random_sets", "rank", "margin",
    "share_changed", "share_low", "share_high", "verdict",
)  # fmt: skip
SHARES = ("margin", "share_changed", "share_low", "share_high")
UNJUDGED: dict[str, Any] = dict.fromkeys(SHARES, np.nan) | {"verdict": ""}
TOKENS = (
    "stack", "layer", "head", "replacement", "target", "rank", "tokens", "sentence", "position",
    "token", "change", "before", "after",
)  # fmt: skip
PRUNING = ("stack", "order", "replacement", "target", "share", "value", "low", "high")


def importance_table(ablation: AblationResults | None) -> pd.DataFrame:
    """A row for each number of a head."""
    made = (_exact, _from_slopes, _direct, _repaired)
    rows = [row for make in made for row in make(ablation)] if ablation else []
    order = ["stack", "layer", "head", "metric", "replacement", "target", "label"]
    return pd.DataFrame(rows, columns=[*IMPORTANCE_COLUMNS]).sort_values(order, ignore_index=True)


def _exact(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    for replacement in Replacement:
        for target in ablation.targets:
            effects = ablation_tests.head_effects(ablation, target, replacement)
            for k, place in enumerate(effects.head):
                yield ablation.heads[place]._asdict() | {
                    "metric": EFFECT,
                    "replacement": str(replacement),
                    "target": target,
                    "label": "",
                    "value": effects.value[k],
                    "low": effects.low[k],
                    "high": effects.high[k],
                    "n_sentences": effects.sentences[k],
                    "n_observations": effects.events[k],
                    "method": EXACT,
                    **_verdict_columns(effects, k),
                }


def _verdict_columns(effects: ablation_tests.HeadEffects, k: int) -> dict[str, Any]:
    """Columns of the verdict on one set of heads."""
    shares = effects.share_changed[k], effects.share_low[k], effects.share_high[k]
    numbers = dict(zip(SHARES, (effects.margin, *shares), strict=True))
    return numbers | {"verdict": effects.verdict[k]}


def _direct(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """What heads say to the logits themselves, where that is known."""
    if AblationTarget.LOGIT not in ablation.counts or np.isnan(ablation.direct).all():
        return
    counts = np.broadcast_to(ablation.counts[AblationTarget.LOGIT][:, None], ablation.direct.shape)
    ratios = RatioSums.of(ablation.direct, counts, counts, ablation.half)
    low, high = ratios.interval()
    for place in np.flatnonzero(np.abs(ablation.direct).sum(0)):
        numbers = ratios.value[place], low[place], high[place]
        about = int(ratios.n_sentences[place]), ratios.n_observations[place]
        yield _of_logits(ablation, int(place), DIRECT, numbers, about)


def _repaired(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    heads, (value, low, high) = ablation_tests.self_repair(ablation)
    for k, head in enumerate(heads):
        about = len(ablation.content_hash), ablation.counts[AblationTarget.LOGIT].sum()
        yield _of_logits(ablation, int(head), REPAIR, (value[k], low[k], high[k]), about)
    heads, (value, low, high) = ablation_tests.self_repair_top_tokens(ablation)
    for k, head in enumerate(heads):
        tokens = ablation.top[2, :, head]
        about = int((tokens > 0).sum()), tokens.sum()
        row = _of_logits(ablation, int(head), REPAIR, (value[k], low[k], high[k]), about)
        yield row | {"label": ablation_tests.TOP}


def _of_logits(
    ablation: AblationResults,
    place: int,
    metric: str,
    numbers: tuple[float, float, float],
    about: tuple[int, float],
) -> dict[str, Any]:
    return ablation.heads[place]._asdict() | {
        "metric": metric,
        "replacement": str(Replacement.MEAN),
        "target": str(AblationTarget.LOGIT),
        "label": "",
        **dict(zip(("value", "low", "high"), numbers, strict=True)),
        **dict(zip(("n_sentences", "n_observations"), about, strict=True)),
        "method": EXACT,
        **UNJUDGED,
    }


def _from_slopes(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Numbers from one backward pass; estimates have no interval, for theirs would not hold."""
    ratios = ablation.estimates
    low, high = ratios.interval()
    normalised = _normalised(ablation)
    for (position, head), (k, column) in (
        (one, other) for one in enumerate(ablation.heads) for other in enumerate(ablation.columns)
    ):
        exact = column.metric == GRADIENT
        row = head._asdict() | column._asdict() | {
            "value": ratios.value[position, k],
            "low": low[position, k] if exact else np.nan,
            "high": high[position, k] if exact else np.nan,
            "n_sentences": ratios.n_sentences[position, k],
            "n_observations": ratios.n_observations[position, k],
            "method": EXACT if exact else ESTIMATED,
            **UNJUDGED,
        }  # fmt: skip
        yield row
        if exact and not column.label:
            by_layer = {"label": "layer_normalised", "value": normalised[position, k]}
            yield row | by_layer | {"low": np.nan, "high": np.nan}


def _normalised(ablation: AblationResults) -> Floats:
    """Values over the root of the sum of squares of their layer. *Shape:* ``(head, column)``."""
    layers = [(head.stack, head.layer) for head in ablation.heads]
    _, place = np.unique(layers, axis=0, return_inverse=True)
    value = ablation.estimates.value
    squares = np.zeros((place.max() + 1, value.shape[1]))
    np.add.at(squares, place, value**2)
    size = np.sqrt(squares)[place]
    found: Floats = np.divide(value, size, out=np.full_like(value, np.nan), where=size > 0)
    return found


def head_groups_table(ablation: AblationResults | None) -> pd.DataFrame:
    """A row for each group of heads and each pair."""
    rows = [*_groups(ablation), *_pairs(ablation)] if ablation else []
    return pd.DataFrame(rows, columns=[*GROUPS])


def _groups(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    for target in ablation.targets:
        values = ablation.ratios(target, np.arange(len(ablation.sets))).value
        random: dict[tuple[str, str, str], list[float]] = {}
        for value, each in zip(values, ablation.sets, strict=True):
            if each.kind == HeadSetKind.RANDOM:
                random.setdefault(_key(each), []).append(value)
        for replacement in Replacement:
            alone = _alone(ablation, target, replacement)
            effects = ablation_tests.group_effects(ablation, target, replacement)
            for k, place in enumerate(effects.place):
                each, members = ablation.sets[place], ablation.members[place]
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
                    "n_sentences": effects.sentences[k],
                    "sum_of_single_effects": alone[members].sum(),
                    "random_low": min(band, default=np.nan),
                    "random_high": max(band, default=np.nan),
                    "random_sets": len(band),
                    "rank": larger + 1 if band else np.nan,
                    **_verdict_columns(effects, k),
                }


def _key(each: HeadSet) -> tuple[str, str, str]:
    return each.stack, each.name, each.replacement


def _alone(ablation: AblationResults, target: str, replacement: str) -> Floats:
    """The effect of each head alone; NaN where it is not known. *Shape:* ``(head,)``."""
    found: Floats = np.full(len(ablation.heads), np.nan)
    effects = ablation_tests.head_effects(ablation, target, replacement)
    found[effects.head] = effects.value
    return found


def _pairs(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    for target in ablation.targets:
        for index, each in enumerate(ablation.sets):
            ratios = None
            if each.kind == HeadSetKind.PAIR:
                ratios = ablation_tests.interaction(ablation, target, index)
            if ratios is not None:
                low, high = ratios.interval()
                whole = ablation.ratios(target, np.array([index])).value[0]
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
                    "n_sentences": int(ratios.n_sentences),
                    "sum_of_single_effects": whole - float(ratios.value),
                    "random_low": np.nan,
                    "random_high": np.nan,
                    "random_sets": 0,
                    "rank": np.nan,
                    **UNJUDGED,
                }


def pruning_table(ablation: AblationResults | None) -> pd.DataFrame:
    """A row for each share of heads that was removed in an order."""
    rows = [*_steps(ablation)] if ablation else []
    return pd.DataFrame(rows, columns=[*PRUNING])


def _steps(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    for target in ablation.targets:
        ratios = ablation.ratios(target, np.arange(len(ablation.sets)))
        low, high = ratios.interval(ablation_tests.limits_of(target))
        before = ""
        for index, each in enumerate(ablation.sets):
            if each.kind != HeadSetKind.ORDER:
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
                "share": each.number / len(ablation.heads),
                "value": ratios.value[index],
                "low": low[index],
                "high": high[index],
            }


def effect_tokens_table(ablation: AblationResults | None) -> pd.DataFrame:
    """A row for each token at which a head is missed."""
    rows = [*_missed(ablation)] if ablation else []
    return pd.DataFrame(rows, columns=[*TOKENS])


def _missed(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Losses as probabilities of the true token; of states the cosine afterwards."""
    target = ablation_tests.token_target(ablation)
    for missed in ablation.missed:
        before, after = np.nan, 1 - missed.change
        if target in ablation.unablated:
            before, after = np.exp(-missed.before), np.exp(-missed.before - missed.change)
        yield ablation.heads[missed.head]._asdict() | {
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
