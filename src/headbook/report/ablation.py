"""Ablation numbers in the unit of pages, groups of heads, and which head backs up another."""

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
from headbook.study.ablation_tests import ATTRIBUTION, AblationVerdict
from headbook.study.sentence_data import HeadName, heads_of

COSINES = {AblationTarget.STATE, AblationTarget.EMBEDDING}
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
COUNTED = {  # of one head, and of several
    AblationVerdict.CHANGES: ("changes the output", "change the output"),
    AblationVerdict.NO_CHANGE: ("can go alone", "can go alone"),
    AblationVerdict.HARMFUL: ("is harmful", "are harmful"),
    AblationVerdict.UNDECIDED: ("is undecided", "are undecided"),
}
AFTER = "×\u202f10⁻³"


def main_target(ablation: AblationResults) -> str:
    """The target that pages are about: the loss, else the cosine of sentence vectors or states."""
    return ablation.targets[0]


def unit_factor(ablation: AblationResults) -> float:
    """By what changes are multiplied to be in the pages' unit."""
    if main_target(ablation) in COSINES:
        return 1000.0
    return 100 / ablation.loss(main_target(ablation))


def unit(ablation: AblationResults) -> str:
    """The pages' unit: per cent of the loss, or thousandths of a cosine."""
    return AFTER if main_target(ablation) in COSINES else "% of the loss"


def drawn_unit(ablation: AblationResults) -> str:
    """The same in letters that fonts of figures have."""
    return "thousandths" if main_target(ablation) in COSINES else unit(ablation)


def change_text(ablation: AblationResults, value: float, low: float, high: float) -> str:
    """A change in the pages' unit, with its interval."""
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
        row: of `Study.importance` or `Study.head_groups`.
        together: what the bounds hold for together.
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


def choice_text(ablation: AblationResults, heads: Iterable[int]) -> str:
    """Return how heads that were replaced alone had been chosen, in words; empty if all were.

    Args:
        heads: places in `AblationResults.heads`.
    """
    if ablation.chosen.all() and not (ablation.chosen == AblationReason.AUDIT).any():
        return ""
    counts = Counter(AblationReason(int(ablation.chosen[place])) for place in heads)
    why = {
        AblationReason.FIRST: "with the largest estimates",
        AblationReason.AUDIT: "picked at random",
    }
    return ", ".join(f"{counts[each]:,} {text}" for each, text in why.items() if counts[each])


def head_changes(ablation: AblationResults) -> pd.DataFrame:
    """A row for each head, in the pages' unit, its mean in its place.

    Columns ``stack, layer, head, value, low, high, method, verdict``; estimates have neither
    interval nor verdict. Verdicts are those of the target that ranks heads.
    """
    target, by = main_target(ablation), unit_factor(ablation)
    frame = pd.DataFrame(ablation.heads)
    frame["value"] = ablation_tests.estimated_effects(ablation, target, Replacement.MEAN) * by
    frame = frame.assign(low=np.nan, high=np.nan, method=ESTIMATED, verdict="")
    effects = ablation_tests.head_effects(ablation, target, Replacement.MEAN)
    for name in ("value", "low", "high"):
        frame.loc[effects.head, name] = getattr(effects, name) * by
    frame.loc[effects.head, "method"] = EXACT
    ranked = ablation_tests.head_effects(
        ablation, ablation_tests.ranked_target(ablation), Replacement.MEAN
    )
    frame.loc[ranked.head, "verdict"] = list(ranked.verdict)
    return frame


INSTEAD = {
    Replacement.MEAN: "mean output",
    Replacement.ZERO: "zero",
    Replacement.UNIFORM: "mean of all visible values",
    Replacement.WITHOUT_SINK: "output with the sink masked",
}

Rows = Mapping[tuple[str, str, str], Mapping[str, Any]]


def _by_head(results: StackResults) -> Mapping[HeadName, Rows]:
    """The numbers of each head of the stack, by metric, replacement and target."""
    table = results.study.importance
    table = table[(table["stack"] == results.stack.name) & (table["label"] == "")]
    found: dict[HeadName, dict[tuple[str, str, str], Mapping[str, Any]]] = {}
    for row in table.to_dict("records"):
        head = HeadName(row["stack"], int(row["layer"]), int(row["head"]))
        key = row["metric"], row["replacement"], row["target"]
        found.setdefault(head, {})[key] = {str(name): value for name, value in row.items()}
    return found


def _change(
    ablation: AblationResults, rows: Rows, replacement: Replacement
) -> Mapping[str, Any] | None:
    """The exact change, else the estimate; None where there is neither."""
    target = main_target(ablation)
    exact = rows.get((EFFECT, replacement, target))
    return exact or rows.get((ATTRIBUTION, replacement, target))


def _verdict(ablation: AblationResults, rows: Rows, replacement: Replacement) -> str:
    """The verdict by the target that ranks heads; empty where the head was not replaced."""
    row = rows.get((EFFECT, replacement, ablation_tests.ranked_target(ablation)))
    return verdict_text(row) if row else ""


def _backed_up(results: StackResults) -> Mapping[HeadName, str]:
    return backed_up(results.study.head_groups, results.study.corpus_sums.ablation)


def backed_up(groups: pd.DataFrame, ablation: AblationResults | None) -> Mapping[HeadName, str]:
    """Of each head the one with which together it is missed most beyond what each alone costs."""
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
    """A head as groups name it; those of another stack say which."""
    *other, layer, head = name.split("-")
    return HeadName(other[0] if other else stack, int(layer[1:]), int(head[1:]))


HEAVY = 0.9  # of all attention on the sink
HEAVY_NAME = "over 90 % of attention on the sink"
LAYER, KEYS, SINK = "layer ", " keys ", "sink"  # in names of groups
REPLACEMENTS = (Replacement.MEAN, Replacement.WITHOUT_SINK, Replacement.ZERO)
"""What tells whether heads that rest on the sink are dead: all three."""


def head_groups(results: Mapping[str, StackResults]) -> list[HeadGroup]:
    """All groups of all stacks."""
    return [group for result in results.values() for group in _groups(result)]


def layers_and_sinks(groups: Iterable[HeadGroup]) -> list[HeadGroup]:
    """Return the groups of the fast level: each layer, and the sink heads of each stack."""
    return [
        group
        for group in groups
        if group.name == SINK or (group.name.startswith(LAYER) and KEYS not in group.name)
    ]


def _groups(results: StackResults) -> Iterator[HeadGroup]:
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
