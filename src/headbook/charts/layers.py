"""Charts over layers: curves of metrics, curves with names at their ends, matrix of states."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts.axes import (
    CHANCE,
    CURVE,
    LAYER_NAMES,
    NAME_DISTANCE,
    NAMED_CURVE_WIDTH,
    SHARE_FORMAT,
    UNIFORM,
    axis_heading,
    number_tooltips,
    spread_values,
    styled_spec,
    text_tooltips,
)
from headbook.charts.drawing import Drawing, drawing, svg_text
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.theme import CURVES, GREY, INK, SERIES

WIDTH, HEIGHT = 420.0, 210.0
# Pixels around the plot; names of lines are on its right.
LEFT, TOP, BELOW, LABELS_WIDTH = 40.0, 12.0, 30.0, 150.0
LABEL_DISTANCE = 16.0  # pixels between the names of two lines
TEXT_PIXELS = 12  # font size


Ends = tuple[float, float]


class Curve(NamedTuple):
    """One curve.

    Attributes:
        name: name at the end of the curve, before the last value.
        values, low, high: values and their intervals by point of the axis; NaN if missing.
        texts: values as text.
        dashed: whether the curve is a baseline.
    """

    name: str
    values: Floats
    low: Floats
    high: Floats
    texts: Sequence[str]
    dashed: bool = False


class CurveAxis(NamedTuple):
    """The horizontal axis.

    Attributes:
        places: places of the points, 0 to 1, ascending.
        names: names of the points in tooltips.
        labels: places of the labels, and their texts.
        apart: whether the first point stands apart, and lines begin at the second one.
    """

    places: Sequence[float]
    names: Sequence[str]
    labels: Sequence[tuple[float, str]]
    apart: bool = False


def layer_lines(
    name: str,
    caption: str,
    lines: Sequence[Curve],
    *,
    layers: Sequence[int],
    ends: Ends,
    ticks: Sequence[tuple[float, str]],
) -> Drawing:
    """Draw lines over layers.

    Args:
        ends: ends of the axis of values, which no value may exceed.
        ticks: values with a tick, and their texts.
    """
    return curves(name, caption, lines, axis=_layer_axis(layers), ends=ends, ticks=ticks)


def curves(
    name: str,
    caption: str,
    lines: Sequence[Curve],
    *,
    axis: CurveAxis,
    ends: Ends,
    ticks: Sequence[tuple[float, str]],
) -> Drawing:
    """Draw lines over any axis.

    Args:
        ends: ends of the axis of values, which no value may exceed.
        ticks: values with a tick, and their texts.
    """
    elements = [*draw_axes(axis, ends, ticks)]
    inks = [*_inks(lines)]
    for line, ink in zip(lines, inks, strict=True):
        elements += _line(line, ink, ends, axis)
    elements += _names(lines, inks, ends)
    return drawing(name, caption, WIDTH, HEIGHT, elements)


def _layer_axis(layers: Sequence[int]) -> CurveAxis:
    n_layers = len(layers)
    places = (
        [place / (n_layers - 1) for place in range(n_layers)] if n_layers > 1 else [0.5] * n_layers
    )
    label_distance = -(-n_layers // 8)
    labels = [
        (places[index], f"layer {layer}" if index == 0 else str(layer))
        for index, layer in enumerate(layers)
        if index % label_distance == 0
    ]
    return CurveAxis(places, [f"layer {layer}" for layer in layers], labels)


def _inks(lines: Sequence[Curve]) -> Iterator[str]:
    unused_colours = iter(CURVES)
    for line in lines:
        yield GREY if line.dashed else next(unused_colours)


def x_of(place: float) -> float:
    """Return the pixels from the left of a place from 0 to 1."""
    return LEFT + (WIDTH - LABELS_WIDTH - LEFT) * place


def y_of(value: float, ends: Ends) -> float:
    """Return the pixels from the top of a value."""
    low, high = ends
    return TOP + (HEIGHT - BELOW - TOP) * (high - value) / (high - low)


def draw_axes(axis: CurveAxis, ends: Ends, ticks: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Draw both axes of a picture of curves."""
    for value, text in ticks:
        y = y_of(value, ends)
        yield f'<path d="M{LEFT:.0f} {y:.1f}H{WIDTH - LABELS_WIDTH:.0f}" stroke="{INK}" stroke-opacity="0.15"/>'  # noqa: E501
        yield svg_text(text, LEFT - 6, y + 4, TEXT_PIXELS, anchor="end")
    for place, label in axis.labels:
        yield svg_text(label, x_of(place), HEIGHT - 8, TEXT_PIXELS)


