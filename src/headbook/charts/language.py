"""Sentences with arcs between their words, heads as a grid of fills, and multiples by layer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts.drawing import Drawing, drawing, guessed_width, svg_text
from headbook.charts.plots import MAX_LINKED_MARKS, Line, Plot, Scale, Series, layer_plot
from headbook.charts.theme import GREY, INK

LETTER_PIXELS, WIDE_LETTER_PIXELS = 6.9, 12.0  # widths of a Latin and of an East Asian letter
LABEL_LETTER_PIXELS = 5.6  # width of a letter in the label of an arc
WORD_DISTANCE = 14.0  # pixels between words
MARGIN = 8.0  # pixels around the picture
ARC_LEVEL_PIXELS = 17.0  # height from one arc to the next above it
LINE_DISTANCE = 7.0  # pixels between a word and its lines
TEXT_PIXELS = 12  # size of letters: 9 points
MAX_LINE_PIXELS = 7.0  # width of a line of weight 1
PLAIN_PIXELS, MARKED_PIXELS = 1.3, 2.6  # widths of lines without a weight


class Arc(NamedTuple):
    """A line from a word to a word, with an arrow at its end.

    Attributes:
        weight: weight that sets its width, from 0 to 1; None for a thin line.
        marked: whether it is dark, over the other arcs.
        label: text at its middle.
    """

    start: int
    end: int
    weight: float | None = None
    marked: bool = False
    label: str = ""


def arc_diagram(
    name: str, caption: str, words: Sequence[str], above: Sequence[Arc], below: Sequence[Arc]
) -> Drawing:
    """Draw words in a row, one set of arcs above and one below."""
    centres = _centres(words, above)
    levels_by_side = [_levels([(arc.start, arc.end) for arc in arcs]) for arcs in (above, below)]
    heights = [
        LINE_DISTANCE + ARC_LEVEL_PIXELS * max(levels, default=0) for levels in levels_by_side
    ]
    baseline = MARGIN + heights[0] + TEXT_PIXELS
    elements = [*_words(words, centres, baseline)]
    side_starts = (baseline - TEXT_PIXELS - 2, -1), (baseline + 6, 1)
    for arcs, levels, (start, direction) in zip(
        (above, below), levels_by_side, side_starts, strict=True
    ):
        # Marked arcs are drawn last, over the others.
        for arc, level in sorted(
            zip(arcs, levels, strict=True), key=lambda arc_and_level: arc_and_level[0].marked
        ):
            elements += _arc(
                arc, centres, start, direction * (LINE_DISTANCE + ARC_LEVEL_PIXELS * level)
            )
    elements.sort(key=lambda element: element.startswith("<text"))  # no line crosses a letter
    width = centres[-1] + _width(words[-1]) / 2 + MARGIN if words else MARGIN
    return drawing(name, caption, width, baseline + 6 + heights[1] + MARGIN, elements)


def _words(words: Sequence[str], centres: Sequence[float], baseline: float) -> Iterator[str]:
    for word, x in zip(words, centres, strict=True):
        yield svg_text(word, x, baseline, TEXT_PIXELS)


def _width(word: str, letter: float = LETTER_PIXELS) -> float:
    """Return an upper estimate of the width of a word in pixels."""
    return guessed_width(word, letter, WIDE_LETTER_PIXELS)


def _centres(words: Sequence[str], arcs: Sequence[Arc]) -> list[float]:
    """Return the middle of each word, far enough apart for words and labels of arcs."""
    centres: list[float] = []
    for index, word in enumerate(words):
        half = _width(word) / 2
        x = MARGIN + half
        if index:
            x = centres[-1] + _width(words[index - 1]) / 2 + WORD_DISTANCE + half
        for arc in arcs:
            first, last = sorted(arc[:2])
            if last == index:
                x = max(x, centres[first] + _width(arc.label, LABEL_LETTER_PIXELS) + WORD_DISTANCE)
        centres.append(x)
    return centres


def _levels(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the distance of each line from the words, from 1, above the lines that it overlaps."""
    levels = [0] * len(spans)
    ends = [tuple(sorted(span)) for span in spans]
    order = sorted(range(len(spans)), key=lambda index: ends[index][1] - ends[index][0])
    for n_placed, index in enumerate(order):
        first, last = ends[index]
        levels_below = [0]
        for other in order[:n_placed]:
            start, end = ends[other]
            if max(first, start) < min(last, end):
                levels_below.append(levels[other])
        levels[index] = max(levels_below) + 1
    return levels


