"""Importance of heads: groups, heads within their layers, estimates beside exact numbers, pruning.

Effects of the last layer of a model may be a hundred times those of the others, so effects stand on
logarithmic scales, on which all layers can be read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.charts.axes import spread_values
from headbook.charts.plots import (
    Plot,
    PlotCurve,
    PlotMark,
    Scale,
    even_ticks,
    grid,
    mark,
    percent,
    text,
    value_axis,
)
from headbook.report.wording import visible
from headbook.results.formats import number
from headbook.results.number import Number, RowAddress

MARGIN = 2.0  # per cent of a plot's width beside the lowest and the highest value
MARGIN_OF_TICKS = 4.0  # per cent of a plot's width within which texts of ticks run inwards
ROW, COMPACT_ROW = 30, 24  # pixels of a row, and of one of many
MANY_ROWS = 16  # rows from which on they are compact
PRINTED_ROW = 34  # pixels of a row in papers, where names stand above the marks
MAX_DECADES = 3  # powers of ten that a logarithmic scale covers at most
MAX_TICKS = 9  # ticks of a logarithmic scale
DOT_WIDTH = 1.7  # per cent of the plot's width within which two dots would touch
LANES = (0, -9, 9, -4.5, 4.5)  # pixels by which dots of a layer evade each other
PLOT_HEIGHT = 330  # pixels of a plot of two numbers, and of curves
CURVE_LABEL_SHARE = 0.5  # share of removed heads at which curves have their names
CURVE_LABEL_DISTANCE = 17.0  # pixels between two names of curves

Place = Callable[[float], float]  # a value's place in per cent from the left


def effect_ends(values: Sequence[float]) -> tuple[float, float]:
    """Return round ends of a logarithmic scale that holds all values above 0.

    Smaller values than `MAX_DECADES` powers of ten below the largest one lie on the lower end.
    """
    known = [value for value in values if value > 0 and math.isfinite(value)]
    if not known:
        return 0.1, 1.0
    high = next(step for step in _round_steps(max(known)) if step >= 0.999 * max(known))
    least = max(min(known), high / 10.0**MAX_DECADES)
    low = max(step for step in _round_steps(least) if step <= 1.001 * least)
    return (low, high) if low < high else (low / 10, high)


def _round_steps(value: float) -> list[float]:
    """Return the round numbers around a value: 1, 2 and 5 times powers of ten."""
    exponent = math.floor(math.log10(value))
    return [m * 10.0**e for e in (exponent - 1, exponent, exponent + 1) for m in (1, 2, 5)]


def effect_ticks(ends: tuple[float, float]) -> list[tuple[float, str]]:
    """Return round values of a logarithmic scale with their texts, at most `MAX_TICKS`."""
    low, high = ends
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**e for e in exponents for m in factors]
        values = [value for value in values if 0.999 * low <= value <= 1.001 * high]
        if len(values) <= MAX_TICKS:
            break
    return [(value, f"{value:,.10g}") for value in values]


def effect_step(value: float, ends: tuple[float, float]) -> str:
    """Return the class of a cell's fill on a logarithmic scale of seven steps."""
    if not value > ends[0]:
        return "q0"
    part = math.log(value / ends[0]) / math.log(ends[1] / ends[0])
    return f"q{min(int(part * 7), 6)}"


def _across(ends: tuple[float, float], *, log: bool = True) -> Place:
    """Return the function that places values from left to right."""
    scale = Scale(*ends, height=100, top=MARGIN, bottom=MARGIN, log=log)
    return lambda value: 100 - scale(value)


def _upright(x: float, height: float, style: str = "gl") -> str:
    """Return a line from the top of a plot down to ``height``."""
    return f'<line class="{style}" x1="{percent(x)}" x2="{percent(x)}" y1="0" y2="{height:.0f}"/>'


def _ticks_below(place: Place, ticks: Sequence[tuple[float, str]], y: float) -> str:
    return "".join(
        text(words, percent(place(value)), y, _tick_style(place(value))) for value, words in ticks
    )


def _tick_style(place: float) -> str:
    """Return the classes of a tick's text, which stays inside the plot at both ends."""
    if place > 100 - MARGIN_OF_TICKS:
        return "end s"
    return "s" if place < MARGIN_OF_TICKS else "mid s"


class GroupEffect(NamedTuple):
    """Effect of heads that are replaced together, in the unit of pages.

    Attributes:
        name: heads of the group.
        style: class of the colour of their family; empty without one.
        heads: number of heads.
        change: the effect with its row.
        singles: sum of the effects of the same heads one at a time; NaN if unknown.
        random_low, random_high: range of random sets with as many heads in each layer; NaN without.
        beside: place of the effect among the random sets, in words.
        supported: whether this place was asked for in advance and is clear.
    """

    name: str
    style: str
    heads: int
    change: Number
    singles: float
    random_low: float
    random_high: float
    beside: str = ""
    supported: bool = False

    @property
    def ends(self) -> tuple[float, float, float]:
        """The effect and the ends of its interval, in the unit of pages."""
        factor = self.change.unit.factor
        return self.change.value * factor, self.change.low * factor, self.change.high * factor


