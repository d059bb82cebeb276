"""Importance of heads: a map of all heads, estimates beside exact numbers, and pruning."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from headbook.charts.axes import rounded_rows, styled_spec, text_tooltips
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.theme import GREY, INK, SERIES, ramp

CELL_PIXELS = 26  # side of a head in the map
CURVE_SIZE = (420, 240)  # width and height in pixels
PLOT_PIXELS = 300  # side of a plot of two numbers
# Marks of heads in the map, by verdict.
MARKS = {"no_change": "○", "harmful": "×", "undecided": "?"}
RANDOM = "random order"
PLAIN_AXIS = alt.Axis(labelFlush=False, labelOverlap=True, labelSeparation=4, tickCount=5)
TICKS = [0, 0.2, 0.4, 0.6, 0.8, 1]


@lazy_figure(interactive=False)
def effect_map(rows: pd.DataFrame, *, title: str, domain: tuple[float, float]) -> SpecAndRows:
    """Draw one number for each head, with a line across heads whose number is estimated.

    Args:
        rows: columns ``layer, head, value, low, high, method, verdict``.
        title: title of the colour legend, with the unit.
        domain: ends of the colour scale.
    """
    axis = alt.Axis(ticks=False, domain=False, labelOverlap=True, labelAngle=0)
    marked = rounded_rows(rows).assign(mark=rows["verdict"].map(MARKS).fillna(""))
    base = alt.Chart(marked).encode(
        x=alt.X("head:O", title="head", axis=axis), y=alt.Y("layer:O", title="layer", axis=axis)
    )
    legend = alt.Legend(
        orient="top", titleLimit=0, gradientLength=200, values=[*domain], format=".3~g"
    )
    cells = base.mark_rect().encode(
        color=alt.Color("value:Q", title=title, scale=ramp(domain), legend=legend),
        tooltip=[
            *text_tooltips("layer:O", "head:O", "method:N", "verdict:N"),
            *_number_tooltips("value", "low", "high"),
        ],
    )
    lines = (
        base.transform_filter(alt.datum.method == "estimated")
        .mark_rule(strokeWidth=0.7, opacity=0.6)
        .encode(
            x=alt.X("head:O", bandPosition=0),
            x2=alt.X2("head", bandPosition=1),
            y=alt.Y("layer:O", bandPosition=1),
            y2=alt.Y2("layer", bandPosition=0),
            color=alt.value(INK),
        )
    )
    marks = (
        base.transform_filter(alt.datum.mark != "")
        .mark_text(fontSize=12, baseline="middle")
        .encode(text="mark:N", color=alt.value(INK))
    )
    chart = alt.layer(cells, lines, marks).properties(
        width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS)
    )
    return styled_spec(chart), rows


@lazy_figure(interactive=False)
def compared_effects(rows: pd.DataFrame, *, titles: Sequence[str]) -> SpecAndRows:
    """Draw a point for each head that has two numbers, and the line of equal numbers.

    Args:
        rows: columns ``head, series, x, y``.
        titles: titles of the two axes.
    """
    table, rows = rows, rounded_rows(rows)
    ends = [float(rows[["x", "y"]].min().min()), float(rows[["x", "y"]].max().max())]
    x, y = (
        axis(f"{place}:Q", title=title, scale=alt.Scale(zero=True, nice=True), axis=PLAIN_AXIS)
        for axis, place, title in zip((alt.X, alt.Y), "xy", titles, strict=True)
    )
    series = list(dict.fromkeys(rows["series"]))
    full_legend = alt.Legend(orient="top", title=None, columns=1, labelLimit=0)
    legend = full_legend if len(series) > 1 else None
    colour = alt.Color(
        "series:N", scale=alt.Scale(domain=series, range=[*SERIES[: len(series)]]), legend=legend
    )
    line = alt.Chart(pd.DataFrame({"x": ends, "y": ends})).mark_line(
        strokeDash=[4, 3], strokeWidth=1, color=GREY
    )
    dots = alt.Chart(rows).mark_circle(size=50, opacity=1)
    tooltip = [*text_tooltips("head:N", "series:N"), *_number_tooltips("x", "y")]
    dots = dots.encode(x=x, y=y, color=colour, tooltip=tooltip)
    chart = alt.layer(line.encode(x=x, y=y), dots).properties(width=PLOT_PIXELS, height=PLOT_PIXELS)
    return styled_spec(chart), table


@lazy_figure(interactive=False)
def pruning_curves(rows: pd.DataFrame, *, title: str) -> SpecAndRows:
    """Draw the change of a target against the share of heads that are removed.

    Args:
        rows: columns ``order, share, value, low, high``; the curve of the order `RANDOM` is grey.
        title: title of the vertical axis.
    """
    table, rows = rows, rounded_rows(rows)
    series = list(dict.fromkeys(rows["order"]))
    colours = iter(SERIES * len(series))
    series_colours = [GREY if name == RANDOM else next(colours) for name in series]
    colour = alt.Color(
        "order:N",
        scale=alt.Scale(domain=series, range=series_colours),
        legend=alt.Legend(
            orient="top",
            title=None,
            columns=1,
            labelLimit=0,
            symbolType="stroke",
            symbolOpacity=1,
            symbolStrokeWidth=3,
        ),
    )
    x = alt.X("share:Q", title="heads removed", axis=alt.Axis(format="%", values=TICKS))
    y = alt.Y("value:Q", title=title)
    base: Any = alt.Chart(rows).encode(x=x, color=colour)
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    numbers = _number_tooltips("value", "low", "high")
    line = base.mark_line(strokeWidth=2, point={"size": 26, "filled": True}).encode(
        y=y, tooltip=[alt.Tooltip("order:N"), alt.Tooltip("share:Q", format="%"), *numbers]
    )
    chart = alt.layer(band, line).properties(width=CURVE_SIZE[0], height=CURVE_SIZE[1])
    return styled_spec(chart), table


def _number_tooltips(*columns: str) -> list[alt.Tooltip]:
    """Return columns of effects, in three digits, for a tooltip."""
    return [alt.Tooltip(f"{column}:Q", format=".3~g") for column in columns]
