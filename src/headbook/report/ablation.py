"""Ablation numbers in the unit of pages, ratios of layers, and interactions of heads."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.analysis.intervals import signed_ratio_interval
from headbook.report.results import StackResults
from headbook.report.wording import count_text
from headbook.results.formats import interval_text, number, percent
from headbook.results.number import Number, RowAddress, Unit
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import ATTRIBUTION, COSINE_TARGETS, AblationVerdict
from headbook.study.ablation.results import AblationReason, AblationResults, HeadSetKind
from headbook.study.ablation_tables import EFFECT, ESTIMATED, EXACT, INTERACTION

TARGET_NAMES = {
    AblationTarget.LOSS: "loss of the next token",
    AblationTarget.MASKED_LOSS: "loss of masked tokens",
    AblationTarget.KL: "predictions (KL divergence)",
    AblationTarget.STATE: "1 minus the cosine of last states with and without the head",
    AblationTarget.EMBEDDING: "1 minus the cosine of sentence vectors with and without the head",
}
VERDICT_TARGETS = {
    AblationTarget.KL: "predictions (KL divergence)",
    AblationTarget.STATE: "last states (1 minus their cosine)",
    AblationTarget.EMBEDDING: "sentence vectors (1 minus their cosine)",
}
SHORT_VERDICTS = {
    AblationVerdict.CHANGES: "changes the output",
    AblationVerdict.NO_CHANGE: "can go alone",
    AblationVerdict.HARMFUL: "harmful",
    AblationVerdict.UNDECIDED: "undecided",
}
CHANGING_VERDICTS = {AblationVerdict.CHANGES, AblationVerdict.HARMFUL}
COSINE_UNIT = "thousandths"  # of changes of a cosine


def main_target(ablation: AblationResults) -> str:
    """Return the target that pages print, by which heads are ranked: KL divergence if measured."""
    return effect_tests.ranked_target(ablation)


def loss_target(ablation: AblationResults) -> str:
    """Return the loss, else the cosine of sentence vectors or states: the target of units."""
    return ablation.targets[0]


def unit_factor(ablation: AblationResults) -> float:
    """Return the factor that converts a change to the unit of pages.

    The unit is per cent of the loss, or thousandths of a cosine.
    """
    if main_target(ablation) in COSINE_TARGETS:
        return 1000.0
    return 100 / ablation.loss(loss_target(ablation))


def effect_unit(ablation: AblationResults) -> str:
    """Return the unit of pages: per cent of the loss, or thousandths of a cosine."""
    return COSINE_UNIT if main_target(ablation) in COSINE_TARGETS else "% of the loss"


def change_unit(ablation: AblationResults) -> Unit:
    """Return the unit of changes on pages: per cent of the loss, or thousandths of a cosine."""
    return Unit(f" {effect_unit(ablation)}", factor=unit_factor(ablation))


def verdict_target_text(ablation: AblationResults) -> str:
    """Return the target of verdicts in lists, in words."""
    target = effect_tests.ranked_target(ablation)
    return VERDICT_TARGETS.get(
        AblationTarget(target), TARGET_NAMES.get(AblationTarget(target), target)
    )


SHORT_TARGETS = {
    AblationTarget.EMBEDDING: "sentence vector",
    AblationTarget.STATE: "last states",
    AblationTarget.KL: "predictions (KL)",
}


def short_target(ablation: AblationResults) -> str:
    """Return the target that pages print, in at most two words for headings of columns."""
    return SHORT_TARGETS.get(AblationTarget(main_target(ablation)), "loss")


def margin_text(ablation: AblationResults) -> str:
    """Return the margin of verdicts in lists, with its unit."""
    margin = effect_tests.equivalence_margin(
        ablation, effect_tests.ranked_target(ablation)
    ) * unit_factor(ablation)
    return f"{number(margin)}\u00a0{effect_unit(ablation)}"


def drawn_margin(ablation: AblationResults) -> float:
    """Return the margin of verdicts in the unit of pages; NaN if verdicts have another target."""
    target = effect_tests.ranked_target(ablation)
    if target != main_target(ablation):
        return float("nan")
    return effect_tests.equivalence_margin(ablation, target) * unit_factor(ablation)


def short_verdict(verdict: str) -> str:
    """Return a verdict for lists; empty without one."""
    return SHORT_VERDICTS[AblationVerdict(verdict)] if verdict else ""


def verdict_text(row: Mapping[Any, Any], together: str = "heads") -> str:
    """Return a verdict in full; empty without one.

    Args:
        row: row of `Study.importance` or `Study.head_groups`.
        together: name of the family for which the bounds hold together.
    """
    if not row["verdict"]:
        return ""
    sentences = int(row["n_sentences"])
    changed = round(row["share_changed"] * sentences)
    changed_sentences = f"{changed:,} of {count_text(sentences, 'sentence')}"
    match AblationVerdict(row["verdict"]):
        case AblationVerdict.CHANGES:
            return f"changes {changed_sentences}"
        case AblationVerdict.HARMFUL:
            return f"changes {changed_sentences}, and the loss is lower without"
        case AblationVerdict.NO_CHANGE:
            return (
                f"leaves {sentences - changed:,} of {count_text(sentences, 'sentence')} as they "
                f"were; at most {percent(row['share_high'])} would change "
                f"(95\u00a0%, all {together} together)"
            )
    return "undecided"


def representative_verdicts(ablation: AblationResults) -> tuple[list[str], str]:
    """Return the verdicts by which shares of all heads are stated, and how heads were drawn.

    Heads with the largest estimates say nothing of the others. So where not all heads were
    replaced, only those drawn at random count, if there are any.
    """
    target = effect_tests.ranked_target(ablation)
    effects = effect_tests.head_effects(ablation, target, Replacement.MEAN)
    effects = effects[effects["verdict"] != ""]
    if (ablation.chosen != AblationReason.NOT_ABLATED).all():
        return [*effects["verdict"]], ""
    drawn = effects[effects["reason"] == AblationReason.AUDIT]
    if len(drawn):
        return [*drawn["verdict"]], " drawn at random"
    return [*effects["verdict"]], " with the largest estimates"


def choice_text(ablation: AblationResults, reasons: Iterable[int]) -> str:
    """Return how heads that were replaced alone had been chosen, in words; empty if all were.

    Args:
        ablation: results of all heads.
        reasons: `AblationReason` of each of the heads that the text is about.
    """
    if ablation.chosen.all() and not (ablation.chosen == AblationReason.AUDIT).any():
        return ""
    counts = Counter(reasons)
    reason_texts = {
        AblationReason.SELECTED: "with the largest estimates",
        AblationReason.AUDIT: "picked at random",
    }
    return ", ".join(
        f"{counts[reason]:,} {text}" for reason, text in reason_texts.items() if counts[reason]
    )


def head_changes(ablation: AblationResults, target: str = "") -> pd.DataFrame:
    """Return the effect of replacing each head by its mean, in the unit of pages, a row for a head.

    Columns ``stack, layer, head, value, low, high, method, verdict``. Estimates have neither
    interval nor verdict. Verdicts are those of the target by which heads are ranked.

    Args:
        ablation: results of all heads.
        target: target whose changes are returned; empty for the main target.
    """
    target, factor = target or main_target(ablation), unit_factor(ablation)
    frame = pd.DataFrame(ablation.heads).assign(
        value=effect_tests.estimated_effects(ablation, target, Replacement.MEAN) * factor,
        low=np.nan, high=np.nan, method=ESTIMATED, verdict="",
    )  # fmt: skip
    effects = effect_tests.head_effects(ablation, target, Replacement.MEAN)
    columns = ["value", "low", "high"]
    frame.loc[effects.index, columns] = effects[columns] * factor
    frame.loc[effects.index, "method"] = EXACT
    ranked = effect_tests.ranked_target(ablation)
    verdicts = effect_tests.head_effects(ablation, ranked, Replacement.MEAN)["verdict"]
    frame.loc[verdicts.index, "verdict"] = verdicts
    return frame


def head_change(ablation: AblationResults, row: Mapping[Any, Any], *, exact: bool) -> Number:
    """Return the change of one head, from a row of `head_changes`.

    Args:
        exact: whether the head was replaced; else the change is estimated.
    """
    key = (
        ("stack", row["stack"]), ("layer", int(row["layer"])), ("head", int(row["head"])),
        ("metric", EFFECT if exact else ATTRIBUTION), ("replacement", str(Replacement.MEAN)),
        ("target", str(effect_tests.ranked_target(ablation))),
    )  # fmt: skip
    unit = change_unit(ablation)
    value, low, high = (float(row[part]) / unit.factor for part in ("value", "low", "high"))
    return Number(value, unit, RowAddress("importance", key), low, high, sign="" if exact else "≈")


def largest_change(ablation: AblationResults) -> tuple[HeadName, Number] | None:
    """Return the head whose replacement changes most, with its change; None without a clear one.

    The head and its change are those of all sentences. The head that one half of the sentences
    chooses has to have a change above the margin on the other half.
    """
    target = main_target(ablation)
    chosen = effect_tests.largest_effect(ablation, target)
    if chosen is None:
        return None
    _, _, (_, low, _) = chosen
    if not low > effect_tests.equivalence_margin(ablation, target):
        return None
    rows = [row for row in head_changes(ablation).to_dict("records") if row["method"] == EXACT]
    row = max(rows, key=lambda numbers: float(numbers["value"]))
    head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
    return head, head_change(ablation, row, exact=True)


REPLACEMENT_NAMES = {
    Replacement.MEAN: "mean output",
    Replacement.ZERO: "zero",
    Replacement.UNIFORM: "mean of all visible values",
    Replacement.WITHOUT_SINK: "output with the sink masked",
}

Rows = Mapping[tuple[str, str, str], Mapping[str, Any]]


def rows_by_head(results: StackResults) -> Mapping[HeadName, Rows]:
    """Return the numbers of each head of the stack, by metric, replacement and target."""
    table = results.study.importance
    table = table[(table["stack"] == results.stack.name) & (table["label"] == "")]
    rows: dict[HeadName, dict[tuple[str, str, str], Mapping[str, Any]]] = {}
    for row in table.to_dict("records"):
        head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
        key = row["metric"], row["replacement"], row["target"]
        rows.setdefault(head, {})[key] = {str(name): value for name, value in row.items()}
    return rows


def change_row(
    ablation: AblationResults, rows: Rows, replacement: Replacement
) -> Mapping[str, Any] | None:
    """Return the exact change, else the estimate; None if the head has neither."""
    target = main_target(ablation)
    exact = rows.get((EFFECT, replacement, target))
    return exact or rows.get((ATTRIBUTION, replacement, target))


def verdict_of_row(ablation: AblationResults, rows: Rows, replacement: Replacement) -> str:
    """Return the verdict by the target that ranks heads; empty if the head was not replaced."""
    row = rows.get((EFFECT, replacement, effect_tests.ranked_target(ablation)))
    return verdict_text(row) if row else ""


def backups(results: StackResults) -> Mapping[HeadName, str]:
    """Return the remarks of `backed_up` of a study, to be cached."""
    return backed_up(results.study.head_groups, results.study.corpus_sums.ablation)


def backed_up(groups: pd.DataFrame, ablation: AblationResults | None) -> Mapping[HeadName, str]:
    """Return for each head a remark on the head of largest positive interaction with it.

    Args:
        groups: rows of `Study.head_groups`.
        ablation: results that set the main target and the unit.
    """
    assert ablation is not None
    pairs = groups[(groups["metric"] == INTERACTION) & (groups["target"] == main_target(ablation))]
    pairs = pairs[pairs["low"] > 0].sort_values("value", ascending=False, kind="stable")
    remarks: dict[HeadName, str] = {}
    for row in pairs.to_dict("records"):
        names, factor = row["group"].split(), unit_factor(ablation)
        excess = f"{number(row['value'] * factor)}\u00a0{effect_unit(ablation)}"
        interval = interval_text(row["low"] * factor, row["high"] * factor)
        for name, partner in zip(names, reversed(names), strict=True):
            remarks.setdefault(
                _head_of_name(name, row["stack"]),
                f"Backed up by {partner.replace('-H', '·H')}: "
                f"without both, {excess} {interval} beyond the sum of each alone.",
            )
    return remarks


def _head_of_name(name: str, stack: str) -> HeadName:
    """Return the head of a name in the table of groups.

    Args:
        name: name with layer and head, and with the stack if the group has heads of several stacks.
        stack: stack of names without one.
    """
    *stack_prefix, layer, head = name.split("-")
    return HeadName(stack_prefix[0] if stack_prefix else stack, int(layer[1:]), int(head[1:]))


HEAVY_NAME = "over 90 % of attention on the sink"
LAYER, KEYS, SINK = "layer ", " keys ", "sink"  # parts of the names of groups
REPLACEMENTS = (Replacement.MEAN, Replacement.WITHOUT_SINK, Replacement.ZERO)
"""Replacements of families and sink heads; together the three show whether sink heads are dead."""

LAYER_GROUP = re.compile(rf"{LAYER}(\d+)")


class LayerRatio(NamedTuple):
    """Ratio of the two largest effects of whole layers of a stack, on all sentences.

    Attributes:
        first, second: numbers of the layers of the largest effects.
        value, low, high: ratio of their effects, with its 95 % interval.
        clear: whether the selection half chooses the same layer, and its effect on the held-out
            half is clearly above that of every other layer.
    """

    first: int
    second: int
    value: float
    low: float
    high: float
    clear: bool


def layer_ratio(ablation: AblationResults, stack: str, target: str) -> LayerRatio | None:
    """Return the ratio of the two largest effects of whole layers; None without two layers.

    The ratio rests on all sentences, as the effects of layers on pages do. Whether it is clear is
    decided on the half of the sentences that did not choose the layer.

    Args:
        ablation: effects, with heads replaced by their means.
        stack: stack of the layers.
        target: target of the effects.
    """
    sets = {
        index: int(match[1])
        for index in ablation.select(HeadSetKind.GROUP, Replacement.MEAN)
        if ablation.sets[index].stack == stack
        and (match := LAYER_GROUP.fullmatch(ablation.sets[index].name))
    }
    changes = ablation.changes[target][:, [*sets]]
    if len(sets) < 2 or not len(changes) or np.isnan(changes).any():
        return None
    numbers = [*sets.values()]
    best, *others = np.argsort(-changes.sum(0), kind="stable")
    value, low, high = _ratios_to_others(changes, best, others)
    held_out = changes[ablation.half == HELD_OUT]
    chosen = int(np.argmax(changes[ablation.half == SELECTION].sum(0)))
    clear = chosen == best and len(held_out) > 0
    clear = clear and bool((_ratios_to_others(held_out, best, others)[1] > 1).all())
    return LayerRatio(
        numbers[best], numbers[others[0]], float(value[0]), float(low[0]), float(high[0]),
        clear and bool(low[0] > 1),
    )  # fmt: skip


def _ratios_to_others(
    changes: NDArray[np.float64], best: int, others: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the ratios of the effect of one layer to those of others, with their intervals."""
    largest = np.broadcast_to(changes[:, [best]], changes[:, others].shape)
    return signed_ratio_interval(largest, changes[:, others])
