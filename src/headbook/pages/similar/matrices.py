"""The distances of all heads as pictures, like heads beside like."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Ints
from headbook.charts.base import images
from headbook.charts.base.ink import ink
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.similar import Likeness, likeness
from headbook.report.wording import VIEWS, head_name, head_page
from headbook.terms import View

SIDE = 460  # pixels of a matrix
STRIP, GAP, MARK = 64, 6, 4  # pixels beside it that show layers; to the matrix; of a mark
STEPS = 256


@dataclass(frozen=True)
class MatrixRow:
    """A head beside its row of a matrix, and where that begins."""

    name: str
    href: str
    y: float


@dataclass(frozen=True)
class Matrix:
    """The distances of all heads as a picture.

    Attributes:
        title: the view and the order.
        src: the picture, a pixel for each pair.
        side, cell: units of the whole and of a row.
        marks: a mark for each row that shows the layer, as an SVG path.
        rows: heads from top to bottom; empty where there are too many.
    """

    title: str
    src: str
    side: int
    cell: float
    marks: str
    rows: tuple[MatrixRow, ...]


def most(found: Mapping[View, Likeness]) -> float:
    """The largest distance, where the colours end."""
    return max(float(np.nanmax(each.apart)) for each in found.values())


def _orders(found: Mapping[View, Likeness]) -> Iterator[tuple[str, str, View, Ints]]:
    """File, title, view and order of each matrix: each in its own order, and renorm as raw."""
    views = list(found)
    for view in views:
        if view is not views[0]:
            title = f"{VIEWS[view]}, in the order of {VIEWS[views[0]]}"
            yield f"{view}-as-{views[0]}", title, view, found[views[0]].order
        yield view, f"{VIEWS[view]}, in its own order", view, found[view].order


def matrices(stack: str, found: Mapping[View, Likeness], *, listed: bool) -> Iterator[Matrix]:
    """The matrices of a stack.

    Args:
        listed: whether rows lead to their heads.
    """
    for file, title, view, order in _orders(found):
        heads = [found[view].heads[place] for place in order]
        cell = SIDE / len(heads)
        yield Matrix(
            title=title,
            src=f"data/similar/{stack}-{file}.png",
            side=SIDE,
            cell=round(cell, 2),
            marks=_marks([head.layer for head in heads], cell),
            rows=tuple(
                MatrixRow(head_name(h), head_page(h), round(index * cell, 2))
                for index, h in enumerate(heads if listed else ())
            ),
        )


def _marks(layers: Sequence[int], cell: float) -> str:
    """A mark for each row: left for the first layer, right for the last."""
    first, depth = min(layers), max(1, max(layers) - min(layers))
    places = [(STRIP - GAP - MARK) * (layer - first) / depth - STRIP for layer in layers]
    return "".join(
        f"M{x:.1f},{row * cell:.2f}h{MARK}v{cell:.2f}h-{MARK}z" for row, x in enumerate(places)
    )


def matrix_pictures(results: StackResults) -> Iterator[tuple[str, bytes]]:
    """File names and PNGs of a stack's matrices."""
    found = results.once(likeness)
    largest = most(found) if found else 1.0
    for file, _, view, order in _orders(found):
        value = found[view].apart[np.ix_(order, order)]
        cells = np.rint(np.nan_to_num(value) / (largest or 1) * (STEPS - 1)).astype(np.uint8)
        picture = images.inked(cells, ink(STEPS))
        yield f"{results.stack.name}-{file}.png", picture
