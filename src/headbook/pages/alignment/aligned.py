"""Sentences of two texts with their links, as pages draw them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.charts.base import images
from headbook.charts.base.ink import ink
from headbook.pages.parts.table import Row, Table, words
from headbook.pages.widgets.sources import Label
from headbook.report.numbers.alignment import NO_SOURCE, Links, links
from headbook.report.numbers.results import StackResults
from headbook.report.wording import (
    head_name,
    head_page,
    sentence_page,
    shortened,
    stored_weight,
    visible,
)
from headbook.study.sentencedata import STEPS, HeadName, StoredSentence

MOST_TOKENS = 32  # of a text in pictures
LINE = 17  # units from one token to the next
LETTERS = 16  # of a token in a picture
WIDTH = 8  # units that a letter takes at most, in most scripts
REACH, GAP = 70, 12  # units between the two texts, and around them
PIXELS = 120  # most that a map's picture is wide; its rows stand beside their tokens
COLOURS = 64  # a picture carries its palette


@dataclass(frozen=True)
class Stroke:
    """A line from a target token to its strongest source.

    Attributes:
        source, target: heights at which it begins and ends.
        width: as wide as its weight, in units of the picture.
        note: the tokens and the weight in words.
    """

    source: float
    target: float
    width: float
    note: str


@dataclass(frozen=True)
class Drawn:
    """A head in a sentence: source and target side by side, and the map.

    Attributes:
        name, href: the head and its page.
        view: the sentence's page with this head open.
        note: what is drawn; also its text for who cannot see it.
        left, right, height: units of the picture to the left and right of the lines' beginning, and
            from top to bottom.
        sources, targets: names of the tokens.
        strokes: the links.
        image: its map as an image address, rows are target tokens; ``width`` by ``tall`` pixels.
        most: its largest weight, which has the strongest colour.
    """

    name: str
    href: str
    view: str
    note: str
    left: int
    right: int
    height: int
    sources: tuple[Label, ...]
    targets: tuple[Label, ...]
    strokes: tuple[Stroke, ...]
    image: str
    width: int
    tall: int
    most: str


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence with its links.

    Attributes:
        name, href: the sentence and its page.
        heads: the first heads of the table.
        table: the same links: a target token, and its source by each head.
        cut: tokens of the longer text that pictures and table leave out.
    """

    name: str
    href: str
    heads: tuple[Drawn, ...]
    table: Table
    cut: int


def aligned_sentence(
    results: StackResults, sentence: StoredSentence, heads: Sequence[HeadName]
) -> AlignedSentence | None:
    """A sentence by some heads; None where it has no links."""
    made = links(results, sentence)
    if made is None:
        return None
    sources, targets = _names(results, sentence, made)
    longest = max(len(made.sources), len(made.targets))
    return AlignedSentence(
        name=f"Sentence {sentence.number}",
        href=sentence_page(sentence.number),
        heads=tuple(_drawn(results, sentence, made, h) for h in heads),
        table=Table(
            ("Target", *map(head_name, heads)),
            tuple(
                Row(
                    words(name, foreign=True),
                    tuple(words(_label(made, h, row, sources), foreign=True) for h in heads),
                )
                for row, name in enumerate(targets)
            ),
            "Source with the largest weight for each target token.",
            "numbers linked",
        ),
        cut=max(0, longest - MOST_TOKENS),
    )


def _names(
    results: StackResults, sentence: StoredSentence, made: Links
) -> tuple[list[str], list[str]]:
    """The first source and target tokens that count."""
    sides = (results.stack.keys, made.sources), (results.stack.queries, made.targets)
    sources, targets = (
        [visible(sentence.texts[side].pieces[i]) for i in places[:MOST_TOKENS]]
        for side, places in sides
    )
    return sources, targets


def _label(made: Links, head: HeadName, row: int, sources: Sequence[str]) -> str:
    """The strongest source of a target token with its weight."""
    position = int(made.best[head.layer, head.head, row])
    if position == NO_SOURCE:
        return "none"
    name = sources[position] if position < len(sources) else "a later token"
    return f"{name} {stored_weight(int(made.weight[head.layer, head.head, row]))}"


def _drawn(results: StackResults, sentence: StoredSentence, made: Links, head: HeadName) -> Drawn:
    sources, targets = _names(results, sentence, made)
    maps = results.study.sentence_data.maps[results.stack.name, sentence.index]
    rows, columns = made.targets[:MOST_TOKENS], made.sources[:MOST_TOKENS]
    cells = maps[head.layer, head.head][np.ix_(rows, columns)]
    most = max(int(cells.max()), 1)
    labels = [tuple(_labels(names)) for names in (sources, targets)]
    left, right = (max(WIDTH * len(label.text) for label in each) for each in labels)
    return Drawn(
        name=head_name(head),
        href=head_page(head),
        view=f"{sentence_page(sentence.number)}#at={results.stack.name}&heads={head.layer}.{head.head}",
        note=f"Links of {head_name(head)} in sentence {sentence.number}, source on the left, "
        "target on the right; the table below has them in words.",
        left=left + GAP,
        right=right + GAP + REACH,
        height=LINE * max(map(len, labels)) + 6,
        sources=labels[0],
        targets=labels[1],
        strokes=tuple(_strokes(made, head, sources, targets)),
        image=images.preview((cells / most * (COLOURS - 1)).astype(np.uint8), ink(COLOURS)),
        width=min(LINE, PIXELS // len(columns)) * len(columns),
        tall=LINE * len(rows),
        most=stored_weight(most),
    )


def _labels(names: Sequence[str]) -> Iterator[Label]:
    for row, name in enumerate(names):
        yield Label(LINE * (row + 0.5), shortened(name, LETTERS))


def _strokes(
    made: Links, head: HeadName, sources: Sequence[str], targets: Sequence[str]
) -> Iterator[Stroke]:
    for row, name in enumerate(targets):
        position = int(made.best[head.layer, head.head, row])
        if position == NO_SOURCE or position >= len(sources):
            continue
        steps = int(made.weight[head.layer, head.head, row])
        weight = steps / STEPS
        note = f"“{name}” attends to “{sources[position]}”: {stored_weight(steps)}"
        yield Stroke(LINE * (position + 0.5), LINE * (row + 0.5), round(0.5 + 4 * weight, 2), note)
