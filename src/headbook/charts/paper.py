"""Figures as papers take them: as wide as a page or a column, with letters of 7 to 9 points.

A chart is laid out anew at each width, not scaled, so that its letters keep their size. A column
has its panels one below the other.
"""

import re
import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from headbook.charts.theme import INK, PRINTED_INK, PRINTED_PAPER

WIDTHS = {"": 6.9, "-column": 3.3}  # inches, by the ending of a file's name
PIXELS, POINTS = 96, 72  # of an inch, as SVG and as PDF count
ROUNDS = 4
SMALL = 9.5  # pixels of letters over a panel in a column: 7.1 points
WIDEST = 1.6  # times the size on the page; few cells need no whole page
NARROWEST = 0.05
SLACK = 4.0  # pixels that may stay free
BESIDE = 120.0  # pixels of names and legends, about
LETTERS = 46  # characters of a line of a title in a column
LEGEND = 38  # characters of a line of an axis or a legend in a column
GRADIENT = 180  # pixels of a scale of colours in a column, at most
SIZE = re.compile(r' width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"')
RESOURCES = re.compile(rb"(?<=<<\n)(?: +/\w+ \d+ 0 R\n){2,}")  # entries of a PDF's dictionary
NUMBER = re.compile(rb"\b\d+(?= 0 (?:R|obj)\b)")  # of an object of a PDF
NEEDED_SIZE = re.compile(
    r"room(\d+)"
)  # the name of a layer that needs cells or a plot so wide, pixels

Spec = dict[str, Any]


def in_order(pdf: bytes) -> bytes:
    """Return a PDF of vl-convert with its objects and resources in a fixed order.

    vl-convert lists fonts, forms and their objects in another order each time it is called, which
    would give another file for the same picture.
    """
    end = int(pdf.split()[-2])  # of the objects: the table of their places begins there
    table, trailer = pdf[end:].split(b"trailer\n")
    rows = table.splitlines(keepends=True)
    places = [int(row.split()[0]) for row in rows[3:]]
    parts = {a: pdf[a:b].partition(b"stream\n") for a, b in pairwise(sorted([*places, end]))}
    heads = {
        number: RESOURCES.sub(_sorted_lines, parts[place][0])
        for number, place in enumerate(places, start=1)
    }
    numbers: dict[bytes, bytes] = {}  # new numbers of objects, in the order of references
    waiting = NUMBER.findall(trailer)
    while waiting:
        number = waiting.pop()
        if number not in numbers:
            numbers[number] = b"%d" % (len(numbers) + 1)
            waiting += reversed(NUMBER.findall(heads[int(number)]))
    content, table = pdf[: min(places)], b"".join(rows[:3])
    for number in numbers:
        table += b"%010d 00000 n\r\n" % len(content)
        head = NUMBER.sub(lambda match: numbers[match[0]], heads[int(number)])
        content += head + b"".join(parts[places[int(number) - 1]][1:])
    trailer = NUMBER.sub(lambda match: numbers[match[0]], trailer)
    return content + table + b"trailer\n" + trailer.replace(b"%d" % end, b"%d" % len(content))


def _sorted_lines(match: re.Match[bytes]) -> bytes:
    return b"".join(sorted(match[0].splitlines(keepends=True)))


def laid_out(
    spec: Spec, inches: float, draw: Callable[[Spec], str], on_page: Callable[[], str]
) -> str:
    """Draw a chart anew, about as wide as a page or a column, and never wider if that is possible.

    Args:
        draw: draws a specification as an SVG element.
        on_page: returns the chart as its page has it.
    """
    target, narrow = inches * PIXELS - SLACK / 2, inches == min(WIDTHS.values())
    spec = _stacked(spec) if narrow else spec
    tried = [] if narrow and spec.keys() & {"vconcat", "facet"} else [(1.0, size(on_page())[0])]
    factor = _next(tried, target, _plot(spec))
    for _ in range(ROUNDS):
        svg = draw(_scaled(spec, factor))
        wide, _ = size(svg)
        if -SLACK < wide - target <= SLACK / 2 or (wide < target and factor == WIDEST):
            break
        tried.append((factor, wide))
        factor = _next(tried, target, _plot(spec))
    return svg


def _next(tried: list[tuple[float, float]], target: float, plot: float) -> float:
    """Return the next factor, given the factors that were tried and their widths.

    Args:
        plot: pixels of the plots alone, which grow with the factor; 0 where it is not known.
    """
    if not tried:
        return 1.0
    factor, wide = tried[-1]
    slope = plot or wide - BESIDE
    if len(tried) > 1 and factor != tried[-2][0]:
        slope = (wide - tried[-2][1]) / (factor - tried[-2][0])
    return min(max(factor + (target - wide) / max(slope, 1), NARROWEST), WIDEST)


