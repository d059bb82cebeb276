"""All colours of pages and charts, and the style of charts in Vega-Lite.

Scales run from the page's paper at 0 to dark ink at 1, or both ways from 0. Light paper has
`STOPS`, dark paper `DARK`. Pictures are made for light paper: colours are un-blended from white,
so that 0 is transparent, and on dark paper pages turn them round, ``invert(1) hue-rotate(180deg)``.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats

# Okabe and Ito's colours, which readers with any colour vision tell apart.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
PURPLE = "#AA4499"  # Tol's: lighter colours of Okabe and Ito are hard to read as text
# Colours of charts as pages show them, on light and on dark paper; letters are stronger on white.
CHART_COLOURS = {
    BLUE: ("#0072b2", "#56b4e9"),
    ORANGE: ("#d55e00", "#f0894a"),
    GREEN: ("#009e73", "#2fc79b"),
    PURPLE: ("#aa4499", "#df8bd0"),
    GREY: ("#767676", "#a5a5a5"),
}
CHART_TEXT = {ORANGE: ("#b34d00", "#f0894a"), GREEN: ("#00775a", "#2fc79b")}
BAR = ("#0072b2", "#4fa8dc")  # colour of bars of shares
GOOD = ("#00704f", "#2fc79b")  # colour of heads that can go, and of what holds
SERIES = (BLUE, ORANGE, GREEN, PURPLE)  # of a chart's lines and points, in their order
CURVES = (ORANGE, BLUE, GREEN, PURPLE)  # of curves drawn by hand, and of heads over steps
MODELS = (ORANGE, BLUE)  # first and second model of a comparison

# Marks of classes, families and types: each colour on light and on dark paper. Fills show amounts
# in blue and grey, so no fill has the colour of a class.
Pair = tuple[str, str]
CLASS_COLOURS: dict[str, Pair] = {
    "content": ("#0a5cad", "#6cb8ff"),
    "function": ("#c2500c", "#e5752c"),
    "punctuation": ("#5f4300", "#f0c048"),
    "special": ("#6f7780", "#7f8b97"),
    "other": ("#57606a", "#a3adb7"),
}
ROLE_COLOURS: dict[str, Pair] = {
    "model": ("#1c1f24", "#e6e8eb"),
    "baseline": ("#565d68", "#a8afba"),
    "control": ("#aab3bd", "#56616c"),
}
# Every two differ by at least 12 (CIEDE2000) for readers with any colour vision, on either paper.
FAMILY_COLOURS: dict[str, Pair] = {
    "position": ("#1f92f5", "#8cd5ff"),
    "nearby": ("#965899", "#ab57a9"),
    "words": ("#561f89", "#a389fd"),
    "same_keys": ("#e86c68", "#fda09d"),
    "repeats": ("#106930", "#2a9858"),
    "even": ("#888f93", "#7a7c7d"),
    "sink": ("#333c46", "#e2e2e3"),
    "mixed": ("#656667", "#89a7b2"),
}
FAMILY_TEXT: dict[str, Pair] = {  # letters need more contrast than marks
    "position": ("#0a66b8", "#8cd5ff"),
    "nearby": ("#874b8a", "#d48ad2"),
    "words": ("#561f89", "#a389fd"),
    "same_keys": ("#bf3b3f", "#fda09d"),
    "repeats": ("#106930", "#4cbf7c"),
    "even": ("#5d666f", "#a3adb7"),
    "sink": ("#333c46", "#e2e2e3"),
    "mixed": ("#56595c", "#89a7b2"),
}
# Fills below a baseline, the nearest first; above it the scale of `STOPS` is used.
BELOW: tuple[Pair, ...] = (
    ("#edeff1", "#22272e"),
    ("#dadee2", "#2b3139"),
    ("#bfc6cd", "#3a424b"),
    ("#9aa4ae", "#4a545e"),
)

INK = "currentColor"  # text and axes: the text colour of the page
PAPER = "#ffffff"  # light paper, and that of pictures for links
PRINTED_INK, PRINTED_PAPER = "black", "white"  # of files for papers
HOLLOW = "transparent"  # inside of a mark whose number is not supported

# Stops of colour scales, from 0 to 1.
STOPS = (PAPER, "#d3e4f3", "#94c0e0", "#4b92c6", "#1c62a4", "#0c3b78", "#071f45")
DARK = ("#11161b", "#1c3141", "#2b5a7b", "#448cbe", "#6db4e6", "#9ecff3", "#cde5f9")
# From -1 to 1; signs differ for readers with any colour vision.
DIVERGING = ("#9a4a00", "#d97b1f", "#f3bd86", "#f1f2f3", "#9cc3e6", "#3b83c0", "#0b4a86")
DARK_DIVERGING = ("#f0a866", "#cb7627", "#73451b", "#2b343d", "#30587b", "#569bd4", "#90ccff")
LAYERS = STOPS[1:]  # of marks on paper, which may not be as light as it
STEPS = 64  # of the ink of maps
COARSE_STEPS = 16  # of the steps, for pictures with half a byte a pixel
MIN_LUMINANCE_UNDER_BLACK = 0.179  # above it, black letters have more contrast than white

Ink = tuple[tuple[int, int, int, int], ...]


@cache
def colours(steps: int, stops: tuple[str, ...] = STOPS) -> tuple[str, ...]:
    """Return the colours of a scale in ``steps`` steps, ``#rrggbb``, lowest first."""
    table = _between(stops, steps).round().astype(int)
    return tuple(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in table.tolist())


