"""One head in one sentence as papers print it: its map, and its tokens twice with lines."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.charts.base.drawing import INK, Drawing, drawing, guessed_width, written
from headbook.charts.base.ink import colours
from headbook.charts.base.paper import PIXELS, WIDTHS
from headbook.charts.base.render import BLUE, GREY
from headbook.report.wording import shortened
from headbook.study.sentencedata import STEPS

TEXT, LETTER, WIDE = 12, 6.9, 12.0  # size of letters; pixels of a letter, of an East Asian one
LETTERS = 24  # of a token in a picture
GAP = 8.0
CELL = 14.0  # of a map
PAGE = PIXELS * max(WIDTHS.values())  # what is wider is made smaller, and its letters with it
SMALLEST = 9.5  # letters of 7 points, in maps that have no room for larger ones
LEAN = -60  # degrees by which the names of columns are turned
RISE, RUN = 0.87, 0.5  # sine and cosine of that
ROW, BETWEEN = 20.0, 180.0  # from token to token, and from query to key
SCALE, BAR, PARTS = 140.0, 10.0, 40  # width, height and steps of a legend
TICKS, SAMPLES = (0.0, 0.5, 1.0), (0.1, 0.5, 1.0)  # numbers of the two legends
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
    """A map with the names of its tokens; rows look, columns are looked at.

    Args:
        weights: from 0 to 1; those that are not a number stay paper. *Shape:* ``(query, key)``.
        about: what they are, beside the colour scale.
    """
    rows, columns = ([shortened(t, LETTERS) for t in side] for side in (queries, keys))
    grid = _grid(rows, columns)
    left, top, cell = grid.left, grid.top, grid.cell
    high = cell * len(rows)
    room = max(grid.room(columns), SCALE + 2 * GAP + _width(about)) + GAP
    parts = [f'<path d="{d}" fill="{fill}"/>' for fill, d in _cells(weights, grid)]
    parts += _names(grid, rows, columns)
    parts += _colour_scale(left, top + high + 2 * GAP, about)
    return drawing(name, caption, left + room, top + high + 2 * GAP + BAR + 2 * TEXT, parts)


class _Grid(NamedTuple):
    """Where the cells of a map are, in pixels, and how large its letters."""

    left: float
    top: float
    cell: float
    text: float

    def room(self, columns: Sequence[str]) -> float:
        """Width of the cells with the names that lean over them."""
        lean = self.text / TEXT * RUN
        ends = (self.cell * (i + 0.5) + lean * _width(t) for i, t in enumerate(columns))
        return max(self.cell * len(columns), *ends)


def _grid(rows: Sequence[str], columns: Sequence[str]) -> _Grid:
    """Cells as large as a page has room for."""
    for text in (TEXT, SMALLEST):
        part = text / TEXT
        left = part * max(_width(t) for t in (*rows, "query ↓")) + 2 * GAP
        top = max(part * RISE * max(map(_width, columns)), 2 * text) + 2 * GAP
        grid = _Grid(left, top, CELL, text)
        if left + grid.room(columns) + GAP <= PAGE:
            return grid
    room = PAGE - left - GAP
    ends = [(room - part * RUN * _width(t)) / (i + 0.5) for i, t in enumerate(columns)]
    return grid._replace(cell=min(room / len(columns), *ends))


def _names(grid: _Grid, rows: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """Names of tokens, as many as there is room for; in the corner it says which are which."""
    left, top, cell, text = grid
    every = math.ceil(text / cell)
    for name, y in (("key →", top - GAP - text), ("query ↓", top - GAP)):
        yield written(name, left - GAP, y, text, GREY, anchor="end")
    for i, name in [*enumerate(rows)][::every]:
        yield written(name, left - GAP, top + cell * (i + 0.5) + 4, text, anchor="end")
    for i, name in [*enumerate(columns)][::every]:
        place = f"translate({left + cell * (i + 0.5) + 4:.1f} {top - 6:.1f}) rotate({LEAN})"
        yield f'<g transform="{place}">{written(name, 0, 0, text, anchor="start")}</g>'


def attention_lines(
    name: str,
    caption: str,
    queries: Sequence[str],
    keys: Sequence[str],
    links: Sequence[AttentionLine],
    *,
    about: str,
) -> Drawing:
    """The tokens twice, those that look on the left, with a line for each link.

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
            parts.append(written(text, x, top + ROW * (i - 0.5) + 4, TEXT, ink, anchor=anchor))
    below = top + ROW * max(len(rows), len(columns)) + GAP
    parts += _width_scale(left, below, about)
    room = max(max(_width(t) for t in (*columns, "key")) + 2 * GAP, GAP + _width(about))
    return drawing(name, caption, right + room, below + ROW + TEXT, parts)


def _width(text: str) -> float:
    return guessed_width(text, LETTER, WIDE)


def _cells(weights: Floats, grid: _Grid) -> Iterator[tuple[str, str]]:
    """A colour and its cells, neighbours in a row as one.

    All cells are drawn in the lowest colour first, so that no paper shines through the joints of
    the others.
    """
    palette, seen = colours(STEPS + 1), ~np.isnan(weights)
    steps = (np.nan_to_num(weights) * STEPS).round().astype(np.int64)
    yield palette[0], "".join(d for there, d in _runs(seen, grid) if there)
    shapes: dict[int, list[str]] = {}
    for step, d in _runs(steps, grid):
        shapes.setdefault(step, []).append(d)
    yield from ((palette[step], "".join(shapes[step])) for step in sorted(shapes) if step)


def _runs(cells: NDArray[Any], grid: _Grid) -> Iterator[tuple[int, str]]:
    """Equal neighbours in a row: their value and their outline."""
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
        place = f'x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BAR:.0f}"'
        yield f'<rect {place} fill="{colour}"/>'
    for tick in TICKS:
        yield written(f"{tick:g}", left + SCALE * tick, top + BAR + TEXT + 1, TEXT)
    yield written(about, left + SCALE + 2 * GAP, top + BAR, TEXT, anchor="start")


def _width_scale(left: float, top: float, about: str) -> Iterator[str]:
    """A line for some weights, each with its number."""
    share = BETWEEN / len(SAMPLES)
    for index, weight in enumerate(SAMPLES):
        x = left + share * index
        yield _line(f"M{x:.1f} {top + ROW / 2:.1f}h{share / 2:.1f}", weight)
        yield written(f"{weight:g}", x + share / 2 + 4, top + ROW / 2 + 4, TEXT, anchor="start")
    yield written(about, left + BETWEEN + GAP, top + ROW / 2 + 4, TEXT, anchor="start")


def _line(path: str, weight: float) -> str:
    width = THINNEST + (THICKEST - THINNEST) * weight
    opacity = FAINTEST + (1 - FAINTEST) * weight
    return (
        f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="{width:.2f}" '
        f'stroke-opacity="{opacity:.3f}"/>'
    )
