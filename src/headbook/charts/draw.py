"""One function a kind of chart: from a table to a figure."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.arithmetic import Floats
from headbook.charts.render import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SEQUENTIAL,
    Figure,
    drawn,
    finished,
    shown,
)

CELL = 24  # pixels of a head in a heat map
LINE = 13  # pixels between two labels
CURVE = 170  # height of a curve over layers
CLASSES = {"content word": BLUE, "function word": ORANGE, "punctuation": GREEN, "other": GREY}
BASELINE = "baseline"  # the class of what paths are set against, where there is something
RANK_TICKS = (0, 1, 10, 100, 1_000, 10_000, 100_000)
UNIFORM = "uniform attention"
CHANCE = "shared by chance"
INKS = (BLUE, ORANGE, GREEN, PURPLE)


def heat_map(
    name: str,
    caption: str,
    rows: pd.DataFrame,
    *,
    title: str,
    domain: tuple[float, float],
    show: dict[str, str],
) -> Figure:
    """One number for each head: rows are layers, columns are heads.

    Args:
        rows: columns ``layer, head, view, label, value, low, high``.
        title: of the colour legend, with the unit.
        domain: ends of the colour scale.
        show: the ``view`` and the ``label`` of the picture; the live chart offers the others.
    """
    table, rows = shown(rows, show), drawn(rows)
    chart = _with_choices(alt.Chart(rows), rows, show)
    chart = chart.mark_rect().encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, ticks=False, domain=False)),
        y=alt.Y("layer:O", title="layer", axis=alt.Axis(ticks=False, domain=False)),
        color=alt.Color(
            "value:Q",
            title=title,
            scale=alt.Scale(
                scheme=SEQUENTIAL, domain=[round(end, 5) for end in domain], clamp=True
            ),
        ),
        tooltip=["layer:O", "head:O", *_numbers("value", "low", "high")],
    )
    size = chart.properties(width=alt.Step(CELL), height=alt.Step(CELL))
    return finished(size, name, caption, table)


def layer_curve(
    name: str, caption: str, rows: pd.DataFrame, *, title: str, show: dict[str, str]
) -> Figure:
    """One number for each layer with its interval, beside a control.

    Args:
        rows: columns ``layer, series, view, label, value, low, high``.
    """
    table, rows = shown(rows, show), drawn(rows)
    series = list(dict.fromkeys(rows["series"]))
    inks = iter(INKS * len(series))
    ink = [GREY if name in {UNIFORM, CHANCE} else next(inks) for name in series]
    colour = alt.Color("series:N", scale=alt.Scale(domain=series, range=ink), legend=None)
    base = _with_choices(alt.Chart(rows), rows, show)
    base = base.encode(x=alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0)), color=colour)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, nice=True))
    # Uniform attention has an interval, too, which would only hide the others.
    band = base.transform_filter(alt.datum.series != UNIFORM).mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    tooltip = ["series:N", "layer:O", *_numbers("value", "low", "high")]
    line = base.mark_line(strokeWidth=2, point={"size": 34, "filled": True})
    line = line.encode(y=y, tooltip=tooltip)
    ends = _line_ends(rows, show)
    names = _with_choices(alt.Chart(ends), ends, show, again=True).mark_text(align="left", dx=9)
    names = names.encode(x="layer:O", y="place:Q", text="series:N", color=colour)
    chart = alt.layer(band, line, names if len(series) > 1 else line)
    return finished(chart.properties(width=300, height=CURVE), name, caption, table)


def _line_ends(rows: pd.DataFrame, show: dict[str, str]) -> pd.DataFrame:
    """Where the names of lines stand, moved apart where lines end together."""
    placed: list[pd.DataFrame] = []
    for _, group in rows.groupby([*show], sort=False):
        heights = group[["value", "low", "high"]].to_numpy(float)
        ends = (float(np.nanmin(heights)), float(np.nanmax(heights)))
        last = group[group["layer"] == group["layer"].max()]
        gap = (ends[1] - ends[0]) * LINE / CURVE
        placed.append(last.assign(place=spread(last["value"].to_numpy(float), gap, ends)))
    found: pd.DataFrame = pd.concat(placed)
    return found


def trajectories(
    name: str,
    caption: str,
    rows: pd.DataFrame,
    *,
    title: str,
    steps: Sequence[str],
    show: dict[str, str],
    ranks: bool,
) -> Figure:
    """The path of every token through the layers, its name at the end; a click pins a path.

    Args:
        rows: columns ``position, token, kind, step, value`` and one for each key of ``show``;
            ``kind`` is one of `CLASSES` or `BASELINE`, ``step`` one of ``steps``.
        steps: the points of the horizontal axis, in order.
        ranks: values are ranks, drawn on a logarithmic scale that has a zero.
    """
    table, rows = shown(rows, show), drawn(rows, 4)
    n_tokens = rows["position"].nunique()
    height = max(240, LINE * n_tokens)
    scale, axis, ends = _rank_scale(rows) if ranks else _plain_scale(rows)
    x_scale = alt.Scale(domain=[*steps], paddingOuter=0.1)
    base = _with_choices(alt.Chart(rows), rows, show)
    beside = {BASELINE: PURPLE} if (rows["kind"] == BASELINE).any() else {}
    classes = CLASSES | beside
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=[*classes], range=[*classes.values()]),
        legend=alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3),
    )
    pointed = alt.selection_point(
        name="token", fields=["position"], on="pointerover", clear="pointerout", empty=False
    )
    # A click pins a path, another one lets it go; a double click lets all go.
    pinned = alt.selection_point(
        name="pinned", fields=["position"], on="click", clear="dblclick", toggle="true"
    )
    strong = (
        alt.when(pointed, empty=False)
        .then(alt.value(1.0))
        .when(pinned)
        .then(alt.value(0.8))
        .otherwise(alt.value(0.12))
    )
    lines = base.mark_line(strokeWidth=1.6).encode(
        x=alt.X("step:O", title="layer", scale=x_scale, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=title, scale=scale, axis=axis),
        detail="position:N",
        color=colour,
        opacity=strong,
        tooltip=["token:N", "position:Q", "step:O", *_numbers("value")],
    )
    if beside:
        dashed = alt.condition(alt.datum.kind == BASELINE, alt.value([5, 3]), alt.value([1, 0]))
        lines = lines.encode(strokeDash=dashed)
    names = _names(rows, show, steps[-1], ends, height, ranks=ranks)
    labels = _with_choices(alt.Chart(names), names, show, again=True).mark_text(
        align="left", dx=8, fontSize=11
    )
    labels = labels.encode(
        x=alt.X("step:O", scale=x_scale),
        y=alt.Y("place:Q", scale=scale),
        text="name:N",
        color=colour,
        opacity=strong,
    )
    # Without a name, Altair hashes the rows as printed, which the width of a terminal changes.
    chart = alt.layer(lines.add_params(pointed, pinned).properties(name="paths"), labels)
    return finished(chart.properties(width=370, height=height), name, caption, table)


def _plain_scale(rows: pd.DataFrame) -> tuple[alt.Scale, alt.Axis, tuple[float, float]]:
    """A linear scale between round ends."""
    ends = (np.floor(rows["value"].min() * 10) / 10, np.ceil(rows["value"].max() * 10) / 10)
    if ends[0] == ends[1]:
        ends = (ends[0] - 0.1, ends[1] + 0.1)
    digits = ".1f" if ends[1] - ends[0] > 0.75 else ".2f"  # ticks in steps of 0.1, or less
    return alt.Scale(domain=[*ends], nice=False), alt.Axis(format=digits, tickCount=8), ends


def _rank_scale(rows: pd.DataFrame) -> tuple[alt.Scale, alt.Axis, tuple[float, float]]:
    """A logarithmic scale with a zero; its ends as ``log(1 + rank)``."""
    most = float(rows["value"].max())
    top = max(next((tick for tick in RANK_TICKS if tick >= most), most), 1)
    axis = alt.Axis(values=[tick for tick in RANK_TICKS if tick <= top], format=",d")
    scale = alt.Scale(type="symlog", domain=[0, top], nice=False)
    return scale, axis, (0.0, float(np.log1p(top)))


def _names(
    rows: pd.DataFrame,
    show: dict[str, str],
    last: str,
    ends: tuple[float, float],
    height: int,
    *,
    ranks: bool,
) -> pd.DataFrame:
    """The tokens' names and values at the right end, moved apart where lines end together.

    Args:
        last: the step at the right end.
        ends: of the vertical scale, ``height`` pixels apart.
    """
    gap = (ends[1] - ends[0]) * LINE / height
    digits = ",.0f" if ranks else ".2f"
    placed = []
    for _, group in rows[rows["step"] == last].groupby([*show], sort=False):
        values = group["value"].to_numpy(float)
        steps = np.log1p(values) if ranks else values
        apart = spread(steps, gap, ends)
        ended = zip(group["token"], values, strict=True)
        texts = [
            f"{token} · {'−' if value < 0 else ''}<0.01"
            if 0 < abs(value) < 0.005
            else f"{token} · {value:{digits}}"
            for token, value in ended
        ]
        placed.append(group.assign(place=np.expm1(apart) if ranks else apart, name=texts))
    return pd.concat(placed)


def spread(values: Floats, gap: float, ends: tuple[float, float]) -> Floats:
    """Move values apart until neighbours are ``gap`` apart, as little as that takes.

    Neighbours that would overlap form a group around their common mean, as in isotonic
    regression.

    Args:
        ends: where no value may lie below or above, as long as there is room for all.
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
    found[order] = (
        np.maximum(np.minimum(apart, ends[1] - gap * (len(values) - 1)), ends[0]) + places
    )
    return found


def _numbers(*names: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:Q", format=".4~g") for name in names]


def _with_choices(
    chart: Any, rows: pd.DataFrame, show: dict[str, str], *, again: bool = False
) -> Any:
    """Filter by what is shown; where there are more options, a drop-down list changes it.

    Args:
        again: the lists are made by another layer of the same chart.
    """
    for field, chosen in show.items():
        options = list(dict.fromkeys(rows[field]))
        wanted: Any = chosen
        if len(options) > 1:
            wanted = alt.param(
                name=f"{field}_shown",
                value=chosen,
                bind=alt.binding_select(options=options, name=f"{field} "),
            )
            chart = chart if again else chart.add_params(wanted)
        chart = chart.transform_filter(alt.datum[field] == wanted)
    return chart
