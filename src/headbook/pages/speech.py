"""Parts of speech at both ends of attention."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.charts import Figure, tag_heads, tag_layers
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.table import (
    DASH,
    Content,
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    WordsCell,
    words_cell,
)
from headbook.report.findings import HELD_OUT, SELECTION
from headbook.report.findings.finding import head_link
from headbook.report.head_types import TAG_VIEW, much_to_sink
from headbook.report.relations import TAG_NAMES
from headbook.report.results import StackResults, study_of
from headbook.report.wording import (
    FEW_WORDS,
    MISSING,
    STACKS,
    VIEWS,
    head_name,
    number,
    percent,
    tie_note,
    tied_places,
)
from headbook.schema import Side, SinkView
from headbook.study.manifest import Manifest, MissingPart
from headbook.study.sentence_data import HeadName, heads_of

MOST_CELLS, FEWEST_TAGS = 8_000, 4  # of the map of all heads
RATIO, SHARE, GIVEN = ids.POS_RECEIVED_RATIO, ids.POS_RECEIVED, ids.POS_GIVEN

Take = Callable[
    [str, SinkView, str], Estimates
]  # one of the tables of `StackResults`, or half of one


class Direction(StrEnum):
    """The two ends of attention."""

    LOOKED_AT = "attention received"
    LOOKING = "attention given"


METRICS = {Direction.LOOKED_AT: (RATIO, SHARE), Direction.LOOKING: (GIVEN,)}
# Renormalised, every word would give as much.
VIEW = {Direction.LOOKED_AT: TAG_VIEW, Direction.LOOKING: SinkView.NOSINK}


def side_of(results: StackResults, direction: Direction) -> Side:
    """The texts whose words are counted."""
    return results.stack.keys if direction is Direction.LOOKED_AT else results.stack.queries


def tags_of(results: StackResults, direction: Direction) -> list[str]:
    """The tags of the corpus that have numbers, most frequent first."""
    tags = results.labels(METRICS[direction][0])
    words = {tag: n_words_of_tag(results, direction, tag) for tag in tags}
    there = [
        tag
        for tag in tags
        if words[tag]
        and all(results.has_value(m, VIEW[direction], tag) for m in METRICS[direction])
    ]
    return sorted(there, key=lambda tag: -words[tag])


def tag_share(direction: Direction, take: Take, tag: str) -> Estimates:
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


def n_words_of_tag(results: StackResults, direction: Direction, tag: str) -> int:
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
    heads = cautious(
        tag_share(direction, results.heads, tag), n_words_of_tag(results, direction, tag)
    )
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
    ratio, part = (
        over_chance(direction, take, results.uniform, tag),
        tag_share(direction, take, tag),
    )
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


TWICE = 2.0
HEADS = ("Tag", "words", "of all words", "head", "ratio to uniform attention", "share")


@dataclass(frozen=True)
class DirectionSection:
    """The parts of speech of words that are looked at, or of words that look.

    Attributes:
        direction: which of the two, in words.
        received: whether these words are looked at.
        heads: how often each occurs, and the head with the highest ratio, chosen on one half of
            the sentences and reported on the other.
        layers: heads together, by layer.
    """

    direction: str
    received: bool
    heads: PageTable
    layers: PageTable


@dataclass(frozen=True)
class SpeechSection(StackSection):
    """One kind of attention.

    Attributes:
        figures: maps over layers and over heads.
        directions: tables.
    """

    figures: tuple[Figure, ...]
    directions: tuple[DirectionSection, ...]


@dataclass(frozen=True, kw_only=True)
class SpeechPage(Page):
    """Parts of speech in all stacks.

    Attributes:
        sections: by stack; none without tags.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "speech.html"
    sections: tuple[SpeechSection, ...]
    remarks: tuple[str, ...]


def speech_page(results: Mapping[str, StackResults]) -> SpeechPage:
    """The page of parts of speech."""
    manifest = study_of(results).manifest
    directions = {name: [w for w in Direction if tags_of(r, w)] for name, r in results.items()}
    return SpeechPage(
        path="speech.html",
        title="Parts of speech",
        description=f"Attention of the heads of {manifest.model.name} to and from parts of speech, "
        "against uniform attention.",
        sections=tuple(
            _section(r, directions[name]) for name, r in results.items() if directions[name]
        ),
        remarks=tuple(
            dict.fromkeys(
                remark
                for name, r in results.items()
                for direction in Direction
                if direction not in directions[name]
                for remark in _remarks(manifest, r, direction)
            )
        ),
    )


