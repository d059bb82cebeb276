"""Families on the overview: their heads, and the head of each that shows best what it does."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headbook.report.families import (
    MEANINGS,
    Family,
    families,
    family_names,
    sink_tokens,
)
from headbook.report.head_types import HeadType, OffSinkType, head_types
from headbook.report.results import StackResults
from headbook.study.sentence_data import HeadName


class FamilyHeads(NamedTuple):
    """The heads of one family in all stacks.

    Attributes:
        family: the family.
        name: name of the family on pages.
        meaning: what its heads do.
        heads: the heads, stack by stack.
        clearest: head that shows best what the family does.
    """

    family: Family
    name: str
    meaning: str
    heads: tuple[HeadName, ...]
    clearest: HeadName


def family_heads(results: Mapping[str, StackResults]) -> list[FamilyHeads]:
    """Return the families that have heads, in their order."""
    found = []
    for family in Family:
        heads = [
            HeadName(stack, *place)
            for stack, each in results.items()
            for place, own in families(each).items()
            if own is family
        ]
        if heads:
            first = results[heads[0].stack]
            name = family_names(first)[family]
            clearest = max(heads, key=lambda head: _clarity(results[head.stack], head, family))
            meaning = MEANINGS.get(family) or _of_the_rest(results, heads)
            found.append(FamilyHeads(family, name, meaning, tuple(heads), clearest))
    return found


def _type_of(results: StackResults, head: HeadName) -> HeadType | None:
    return head_types(results)[head.layer, head.head]


def _of_the_rest(results: Mapping[str, StackResults], heads: Sequence[HeadName]) -> str:
    """Return what heads without a single type do."""
    sink = sink_tokens(results[heads[0].stack])
    types = [_type_of(results[head.stack], head) for head in heads]
    if any(kind is not None and kind.rest is OffSinkType.MIXED for kind in types):
        return "Several things at once; no single share of the attention reaches half."
    return f"Almost nothing is left once {sink} are masked."


def _clarity(results: StackResults, head: HeadName, family: Family) -> float:
    """Return by how much a head passes the threshold of its family."""
    kind = _type_of(results, head)
    if kind is None:
        return -math.inf
    shares = kind.shares
    values = {
        Family.POSITION: max(
            (share.corrected for share in (*shares.parts.values(), *shares.offsets.values())),
            default=math.nan,
        ),
        Family.NEARBY: shares.window.corrected,
        Family.BROADCAST: -shares.column,
        Family.REPEATS: shares.same_token.corrected,
        Family.SPREAD: shares.entropy,
        Family.SINK: shares.sink.corrected,
    }
    value = values[family]
    return -math.inf if math.isnan(value) else value
