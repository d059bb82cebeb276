"""Figures for papers: as wide as a page or a column, with letters of 7 to 9 points.

A chart is drawn again at each width, not scaled, so that its letters keep their size. In a column,
the panels of a chart stand one below the other.
"""

import re
import textwrap
from collections.abc import Callable
from html import escape
from itertools import pairwise
from typing import Any

from headbook.charts.theme import FONT, INK, PRINTED_INK, PRINTED_PAPER

WIDTHS = {"": 6.9, "-column": 3.3}  # inches, by the ending of a file's name
PIXELS, POINTS = 96, 72  # of an inch, as SVG and as PDF count
# Search for the factor by which a chart's plots are widened until the picture has the target width.
MAX_LAYOUT_ROUNDS = 4  # drawings of one chart
MIN_FACTOR = 0.05
MAX_FACTOR = 1.6  # a chart of few cells does not fill a page
TOLERANCE_PIXELS = 4.0  # of the width of the picture
NON_PLOT_PIXELS = 120.0  # first guess of the width of axis labels and legends beside the plot
# The title of a picture: font size, height of a line, space below, and mean width of a letter.
TITLE_PIXELS, TITLE_LINE_PIXELS, TITLE_GAP_PIXELS, TITLE_LETTER_PIXELS = 12, 16, 8, 6.2
TITLE_END = re.compile(r"[;.] ")  # in a caption
# Limits in a column.
PANEL_TITLE_PIXELS = 9.5  # font size of the titles of panels: 7.1 points
TITLE_CHARACTERS = 46  # in a line of the chart's title
GUIDE_TITLE_CHARACTERS = 38  # in a line of the title of an axis or a legend
MAX_GRADIENT_PIXELS = 180  # length of the colour bar of a legend
SVG_SIZE = re.compile(r' width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"')
# Patterns in a PDF: entries of a dictionary of resources, and the number of an object.
RESOURCES = re.compile(rb"(?<=<<\n)(?: +/\w+ \d+ 0 R\n){2,}")
OBJECT_NUMBER = re.compile(rb"\b\d+(?= 0 (?:R|obj)\b)")
# Name of a layer, as "room24": plots (or cells, if the width of a plot is given by cell) narrower
# than this number of pixels leave the layer out.
MIN_WIDTH_NAME = re.compile(r"room(\d+)")

Spec = dict[str, Any]


def with_ordered_objects(pdf: bytes) -> bytes:
    """Return a PDF of vl-convert with its objects and resources in a fixed order.

    vl-convert lists fonts, forms and their objects in another order each time it is called, which
    would give another file for the same picture.
    """
    xref_offset = int(pdf.split()[-2])  # the cross-reference table follows the last object
    xref, trailer = pdf[xref_offset:].split(b"trailer\n")
    rows = xref.splitlines(keepends=True)
    offsets = [int(row.split()[0]) for row in rows[3:]]
    boundaries = pairwise(sorted([*offsets, xref_offset]))
    # Each object as its dictionary, the keyword of its stream, and the stream.
    objects = {start: pdf[start:end].partition(b"stream\n") for start, end in boundaries}
    dictionaries = {
        number: RESOURCES.sub(_sorted_lines, objects[offset][0])
        for number, offset in enumerate(offsets, start=1)
    }
    new_numbers: dict[bytes, bytes] = {}  # by old number, in the order of references
    waiting = OBJECT_NUMBER.findall(trailer)
    while waiting:
        number = waiting.pop()
        if number not in new_numbers:
            new_numbers[number] = b"%d" % (len(new_numbers) + 1)
            waiting += reversed(OBJECT_NUMBER.findall(dictionaries[int(number)]))

    def renumbered(text: bytes) -> bytes:
        return OBJECT_NUMBER.sub(lambda match: new_numbers[match[0]], text)

    content, xref = pdf[: min(offsets)], b"".join(rows[:3])
    for number in new_numbers:
        xref += b"%010d 00000 n\r\n" % len(content)
        stream = b"".join(objects[offsets[int(number) - 1]][1:])
        content += renumbered(dictionaries[int(number)]) + stream
    trailer = renumbered(trailer).replace(b"%d" % xref_offset, b"%d" % len(content))
    return content + xref + b"trailer\n" + trailer


