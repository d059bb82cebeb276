"""A number of all heads over the steps of a training."""

from typing import Any

import altair as alt
import pandas as pd

from headbook.charts.base.ink import LAYERS
from headbook.charts.base.render import Chart, drawn, finished, on_demand, ramp
from headbook.charts.drawn.lines import Axis

WIDTH, HEIGHT = 620, 300
MANY = 40  # lines from which on they are thin


@on_demand
def head_steps(rows: pd.DataFrame, *, title: str, axis: Axis, share: bool) -> Chart:
    """A line for each head, coloured by layer; the one under the pointer stands out.

    Args:
        rows: columns ``head, layer, step, place, value, low, high``; ``place`` is that of the step
            on the axis, whose first stands apart where the axis says so.
        share: whether values are parts of a whole.
    """
    table, shown = rows.drop(columns="place"), drawn(rows, 4)
    shown = shown.assign(part=shown["place"].gt(0) | (not axis.apart))
    layers = rows["layer"].min(), max(rows["layer"].max(), rows["layer"].min() + 1)
    colour = alt.Color(
        "layer:Q",
        title="layer",
        scale=ramp(layers, LAYERS),
        legend=alt.Legend(orient="top", format="d", tickMinStep=1, gradientLength=200),
    )
    numbers = ".1%" if share else ".3f"
    pointed = alt.selection_point(
        name="head", fields=["head"], on="pointerover", clear="pointerout", empty=False
    )
    base = alt.Chart(shown).encode(
        x=alt.X("place:Q", title="step", scale=alt.Scale(domain=[0, 1]), axis=_ticks(axis)),
        y=alt.Y("value:Q", title=title, axis=alt.Axis(format=".0%" if share else "~g")),
        color=colour,
        opacity=alt.when(pointed).then(alt.value(1.0)).otherwise(alt.value(0.75)),
        tooltip=[
            "head:N",
            alt.Tooltip("step:Q", format=",d"),
            *(alt.Tooltip(f"{name}:Q", format=numbers) for name in ("value", "low", "high")),
        ],
    )
    many = rows["head"].nunique() > MANY
    wide = alt.when(pointed).then(alt.value(3.5)).otherwise(alt.value(1.0 if many else 1.8))
    lines = base.mark_line().encode(detail=["head:N", "part:N"], strokeWidth=wide)
    points = base.mark_circle(size=18 if many else 30)
    chart = alt.layer(lines.add_params(pointed).properties(name="lines"), points)
    return finished(chart.properties(width=WIDTH, height=HEIGHT), table)


def _ticks(axis: Axis) -> Any:
    """The axis of steps, written by hand: no scale of Vega's has it."""
    names = " : ".join(f"abs(datum.value - {p:.4f}) < 0.0005 ? '{t}'" for p, t in axis.labels)
    values = [round(place, 4) for place, _ in axis.labels]
    return alt.Axis(values=values, labelExpr=f"{names} : ''", grid=False)
