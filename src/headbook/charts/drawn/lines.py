"""Curves over layers with their names at the ends of the lines, drawn by hand for the overview."""

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
    parts = [*_axes(layers, ends, ticks)]
    inks = [*_inks(lines)]
    for line, ink in zip(lines, inks, strict=True):
        parts += _line(line, ink, ends, layers)
    parts += _names(lines, inks, ends)
    return drawing(name, caption, WIDTH, HEIGHT, parts)


def _inks(lines: Sequence[Line]) -> Iterator[str]:
    colours = iter(COLOURS)
    for line in lines:
        yield GREY if line.dashed else next(colours)


def _x(place: int, size: int) -> float:
    return LEFT + (WIDTH - LABELS - LEFT) * (place / max(size - 1, 1) if size > 1 else 0.5)


def _y(value: float, ends: Ends) -> float:
    low, high = ends
    return TOP + (HEIGHT - BELOW - TOP) * (high - value) / (high - low)


def _axes(layers: Sequence[int], ends: Ends, ticks: Sequence[tuple[float, str]]) -> Iterator[str]:
    for value, text in ticks:
        y = _y(value, ends)
        yield f'<path d="M{LEFT:.0f} {y:.1f}H{WIDTH - LABELS:.0f}" stroke="{INK}" stroke-opacity="0.15"/>'  # noqa: E501
        yield written(text, LEFT - 6, y + 4, SMALL, anchor="end")
    every = -(-len(layers) // 8)
    for index, layer in enumerate(layers):
        if index % every == 0:
            label = f"layer {layer}" if index == 0 else str(layer)
            yield written(label, _x(index, len(layers)), HEIGHT - 8, SMALL)


def _line(line: Line, ink: str, ends: Ends, layers: Sequence[int]) -> Iterator[str]:
    there = [n for n, value in enumerate(line.values) if not np.isnan(value)]
    size = len(line.values)
    known = [n for n in there if not np.isnan(line.low[n])]
    if len(known) > 1:
        upper = [f"{_x(n, size):.1f},{_y(min(line.high[n], ends[1]), ends):.1f}" for n in known]
        lower = [
            f"{_x(n, size):.1f},{_y(max(line.low[n], ends[0]), ends):.1f}" for n in reversed(known)
        ]
        yield f'<path d="M{"L".join([*upper, *lower])}Z" fill="{ink}" fill-opacity="0.16"/>'
    points = [f"{_x(n, size):.1f},{_y(line.values[n], ends):.1f}" for n in there]
    if points:
        dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
        width = 1.6 if line.dashed else 2.2
        yield f'<path d="M{"L".join(points)}" fill="none" stroke="{ink}" stroke-width="{width}"{dashes}/>'  # noqa: E501
    if not line.dashed:
        for n in there:
            at = f'cx="{_x(n, size):.1f}" cy="{_y(line.values[n], ends):.1f}"'
            texts = f"{line.name}, layer {layers[n]}: {line.texts[n]}"
            yield f'<circle {at} r="2.6" fill="{ink}"><title>{escape(texts)}</title></circle>'


def _names(lines: Sequence[Line], inks: Sequence[str], ends: Ends) -> Iterator[str]:
    """Names at the ends, moved apart where lines end together."""
    known = {n: np.flatnonzero(~np.isnan(line.values)) for n, line in enumerate(lines)}
    last = {n: int(places[-1]) for n, places in known.items() if len(places)}
    wanted = sorted((_y(float(lines[n].values[position]), ends), n) for n, position in last.items())
    places: list[float] = []
    for y, _ in wanted:
        places.append(max(y, places[-1] + APART if places else y))
    over = max(places[-1] - (HEIGHT - BELOW), 0.0) if places else 0.0
    for (_, n), y in zip(wanted, places, strict=True):
        x, line = WIDTH - LABELS + 8, lines[n]
        yield (
            f'<text x="{x:.1f}" y="{y - over + 4:.1f}" font-size="{SMALL}" fill="{inks[n]}" '
            f'font-weight="600" text-anchor="start">{escape(line.name)} '
            f'<tspan font-weight="400" fill="{INK}">{escape(line.texts[last[n]])}</tspan></text>'
        )
