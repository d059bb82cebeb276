"""The paths of a sentence's tokens through the layers."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

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
    records,
)
from headbook.charts.vega.draw import LINE, Choices, choices_of, numbers, spread, with_choices

CLASSES = {"content word": BLUE, "function word": ORANGE, "punctuation": GREEN, "other": GREY}
BASELINE = "baseline"  # the class of what paths are set against, where there is something
WIDTH = 370  # of the picture without names, in pixels
APART = 20  # from one name of a layer to the next, at least
RANK_TICKS = (0, 1, 10, 100, 1_000, 10_000, 100_000)


class _Scale(NamedTuple):
    """The vertical scale: its ends, and whether values are ranks."""

    low: float
    high: float
    ranks: bool

    @property
    def scale(self) -> alt.Scale:
        """For the chart; that of ranks is logarithmic and has a zero."""
        kind: Literal["symlog", "linear"] = "symlog" if self.ranks else "linear"
        return alt.Scale(type=kind, domain=[self.low, self.high], nice=False)

    @property
    def axis(self) -> alt.Axis:
        """Its ticks."""
        if self.ranks:
            return alt.Axis(values=[t for t in RANK_TICKS if t <= self.high], format=",d")
        wide = self.high - self.low > 0.75  # ticks in steps of 0.1, or less
        return alt.Axis(format=".1f" if wide else ".2f", tickCount=8)

    def steps(self, values: Any) -> Any:
        """Values as their distance along the axis."""
        return np.log1p(values) if self.ranks else values


@on_demand
def trajectories(
    rows: pd.DataFrame,
    *,
    title: str,
    steps: Sequence[str],
    show: dict[str, str],
    ranks: bool,
) -> Chart:
    """The path of every token through the layers, its name at the end; a click pins a path.

    Args:
        rows: columns ``position, token, kind, step, value`` and one for each key of ``show``;
            ``kind`` is one of `CLASSES` or `BASELINE`, ``step`` one of ``steps``.
        steps: the points of the horizontal axis, in order.
        ranks: values are ranks, drawn on a logarithmic scale that has a zero.
    """
    table, rows = chosen_rows(rows, show), drawn(rows, 4)
    height = max(240, LINE * rows["position"].nunique())
    scale = _scale(rows, ranks=ranks)
    beside = bool((rows["kind"] == BASELINE).any())
    plan = _plan(title, tuple(steps), choices_of(rows, show), scale, beside)
    names = _names(rows[rows["step"] == steps[-1]], [*show], scale, height)
    data = {"paths": records(rows), "names": records(names)}
    return Chart(plan | {"height": height, "datasets": data}, rows=table)


def _scale(rows: pd.DataFrame, *, ranks: bool) -> _Scale:
    """A scale with round ends that holds all values."""
    least, most = float(rows["value"].min()), float(rows["value"].max())
    if ranks:
        return _Scale(0.0, max(next((t for t in RANK_TICKS if t >= most), most), 1), ranks)
    low, high = np.floor(least * 10) / 10, np.ceil(most * 10) / 10
    return _Scale(low, high, ranks) if low < high else _Scale(low - 0.1, high + 0.1, ranks)


@cache
def _plan(
    title: str, steps: tuple[str, ...], choices: Choices, scale: _Scale, beside: bool
) -> dict[str, Any]:
    """The chart but for its height and data: sentences share it, and Altair takes its time."""
    x_scale = alt.Scale(domain=[*steps], paddingOuter=0.1)
    base = with_choices(alt.Chart(alt.NamedData("paths")), choices)
    classes = CLASSES | ({BASELINE: PURPLE} if beside else {})
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
        x=alt.X("step:O", title="layer", scale=x_scale, axis=_named(steps)),
        y=alt.Y("value:Q", title=title, scale=scale.scale, axis=scale.axis),
        detail="position:N",
        color=colour,
        opacity=strong,
        tooltip=["token:N", "position:Q", "step:O", *numbers("value")],
    )
    if beside:
        dashed = alt.condition(alt.datum.kind == BASELINE, alt.value([5, 3]), alt.value([1, 0]))
        lines = lines.encode(strokeDash=dashed)
    labels = with_choices(alt.Chart(alt.NamedData("names")), choices, again=True)
    labels = labels.mark_text(align="left", dx=8, fontSize=11).encode(
        x=alt.X("step:O", scale=x_scale),
        y=alt.Y("place:Q", scale=scale.scale),
        text="name:N",
        color=colour,
        opacity=strong,
    )
    # Without a name, Altair numbers the views in the order in which they are drawn.
    chart = alt.layer(lines.add_params(pointed, pinned).properties(name="paths"), labels)
    return finished(chart.properties(width=WIDTH)).spec


def _named(steps: tuple[str, ...]) -> alt.Axis:
    """An axis that names all steps, or every so many-th where there is no room for more."""
    every = -(-APART * len(steps) // WIDTH)
    if every == 1:
        return alt.Axis(labelAngle=0)
    return alt.Axis(labelAngle=0, values=[*steps[::every]])


def _names(last: pd.DataFrame, chosen: list[str], scale: _Scale, height: int) -> pd.DataFrame:
    """The tokens' names and values at the right end, moved apart where lines end together.

    Args:
        last: rows of the right end.
        chosen: columns that readers choose from.
        height: of the chart in pixels.
    """
    ends = scale.steps(scale.low), scale.steps(scale.high)
    gap = (ends[1] - ends[0]) * LINE / height
    placed = []
    for _, group in last.groupby(chosen, sort=False):
        values = group["value"].to_numpy(float)
        apart = spread(scale.steps(values), gap, ends)
        ended = zip(group["token"], values, strict=True)
        texts = [f"{token} · {_short(value, ranks=scale.ranks)}" for token, value in ended]
        placed.append(group.assign(place=np.expm1(apart) if scale.ranks else apart, name=texts))
    return pd.concat(placed)


def _short(value: float, *, ranks: bool) -> str:
    if 0 < abs(value) < 0.005:
        return "<0.01" if value > 0 else ">−0.01"
    return f"{value:{',.0f' if ranks else '.2f'}}"