def _remarks(manifest: Manifest, results: StackResults, direction: Direction) -> Iterator[str]:
    """Why a table is missing: the texts have no tags, or nobody asked for the metric."""
    side, found = side_of(results, direction), False
    for gap in manifest.gaps:
        if gap.key == MissingPart.TAGS and gap.stack and manifest.stack(gap.stack).keys is side:
            found = True
            yield gap_text(gap)
    lacking = [m for m in METRICS[direction] if m not in results.by_id]
    if lacking and not found:
        yield f"words {direction}: this study was made without {' and '.join(lacking)} (--metrics)"
    elif not found:
        yield f"words {direction}: no word that counts has a part of speech"


def _section(results: StackResults, directions: list[Direction]) -> SpeechSection:
    stack = results.stack
    return SpeechSection(
        stack=stack.name,
        figures=(layer_map(results, directions), head_map(results, directions[0])),
        directions=tuple(_direction(results, direction) for direction in directions),
    )


def _direction(results: StackResults, direction: Direction) -> DirectionSection:
    received = direction is Direction.LOOKED_AT
    tags = tags_of(results, direction)
    return DirectionSection(
        direction,
        received,
        PageTable(
            (*HEADS, "of all attention" if received else "uniform attention", "heads above 2×"),
            tuple(_rows(results, direction, tags)),
            f"{direction.capitalize()} by part of speech.",
            "numbers speech",
        ),
        PageTable(
            ("Tag", *results.stack.attention_layers),
            tuple(Row(_named(tag), tuple(_layers(results, direction, tag))) for tag in tags),
            "Ratio to uniform attention, and the share of attention.",
        ),
    )


def _named(tag: str) -> str:
    """The name before the code, where the tag is a universal one."""
    return f"{TAG_NAMES[tag]} ({tag})" if tag in TAG_NAMES else tag


def _rows(results: StackResults, direction: Direction, tags: Sequence[str]) -> Iterator[Row]:
    total = sum(
        n_words_of_tag(results, direction, tag) for tag in results.labels(METRICS[direction][0])
    )
    for tag in tags:
        count = n_words_of_tag(results, direction, tag)
        share = number(count / total if total else np.nan, share=True)
        best, twice = _best(results, direction, tag), _twice(results, direction, tag)
        yield Row(_named(tag), (f"{count:,}", share, *best, twice))


def _best(results: StackResults, direction: Direction, tag: str) -> tuple[Content, ...]:
    """A head, its ratio and its share of the attention to ordinary keys.

    Beside these: of words that are looked at, the share of all its attention, and that of the sink
    where it is large; of words that look, the share that uniform attention would give.
    """
    first, other = (partial(results.split, half) for half in (SELECTION, HELD_OUT))
    evens = [partial(half, of="uniform") for half in (first, other)]
    count = n_words_of_tag(results, direction, tag)
    ratios = cautious(over_chance(direction, first, evens[0], tag), count).trusted
    heads = [HeadName(results.stack.name, *place) for place in tied_places(ratios, number)]
    if not heads:
        return (DASH,) * 4
    head, *others = heads
    cell, note = (head.layer, head.head), tie_note([head_name(other) for other in others])
    if direction is Direction.LOOKED_AT:
        beside, sink = other(SHARE, SinkView.RAW, tag).at(*cell), much_to_sink(results, cell)
    else:
        beside, sink = evens[1](GIVEN, VIEW[direction], tag).at(cell[0]), np.nan
    apart = "" if np.isnan(sink) else f" (sink {percent(sink)})"
    return (
        words_cell(head_link(head), note) if note else head_link(head),
        NumberCell.of(over_chance(direction, other, evens[1], tag).at(*cell), all_metrics()[RATIO]),
        NumberCell.of(tag_share(direction, other, tag).at(*cell), all_metrics()[SHARE]),
        number(beside.value, share=True) + apart,
    )


def _twice(results: StackResults, direction: Direction, tag: str) -> str:
    """Heads whose interval lies above twice chance, among those with enough observations."""
    numbers = over_chance(direction, results.heads, results.uniform, tag)
    numbers = cautious(numbers, n_words_of_tag(results, direction, tag))
    enough = (numbers.events >= FEW_WORDS) & ~np.isnan(numbers.low)
    above = enough & (numbers.low > TWICE)
    return f"{above.sum():,} of {enough.sum():,}" if enough.any() else MISSING


def _layers(results: StackResults, direction: Direction, tag: str) -> Iterator[WordsCell]:
    ratio = over_chance(direction, results.layers, results.uniform, tag).value
    part = tag_share(direction, results.layers, tag).value
    events = observations(results, direction, tag)
    for layer in results.stack.attention_layers:
        thin = " thin" if events[layer] < FEW_WORDS else ""
        given = MarkedText(number(float(part[layer]), share=True), "small")
        yield words_cell(number(float(ratio[layer])), " ", given, style=f"number{thin}")
