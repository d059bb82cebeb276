"""Pictures drawn as SVG by hand: those that Vega has no mark for, and those that are many."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import pandas as pd

from headbook.charts.base.render import FONT
from headbook.report.wording import visible

INK = "currentColor"  # that of the page
TAG = re.compile(r"<[^>]*>")
WHOLE = re.compile(r"(?<=\d)\.0(?=\D)")  # behind numbers in shapes


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture as pages use it; like a `Figure` that has no live chart.

    Attributes:
        name: unique on its page.
        caption: what it shows; also its text for who cannot see it.
        svg: an SVG element that inherits the page's colour.
        rows: what it shows, in full precision; None where no file of it is written.
    """

    name: str
    caption: str
    svg: str
    interactive: bool = False
    rows: pd.DataFrame | None = None


def drawing(name: str, caption: str, width: float, height: float, parts: Iterable[str]) -> Drawing:
    """A picture from its elements, so many pixels wide and high.

    Letters stand in the middle and have the page's ink where they do not say otherwise.
    """
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return Drawing(
        name,
        caption,
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="{escape(visible(caption))}" font-family="{FONT}" text-anchor="middle" '
        f'fill="{INK}">{"".join(_short(part) for part in parts)}</svg>',
    )


def written(
    text: str, x: float, y: float, size: float, ink: str = INK, *, anchor: str = "middle"
) -> str:
    """Text in a picture."""
    more = f' text-anchor="{anchor}"' if anchor != "middle" else ""
    more += f' fill="{ink}"' if ink != INK else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{more}>{escape(visible(text))}</text>'


def _short(part: str) -> str:
    """An element without decimals that say nothing; texts stay."""
    return TAG.sub(lambda tag: WHOLE.sub("", tag[0]), part)


def guessed_width(text: str, letter: float, wide: float) -> float:
    """How wide a text is at most, or nearly so.

    Args:
        letter, wide: pixels of a letter, of an East Asian one.
    """
    east = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return letter * (len(text) - east) + wide * east
