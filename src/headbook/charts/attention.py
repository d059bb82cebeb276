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
from headbook.report.wording import shortened
from headbook.results.formats import interval_text, number
from headbook.study.sentence_data import UINT8_STEPS

# Font size; widths of a Latin and of an East Asian letter.
TEXT_PIXELS, LETTER_PIXELS, WIDE_LETTER_PIXELS = 12, 6.9, 12.0
MAX_TOKEN_LETTERS = 24  # longer tokens are shortened
GAP_PIXELS = 8.0
CELL_PIXELS = 14.0  # of a map that fits on a page
PAGE_PIXELS = PIXELS * max(WIDTHS.values())  # wider pictures are shrunk, with their letters
MIN_TEXT_PIXELS = 9.5  # font size: 7 points, in maps that are too wide with larger letters
NAME_ANGLE = -60  # degrees by which the names of columns are turned
ANGLE_SINE, ANGLE_COSINE = 0.87, 0.5  # sine and cosine of this angle
ROW_PIXELS, SIDES_DISTANCE = 20.0, 180.0  # from token to token, and from query to key
LEGEND_WIDTH, LEGEND_HEIGHT, LEGEND_STEPS = 140.0, 10.0, 40  # width, height and steps of a legend
# Numbers of the legends of colours and of lines.
LEGEND_TICKS, LEGEND_WEIGHTS = (0.0, 0.5, 1.0), (0.1, 0.5, 1.0)
MIN_LINE_PIXELS, MAX_LINE_PIXELS = 0.5, 4.0  # width of lines of weight 0 and 1
MIN_LINE_OPACITY = 0.12  # of weight 0


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
        weights: from 0 to 1; cells of NaN stay blank. *Shape:* ``(query, key)``.
        about: title of the colour scale.
    """
    rows, columns = map(_shortened, (queries, keys))
    grid = _grid(rows, columns)
    left, top, cell = grid.left, grid.top, grid.cell
    map_height = cell * len(rows)
    width_right = (
        max(grid.space(columns), LEGEND_WIDTH + 2 * GAP_PIXELS + _width(about)) + GAP_PIXELS
    )
    parts = [f'<path d="{path}" fill="{fill}"/>' for fill, path in _cells(weights, grid)]
    parts += _names(grid, rows, columns)
    parts += _colour_scale(left, top + map_height + 2 * GAP_PIXELS, about)
    return drawing(
        name,
        caption,
        left + width_right,
        top + map_height + 2 * GAP_PIXELS + LEGEND_HEIGHT + 2 * TEXT_PIXELS,
        parts,
    )


def _shortened(tokens: Sequence[str]) -> list[str]:
    return [shortened(token, MAX_TOKEN_LETTERS) for token in tokens]


class _Grid(NamedTuple):
    """Places of a map's cells in pixels, and the size of its letters."""

    left: float
    top: float
    cell: float
    text: float

    def space(self, columns: Sequence[str]) -> float:
        """Return the width of the cells with the slanted names over them."""
        slant = self.text / TEXT_PIXELS * ANGLE_COSINE
        ends = (
            self.cell * (column + 0.5) + slant * _width(token)
            for column, token in enumerate(columns)
        )
        return max(self.cell * len(columns), *ends)


def _grid(rows: Sequence[str], columns: Sequence[str]) -> _Grid:
    """Return cells as large as fit on a page."""
    for text_size in (TEXT_PIXELS, MIN_TEXT_PIXELS):
        scale = text_size / TEXT_PIXELS
        left = scale * max(_width(token) for token in (*rows, "query ↓")) + 2 * GAP_PIXELS
        top = max(scale * ANGLE_SINE * max(map(_width, columns)), 2 * text_size) + 2 * GAP_PIXELS
        grid = _Grid(left, top, CELL_PIXELS, text_size)
        if left + grid.space(columns) + GAP_PIXELS <= PAGE_PIXELS:
            return grid
    free_width = PAGE_PIXELS - left - GAP_PIXELS
    ends = [
        (free_width - scale * ANGLE_COSINE * _width(token)) / (column + 0.5)
        for column, token in enumerate(columns)
    ]
    return grid._replace(cell=min(free_width / len(columns), *ends))


