"""Charts of all heads: heat map, strips, one number by layer, and two numbers as a scatter plot.

A strip shows the value of one head among those of all heads.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts.axes import (
    PLAIN_FORMAT,
    SHARE_FORMAT,
    UNIFORM,
    cell_axis,
    number_tooltips,
    styled_spec,
    text_tooltips,
)
from headbook.charts.drawing import Drawing, drawing, svg_text
from headbook.charts.figure import SpecAndRows, lazy_figure
from headbook.charts.plots import (
    MAX_LINKED_MARKS,
    Plot,
    PlotMark,
    Scale,
    even_ticks,
    grid,
    mark,
    percent,
    text,
    value_axis,
)
from headbook.charts.theme import BLUE, INK, STOPS, ramp
from headbook.results.formats import head_name, head_page
from headbook.results.number import Number
from headbook.schema import HeadName

STRIP_STEPS = 400  # places on a strip; heads at one place are drawn as one hairline
MARGIN = 2.0  # per cent at either end
N_BINS = 40  # bins of the histogram
HISTOGRAM_WIDTH, TOP, PLOT, BELOW, HISTOGRAM_SIDE = 900.0, 58.0, 60.0, 24.0, 10.0
TEXT_PIXELS = 12  # font size
MAX_NAME_LINES = 4  # lines of names over the bars
LETTER_PIXELS = 6.6  # about the width of a letter
ANCHORS = ("start", "middle", "middle", "middle", "end")
NAME_LINE_PIXELS = 14.0  # from one line of names to the next


@dataclass(frozen=True, eq=False)
class RangeStrip:
    """Strip of the values of all heads, on which one head is a dot.

    As wide as its place on the page: places are in per cent, so that the dot stays round.

    Attributes:
        values: known values in ascending order; at least one.
        quarters: first quartile, median and third quartile.
    """

    values: Floats
    quarters: tuple[float, float, float]

    @classmethod
    def of(cls, values: Floats) -> "RangeStrip":
        """Return the strip of values of any shape, in which NaN is missing."""
        known = np.sort(values[~np.isnan(values)])
        first, middle, third = map(float, np.quantile(known, (0.25, 0.5, 0.75)))
        return cls(known, (first, middle, third))

    def drawn(self, own: float) -> str:
        """Draw all heads as hairlines, the middle half as a box, the median, a head as a dot."""
        before, after = self._still
        return f'{before}<circle cx="{self._at(own):.1f}%" r="5.5"/>{after}'

    @cached_property
    def _still(self) -> tuple[str, str]:
        """SVG before the dot and after the dot."""
        lines = np.unique(np.rint(self._at(self.values) * STRIP_STEPS / 100).astype(int)).tolist()
        path = f"M{lines[0]} 0v1" + "".join(
            f"m{right - left}-1v1" for left, right in pairwise(lines)
        )
        first, middle, third = map(self._at, self.quarters)
        return (
            '<svg class="strip" aria-hidden="true">'
            f'<rect x="{first:.1f}%" width="{third - first:.1f}%" height="10"/>'
            f'<svg viewBox="0 -.3 {STRIP_STEPS} 1.6" preserveAspectRatio="none">'
            f'<path d="{path}"/></svg>'
            f'<rect class="half" x="{middle:.1f}%" width="2" height="14"/>'
        ), "</svg>"

    def _at(self, value: Any) -> Any:
        """Return the place of a value, or of several, in per cent."""
        low, high = float(self.values[0]), float(self.values[-1])
        return MARGIN + (100 - 2 * MARGIN) * (value - low) / ((high - low) or 1.0)


def ranking_histogram(
    name: str, caption: str, scores: Floats, marks: Sequence[tuple[str, float]]
) -> Drawing:
    """Draw how many sentences have which value of a ranking, from 0 to 1.

    Args:
        marks: values that are named over the bars, the largest first.
    """
    counts, _ = np.histogram(scores, N_BINS, (0, 1))
    largest_count = int(counts.max(initial=0)) or 1
    parts = [*_axis(), *_bars(counts, largest_count), *_marks(marks)]
    return drawing(name, caption, HISTOGRAM_WIDTH, TOP + PLOT + BELOW, parts)


def _x(value: float) -> float:
    return HISTOGRAM_SIDE + (HISTOGRAM_WIDTH - 2 * HISTOGRAM_SIDE) * value


def _axis() -> Iterator[str]:
    foot = TOP + PLOT
    yield f'<path d="M{_x(0):.0f} {foot:.0f}H{_x(1):.0f}" stroke="{INK}" stroke-opacity="0.5"/>'
    for tick, anchor in zip((0, 0.25, 0.5, 0.75, 1), ANCHORS, strict=True):
        yield svg_text(f"{tick:g}", _x(tick), foot + 17, TEXT_PIXELS, anchor=anchor)


def _bars(
    counts: "np.ndarray[tuple[int], np.dtype[np.int64]]", largest_count: int
) -> Iterator[str]:
    width = (HISTOGRAM_WIDTH - 2 * HISTOGRAM_SIDE) / N_BINS
    yield f'<g fill="{BLUE}" fill-opacity="0.55">'
    for index, amount in enumerate(counts.tolist()):
        if amount:
            height = max(PLOT * amount / largest_count, 1.5)
            x, y = _x(index / N_BINS) + 0.5, TOP + PLOT - height
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{height:.1f}">'
                f"<title>{index / N_BINS:.3g} to {(index + 1) / N_BINS:.3g}: {amount:,}"
                "</title></rect>"
            )
    yield "</g>"


def _marks(marks: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Draw names with a line down to the axis, each on the lowest line that is free."""
    free_from = [HISTOGRAM_WIDTH + 1.0] * MAX_NAME_LINES
    for name, value in sorted(marks, key=lambda each: -each[1]):
        x, width = _x(value), LETTER_PIXELS * len(name)
        end = min(x + width / 2, HISTOGRAM_WIDTH)
        row = next(
            (line for line in range(MAX_NAME_LINES) if end < free_from[line]), MAX_NAME_LINES - 1
        )
        free_from[row] = end - width - 8
        y = TOP - 6 - NAME_LINE_PIXELS * row
        yield f'<path d="M{x:.1f} {y + 3:.1f}V{TOP + PLOT:.0f}" stroke="{INK}"/>'
        yield svg_text(name, end - width / 2, y, TEXT_PIXELS)


