"""Effects of ablation as rows of the table of tests: heads, groups, pairs, audit, pruning."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.schema import Replacement
from headbook.study import ablation_tests as verdicts
from headbook.study.ablation import AblationResults
from headbook.study.ablation_tables import EFFECT, EXACT, GROUP, INTERACTION
from headbook.study.ablation_tests import (
    FIFTH,
    GROUP_MARGIN,
    equivalence_margin,
    head_effects,
    held_out,
    removable_share,
    single_head_rows,
)
from headbook.study.study import Study

NAN = math.nan
CLAIM = "ablation"
CHANGED = "share_changed"
RANDOM_SETS = "random sets"
ALL, HELD_OUT_SENTENCES = "all", "held_out"
NO_HEAD = -1  # layer and head of rows that are not about one head
EMPTY: dict[str, Any] = {
    "claim": CLAIM, "stack": "", "layer": NO_HEAD, "head": NO_HEAD, "metric": "", "view": "",
    "label": "", "split": ALL, "value": NAN, "low": NAN, "high": NAN, "baseline": "",
    "baseline_value": NAN, "difference": NAN, "difference_low": NAN, "difference_high": NAN,
    "p": NAN, "n_sentences": 0, "n_observations": 0.0,
}  # fmt: skip


def ablation_tests(study: Study) -> Iterator[dict[str, Any]]:
    """Yield a row for each effect of ablation with an interval, a bound or a p that pages print.

    Labels are the replacement and the target, ``mean/kl``, behind the group where heads were
    replaced together, ``sink/zero/kl``. Effects have their own unit (nats per token, 1 minus a
    cosine, logits). Rows of `CHANGED` have exact bounds of the share of changed sentences, which
    hold for all heads, or groups, with this replacement together. Layer and head are -1 in rows
    about several heads.
    """
    ablation = study.corpus_sums.ablation
    if ablation is None:
        return
    yield from _heads(ablation, study.importance)
    yield from _groups(study.head_groups)
    yield from _largest(ablation)
    yield from _audited(ablation)
    yield from _pruned(ablation, study.pruning)


def whole_model(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the loss of the whole model, of which pages print effects in per cent."""
    ablation = study.corpus_sums.ablation
    for target in ablation.targets if ablation else ():
        assert ablation is not None
        if target in ablation.unablated:
            counts = ablation.counts[target]
            yield EMPTY | {
                "claim": "whole model",
                "metric": target,
                "value": ablation.loss(target),
                "n_sentences": len(ablation.content_hash),
                "n_observations": float(counts.sum()),
            }