def _names(grid: _Grid, rows: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """Draw as many names of tokens as fit, and the names of both sides in the corner."""
    left, top, cell, text = grid
    label_distance = math.ceil(text / cell)
    for name, y in (("key →", top - GAP_PIXELS - text), ("query ↓", top - GAP_PIXELS)):
        yield svg_text(name, left - GAP_PIXELS, y, text, GREY, anchor="end")
    for index, name in [*enumerate(rows)][::label_distance]:
        yield svg_text(name, left - GAP_PIXELS, top + cell * (index + 0.5) + 4, text, anchor="end")
    for index, name in [*enumerate(columns)][::label_distance]:
        place = (
            f"translate({left + cell * (index + 0.5) + 4:.1f} {top - 6:.1f}) rotate({NAME_ANGLE})"
        )
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
        about: title of the legend of line widths.
    """
    rows, columns = map(_shortened, (queries, keys))
    left = max(_width(token) for token in (*rows, "query")) + 2 * GAP_PIXELS
    right, top = left + SIDES_DISTANCE, GAP_PIXELS + ROW_PIXELS
    parts = []
    for query, key, weight in sorted(links, key=lambda link: link.weight):  # strong ones on top
        start, end = (top + ROW_PIXELS * (position + 0.5) for position in (query, key))
        middle = left + SIDES_DISTANCE / 2
        curve = f"M{left:.1f} {start:.1f}C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f}"
        parts.append(_line(f"{curve} {right:.1f} {end:.1f}", weight))
    sides = (
        (left - GAP_PIXELS, "end", ["query", *rows]),
        (right + GAP_PIXELS, "start", ["key", *columns]),
    )
    for x, anchor, texts in sides:
        for row, text in enumerate(texts):
            ink = INK if row else GREY
            parts.append(
                svg_text(
                    text, x, top + ROW_PIXELS * (row - 0.5) + 4, TEXT_PIXELS, ink, anchor=anchor
                )
            )
    below = top + ROW_PIXELS * max(len(rows), len(columns)) + GAP_PIXELS
    parts += _width_scale(left, below, about)
    width_right = max(
        max(_width(token) for token in (*columns, "key")) + 2 * GAP_PIXELS,
        GAP_PIXELS + _width(about),
    )
    return drawing(name, caption, right + width_right, below + ROW_PIXELS + TEXT_PIXELS, parts)


def _width(text: str) -> float:
    return guessed_width(text, LETTER_PIXELS, WIDE_LETTER_PIXELS)


def _cells(weights: Floats, grid: _Grid) -> Iterator[tuple[str, str]]:
    """Yield each colour and its cells as a path, neighbours in a row as one.

    All cells are drawn in the lowest colour first, so that no paper shines through the joints of
    the others.
    """
    palette, is_visible = colours(UINT8_STEPS + 1), ~np.isnan(weights)
    steps = (np.nan_to_num(weights) * UINT8_STEPS).round().astype(np.int64)
    yield palette[0], "".join(path for visible, path in _runs(is_visible, grid) if visible)
    shapes: dict[int, list[str]] = {}
    for step, path in _runs(steps, grid):
        shapes.setdefault(step, []).append(path)
    yield from ((palette[step], "".join(shapes[step])) for step in sorted(shapes) if step)


def _runs(cells: NDArray[Any], grid: _Grid) -> Iterator[tuple[int, str]]:
    """Yield value and outline of each run of equal neighbours in a row."""
    left, top, cell, _ = grid
    height = f"{cell:.2f}".removesuffix(".00")
    for row, row_cells in enumerate(cells.tolist()):
        column = 0
        for value, group in groupby(row_cells):
            length = len([*group])
            place = f"M{left + cell * column:.1f} {top + cell * row:.1f}"
            width = f"{cell * length:.2f}".removesuffix(".00")
            yield value, f"{place}h{width}v{height}h-{width}z"
            column += length


def _colour_scale(left: float, top: float, about: str) -> Iterator[str]:
    palette = colours(LEGEND_STEPS)
    for step, colour in enumerate(palette):  # each to the end; the next one covers the rest
        x, width = (
            left + LEGEND_WIDTH * step / LEGEND_STEPS,
            LEGEND_WIDTH * (1 - step / LEGEND_STEPS),
        )
        place = f'x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{LEGEND_HEIGHT:.0f}"'
        yield f'<rect {place} fill="{colour}"/>'
    for tick in LEGEND_TICKS:
        yield svg_text(
            f"{tick:g}",
            left + LEGEND_WIDTH * tick,
            top + LEGEND_HEIGHT + TEXT_PIXELS + 1,
            TEXT_PIXELS,
        )
    yield svg_text(
        about,
        left + LEGEND_WIDTH + 2 * GAP_PIXELS,
        top + LEGEND_HEIGHT,
        TEXT_PIXELS,
        anchor="start",
    )


def _width_scale(left: float, top: float, about: str) -> Iterator[str]:
    """Draw a line for some weights, each with its number."""
    share = SIDES_DISTANCE / len(LEGEND_WEIGHTS)
    for index, weight in enumerate(LEGEND_WEIGHTS):
        x = left + share * index
        yield _line(f"M{x:.1f} {top + ROW_PIXELS / 2:.1f}h{share / 2:.1f}", weight)
        yield svg_text(
            f"{weight:g}", x + share / 2 + 4, top + ROW_PIXELS / 2 + 4, TEXT_PIXELS, anchor="start"
        )
    yield svg_text(
        about,
        left + SIDES_DISTANCE + GAP_PIXELS,
        top + ROW_PIXELS / 2 + 4,
        TEXT_PIXELS,
        anchor="start",
    )


def _line(path: str, weight: float) -> str:
    width = MIN_LINE_PIXELS + (MAX_LINE_PIXELS - MIN_LINE_PIXELS) * weight
    opacity = MIN_LINE_OPACITY + (1 - MIN_LINE_OPACITY) * weight
    return (
        f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="{width:.2f}" '
        f'stroke-opacity="{opacity:.3f}"/>'
    )


WIDTH, HEIGHT = 400.0, 210.0  # of the plot
LEFT, TOP, BELOW, RIGHT = 52.0, 8.0, 42.0, 12.0
PROFILE_BAR = 0.8  # width of a bar, as a share of the width of an offset
TICK_STEPS = (1, 2, 2.5, 5, 10)  # distances of ticks, times a power of ten
MAX_PROFILE_TICKS = 5  # above 0
LABEL_TEXT, TITLE_TEXT = 11, 12  # font sizes of labels and of titles of axes


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
        bars: offsets in order; NaN if missing.
    """
    numbers = [number for bar in bars for number in bar[1:] if not math.isnan(number)]
    step = _step(max(numbers, default=1.0) or 1.0)
    top = step * math.ceil(max(numbers, default=1.0) / step - 1e-9) or step
    parts = [*_axes(bars, step, top), *_bars(bars, top), _uniform(bars, top)]
    return drawing(name, caption, LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW, parts)


def _step(largest: float) -> float:
    """Return the least round distance of ticks that gives at most `MAX_PROFILE_TICKS`."""
    power = 10.0 ** math.floor(math.log10(largest / MAX_PROFILE_TICKS))
    return next(
        step * power
        for step in TICK_STEPS
        if step * power * MAX_PROFILE_TICKS >= largest * (1 - 1e-9)
    )


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
        yield svg_text(f"{100 * tick * step:.6g}%", LEFT - 6, y + 4, LABEL_TEXT, anchor="end")
    label_distance = max(1, max(abs(bar.offset) for bar in bars) // 4)
    for index, bar in enumerate(bars):
        if bar.offset % label_distance == 0:
            yield svg_text(bar.cells[0], _x(bars, index + 0.5), TOP + HEIGHT + 15, LABEL_TEXT)
    middle = LEFT + WIDTH / 2
    title = "offset in tokens: − earlier keys, + later keys"
    yield svg_text(title, middle, TOP + HEIGHT + 36, TITLE_TEXT)
    side_title = svg_text("share of attention", 0, 0, TITLE_TEXT)
    yield f'<g transform="translate(12 {TOP + HEIGHT / 2:.1f}) rotate(-90)">{side_title}</g>'


def _bars(bars: Sequence[OffsetBar], top: float) -> Iterator[str]:
    """Draw bars with their numbers as titles, then the lines of all intervals as one shape."""
    width, interval_path = WIDTH / len(bars) * PROFILE_BAR, ""
    yield f'<g fill="{BLUE}">'
    for index, bar in enumerate(bars):
        if math.isnan(bar.value):
            continue
        x, y = _x(bars, index + 0.5), _y(bar.value, top)
        shape = f'x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}"'
        height = HEIGHT * bar.value / top
        if not math.isnan(bar.low):
            interval_path += f"M{x:.1f} {_y(bar.low, top):.1f}V{_y(bar.high, top):.1f}"
        offset, value, interval, _ = bar.cells
        message = escape(f"{offset}: {value} {interval}".strip())
        yield f'<rect {shape} height="{height:.1f}"><title>{message}</title></rect>'
    yield "</g>"
    yield f'<path d="{interval_path}" stroke="{INK}" stroke-width="1.2" pointer-events="none"/>'


def _uniform(bars: Sequence[OffsetBar], top: float) -> str:
    """Draw uniform attention as a step for each offset."""
    path = "".join(
        f"M{_x(bars, index):.1f} {_y(bar.uniform, top):.1f}H{_x(bars, index + 1):.1f}"
        for index, bar in enumerate(bars)
        if not math.isnan(bar.uniform)
    )
    return (
        f'<path d="{path}" fill="none" stroke="{GREY}" stroke-width="1.5" stroke-dasharray="4 3"/>'
    )