def _line(line: Curve, ink: str, ends: Ends, axis: CurveAxis) -> Iterator[str]:
    known_values = [point for point, value in enumerate(line.values) if not np.isnan(value)]
    x, on_line = (
        [*map(x_of, axis.places)],
        [point for point in known_values if point or not axis.apart],
    )
    with_interval = [point for point in on_line if not np.isnan(line.low[point])]
    if len(with_interval) > 1:
        upper = [
            f"{x[point]:.1f},{y_of(min(line.high[point], ends[1]), ends):.1f}"
            for point in with_interval
        ]
        lower = [
            f"{x[point]:.1f},{y_of(max(line.low[point], ends[0]), ends):.1f}"
            for point in reversed(with_interval)
        ]
        yield f'<path d="M{"L".join([*upper, *lower])}Z" fill="{ink}" fill-opacity="0.16"/>'
    points = [f"{x[point]:.1f},{y_of(line.values[point], ends):.1f}" for point in on_line]
    if points:
        dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
        width = 1.6 if line.dashed else 2.2
        yield f'<path d="M{"L".join(points)}" fill="none" stroke="{ink}" stroke-width="{width}"{dashes}/>'  # noqa: E501
    if not line.dashed:
        for point in known_values:
            position = f'cx="{x[point]:.1f}" cy="{y_of(line.values[point], ends):.1f}"'
            texts = f"{line.name}, {axis.names[point]}: {line.texts[point]}"
            yield f'<circle {position} r="2.6" fill="{ink}"><title>{escape(texts)}</title></circle>'


def _names(lines: Sequence[Curve], inks: Sequence[str], ends: Ends) -> Iterator[str]:
    points_with_value = {
        index: np.flatnonzero(~np.isnan(line.values)) for index, line in enumerate(lines)
    }
    last = {index: int(places[-1]) for index, places in points_with_value.items() if len(places)}
    label_heights = [
        (y_of(float(lines[index].values[position]), ends), index)
        for index, position in last.items()
    ]
    for y, index in spread_labels(label_heights):
        line = lines[index]
        yield (
            f'<text x="{WIDTH - LABELS_WIDTH + 8:.1f}" y="{y + 4:.1f}" font-size="{TEXT_PIXELS}" '
            f'fill="{inks[index]}" font-weight="600" text-anchor="start">{escape(line.name)} '
            f'<tspan font-weight="400" fill="{INK}">'
            f"{escape(line.texts[last[index]])}</tspan></text>"
        )


def spread_labels(wanted: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yield heights of names at the ends of lines, moved apart if lines end together."""
    ordered = sorted(wanted)
    places: list[float] = []
    for y, _ in ordered:
        places.append(max(y, places[-1] + LABEL_DISTANCE if places else y))
    overflow = max(places[-1] - (HEIGHT - BELOW), 0.0) if places else 0.0
    yield from ((y - overflow, n) for y, (_, n) in zip(places, ordered, strict=True))


@lazy_figure
def layer_curve(rows: pd.DataFrame, *, title: str, share: bool = False) -> SpecAndRows:
    """Draw one number for each layer with its interval, beside a baseline.

    Args:
        rows: columns ``layer, series, view, label, value, low, high``.
        share: whether values are parts of a whole, written in per cent.
    """
    series = list(dict.fromkeys(rows["series"]))
    colour = _series_colour(series, {UNIFORM, CHANCE})
    base = alt.Chart(rows)
    base = base.encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(**LAYER_NAMES)), color=colour
    )
    # From 0, or a baseline would look like it.
    axis = alt.Axis(format=SHARE_FORMAT) if share else alt.Undefined
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=True, nice=True), axis=axis)
    # Uniform attention has an interval, too, which would only hide the others.
    band = base.transform_filter(alt.datum.series != UNIFORM).mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=None, axis=axis), y2=alt.Y2("high:Q"))
    tooltip = [
        *text_tooltips("series:N", "layer:O"),
        *number_tooltips("value", "low", "high", share=share),
    ]
    line = base.mark_line(strokeWidth=2, point={"size": 34, "filled": True})
    line = line.encode(y=y, tooltip=tooltip)
    ends = _line_ends(rows)
    names = alt.Chart(ends).mark_text(align="left", dx=9)
    names = names.encode(
        x=alt.X("layer:O"), y=alt.Y("place:Q", axis=axis), text=alt.Text("series:N"), color=colour
    )
    has_several_series = len(series) > 1
    chart = alt.layer(band, line, names if has_several_series else line)
    width = NAMED_CURVE_WIDTH if has_several_series else CURVE[0]
    chart = chart.properties(width=width, height=CURVE[1], title=axis_heading(title))
    return styled_spec(chart), rows


def _series_colour(series: Sequence[str], baselines: set[str]) -> alt.Color:
    """Return the colours of series: grey for baselines, a colour of its own for any other."""
    unused_colours = iter(SERIES * len(series))
    colours = [GREY if name in baselines else next(unused_colours) for name in series]
    return alt.Color("series:N", scale=alt.Scale(domain=[*series], range=colours), legend=None)


def _line_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the places of the names of metric curves, moved apart if lines end together."""
    heights = rows[["value", "low", "high"]].to_numpy(float)
    ends = (min(float(np.nanmin(heights)), 0.0), max(float(np.nanmax(heights)), 0.0))
    last = rows[rows["layer"] == rows["layer"].max()]
    gap = (ends[1] - ends[0]) * NAME_DISTANCE / CURVE[1]
    line_ends: pd.DataFrame = last.assign(
        place=spread_values(last["value"].to_numpy(float), gap, ends)
    )
    return line_ends
