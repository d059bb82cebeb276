"""Numbers of the states: curves from the input to the last layer, and a matrix of states."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.charts.base.render import GREY, Chart, drawn, finished, letters_on, on_demand, ramp
from headbook.charts.vega.draw import INKS, LINE, spread

SIDE = (190, 200)  # width and height of a panel's curves
CELLS = 360  # pixels of a matrix, at most
CELL = 30  # pixels of a cell, at most
NUMBERED = 16  # states whose numbers have room in the matrix


@on_demand
def state_curves(rows: pd.DataFrame, *, states: Sequence[str], panels: Sequence[str]) -> Chart:
    """A panel for each group of numbers, a line with its interval for each number.

    Args:
        rows: columns ``panel, title, series, baseline, state, value, low, high``; ``title`` is that
            of the vertical axis; lines with ``baseline`` are grey and dashed.
        states: from left to right.
        panels: from left to right.
    """
    table, rows = rows, drawn(rows)
    ends = _shared_ends(rows)
    sides = [_panel(rows[rows["panel"] == panel], panel, states, ends) for panel in panels]
    chart = alt.hconcat(*sides, spacing=24).resolve_scale(color="independent")
    return finished(chart, table)


def _shared_ends(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Ends of the vertical axes by title: panels of one unit share theirs, and all hold 0."""
    shared_ends = {}
    for title, group in rows.groupby("title", sort=False):
        heights = group[["value", "low", "high"]].to_numpy(float)
        shared_ends[str(title)] = (min(np.nanmin(heights), 0.0), max(np.nanmax(heights), 0.0))
    return shared_ends


def _panel(
    rows: pd.DataFrame,
    panel: str,
    states: Sequence[str],
    shared: dict[str, tuple[float, float]],
) -> Any:
    series = list(dict.fromkeys(rows["series"]))
    greys = {one: bool(rows[rows["series"] == one]["baseline"].all()) for one in series}
    inks = iter(INKS * len(series))
    ink = [GREY if greys[one] else next(inks) for one in series]
    colour = alt.Color("series:N", scale=alt.Scale(domain=series, range=ink), legend=None)
    x = alt.X(
        "state:O",
        title="layer",
        sort=[*states],
        scale=alt.Scale(domain=[*states]),
        axis=alt.Axis(labelAngle=0 if len(states) <= NUMBERED else -90, labelOverlap=True),
    )
    title = rows["title"].iloc[0]
    ends = shared[title]
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[*ends], nice=True))
    numbers = [alt.Tooltip(f"{each}:Q", format=".4~g") for each in ("value", "low", "high")]
    base = alt.Chart(rows).encode(x=x, color=colour)
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    dash = alt.StrokeDash(
        "baseline:N", scale=alt.Scale(domain=[False, True], range=[[1, 0], [4, 3]]), legend=None
    )
    line = base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash)
    dots = base.mark_circle(size=34, opacity=1).encode(
        y=y, tooltip=["series:N", "state:N", *numbers]
    )
    labels = alt.Chart(_ends(rows, states, ends)).mark_text(align="left", dx=8, fontSize=11)
    names = labels.encode(x=x, y="place:Q", text="series:N", color=colour)
    # Without a name, Altair hashes the rows as printed, which the width of a terminal changes.
    layers = [band, line, dots, names] if len(series) > 1 else [band, line, dots]
    return alt.layer(*layers).properties(width=SIDE[0], height=SIDE[1], title=panel)


def _ends(rows: pd.DataFrame, states: Sequence[str], ends: tuple[float, float]) -> pd.DataFrame:
    """Where the names of lines stand, moved apart where lines end together."""
    order = rows["state"].map({state: index for index, state in enumerate(states)})
    last = rows.loc[order.groupby(rows["series"], sort=False).idxmax()]
    gap = (ends[1] - ends[0]) * LINE / SIDE[1]
    return last.assign(place=spread(last["value"].to_numpy(float), gap, ends), state=states[-1])


@on_demand
def state_matrix(rows: pd.DataFrame, *, states: Sequence[str], title: str) -> Chart:
    """Every two states, the first one at the upper left; numbers where they have room.

    Args:
        rows: columns ``state, other, value``.
        title: of the colour legend.
    """
    axis = alt.Axis(labelAngle=0, ticks=False, domain=False, labelOverlap=True)
    base = alt.Chart(drawn(rows, 4)).encode(
        x=alt.X("other:O", title="layer", sort=[*states], axis=axis),
        y=alt.Y("state:O", title="layer", sort=[*states], axis=axis),
    )
    cells = base.mark_rect().encode(
        color=alt.Color(
            "value:Q",
            title=title,
            scale=ramp((0, 1)),
        ),
        tooltip=["state:N", "other:N", alt.Tooltip("value:Q", format=".3f")],
    )
    numbers = (
        base.properties(name="room24")
        .mark_text(fontSize=10)
        .encode(text=alt.Text("value:Q", format=".2f"), color=letters_on("value", (0, 1)))
    )
    few = len(states) <= NUMBERED
    step = alt.Step(max(8, min(CELL, CELLS // len(states))))
    chart = alt.layer(cells, numbers) if few else cells
    return finished(chart.properties(width=step, height=step), rows)
