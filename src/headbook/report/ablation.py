"""Ablation numbers in the unit of pages, groups of heads to ablate, and interactions of heads."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from headbook.ablation.head_sets import HeadGroup
from headbook.report.head_types import head_types
from headbook.report.results import StackResults
from headbook.report.wording import count_text, interval_text, number, number_word, percent
from headbook.schema import AblationTarget, Replacement
from headbook.study import ablation_tests
from headbook.study.ablation import AblationReason, AblationResults
from headbook.study.ablation_tables import EFFECT, ESTIMATED, EXACT, INTERACTION
from headbook.study.ablation_tests import ATTRIBUTION, COSINE_TARGETS, AblationVerdict
from headbook.study.sentence_data import HeadName, heads_of

NAMES = {
    AblationTarget.LOSS: "loss of the next token",
    AblationTarget.MASKED_LOSS: "loss of masked tokens",
    AblationTarget.STATE: "1 minus the cosine of last states with and without the head",
    AblationTarget.EMBEDDING: "1 minus the cosine of sentence vectors with and without the head",
}
VERDICT_TARGETS = {
    AblationTarget.KL: "predictions (KL divergence)",
    AblationTarget.STATE: "last states (1 minus their cosine)",
    AblationTarget.EMBEDDING: "sentence vectors (1 minus their cosine)",
}
SHORT = {
    AblationVerdict.CHANGES: "changes the output",
    AblationVerdict.NO_CHANGE: "can go alone",
    AblationVerdict.HARMFUL: "harmful",
    AblationVerdict.UNDECIDED: "undecided",
}
COUNTED = {  # verbs for one head, and for several heads
    AblationVerdict.CHANGES: ("changes the output", "change the output"),
    AblationVerdict.NO_CHANGE: ("can go alone", "can go alone"),
    AblationVerdict.HARMFUL: ("is harmful", "are harmful"),
    AblationVerdict.UNDECIDED: ("is undecided", "are undecided"),
}
AFTER = "×\u202f10⁻³"


def main_target(ablation: AblationResults) -> str:
    """Return the main target: the loss, else the cosine of sentence vectors or states."""
    return ablation.targets[0]


def unit_factor(ablation: AblationResults) -> float:
    """Return the factor that converts a change to the unit of pages.

    The unit is per cent of the loss, or thousandths of a cosine.
    """
    if main_target(ablation) in COSINE_TARGETS:
        return 1000.0
    return 100 / ablation.loss(main_target(ablation))


def unit(ablation: AblationResults) -> str:
    """Return the unit of pages: per cent of the loss, or thousandths of a cosine."""
    return AFTER if main_target(ablation) in COSINE_TARGETS else "% of the loss"


def drawn_unit(ablation: AblationResults) -> str:
    """Return the unit of pages without characters that chart fonts lack."""
    return "thousandths" if main_target(ablation) in COSINE_TARGETS else unit(ablation)


def change_text(ablation: AblationResults, value: float, low: float, high: float) -> str:
    """Return a change in the unit of pages, with its interval."""
    by = unit_factor(ablation)
    ends = interval_text(low * by, high * by)
    return f"{number(value * by)}\u00a0{unit(ablation)}{ends and f' {ends}'}"


def verdict_target_text(ablation: AblationResults) -> str:
    """Return the target of verdicts in lists, in words."""
    target = ablation_tests.ranked_target(ablation)
    return VERDICT_TARGETS.get(AblationTarget(target), NAMES.get(AblationTarget(target), target))


def margin_text(ablation: AblationResults) -> str:
    """Return the margin of verdicts in lists, with its unit."""
    most = ablation_tests.equivalence_margin(
        ablation, ablation_tests.ranked_target(ablation)
    ) * unit_factor(ablation)
    return f"{number(most)}\u00a0{unit(ablation)}"


def short_verdict(verdict: str) -> str:
    """Return a verdict for lists; empty without one."""
    return SHORT[AblationVerdict(verdict)] if verdict else ""


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
    of = f"{changed:,} of {count_text(sentences, 'sentence')}"
    match AblationVerdict(row["verdict"]):
        case AblationVerdict.CHANGES:
            return f"changes {of}"
        case AblationVerdict.HARMFUL:
            return f"changes {of}, and the loss is lower without"
        case AblationVerdict.NO_CHANGE:
            return (
                f"leaves {sentences - changed:,} of {count_text(sentences, 'sentence')} as they "
                "were; "
                f"at most {percent(row['share_high'])} would change (95\u00a0%, all {together} "
                "together)"
            )
    return "undecided"


def verdict_counts(found: Iterable[str]) -> str:
    """Return how many heads have which verdict: ``11 change the output and one is undecided``."""
    counts = Counter(found)
    parts = [
        f"{number_word(n)} {COUNTED[verdict][n > 1]}"
        for verdict in AblationVerdict
        if (n := counts[verdict])
    ]
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + "".join(parts[-1:])


def choice_text(ablation: AblationResults, reasons: Iterable[int]) -> str:
    """Return how heads that were replaced alone had been chosen, in words; empty if all were.

    Args:
        ablation: results of all heads.
        reasons: `AblationReason` of each of the heads that the text is about.
    """
    if ablation.chosen.all() and not (ablation.chosen == AblationReason.AUDIT).any():
        return ""
    counts = Counter(reasons)
    why = {
        AblationReason.SELECTED: "with the largest estimates",
        AblationReason.AUDIT: "picked at random",
    }
    return ", ".join(f"{counts[each]:,} {text}" for each, text in why.items() if counts[each])


def head_changes(ablation: AblationResults) -> pd.DataFrame:
    """Return the effect of replacing each head by its mean, in the unit of pages, a row for a head.

    Columns ``stack, layer, head, value, low, high, method, verdict``. Estimates have neither
    interval nor verdict. Verdicts are those of the target by which heads are ranked.
    """
    target, by = main_target(ablation), unit_factor(ablation)
    frame = pd.DataFrame(ablation.heads).assign(
        value=ablation_tests.estimated_effects(ablation, target, Replacement.MEAN) * by,
        low=np.nan, high=np.nan, method=ESTIMATED, verdict="",
    )  # fmt: skip
    effects = ablation_tests.head_effects(ablation, target, Replacement.MEAN)
    numbers = ["value", "low", "high"]
    frame.loc[effects.index, numbers] = effects[numbers] * by
    frame.loc[effects.index, "method"] = EXACT
    ranked = ablation_tests.ranked_target(ablation)
    verdicts = ablation_tests.head_effects(ablation, ranked, Replacement.MEAN)["verdict"]
    frame.loc[verdicts.index, "verdict"] = verdicts
    return frame


INSTEAD = {
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
    found: dict[HeadName, dict[tuple[str, str, str], Mapping[str, Any]]] = {}
    for row in table.to_dict("records"):
        head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
        key = row["metric"], row["replacement"], row["target"]
        found.setdefault(head, {})[key] = {str(name): value for name, value in row.items()}
    return found


def change_row(
    ablation: AblationResults, rows: Rows, replacement: Replacement
) -> Mapping[str, Any] | None:
    """Return the exact change, else the estimate; None if the head has neither."""
    target = main_target(ablation)
    exact = rows.get((EFFECT, replacement, target))
    return exact or rows.get((ATTRIBUTION, replacement, target))


def verdict_of_row(ablation: AblationResults, rows: Rows, replacement: Replacement) -> str:
    """Return the verdict by the target that ranks heads; empty if the head was not replaced."""
    row = rows.get((EFFECT, replacement, ablation_tests.ranked_target(ablation)))
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
    found: dict[HeadName, str] = {}
    for row in pairs.to_dict("records"):
        names, by = row["group"].split(), unit_factor(ablation)
        more = f"{number(row['value'] * by)}\u00a0{unit(ablation)}"
        ends = interval_text(row["low"] * by, row["high"] * by)
        for own, other in zip(names, reversed(names), strict=True):
            found.setdefault(
                _named(own, row["stack"]),
                f"Backed up by {other.replace('-H', '·H')}: "
                f"without both, {more} {ends} beyond the sum of each alone.",
            )
    return found


def _named(name: str, stack: str) -> HeadName:
    """Return the head of a name in the table of groups.

    Args:
        name: name with layer and head, and with the stack if the group has heads of several stacks.
        stack: stack of names without one.
    """
    *other, layer, head = name.split("-")
    return HeadName(other[0] if other else stack, int(layer[1:]), int(head[1:]))


HEAVY = 0.9  # least attention on the sink of heads in the strictest group of sink heads
HEAVY_NAME = "over 90 % of attention on the sink"
LAYER, KEYS, SINK = "layer ", " keys ", "sink"  # parts of names of groups
REPLACEMENTS = (Replacement.MEAN, Replacement.WITHOUT_SINK, Replacement.ZERO)
"""Replacements of types and sink heads; together the three show whether sink heads are dead."""


def head_groups(results: Mapping[str, StackResults]) -> list[HeadGroup]:
    """Return all groups of heads of all stacks."""
    return [group for result in results.values() for group in _groups(result)]


def layers_and_sinks(groups: Iterable[HeadGroup]) -> list[HeadGroup]:
    """Return the groups of the fast level: each layer, and the sink heads of each stack."""
    return [
        group
        for group in groups
        if group.name == SINK or (group.name.startswith(LAYER) and KEYS not in group.name)
    ]


def _groups(results: StackResults) -> Iterator[HeadGroup]:
    """Yield the types, the sink heads, the layers and the heads with shared keys of a stack."""
    stack, of_type = results.stack, defaultdict[str, list[HeadName]](list)
    heavy = []
    for (layer, head), head_kind in head_types(results).items():
        if head_kind is None:
            continue
        name = HeadName(stack.name, layer, head)
        of_type[head_kind.family].append(name)
        if head_kind.shares.sink.value > HEAVY:
            heavy.append(name)
    for family, heads in sorted(of_type.items()):
        if family:
            yield HeadGroup(stack.name, family, tuple(heads), REPLACEMENTS, banded=True, type=True)
    if heavy:
        yield HeadGroup(stack.name, HEAVY_NAME, tuple(heavy), REPLACEMENTS, banded=True)
    mean = (Replacement.MEAN,)
    shared = stack.n_heads // max(stack.n_key_heads, 1)
    for layer in stack.attention_layers:
        heads = [each for each in heads_of(stack) if each.layer == layer]
        yield HeadGroup(stack.name, f"{LAYER}{layer}", tuple(heads), mean)
        for key in range(stack.n_key_heads if shared > 1 else 0):
            some = tuple(heads[key * shared : (key + 1) * shared])
            yield HeadGroup(stack.name, f"{LAYER}{layer}{KEYS}{key}", some, mean)
