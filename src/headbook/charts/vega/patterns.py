"""Shares of stripes and diagonals of every head, one bar a head."""

import json

import altair as alt
import pandas as pd

from headbook.charts.base.render import BLUE, GREY, ORANGE, Chart, drawn, finished, on_demand
from headbook.report.wording import label_name

PARTS = {"vertical": BLUE, "diagonal": ORANGE, "rest": GREY}
NAMES = f"{json.dumps({part: label_name(part) for part in PARTS})}[datum.label]"
BAR = (5, 14)  # least and most pixels of a head
WIDTH = 1000  # pixels that the bars of one row of layers may take
HEIGHT = 64
COLUMNS = 3  # layers side by side, at most


@on_demand
def mixture_bars(rows: pd.DataFrame, *, n_heads: int) -> Chart:
    """Stacked bars, one a head, a panel for each layer.

    Args:
        rows: columns ``head, layer, number, part, share``; ``head`` is the name of a head,
            ``number`` its place in the layer, ``part`` one of `PARTS`.
    """
    columns = max(1, min(COLUMNS, WIDTH // (BAR[0] * n_heads)))
    step = min(max(WIDTH // (columns * n_heads), BAR[0]), BAR[1])
    place = {part: order for order, part in enumerate(PARTS)}
    table, rows = rows, drawn(rows, 4)
    rows = rows.assign(order=rows["part"].map(place))
    # Bars of one colour come together, so that a picture can draw them as one shape.
    rows = rows.sort_values(["layer", "order", "number"], ignore_index=True)
    axis = alt.Axis(
        labelAngle=0, ticks=False, domain=False, labelOverlap="greedy", labelSeparation=4
    )
    chart = (
        alt.Chart(rows)
        .mark_bar()
        .encode(
            x=alt.X("number:O", title=None, axis=axis),
            y=alt.Y(
                "share:Q",
                title=None,
                stack=True,
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", values=[0, 0.5, 1]),
            ),
            order="order:Q",
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=[*PARTS], range=[*PARTS.values()]),
                legend=alt.Legend(orient="top", labelExpr=NAMES),
            ),
            tooltip=["head:N", "part:N", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=alt.Step(step), height=HEIGHT)
        .facet(
            facet=alt.Facet(
                "layer:O",
                title=None,
                header=alt.Header(labelExpr="'layer ' + datum.value", labelAnchor="start"),
            ),
            columns=columns,
            spacing=12,
        )
    )
    return finished(chart, table)
