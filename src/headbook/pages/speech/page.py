"""Parts of speech: what heads look at and what looks, against uniform attention."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from headbook.charts import Figure
from headbook.metrics import all_metrics
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.table import DASH, Content, Mark, Row, Table, Words, words
from headbook.pages.speech.tagattention import (
    GIVEN,
    METRICS,
    RATIO,
    SHARE,
    VIEW,
    Direction,
    cautious,
    head_map,
    layer_map,
    n_words,
    observations,
    over_chance,
    share,
    side_of,
    tags_of,
)
from headbook.report.findings import CHOICE, REPORT
from headbook.report.findings.finding import head_link
from headbook.report.numbers.extremes import tie_note, tied_places
from headbook.report.numbers.relationnames import TAG_NAMES
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.numbers.tagshares import much_to_sink
from headbook.report.wording import FEW_WORDS, MISSING, head_name, number, percent
from headbook.study.gaps import Lack
from headbook.study.manifest import Manifest
from headbook.study.sentencedata import HeadName
from headbook.terms import View

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
    heads: Table
    layers: Table


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
        if gap.key == Lack.TAGS and gap.stack and manifest.stack(gap.stack).keys is side:
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
        Table(
            (*HEADS, "of all attention" if received else "uniform attention", "heads above 2×"),
            tuple(_rows(results, direction, tags)),
            f"{direction.capitalize()} by part of speech.",
            "numbers speech",
        ),
        Table(
            ("Tag", *results.stack.attention_layers),
            tuple(Row(_named(tag), tuple(_layers(results, direction, tag))) for tag in tags),
            "Ratio to uniform attention, and the share of attention.",
        ),
    )


def _named(tag: str) -> str:
    """The name before the code, where the tag is a universal one."""
    return f"{TAG_NAMES[tag]} ({tag})" if tag in TAG_NAMES else tag


def _rows(results: StackResults, direction: Direction, tags: Sequence[str]) -> Iterator[Row]:
    total = sum(n_words(results, direction, tag) for tag in results.labels(METRICS[direction][0]))
    for tag in tags:
        count = n_words(results, direction, tag)
        share = number(count / total if total else np.nan, share=True)
        best, twice = _best(results, direction, tag), _twice(results, direction, tag)
        yield Row(_named(tag), (f"{count:,}", share, *best, twice))


def _best(results: StackResults, direction: Direction, tag: str) -> tuple[Content, ...]:
    """A head, its ratio and its share of the attention to ordinary keys.

    Beside these: of words that are looked at, the share of all its attention, and that of the sink
    where it is large; of words that look, the share that uniform attention would give.
    """
    first, other = (partial(results.half, half) for half in (CHOICE, REPORT))
    evens = [partial(half, of="uniform") for half in (first, other)]
    count = n_words(results, direction, tag)
    ratios = cautious(over_chance(direction, first, evens[0], tag), count).trusted
    heads = [HeadName(results.stack.name, *place) for place in tied_places(ratios, number)]
    if not heads:
        return (DASH,) * 4
    head, *others = heads
    cell, note = (head.layer, head.head), tie_note([head_name(other) for other in others])
    if direction is Direction.LOOKED_AT:
        beside, sink = other(SHARE, View.RAW, tag).at(*cell), much_to_sink(results, cell)
    else:
        beside, sink = evens[1](GIVEN, VIEW[direction], tag).at(cell[0]), np.nan
    apart = "" if np.isnan(sink) else f" (sink {percent(sink)})"
    return (
        words(head_link(head), note) if note else head_link(head),
        Cell.of(over_chance(direction, other, evens[1], tag).at(*cell), all_metrics()[RATIO]),
        Cell.of(share(direction, other, tag).at(*cell), all_metrics()[SHARE]),
        number(beside.value, share=True) + apart,
    )


def _twice(results: StackResults, direction: Direction, tag: str) -> str:
    """Heads whose interval lies above twice chance, among those with enough observations."""
    numbers = over_chance(direction, results.heads, results.uniform, tag)
    numbers = cautious(numbers, n_words(results, direction, tag))
    enough = (numbers.events >= FEW_WORDS) & ~np.isnan(numbers.low)
    above = enough & (numbers.low > TWICE)
    return f"{above.sum():,} of {enough.sum():,}" if enough.any() else MISSING


def _layers(results: StackResults, direction: Direction, tag: str) -> Iterator[Words]:
    ratio = over_chance(direction, results.layers, results.uniform, tag).value
    part = share(direction, results.layers, tag).value
    events = observations(results, direction, tag)
    for layer in results.stack.attention_layers:
        thin = " thin" if events[layer] < FEW_WORDS else ""
        given = Mark(number(float(part[layer]), share=True), "small")
        yield words(number(float(ratio[layer])), " ", given, style=f"number{thin}")
