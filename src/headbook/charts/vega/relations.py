"""Heat map of relations: how much better than a surface rule the best head of each layer is."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from headbook.charts.base.ink import DARK_DIVERGING, DIVERGING
from headbook.charts.base.render import Chart, drawn, finished, letters_on, on_demand, ramp
from headbook.charts.vega.draw import LAYER_NAMES
from headbook.charts.vega.tags import HEIGHT, LAYER

END = 0.4  # the colours end at so much better or worse
COLOURS = 20  # in each half of the scale
POINTS = "datum.value ? replace(format(100 * datum.value, '+.0f'), '-', '−') : '0'"
NUMBERED = 46  # pixels of a cell that has room for its head and number
CORNER = 0.1  # part of a cell's width that a stroke beside numbers takes
PALE = 0.35  # opacity of what is not supported


@on_demand
def relation_layers(
    rows: pd.DataFrame, *, relations: Sequence[str], numbers: Sequence[int]
) -> Chart:
    """Margins of the best heads by layer, a panel for each direction.

    Args:
        rows: columns ``way, relation, layer, head, margin, low, high, words, supported``; struck
            and pale where the head is not supported.
        relations: from top to bottom.
        numbers: of the rows' heads in their layers.
    """
    table, rows = rows, drawn(rows, 4)
    directions = list(dict.fromkeys(rows["way"]))
    step = END / COLOURS
    rows = rows.assign(better=(rows["margin"].clip(-END, END) / step).round() * step + 0.0)
    rows = rows.assign(points=list(map(_points, numbers, rows["margin"])))
    # Cells of one colour come together, so that a picture can draw them as one shape.
    rows = rows.sort_values(["way", "supported", "better"], kind="stable", ignore_index=True)
    pixels = min(max(600 // max(rows["layer"].nunique(), 1), LAYER[0]), NUMBERED)
    base = alt.Chart(rows).encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(ticks=False, domain=False, **LAYER_NAMES)),
        y=alt.Y(
            "relation:N", title=None, sort=[*relations], axis=alt.Axis(ticks=False, domain=False)
        ),
    )
    numbered = pixels >= NUMBERED
    layers = [_cells(base), _hatches(base, relations, CORNER if numbered else 1)]
    layers += [_numbers(base, sure=sure) for sure in (False, True) if numbered]
    column = alt.Column(
        "way:N", title=None, sort=directions, header=alt.Header(labelAnchor="start")
    )
    chart = alt.layer(*layers).properties(width=alt.Step(pixels), height=alt.Step(HEIGHT))
    return finished(chart.facet(column=column), table)


def _points(head: int, margin: float) -> str:
    """The head's number in its layer, and its margin in points."""
    whole = round(100 * margin)
    return f"H{head} {f'{whole:+d}'.replace('-', '−') if whole else '0'}"


def _cells(base: Any) -> Any:
    """Orange: worse than the rule; blue: better."""
    numbers = [alt.Tooltip(f"{n}:Q", format="+.1%") for n in ("margin", "low", "high")]
    about = [alt.Tooltip(f"{each}:N") for each in ("relation", "way", "head")]
    colour = alt.Color(
        "better:Q",
        title="points above the best surface rule",
        scale=ramp((-END, END)),
        legend=alt.Legend(
            orient="top", labelExpr=POINTS, values=[-END, 0, END], gradientLength=200
        ),
    )
    return base.mark_rect().encode(
        color=colour,
        fillOpacity=alt.condition(alt.datum.supported, alt.value(1), alt.value(PALE)),
        tooltip=[*about, *numbers, alt.Tooltip("words:Q", format=",")],
    )


def _hatches(base: Any, relations: Sequence[str], width: float) -> Any:
    """A line across each cell that is not supported, or so much of its width, beside a number."""
    return (
        base.transform_filter("!datum.supported")
        .mark_rule(strokeWidth=0.7, opacity=0.45)
        .encode(
            x=alt.X("layer:O", bandPosition=0),
            x2=alt.X2("layer", bandPosition=width),
            y=alt.Y("relation:N", sort=[*relations], bandPosition=1),
            y2=alt.Y2("relation", bandPosition=0),
            color=alt.value("currentColor"),
        )
    )


def _numbers(base: Any, *, sure: bool) -> Any:
    """Margins in percentage points, bold where supported."""
    ink = letters_on("better", (0, END), DIVERGING[3:], DARK_DIVERGING[3:])
    named = base.properties(name=f"room{NUMBERED - 2}_{int(sure)}")
    words = named.transform_filter("datum.supported" if sure else "!datum.supported").mark_text(
        fontSize=9.5, fontWeight="bold" if sure else "normal", baseline="middle"
    )
    return words.encode(text="points:N", color=ink if sure else alt.value("currentColor"))
