"""One head among all heads, and the values of a ranking over sentences, drawn by hand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from headbook.analysis.arithmetic import Floats
from headbook.charts.base.drawing import INK, Drawing, drawing, written
from headbook.charts.base.render import BLUE

PLACES = 400  # of a strip; what stands at the same place is drawn once
MARGIN = 2.0  # per cent at either end
BINS = 40  # of the histogram
WIDTH, TOP, PLOT, BELOW, SIDE = 900.0, 58.0, 60.0, 24.0, 10.0
SMALL = 12
LINES = 4  # of names over the bars
LETTER = 6.6  # pixels, about
ANCHORS = ("start", "middle", "middle", "middle", "end")
APART = 14.0  # pixels from one line of names to the next


@dataclass(frozen=True, eq=False)
class RangeStrip:
    """Values of all heads, drawn the same for each but for its dot.

    As wide as its place on the page: places are in per cent, so that the dot stays round.

    Attributes:
        there: the values, ascending; at least one.
        quarters: first quartile, median and third quartile.
    """

    there: Floats
    quarters: tuple[float, float, float]

    @classmethod
    def of(cls, values: Floats) -> "RangeStrip":
        """Of values of any shape; NaN where there is none."""
        there = np.sort(values[~np.isnan(values)])
        first, middle, third = map(float, np.quantile(there, (0.25, 0.5, 0.75)))
        return cls(there, (first, middle, third))

    def drawn(self, own: float) -> str:
        """All heads as hairlines, a box around the middle half, the median, and a head as a dot."""
        before, after = self._still
        return f'{before}<circle cx="{self._at(own):.1f}%" r="5.5"/>{after}'

    @cached_property
    def _still(self) -> tuple[str, str]:
        """What stands before the dot and after it."""
        lines = np.unique(np.rint(self._at(self.there) * PLACES / 100).astype(int)).tolist()
        path = f"M{lines[0]} 0v1" + "".join(f"m{b - a}-1v1" for a, b in pairwise(lines))
        first, middle, third = map(self._at, self.quarters)
        return (
            '<svg class="strip" aria-hidden="true">'
            f'<rect x="{first:.1f}%" width="{third - first:.1f}%" height="10"/>'
            f'<svg viewBox="0 -.3 {PLACES} 1.6" preserveAspectRatio="none"><path d="{path}"/></svg>'
            f'<rect class="half" x="{middle:.1f}%" width="2" height="14"/>'
        ), "</svg>"

    def _at(self, value: Any) -> Any:
        """The place of a value, or of several, in per cent."""
        low, high = float(self.there[0]), float(self.there[-1])
        return MARGIN + (100 - 2 * MARGIN) * (value - low) / ((high - low) or 1.0)


def ranking_histogram(
    name: str, caption: str, scores: Floats, marks: Sequence[tuple[str, float]]
) -> Drawing:
    """How many sentences have which value of a ranking, from 0 to 1.

    Args:
        marks: values that are named over the bars, the largest first.
    """
    number, _ = np.histogram(scores, BINS, (0, 1))
    most = int(number.max(initial=0)) or 1
    parts = [*_axis(), *_bars(number, most), *_marks(marks)]
    return drawing(name, caption, WIDTH, TOP + PLOT + BELOW, parts)


def _x(value: float) -> float:
    return SIDE + (WIDTH - 2 * SIDE) * value


def _axis() -> Iterator[str]:
    foot = TOP + PLOT
    yield f'<path d="M{_x(0):.0f} {foot:.0f}H{_x(1):.0f}" stroke="{INK}" stroke-opacity="0.5"/>'
    for tick, anchor in zip((0, 0.25, 0.5, 0.75, 1), ANCHORS, strict=True):
        yield written(f"{tick:g}", _x(tick), foot + 17, SMALL, anchor=anchor)


def _bars(number: "np.ndarray[tuple[int], np.dtype[np.int64]]", most: int) -> Iterator[str]:
    width = (WIDTH - 2 * SIDE) / BINS
    yield f'<g fill="{BLUE}" fill-opacity="0.55">'
    for index, amount in enumerate(number.tolist()):
        if amount:
            high = max(PLOT * amount / most, 1.5)
            x, y = _x(index / BINS) + 0.5, TOP + PLOT - high
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{high:.1f}">'
                f"<title>{index / BINS:.3g} to {(index + 1) / BINS:.3g}: {amount:,}</title></rect>"
            )
    yield "</g>"


def _marks(marks: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Names with a line down to the axis, each on the lowest line that is free."""
    free = [WIDTH + 1.0] * LINES
    for text, value in sorted(marks, key=lambda mark: -mark[1]):
        x, long = _x(value), LETTER * len(text)
        end = min(x + long / 2, WIDTH)
        row = next((n for n in range(LINES) if end < free[n]), LINES - 1)
        free[row] = end - long - 8
        y = TOP - 6 - APART * row
        yield f'<path d="M{x:.1f} {y + 3:.1f}V{TOP + PLOT:.0f}" stroke="{INK}"/>'
        yield written(text, end - long / 2, y, SMALL)
