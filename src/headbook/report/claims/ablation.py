"""Effects of ablation as rows of the table of tests: heads, groups, pairs, audit and pruning."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.report.ablation import GROUP_MARGIN, LAYER, layer_ratio, layer_ratio_label
from headbook.schema import ABLATION, ALL, HELD_OUT_SPLIT, LAYER_RATIO, Replacement
from headbook.study.ablation.effect_tests import (
    RANDOM_ORDER_PREFIX,
    VERDICT_SHARE,
    audit,
    group_margin,
    head_effects,
    largest_effect,
    ranked_target,
    removable_shares,
)
from headbook.study.ablation.results import AblationResults
from headbook.study.ablation.tasks import SUCCESS, success, success_without
from headbook.study.ablation_tables import EFFECT, EXACT, GROUP, INTERACTION, measured
from headbook.study.study import Study

NAN = math.nan
CHANGED_SHARE = "share_changed"
RANDOM_SETS = "random sets"
NO_HEAD = -1  # layer and head of rows that are not about one head
EMPTY_ROW: dict[str, Any] = {
    "claim": ABLATION, "stack": "", "layer": NO_HEAD, "head": NO_HEAD, "metric": "", "view": "",
    "label": "", "split": ALL, "value": NAN, "low": NAN, "high": NAN, "baseline": "",
    "baseline_value": NAN, "difference": NAN, "difference_low": NAN, "difference_high": NAN,
    "p": NAN, "n_sentences": 0, "n_observations": 0.0,
}  # fmt: skip


def ablation_tests(study: Study) -> Iterator[dict[str, Any]]:
    """Yield a row for each effect of ablation with an interval, a bound or a p that pages print.

    Labels are the replacement and the target, ``mean/kl``, behind the group where heads were
    replaced together, ``sink/zero/kl``. Effects have their own unit (nats per token, 1 minus a
    cosine, logits). Rows of `CHANGED_SHARE` have exact bounds of the share of changed sentences,
    which hold for all heads, or groups, with this replacement together. Layer and head are -1 in
    rows about several heads.
    """
    for ablation in measured(study.corpus_sums):
        heads, groups, steps = (
            table[table["target"].isin(ablation.targets)]
            for table in (study.importance, study.head_groups, study.pruning)
        )
        yield from _heads(ablation, heads)
        yield from _groups(groups)
        yield from _largest(ablation)
        for stack in study.manifest.stacks:
            yield from layer_ratio_rows(ablation, stack.name)
        yield from _audited(ablation)
        yield from _pruned(ablation, steps)


def whole_model(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the loss of the unablated model, of which pages print effects in per cent.

    Of tasks, the target of the unablated model: cross-entropy, accuracy or a mean difference.
    """
    for result in measured(study.corpus_sums):
        for target in filter(result.unablated.__contains__, result.targets):
            yield EMPTY_ROW | {
                "claim": "whole model",
                "metric": target,
                "value": result.loss(target),
                "n_sentences": len(result.content_hash),
                "n_observations": float(result.counts[target].sum()),
            }


def tasks_of_model(study: Study) -> Iterator[dict[str, Any]]:
    """Yield how often the whole model does each task, beside chance, and without growing sets."""
    for name, task in study.corpus_sums.tasks.items():
        whole = success(task)
        yield EMPTY_ROW | {
            "claim": "whole model",
            "metric": SUCCESS,
            "label": name,
            "value": whole.value,
            "low": whole.low,
            "high": whole.high,
            "baseline": "chance",
            "baseline_value": whole.chance,
            "difference": whole.value - whole.chance,
            "n_sentences": whole.n_sentences,
            "n_observations": float(whole.n_observations),
        }
        for row in success_without(task).to_dict("records"):
            yield EMPTY_ROW | {
                "metric": SUCCESS,
                "label": f"without {row['number']} heads/{Replacement.MEAN}/{name}",
                "split": HELD_OUT_SPLIT,
                "value": row["after"],
                "low": row["low"],
                "high": row["high"],
                "baseline": "whole model",
                "baseline_value": row["before"],
                "difference": row["after"] - row["before"],
                "n_sentences": int((task.half == HELD_OUT).sum()),
                "n_observations": float(task.counts[name][task.half == HELD_OUT].sum()),
            }


