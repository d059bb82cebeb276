"""Letters, names and colours of head types on pages."""

from dataclasses import dataclass

from headbook.report.head_types import NOT_MEASURED, HeadType, OffSinkType


@dataclass(frozen=True)
class TypeStyle:
    """A part of a type on pages: class of its colour, letter and name."""

    style: str
    letter: str
    name: str


TYPE_STYLES = {
    "sink": TypeStyle("sink", "S", "sink"),
    OffSinkType.PREVIOUS: TypeStyle("previous", "P", "previous-token"),
    OffSinkType.NEXT: TypeStyle("next", "N", "next-token"),
    OffSinkType.SELF: TypeStyle("self", "I", "self"),
    OffSinkType.OFFSET: TypeStyle("offset", "K", "one other offset"),
    OffSinkType.SAME: TypeStyle("same", "R", "same token"),
    OffSinkType.WINDOW: TypeStyle("window", "W", "local window"),
    OffSinkType.UNIFORM: TypeStyle("uniform", "U", "near-uniform"),
    OffSinkType.KEYS: TypeStyle("keys", "C", "key-driven"),
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
    """Return the classes of a type's colours."""
    first, *second = kinds_of(head_type)
    return " ".join([f"k-{first.style}", *(f"l-{kind.style}" for kind in second)])
