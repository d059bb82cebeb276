"""Two models beside each other: maps of their heads, differences, points, and curves over depth."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from headbook.charts.axes import (
    LAYER_NAMES,
    axis_heading,
    number_tooltips,
    styled_spec,
    text_tooltips,
)
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.heads import CELL_PIXELS
from headbook.charts.theme import (
    BLUE,
    DARK_DIVERGING,
    DIVERGING,
    GREY,
    HOLLOW,
    MODELS,
    PURPLE,
    ramp,
    text_colour_rule,
)

STAR = "*"  # mark of a supported difference
PLOT_PIXELS = 300  # side of a plot of points
CURVE_SIZE = (300, 170)  # width and height in pixels
UNSUPPORTED_OPACITY = 0.45  # of differences that are not supported
CELL_AXIS: dict[str, Any] = {"ticks": False, "domain": False, "labelOverlap": True}
LAYER = alt.X("layer:O", title="layer", axis=alt.Axis(**LAYER_NAMES))
PLAIN_AXIS = alt.Axis(labelFlush=False, labelOverlap=True, labelSeparation=4, tickCount=5)


@lazy_figure
def side_maps(rows: pd.DataFrame, *, title: str, domain: tuple[float, float]) -> SpecAndRows:
    """Draw one number for each head of two models, side by side on one scale.

    Args:
        rows: columns ``side, layer, head, view, label, value``; sides in their order.
        title: title of the colour legend, with the unit.
        domain: ends of the colour scale.
    """
    sides = [*dict.fromkeys(rows["side"])]
    chart = alt.Chart(rows).mark_rect()
    chart = chart.encode(
        **_cells(),
        color=alt.Color("value:Q", title=title, scale=ramp(domain), legend=_legend(domain)),
        column=alt.Column(
            "side:N", title=None, sort=sides, header=alt.Header(labelAnchor="start", labelLimit=400)
        ),
        tooltip=[*text_tooltips("side:N", "layer:O", "head:O"), *number_tooltips("value")],
    )
    return styled_spec(
        chart.properties(width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS))
    ), rows


@lazy_figure
def difference_map(rows: pd.DataFrame, *, title: str, end: float) -> SpecAndRows:
    """Draw the second model's number less the first's: supported with a star, others pale.

    Args:
        rows: columns ``layer, head, view, label, value, low, high, q, supported``.
        end: end of the colour scale, on both sides of 0.
    """
    sized = rows.assign(size=(rows["value"].abs() / end).clip(0, 1).round(4))
    base = alt.Chart(sized).encode(**_cells())
    scale = ramp((-end, end))
    cells = base.mark_rect().encode(
        color=alt.Color("value:Q", title=title, scale=scale, legend=_legend((-end, end))),
        opacity=alt.when("datum.supported")
        .then(alt.value(1))
        .otherwise(alt.value(UNSUPPORTED_OPACITY)),
        tooltip=[
            *text_tooltips("layer:O", "head:O"),
            *number_tooltips("value", "low", "high", "q"),
        ],
    )
    stars = base.transform_filter("datum.supported").mark_text(fontSize=16, dy=4)
    stars = stars.encode(
        text=alt.value(STAR),
        color=text_colour_rule("size", (0, 1), DIVERGING[3:], DARK_DIVERGING[3:]),
    )
    chart = alt.layer(cells, stars)
    return styled_spec(
        chart.properties(width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS))
    ), rows


@lazy_figure
def pair_points(rows: pd.DataFrame, *, titles: Sequence[str]) -> SpecAndRows:
    """Draw a point for each head: its number in the first model against that in the second.

    A point is hollow if the difference is not supported; the line has equal numbers.

    Args:
        rows: columns ``name, view, label, a, b, supported``.
        titles: titles of the two axes.
    """
    x, y = (
        axis(f"{side}:Q", title=title, scale=alt.Scale(zero=False, nice=True), axis=PLAIN_AXIS)
        for axis, side, title in zip((alt.X, alt.Y), "ab", titles, strict=True)
    )
    points = alt.Chart(rows).mark_point(size=42, strokeWidth=1.4)
    is_supported = alt.when("datum.supported")
    points = points.encode(
        x=x,
        y=y,
        stroke=is_supported.then(alt.value(BLUE)).otherwise(alt.value(GREY)),
        fill=is_supported.then(alt.value(BLUE)).otherwise(alt.value(HOLLOW)),
        tooltip=[*text_tooltips("name:N"), *number_tooltips("a", "b")],
    )
    equal_numbers = alt.Chart(_equal_number_ends(rows))
    line = equal_numbers.mark_line(color=GREY, strokeDash=[4, 3], strokeWidth=1).encode(
        x="a:Q", y="b:Q"
    )
    return styled_spec(
        alt.layer(line, points).properties(width=PLOT_PIXELS, height=PLOT_PIXELS)
    ), rows


def _equal_number_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return both ends of the line of equal numbers."""
    ends = rows[["a", "b"]].to_numpy(float)
    return pd.DataFrame([{"a": end, "b": end} for end in (ends.min(), ends.max())])


