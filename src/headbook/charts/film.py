"""Numbers of heads over training steps.

Steps stand on a logarithmic axis; step 0, which such an axis does not have, stands apart on its
left, and no line leads there.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats, Ints
from headbook.charts.axes import rounded_rows, styled_spec
from headbook.charts.drawing import Drawing, drawing, svg_text
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
from headbook.charts.theme import CURVES, GREY, INK

FIRST_STEP_PLACE = 0.14  # place on the axis from 0 to 1 of the first step after step 0
MIN_LABEL_GAP = 0.15  # between two labels of the axis, as a share of its length
BAR_PIXELS = 10.0  # width of the bar of step 0
SWATCH_PIXELS = 10.0  # side of a square of colour in the legend
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
    later = np.log(steps[steps > 0].astype(np.float64))
    width = float(later[-1] - later[0]) if len(later) > 1 else 0.0
    first = FIRST_STEP_PLACE if steps[0] == 0 else 0.0
    places = [first + (1 - first) * (x - later[0]) / width if width else 1.0 for x in later]
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
    size = (high - low) or 1.0
    x = [2 + (SPARK_WIDTH - 4) * place for place in axis.places]
    y = 2 + (SPARK_HEIGHT - 4) * (high - np.clip(values, low, high)) / size
    known = [n for n, value in enumerate(values) if not np.isnan(value)]
    joined = [n for n in known if n or not axis.apart]
    rule = "" if turn is None else f'<path class="turn" d="M{x[turn]:.0f} 0V{SPARK_HEIGHT}"/>'
    line = f'<path d="M{"L".join(f"{x[n]:.0f},{y[n]:.1f}" for n in joined)}"/>' if joined else ""
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
        parts: names and colours, from below.
        texts: shares at the last step as text.
    """
    known = np.nan_to_num(shares)
    upper = known.cumsum(1)
    lower = upper - known
    drawn = [*draw_axes(axis, (0.0, 1.0), SHARE_TICKS)]
    for n, (part, colour) in enumerate(parts):
        shape = _area(lower[:, n], upper[:, n], axis)
        drawn.append(
            f'<path d="{shape}" fill="{colour}" stroke="{colour}" stroke-width="0.6">'
            f"<title>{escape(part)}</title></path>"
        )
    drawn += _rules(axis)
    middles = [
        (y_of(float(lower[-1, n] + upper[-1, n]) / 2, (0.0, 1.0)), n) for n in range(len(parts))
    ]
    for y, n in spread_labels(middles):
        drawn += _named(*parts[n], texts[n], y)
    return drawing(name, caption, WIDTH, HEIGHT, drawn)


def _area(low: Floats, high: Floats, axis: CurveAxis) -> str:
    """Return the path of one part; the first step is a separate bar if it stands apart."""
    first = 1 if axis.apart else 0
    x = [*map(x_of, axis.places)]
    bottom, top = ([y_of(float(end), (0.0, 1.0)) for end in ends] for ends in (low, high))
    bar = f"M{x[0]:.1f} {bottom[0]:.1f}V{top[0]:.1f}h{BAR_PIXELS}V{bottom[0]:.1f}z" if first else ""
    over = [f"{x[n]:.1f},{top[n]:.1f}" for n in range(first, len(x))]
    under = [f"{x[n]:.1f},{bottom[n]:.1f}" for n in reversed(range(first, len(x)))]
    return f"{bar}M{'L'.join([*over, *under])}z"


def _rules(axis: CurveAxis) -> Iterator[str]:
    """Draw hairlines at the measured steps, since areas between them are interpolated."""
    ends = y_of(1, (0.0, 1.0)), y_of(0, (0.0, 1.0))
    inner = axis.places[1:-1]
    path = "".join(f"M{x_of(place):.1f} {ends[0]:.1f}V{ends[1]:.1f}" for place in inner)
    yield f'<path d="{path}" stroke="{INK}" stroke-opacity="0.25" stroke-width="0.7"/>'


def _named(part: str, colour: str, text: str, y: float) -> Iterator[str]:
    x = WIDTH - LABELS_WIDTH + 8
    yield (
        f'<rect x="{x:.0f}" y="{y - SWATCH_PIXELS / 2:.1f}" '
        f'width="{SWATCH_PIXELS:.0f}" height="{SWATCH_PIXELS:.0f}" '
        f'fill="{colour}"/>'
    )
    yield svg_text(f"{part} {text}", x + SWATCH_PIXELS + 5, y + 4, TEXT_PIXELS, anchor="start")


STEPS_WIDTH, STEPS_HEIGHT = 620, 300
MAX_COLOURED_HEADS = len(CURVES)  # others are grey
OTHERS = "other heads"


@lazy_figure()
def head_steps(
    rows: pd.DataFrame, *, title: str, axis: CurveAxis, share: bool, named: Sequence[str]
) -> SpecAndRows:
    """Draw a line for each head; some are coloured, and the one under the pointer is wide.

    Args:
        rows: columns ``head, layer, step, place, value, low, high``; ``place`` is that of the step
            on the axis, whose first stands apart where the axis says so.
        share: whether values are parts of a whole.
        named: heads with a colour, at most as many as there are.
    """
    table, kept = rows.drop(columns="place"), rounded_rows(rows, 4)
    kept = kept.assign(
        part=kept["place"].gt(0) | (not axis.apart),
        series=kept["head"].where(kept["head"].isin(named), OTHERS),
    )
    series = [*named, *([OTHERS] if (kept["series"] == OTHERS).any() else [])]
    inks = [*CURVES[: len(named)], GREY][: len(series)]
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
    return styled_spec(chart.properties(width=STEPS_WIDTH, height=STEPS_HEIGHT)), table


def _ticks(axis: CurveAxis) -> Any:
    """Return the axis of steps with labels of our own, since Vega has no such scale."""
    names = " : ".join(f"abs(datum.value - {p:.4f}) < 0.0005 ? '{t}'" for p, t in axis.labels)
    values = [round(place, 4) for place, _ in axis.labels]
    return alt.Axis(values=values, labelExpr=f"{names} : ''", grid=False)