def _plot(spec: Spec) -> float:
    """Return the width of the plot of a single chart; 0 if there are several, or it is unknown."""
    wide = spec.get("width", 0)
    if not isinstance(wide, dict):
        return float(wide)
    field = spec.get("encoding", {}).get("x", {}).get("field")
    places = {row.get(field) for rows in spec["datasets"].values() for row in rows}
    return float(wide["step"]) * len(places) if field and "column" not in spec["encoding"] else 0.0


def on_paper(svg: str, inches: float) -> tuple[str, str]:
    """Return the picture on white paper of a width, for SVG and for PDF; shrunk if necessary."""
    wide, high = size(svg)
    space = max(inches * PIXELS, wide)
    left, tall = (space - wide) / 2, high * inches * PIXELS / space
    start, end, rest = svg.replace(f'="{INK}"', f'="{PRINTED_INK}"').partition(">")
    box = f'viewBox="{-left:.1f} 0 {space:.1f} {high:.1f}"'
    place = f'x="{-left:.1f}" width="{space:.1f}" height="{high:.1f}"'
    paper = f'<rect {place} fill="{PRINTED_PAPER}" />'
    sizes = (
        f' width="{inches}in" height="{tall / PIXELS:.3f}in" {box}',
        f' width="{inches * POINTS:.2f}" height="{tall / PIXELS * POINTS:.2f}" {box}',
    )
    whole = [f"{SIZE.sub(size, start, 1)}{end}{paper}{rest}" for size in sizes]
    return whole[0], whole[1]


def size(svg: str) -> tuple[float, float]:
    """Return width and height of an SVG element in pixels."""
    match = SIZE.search(svg)
    assert match is not None, "a picture has a size"
    return float(match[1]), float(match[2])


def _stacked(spec: Spec) -> Spec:
    """Return a specification with panels one below the other, and titles in several lines."""
    spec = dict(spec)
    if "hconcat" in spec:
        spec["vconcat"] = [_stacked(each) for each in spec.pop("hconcat")]
    if "facet" in spec:
        panel = dict(spec["facet"].get("column", spec["facet"]))
        panel["header"] = panel.get("header", {}) | {"labelFontSize": SMALL}
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
        spec["title"] = spec["title"] | {"text": textwrap.wrap(spec["title"]["text"], LETTERS)}
    return spec


def _narrowed(spec: Spec) -> Spec:
    """Return a specification whose axes and legends fit a column, or they would shrink the plot."""
    spec = dict(spec)
    if "layer" in spec:
        spec["layer"] = [_narrowed(each) for each in spec["layer"]]
    if "spec" in spec:
        spec["spec"] = _narrowed(spec["spec"])
    encoding = dict(spec.get("encoding", {}))
    for name in {"x", "color"} & encoding.keys():
        title = encoding[name].get("title")
        if isinstance(title, str) and len(title) > LEGEND:
            encoding[name] = encoding[name] | {"title": textwrap.wrap(title, LEGEND)}
    legend = encoding.get("color", {}).get("legend") or {}
    if "gradientLength" in legend:
        legend = legend | {"gradientLength": min(legend["gradientLength"], GRADIENT)}
        encoding["color"] = encoding["color"] | {"legend": legend}
    return spec | ({"encoding": encoding} if encoding else {})


def _scaled(spec: Spec, factor: float) -> Spec:
    """Return a specification with plots ``factor`` times as wide; squares stay squares."""
    spec = dict(spec)
    for name in ("hconcat", "vconcat"):
        if name in spec:
            spec[name] = [_scaled(each, factor) for each in spec[name]]
    if "spec" in spec:
        spec["spec"] = _scaled(spec["spec"], factor)
    if "width" not in spec:
        return spec
    square = spec["width"] == spec.get("height")
    for name in ("width", "height") if square else ("width",):
        size = spec[name]
        spec[name] = {"step": size["step"] * factor} if isinstance(size, dict) else size * factor
    if "layer" in spec:
        size = spec["width"]["step"] if isinstance(spec["width"], dict) else spec["width"]
        spec["layer"] = [each for each in spec["layer"] if _fits(each, size)]
    return spec


def _fits(layer: Spec, size: float) -> bool:
    needed = NEEDED_SIZE.match(layer.get("name", ""))
    return needed is None or size >= int(needed[1])
