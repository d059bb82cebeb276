"""Heads as points of two metrics."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from headbook.charts.ink import LAYERS
from headbook.charts.render import GREY, Figure, drawn, finished, ramp

WIDTH, HEIGHT = 520, 340  # pixels


def head_scatter(
    name: str, caption: str, rows: pd.DataFrame, *, titles: Sequence[str], layers: Sequence[int]
) -> Figure:
    """A point for every head, coloured by layer.

    Args:
        rows: columns ``head, layer, x, y``; ``head`` is the head's name.
        titles: of the two axes.
        layers: all layers of the stack.
    """
    x, y = (
        axis(f"{place}:Q", title=title, scale=alt.Scale(zero=False, nice=True))
        for axis, place, title in zip((alt.X, alt.Y), "xy", titles, strict=True)
    )
    colour = alt.Color(
        "layer:Q",
        scale=ramp((min(layers), max(*layers, min(layers) + 1)), LAYERS),
        legend=alt.Legend(orient="top", format="d", tickMinStep=1, gradientLength=200),
    )
    marks = alt.Chart(drawn(rows)).mark_circle(size=70, opacity=1, stroke=GREY, strokeWidth=0.6)
    chart = marks.encode(x=x, y=y, color=colour).properties(width=WIDTH, height=HEIGHT)
    return finished(chart, name, caption, rows, interactive=False)