def _heads(ablation: AblationResults, table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield exact numbers of single heads, with the family-wise p of effects below 0."""
    p = {
        (target, replacement, row["stack"], row["layer"], row["head"]): row["p"]
        for replacement in Replacement
        for target in ablation.targets
        for row in head_effects(ablation, target, replacement).to_dict("records")
    }
    exact = table[(table["method"] == EXACT) & table["low"].notna()]
    for row in exact.to_dict("records"):
        label_parts = (row["replacement"], row["target"], row["label"])
        identity = {
            "stack": row["stack"],
            "layer": int(row["layer"]),
            "head": int(row["head"]),
            "label": "/".join(filter(None, label_parts)),
            "n_sentences": int(row["n_sentences"]),
            "n_observations": float(row["n_observations"]),
        }
        numbers = {name: row[name] for name in ("metric", "value", "low", "high")}
        key = row["target"], row["replacement"], row["stack"], row["layer"], row["head"]
        p_column = {"p": p[key]} if row["metric"] == EFFECT else {}
        yield EMPTY_ROW | identity | numbers | p_column
        if row["verdict"]:
            yield EMPTY_ROW | identity | _share(row)


def _share(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the share of changed sentences with its bounds, beside the fifth of the verdicts."""
    return {
        "metric": CHANGED_SHARE,
        "value": row["share_changed"],
        "low": row["share_low"],
        "high": row["share_high"],
        "baseline": "fifth of the sentences",
        "baseline_value": VERDICT_SHARE,
        "n_observations": float(row["n_sentences"]),
    }


def _groups(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield groups beside their random sets of largest and smallest effect, and interactions."""
    for row in table.to_dict("records"):
        identity = {
            "stack": row["stack"],
            "label": f"{row['group']}/{row['replacement']}/{row['target']}",
            "split": HELD_OUT_SPLIT if row["metric"] == INTERACTION else ALL,
            "n_sentences": int(row["n_sentences"]),
            "n_observations": float(row["n_sentences"]),
        }
        numbers = {name: row[name] for name in ("metric", "value", "low", "high")}
        if row["random_sets"]:
            numbers |= {
                "baseline": f"largest of {int(row['random_sets'])} {RANDOM_SETS}",
                "baseline_value": row["random_high"],
                "difference": row["value"] - row["random_high"],
            }
            smallest_name = f"smallest of {int(row['random_sets'])} {RANDOM_SETS}"
            smallest = {"baseline": smallest_name, "baseline_value": row["random_low"]}
            yield EMPTY_ROW | identity | numbers | smallest | {
                "difference": row["value"] - row["random_low"]
            }  # fmt: skip
        yield EMPTY_ROW | identity | numbers
        if row["metric"] == GROUP and row["verdict"]:
            yield EMPTY_ROW | identity | _share(row)


def _largest(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield the effect, on both halves, of the head of largest effect on the selection half."""
    for target in dict.fromkeys((ablation.targets[0], ranked_target(ablation))):
        yield from _largest_rows(ablation, target)


def _largest_rows(ablation: AblationResults, target: str) -> Iterator[dict[str, Any]]:
    largest = largest_effect(ablation, target)
    if largest is None:
        return
    head, effect, held_out = largest
    is_selection = ablation.half == SELECTION
    identity = head._asdict() | {"metric": EFFECT, "label": f"{Replacement.MEAN}/{target}"}
    for split, rows, numbers in (
        ("choice", is_selection, (effect, NAN, NAN)),
        (HELD_OUT_SPLIT, ~is_selection, held_out),
    ):
        ends = dict(zip(("value", "low", "high"), numbers, strict=True))
        counts = ablation.counts[target][rows]
        sample = {"n_sentences": int((counts > 0).sum()), "n_observations": float(counts.sum())}
        yield EMPTY_ROW | identity | ends | {"split": split} | sample


def layer_ratio_rows(ablation: AblationResults, stack: str) -> Iterator[dict[str, Any]]:
    """Yield the ratio of the two largest effects of whole layers of a stack, for each target."""
    for target in dict.fromkeys((ablation.targets[0], ranked_target(ablation))):
        ratio = layer_ratio(ablation, stack, target)
        if ratio is None:
            continue
        yield EMPTY_ROW | {
            "claim": LAYER_RATIO,
            "stack": stack,
            "layer": ratio.first,
            "metric": f"{GROUP}_ratio",
            "label": layer_ratio_label(ratio, target),
            "value": ratio.value,
            "low": ratio.low,
            "high": ratio.high,
            "baseline": f"{LAYER}{ratio.second}",
            "baseline_value": 1.0,
            "n_sentences": len(ablation.content_hash),
            "n_observations": float(ablation.counts[target].sum()),
        }


def _audited(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """Yield two correlations of estimates with exact effects, and the share of missed heads."""
    for target in dict.fromkeys((ablation.targets[0], ranked_target(ablation))):
        yield from _audit_rows(ablation, target)


def _audit_rows(ablation: AblationResults, target: str) -> Iterator[dict[str, Any]]:
    result = audit(ablation, target)
    if not result.heads or not result.rest:
        return
    label = f"{Replacement.MEAN}/{target}"
    sample = {"n_sentences": len(ablation.content_hash), "n_observations": float(result.heads)}
    missed = result.missed / result.heads
    for metric, numbers in (
        ("audit: correlation", {"value": result.pearson}),
        ("audit: correlation of ranks", {"value": result.spearman}),
        ("audit: missed", {"value": missed, "low": 0.0, "high": result.share}),
    ):
        yield EMPTY_ROW | sample | {"metric": metric, "label": label} | numbers


def _pruned(ablation: AblationResults, table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield pruning steps of orders that are not random, and the removable share of each order.

    The margin of several heads together, from which the share follows, has a row of its own.
    """
    if table.empty:
        return
    is_random = table["order"].str.startswith(RANDOM_ORDER_PREFIX)
    sample = {"split": HELD_OUT_SPLIT, "n_sentences": int((ablation.half == HELD_OUT).sum())}
    for row in table[~is_random & table["low"].notna()].to_dict("records"):
        label = f"{row['order']}/{row['share']:g}/{row['replacement']}/{row['target']}"
        numbers = {name: row[name] for name in ("stack", "value", "low", "high")}
        yield EMPTY_ROW | sample | numbers | {"metric": "pruning", "label": label}
    target = ablation.targets[0]
    margin = {"metric": GROUP_MARGIN, "label": target, "value": group_margin(ablation)}
    yield EMPTY_ROW | sample | margin
    shares, random_share = removable_shares(ablation, table)
    for order, share in shares.items():
        yield EMPTY_ROW | sample | {
            "metric": "share that can go",
            "label": f"{order}/{Replacement.MEAN}/{target}",
            "value": share,
            "baseline": "median of random orders",
            "baseline_value": random_share,
            "difference": share - random_share,
        }  # fmt: skip
