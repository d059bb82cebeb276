"""A number of all heads over the steps of a training."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from headbook.charts.base.render import GREY, Chart, drawn, finished, on_demand
from headbook.charts.drawn.lines import COLOURS, Axis

WIDTH, HEIGHT = 620, 300
NAMED = len(COLOURS)  # heads with a colour of their own
OTHERS = "other heads"


@on_demand
def head_steps(
    rows: pd.DataFrame, *, title: str, axis: Axis, share: bool, named: Sequence[str]
) -> Chart:
    """A line for each head; some have a colour, and the one under the pointer stands out.

    Args:
        rows: columns ``head, layer, step, place, value, low, high``; ``place`` is that of the step
            on the axis, whose first stands apart where the axis says so.
        share: whether values are parts of a whole.
        named: heads with a colour, at most as many as there are.
    """
    table, kept = rows.drop(columns="place"), drawn(rows, 4)
    kept = kept.assign(
        part=kept["place"].gt(0) | (not axis.apart),
        series=kept["head"].where(kept["head"].isin(named), OTHERS),
    )
    series = [*named, *([OTHERS] if (kept["series"] == OTHERS).any() else [])]
    inks = [*COLOURS[: len(named)], GREY][: len(series)]
    numbers = ".1%" if share else ".3f"
    pointed = alt.selection_point(
        name="head", fields=["head"], on="pointerover", clear="pointerout", empty=False
    )
    base = alt.Chart(kept).encode(
        x=alt.X("place:Q", title="step", scale=alt.Scale(domain=[0, 1]), axis=_ticks(axis)),
        y=alt.Y("value:Q", title=title, axis=alt.Axis(format=".0%" if share else "~g")),
        color=alt.Color(
            "series:N",
            title=None,
            scale=alt.Scale(domain=series, range=inks),
            legend=alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3),
        ),
        tooltip=[
            "head:N",
            alt.Tooltip("step:Q", format=",d"),
            *(alt.Tooltip(f"{name}:Q", format=numbers) for name in ("value", "low", "high")),
        ],
    )
    plain = alt.datum.series == OTHERS
    wide = alt.when(pointed).then(alt.value(3.5)).when(plain).then(alt.value(1.0))
    faint = alt.when(pointed).then(alt.value(1.0)).when(plain).then(alt.value(0.5))
    lines = base.mark_line().encode(
        detail=["head:N", "part:N"],
        strokeWidth=wide.otherwise(alt.value(2.2)),
        opacity=faint.otherwise(alt.value(1.0)),
    )
    points = base.mark_circle(size=26).encode(opacity=faint.otherwise(alt.value(1.0)))
    chart = alt.layer(lines.add_params(pointed).properties(name="lines"), points)
    return finished(chart.properties(width=WIDTH, height=HEIGHT), table)


def _ticks(axis: Axis) -> Any:
    """The axis of steps, written by hand: no scale of Vega's has it."""
    names = " : ".join(f"abs(datum.value - {p:.4f}) < 0.0005 ? '{t}'" for p, t in axis.labels)
    values = [round(place, 4) for place, _ in axis.labels]
    return alt.Axis(values=values, labelExpr=f"{names} : ''", grid=False)
