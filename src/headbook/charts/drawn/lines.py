"""Curves over layers or steps with their names at the ends of the lines, drawn by hand."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.charts.base.drawing import INK, Drawing, drawing, written
from headbook.charts.base.render import BLUE, GREEN, GREY, ORANGE, PURPLE

WIDTH, HEIGHT = 420.0, 210.0
LEFT, TOP, BELOW, LABELS = 40.0, 12.0, 30.0, 150.0  # around the plot; LABELS to its right
APART = 16.0  # between the names of two lines
SMALL = 12
COLOURS = (ORANGE, BLUE, GREEN, PURPLE)


Ends = tuple[float, float]


class Line(NamedTuple):
    """One curve.

    Attributes:
        name: what stands at its end, before its last value.
        values, low, high: by place on the axis; NaN where one is missing. A line without an
            interval has NaN there.
        texts: its values, written.
        dashed: whether it is a baseline.
    """

    name: str
    values: Floats
    low: Floats
    high: Floats
    texts: Sequence[str]
    dashed: bool = False


class Axis(NamedTuple):
    """The horizontal axis.

    Attributes:
        places: of the points, 0 to 1, ascending.
        names: of the points, for who points at one.
        labels: places and what is written there.
        apart: whether the first point is on no line: what was before all others.
    """

    places: Sequence[float]
    names: Sequence[str]
    labels: Sequence[tuple[float, str]]
    apart: bool = False


def layer_lines(
    name: str,
    caption: str,
    lines: Sequence[Line],
    *,
    layers: Sequence[int],
    ends: Ends,
    ticks: Sequence[tuple[float, str]],
) -> Drawing:
    """Lines over layers.

    Args:
        ends: of the axis of values; nothing may lie outside.
        ticks: places on the axis of values, and how they are written.
    """
    return curves(name, caption, lines, axis=_of_layers(layers), ends=ends, ticks=ticks)


def curves(
    name: str,
    caption: str,
    lines: Sequence[Line],
    *,
    axis: Axis,
    ends: Ends,
    ticks: Sequence[tuple[float, str]],
) -> Drawing:
    """Lines over any axis; see `layer_lines`."""
    parts = [*axes(axis, ends, ticks)]
    inks = [*_inks(lines)]
    for line, ink in zip(lines, inks, strict=True):
        parts += _line(line, ink, ends, axis)
    parts += _names(lines, inks, ends)
    return drawing(name, caption, WIDTH, HEIGHT, parts)


def _of_layers(layers: Sequence[int]) -> Axis:
    size = len(layers)
    places = [place / (size - 1) for place in range(size)] if size > 1 else [0.5] * size
    every = -(-size // 8)
    labels = [
        (places[n], f"layer {layer}" if n == 0 else str(layer))
        for n, layer in enumerate(layers)
        if n % every == 0
    ]
    return Axis(places, [f"layer {layer}" for layer in layers], labels)


def _inks(lines: Sequence[Line]) -> Iterator[str]:
    colours = iter(COLOURS)
    for line in lines:
        yield GREY if line.dashed else next(colours)


def x_of(place: float) -> float:
    """Pixels from the left, of a place from 0 to 1."""
    return LEFT + (WIDTH - LABELS - LEFT) * place


def y_of(value: float, ends: Ends) -> float:
    """Pixels from the top, of a value."""
    low, high = ends
    return TOP + (HEIGHT - BELOW - TOP) * (high - value) / (high - low)


def axes(axis: Axis, ends: Ends, ticks: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Both axes of a picture of curves."""
    for value, text in ticks:
        y = y_of(value, ends)
        yield f'<path d="M{LEFT:.0f} {y:.1f}H{WIDTH - LABELS:.0f}" stroke="{INK}" stroke-opacity="0.15"/>'  # noqa: E501
        yield written(text, LEFT - 6, y + 4, SMALL, anchor="end")
    for place, label in axis.labels:
        yield written(label, x_of(place), HEIGHT - 8, SMALL)


def _line(line: Line, ink: str, ends: Ends, axis: Axis) -> Iterator[str]:
    there = [n for n, value in enumerate(line.values) if not np.isnan(value)]
    x, joined = [*map(x_of, axis.places)], [n for n in there if n or not axis.apart]
    known = [n for n in joined if not np.isnan(line.low[n])]
    if len(known) > 1:
        upper = [f"{x[n]:.1f},{y_of(min(line.high[n], ends[1]), ends):.1f}" for n in known]
        lower = [f"{x[n]:.1f},{y_of(max(line.low[n], ends[0]), ends):.1f}" for n in reversed(known)]
        yield f'<path d="M{"L".join([*upper, *lower])}Z" fill="{ink}" fill-opacity="0.16"/>'
    points = [f"{x[n]:.1f},{y_of(line.values[n], ends):.1f}" for n in joined]
    if points:
        dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
        width = 1.6 if line.dashed else 2.2
        yield f'<path d="M{"L".join(points)}" fill="none" stroke="{ink}" stroke-width="{width}"{dashes}/>'  # noqa: E501
    if not line.dashed:
        for n in there:
            at = f'cx="{x[n]:.1f}" cy="{y_of(line.values[n], ends):.1f}"'
            texts = f"{line.name}, {axis.names[n]}: {line.texts[n]}"
            yield f'<circle {at} r="2.6" fill="{ink}"><title>{escape(texts)}</title></circle>'


def _names(lines: Sequence[Line], inks: Sequence[str], ends: Ends) -> Iterator[str]:
    known = {n: np.flatnonzero(~np.isnan(line.values)) for n, line in enumerate(lines)}
    last = {n: int(places[-1]) for n, places in known.items() if len(places)}
    wanted = [(y_of(float(lines[n].values[position]), ends), n) for n, position in last.items()]
    for y, n in apart(wanted):
        line = lines[n]
        yield (
            f'<text x="{WIDTH - LABELS + 8:.1f}" y="{y + 4:.1f}" font-size="{SMALL}" '
            f'fill="{inks[n]}" font-weight="600" text-anchor="start">{escape(line.name)} '
            f'<tspan font-weight="400" fill="{INK}">{escape(line.texts[last[n]])}</tspan></text>'
        )


def apart(wanted: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Heights of names at the ends of lines, moved apart where lines end together."""
    ordered = sorted(wanted)
    places: list[float] = []
    for y, _ in ordered:
        places.append(max(y, places[-1] + APART if places else y))
    over = max(places[-1] - (HEIGHT - BELOW), 0.0) if places else 0.0
    yield from ((y - over, n) for y, (_, n) in zip(places, ordered, strict=True))
