"""Charts as wide as the page: x in per cent and y in pixels, so that letters keep their size.

A `Plot` has three columns: an axis, the plot, and labels at the ends of lines. Colours come from
classes (``c-content``) that the site's style sheet and `printed_style` define from the palette of
`headbook.charts.theme`, so that one drawing serves light pages, dark pages and papers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts import paper
from headbook.charts.axes import even_places, spread_values
from headbook.charts.figure import paper_files
from headbook.charts.theme import (
    CLASS_COLOURS,
    FAMILY_COLOURS,
    FONT,
    PRINTED_INK,
    PRINTED_PAPER,
    ROLE_COLOURS,
)
from headbook.report.linked_rows import address_of
from headbook.report.wording import visible
from headbook.results.number import Number, RowAddress

AXIS_WIDTHS = (0, 46, 60, 120)  # pixels of the column of the axis
LABEL_WIDTHS = (0, 20, 60, 100, 130, 160, 200)  # pixels of the column of labels
LABEL_DISTANCE = 18.0  # pixels between the labels of two lines
FAR_LABEL = 3.0  # pixels between a line's end and its label from which a stroke connects them
HIT_RADIUS = 11.0  # pixels around a mark with a link that a pointer hits
MARK_RADIUS = 4.6
MIN_PAGE_PIXELS = 500  # of a plot in papers; a narrower one is as wide as a column
MAX_LINKED_MARKS = 150  # marks of a plot beyond which none is a link, to keep pages small
MAX_NAMES, MAX_NARROW_NAMES = 24, 7  # names of points below a wide and a narrow plot
# Shape of a mark by class; each class has its own, since colours alone do not tell all readers.
SHAPES = {"function": "square", "punctuation": "triangle", "special": "diamond"}
# Classes of elements in plots, and their colours in papers.
MUTED, LINE, STRONG = "#57606a", "#dde2e7", "#aab3bd"


class PlotCurve(NamedTuple):
    """A line of a plot, an area if it is closed, or a dash at each point if it is dashed.

    Attributes:
        points: x in per cent of the plot's width, and y in pixels.
        style: classes of the line: ``ln`` or ``thin``, ``bd`` for an area, ``st`` for dashes, and
            its colour.
        closed: whether it is an area.
        dash: length of the dash at each point, in per cent of the plot's width; 0 for dots, None
            for a line through the points.
    """

    points: tuple[tuple[float, float], ...]
    style: str
    closed: bool = False
    dash: float | None = None


class PlotMark(NamedTuple):
    """A mark with a link.

    Attributes:
        svg: its element.
        style: class of its colour.
        href: address from the site's root, or the row of a number; empty without a link.
        label: what the mark stands for, with its number.
        x, y: centre, in per cent and in pixels.
    """

    svg: str
    style: str
    href: str | RowAddress
    label: str
    x: float
    y: float


@dataclass(frozen=True, eq=False)
class Plot:
    """A chart as wide as the page, with files for papers.

    Attributes:
        name: unique on its page; also the name of its files.
        caption: description of the chart, also for readers who cannot see it.
        height: pixels.
        curves: lines and areas, below all other elements but ``behind``.
        behind: elements below the curves, such as the lines of a grid.
        marks: elements and marks above the curves.
        axis: elements of the column on the left.
        labels: elements of the column on the right.
        axis_width, label_width: pixels of both columns, one of `AXIS_WIDTHS` and `LABEL_WIDTHS`.
        rows: numbers of the chart in full precision, a row for each mark.
        root: path from the page to the site's root.
    """

    name: str
    caption: str
    height: float
    curves: tuple[PlotCurve, ...] = ()
    behind: tuple[str, ...] = ()
    marks: tuple[str | PlotMark, ...] = ()
    axis: str = ""
    labels: str = ""
    axis_width: int = 46
    label_width: int = 0
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    root: str = ""

    @property
    def svg(self) -> str:
        """The chart as an element of a page, in three columns."""
        return self.html(lambda target: self.root + address_of(target))

    def html(self, address: Callable[[str | RowAddress], str]) -> str:
        """Return the chart as an element of a page, in three columns.

        Args:
            address: returns the address of a page of the site, or of a row, from this page.
        """
        height = f'height="{self.height:.0f}"'
        curves = "".join(_curve(curve, 10.0) for curve in self.curves)
        view = f'viewBox="0 0 1000 {self.height:.0f}" preserveAspectRatio="none"'
        marks = "".join(
            part if isinstance(part, str) else linked_mark(part, address) for part in self.marks
        )
        side = f'{height} width="100%" aria-hidden="true"'
        return (
            f'<div class="plot yw{self.axis_width} lw{self.label_width}" role="group" '
            f'aria-label="{escape(visible(self.caption))}">'
            f"<svg {side}>{self.axis}</svg>"
            f'<svg class="pl" {height}>'
            f"{''.join(self.behind)}"
            f'<svg width="100%" {height} {view} overflow="visible">{curves}</svg>{marks}</svg>'
            f"<svg {side}>{self.labels}</svg></div>"
        )

    def paper(self, *, columns: bool) -> dict[str, bytes]:
        """Draw the chart on white paper as SVG and PDF, by the ending of a file's name.

        Args:
            columns: whether the chart is also drawn as wide as a column, not only as a page.
        """
        files: dict[str, bytes] = {}
        for ending in paper.WIDTHS if columns else ("",):
            inches = paper.WIDTHS[ending]
            picture = self._printed(inches * paper.PIXELS)
            files |= paper_files(picture, inches, ending, self.printed_title)
        return files

    @property
    def printed_title(self) -> str:
        """Title above the chart in papers: metric, keys and texts, from the caption."""
        return paper.title_of(self.caption)

    def _printed(self, width: float) -> str:
        """Return the chart as one SVG element of a width in pixels, without links."""
        height, elements = self.drawn(width)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
            f'aria-label="{escape(visible(self.caption))}" font-family="{FONT}">'
            f"<style>{printed_style(narrow=width < MIN_PAGE_PIXELS)}</style>{elements}</svg>"
        )

    def drawn(self, width: float) -> tuple[float, str]:
        """Return height and elements of the chart at a width in pixels, without links."""
        middle = width - self.axis_width - self.label_width
        curves = "".join(_curve(curve, middle / 100) for curve in self.curves)
        marks = "".join(
            part if isinstance(part, str) else f'<g class="{part.style}">{part.svg}</g>'
            for part in self.marks
        )
        size = f'height="{self.height:.0f}" overflow="visible"'
        return self.height, (
            f'<svg width="{self.axis_width}" {size}>{self.axis}</svg>'
            f'<svg x="{self.axis_width}" width="{middle:.0f}" {size}>'
            f"{''.join(self.behind)}{curves}{marks}</svg>"
            f'<svg x="{width - self.label_width:.0f}" width="{self.label_width}" {size}>'
            f"{self.labels}</svg>"
        )

    def forget(self) -> None:
        """Do nothing: a plot keeps no more than its elements."""


def linked_mark(mark: PlotMark, address: Callable[[str | RowAddress], str]) -> str:
    """Return a mark with its link and a circle that is easy to hit."""
    label = escape(visible(mark.label))
    if not mark.href:
        return f'<g class="{mark.style}">{mark.svg}</g>'
    hit = f'<circle class="hit" cx="{percent(mark.x)}" cy="{mark.y:.1f}" r="{HIT_RADIUS:.0f}"/>'
    href = escape(address(mark.href))
    return f'<a class="n {mark.style}" href="{href}" aria-label="{label}">{mark.svg}{hit}</a>'


def percent(x: float) -> str:
    """Return a place in per cent as an attribute's value."""
    return f"{x:.2f}%"


