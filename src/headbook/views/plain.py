"""One head in one or two plain sentences."""

import math

from headbook.measures.classify import Label
from headbook.numbers.classes import HeadClass, Place, head_class, value
from headbook.numbers.results import StackResults
from headbook.views.answers import KEYS, offset_name, sink_name
from headbook.wording import number

MEANING = {
    Label.VERTICAL: "all tokens look at the same few keys",
    Label.DIAGONAL: "each token looks at one distance from itself",
    Label.WINDOW: "distance decides, over several keys",
    Label.BLOCK: "tokens look inside their own sentence",
    Label.BROAD: "all tokens look at the same keys, and at many of them",
    Label.CONTENT: "neither keys alone nor distances alone explain where it looks",
}


def detail(found: HeadClass) -> str:
    """What a stripe stands on, or where a diagonal runs; empty where not known."""
    if found.offset is not None:
        return f"offset {offset_name(found.offset)}"
    return KEYS[found.keys] if found.keys else ""


def looks_like(found: HeadClass | None) -> str:
    """A sentence about a head's maps; empty without a class."""
    if found is None:
        return ""
    about = detail(found)
    return f"Its maps are {found.label}{f' ({about})' if about else ''}: {MEANING[found.label]}."


def parks(results: StackResults, place: Place) -> str:
    """A sentence about what a head gives to the sink and takes from there; empty if not known."""
    given = value(results, "sink_share", "", place)
    carried = value(results, "sink_norm_share", "", place)
    if math.isnan(given):
        return ""
    text = f"{number(given, share=True)} of its attention goes to {sink_name(results)}"
    if math.isnan(carried):
        return f"{text}."
    return (
        f"{text}, {'but' if carried < given else 'and'} that carries {number(carried, share=True)} "
        "of its output, by length."
    )


def plain(results: StackResults, place: Place) -> str:
    """What a head's maps look like, and what it parks; empty where nothing is known."""
    return " ".join(
        part for part in (looks_like(head_class(results, place)), parks(results, place)) if part
    )
