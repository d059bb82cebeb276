"""Parts of speech: what heads look at and what looks, against uniform attention."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from headbook.charts import Figure
from headbook.metrics import all_metrics
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.page import Page, gap_text
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
from headbook.report.findings import CHOICE, REPORT, highest
from headbook.report.numbers.results import StackResults
from headbook.report.wording import FEW_WORDS, MISSING, STACKS, head_name, head_page, number
from headbook.study.gaps import Lack
from headbook.study.manifest import Manifest
from headbook.study.sentencedata import HeadName
from headbook.terms import UPOS, View

TWICE = 2.0


@dataclass(frozen=True)
class TagLayer:
    """A part of speech in a layer: times chance, share, and whether few observations are behind."""

    ratio: str
    share: str
    thin: bool


@dataclass(frozen=True)
class BestHead:
    """The head with the highest ratio for a part of speech.

    Attributes:
        name, href: the head and its page.
        ratio: times chance.
        share: share of the head's attention without the sink.
        beside: for words that are looked at, the share of all its attention; for words that look,
            the share that uniform attention would give.
    """

    name: str
    href: str
    ratio: Cell
    share: Cell
    beside: str


@dataclass(frozen=True)
class TagRow:
    """A part of speech.

    Attributes:
        tag: its name among the universal ones.
        words, frequency: how many words of the corpus have it, and their share.
        best: the head chosen on one half of the sentences, with its numbers on the other.
        twice: how many heads of those with enough observations lie above twice chance.
        layers: heads together, by layer.
    """

    tag: str
    words: str
    frequency: str
    best: BestHead | None
    twice: str
    layers: tuple[TagLayer, ...]


@dataclass(frozen=True)
class DirectionSection:
    """The parts of speech of words that are looked at, or of words that look.

    Attributes:
        direction: which of the two, in words.
        received: whether these words are looked at.
        rows: a part of speech each.
    """

    direction: str
    received: bool
    rows: tuple[TagRow, ...]


@dataclass(frozen=True)
class StackSection:
    """One kind of attention.

    Attributes:
        stack, title: as files and as pages call it.
        figures: maps over layers and over heads.
        layers: numbers of the layers that have attention.
        directions: tables.
    """

    stack: str
    title: str
    figures: tuple[Figure, ...]
    layers: tuple[int, ...]
    directions: tuple[DirectionSection, ...]


@dataclass(frozen=True, kw_only=True)
class SpeechPage(Page):
    """Parts of speech in all stacks.

    Attributes:
        sections: by stack; none without tags.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "speech.html"
    sections: tuple[StackSection, ...]
    remarks: tuple[str, ...]


def speech_page(results: Mapping[str, StackResults]) -> SpeechPage:
    """The page of parts of speech."""
    manifest = next(iter(results.values())).study.manifest
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
    lacking = [m for m in METRICS[direction] if m not in {metric.id for metric in results.metrics}]
    if lacking and not found:
        yield f"words {direction}: this study was made without {' and '.join(lacking)} (--metrics)"
    elif not found:
        yield f"words {direction}: no word that counts has a part of speech"


def _section(results: StackResults, directions: list[Direction]) -> StackSection:
    stack = results.stack
    return StackSection(
        stack=stack.name,
        title=STACKS[stack.name],
        figures=(layer_map(results, directions), head_map(results, directions[0])),
        layers=stack.attention_layers,
        directions=tuple(
            DirectionSection(d, d is Direction.LOOKED_AT, tuple(_rows(results, d)))
            for d in directions
        ),
    )


def _rows(results: StackResults, direction: Direction) -> Iterator[TagRow]:
    total = sum(n_words(results, direction, tag) for tag in UPOS)
    for tag in tags_of(results, direction):
        words = n_words(results, direction, tag)
        yield TagRow(
            tag=tag,
            words=f"{words:,}",
            frequency=number(words / total if total else np.nan, share=True),
            best=_best(results, direction, tag),
            twice=_twice(results, direction, tag),
            layers=tuple(_layers(results, direction, tag)),
        )


def _best(results: StackResults, direction: Direction, tag: str) -> BestHead | None:
    first, other = (partial(results.half, half) for half in (CHOICE, REPORT))
    evens = [partial(half, of="uniform") for half in (first, other)]
    words = n_words(results, direction, tag)
    cell = highest(cautious(over_chance(direction, first, evens[0], tag), words))
    if cell is None:
        return None
    head = HeadName(results.stack.name, *cell)
    if direction is Direction.LOOKED_AT:
        beside = other(SHARE, View.RAW, tag).at(*cell)
    else:
        beside = evens[1](GIVEN, VIEW, tag).at(cell[0])
    return BestHead(
        name=head_name(head),
        href=head_page(head),
        ratio=Cell.of(over_chance(direction, other, evens[1], tag).at(*cell), all_metrics()[RATIO]),
        share=Cell.of(share(direction, other, tag).at(*cell), all_metrics()[SHARE]),
        beside=number(beside.value, share=True),
    )


def _twice(results: StackResults, direction: Direction, tag: str) -> str:
    """Heads whose interval lies above twice chance, among those with enough observations."""
    numbers = over_chance(direction, results.heads, results.uniform, tag)
    numbers = cautious(numbers, n_words(results, direction, tag))
    enough = (numbers.events >= FEW_WORDS) & ~np.isnan(numbers.low)
    above = enough & (numbers.low > TWICE)
    return f"{above.sum():,} of {enough.sum():,}" if enough.any() else MISSING


def _layers(results: StackResults, direction: Direction, tag: str) -> Iterator[TagLayer]:
    ratio = over_chance(direction, results.layers, results.uniform, tag).value
    part = share(direction, results.layers, tag).value
    events = observations(results, direction, tag)
    for layer in results.stack.attention_layers:
        yield TagLayer(
            number(float(ratio[layer])),
            number(float(part[layer]), share=True),
            bool(events[layer] < FEW_WORDS),
        )