def _curve(curve: PlotCurve, scale: float) -> str:
    """Return a curve as an element, with ``scale`` units a per cent of x."""
    if curve.dash is not None:
        length = curve.dash * scale
        dashes = (f"M{x * scale - length / 2:.0f} {y:.0f}h{length:.0f}" for x, y in curve.points)
        return f'<path class="{curve.style}" d="{"".join(dashes)}"/>'
    points = " ".join(f"{x * scale:.1f},{y:.1f}" for x, y in curve.points)
    return f'<{"polygon" if curve.closed else "polyline"} class="{curve.style}" points="{points}"/>'


@cache
def printed_style(*, narrow: bool) -> str:
    """Return the style sheet of plots in papers: the rules of pages with light colours.

    Args:
        narrow: whether the plot is as wide as a column, where long notes find no room.
    """
    hidden = ",.at-page" if narrow else ""
    colours = {
        f"c-{name}": light for name, (light, _) in (CLASS_COLOURS | ROLE_COLOURS).items()
    } | {f"f-{name}": light for name, (light, _) in FAMILY_COLOURS.items()}
    rules = [
        f"text{{font-size:12px;fill:{MUTED}}}.s{{font-size:12px}}.end{{text-anchor:end}}"
        f".mid{{text-anchor:middle}}.b{{font-weight:650;fill:{PRINTED_INK}}}"
        f".gl{{stroke:{LINE};fill:none}}.ax{{stroke:{STRONG};fill:none}}"
        f".bl{{stroke:{MUTED};stroke-width:1.6;stroke-dasharray:5 4;fill:none}}"
        f".iv{{stroke:{PRINTED_INK};stroke-width:1.4;fill:none}}"
        f".ld{{stroke:{STRONG};fill:none}}.bx{{fill:{LINE}}}.st{{stroke-width:2}}"
        f".rl{{stroke:{PRINTED_INK};stroke-width:2.4}}.rl.weak{{stroke:{MUTED}}}"
        ".dots{stroke-width:5;stroke-linecap:round}"
        f".rise{{stroke:{PRINTED_INK};stroke-width:5;opacity:0.28}}.rise.weak{{stroke-width:2}}"
        f".iv.weak{{stroke:{STRONG};stroke-dasharray:3 3}}"
        f".at-phone,.at-wide{hidden}{{display:none}}"
        f".halo{{paint-order:stroke;stroke:{PRINTED_PAPER};stroke-width:4}}"
        ".ln{fill:none;stroke-width:2.4}"
        + "".join(f".e{n}{{stroke-width:{n}}}" for n in range(1, 13))
        + ".ln.faint{stroke-width:1.3;opacity:0.5}.thin{fill:none;opacity:0.34}.bd{opacity:0.13}"
    ]
    for name, colour in colours.items():
        rules.append(
            f".ln.{name},.thin.{name},.st.{name},.{name} .st{{stroke:{colour};fill:none}}"
            f".bd.{name},.mk.{name},.{name} .mk,.lb.{name}{{fill:{colour}}}"
            f".{name} .o,.{name}.o{{fill:{PRINTED_PAPER};stroke:{colour};stroke-width:2}}"
        )
    rules.append(".ln.c-baseline{stroke-dasharray:6 4}.ln.c-control{stroke-dasharray:1.5 4}")
    return "".join(rules)