CELL_PIXELS = 24  # side of a head in a heat map


@lazy_figure
def heat_map(
    rows: pd.DataFrame,
    *,
    title: str,
    domain: tuple[float, float],
    share: bool = False,
    dark_low: bool = False,
) -> SpecAndRows:
    """Draw one number for each head: rows are layers, columns are heads.

    Args:
        rows: columns ``layer, head, view, label, value, low, high``.
        title: title of the colour legend, with the unit.
        domain: ends of the colour scale; below 0 it runs both ways from there.
        share: whether values are parts of a whole, written in per cent.
        dark_low: whether low values are the dark ones.
    """
    colours = ramp(domain, STOPS[::-1] if dark_low else STOPS)
    legend = _legend(domain, rows["head"], SHARE_FORMAT if share else PLAIN_FORMAT)
    chart = alt.Chart(rows)
    chart = chart.mark_rect().encode(
        x=alt.X("head:O", title="head", axis=cell_axis(labelAngle=0)),
        y=alt.Y("layer:O", title="layer", axis=cell_axis()),
        color=alt.Color("value:Q", title=title, scale=colours, legend=legend),
        tooltip=[
            *text_tooltips("layer:O", "head:O"),
            *number_tooltips("value", "low", "high", share=share),
        ],
    )
    size = chart.properties(width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS))
    return styled_spec(size), rows


def _legend(ends: tuple[float, float], heads: "pd.Series[Any]", number_format: str) -> alt.Legend:
    """Return a legend as wide as the map at most, with both ends named."""
    length = min(max(CELL_PIXELS * heads.nunique(), 120), 240)
    values = [ends[0], (ends[0] + ends[1]) / 2, ends[1]]
    return alt.Legend(
        orient="top",
        titleLimit=0,
        gradientLength=length,
        values=values,
        format=f".3{number_format}",
    )


MAP_HEIGHT, PANEL_HEIGHT = 400, 240  # pixels of the only panel, and of one of several
PANEL_TOP, PANEL_BOTTOM = 26, 30  # pixels above and below the values of a panel
MAX_LAYERS = 12  # layers of a panel
MANY_HEADS = 24  # heads of a layer from which on marks are small and without names
LABEL_WIDTH = 100  # pixels beside the plot

ByLayer = Mapping[int, Number]


