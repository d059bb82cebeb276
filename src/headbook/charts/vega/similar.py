"""Heads as points of a plane: near each other where they look alike."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.charts.base.ink import DARK, LAYERS
from headbook.charts.base.render import GREY, Chart, drawn, finished, letters_on, on_demand, ramp

SIDE = 400  # pixels of a panel
ROOM = 14  # pixels to the next head from which on a number is not hidden
DOT = 6  # pixels of a point that carries no number
NUMBERED = 100  # heads that carry their number; more would hide each other


@on_demand
def head_points(rows: pd.DataFrame, *, panels: Sequence[str], layers: Sequence[int]) -> Chart:
    """Points coloured by layer, a panel for each view, all on one scale.

    Args:
        rows: columns ``head, layer, panel, x, y``; ``head`` is the head's name.
        panels: from left to right.
        layers: all layers of the stack.
    """
    table, rows = rows, drawn(rows)
    ends = _ends(rows)
    colour = alt.Color(
        "layer:Q",
        title="layer",
        scale=ramp((min(layers), max(*layers, min(layers) + 1)), LAYERS),
        legend=alt.Legend(orient="top", format="d", tickMinStep=1, gradientLength=200),
    )
    axis = alt.Axis(tickCount=5, format=".1f")
    scale = alt.Scale(domain=[*ends], nice=False)
    few = len(rows) <= NUMBERED * len(panels)
    short = rows["head"].str.extract(r"L(\d+)·H(\d+)").agg(".".join, axis=1)
    rows = rows.assign(short=short.where(_alone(rows, ends), "") if few else short)
    base = alt.Chart(_squares(rows, ends)).encode(
        x=alt.X("x:Q", title="√nats", scale=scale, axis=axis),
        y=alt.Y("y:Q", title="√nats", scale=scale, axis=axis),
        tooltip=["head:N", alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q", format=".3f")],
    )
    points = _numbered(base, colour, layers) if few else _base_layer(base, colour)
    column = alt.Column(
        "panel:N", title=None, sort=[*panels], header=alt.Header(labelAnchor="start")
    )
    chart = points.properties(width=SIDE, height=SIDE).facet(column=column)
    return finished(chart, table)


def _numbered(base: Any, colour: alt.Color, layers: Sequence[int]) -> Any:
    """Circles with layer and head, where no other circle hides them."""
    circles = base.mark_circle(size=330, opacity=1, stroke=GREY, strokeWidth=0.6)
    ends = (min(layers), max(*layers, min(layers) + 1))
    ink = letters_on("layer", ends, LAYERS, DARK[1:])
    numbers = base.mark_text(fontSize=9.5, baseline="middle").encode(text="short:N", color=ink)
    return alt.layer(circles.encode(color=colour), numbers)


def _base_layer(base: Any, colour: alt.Color) -> Any:
    """Squares, of which a picture can draw those of one colour as one shape."""
    return base.mark_rect().encode(x2="right:Q", y2="top:Q", color=colour)


def _alone(rows: pd.DataFrame, ends: tuple[float, float]) -> "pd.Series[bool]":
    """Whether no other head of its panel lies so near that their numbers would run together."""
    pixels = rows[["x", "y"]].to_numpy(float) * SIDE / (ends[1] - ends[0])
    gaps = np.hypot(*(pixels[:, None] - pixels[None]).transpose(2, 0, 1))
    panels = rows["panel"].to_numpy()
    gaps[(panels[:, None] != panels[None]) | np.eye(len(rows), dtype=bool)] = np.inf
    return pd.Series(gaps.min(axis=1, initial=np.inf) >= ROOM, index=rows.index)


def _squares(rows: pd.DataFrame, ends: tuple[float, float]) -> pd.DataFrame:
    """The same with the other corner of a small square, layer by layer."""
    side = DOT * (ends[1] - ends[0]) / SIDE
    rows = rows.sort_values("layer", kind="stable", ignore_index=True)
    return rows.assign(right=(rows["x"] + side).round(5), top=(rows["y"] + side).round(5))


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """The same for both axes and all panels, so that lengths can be compared."""
    low, high = float(rows[["x", "y"]].min().min()), float(rows[["x", "y"]].max().max())
    room = max(0.06 * (high - low), 0.01)
    return round(low - room, 3), round(high + room, 3)
