"""Groups of heads to ablate together: families of functions, sink heads, layers, shared keys.

Also their rows in the table of groups.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from headbook.ablation.head_sets import HeadGroup
from headbook.report.ablation import HEAVY_NAME, KEYS, LAYER, REPLACEMENTS, SINK
from headbook.report.facts.functions import FunctionFamily, functions_of
from headbook.report.function_numbers import SINK as SINK_SHARE
from headbook.report.function_numbers import share_of
from headbook.report.results import StackResults
from headbook.report.thresholds import HALF, SINK_ONLY
from headbook.schema import HeadName, Replacement, heads_of
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict
from headbook.study.ablation.results import AblationResults

# Maps with vertical stripes: what their heads add together is compared with other heads of the same
# layers that add as much alone.
STRIPED = str(FunctionFamily.SAME_KEYS)


def head_groups(results: Mapping[str, StackResults]) -> list[HeadGroup]:
    """Return all groups of heads of all stacks."""
    return [group for result in results.values() for group in _groups(result)]


def groups_of_auto(groups: Iterable[HeadGroup]) -> list[HeadGroup]:
    """Return the groups of the auto level: each layer, sink heads, and heads of the same keys.

    The latter are replaced by their means alone, to save passes.
    """
    chosen = []
    for group in groups:
        if group.name == STRIPED:
            chosen.append(replace(group, replacements=(Replacement.MEAN,)))
        elif group.name == SINK or (group.name.startswith(LAYER) and KEYS not in group.name):
            chosen.append(group)
    return chosen


def is_sink_head(results: StackResults, head: HeadName) -> bool:
    """Check whether the sink takes at least half of a head's attention, corrected for chance."""
    share = share_of(results, SINK_SHARE, head)
    return share is not None and share.corrected >= HALF.value


def _families(results: StackResults) -> Iterator[HeadGroup]:
    """Yield the sink heads of a stack, and the families of functions but that of the sink.

    The sink heads come first, so that an order of families has each head in its own family.
    """
    heads, functions = heads_of(results.stack), functions_of(results)
    groups = {SINK: [head for head in heads if is_sink_head(results, head)]}
    groups |= {
        str(family): [head for head in heads if functions[head].family is family]
        for family in FunctionFamily
        if family is not FunctionFamily.SINK
    }
    for name, members in groups.items():
        if members:
            yield HeadGroup(
                results.stack.name, name, tuple(members), REPLACEMENTS, banded=True, is_family=True,
                by_effect=name == STRIPED,
            )  # fmt: skip


def _groups(results: StackResults) -> Iterator[HeadGroup]:
    """Yield the families, the sink heads, the layers and the heads with shared keys of a stack."""
    stack = results.stack
    yield from _families(results)
    shares = {head: share_of(results, SINK_SHARE, head) for head in heads_of(stack)}
    heavy_heads = tuple(
        head for head, share in shares.items() if share and share.number.value > SINK_ONLY.value
    )
    if heavy_heads:
        yield HeadGroup(stack.name, HEAVY_NAME, heavy_heads, REPLACEMENTS, banded=True)
    by_mean = (Replacement.MEAN,)
    heads_per_key = stack.n_heads // max(stack.n_key_heads, 1)
    for layer in stack.attention_layers:
        group_heads = [head_name for head_name in heads_of(stack) if head_name.layer == layer]
        yield HeadGroup(stack.name, f"{LAYER}{layer}", tuple(group_heads), by_mean)
        for key_head in range(stack.n_key_heads if heads_per_key > 1 else 0):
            sharing_heads = tuple(
                group_heads[key_head * heads_per_key : (key_head + 1) * heads_per_key]
            )
            yield HeadGroup(stack.name, f"{LAYER}{layer}{KEYS}{key_head}", sharing_heads, by_mean)


def group_rows(
    ablation: AblationResults, groups: pd.DataFrame, stack: str, group: str
) -> Mapping[str, Any]:
    """Return the row of a group for each replacement, by the target that ranks heads."""
    known = groups[groups["target"] == effect_tests.ranked_target(ablation)]
    rows = known[(known["stack"] == stack) & (known["group"] == group)]
    return {row["replacement"]: row for row in rows.to_dict("records")}


def zero_is_dead(zero: Mapping[Any, Any]) -> bool:
    """Whether zeroing the group changes no more than zeroing random heads of the same layers.

    A group of all heads of its layers has no random sets. Its verdict must then be no change.
    """
    low, high = zero["random_low"], zero["random_high"]
    if np.isnan(low) or np.isclose(low, high, atol=0):
        return bool(zero["verdict"] == AblationVerdict.NO_CHANGE)
    return bool(low <= zero["value"] <= high)