@dataclass(frozen=True)
class Scale:
    """A scale of values that runs up the plot; calling it gives pixels from the top.

    Attributes:
        low, high: ends of the scale.
        height: pixels of the plot.
        top, bottom: pixels above the upper and below the lower end.
        log: whether it is logarithmic; then both ends are above 0.
    """

    low: float
    high: float
    height: float
    top: float = 14
    bottom: float = 26
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixels from the top of a value; values beyond the ends lie on them."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        span = self.height - self.top - self.bottom
        return self.height - self.bottom - (at - low) / (high - low) * span


def mark(
    kind: str, x: float, y: float, *, hollow: bool = False, radius: float = MARK_RADIUS
) -> str:
    """Draw a point of a class: its shape tells the class, too.

    Args:
        kind: class of words, a role or a family of the palette.
        x, y: centre, in per cent and in pixels.
        hollow: whether its number is not supported.
    """
    style = "mk o" if hollow else "mk"
    shape = SHAPES.get(kind, "circle")
    if shape == "circle":
        return f'<circle class="{style}" cx="{percent(x)}" cy="{y:.1f}" r="{radius}"/>'
    r = radius
    paths = {
        "square": f"M{-0.9 * r:.1f} {-0.9 * r:.1f}h{1.8 * r:.1f}v{1.8 * r:.1f}h{-1.8 * r:.1f}z",
        "triangle": f"M0 {-1.15 * r:.1f}L{1.15 * r:.1f} {0.85 * r:.1f}H{-1.15 * r:.1f}z",
        "diamond": f"M0 {-1.25 * r:.1f}L{1.25 * r:.1f} 0L0 {1.25 * r:.1f}L{-1.25 * r:.1f} 0z",
    }
    place = f'x="{percent(x)}" y="{y:.1f}"'
    return f'<svg {place} overflow="visible"><path class="{style}" d="{paths[shape]}"/></svg>'


def text(words: str, x: str, y: float, style: str = "s", shift: float = 0) -> str:
    """Return words as an element; ``x`` with its unit, ``style`` its classes.

    Args:
        words: plain text, which is escaped here.
        shift: pixels to the right of ``x``.
    """
    moved = f' dx="{shift:.0f}"' if shift else ""
    return f'<text class="{style}" x="{x}" y="{y:.1f}"{moved}>{escape(visible(words))}</text>'


def value_axis(scale: Scale, ticks: Sequence[tuple[float, str]], unit: str = "") -> str:
    """Return the texts of ticks, for `Plot.axis`, with the unit above them."""
    parts = [text(words, "100%", scale(value) + 4, "end s", -8) for value, words in ticks]
    if unit:
        parts.append(text(unit, "0", max(9.0, scale.top - 8)))
    return "".join(parts)