def _arc(arc: Arc, centres: Sequence[float], y: float, reach: float) -> Iterator[str]:
    """Draw a curve between two words with an arrow at its end, and its label.

    Args:
        reach: how far its control points are from the words; negative upwards.
    """
    shift = 4.0 if arc.end > arc.start else -4.0
    start_x, end_x = centres[arc.start] + shift, centres[arc.end] - shift
    ink = INK if arc.marked else GREY
    plain = MARKED_PIXELS if arc.marked else PLAIN_PIXELS
    size = plain if arc.weight is None else max(0.6, MAX_LINE_PIXELS * arc.weight)
    arrow_height = 5.0 if reach > 0 else -5.0
    top = f"{y + reach:.1f}"
    curve = f"M{start_x:.1f} {y:.1f}C{start_x:.1f} {top} {end_x:.1f} {top} {end_x:.1f}"
    line = f'fill="none" stroke="{ink}" stroke-width="{size:.1f}"'
    yield f'<path d="{curve} {y + arrow_height:.1f}" {line}/>'
    yield f'<path d="M{end_x:.1f} {y:.1f}l-3 {arrow_height:.1f}h6z" fill="{ink}"/>'
    if arc.label:
        yield svg_text(arc.label, (start_x + end_x) / 2, y + 0.75 * reach - 2, 10, ink)


RATIO_TICKS = (1 / 8, 1 / 4, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)
MOST_STRONG = 4  # lines that are drawn at full strength: those that end farthest from 1
HEIGHT = 430.0  # pixels
LONG_NAME = 15  # letters of a name that fits the narrower column of labels


def ratio_lines(name: str, caption: str, lines: Sequence[Line], layers: Sequence[int]) -> Plot:
    """Draw multiples of a baseline by layer on a logarithmic scale, around a dashed line at 1.

    Lines that end near 1 step back; one without any interval is hollow. Intervals are in the file.
    """
    linked = sum(len(line.numbers) for line in lines) <= MAX_LINKED_MARKS
    series = [line.series if linked else line.series._replace(hrefs=()) for line in lines]
    strong = sorted(series, key=_end_distance, reverse=True)[:MOST_STRONG]
    strong_names = {line.name for line in strong}
    values = np.concatenate([line.values for line in series])
    known = values[values > 0]
    low, high = min(known.min(initial=1.0), 0.8) / 1.05, max(known.max(initial=1.0), 1.25) * 1.05
    nothing = np.full(len(layers), np.nan)  # of bands, which would cover each other
    plot = layer_plot(
        name,
        caption
        + " Strong lines: farthest from 1× in the last layer." * (len(series) > MOST_STRONG)
        + " Hollow: too few sentences for an interval." * any(line.hollow for line in series),
        [
            line._replace(low=nothing, high=nothing, faint=line.name not in strong_names)
            for line in series
        ],
        [str(layer) for layer in layers],
        scale=Scale(float(low), float(high), HEIGHT, top=16, log=True),
        ticks=[(tick, f"{tick:g}×") for tick in RATIO_TICKS if low <= tick <= high],
        baselines=[(1.0, "")],
        label_width=160 if max(len(line.name) for line in series) <= LONG_NAME else 200,
    )
    ends = [np.concatenate([getattr(line, end) for line in series]) for end in ("low", "high")]
    return replace(plot, rows=plot.rows.assign(low=ends[0], high=ends[1]))


def _end_distance(line: Series) -> float:
    """Return how far the last known number of a line is from 1, in octaves."""
    known: Floats = line.values[line.values > 0]
    return float(abs(np.log2(known[-1]))) if len(known) else 0.0