def _heads(ablation: AblationResults, table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Exact numbers of single heads, with the family-wise p of effects below 0."""
    p = {
        (effects_of, replacement, *ablation.heads[head]): value
        for replacement in Replacement
        for effects_of in ablation.targets
        for effects in [head_effects(ablation, effects_of, replacement)]
        for head, value in zip(effects.head, effects.p, strict=True)
    }
    exact = table[(table["method"] == EXACT) & table["low"].notna()]
    for row in exact.to_dict("records"):
        parts = (row["replacement"], row["target"], row["label"])
        about = {
            "stack": row["stack"],
            "layer": int(row["layer"]),
            "head": int(row["head"]),
            "label": "/".join(filter(None, parts)),
            "n_sentences": int(row["n_sentences"]),
            "n_observations": float(row["n_observations"]),
        }
        numbers = {name: row[name] for name in ("metric", "value", "low", "high")}
        key = row["target"], row["replacement"], row["stack"], row["layer"], row["head"]
        tested = {"p": p[key]} if row["metric"] == EFFECT else {}
        yield EMPTY | about | numbers | tested
        if row["verdict"]:
            yield EMPTY | about | _share(row)


def _share(row: dict[Any, Any]) -> dict[str, Any]:
    """Share of changed sentences with its bounds; what the verdict compares it with is a fifth."""
    return {
        "metric": CHANGED,
        "value": row["share_changed"],
        "low": row["share_low"],
        "high": row["share_high"],
        "baseline": "fifth of the sentences",
        "baseline_value": FIFTH,
        "n_observations": float(row["n_sentences"]),
    }


def _groups(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Groups beside the random set of largest effect, and interactions of pairs."""
    for row in table.to_dict("records"):
        about = {
            "stack": row["stack"],
            "label": f"{row['group']}/{row['replacement']}/{row['target']}",
            "split": HELD_OUT_SENTENCES if row["metric"] == INTERACTION else ALL,
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
            lowest = f"smallest of {int(row['random_sets'])} {RANDOM_SETS}"
            below = {"baseline": lowest, "baseline_value": row["random_low"]}
            yield EMPTY | about | numbers | below | {
                "difference": row["value"] - row["random_low"]
            }  # fmt: skip
        yield EMPTY | about | numbers
        if row["metric"] == GROUP and row["verdict"]:
            yield EMPTY | about | _share(row)


def _largest(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """The head of largest effect on one half of the sentences, on both halves."""
    target = ablation.targets[0]
    sets = single_head_rows(ablation, Replacement.MEAN)
    first = ablation.ratios(target, sets).split(SELECTION).value
    if not len(sets) or np.isnan(first).all():
        return
    position = int(np.nanargmax(first))
    head = ablation.heads[int(ablation.members[sets[position]].argmax())]
    kept = ablation.half == SELECTION
    value, low, high = held_out(ablation, target, int(sets[position]))
    about = head._asdict() | {"metric": EFFECT, "label": f"{Replacement.MEAN}/{target}"}
    for split, rows, numbers in (
        ("choice", kept, (float(first[position]), NAN, NAN)),
        (HELD_OUT_SENTENCES, ~kept, (value, low, high)),
    ):
        ends = dict(zip(("value", "low", "high"), numbers, strict=True))
        counts = ablation.counts[target][rows]
        seen = {"n_sentences": int((counts > 0).sum()), "n_observations": float(counts.sum())}
        yield EMPTY | about | ends | {"split": split} | seen


def _audited(ablation: AblationResults) -> Iterator[dict[str, Any]]:
    """What estimates are worth: two correlations, and the bound of the heads that they miss."""
    target = ablation.targets[0]
    audit = verdicts.audit(ablation, target)
    if not audit.heads or not audit.rest:
        return
    label = f"{Replacement.MEAN}/{target}"
    about = {"n_sentences": len(ablation.content_hash), "n_observations": float(audit.heads)}
    missed = audit.missed / audit.heads
    for metric, numbers in (
        ("audit: correlation", {"value": audit.pearson}),
        ("audit: correlation of ranks", {"value": audit.spearman}),
        ("audit: missed", {"value": missed, "low": 0.0, "high": audit.share}),
    ):
        yield EMPTY | about | {"metric": metric, "label": label} | numbers


def _pruned(ablation: AblationResults, table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Effects of ever more heads in orders that are not random, and which share can go."""
    if table.empty:
        return
    random = table["order"].str.startswith("random")
    about = {"split": HELD_OUT_SENTENCES, "n_sentences": int((ablation.half == HELD_OUT).sum())}
    for row in table[~random & table["low"].notna()].to_dict("records"):
        label = f"{row['order']}/{row['share']:g}/{row['replacement']}/{row['target']}"
        numbers = {name: row[name] for name in ("stack", "value", "low", "high")}
        yield EMPTY | about | numbers | {"metric": "pruning", "label": label}
    target = ablation.targets[0]
    most = GROUP_MARGIN * equivalence_margin(ablation, target, reported=True)
    shares = {
        str(order): removable_share([*steps["share"]], [*steps["high"]], most)
        for order, steps in table[table["target"] == target].groupby("order", sort=False)
    }
    chance = float(np.median([s for order, s in shares.items() if order.startswith("random")]))
    for order, share in shares.items():
        if not order.startswith("random"):
            yield (
                EMPTY
                | about
                | {
                    "metric": "share that can go",
                    "label": f"{order}/{Replacement.MEAN}/{target}",
                    "value": share,
                    "baseline": "median of random orders",
                    "baseline_value": chance,
                    "difference": share - chance,
                }
            )
