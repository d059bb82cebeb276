"""Heads as points of two metrics."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.charts.base.ink import LAYERS
from headbook.charts.base.render import GREY, Chart, drawn, finished, on_demand, ramp

WIDTH, HEIGHT = 520, 340  # pixels
NARROW, ROOM = 170, 400  # the plot in a column, and one that has room for more names
Bools = NDArray[np.bool_]
LETTERS = 10  # size of a head's name
NAME = (6, 6.5, 6)  # pixels from a point to its name, of a letter, and to either side of a line
AXIS = alt.Axis(labelFlush=False, labelOverlap=True, labelSeparation=4)


@on_demand
def head_scatter(rows: pd.DataFrame, *, titles: Sequence[str], layers: Sequence[int]) -> Chart:
    """A point for every head, coloured by layer.

    Args:
        rows: columns ``head, layer, x, y``; ``head`` is the head's name.
        titles: of the two axes.
        layers: all layers of the stack.
    """
    x, y = (
        axis(f"{place}:Q", title=title, scale=alt.Scale(zero=True, nice=True), axis=AXIS)
        for axis, place, title in zip((alt.X, alt.Y), "xy", titles, strict=True)
    )
    colour = alt.Color(
        "layer:Q",
        scale=ramp((min(layers), max(*layers, min(layers) + 1)), LAYERS),
        legend=alt.Legend(orient="top", format="d", tickMinStep=1, gradientLength=200),
    )
    marks = alt.Chart(drawn(rows)).mark_circle(size=70, opacity=1, stroke=GREY, strokeWidth=0.6)
    few = _roomy(rows, NARROW, np.zeros(len(rows), dtype=bool))
    more = _roomy(rows, WIDTH, few) & ~few
    names = [
        alt.Chart(drawn(rows[chosen]))
        .mark_text(align="left", dx=6, fontSize=LETTERS)
        .encode(x=x, y=y, text="head:N")
        for chosen in (few, more)
    ]
    names[1] = names[1].properties(name=f"room{ROOM}")
    layers_of = alt.layer(marks.encode(x=x, y=y, color=colour), *names)
    chart = layers_of.properties(width=WIDTH, height=HEIGHT)
    return finished(chart, rows, interactive=False)


def _roomy(rows: pd.DataFrame, width: int, found: Bools) -> Bools:
    """Heads whose names hide neither a point nor another name; the outermost are asked first.

    Args:
        width: of the plot, in pixels.
        found: those that are named in any case.
    """
    ends = rows[["x", "y"]].abs().max().to_numpy(float)
    x, y = (rows[["x", "y"]].to_numpy(float) / np.where(ends > 0, ends, 1)).T * [[width], [HEIGHT]]
    gap, letter, half = NAME
    left = x + gap
    right = left + letter * rows["head"].str.len().to_numpy(float)
    found = found.copy()
    for n in np.argsort(-np.hypot(x - np.median(x), y - np.median(y)), kind="stable"):
        beside = abs(y - y[n]) < 2 * half
        points = (x > left[n] - half) & (x < right[n]) & beside
        names = found & (left < right[n]) & (left[n] < right) & beside
        if not names.any() and not (points & (np.arange(len(x)) != n)).any():
            found[n] = True
    return found