def heads_plot(
    name: str,
    caption: str,
    numbers: Mapping[int, Sequence[Number]],
    *,
    means: ByLayer = MappingProxyType({}),
    uniform: ByLayer = MappingProxyType({}),
    least: float = math.nan,
    log: bool = False,
) -> Plot:
    """Draw a mark for each head, in each layer from the lowest value to the highest.

    Models of many layers have several panels below each other. Marks of numbers of too few
    sentences are hollow; up to `MAX_LINKED_MARKS` heads are links to their rows.

    Args:
        numbers: numbers of the heads by layer, in the order of the plot.
        means: number of each layer, all heads together.
        uniform: number of each layer under uniform attention.
        least: lower end of the scale; NaN for the lowest value.
        log: whether the scale is logarithmic; then all values are above 0.
    """
    layers, every = [*numbers], [number for of_layer in numbers.values() for number in of_layer]
    unit = every[0].unit
    drawn = [number.drawn for number in (*every, *means.values(), *uniform.values())]
    ends = _ends(np.array(drawn), least * unit.drawn_factor)
    ticks = _powers(*ends) if log else even_ticks(*ends, lambda value: f"{value:,.10g}")
    n_panels = math.ceil(len(layers) / MAX_LAYERS)
    height = MAP_HEIGHT if n_panels == 1 else PANEL_HEIGHT
    size = math.ceil(len(layers) / n_panels)
    scale = Scale(*ends, height, top=PANEL_TOP, bottom=PANEL_BOTTOM, log=log)
    behind, axis, labels = list[str](), "", ""
    marks: list[str | PlotMark] = []
    for panel in range(n_panels):
        inside = layers[panel * size : (panel + 1) * size]
        y = float(panel * height)
        drawing_of = _Panel(inside, 100 / size, y, scale, linked=len(every) <= MAX_LINKED_MARKS)
        behind += drawing_of.frame([value for value, _ in ticks], means, uniform)
        for place, layer in enumerate(inside):
            marks += drawing_of.heads(place, numbers[layer])
        sides = value_axis(scale, ticks, unit.name.strip()) + text("layer", "0", height - 8)
        axis += f'<g transform="translate(0,{y:.0f})">{sides}</g>'
        even = uniform.get(inside[-1])
        if even is not None and even.known:
            at = y + scale(even.drawn)
            labels += text("uniform", "10", at - 3)
            labels += text(f"attention {even.as_text('bare')}", "10", at + 12)
    return Plot(
        name=name, caption=caption, height=n_panels * height, behind=tuple(behind),
        marks=tuple(marks), axis=axis, labels=labels,
        label_width=LABEL_WIDTH if labels else 20, rows=_rows(every),
    )  # fmt: skip