@dataclass(frozen=True, eq=False)
class GroupPlot(Plot):
    """A chart with a row for each group of heads: its effect, interval and random sets.

    Attributes:
        groups: groups, in order.
        unit: unit of the effects.
        ends: ends of the logarithmic scale.
    """

    groups: tuple[GroupEffect, ...] = ()
    unit: str = ""
    ends: tuple[float, float] = (0.1, 1.0)

    def html(self, address: Callable[[str | RowAddress], str]) -> str:
        """Return the chart as rows of a page, which take two lines where the page is narrow."""
        place, ticks = _across(self.ends), effect_ticks(self.ends)
        lines = "".join(_upright(place(value), self._height) for value, _ in ticks)
        axis = (
            f'<div class="effect axis"><span></span><span></span><svg height="20" '
            f'aria-hidden="true">{_ticks_below(place, ticks, 14)}</svg></div>'
        )
        head = (
            '<div class="effect titles"><span>without</span><span class="amount">heads</span>'
            f"<span>change, {escape(self.unit)}</span><span></span><span></span></div>"
        )
        rows = "".join(
            self._row(group, place, lines, address(group.change.row)) for group in self.groups
        )
        return f'<div class="effects">{head}{rows}{axis}</div>'

    @property
    def _height(self) -> int:
        """Pixels of a row."""
        return ROW if len(self.groups) < MANY_ROWS else COMPACT_ROW

    def _row(self, group: GroupEffect, place: Place, lines: str, href: str) -> str:
        """Return the row of a group as elements of a page."""
        height = self._height
        name = escape(visible(group.name))
        dot = f'<i class="key {group.style}"></i>' if group.style else ""
        label = f"{group.name}: {group.change.as_text('interval')}"
        beside = f"<b>{escape(group.beside)}</b>" if group.supported else escape(group.beside)
        return (
            f'<div class="effect"><span class="name">{dot}{name}</span>'
            f'<span class="amount">{group.heads:,}</span>'
            f'<svg height="{height}" role="img" aria-label="{escape(visible(label))}">'
            f"{lines}{_effect_marks(group, place, height)}</svg>"
            f'<span class="number"><a class="n" href="{escape(href)}">'
            f"{group.change.as_text('bare short')}</a> "
            f"<small>{group.change.as_text('ends')}</small></span>"
            f'<span class="beside">{beside}</span></div>'
        )

    def drawn(self, width: float) -> tuple[float, str]:
        """Return height and elements of the chart on paper; names stand above their marks."""
        place, ticks = _across(self.ends), effect_ticks(self.ends)
        height = float(PRINTED_ROW * len(self.groups) + 24)
        parts = [_upright(place(value), height - 20) for value, _ in ticks]
        for index, group in enumerate(self.groups):
            y = PRINTED_ROW * index
            marks = _effect_marks(group, place, 18)
            parts.append(text(group.name, "0", y + 12.0, "b"))
            parts.append(text(group.change.as_text("bare short"), "100%", y + 12.0, "end"))
            parts.append(f'<svg y="{y + 14}" width="{width:.0f}" height="18">{marks}</svg>')
        parts.append(_ticks_below(place, ticks, height - 8.0))
        return height, "".join(parts)


def _effect_marks(group: GroupEffect, place: Place, height: float) -> str:
    """Return the marks of a group: random sets, interval, sum of single effects, and effect."""
    value, low, high = group.ends
    if math.isnan(value):
        return ""
    parts, y = [], height / 2
    if not math.isnan(group.random_low):
        start, end = place(group.random_low), place(group.random_high)
        size = f'width="{percent(end - start)}" height="16"'
        parts.append(f'<rect class="bx" x="{percent(start)}" y="{y - 8:.1f}" {size}/>')
    if not math.isnan(low):
        x = f'x1="{percent(place(low))}" x2="{percent(place(high))}"'
        parts.append(f'<line class="rise" {x} y1="{y:.1f}" y2="{y:.1f}"/>')
    if not math.isnan(group.singles):
        x = f'x1="{percent(place(group.singles))}" x2="{percent(place(group.singles))}"'
        ys = f'y1="{y - 8:.1f}" y2="{y + 8:.1f}"'
        parts.append(f'<line class="rl weak" {x} {ys}/>')
    parts.append(f'<g class="c-model">{mark("model", place(value), y, radius=5.2)}</g>')
    return "".join(parts)


