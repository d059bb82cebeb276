"""Style rules that follow from the colours of charts."""

from collections.abc import Iterator

from headbook import charts
from headbook.views.cells import COLOUR_STEPS

MOST_TILES = 128  # heads of a layer, or layers


def colour_rules() -> Iterator[str]:
    """A class for each step of the colour scale, its letters black or white by contrast."""
    for step, colour in enumerate(charts.colours(COLOUR_STEPS)):
        ink = "#000" if _luminance(colour) > 0.179 else "#fff"
        yield f".c{step},.c{step} a{{background:{colour};color:{ink};fill:{colour}}}\n"


def size_rules() -> Iterator[str]:
    """How many columns and rows a table of tiles has, which no attribute may say."""
    for number in range(1, MOST_TILES + 1):
        yield f".n{number}{{--cols:{number}}}.r{number}{{--rows:{number}}}\n"


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
