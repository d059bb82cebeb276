"""One head in one sentence: map, lines between tokens; attention by offset."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.charts.drawing import Drawing, drawing, guessed_width, svg_text
from headbook.charts.paper import PIXELS, WIDTHS
from headbook.charts.theme import BLUE, GREY, INK, colours
from headbook.report.wording import interval_text, number, shortened
from headbook.study.sentence_data import UINT8_STEPS

TEXT, LETTER, WIDE = 12, 6.9, 12.0  # size of letters; pixels of a letter, of an East Asian one
LETTERS = 24  # of a token in a picture
GAP = 8.0
CELL = 14.0  # of a map
PAGE = PIXELS * max(WIDTHS.values())  # what is wider is made smaller, and its letters with it
SMALLEST = 9.5  # letters of 7 points, in maps that have no room for larger ones
LEAN = -60  # degrees by which the names of columns are turned
RISE, RUN = 0.87, 0.5  # sine and cosine of that
ROW, BETWEEN = 20.0, 180.0  # from token to token, and from query to key
SCALE, LEGEND_HEIGHT, PARTS = 140.0, 10.0, 40  # width, height and steps of a legend
LEGEND_TICKS, SAMPLES = (0.0, 0.5, 1.0), (0.1, 0.5, 1.0)  # numbers of the two legends
THINNEST, THICKEST = 0.5, 4.0  # lines of weight 0 and 1
FAINTEST = 0.12  # opacity of weight 0


class AttentionLine(NamedTuple):
    """A line from a query to a key, by their places, and its weight."""

    query: int
    key: int
    weight: float


def attention_map(
    name: str,
    caption: str,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    weights: Floats,
    about: str,
) -> Drawing:
    """Draw a map with its tokens: a row for each query, a column for each key.

    Args:
        weights: from 0 to 1; those that are not a number stay paper. *Shape:* ``(query, key)``.
        about: what they are, beside the colour scale.
    """
    rows, columns = ([shortened(t, LETTERS) for t in side] for side in (queries, keys))
    grid = _grid(rows, columns)
    left, top, cell = grid.left, grid.top, grid.cell
    high = cell * len(rows)
    space = max(grid.space(columns), SCALE + 2 * GAP + _width(about)) + GAP
    parts = [f'<path d="{d}" fill="{fill}"/>' for fill, d in _cells(weights, grid)]
    parts += _names(grid, rows, columns)
    parts += _colour_scale(left, top + high + 2 * GAP, about)
    return drawing(
        name, caption, left + space, top + high + 2 * GAP + LEGEND_HEIGHT + 2 * TEXT, parts
    )


class _Grid(NamedTuple):
    """Places of a map's cells in pixels, and the size of its letters."""

    left: float
    top: float
    cell: float
    text: float

    def space(self, columns: Sequence[str]) -> float:
        """Return the width of the cells with the slanted names over them."""
        lean = self.text / TEXT * RUN
        ends = (self.cell * (i + 0.5) + lean * _width(t) for i, t in enumerate(columns))
        return max(self.cell * len(columns), *ends)


def _grid(rows: Sequence[str], columns: Sequence[str]) -> _Grid:
    """Return cells as large as fit on a page."""
    for text in (TEXT, SMALLEST):
        part = text / TEXT
        left = part * max(_width(t) for t in (*rows, "query ↓")) + 2 * GAP
        top = max(part * RISE * max(map(_width, columns)), 2 * text) + 2 * GAP
        grid = _Grid(left, top, CELL, text)
        if left + grid.space(columns) + GAP <= PAGE:
            return grid
    space = PAGE - left - GAP
    ends = [(space - part * RUN * _width(t)) / (i + 0.5) for i, t in enumerate(columns)]
    return grid._replace(cell=min(space / len(columns), *ends))


