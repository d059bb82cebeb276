"""Attention by offset as bars: every head has such a picture, so it must be quick to draw."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from headbook.charts.base.drawing import INK, Drawing, drawing, written
from headbook.charts.base.render import BLUE, GREY
from headbook.report.wording import interval, number

WIDTH, HEIGHT = 400.0, 210.0  # of the plot
LEFT, TOP, BELOW, RIGHT = 52.0, 8.0, 42.0, 12.0
BAR = 0.8  # of the room that an offset has
STEPS = (1, 2, 2.5, 5, 10)
TICKS = 5  # at most, above 0
SMALL, TITLE = 11, 12  # letters


class Bar(NamedTuple):
    """One offset: its share, the ends of its interval, and the share of uniform attention."""

    offset: int
    value: float
    low: float
    high: float
    uniform: float

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Its numbers as text: offset, share, interval, uniform attention."""
        return (
            f"{self.offset:+d}".replace("-", "−") if self.offset else "0",
            number(self.value, share=True),
            interval(self.low, self.high, share=True),
            number(self.uniform, share=True),
        )


def offset_profile(name: str, caption: str, bars: Sequence[Bar]) -> Drawing:
    """Share of attention by offset with its interval, that of uniform attention as a line.

    Args:
        bars: offsets in order; NaN where there is no number.
    """
    there = [part for bar in bars for part in bar[1:] if not math.isnan(part)]
    step = _step(max(there, default=1.0) or 1.0)
    top = step * math.ceil(max(there, default=1.0) / step - 1e-9) or step
    parts = [*_axes(bars, step, top), *_bars(bars, top), _uniform(bars, top)]
    return drawing(name, caption, LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW, parts)


def _step(most: float) -> float:
    """The least round distance of ticks that gives no more than `TICKS`."""
    ten = 10.0 ** math.floor(math.log10(most / TICKS))
    return next(step * ten for step in STEPS if step * ten * TICKS >= most * (1 - 1e-9))


def _x(bars: Sequence[Bar], place: float) -> float:
    return LEFT + WIDTH * place / len(bars)


def _y(value: float, top: float) -> float:
    return TOP + HEIGHT * (1 - value / top)


def _axes(bars: Sequence[Bar], step: float, top: float) -> Iterator[str]:
    """Lines, numbers and titles."""
    for tick in range(round(top / step) + 1):
        y = _y(tick * step, top)
        opacity = 1 if tick == 0 else 0.12
        yield (
            f'<path d="M{LEFT:.1f} {y:.1f}h{WIDTH:.0f}" stroke="{INK}" stroke-opacity="{opacity}"/>'
        )
        yield written(f"{100 * tick * step:.6g}%", LEFT - 6, y + 4, SMALL, anchor="end")
    every = max(1, max(abs(bar.offset) for bar in bars) // 4)
    for index, bar in enumerate(bars):
        if bar.offset % every == 0:
            yield written(bar.cells[0], _x(bars, index + 0.5), TOP + HEIGHT + 15, SMALL)
    middle = LEFT + WIDTH / 2
    about = "offset in tokens: − earlier keys, + later keys"
    yield written(about, middle, TOP + HEIGHT + 36, TITLE)
    turned = written("share of attention", 0, 0, TITLE)
    yield f'<g transform="translate(12 {TOP + HEIGHT / 2:.1f}) rotate(-90)">{turned}</g>'


def _bars(bars: Sequence[Bar], top: float) -> Iterator[str]:
    """Bars that say their numbers, then the lines of all intervals as one shape."""
    width, lines = WIDTH / len(bars) * BAR, ""
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


def _uniform(bars: Sequence[Bar], top: float) -> str:
    """A step for each offset."""
    line = "".join(
        f"M{_x(bars, index):.1f} {_y(bar.uniform, top):.1f}H{_x(bars, index + 1):.1f}"
        for index, bar in enumerate(bars)
        if not math.isnan(bar.uniform)
    )
    return (
        f'<path d="{line}" fill="none" stroke="{GREY}" stroke-width="1.5" stroke-dasharray="4 3"/>'
    )
