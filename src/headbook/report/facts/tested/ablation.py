"""Effects of ablation as rows of the table of tests: heads, groups, pairs, audit and pruning."""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate, without_interval
from headbook.report.ablation import layer_ratio
from headbook.report.layers import ratio_test
from headbook.results.fact import Tested
from headbook.schema import ABLATION, ALL, HELD_OUT_SPLIT, Replacement
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

CHANGED_SHARE = "share_changed"
RANDOM_SETS = "random sets"
CORRELATION, RANK_CORRELATION = "audit: correlation", "audit: correlation of ranks"
MISSED = "audit: missed"
WHOLE_MODEL = "whole model"  # claim, and baseline
row_of = partial(Tested, stack="", view="")  # of all stacks together by default


def ablation_tests(study: Study) -> Iterator[Tested]:
    """Yield a row for each effect of ablation with an interval, a bound or a p that pages print.

    Labels are the replacement and the target, ``mean/kl``, behind the group where heads were
    replaced together, ``sink/zero/kl``. Effects have their own unit (nats per token, 1 minus a
    cosine, logits). Rows of `CHANGED_SHARE` have exact bounds of the share of changed sentences,
    which hold for all heads, or groups, with this replacement together.
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
        for target in dict.fromkeys((ablation.targets[0], ranked_target(ablation))):
            yield from audit_tests(ablation, target)
        yield from _pruned(ablation, steps)


def whole_model(study: Study) -> Iterator[Tested]:
    """Yield the loss of the unablated model, of which pages print effects in per cent.

    Of tasks, the target of the unablated model: cross-entropy, accuracy or a mean difference.
    """
    for result in measured(study.corpus_sums):
        for target in filter(result.unablated.__contains__, result.targets):
            loss = without_interval(
                result.loss(target), len(result.content_hash), float(result.counts[target].sum())
            )
            yield row_of(WHOLE_MODEL, metric=target, label="", value=loss)


def tasks_of_model(study: Study) -> Iterator[Tested]:
    """Yield how often the whole model does each task, beside chance, and without growing sets."""
    for task in study.corpus_sums.tasks.values():
        yield success_test(task)
        for row in success_without(task).to_dict("records"):
            yield without_test(task, row)


def success_test(task: AblationResults) -> Tested:
    """Return how often the whole model does a task, beside chance."""
    whole = success(task)
    share = Estimate(
        whole.value, whole.low, whole.high, whole.n_sentences, float(whole.n_observations)
    )
    return row_of(
        WHOLE_MODEL, metric=SUCCESS, label=str(task.targets[0]), value=share, baseline="chance",
        baseline_value=whole.chance,
    )  # fmt: skip


def without_test(task: AblationResults, row: Mapping[Any, Any]) -> Tested:
    """Return how often the model does a task without a set of heads, beside the whole model.

    Args:
        task: results of the task.
        row: row of `success_without`.
    """
    name, is_held_out = task.targets[0], task.half == HELD_OUT
    after = Estimate(
        row["after"], row["low"], row["high"], int(is_held_out.sum()),
        float(task.counts[name][is_held_out].sum()),
    )  # fmt: skip
    return row_of(
        ABLATION, metric=SUCCESS, label=f"without {row['number']} heads/{Replacement.MEAN}/{name}",
        value=after, split=HELD_OUT_SPLIT, baseline=WHOLE_MODEL, baseline_value=row["before"],
    )  # fmt: skip


def _heads(ablation: AblationResults, table: pd.DataFrame) -> Iterator[Tested]:
    """Yield exact numbers of single heads, with the family-wise p of effects below 0."""
    p = {
        (target, replacement, row["stack"], row["layer"], row["head"]): row["p"]
        for replacement in Replacement
        for target in ablation.targets
        for row in head_effects(ablation, target, replacement).to_dict("records")
    }
    exact = table[(table["method"] == EXACT) & table["low"].notna()]
    for row in exact.to_dict("records"):
        stack, layer, head = row["stack"], int(row["layer"]), int(row["head"])
        label_parts = (row["replacement"], row["target"], row["label"])
        of_head = partial(
            row_of, ABLATION, stack=stack, layer=layer, head=head,
            label="/".join(filter(None, label_parts)),
        )  # fmt: skip
        key = row["target"], row["replacement"], stack, layer, head
        yield of_head(
            metric=row["metric"], value=_estimate(row, float(row["n_observations"])),
            p=p[key] if row["metric"] == EFFECT else math.nan,
        )  # fmt: skip
        if row["verdict"]:
            yield of_head(**_share(row))


def _estimate(row: Mapping[Any, Any], n_observations: float) -> Estimate:
    """Return the effect of a row of the table of heads or of groups."""
    n_sentences = int(row["n_sentences"])
    return Estimate(row["value"], row["low"], row["high"], n_sentences, n_observations)


def _share(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the share of changed sentences with its bounds, beside the fifth of the verdicts."""
    n_sentences = int(row["n_sentences"])
    share, low, high = (row[name] for name in ("share_changed", "share_low", "share_high"))
    return {
        "metric": CHANGED_SHARE,
        "value": Estimate(share, low, high, n_sentences, float(n_sentences)),
        "baseline": "fifth of the sentences",
        "baseline_value": VERDICT_SHARE,
        "subtracted": False,
    }


