"""Families of heads: at most six groups of head types, by which pages colour and count heads.

The type once the sink is masked decides, because nearly every head gives much to the sink. A head
whose type could not be measured has no family.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headbook.report.head_types import NOT_MEASURED, HeadType, OffSinkType, head_types
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital
from headbook.schema import Place


class Family(StrEnum):
    """Family of a head; the value is the class of its colour, as ``f-position``."""

    POSITION = "position"
    NEARBY = "nearby"
    BROADCAST = "broadcast"
    REPEATS = "repeats"
    SPREAD = "spread"
    SINK = "sink"


FAMILY_OF_TYPE = {
    OffSinkType.PREVIOUS: Family.POSITION,
    OffSinkType.NEXT: Family.POSITION,
    OffSinkType.SELF: Family.POSITION,
    OffSinkType.OFFSET: Family.POSITION,
    OffSinkType.WINDOW: Family.NEARBY,
    OffSinkType.OWN: Family.NEARBY,
    OffSinkType.KEYS: Family.BROADCAST,
    OffSinkType.SAME: Family.REPEATS,
    OffSinkType.UNIFORM: Family.SPREAD,
    OffSinkType.MIXED: Family.SINK,
    OffSinkType.NONE: Family.SINK,
}
MEANINGS = {
    Family.POSITION: "One fixed distance, such as the token before or after.",
    Family.NEARBY: "At least half of the attention between words stays nearby.",
    Family.BROADCAST: "Every word attends to the same few words, so that the map has columns.",
    Family.REPEATS: "Other occurrences of the same token, where there are any.",
    Family.SPREAD: "Weights spread over most words.",
}


def family_of(head_type: HeadType | None) -> Family | None:
    """Return the family of a head by its type; None if the type was not measured."""
    return None if head_type is None else FAMILY_OF_TYPE.get(head_type.rest)


def families(results: StackResults) -> Mapping[Place, Family]:
    """Return the family of each head of a stack that has one, by layer and head."""
    return results.cached(_families)


def _families(results: StackResults) -> Mapping[Place, Family]:
    of_heads = {place: family_of(kind) for place, kind in head_types(results).items()}
    return {place: family for place, family in of_heads.items() if family is not None}


def family_names(results: StackResults) -> Mapping[Family, str]:
    """Return the names of families on pages; the last one names the model's own sink tokens.

    Heads without a single type join the heads of the sink; the name then says so.
    """
    types = [kind for kind in head_types(results).values() if kind is not None]
    mixed = any(kind.rest is OffSinkType.MIXED for kind in types)
    sink_name = "Mixed and others" if mixed else f"{capital(sink_tokens(results))} only"
    return {
        Family.POSITION: "Previous or next token",
        Family.NEARBY: "Nearby words",
        Family.BROADCAST: "Same words from everywhere",
        Family.REPEATS: "Same token elsewhere",
        Family.SPREAD: "Spread nearly evenly",
        Family.SINK: sink_name,
    }


def present_families(results: StackResults) -> Iterator[tuple[str, str]]:
    """Yield the class of the colour and the name of each family that has a head of a stack."""
    names, present = family_names(results), {*families(results).values()}
    for family in Family:
        if family in present:
            yield f"f-{family}", names[family]


@dataclass(frozen=True)
class TypeStyle:
    """A part of a type on pages: its shade (`headbook.charts.theme`), letter and name."""

    shade: str
    letter: str
    name: str


TYPE_STYLES = {
    "sink": TypeStyle("sink", "S", "sink"),
    OffSinkType.PREVIOUS: TypeStyle("previous", "P", "previous token"),
    OffSinkType.NEXT: TypeStyle("next", "N", "next token"),
    OffSinkType.SELF: TypeStyle("self", "I", "the token itself"),
    OffSinkType.OFFSET: TypeStyle("offset", "K", "one other offset"),
    OffSinkType.SAME: TypeStyle("same", "R", "same token elsewhere"),
    OffSinkType.WINDOW: TypeStyle("window", "W", "within three tokens"),
    OffSinkType.UNIFORM: TypeStyle("uniform", "U", "nearly evenly"),
    OffSinkType.KEYS: TypeStyle("keys", "C", "same words from everywhere"),
    OffSinkType.OWN: TypeStyle("own", "O", "own sentence"),
    "distant": TypeStyle("distant", "D", "distant tokens"),
    OffSinkType.MIXED: TypeStyle("distant", "M", "mixed"),
    OffSinkType.NOT_MEASURED: TypeStyle("unmeasured", "–", NOT_MEASURED),
}
# The style of each share that a mixed head may be named by.
STYLE_OF_SHARE = {
    "previous": OffSinkType.PREVIOUS, "next": OffSinkType.NEXT, "self": OffSinkType.SELF,
    "near": OffSinkType.WINDOW,
    "punctuation": "distant", "repeated": OffSinkType.SAME, "before": "distant", "after": "distant",
    "words": "distant",
}  # fmt: skip


def kinds_of(head_type: HeadType) -> tuple[TypeStyle, ...]:
    """Return the styles of the one or two parts of a type, without repetition."""
    styles = (TYPE_STYLES[STYLE_OF_SHARE.get(part, part)] for part in head_type.parts)
    return tuple(dict.fromkeys(styles))


def letters_of(head_type: HeadType) -> str:
    """Return the one or two letters of a type."""
    return "".join(kind.letter for kind in kinds_of(head_type))


def style_of(head_type: HeadType) -> str:
    """Return the class of a type's colour, that of its family; empty without one."""
    family = family_of(head_type)
    return f"f-{family}" if family else ""


PAGE_WORDS = {
    str(rest): TYPE_STYLES[rest].name
    for rest in (
        OffSinkType.PREVIOUS, OffSinkType.NEXT, OffSinkType.SAME, OffSinkType.WINDOW,
        OffSinkType.UNIFORM, OffSinkType.KEYS, OffSinkType.OWN,
    )
}  # fmt: skip
TABLE_WORD = re.compile("|".join(map(re.escape, PAGE_WORDS)))


def in_page_words(type_name: str) -> str:
    """Return the name of a type, as tables have it, in the words of pages.

    Examples:
        >>> in_page_words("sink (41.0 %) + local-window")
        'sink (41.0 %) + within three tokens'
    """
    return TABLE_WORD.sub(lambda found: PAGE_WORDS[found[0]], type_name)