def _names(grid: _Grid, rows: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """Draw as many names of tokens as fit, and the names of both sides in the corner."""
    left, top, cell, text = grid
    every = math.ceil(text / cell)
    for name, y in (("key →", top - GAP - text), ("query ↓", top - GAP)):
        yield svg_text(name, left - GAP, y, text, GREY, anchor="end")
    for i, name in [*enumerate(rows)][::every]:
        yield svg_text(name, left - GAP, top + cell * (i + 0.5) + 4, text, anchor="end")
    for i, name in [*enumerate(columns)][::every]:
        place = f"translate({left + cell * (i + 0.5) + 4:.1f} {top - 6:.1f}) rotate({LEAN})"
        yield f'<g transform="{place}">{svg_text(name, 0, 0, text, anchor="start")}</g>'


def attention_lines(
    name: str,
    caption: str,
    queries: Sequence[str],
    keys: Sequence[str],
    links: Sequence[AttentionLine],
    *,
    about: str,
) -> Drawing:
    """Draw the tokens twice, queries on the left, with a line for each link.

    Args:
        about: what the weights are, beside the lines that show how wide they are.
    """
    rows, columns = ([shortened(t, LETTERS) for t in side] for side in (queries, keys))
    left = max(_width(t) for t in (*rows, "query")) + 2 * GAP
    right, top = left + BETWEEN, GAP + ROW
    parts = []
    for query, key, weight in sorted(links, key=lambda link: link.weight):  # strong ones on top
        start, end = (top + ROW * (position + 0.5) for position in (query, key))
        middle = left + BETWEEN / 2
        curve = f"M{left:.1f} {start:.1f}C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f}"
        parts.append(_line(f"{curve} {right:.1f} {end:.1f}", weight))
    sides = (left - GAP, "end", ["query", *rows]), (right + GAP, "start", ["key", *columns])
    for x, anchor, texts in sides:
        for i, text in enumerate(texts):
            ink = INK if i else GREY
            parts.append(svg_text(text, x, top + ROW * (i - 0.5) + 4, TEXT, ink, anchor=anchor))
    below = top + ROW * max(len(rows), len(columns)) + GAP
    parts += _width_scale(left, below, about)
    space = max(max(_width(t) for t in (*columns, "key")) + 2 * GAP, GAP + _width(about))
    return drawing(name, caption, right + space, below + ROW + TEXT, parts)


def _width(text: str) -> float:
    return guessed_width(text, LETTER, WIDE)


def _cells(weights: Floats, grid: _Grid) -> Iterator[tuple[str, str]]:
    """Yield each colour and its cells as a path, neighbours in a row as one.

    All cells are drawn in the lowest colour first, so that no paper shines through the joints of
    the others.
    """
    palette, seen = colours(UINT8_STEPS + 1), ~np.isnan(weights)
    steps = (np.nan_to_num(weights) * UINT8_STEPS).round().astype(np.int64)
    yield palette[0], "".join(d for there, d in _runs(seen, grid) if there)
    shapes: dict[int, list[str]] = {}
    for step, d in _runs(steps, grid):
        shapes.setdefault(step, []).append(d)
    yield from ((palette[step], "".join(shapes[step])) for step in sorted(shapes) if step)


def _runs(cells: NDArray[Any], grid: _Grid) -> Iterator[tuple[int, str]]:
    """Yield value and outline of each run of equal neighbours in a row."""
    left, top, cell, _ = grid
    high = f"{cell:.2f}".removesuffix(".00")
    for row, line in enumerate(cells.tolist()):
        column = 0
        for value, group in groupby(line):
            length = len([*group])
            place = f"M{left + cell * column:.1f} {top + cell * row:.1f}"
            wide = f"{cell * length:.2f}".removesuffix(".00")
            yield value, f"{place}h{wide}v{high}h-{wide}z"
            column += length


def _colour_scale(left: float, top: float, about: str) -> Iterator[str]:
    palette = colours(PARTS)
    for part, colour in enumerate(palette):  # each to the end; the next one covers the rest
        x, width = left + SCALE * part / PARTS, SCALE * (1 - part / PARTS)
        place = f'x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{LEGEND_HEIGHT:.0f}"'
        yield f'<rect {place} fill="{colour}"/>'
    for tick in LEGEND_TICKS:
        yield svg_text(f"{tick:g}", left + SCALE * tick, top + LEGEND_HEIGHT + TEXT + 1, TEXT)
    yield svg_text(about, left + SCALE + 2 * GAP, top + LEGEND_HEIGHT, TEXT, anchor="start")


def _width_scale(left: float, top: float, about: str) -> Iterator[str]:
    """Draw a line for some weights, each with its number."""
    share = BETWEEN / len(SAMPLES)
    for index, weight in enumerate(SAMPLES):
        x = left + share * index
        yield _line(f"M{x:.1f} {top + ROW / 2:.1f}h{share / 2:.1f}", weight)
        yield svg_text(f"{weight:g}", x + share / 2 + 4, top + ROW / 2 + 4, TEXT, anchor="start")
    yield svg_text(about, left + BETWEEN + GAP, top + ROW / 2 + 4, TEXT, anchor="start")


def _line(path: str, weight: float) -> str:
    width = THINNEST + (THICKEST - THINNEST) * weight
    opacity = FAINTEST + (1 - FAINTEST) * weight
    return (
        f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="{width:.2f}" '
        f'stroke-opacity="{opacity:.3f}"/>'
    )


WIDTH, HEIGHT = 400.0, 210.0  # of the plot
LEFT, TOP, BELOW, RIGHT = 52.0, 8.0, 42.0, 12.0
PROFILE_BAR = 0.8  # of the room that an offset has
STEPS = (1, 2, 2.5, 5, 10)
PROFILE_TICKS = 5  # at most, above 0
SMALL, TITLE = 11, 12  # letters


class OffsetBar(NamedTuple):
    """One offset: its share, the ends of its interval, and the share of uniform attention."""

    offset: int
    value: float
    low: float
    high: float
    uniform: float

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Offset, share, interval and uniform attention as text."""
        return (
            f"{self.offset:+d}".replace("-", "−") if self.offset else "0",
            number(self.value, share=True),
            interval_text(self.low, self.high, share=True),
            number(self.uniform, share=True),
        )


def offset_profile(name: str, caption: str, bars: Sequence[OffsetBar]) -> Drawing:
    """Draw the share of attention by offset with intervals, and uniform attention as a line.

    Args:
        bars: offsets in order; NaN where there is no number.
    """
    there = [part for bar in bars for part in bar[1:] if not math.isnan(part)]
    step = _step(max(there, default=1.0) or 1.0)
    top = step * math.ceil(max(there, default=1.0) / step - 1e-9) or step
    parts = [*_axes(bars, step, top), *_bars(bars, top), _uniform(bars, top)]
    return drawing(name, caption, LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW, parts)


def _step(most: float) -> float:
    """Return the least round distance of ticks that gives at most `PROFILE_TICKS`."""
    ten = 10.0 ** math.floor(math.log10(most / PROFILE_TICKS))
    return next(step * ten for step in STEPS if step * ten * PROFILE_TICKS >= most * (1 - 1e-9))


def _x(bars: Sequence[OffsetBar], place: float) -> float:
    return LEFT + WIDTH * place / len(bars)


def _y(value: float, top: float) -> float:
    return TOP + HEIGHT * (1 - value / top)


def _axes(bars: Sequence[OffsetBar], step: float, top: float) -> Iterator[str]:
    """Draw lines, numbers and titles of both axes."""
    for tick in range(round(top / step) + 1):
        y = _y(tick * step, top)
        opacity = 1 if tick == 0 else 0.12
        yield (
            f'<path d="M{LEFT:.1f} {y:.1f}h{WIDTH:.0f}" stroke="{INK}" stroke-opacity="{opacity}"/>'
        )
        yield svg_text(f"{100 * tick * step:.6g}%", LEFT - 6, y + 4, SMALL, anchor="end")
    every = max(1, max(abs(bar.offset) for bar in bars) // 4)
    for index, bar in enumerate(bars):
        if bar.offset % every == 0:
            yield svg_text(bar.cells[0], _x(bars, index + 0.5), TOP + HEIGHT + 15, SMALL)
    middle = LEFT + WIDTH / 2
    about = "offset in tokens: − earlier keys, + later keys"
    yield svg_text(about, middle, TOP + HEIGHT + 36, TITLE)
    turned = svg_text("share of attention", 0, 0, TITLE)
    yield f'<g transform="translate(12 {TOP + HEIGHT / 2:.1f}) rotate(-90)">{turned}</g>'


def _bars(bars: Sequence[OffsetBar], top: float) -> Iterator[str]:
    """Draw bars with their numbers as titles, then the lines of all intervals as one shape."""
    width, lines = WIDTH / len(bars) * PROFILE_BAR, ""
    yield f'<g fill="{BLUE}">'
    for index, bar in enumerate(bars):
        if math.isnan(bar.value):
            continue
        x, y = _x(bars, index + 0.5), _y(bar.value, top)
        shape = f'x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}"'
        height = HEIGHT * bar.value / top
        if not math.isnan(bar.low):
            lines += f"M{x:.1f} {_y(bar.low, top):.1f}V{_y(bar.high, top):.1f}"
        offset, value, ends, _ = bar.cells
        message = escape(f"{offset}: {value} {ends}".strip())
        yield f'<rect {shape} height="{height:.1f}"><title>{message}</title></rect>'
    yield "</g>"
    yield f'<path d="{lines}" stroke="{INK}" stroke-width="1.2" pointer-events="none"/>'


def _uniform(bars: Sequence[OffsetBar], top: float) -> str:
    """Draw uniform attention as a step for each offset."""
    line = "".join(
        f"M{_x(bars, index):.1f} {_y(bar.uniform, top):.1f}H{_x(bars, index + 1):.1f}"
        for index, bar in enumerate(bars)
        if not math.isnan(bar.uniform)
    )
    return (
        f'<path d="{line}" fill="none" stroke="{GREY}" stroke-width="1.5" stroke-dasharray="4 3"/>'
    )