def _groups(table: pd.DataFrame) -> Iterator[Tested]:
    """Yield groups beside their random sets of largest and smallest effect, and interactions."""
    for row in table.to_dict("records"):
        of_group = partial(
            row_of, ABLATION, stack=row["stack"],
            label=f"{row['group']}/{row['replacement']}/{row['target']}",
            split=HELD_OUT_SPLIT if row["metric"] == INTERACTION else ALL,
        )  # fmt: skip
        of_effect = partial(
            of_group, metric=row["metric"], value=_estimate(row, float(row["n_sentences"]))
        )
        for end in ("smallest", "largest") if row["random_sets"] else ():
            yield of_effect(
                baseline=f"{end} of {int(row['random_sets'])} {RANDOM_SETS}",
                baseline_value=row["random_low" if end == "smallest" else "random_high"],
            )
        if not row["random_sets"]:
            yield of_effect()
        if row["metric"] == GROUP and row["verdict"]:
            yield of_group(**_share(row))


def _largest(ablation: AblationResults) -> Iterator[Tested]:
    """Yield the effect, on both halves, of the head of largest effect on the selection half."""
    for target in dict.fromkeys((ablation.targets[0], ranked_target(ablation))):
        yield from _largest_rows(ablation, target)


def _largest_rows(ablation: AblationResults, target: str) -> Iterator[Tested]:
    largest = largest_effect(ablation, target)
    if largest is None:
        return
    (stack, layer, head), effect, held_out = largest
    is_selection = ablation.half == SELECTION
    for split, rows, numbers in (
        ("choice", is_selection, (effect, math.nan, math.nan)),
        (HELD_OUT_SPLIT, ~is_selection, held_out),
    ):
        counts = ablation.counts[target][rows]
        yield row_of(
            ABLATION, stack=stack, metric=EFFECT, label=f"{Replacement.MEAN}/{target}",
            value=Estimate(*numbers, int((counts > 0).sum()), float(counts.sum())),
            layer=layer, head=head, split=split,
        )  # fmt: skip


def layer_ratio_rows(ablation: AblationResults, stack: str) -> Iterator[Tested]:
    """Yield the ratio of the two largest effects of whole layers of a stack, for each target."""
    for target in dict.fromkeys((ablation.targets[0], ranked_target(ablation))):
        ratio = layer_ratio(ablation, stack, target)
        if ratio is not None:
            yield ratio_test(ablation, stack, ratio, target)


def audit_tests(ablation: AblationResults, target: str) -> Iterator[Tested]:
    """Yield two correlations of estimates with exact effects, and the share of missed heads."""
    result = audit(ablation, target)
    if not result.heads or not result.rest:
        return
    n_sentences, n_heads = len(ablation.content_hash), float(result.heads)
    missed = Estimate(result.missed / result.heads, 0.0, result.share, n_sentences, n_heads)
    for metric, value in (
        (CORRELATION, without_interval(result.pearson, n_sentences, n_heads)),
        (RANK_CORRELATION, without_interval(result.spearman, n_sentences, n_heads)),
        (MISSED, missed),
    ):
        yield row_of(ABLATION, metric=metric, label=f"{Replacement.MEAN}/{target}", value=value)


def _pruned(ablation: AblationResults, table: pd.DataFrame) -> Iterator[Tested]:
    """Yield pruning steps of orders that are not random, and the removable share of each order.

    The margin of several heads together, from which the share follows, has a row of its own.
    """
    if table.empty:
        return
    is_random = table["order"].str.startswith(RANDOM_ORDER_PREFIX)
    for row in table[~is_random & table["low"].notna()].to_dict("records"):
        yield step_test(ablation, row)
    yield margin_test(ablation)
    yield from removable_tests(ablation, table).values()


def step_test(ablation: AblationResults, row: Mapping[Any, Any]) -> Tested:
    """Return the change without the first heads of an order.

    Args:
        ablation: results behind the row.
        row: row of `Study.pruning`.
    """
    n_sentences = int((ablation.half == HELD_OUT).sum())
    return row_of(
        ABLATION, stack=row["stack"], metric="pruning",
        label=f"{row['order']}/{row['share']:g}/{row['replacement']}/{row['target']}",
        value=Estimate(row["value"], row["low"], row["high"], n_sentences, 0.0),
        split=HELD_OUT_SPLIT,
    )  # fmt: skip


def margin_test(ablation: AblationResults) -> Tested:
    """Return the change that several heads together may make."""
    margin = without_interval(group_margin(ablation), int((ablation.half == HELD_OUT).sum()), 0.0)
    return row_of(
        ABLATION, metric="margin of several heads", label=ablation.targets[0], value=margin,
        split=HELD_OUT_SPLIT,
    )  # fmt: skip


def removable_tests(ablation: AblationResults, table: pd.DataFrame) -> dict[str, Tested]:
    """Return the share of heads that can be removed together in each order, beside random ones.

    Args:
        ablation: results behind the rows.
        table: rows of `Study.pruning`.
    """
    shares, random_share = removable_shares(ablation, table)
    n_sentences = int((ablation.half == HELD_OUT).sum())
    return {
        order: row_of(
            ABLATION, metric="share that can go",
            label=f"{order}/{Replacement.MEAN}/{ablation.targets[0]}",
            value=without_interval(share, n_sentences, 0.0), split=HELD_OUT_SPLIT,
            baseline="median of random orders", baseline_value=random_share,
        )
        for order, share in shares.items()
    }  # fmt: skip