def group_plot(
    name: str, caption: str, groups: Sequence[GroupEffect], *, unit: str, root: str = ""
) -> GroupPlot:
    """Draw effects of groups of heads on a logarithmic scale, a row for each group."""
    columns = ["name", "heads", "value", "low", "high", "singles", "random_low", "random_high"]
    frame = pd.DataFrame(groups, columns=[*GroupEffect._fields])
    ends = pd.DataFrame([group.ends for group in groups], columns=["value", "low", "high"])
    frame = pd.concat([frame, ends], axis=1)[columns]
    drawn = frame[["value", "low", "high", "singles", "random_low", "random_high"]]
    return GroupPlot(
        name=name,
        caption=caption,
        height=0,
        rows=frame.rename(columns={"name": "group"}),
        root=root,
        groups=tuple(groups),
        unit=unit,
        ends=effect_ends(drawn.to_numpy().ravel().tolist()),
    )


class HeadEffect(NamedTuple):
    """Effect of one head.

    Attributes:
        row: row of the plot that shows it.
        name: name of the head.
        style: class of the colour of its family.
        value: effect in the unit of pages.
        exact: whether the head was replaced; else the effect is estimated.
        href: address of the row of a table that holds the effect.
    """

    row: str
    name: str
    style: str
    value: float
    exact: bool
    href: str | RowAddress


def layers_plot(
    name: str,
    caption: str,
    heads: Sequence[HeadEffect],
    *,
    margin: float,
    unit: str,
    root: str = "",
) -> Plot:
    """Draw the effects of all heads on a logarithmic scale, a row for each layer.

    Args:
        heads: heads, layer by layer.
        margin: effect from which on a sentence counts as changed; NaN if unknown.
        unit: unit of the effects.
    """
    layers = [*dict.fromkeys(head.row for head in heads)]
    height = 38 if len(layers) < MANY_ROWS else 28
    ends = effect_ends([head.value for head in heads])
    place, ticks = _across(ends), effect_ticks(ends)
    bottom = height * len(layers) + 8
    behind = [_upright(place(value), bottom) for value, _ in ticks]
    behind.append(_ticks_below(place, ticks, bottom + 16.0))
    if ends[0] < margin < ends[1]:
        behind.append(_upright(place(margin), bottom, "bl"))
    marks: list[str | PlotMark] = []
    for index, layer in enumerate(layers):
        inside = [head for head in heads if head.row == layer and not math.isnan(head.value)]
        inside.sort(key=lambda head: head.value)
        marks += _swarm(inside, place, height * (index + 0.5), unit)
    axis = "".join(text(each, "0", height * (i + 0.5) + 4, "b s") for i, each in enumerate(layers))
    return Plot(
        name=name, caption=caption, height=bottom + 24, behind=tuple(behind), marks=tuple(marks),
        axis=axis, axis_width=60 if max(map(len, layers)) < 9 else 120, label_width=60,
        rows=pd.DataFrame(heads, columns=[*HeadEffect._fields])[["row", "name", "value", "exact"]]
        .rename(columns={"row": "layer", "name": "head"}),
        root=root,
    )  # fmt: skip


def _swarm(heads: Sequence[HeadEffect], place: Place, y: float, unit: str) -> list[str | PlotMark]:
    """Return marks of the heads of a layer that evade each other, and the name of the last one."""
    if not heads:
        return []
    marks: list[str | PlotMark] = []
    lanes = [-math.inf] * len(LANES)  # place of the last mark in each lane
    for head in heads:
        x = place(head.value)
        free = [lane for lane, last in enumerate(lanes) if x - last >= DOT_WIDTH]
        lane = free[0] if free else int(np.argmin(lanes))
        lanes[lane] = x
        words = f"{head.name}: {number(head.value)} {unit}{'' if head.exact else ', estimated'}"
        shape = mark("model", x, y + LANES[lane], hollow=not head.exact)
        marks.append(PlotMark(shape, head.style, head.href, words, x, y + LANES[lane]))
    name, at = heads[-1].name.split()[-1], percent(place(heads[-1].value))
    return [*marks, text(name, at, y + LANES[lane] + 4, "s halo", 9.0)]


