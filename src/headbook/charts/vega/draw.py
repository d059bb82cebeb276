"""One function a kind of chart: from a table to a figure."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import Floats
from headbook.charts.base.render import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Chart,
    chosen_rows,
    drawn,
    finished,
    on_demand,
    ramp,
)
from headbook.report.wording import option_name

CELL = 24  # pixels of a head in a heat map
LINE = 13  # pixels between two labels
CURVE = (300, 170)  # width and height of a curve over layers
NAMED = 224  # width where names of lines stand beside it: three charts fit beside each other
LAYER_NAMES: dict[str, Any] = {"labelAngle": 0, "labelOverlap": True, "labelSeparation": 3}
UNIFORM = "uniform attention"
CHANCE = "expected overlap"
SHARE, PLAIN = "~p", "~g"  # formats: shares in per cent, as tables have them; other numbers
INKS = (BLUE, ORANGE, GREEN, PURPLE)

# Columns that readers choose from: name, what is chosen first, what there is.
FIELDS = {"view": "Keys", "state": "State", "space": "Compared with", "label": "Label"}
Choices = tuple[tuple[str, str, tuple[str, ...]], ...]


@on_demand
def heat_map(
    rows: pd.DataFrame,
    *,
    title: str,
    domain: tuple[float, float],
    show: dict[str, str],
    share: bool = False,
) -> Chart:
    """One number for each head: rows are layers, columns are heads.

    Args:
        rows: columns ``layer, head, view, label, value, low, high``.
        title: of the colour legend, with the unit.
        domain: ends of the colour scale; below 0 it runs both ways from there.
        show: the ``view`` and the ``label`` of the picture; the live chart offers the others.
        share: whether values are parts of a whole, written in per cent.
    """
    table, rows = chosen_rows(rows, show), drawn(rows)
    legend = _legend(domain, table["head"], SHARE if share else PLAIN)
    chart = with_choices(alt.Chart(rows), choices_of(rows, show))
    chart = chart.mark_rect().encode(
        x=alt.X("head:O", title="head", axis=_places(labelAngle=0)),
        y=alt.Y("layer:O", title="layer", axis=_places()),
        color=alt.Color("value:Q", title=title, scale=ramp(domain), legend=legend),
        tooltip=[*named("layer:O", "head:O"), *numbers("value", "low", "high", share=share)],
    )
    size = chart.properties(width=alt.Step(CELL), height=alt.Step(CELL))
    return finished(size, table)


def _places(**more: Any) -> alt.Axis:
    return alt.Axis(ticks=False, domain=False, labelOverlap=True, **more)


def _legend(ends: tuple[float, float], heads: "pd.Series[Any]", form: str) -> alt.Legend:
    """As wide as the map at most; both ends are named."""
    wide = min(max(CELL * heads.nunique(), 120), 240)
    values = [ends[0], (ends[0] + ends[1]) / 2, ends[1]]
    return alt.Legend(
        orient="top", titleLimit=0, gradientLength=wide, values=values, format=f".3{form}"
    )


@on_demand
def layer_curve(
    rows: pd.DataFrame, *, title: str, show: dict[str, str], share: bool = False
) -> Chart:
    """One number for each layer with its interval, beside a control.

    Args:
        rows: columns ``layer, series, view, label, value, low, high``.
        share: whether values are parts of a whole, written in per cent.
    """
    table, rows = chosen_rows(rows, show), drawn(rows)
    series = list(dict.fromkeys(rows["series"]))
    inks = iter(INKS * len(series))
    ink = [GREY if name in {UNIFORM, CHANCE} else next(inks) for name in series]
    colour = alt.Color("series:N", scale=alt.Scale(domain=series, range=ink), legend=None)
    choices = choices_of(rows, show)
    base = with_choices(alt.Chart(rows), choices)
    base = base.encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(**LAYER_NAMES)), color=colour
    )
    # From 0, or a baseline would look like it.
    axis = alt.Axis(format=SHARE) if share else alt.Undefined
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=True, nice=True), axis=axis)
    # Uniform attention has an interval, too, which would only hide the others.
    band = base.transform_filter(alt.datum.series != UNIFORM).mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=None, axis=axis), y2=alt.Y2("high:Q"))
    tooltip = [*named("series:N", "layer:O"), *numbers("value", "low", "high", share=share)]
    line = base.mark_line(strokeWidth=2, point={"size": 34, "filled": True})
    line = line.encode(y=y, tooltip=tooltip)
    ends = _line_ends(rows, show)
    names = with_choices(alt.Chart(ends), choices, again=True).mark_text(align="left", dx=9)
    names = names.encode(
        x=alt.X("layer:O"), y=alt.Y("place:Q", axis=axis), text=alt.Text("series:N"), color=colour
    )
    several = len(series) > 1
    chart = alt.layer(band, line, names if several else line)
    wide = NAMED if several else CURVE[0]
    chart = chart.properties(width=wide, height=CURVE[1], title=heading(title))
    return finished(chart, table)


def heading(title: str) -> alt.Title:
    """What an axis of values shows, above the chart: there it has room at any height."""
    return alt.Title(title, fontSize=12, limit=0, offset=8)


def _line_ends(rows: pd.DataFrame, show: dict[str, str]) -> pd.DataFrame:
    """Where the names of lines stand, moved apart where lines end together."""
    placed: list[pd.DataFrame] = []
    for _, group in rows.groupby([*show], sort=False):
        heights = group[["value", "low", "high"]].to_numpy(float)
        ends = (min(float(np.nanmin(heights)), 0.0), max(float(np.nanmax(heights)), 0.0))
        last = group[group["layer"] == group["layer"].max()]
        gap = (ends[1] - ends[0]) * LINE / CURVE[1]
        placed.append(last.assign(place=spread(last["value"].to_numpy(float), gap, ends)))
    line_ends: pd.DataFrame = pd.concat(placed)
    return line_ends


def spread(values: Floats, gap: float, ends: tuple[float, float]) -> Floats:
    """Move values apart until neighbours are ``gap`` apart, as little as that takes.

    Neighbours that would overlap form a group around their common mean, as in isotonic
    regression.

    Args:
        ends: where no value may lie below or above, as long as there is room for all; half a
            gap above the lower one, where an axis would strike a name out.
    """
    order = np.argsort(values, kind="stable")
    groups: list[tuple[float, int]] = []  # mean of (value - place in group * gap), members
    for number, place in enumerate(order):
        mean, size = float(values[place]) - number * gap, 1
        while groups and groups[-1][0] > mean:
            other, members = groups.pop()
            mean = (mean * size + other * members) / (size + members)
            size += members
        groups.append((mean, size))
    apart = np.concatenate([np.full(size, mean) for mean, size in groups] or [np.zeros(0)])
    places = np.arange(len(values)) * gap
    found = np.empty(len(values))
    highest = ends[1] - gap * (len(values) - 1)
    lowest = min(ends[0] + gap / 2, max(highest, ends[0]))
    found[order] = np.maximum(np.minimum(apart, highest), lowest) + places
    return found


def numbers(*names: str, share: bool = False) -> list[alt.Tooltip]:
    """Columns of numbers as a tooltip says them."""
    form = f".4{SHARE if share else PLAIN}"
    return [alt.Tooltip(f"{name}:Q", format=form) for name in names]


def named(*names: str) -> list[alt.Tooltip]:
    """Other columns as a tooltip says them: ``name:type``.

    Channels, and no bare names: for each of those Altair looks through all of its classes.
    """
    return [alt.Tooltip(name) for name in names]


def choices_of(rows: pd.DataFrame, show: dict[str, str]) -> Choices:
    """What readers may choose from, by column."""
    return tuple((name, chosen, tuple(rows[name].unique())) for name, chosen in show.items())


def with_choices(chart: Any, choices: Choices, *, again: bool = False) -> Any:
    """Filter by what is shown; where there are more options, a drop-down list changes it.

    Args:
        again: the lists are made by another layer of the same chart.
    """
    for field, chosen, options in choices:
        wanted: Any = chosen
        if len(options) > 1:
            wanted = alt.param(
                name=f"{field}_shown",
                value=chosen,
                bind=alt.binding_select(
                    options=[*options],
                    labels=[option_name(field, option) for option in options],
                    name=f"{FIELDS.get(field, field)} ",
                ),
            )
            chart = chart if again else chart.add_params(wanted)
        chart = chart.transform_filter(alt.datum[field] == wanted)
    return chart
