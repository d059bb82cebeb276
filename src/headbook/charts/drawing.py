"""Pictures written as SVG by hand: the base, text, and a dot with its interval."""

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import pandas as pd

from headbook.charts import paper
from headbook.charts.figure import paper_files
from headbook.charts.theme import FONT, INK
from headbook.report.wording import visible

TAG = re.compile(r"<[^>]*>")
ZERO_DECIMALS = re.compile(r"(?<=\d)\.0(?=\D)")  # decimals that are zero


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture drawn by hand; unlike a `Figure`, it has no live chart.

    Attributes:
        name: name of the picture, unique on its page.
        caption: description of the picture, also for readers who cannot see it.
        svg: SVG element that inherits the page's colour.
        rows: numbers of the picture in full precision; None if no file of them is written.
    """

    name: str
    caption: str
    svg: str
    rows: pd.DataFrame | None = None

    def paper(self, *, columns: bool) -> dict[str, bytes]:
        """Return the picture in black on white as SVG and PDF, by the ending of a file's name.

        A drawing keeps its layout, so it is written once: as wide as a column if it fits, else as
        wide as a page.
        """
        width, _ = paper.size(self.svg)
        widths = (
            inches for inches in sorted(paper.WIDTHS.values()) if width <= inches * paper.PIXELS
        )
        return paper_files(self.svg, next(widths, max(paper.WIDTHS.values())))


def drawing(name: str, caption: str, width: float, height: float, parts: Iterable[str]) -> Drawing:
    """Return a picture of its elements, ``width`` by ``height`` pixels.

    Texts are centred and have the page's ink unless an element says otherwise.
    """
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return Drawing(
        name,
        caption,
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="{escape(visible(caption))}" font-family="{FONT}" text-anchor="middle" '
        f'fill="{INK}">{"".join(_without_zero_decimals(part) for part in parts)}</svg>',
    )


def svg_text(
    text: str, x: float, y: float, size: float, ink: str = INK, *, anchor: str = "middle"
) -> str:
    """Return text as an SVG element."""
    attributes = f' text-anchor="{anchor}"' if anchor != "middle" else ""
    attributes += f' fill="{ink}"' if ink != INK else ""
    place = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text {place} font-size="{size}"{attributes}>{escape(visible(text))}</text>'


def _without_zero_decimals(part: str) -> str:
    """Return an element without decimals that are zero; texts stay."""
    return TAG.sub(lambda tag: ZERO_DECIMALS.sub("", tag[0]), part)


def guessed_width(text: str, letter: float, wide: float) -> float:
    """Return an upper estimate of the width of a text in pixels.

    Args:
        letter, wide: pixels of a Latin and of an East Asian letter.
    """
    n_wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return letter * (len(text) - n_wide) + wide * n_wide


MARGIN = 2.0  # per cent of the width at either end
TICK = 'width="2" height="16"'


def interval_dot(value: float, low: float, high: float, baseline: float, *, supported: bool) -> str:
    """Draw a dot between 0 and 1 with its interval, placed in per cent, so that it stays round.

    The style sheet of pages sets the heights and draws the axis.

    Args:
        low, high, baseline: ends of the interval, and the baseline; NaN if unknown.
        supported: if not, the dot is hollow and the interval dashed.
    """
    kind = "dot" if supported else "dot weak"
    marks = "" if math.isnan(baseline) else f'<rect x="{_x_percent(baseline)}" {TICK}/>'
    if not math.isnan(low):
        marks += f'<line x1="{_x_percent(low)}" x2="{_x_percent(high)}"/>'
    marks += f'<circle cx="{_x_percent(value)}" r="4.5"/>'
    return f'<svg class="{kind}" aria-hidden="true">{marks}</svg>'


def _x_percent(value: float) -> str:
    return f"{MARGIN + (100 - 2 * MARGIN) * min(max(value, 0.0), 1.0):.1f}%"