def compared_plot(
    name: str,
    caption: str,
    heads: Sequence[HeadEffect],
    others: Sequence[float],
    *,
    titles: tuple[str, str],
    unit: str,
    log: bool,
) -> Plot:
    """Draw a point for each head that has two numbers, and the line of equal numbers.

    Args:
        heads: heads with the number that runs up the plot.
        others: numbers of the same heads that run across the plot.
        titles: what runs across, and what runs up.
        unit: unit of both numbers.
        log: whether both scales are logarithmic; numbers up to 0 then lie on the lower end.
    """
    values = [*others, *(head.value for head in heads)]
    ends = effect_ends(values) if log else (min(values), max(values))
    ends = ends if ends[0] < ends[1] else (ends[0] - 1, ends[1] + 1)
    ticks = effect_ticks(ends) if log else even_ticks(*ends, number)
    place, scale = _across(ends, log=log), Scale(*ends, PLOT_HEIGHT, top=26, bottom=44, log=log)
    marks = [
        PlotMark(
            mark("model", place(other), scale(head.value)), head.style, head.href,
            f"{head.name}: {titles[1]} {number(head.value)} {unit}",
            place(other), scale(head.value),
        )
        for head, other in zip(heads, others, strict=True)
    ]  # fmt: skip
    columns = {"x": others, "y": [head.value for head in heads]}
    return Plot(
        name=name, caption=caption, height=PLOT_HEIGHT, marks=tuple(marks),
        behind=tuple(_square(place, scale, ticks, titles[0])),
        axis=value_axis(scale, ticks, titles[1]), axis_width=60, label_width=20,
        rows=pd.DataFrame({"head": [head.name for head in heads]} | columns),
    )  # fmt: skip


def _square(
    place: Place, scale: Scale, ticks: Sequence[tuple[float, str]], title: str
) -> list[str]:
    """Return grid, ticks and title of a plot with one scale both ways, and its line of equals."""
    behind = [*grid(scale, [value for value, _ in ticks])]
    behind += [_upright(place(value), PLOT_HEIGHT - 44) for value, _ in ticks]
    behind.append(_ticks_below(place, ticks, PLOT_HEIGHT - 26))
    behind.append(text(title, "50%", PLOT_HEIGHT - 6, "mid"))
    line = f'x1="{percent(place(scale.low))}" x2="{percent(place(scale.high))}"'
    ys = f'y1="{scale(scale.low):.1f}" y2="{scale(scale.high):.1f}"'
    return [*behind, f'<line class="bl" {line} {ys}/>']


def pruning_plot(name: str, caption: str, rows: pd.DataFrame, *, unit: str) -> Plot:
    """Draw the change of the output against the share of heads that are removed.

    Args:
        rows: columns ``order, kind, share, value, low, high``; the kind is the class of a line.
        unit: unit of the change.
    """
    known = rows[["value", "low", "high"]].to_numpy()
    ends = min(0.0, float(np.nanmin(known))), float(np.nanmax(known))
    ends = ends if ends[0] < ends[1] else (ends[0], ends[0] + 1)
    ticks = even_ticks(*ends, number)
    scale = Scale(*ends, PLOT_HEIGHT, top=26, bottom=44)
    place = _across((0.0, 1.0), log=False)
    shares = [(share, f"{100 * share:.0f}\u202f%") for share in (0, 0.2, 0.4, 0.6, 0.8, 1)]
    behind = [*grid(scale, [value for value, _ in ticks])]
    behind.append(_ticks_below(place, shares, PLOT_HEIGHT - 26))
    behind.append(text("heads removed", "50%", PLOT_HEIGHT - 6, "mid"))
    curves: list[PlotCurve] = []
    heights = []
    for _, each in rows.groupby("order", sort=False):
        curves += _pruning_curve(each, place, scale)
        nearest = int((each["share"] - CURVE_LABEL_SHARE).abs().to_numpy().argmin())
        heights.append(scale(float(each["value"].iloc[nearest])))
    orders = rows.drop_duplicates("order")
    free = spread_values(np.array(heights), CURVE_LABEL_DISTANCE, (scale.top, PLOT_HEIGHT - 50.0))
    labels = [
        text(order, percent(place(CURVE_LABEL_SHARE)), y - 5, f"lb c-{kind} halo end", -6)
        for order, kind, y in zip(orders["order"], orders["kind"], free, strict=True)
    ]
    return Plot(
        name=name, caption=caption, height=PLOT_HEIGHT, curves=tuple(curves), behind=tuple(behind),
        marks=tuple(labels), axis=value_axis(scale, ticks, unit), axis_width=60, label_width=20,
        rows=rows.drop(columns="kind").reset_index(drop=True),
    )  # fmt: skip


def _pruning_curve(rows: pd.DataFrame, place: Place, scale: Scale) -> list[PlotCurve]:
    """Return the line of one order, above the band of its intervals."""
    known = rows[rows["low"].notna() & rows["high"].notna()]
    upper, lower = (
        [(place(share), scale(end)) for share, end in known[["share", column]].to_numpy()]
        for column in ("high", "low")
    )
    line = [(place(share), scale(value)) for share, value in rows[["share", "value"]].to_numpy()]
    kind = rows["kind"].iloc[0]
    band = PlotCurve((*upper, *reversed(lower)), f"bd c-{kind}", closed=True)
    return [band, PlotCurve(tuple(line), f"ln c-{kind}")]
