"""The paths of one token type's occurrences, side by side."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from headbook.charts.axes import LAYER_NAMES, rounded_rows, spread_values, styled_spec
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.theme import SERIES

PLOT_WIDTH, PLOT_HEIGHT = 330, 200  # pixels
NAME_DISTANCE = 13  # pixels between names at the ends of lines


@lazy_figure()
def occurrence_paths(rows: pd.DataFrame, steps: Sequence[str]) -> SpecAndRows:
    """Draw a line for each occurrence, with its name at the end.

    Args:
        rows: columns ``occurrence`` (a name), ``step``, one of ``steps``, and ``value``.
        steps: the points of the horizontal axis, in order.
    """
    table, rows = rows, rounded_rows(rows, 4)
    names = list(dict.fromkeys(rows["occurrence"]))
    ends = (
        min(rows["value"].min(), 0) - 0.02,
        rows["value"].max() + 0.02,
    )  # one range for all occurrences
    x = alt.X(
        "step:O", title="layer", scale=alt.Scale(domain=[*steps]), axis=alt.Axis(**LAYER_NAMES)
    )
    y = alt.Y(
        "value:Q",
        title="cosine to the input embedding",
        scale=alt.Scale(domain=[*ends], nice=False),
    )
    colour = alt.Color(
        "occurrence:N", scale=alt.Scale(domain=names, range=[*SERIES][: len(names)]), legend=None
    )
    base = alt.Chart(rows).encode(x=x, y=y, color=colour)
    lines = base.mark_line(strokeWidth=1.8, point={"size": 18}).encode(
        tooltip=["occurrence:N", "step:O", alt.Tooltip("value:Q", format=".3f")]
    )
    last = rows[rows["step"] == steps[-1]]
    name_places = spread_values(
        last["value"].to_numpy(float), NAME_DISTANCE / PLOT_HEIGHT * (ends[1] - ends[0]), ends
    )
    labels = (
        alt.Chart(last.assign(place=name_places))
        .mark_text(align="left", dx=8, fontSize=11)
        .encode(x=x, y=alt.Y("place:Q", scale=alt.Scale(domain=[*ends])), text="occurrence:N")
        .encode(color=colour)
    )
    chart = alt.layer(lines.properties(name="paths"), labels)
    return styled_spec(chart.properties(width=PLOT_WIDTH, height=PLOT_HEIGHT)), table