@lazy_figure
def layer_pairs(rows: pd.DataFrame, *, titles: Sequence[str], legend: str) -> SpecAndRows:
    """Draw a number for every two layers: the first model's run down, the second's across.

    Args:
        rows: columns ``layer, other_layer, value``.
        titles: titles of rows and columns.
    """
    domain = (0.0, max(float(rows["value"].max()), 1e-9))
    chart = alt.Chart(rows).mark_rect()
    chart = chart.encode(
        x=alt.X("other_layer:O", title=titles[1], axis=alt.Axis(**CELL_AXIS, labelAngle=0)),
        y=alt.Y("layer:O", title=titles[0], axis=alt.Axis(**CELL_AXIS)),
        color=alt.Color("value:Q", title=legend, scale=ramp(domain), legend=_legend(domain)),
        tooltip=[*text_tooltips("layer:O", "other_layer:O"), *number_tooltips("value")],
    )
    step = alt.Step(
        min(CELL_PIXELS, 560 // max(rows["other_layer"].nunique(), rows["layer"].nunique()))
    )
    return styled_spec(chart.properties(width=step, height=step)), rows


@lazy_figure
def depth_curves(rows: pd.DataFrame, *, title: str) -> SpecAndRows:
    """Draw heads of two models over relative depth: points, and median and quartiles by layer.

    Args:
        rows: columns ``series, depth, view, label, kind, value, low, high``; of the kind ``head``
            or ``layer``.
    """
    x = alt.X("depth:Q", title="relative depth", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(rows).encode(x=x, color=_colour(rows))
    of_layers = base.transform_filter(alt.datum.kind == "layer")
    y = alt.Y("value:Q", title=None)
    band = of_layers.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=None), y2="high:Q")
    tooltip = [*text_tooltips("series:N"), *number_tooltips("depth", "value", "low", "high")]
    line = of_layers.mark_line(strokeWidth=2).encode(y=y, tooltip=tooltip)
    points = base.transform_filter(alt.datum.kind == "head")
    points = points.mark_circle(size=12, opacity=0.5).encode(y=y)
    return styled_spec(_curve(alt.layer(band, points, line), title)), rows


@lazy_figure
def paired_curves(rows: pd.DataFrame, *, title: str) -> SpecAndRows:
    """Draw one number for each layer of two models, with intervals.

    Args:
        rows: columns ``series, layer, value, low, high``; series in order.
    """
    base = alt.Chart(rows)
    base = base.encode(x=LAYER, color=_colour(rows))
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=None), y2="high:Q")
    line = base.mark_line(strokeWidth=2, point={"size": 34, "filled": True})
    tooltip = [*text_tooltips("series:N", "layer:O"), *number_tooltips("value", "low", "high")]
    line = line.encode(y=alt.Y("value:Q", title=None), tooltip=tooltip)
    return styled_spec(_curve(alt.layer(band, line), title)), rows


@lazy_figure
def difference_curve(rows: pd.DataFrame, *, title: str) -> SpecAndRows:
    """Draw the second model's number less the first's by layer; hollow if not supported.

    Args:
        rows: columns ``layer, value, low, high, q, supported``.
    """
    base = alt.Chart(rows.assign(zero=0)).encode(x=LAYER)
    zero = base.mark_line(color=GREY, strokeDash=[4, 3], strokeWidth=1).encode(y="zero:Q")
    band = base.mark_area(opacity=0.18, color=PURPLE)
    band = band.encode(y=alt.Y("low:Q", title=None), y2="high:Q")
    ends = base.mark_rule(color=PURPLE, opacity=0.5).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(strokeWidth=1.6, color=PURPLE).encode(y=alt.Y("value:Q", title=None))
    is_supported = alt.when("datum.supported")
    points = base.mark_point(size=40, strokeWidth=1.6, opacity=1).encode(
        y="value:Q",
        stroke=alt.value(PURPLE),
        fill=is_supported.then(alt.value(PURPLE)).otherwise(alt.value(HOLLOW)),
        tooltip=[*text_tooltips("layer:O"), *number_tooltips("value", "low", "high", "q")],
    )
    return styled_spec(_curve(alt.layer(zero, band, ends, line, points), title)), rows


def _colour(rows: pd.DataFrame) -> alt.Color:
    """Return the colours of the first and the second model, with a legend above."""
    series = [*dict.fromkeys(rows["series"])]
    return alt.Color(
        "series:N",
        scale=alt.Scale(domain=series, range=[*MODELS]),
        legend=alt.Legend(
            orient="top",
            title=None,
            labelLimit=260,
            symbolType="stroke",
            symbolOpacity=1,
            symbolStrokeWidth=3,
        ),
    )


def _curve(chart: Any, title: str) -> Any:
    width, height = CURVE_SIZE
    return chart.properties(width=width, height=height, title=axis_heading(title))


def _cells() -> dict[str, Any]:
    return {
        "x": alt.X("head:O", title="head", axis=alt.Axis(**CELL_AXIS, labelAngle=0)),
        "y": alt.Y("layer:O", title="layer", axis=alt.Axis(**CELL_AXIS)),
    }


def _legend(ends: tuple[float, float]) -> alt.Legend:
    values = [ends[0], (ends[0] + ends[1]) / 2, ends[1]]
    return alt.Legend(orient="top", titleLimit=0, gradientLength=200, values=values, format=".3~g")
