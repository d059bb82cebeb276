"""Heat map of relations: how much better than a fixed offset the best head of each layer is."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from headbook.charts.render import Figure, drawn, finished, ramp
from headbook.charts.tags import HEIGHT, LAYER, THIN_INK

END = 0.4  # the colours end at so much better or worse
COLOURS = 20  # in each half of the scale


def relation_layers(
    name: str, caption: str, rows: pd.DataFrame, *, relations: Sequence[str]
) -> Figure:
    """Margins of the best heads by layer, a panel for each direction.

    Args:
        rows: columns ``way, relation, layer, head, margin, low, high, words, unclear``; grey where
            it is unclear which is better.
        relations: from top to bottom.
    """
    table, rows = rows, drawn(rows, 4)
    ways = list(dict.fromkeys(rows["way"]))
    step = END / COLOURS
    rows = rows.assign(better=(rows["margin"].clip(-END, END) / step).round() * step + 0.0)
    # Cells of one colour come together, so that a picture can draw them as one shape.
    rows = rows.sort_values(["way", "unclear", "better"], kind="stable", ignore_index=True)
    width = alt.Step(min(max(480 // max(rows["layer"].nunique(), 1), LAYER[0]), LAYER[1]))
    numbers = [alt.Tooltip(f"{n}:Q", format="+.1%") for n in ("margin", "low", "high")]
    chart = (
        alt.Chart(rows)
        .mark_rect()
        .encode(
            x=alt.X(
                "layer:O", title="layer", axis=alt.Axis(labelAngle=0, ticks=False, domain=False)
            ),
            y=alt.Y(
                "relation:N",
                title=None,
                sort=[*relations],
                axis=alt.Axis(ticks=False, domain=False),
            ),
            color=alt.condition(alt.datum.unclear, alt.value(THIN_INK), _colour()),
            column=alt.Column(
                "way:N", title=None, sort=ways, header=alt.Header(labelAnchor="start")
            ),
            tooltip=["relation:N", "way:N", "head:N", *numbers, alt.Tooltip("words:Q", format=",")],
        )
        .properties(width=width, height=alt.Step(HEIGHT))
    )
    return finished(chart, name, caption, table)


def _colour() -> alt.Color:
    """Orange: worse than the offset; blue: better."""
    return alt.Color(
        "better:Q",
        title="better than the best offset by",
        scale=ramp((-END, END)),
        legend=alt.Legend(orient="top", format="+.0%", values=[-END, 0, END], gradientLength=200),
    )