def _sorted_lines(match: re.Match[bytes]) -> bytes:
    return b"".join(sorted(match[0].splitlines(keepends=True)))


def draw_to_width(
    spec: Spec, inches: float, draw: Callable[[Spec], str], on_page: Callable[[], str]
) -> str:
    """Draw a chart as wide as a page or a column, by a secant search for the width of its plots.

    The picture is drawn with plots of some width, and measured. The widths of the last two pictures
    give the next factor. The search ends within `TOLERANCE_PIXELS` of the target, at `MAX_FACTOR`,
    or after `MAX_LAYOUT_ROUNDS` drawings; the last picture may then be wider than the target.

    Args:
        draw: draws a specification as an SVG element.
        on_page: returns the chart as an SVG element with plots as wide as the specification says.
    """
    target = inches * PIXELS - TOLERANCE_PIXELS / 2
    in_column = inches == min(WIDTHS.values())
    spec = _stacked(spec) if in_column else spec
    # Panels that were moved below each other are not as wide as on the page.
    was_stacked = in_column and spec.keys() & {"vconcat", "facet"}
    drawn = [] if was_stacked else [(1.0, size(on_page())[0])]  # factors and widths of pictures
    factor = _next_factor(drawn, target, _plot_width(spec))
    for _ in range(MAX_LAYOUT_ROUNDS):
        svg = draw(_scaled(spec, factor))
        width, _ = size(svg)
        is_close = -TOLERANCE_PIXELS < width - target <= TOLERANCE_PIXELS / 2
        if is_close or (width < target and factor == MAX_FACTOR):
            break
        drawn.append((factor, width))
        factor = _next_factor(drawn, target, _plot_width(spec))
    return svg


def _next_factor(drawn: list[tuple[float, float]], target: float, plot_width: float) -> float:
    """Return the next factor of a secant search for the target width, within the limits.

    Args:
        drawn: factors and widths of the pictures drawn so far.
        target: width of the picture to reach, in pixels.
        plot_width: pixels of the plots at a factor of 1, the first slope; 0 if unknown.
    """
    if not drawn:
        return 1.0
    factor, width = drawn[-1]
    slope = plot_width or width - NON_PLOT_PIXELS
    if len(drawn) > 1 and factor != drawn[-2][0]:
        slope = (width - drawn[-2][1]) / (factor - drawn[-2][0])
    return min(max(factor + (target - width) / max(slope, 1), MIN_FACTOR), MAX_FACTOR)


def _plot_width(spec: Spec) -> float:
    """Return the width of the plot of a single chart; 0 if there are several, or it is unknown."""
    width = spec.get("width", 0)
    if not isinstance(width, dict):
        return float(width)
    field = spec.get("encoding", {}).get("x", {}).get("field")
    values = {row.get(field) for rows in spec["datasets"].values() for row in rows}
    return float(width["step"]) * len(values) if field and "column" not in spec["encoding"] else 0.0


def title_of(caption: str) -> str:
    """Return the part of a caption that names the numbers of a chart: metric, keys and texts."""
    return TITLE_END.split(caption, maxsplit=1)[0].removesuffix(".")


def on_white_paper(svg: str, inches: float, title: str = "") -> tuple[str, str]:
    """Return a picture on white paper of some width, as SVG and as SVG in points for the PDF.

    A narrower picture stands in the middle; a wider one is shrunk.

    Args:
        title: what stands above the picture, in as many lines as it needs.
    """
    width, height = size(svg)
    paper_width = max(inches * PIXELS, width)
    left = (paper_width - width) / 2
    lines = textwrap.wrap(title, int(paper_width / TITLE_LETTER_PIXELS))
    head = TITLE_LINE_PIXELS * len(lines) + (TITLE_GAP_PIXELS if lines else 0)
    height += head
    paper_height = height * inches * PIXELS / paper_width
    start, end, rest = svg.replace(f'="{INK}"', f'="{PRINTED_INK}"').partition(">")
    view_box = f'viewBox="{-left:.1f} {-head} {paper_width:.1f} {height:.1f}"'
    rectangle = f'x="{-left:.1f}" y="{-head}" width="{paper_width:.1f}" height="{height:.1f}"'
    letters = f'font-family="{FONT}" font-size="{TITLE_PIXELS}" style="fill:{PRINTED_INK}"'
    paper = f'<rect {rectangle} fill="{PRINTED_PAPER}" />' + "".join(
        f'<text x="{-left:.1f}" y="{TITLE_LINE_PIXELS * (n + 1) - 4 - head}" {letters} '
        f'text-anchor="start">{escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    attributes = (
        f' width="{inches}in" height="{paper_height / PIXELS:.3f}in" {view_box}',
        f' width="{inches * POINTS:.2f}" height="{paper_height / PIXELS * POINTS:.2f}" {view_box}',
    )
    pictures = [
        f"{SVG_SIZE.sub(size_attributes, start, count=1)}{end}{paper}{rest}"
        for size_attributes in attributes
    ]
    return pictures[0], pictures[1]