def grid(scale: Scale, values: Sequence[float]) -> tuple[str, ...]:
    """Return a line across the plot at each value, for `Plot.behind`."""
    return tuple(
        f'<line class="gl" x1="0" x2="100%" y1="{scale(value):.1f}" y2="{scale(value):.1f}"/>'
        for value in values
    )


class Series(NamedTuple):
    """A line over layers.

    Attributes:
        name: label at the end of the line.
        kind: class, role or family of the palette.
        values, low, high: numbers by layer with the ends of their intervals; NaN if unknown.
        texts: numbers as text, by layer.
        hrefs: row behind each number, or its address; empty for marks without links.
        thin: whether it is one of many lines without a label.
        faint: whether its line steps back behind others, which have the same colour.
        hollow: whether its numbers are not supported.
    """

    name: str
    kind: str
    values: Floats
    low: Floats
    high: Floats
    texts: Sequence[str]
    hrefs: Sequence[str | RowAddress] = ()
    thin: bool = False
    hollow: bool = False
    faint: bool = False


class Line(NamedTuple):
    """A line of numbers: values, intervals, texts and links of its marks follow from them.

    A line without any interval is hollow.

    Attributes:
        name: label at its end.
        kind: class, role or family of the palette.
        numbers: a number for each point; NaN if unknown.
        format_name: format of the texts, as in `headbook.results.number.FORMATS`.
        start: value at a point before the first number that follows from a definition, such as
            the cosine 1 of the input to itself; NaN for an empty point, None without such a point.
    """

    name: str
    kind: str
    numbers: Sequence[Number]
    format_name: str = ""
    start: float | None = None

    @property
    def series(self) -> Series:
        """The line as arrays."""
        before = [] if self.start is None else [self.start]
        values, low, high = (
            np.array([*before, *(getattr(number, part) for number in self.numbers)])
            for part in ("value", "low", "high")
        )
        texts = [f"{value:g}" for value in before]
        texts += [number.as_text(self.format_name) for number in self.numbers]
        rows = ["" for _ in before] + [number.row for number in self.numbers]
        hollow = bool(np.isnan([number.low for number in self.numbers]).all())
        return Series(self.name, self.kind, values, low, high, texts, rows, hollow=hollow)


