"""Heads as points of two metrics."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from headbook.charts.ink import LAYERS
from headbook.charts.render import GREY, Figure, drawn, finished, ramp

WIDTH, HEIGHT = 520, 340  # pixels
LETTERS = 10  # size of a head's name
NAME = (6, 46, 6)  # pixels from a point to its name, of a name, and to either side of its line


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
        axis(f"{place}:Q", title=title, scale=alt.Scale(zero=True, nice=True))
        for axis, place, title in zip((alt.X, alt.Y), "xy", titles, strict=True)
    )
    colour = alt.Color(
        "layer:Q",
        scale=ramp((min(layers), max(*layers, min(layers) + 1)), LAYERS),
        legend=alt.Legend(orient="top", format="d", tickMinStep=1, gradientLength=200),
    )
    marks = alt.Chart(drawn(rows)).mark_circle(size=70, opacity=1, stroke=GREY, strokeWidth=0.6)
    names = alt.Chart(drawn(rows[_roomy(rows)])).mark_text(align="left", dx=6, fontSize=LETTERS)
    layers_of = alt.layer(
        marks.encode(x=x, y=y, color=colour), names.encode(x=x, y=y, text="head:N")
    )
    chart = layers_of.properties(width=WIDTH, height=HEIGHT)
    return finished(chart, name, caption, rows, interactive=False)


def _roomy(rows: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Heads whose names hide neither a point nor another name; the outermost are asked first."""
    ends = rows[["x", "y"]].abs().max().to_numpy(float)
    x, y = (rows[["x", "y"]].to_numpy(float) / np.where(ends > 0, ends, 1)).T * [[WIDTH], [HEIGHT]]
    gap, wide, half = NAME
    taken: list[tuple[float, float]] = []
    found = np.zeros(len(rows), dtype=bool)
    for n in np.argsort(-np.hypot(x - np.median(x), y - np.median(y)), kind="stable"):
        left = x[n] + gap
        points = (x > left - half) & (x < left + wide) & (abs(y - y[n]) < 2 * half)
        names = any(abs(a - left) < wide and abs(b - y[n]) < 2 * half for a, b in taken)
        if not names and not (points & (np.arange(len(x)) != n)).any():
            found[n] = True
            taken.append((left, float(y[n])))
    return found
