"""Numbers of heads over training steps.

Steps are placed on a logarithmic axis. Such an axis has no step 0, which is therefore drawn apart
on its left, without a line to it.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats, Ints
from headbook.charts.attention import LETTER_PIXELS, WIDE_LETTER_PIXELS
from headbook.charts.axes import styled_spec
from headbook.charts.drawing import Drawing, drawing, guessed_width, svg_text
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.layers import (
    HEIGHT,
    LABELS_WIDTH,
    TEXT_PIXELS,
    WIDTH,
    CurveAxis,
    draw_axes,
    spread_labels,
    x_of,
    y_of,
)
from headbook.charts.theme import CURVES, FAMILY_COLOURS, GREY, INK

FIRST_STEP_PLACE = 0.14  # place on the axis from 0 to 1 of the first step after step 0
MIN_LABEL_GAP = 0.15  # between two labels of the axis, as a share of its length
BAR_PIXELS = 10.0  # width of the bar of step 0
SWATCH_PIXELS = 10.0  # side of a square of colour in the legend
SWATCH_GAP = 5.0  # pixels between a square of colour and its name
LEGEND_X = WIDTH - LABELS_WIDTH + 8  # left edge of the legend
SPARK_WIDTH, SPARK_HEIGHT = 200, 40  # view box of a sparkline
SHARE_TICKS = ((0.0, "0"), (0.5, "50\u202f%"), (1.0, "100\u202f%"))


def step_axis(steps: Ints, *, named: bool) -> CurveAxis:
    """Return the axis of steps.

    Args:
        steps: training steps in ascending order.
        named: whether the numbers are training steps; else they number checkpoints evenly apart.
    """
    names = [f"step {step:,}" if named else f"checkpoint {step}" for step in steps.tolist()]
    places = _places(steps, named=named)
    labels = [(places[-1], f"{steps[-1]:,}")]
    for place, step in [*zip(places, steps.tolist(), strict=True)][-2::-1]:
        if labels[-1][0] - place >= MIN_LABEL_GAP or (
            place == 0 and labels[-1][0] >= FIRST_STEP_PLACE
        ):
            labels.append((place, f"{step:,}"))
    return CurveAxis(places, names, labels[::-1], apart=named and int(steps[0]) == 0)


def _places(steps: Ints, *, named: bool) -> list[float]:
    """Return places of steps on the axis, from 0 to 1."""
    if not named:
        return [float(place) for place in np.linspace(0, 1, len(steps))]
    log_steps = np.log(steps[steps > 0].astype(np.float64))
    width = float(log_steps[-1] - log_steps[0]) if len(log_steps) > 1 else 0.0
    first_place = FIRST_STEP_PLACE if steps[0] == 0 else 0.0
    places = [
        first_place + (1 - first_place) * (log_step - log_steps[0]) / width if width else 1.0
        for log_step in log_steps
    ]
    return [*([0.0] if steps[0] == 0 else []), *map(float, places)]


def sparkline(
    values: Floats, axis: CurveAxis, ends: tuple[float, float], turn: int | None = None
) -> str:
    """Draw one number over steps as a hairline, as wide as its place on the page.

    Args:
        values: NaN if missing. *Shape:* ``(step,)``.
        ends: ends of the scale.
        turn: index of the half-rise step, which a rule marks; or None.
    """
    low, high = ends
    value_range = (high - low) or 1.0
    x = [2 + (SPARK_WIDTH - 4) * place for place in axis.places]
    y = 2 + (SPARK_HEIGHT - 4) * (high - np.clip(values, low, high)) / value_range
    known = [step for step, value in enumerate(values) if not np.isnan(value)]
    on_line = [step for step in known if step or not axis.apart]
    rule = "" if turn is None else f'<path class="turn" d="M{x[turn]:.0f} 0V{SPARK_HEIGHT}"/>'
    line = (
        f'<path d="M{"L".join(f"{x[step]:.0f},{y[step]:.1f}" for step in on_line)}"/>'
        if on_line
        else ""
    )
    dot = f'<path d="M{x[0] - 2:.0f},{y[0]:.1f}h4"/>' if axis.apart and 0 in known else ""
    return (
        f'<svg class="spark" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" preserveAspectRatio="none" '
        f'aria-hidden="true">{rule}{dot}{line}</svg>'
    )


def step_areas(
    name: str,
    caption: str,
    shares: Floats,
    *,
    parts: Sequence[tuple[str, str]],
    texts: Sequence[str],
    axis: CurveAxis,
) -> Drawing:
    """Draw stacked shares of a whole over steps.

    Args:
        shares: each row sums to 1, or is NaN. *Shape:* ``(step, part)``.
        parts: names and families of functions, from below.
        texts: shares at the last step as text.
    """
    heights = np.nan_to_num(shares)
    upper = heights.cumsum(1)
    lower = upper - heights
    elements = [*draw_axes(axis, (0.0, 1.0), SHARE_TICKS)]
    for part_index, (part, family) in enumerate(parts):
        shape = _area(lower[:, part_index], upper[:, part_index], axis)
        elements.append(f'<path d="{shape}" {_fill(family)}><title>{escape(part)}</title></path>')
    elements += _rules(axis)
    label_heights = [
        (y_of(float(lower[-1, part_index] + upper[-1, part_index]) / 2, (0.0, 1.0)), part_index)
        for part_index in range(len(parts))
    ]
    labels = [f"{part} {text}" for (part, _), text in zip(parts, texts, strict=True)]
    for y, part_index in spread_labels(label_heights):
        elements += _legend_entry(labels[part_index], parts[part_index][1], y)
    longest = max(guessed_width(label, LETTER_PIXELS, WIDE_LETTER_PIXELS) for label in labels)
    width = max(WIDTH, LEGEND_X + SWATCH_PIXELS + SWATCH_GAP + longest)
    return drawing(name, caption, width, HEIGHT, elements)


def _area(low: Floats, high: Floats, axis: CurveAxis) -> str:
    """Return the path of one part; the first step is a separate bar if it stands apart."""
    first_on_area = 1 if axis.apart else 0
    x = [*map(x_of, axis.places)]
    bottom, top = ([y_of(float(end), (0.0, 1.0)) for end in ends] for ends in (low, high))
    bar = (
        f"M{x[0]:.1f} {bottom[0]:.1f}V{top[0]:.1f}h{BAR_PIXELS}V{bottom[0]:.1f}z"
        if first_on_area
        else ""
    )
    upper_edge = [f"{x[step]:.1f},{top[step]:.1f}" for step in range(first_on_area, len(x))]
    lower_edge = [
        f"{x[step]:.1f},{bottom[step]:.1f}" for step in reversed(range(first_on_area, len(x)))
    ]
    return f"{bar}M{'L'.join([*upper_edge, *lower_edge])}z"


def _rules(axis: CurveAxis) -> Iterator[str]:
    """Draw hairlines at the measured steps, since areas between them are interpolated."""
    ends = y_of(1, (0.0, 1.0)), y_of(0, (0.0, 1.0))
    inner = axis.places[1:-1]
    path = "".join(f"M{x_of(place):.1f} {ends[0]:.1f}V{ends[1]:.1f}" for place in inner)
    yield f'<path d="{path}" stroke="{INK}" stroke-opacity="0.25" stroke-width="0.7"/>'


def _fill(family: str) -> str:
    """Return attributes with the colour of a family, which style sheets of pages replace."""
    return f'class="f-{family}" fill="{FAMILY_COLOURS[family][0]}"'


def _legend_entry(label: str, family: str, y: float) -> Iterator[str]:
    yield (
        f'<rect x="{LEGEND_X:.0f}" y="{y - SWATCH_PIXELS / 2:.1f}" '
        f'width="{SWATCH_PIXELS:.0f}" height="{SWATCH_PIXELS:.0f}" '
        f"{_fill(family)}/>"
    )
    x = LEGEND_X + SWATCH_PIXELS + SWATCH_GAP
    yield svg_text(label, x, y + 4, TEXT_PIXELS, anchor="start")


STEPS_WIDTH, STEPS_HEIGHT = 620, 300
MAX_COLOURED_HEADS = len(CURVES)  # the other heads are grey
OTHERS = "other heads"


@lazy_figure
def head_steps(
    rows: pd.DataFrame, *, title: str, axis: CurveAxis, share: bool, named: Sequence[str]
) -> SpecAndRows:
    """Draw a line for each head; some are coloured.

    Args:
        rows: columns ``head, layer, step, place, value, low, high``; ``place`` is that of the step
            on the axis, whose first stands apart where the axis says so.
        share: whether values are parts of a whole.
        named: heads with a colour, at most as many as there are.
    """
    table, plotted = rows.drop(columns="place"), rows
    plotted = plotted.assign(
        part=plotted["place"].gt(0) | (not axis.apart),
        series=plotted["head"].where(plotted["head"].isin(named), OTHERS),
    )
    series = [*named, *([OTHERS] if (plotted["series"] == OTHERS).any() else [])]
    colours = [*CURVES[: len(named)], GREY][: len(series)]
    number_format = ".1%" if share else ".3f"
    base = alt.Chart(plotted).encode(
        x=alt.X("place:Q", title="step", scale=alt.Scale(domain=[0, 1]), axis=_ticks(axis)),
        y=alt.Y("value:Q", title=title, axis=alt.Axis(format=".0%" if share else "~g")),
        color=alt.Color(
            "series:N",
            title=None,
            scale=alt.Scale(domain=series, range=colours),
            legend=alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3),
        ),
        tooltip=[
            "head:N",
            alt.Tooltip("step:Q", format=",d"),
            *(alt.Tooltip(f"{name}:Q", format=number_format) for name in ("value", "low", "high")),
        ],
    )
    is_grey = alt.datum.series == OTHERS
    opacity = alt.when(is_grey).then(alt.value(0.5)).otherwise(alt.value(1.0))
    lines = base.mark_line().encode(
        detail=["head:N", "part:N"],
        strokeWidth=alt.when(is_grey).then(alt.value(1.0)).otherwise(alt.value(2.2)),
        opacity=opacity,
    )
    points = base.mark_circle(size=26).encode(opacity=opacity)
    chart = alt.layer(lines.properties(name="lines"), points)
    return styled_spec(chart.properties(width=STEPS_WIDTH, height=STEPS_HEIGHT)), table


def _ticks(axis: CurveAxis) -> Any:
    """Return the axis of steps with labels of our own, since Vega has no such scale."""
    names = " : ".join(
        f"abs(datum.value - {place:.4f}) < 0.0005 ? '{text}'" for place, text in axis.labels
    )
    values = [round(place, 4) for place, _ in axis.labels]
    return alt.Axis(values=values, labelExpr=f"{names} : ''", grid=False)