def layer_plot(
    name: str,
    caption: str,
    lines: Sequence[Series | Line],
    points: Sequence[str],
    *,
    scale: Scale,
    ticks: Sequence[tuple[float, str]],
    baselines: Sequence[tuple[float, str]] = (),
    label_width: int = 130,
    unit: str = "",
    root: str = "",
    notes: tuple[str, ...] = (),
    n_marked: int = 40,
    across: str = "layer",
) -> Plot:
    """Draw lines over layers, with labels at their ends.

    Args:
        points: names of the points on the horizontal axis: layer numbers, or ``input``.
        ticks: values with their texts.
        baselines: values of dashed lines with their names.
        notes: further elements above the lines.
        n_marked: largest number of points that have marks and names; of more, that many at even
            distances.
        across: name of the horizontal axis, and of its column in the file.
    """
    series = [line.series if isinstance(line, Line) else line for line in lines]
    places = [2 + 96 * index / max(1, len(points) - 1) for index in range(len(points))]
    behind = [*grid(scale, [value for value, _ in ticks])]
    behind += _point_names(points, places, scale.height - 6)
    marked = even_places(len(points), n_marked)
    ends: list[tuple[float, str]] = []
    for value, words in baselines:
        y = scale(value)
        behind.append(f'<line class="bl" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        ends.append((y, f'<text class="s" x="10" y="{{y}}">{escape(visible(words))}</text>'))
    curves: list[PlotCurve] = []
    marks: list[str | PlotMark] = []
    for line in series:
        curves += _band_and_line(line, places, scale)
        if not line.thin:
            marks += _marks_of(line, places, points, scale, marked)
        known = np.flatnonzero(~np.isnan(line.values))
        if line.name and len(known) and not line.thin:
            last = int(known[-1])
            label = (
                f'<text class="lb c-{line.kind}" x="10" y="{{y}}">{escape(visible(line.name))} '
                f'<tspan class="v">{escape(visible(line.texts[last]))}</tspan></text>'
            )
            ends.append((scale(float(line.values[last])), label))
    return Plot(
        name=name,
        caption=caption,
        height=scale.height,
        curves=tuple(curves),
        behind=tuple(behind),
        marks=(*marks, *notes),
        axis=value_axis(scale, ticks, unit),
        labels=end_labels(ends, scale) + text(across, "10", scale.height - 6),
        label_width=label_width,
        rows=_series_rows(series, points).rename(columns={"layer": across}),
        root=root,
    )


def _point_names(points: Sequence[str], places: Sequence[float], y: float) -> Iterator[str]:
    """Yield the names of points below a plot, as many as a wide and a narrow plot have room for."""
    wide, narrow = (math.ceil(len(points) / most) for most in (MAX_NAMES, MAX_NARROW_NAMES))
    for index, (point, x) in enumerate(zip(points, places, strict=True)):
        if index % wide == 0:
            yield text(point, percent(x), y, "mid s" if index % narrow == 0 else "mid s at-wide")


def end_labels(ends: Sequence[tuple[float, str]], scale: Scale, *, strokes: bool = True) -> str:
    """Return labels at least `LABEL_DISTANCE` apart.

    Args:
        ends: where each label would stand, in pixels, and its element with ``{y}`` for the place.
        scale: scale of the values.
        strokes: whether strokes connect labels that moved with the ends of their lines.
    """
    if not ends:
        return ""
    wanted = np.array([y for y, _ in ends])
    limits = (scale.top - LABEL_DISTANCE / 2, scale.height - scale.bottom)
    spread = spread_values(wanted, LABEL_DISTANCE, limits)
    parts = []
    for (end, element), y in zip(ends, spread, strict=True):
        if strokes and element and abs(y - end) > FAR_LABEL:
            parts.append(f'<line class="ld" x1="-8" x2="8" y1="{end:.1f}" y2="{y:.1f}"/>')
        parts.append(element.replace("{y}", f"{y + 4:.1f}"))
    return "".join(parts)


def _band_and_line(line: Series, places: Sequence[float], scale: Scale) -> Iterator[PlotCurve]:
    """Yield the band of a line's intervals, if it has any, and the line."""
    known: list[int] = np.flatnonzero(~np.isnan(line.values)).tolist()
    with_interval = [index for index in known if not np.isnan(line.low[index])]
    if len(with_interval) > 1 and not line.thin:
        upper = [(places[index], scale(float(line.high[index]))) for index in with_interval]
        lower = [(places[index], scale(float(line.low[index]))) for index in with_interval]
        yield PlotCurve((*upper, *reversed(lower)), f"bd c-{line.kind}", closed=True)
    style = "thin" if line.thin else "ln faint" if line.faint else "ln"
    points = tuple((places[index], scale(float(line.values[index]))) for index in known)
    yield PlotCurve(points, f"{style} c-{line.kind}")


def _marks_of(
    line: Series, places: Sequence[float], points: Sequence[str], scale: Scale, marked: list[int]
) -> Iterator[PlotMark]:
    """Yield a mark for each known number of a line at the marked points."""
    for index in [each for each in marked if not np.isnan(line.values[each])]:
        x, y = places[index], scale(float(line.values[index]))
        point = f"layer {points[index]}" if points[index].isdigit() else points[index]
        label = f"{line.name}, {point}: {line.texts[index]}"
        href = line.hrefs[index] if line.hrefs else ""
        shape = mark(line.kind, x, y, hollow=line.hollow)
        yield PlotMark(shape, f"c-{line.kind}", href, label, x, y)


def _series_rows(series: Sequence[Series], points: Sequence[str]) -> pd.DataFrame:
    """Return the numbers of all lines, a row for each mark."""
    frames = [
        pd.DataFrame(
            {
                "series": line.name,
                "layer": list(points),
                "value": line.values,
                "low": line.low,
                "high": line.high,
            }
        )
        for line in series
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def even_ticks(
    low: float, high: float, written: Callable[[float], str], n_ticks: int = 5
) -> list[tuple[float, str]]:
    """Return round values from ``low`` to ``high`` with their texts.

    Args:
        n_ticks: about how many values to return; at least 3 of more.
    """
    rough = (high - low) / max(n_ticks - 1, 1)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    steps = [m * magnitude for m in (0.5, 1, 2, 2.5, 5, 10)]
    at = next(n for n, step in enumerate(steps) if n and step >= rough * 0.999)
    few = math.floor(high / steps[at] + 1e-9) - math.ceil(low / steps[at] - 1e-9) + 1 < 3
    step = steps[at - 1] if few and n_ticks > 3 else steps[at]
    first = math.ceil(low / step - 1e-9)
    values = [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(value, written(value)) for value in values]