@cache
def rgba_ramp(steps: int = STEPS, stops: tuple[str, ...] = STOPS) -> Ink:
    """Return red, green, blue and opacity of each step of a scale, 0 to 255, for any paper."""
    blended = _between(stops, steps)
    opacity = 1 - blended.min(1, keepdims=True) / 255
    with np.errstate(invalid="ignore"):
        unblended = np.where(opacity > 0, (blended - (1 - opacity) * 255) / opacity, 0).clip(0, 255)
    table = np.concatenate([unblended, 255 * opacity], axis=1).round().astype(int)
    return tuple((int(r), int(g), int(b), int(a)) for r, g, b, a in table)


def ink_steps(weights: Floats) -> NDArray[np.uint8]:
    """Return weights from 0 to 1 as steps of the ink by their square root; 0 for missing ones.

    *Shape:* that of ``weights``.
    """
    known = np.nan_to_num(weights).clip(0, 1)
    steps: NDArray[np.uint8] = np.rint(np.sqrt(known) * (STEPS - 1)).astype(np.uint8)
    return steps


def coarse(steps: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the nearest of `COARSE_STEPS` steps of the ink, for small pictures drawn by scripts.

    *Shape:* that of ``steps``.
    """
    levels = np.rint(np.linspace(0, STEPS - 1, COARSE_STEPS)).astype(np.uint8)
    nearest: NDArray[np.uint8] = levels[
        np.rint(steps * ((COARSE_STEPS - 1) / (STEPS - 1))).astype(np.intp)
    ]
    return nearest


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour by WCAG 2."""
    parts = [part / 255 for part in _parts(colour)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def text_colour(colour: str) -> str:
    """Return black or white, whichever has more contrast with a colour."""
    return "#000" if luminance(colour) > MIN_LUMINANCE_UNDER_BLACK else "#fff"


@cache
def text_colour_turns(
    stops: tuple[str, ...] = STOPS, dark: tuple[str, ...] = DARK
) -> tuple[float, float]:
    """Return the parts of a scale at which letters change colour: on dark paper, on light."""
    n_steps = 1001
    turns = []
    for scale in (dark, stops):
        inks = [text_colour(colour) for colour in colours(n_steps, scale)]
        turns.append(next(n for n, ink in enumerate(inks) if ink != inks[0]) / (n_steps - 1))
    return turns[0], turns[1]


def _between(stops: Sequence[str], steps: int) -> Floats:
    """Return colours at even distances along a scale. *Shape:* ``(step, 3)``, 0 to 255."""
    stop_colours = np.array([_parts(colour) for colour in stops], float)
    places = np.linspace(0, len(stops) - 1, steps)
    return np.stack(
        [np.interp(places, range(len(stops)), channel) for channel in stop_colours.T], axis=-1
    )


def _parts(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


FONT = "system-ui, sans-serif"
Ends = tuple[float, float]


def ramp(ends: Ends, stops: Sequence[str] = STOPS) -> alt.Scale:
    """Return a scale of colours from paper at its lower end, or diverging at 0 if that is below 0.

    Args:
        stops: colours of a scale that begins at its lower end.
    """
    low, high = (round(end, 5) for end in ends)
    scale_stops = DIVERGING if low < 0 else stops
    domain = [float(place) for place in np.linspace(low, high, len(scale_stops)).round(7)]
    return alt.Scale(domain=domain, range=[*scale_stops], interpolate="rgb", clamp=True)


def text_colour_rule(
    field: str, ends: Ends, stops: tuple[str, ...] = STOPS, dark: tuple[str, ...] = DARK
) -> Any:
    """Return the colour of letters on cells of `ramp`, legible on light and on dark paper.

    Cells that are light on light paper are dark on dark paper; between, letters are black on both.
    """
    first, second = (
        ends[0] + part * (ends[1] - ends[0]) for part in text_colour_turns(stops, dark)
    )
    return (
        alt.when(f"datum.{field} < {first:.5f}")
        .then(alt.value(INK))
        .when(f"datum.{field} < {second:.5f}")
        .then(alt.value("black"))
        .otherwise(alt.value("white"))
    )


def vega_config() -> dict[str, Any]:
    """Return the site's style, with text and axes in the colour of the page."""
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 12}
    axis = {"domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.12}
    return {
        "background": None,
        # Readers' fonts may be wider than the one that labels were measured with.
        "padding": {"left": 5, "top": 5, "bottom": 5, "right": 28},
        "font": FONT,
        "axis": text | axis | {"titleFontWeight": "normal", "titlePadding": 10},
        "legend": text | {"titleFontWeight": "normal", "gradientLength": 140},
        "header": text,
        "text": {"color": INK},
        # One weight everywhere: a PDF holds each font that it uses.
        "title": {"color": INK, "fontSize": 12, "anchor": "start", "fontWeight": "normal"},
        "view": {"stroke": None},
    }


def amount_class(value: float, low: float, high: float) -> str:
    """Return the class of a cell's fill on a scale from ``low`` to ``high``: ``q0`` to ``q6``."""
    if np.isnan(value) or high <= low:
        return "q0"
    step = int((value - low) / (high - low) * len(STOPS) * 0.9999)
    return f"q{min(max(step, 0), len(STOPS) - 1)}"


def ratio_class(ratio: float) -> str:
    """Return the class of a cell's fill by a ratio to a baseline: blue above 1, grey below.

    A ratio within 10 % of 1 has no fill. The scale is logarithmic: a step is a factor of 1.25.
    """
    if np.isnan(ratio):
        return "q0"
    exponent = np.log2(ratio) if ratio > 0 else -9.0
    if abs(exponent) < np.log2(1.1):
        return "q0"
    step = 1 + int((abs(exponent) - np.log2(1.1)) / 0.33)
    return f"q{min(step, len(STOPS) - 2)}" if exponent > 0 else f"z{min(step, len(BELOW))}"


def points_class(points: float) -> str:
    """Return the class of a cell's fill by percentage points above (blue) or below (grey) 0.

    Less than 2.5 points have no fill.
    """
    if np.isnan(points) or abs(points) < 2.5:
        return "q0"
    if points > 0:
        return f"q{min(1 + int(points / 9), len(STOPS) - 2)}"
    return f"z{min(1 + int(-points / 15), len(BELOW))}"


def fills_between(first: str, last: str) -> tuple[str, ...]:
    """Return the classes of fills from one to another, those below a baseline first."""
    scale = [f"z{n}" for n in range(len(BELOW), 0, -1)] + [f"q{n}" for n in range(len(STOPS))]
    return tuple(scale[scale.index(first) : scale.index(last) + 1])
