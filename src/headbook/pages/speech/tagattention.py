"""Words by part of speech at both ends of attention: numbers and maps, against chance."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import Floats
from headbook.charts import Figure, tag_heads, tag_layers
from headbook.metrics import ids
from headbook.report.numbers.results import Estimates, StackResults
from headbook.report.numbers.tagshares import TAG_VIEW
from headbook.report.wording import FEW_WORDS, STACKS, VIEWS, head_name
from headbook.study.sentencedata import HeadName, heads_of
from headbook.terms import Side, View

MOST_CELLS, FEWEST_TAGS = 8_000, 4  # of the map of all heads
RATIO, SHARE, GIVEN = ids.POS_RECEIVED_RATIO, ids.POS_RECEIVED, ids.POS_GIVEN

Take = Callable[[str, View, str], Estimates]  # one of the tables of `StackResults`, or half of one


class Direction(StrEnum):
    """The two ends of attention."""

    LOOKED_AT = "attention received"
    LOOKING = "attention given"


METRICS = {Direction.LOOKED_AT: (RATIO, SHARE), Direction.LOOKING: (GIVEN,)}
# Renormalised, every word would give as much.
VIEW = {Direction.LOOKED_AT: TAG_VIEW, Direction.LOOKING: View.NOSINK}


def side_of(results: StackResults, direction: Direction) -> Side:
    """The texts whose words are counted."""
    return results.stack.keys if direction is Direction.LOOKED_AT else results.stack.queries


def tags_of(results: StackResults, direction: Direction) -> list[str]:
    """The tags of the corpus that have numbers, most frequent first."""
    tags = results.labels(METRICS[direction][0])
    words = {tag: n_words(results, direction, tag) for tag in tags}
    there = [
        tag
        for tag in tags
        if words[tag] and all(results.has(m, VIEW[direction], tag) for m in METRICS[direction])
    ]
    return sorted(there, key=lambda tag: -words[tag])


def share(direction: Direction, take: Take, tag: str) -> Estimates:
    """Share of the attention that goes to words of a tag, or comes from them."""
    return take(SHARE if direction is Direction.LOOKED_AT else GIVEN, VIEW[direction], tag)


def over_chance(direction: Direction, take: Take, even: Take, tag: str) -> Estimates:
    """Attention to words of a tag, or from them, over what uniform attention would give.

    Of words that look, the share is divided by that of uniform attention in the layer. The two vary
    together from sentence to sentence, so that the interval, which takes the latter as given, is
    rather too wide.

    Args:
        take: what to measure, ``(layer, head)`` or ``(layer,)``.
        even: uniform attention, ``(layer,)``.
    """
    if direction is Direction.LOOKED_AT:
        return take(RATIO, VIEW[direction], tag)
    given, uniform = (part(GIVEN, VIEW[direction], tag) for part in (take, even))
    chance = uniform.value
    chance = np.where(chance > 0, chance, np.nan)
    chance = chance.reshape(-1, *[1] * (given.value.ndim - 1))
    value, low, high = (part / chance for part in given[:3])
    return given._replace(value=value, low=low, high=high)


def n_words(results: StackResults, direction: Direction, tag: str) -> int:
    """How many words of the corpus have the tag."""
    return results.study.manifest.count(side_of(results, direction), f"tag.{tag}")


def cautious(numbers: Estimates, words: int) -> Estimates:
    """Numbers behind which there are no more observations than words with the tag.

    Many words may look at the same few; so few of them are too few, in however many sentences.
    """
    events = np.minimum(numbers.events, words)
    effective = np.where(events < FEW_WORDS, 0, numbers.effective)
    return numbers._replace(events=events, effective=effective)


def observations(results: StackResults, direction: Direction, tag: str) -> Floats:
    """How many words stand behind each head of a layer. *Shape:* ``(layer,)``.

    A layer's heads see the same words, which are no more for being seen by many heads.
    """
    heads = cautious(share(direction, results.heads, tag), n_words(results, direction, tag))
    most: Floats = heads.events.max(-1)
    return most


def table(results: StackResults, direction: Direction, tag: str, name: str) -> pd.DataFrame:
    """Numbers of a tag as charts want them.

    Args:
        name: ``layers`` or ``heads``.

    Returns:
        Columns as for `headbook.charts.tag_layers`; ``number`` is a head's place in its layer.
    """
    take: Take = getattr(results, name)
    ratio, part = over_chance(direction, take, results.uniform, tag), share(direction, take, tag)
    cells = np.nonzero(~np.isnan(ratio.value))
    behind = observations(results, direction, tag)[cells[0]]
    columns: dict[str, Any] = dict(zip(("layer", "number"), cells, strict=False))
    parts = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "share": part.value}
    columns |= {column: values[cells] for column, values in parts.items()}
    columns |= {"words": behind.round(), "thin": behind < FEW_WORDS}
    return pd.DataFrame(columns).assign(tag=tag, way=str(direction))


def _caption(results: StackResults, what: str, directions: Sequence[Direction]) -> str:
    keys = " and ".join(dict.fromkeys(VIEWS[VIEW[direction]] for direction in directions))
    return (
        f"{what}, ratio to uniform attention; {STACKS[results.stack.name]}, {keys}. Blue: "
        f"above uniform attention, orange: below, grey: fewer than {FEW_WORDS} words."
    )


def layer_map(results: StackResults, directions: Sequence[Direction]) -> Figure:
    """Parts of speech by layer, all ways side by side."""
    tags = dict.fromkeys(tag for direction in directions for tag in tags_of(results, direction))
    frames = [
        table(results, direction, t, "layers")
        for direction in directions
        for t in tags_of(results, direction)
    ]
    meanings = {
        Direction.LOOKED_AT: "attention to words of each tag",
        Direction.LOOKING: "attention from them",
    }
    what = " and ".join(meanings[direction] for direction in directions)
    return tag_layers(
        f"speech-{results.stack.name}-layers",
        _caption(results, f"By layer, all heads: {what}", directions),
        pd.concat(frames, ignore_index=True),
        tags=[*tags],
    )


def head_map(results: StackResults, direction: Direction) -> Figure:
    """Parts of speech by head, one way; of very many heads the most frequent ones alone."""
    stack = results.stack
    tags = tags_of(results, direction)[: max(FEWEST_TAGS, MOST_CELLS // len(heads_of(stack)))]
    rows = pd.concat([table(results, direction, tag, "heads") for tag in tags], ignore_index=True)
    names = [
        head_name(HeadName(stack.name, int(layer), int(row)))
        for layer, row in zip(rows["layer"], rows["number"], strict=True)
    ]
    what = "to" if direction is Direction.LOOKED_AT else "from"
    which = "each tag" if tags == tags_of(results, direction) else "the most frequent tags"
    return tag_heads(
        f"speech-{stack.name}-heads",
        _caption(
            results, f"All heads, layer by layer: attention {what} words of {which}", [direction]
        ),
        rows.assign(head=names),
        tags=tags,
        n_heads=stack.n_heads,
    )
