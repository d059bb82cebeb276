"""Parts of speech, dependency relations, and trees over a sentence."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from headbook.charts.axes import LAYER_NAMES, rounded_rows, styled_spec
from headbook.charts.drawing import Drawing, drawing, guessed_width, svg_text
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.theme import (
    FAINT,
    GREY,
    INK,
    ramp,
)

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


MAX_OCTAVES = 2  # the colour scale ends at ratios of 1/4 and 4 to uniform attention
OCTAVE_COLOURS = 8  # colours of an octave; fewer than could be told apart would show as bands
TAG_PIXELS = 16  # height of a row
LAYER_PIXELS = (10, 40)  # least and largest width of a layer
HEAD_PIXELS = (2, 13)  # least and largest width of a head
MIN_NUMBERED_PIXELS = 4  # width of a head above which some heads have numbers
NUMBER_PIXELS = 14  # width of the number of a head
NAMED_LAYER_PIXELS = 44  # width of a layer above which it is named "layer 12", else "12"
MAX_HEADS_PIXELS = 1040  # width of a map of all heads


@lazy_figure()
def tag_layers(rows: pd.DataFrame, *, tags: Sequence[str]) -> SpecAndRows:
    """Draw parts of speech by layer, in a panel for each direction of attention.

    Args:
        rows: columns ``way, tag, layer, ratio, low, high, share, words, thin``.
        tags: tags from top to bottom.
    """
    table, rows = rows, rounded_rows(rows)
    directions = list(dict.fromkeys(rows["way"]))
    n_layers = rows["layer"].nunique()
    chart = _rectangles(rows, tags, ["layer:O"])
    chart = chart.encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(ticks=False, domain=False, **LAYER_NAMES)),
        column=alt.Column(
            "way:N", title=None, sort=directions, header=alt.Header(labelAnchor="start")
        ),
    )
    width = alt.Step(_within(480 // max(n_layers, 1), LAYER_PIXELS))
    return styled_spec(chart.properties(width=width, height=alt.Step(TAG_PIXELS))), table


@lazy_figure()
def tag_heads(rows: pd.DataFrame, *, tags: Sequence[str], n_heads: int) -> SpecAndRows:
    """Draw parts of speech by head, with a gap between layers.

    Args:
        rows: columns ``head, tag, layer, number, ratio, low, high, share, words, thin``;
            ``head`` is the name of a head, ``number`` its place in the layer.
        tags: tags from top to bottom.
        n_heads: heads of a layer.
    """
    table, rows = rows, rounded_rows(rows)
    layers = sorted(set(rows["layer"]))
    series = rows["layer"].map(layers.index) * (n_heads + 1) + rows["number"]
    total = len(layers) * (n_heads + 1) - 1
    pixels = _within(MAX_HEADS_PIXELS // max(total, 1), HEAD_PIXELS)
    axis = _head_axis(layers, n_heads)
    scale = alt.Scale(domain=[0, total], nice=False)
    chart = _rectangles(rows.assign(start=series, end=series + 1), tags, ["head:N"])
    title = (
        "head" if pixels * (n_heads + 1) > NAMED_LAYER_PIXELS else "layer (a column for each head)"
    )
    chart = chart.encode(x=alt.X("start:Q", title=title, scale=scale, axis=axis), x2="end:Q")
    return styled_spec(chart.properties(width=total * pixels, height=alt.Step(TAG_PIXELS))), table


def _head_axis(layers: Sequence[int], n_heads: int) -> alt.Axis:
    """Return an axis with numbers of heads, if they fit, and numbers of layers below."""
    step, half = n_heads + 1, n_heads // 2
    head = f"floor(datum.value) % {step}"
    pixels = f"width / {len(layers) * step - 1}"  # pixels of a head
    number = (
        f"({head}) % ceil({NUMBER_PIXELS} / ({pixels})) == 0 "
        f"&& {pixels} > {MIN_NUMBERED_PIXELS} ? {head} : ''"
    )
    layer_index, layer_pixels = f"floor(datum.value / {step})", f"({pixels}) * {step}"
    layer_word = f"({layer_pixels} > {NAMED_LAYER_PIXELS} ? 'layer ' : '')"
    has_label = f"{head} == {half} && {layer_index} % ceil({NUMBER_PIXELS} / ({layer_pixels})) == 0"
    layer = f"{layer_word} + {json.dumps(layers)}[{layer_index}]"
    return alt.Axis(
        values=[n * step + x + 0.5 for n in range(len(layers)) for x in range(n_heads)],
        labelExpr=f"[{number}, {has_label} ? {layer} : '']",
        labelFontSize=9.5,
        labelOverlap=False,
        grid=False,
        ticks=False,
        domain=False,
    )


def _rectangles(rows: pd.DataFrame, tags: Sequence[str], names: Sequence[str]) -> Any:
    """Draw cells coloured by ratio, a row for each tag; grey if they rest on too few words.

    Cells of one colour come together, so that a picture can draw them as one shape.

    Args:
        names: fields that a tooltip begins with.
    """
    rows = rows[rows["ratio"].notna()]
    with np.errstate(divide="ignore"):
        octaves = np.log2(rows["ratio"].to_numpy(float)).clip(-MAX_OCTAVES, MAX_OCTAVES)
    rows = rows.assign(octaves=(octaves * OCTAVE_COLOURS).round() / OCTAVE_COLOURS + 0.0)
    rows = rows.sort_values(["thin", "octaves"], kind="stable", ignore_index=True)
    number_tooltips = [
        alt.Tooltip(f"{column}:Q", format=".3~g") for column in ("ratio", "low", "high")
    ]
    number_tooltips += [alt.Tooltip("share:Q", format=".2~%"), alt.Tooltip("words:Q", format=",")]
    return (
        alt.Chart(rows)
        .mark_rect()
        .encode(
            y=alt.Y("tag:N", title=None, sort=[*tags], axis=alt.Axis(ticks=False, domain=False)),
            color=alt.condition(alt.datum.thin, alt.value(FAINT), _colour()),
            tooltip=[*names, "tag:N", *number_tooltips],
        )
    )


def _colour() -> alt.Color:
    """Return the colours: orange below chance, blue above; a legend's step is an octave."""
    power = "pow(2, abs(datum.value))"
    return alt.Color(
        "octaves:Q",
        title="ratio to uniform attention",
        scale=ramp((-MAX_OCTAVES, MAX_OCTAVES)),
        legend=alt.Legend(
            orient="top",
            values=[*range(-MAX_OCTAVES, MAX_OCTAVES + 1)],
            labelExpr=f"(datum.value < 0 ? '1/' : '') + {power}",
            gradientLength=200,
        ),
    )


def _within(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])