def _ends(values: Floats, least: float) -> tuple[float, float]:
    """Return the ends of the scale of all known numbers."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low = float(known.min()) if math.isnan(least) else min(least, float(known.min()))
    high = float(known.max())
    return (low, high) if high > low else (low, low + 1)


def _powers(low: float, high: float) -> list[tuple[float, str]]:
    """Return the powers of ten from ``low`` to ``high`` with their texts."""
    exponents = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [(10.0**exponent, f"{10.0**exponent:,g}") for exponent in exponents]


def _rows(numbers: Sequence[Number]) -> pd.DataFrame:
    """Return the known numbers of heads as a table."""
    known = [
        (n.place("layer"), n.place("head"), n.value, n.low, n.high) for n in numbers if n.known
    ]
    return pd.DataFrame(known, columns=["layer", "head", "value", "low", "high"])


class _Panel:
    """Some layers of a model side by side.

    Args:
        layers: layers from left to right.
        width: per cent of a layer.
        y: pixels from the top of the plot.
        scale: scale of the values.
        linked: whether marks are links.
    """

    def __init__(
        self, layers: Sequence[int], width: float, y: float, scale: Scale, *, linked: bool
    ) -> None:
        self.layers, self.width, self.y = layers, width, y
        self.scale, self.linked = scale, linked

    def frame(self, ticks: Sequence[float], means: ByLayer, uniform: ByLayer) -> list[str]:
        """Return lines of ticks, names of layers, their means, and uniform attention."""
        width, parts = self.width, [self._across(0, 100, tick, "gl") for tick in ticks]
        bottom = self.y + self.scale.height - self.scale.bottom
        for place, layer in enumerate(self.layers):
            left, right = width * place, width * (place + 1)
            if place:
                line = f'x1="{percent(left)}" x2="{percent(left)}"'
                ys = f'y1="{self.y + self.scale.top - 8:.1f}" y2="{bottom:.1f}"'
                parts.append(f'<line class="gl" {line} {ys}/>')
            middle, foot = percent(left + width / 2), self.y + self.scale.height - 8
            parts.append(text(str(layer), middle, foot, "mid b"))
            if layer in uniform and uniform[layer].known:
                parts.append(self._across(left, right, uniform[layer].drawn, "bl"))
            if layer in means and means[layer].known:
                edge = 0.08 * width
                parts.append(self._across(left + edge, right - edge, means[layer].drawn, "iv"))
        return parts

    def _across(self, left: float, right: float, value: float, style: str) -> str:
        y = f"{self.y + self.scale(value):.1f}"
        ends = f'x1="{percent(left)}" x2="{percent(right)}"'
        return f'<line class="{style}" {ends} y1="{y}" y2="{y}"/>'

    def heads(self, place: int, numbers: Sequence[Number]) -> list[str | PlotMark]:
        """Return the marks of a layer, the lowest value first, and names of extreme heads."""
        order = sorted((n for n in numbers if n.known), key=lambda number: number.value)
        many = len(numbers) >= MANY_HEADS
        radius = 2.2 if many else 4.4 if len(self.layers) <= 6 else 3.2
        marks: list[str | PlotMark] = []
        for rank, number in enumerate(order):
            part = 0.12 + 0.76 * (rank + 0.5) / len(order)
            x, y = self.width * (place + part), self.y + self.scale(number.drawn)
            shape, head = (
                mark("model", x, y, radius=radius, hollow=number.is_thin),
                number.place("head"),
            )
            if self.linked:
                label = f"L{number.place('layer')}·H{head}: {number.as_text()}"
                marks.append(PlotMark(shape, "c-model", number.row, label, x, y))
            else:
                marks.append(shape.replace('class="mk', 'class="c-model mk', 1))
            if not many and rank in {0, len(order) - 1}:
                below = rank == 0 and len(order) > 1
                marks.append(text(f"H{head}", percent(x), y + (16 if below else -8), "mid s halo"))
        return marks


SCATTER_HEIGHT, SCATTER_TOP, SCATTER_BOTTOM = 320, 28, 46  # pixels
SCATTER_SIDE = 3.0  # per cent left and right of the points


class ScatterAxis(NamedTuple):
    """A number of every head along an axis of a scatter plot.

    Attributes:
        title: name of the number, with its unit.
        numbers: a number for each head.
        uniform: the number under uniform attention; NaN if unknown.
        factor: factor from numbers to drawn ones, such as 100 for per cent.
    """

    title: str
    numbers: Sequence[Number]
    uniform: float = math.nan
    factor: float = 1.0

    @property
    def values(self) -> Floats:
        """Values as they are drawn."""
        return np.array([n.value for n in self.numbers]) * self.factor

    @property
    def drawn_uniform(self) -> float:
        """Number under uniform attention as it is drawn."""
        return self.uniform * self.factor

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the axis."""
        return _ends(np.append(self.values, self.drawn_uniform), 0.0)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round values with their texts."""
        return even_ticks(*self.ends, lambda value: f"{value:,.10g}")


def scatter_plot(
    name: str, caption: str, heads: Sequence[HeadName], across: ScatterAxis, up: ScatterAxis
) -> Plot:
    """Draw every head as a point by two of its numbers, beside uniform attention.

    Args:
        heads: the heads, which have both numbers.
        across, up: the horizontal and the vertical axis.
    """
    scale = Scale(*up.ends, SCATTER_HEIGHT, top=SCATTER_TOP, bottom=SCATTER_BOTTOM)
    foot = SCATTER_HEIGHT - SCATTER_BOTTOM
    behind = list(grid(scale, [value for value, _ in up.ticks]))
    for value, words in across.ticks:
        at = percent(_across(across, value))
        line = f'<line class="gl" x1="{at}" x2="{at}" y1="{SCATTER_TOP}" y2="{foot}"/>'
        behind += [line, text(words, at, foot + 18, "mid s")]
    behind.append(text(across.title, "100%", foot + 38, "end s"))
    linked = len(heads) <= MAX_LINKED_MARKS
    marks: list[str | PlotMark] = []
    points = zip(heads, across.numbers, up.numbers, across.values, up.values, strict=True)
    for head, x_number, y_number, x_value, y_value in points:
        x, y = _across(across, float(x_value)), scale(float(y_value))
        label = f"{head_name(head)}: {x_number.as_text()}, {y_number.as_text()}"
        shape = mark("model", x, y, radius=3.6)
        marks.append(PlotMark(shape, "c-model", head_page(head) if linked else "", label, x, y))
    if not math.isnan(across.uniform + up.uniform):
        x, y = _across(across, across.drawn_uniform), scale(up.drawn_uniform)
        shape = mark("baseline", x, y, hollow=True, radius=6.0)
        marks.append(PlotMark(shape, "c-baseline", "", UNIFORM, x, y))
        style, shift = ("end s halo", -8) if x > 50 else ("s halo", 8)
        marks.append(text(UNIFORM, percent(x), y - 8, style, shift))
    places = [(head.layer, head.head) for head in heads]
    rows = pd.DataFrame(places, columns=["layer", "head"]).assign(
        **{axis.title: [n.value for n in axis.numbers] for axis in (across, up)}
    )
    return Plot(
        name=name, caption=caption, height=SCATTER_HEIGHT, behind=tuple(behind),
        marks=tuple(marks), axis=value_axis(scale, up.ticks, up.title), label_width=20,
        rows=rows,
    )  # fmt: skip


def _across(axis: ScatterAxis, value: float) -> float:
    """Return the place of a value along the horizontal axis, in per cent."""
    low, high = axis.ends
    return SCATTER_SIDE + (100 - 2 * SCATTER_SIDE) * (value - low) / (high - low)