def size(svg: str) -> tuple[float, float]:
    """Return width and height of an SVG element in pixels."""
    match = SVG_SIZE.search(svg)
    assert match is not None, "a picture has a size"
    return float(match[1]), float(match[2])


def _stacked(spec: Spec) -> Spec:
    """Return a specification with panels one below the other, and titles in several lines."""
    spec = dict(spec)
    if "hconcat" in spec:
        spec["vconcat"] = [_stacked(panel_spec) for panel_spec in spec.pop("hconcat")]
    if "facet" in spec:
        panel = dict(spec["facet"].get("column", spec["facet"]))
        panel["header"] = panel.get("header", {}) | {"labelFontSize": PANEL_TITLE_PIXELS}
        spec |= {"facet": panel, "columns": 1}
    if "config" in spec:
        legend = spec["config"]["legend"] | {"columns": 2}
        spec["config"] = spec["config"] | {"legend": legend}
    encoding = spec.get("encoding", {})
    if "column" in encoding:
        encoding = dict(encoding)
        encoding["facet"] = encoding.pop("column") | {"columns": 1}
        spec["encoding"] = encoding
    spec = _narrowed(spec)
    if isinstance(spec.get("title"), dict) and isinstance(spec["title"]["text"], str):
        lines = textwrap.wrap(spec["title"]["text"], TITLE_CHARACTERS)
        spec["title"] = spec["title"] | {"text": lines}
    return spec


def _narrowed(spec: Spec) -> Spec:
    """Return a specification whose axes and legends fit a column and leave the plot its width."""
    spec = dict(spec)
    if "layer" in spec:
        spec["layer"] = [_narrowed(layer) for layer in spec["layer"]]
    if "spec" in spec:
        spec["spec"] = _narrowed(spec["spec"])
    encoding = dict(spec.get("encoding", {}))
    for name in {"x", "color"} & encoding.keys():
        title = encoding[name].get("title")
        if isinstance(title, str) and len(title) > GUIDE_TITLE_CHARACTERS:
            encoding[name] = encoding[name] | {
                "title": textwrap.wrap(title, GUIDE_TITLE_CHARACTERS)
            }
    legend = encoding.get("color", {}).get("legend") or {}
    if "gradientLength" in legend:
        legend = legend | {"gradientLength": min(legend["gradientLength"], MAX_GRADIENT_PIXELS)}
        encoding["color"] = encoding["color"] | {"legend": legend}
    return spec | ({"encoding": encoding} if encoding else {})


def _scaled(spec: Spec, factor: float) -> Spec:
    """Return a specification with plots ``factor`` times as wide; squares stay squares."""
    spec = dict(spec)
    for name in ("hconcat", "vconcat"):
        if name in spec:
            spec[name] = [_scaled(part, factor) for part in spec[name]]
    if "spec" in spec:
        spec["spec"] = _scaled(spec["spec"], factor)
    if "width" not in spec:
        return spec
    square = spec["width"] == spec.get("height")
    for name in ("width", "height") if square else ("width",):
        base_size = spec[name]
        spec[name] = (
            {"step": base_size["step"] * factor}
            if isinstance(base_size, dict)
            else base_size * factor
        )
    if "layer" in spec:
        width = spec["width"]["step"] if isinstance(spec["width"], dict) else spec["width"]
        spec["layer"] = [part for part in spec["layer"] if _fits(part, width)]
    return spec


def _fits(layer: Spec, width: float) -> bool:
    """Whether a plot, or its cells, are wide enough for a layer, by the layer's name."""
    min_width = MIN_WIDTH_NAME.match(layer.get("name", ""))
    return min_width is None or width >= int(min_width[1])
