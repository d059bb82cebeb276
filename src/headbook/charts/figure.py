"""Figures: charts of pages, drawn by vl-convert as SVG, and as SVG and PDF for papers.

A chart is a Vega-Lite specification, of which a page holds the picture as SVG. Text and axes have
the colour of the page, so that one picture serves light and dark paper.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial, wraps
from html import escape
from typing import Any, Concatenate, ParamSpec, Protocol
from xml.etree import ElementTree as ET

import pandas as pd
import vl_convert

from headbook.charts import paper
from headbook.charts.theme import FONT

Given = ParamSpec("Given")
Spec = dict[str, Any]  # Vega-Lite
# A chart: its specification, and the rows that it draws, one for each mark, in full precision.
SpecAndRows = tuple[Spec, pd.DataFrame]


class Drawable(Protocol):
    """A picture of which files are written: a `Figure`, or a `Drawing`."""

    @property
    def name(self) -> str:
        """Name of the picture and of its files."""

    @property
    def caption(self) -> str:
        """Caption of the picture."""

    @property
    def svg(self) -> str:
        """SVG element that inherits the page's colour."""

    @property
    def rows(self) -> pd.DataFrame | None:
        """Numbers of the picture in full precision; None if no file of them is written."""

    def paper(self, *, columns: bool) -> dict[str, bytes]:
        """Draw the picture for papers; see `Figure.paper`."""


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart of a page; nothing is made or drawn before it is asked for.

    Attributes:
        name: unique on its page; also the name of its files.
        caption: description of the chart, also for readers who cannot see it.
        make: makes the chart.
    """

    name: str
    caption: str
    make: Callable[[], SpecAndRows]

    @cached_property
    def _chart(self) -> SpecAndRows:
        return self.make()

    @property
    def spec(self) -> Spec:
        """Vega-Lite specification."""
        return self._chart[0]

    @property
    def rows(self) -> pd.DataFrame:
        """Numbers of the picture, a row for each of its marks, in full precision."""
        return self._chart[1]

    @cached_property
    def svg(self) -> str:
        """The chart as an SVG element that inherits the page's colour."""
        return svg_of(self.spec, self.name, self.caption)

    def paper(self, *, columns: bool) -> dict[str, bytes]:
        """Draw the chart in black on white as SVG and PDF, by the ending of a file's name.

        Args:
            columns: whether the chart is also drawn as wide as a column, not only as a page.
        """
        files: dict[str, bytes] = {}
        draw = partial(svg_of, name=self.name, caption=self.caption)
        for ending in paper.WIDTHS if columns else ("",):
            inches = paper.WIDTHS[ending]
            svg = paper.draw_to_width(self.spec, inches, draw, lambda: self.svg)
            files |= paper_files(svg, inches, ending, paper.title_of(self.caption))
        return files

    def forget(self) -> None:
        """Free the memory of the chart, which can be made again; the page's picture stays."""
        vars(self).pop("_chart", None)


def lazy_figure(
    make: Callable[Given, SpecAndRows],
) -> Callable[Concatenate[str, str, Given], Figure]:
    """Let a function that makes a chart return a `Figure` of the chart.

    The figure's name and caption stand before the other arguments.
    """

    @wraps(make)
    def figure(name: str, caption: str, /, *args: Given.args, **named: Given.kwargs) -> Figure:
        return Figure(name, caption, partial(make, *args, **named))

    return figure


def paper_files(svg: str, inches: float, ending: str = "", title: str = "") -> dict[str, bytes]:
    """Return a picture on white paper of a width as SVG and PDF, by the ending of a file's name.

    Args:
        title: what stands above the picture; empty for none.
    """
    whole, points = paper.on_white_paper(svg, inches, title)
    pdf = paper.with_ordered_objects(vl_convert.svg_to_pdf(points))
    return {f"{ending}.svg": whole.encode(), f"{ending}.pdf": pdf}


NO_CHARACTER = "\U0010ffff"  # no character by the rules of Unicode: no font has a glyph for it


def without_glyph(characters: Iterable[str]) -> list[str]:
    """Return the characters that no font of this machine or of vl-convert has a glyph for, sorted.

    These are drawn as the box that stands for all of them.
    """
    return sorted(
        character
        for character in {*characters}
        if not (character.isascii() or character.isspace())
        and _picture(character) == _picture(NO_CHARACTER)
    )


@cache
def _picture(character: str) -> bytes:
    """Draw a character as PNG, in the font of figures, or the first other one that has it."""
    text = f'<text x="20" y="20" font-size="12">{escape(character)}</text>'
    size = 'width="48" height="32"'
    return vl_convert.svg_to_png(f'<svg xmlns="{SVG}" {size} font-family="{FONT}">{text}</svg>')


SVG = "http://www.w3.org/2000/svg"
GROUP, PATH, LINE, TEXT = (f"{{{SVG}}}{name}" for name in ("g", "path", "line", "text"))
LABELS = {"role-axis-label": "axis", "role-legend-label": "legend"}  # class in SVG: part of config
MAX_LABEL_PIXELS = 160.0  # the smallest default of Vega for the width of labels
NARROW_LETTERS = re.compile(r"[a-ln-vx-z0-9 .,:'()-]")  # letters less than 0.65 as wide as high
TRANSLATION = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
# Attributes of shapes that can be joined.
SHAPE_ATTRIBUTES = {"d", "fill", "fill-opacity", "stroke", "stroke-width", "opacity"}
DROPPED_ATTRIBUTES = {"role", "class", "pointer-events"}  # without meaning in a still picture
DEFAULT_ATTRIBUTES = {("opacity", "1"), ("transform", "translate(0,0)"), ("font-family", FONT)}
EMPTY_SHAPES = {"", "M0,0h0v0h0Z"}
DISC = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0")
INHERITED_ATTRIBUTES = (
    "fill", "font-size", "font-weight", "stroke", "stroke-opacity", "stroke-width", "text-anchor",
)  # fmt: skip
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
SCALE_COLOURS = ("rgb(", "url(")  # how colours of a scale begin
RGB = re.compile(r"rgb\((\d+), (\d+), (\d+)\)")
COLOUR_ATTRIBUTES = {"fill", "stroke", "stop-color"}


def svg_of(spec: dict[str, Any], name: str, caption: str) -> str:
    """Draw a specification as an SVG element whose ids begin with a name."""
    root = _drawn(spec)
    ET.register_namespace("", SVG)
    ids: dict[str, str] = {}
    for number, element in enumerate(element for element in root.iter() if "id" in element.attrib):
        ids[element.attrib["id"]] = f"{name}-{number}"
    for element in root.iter():
        for key, value in [*element.attrib.items()]:
            if (
                key in DROPPED_ATTRIBUTES
                or key.startswith("aria-")
                or (key, value) in DEFAULT_ATTRIBUTES
            ):
                del element.attrib[key]
            else:
                element.attrib[key] = _with_ids(LONG_NUMBER.sub(_short, value), ids)
    _prune(root)
    _join(root)
    _share(root)
    _mark_ink(root)
    _name_colours(root)
    for key in ("version", "{http://www.w3.org/1999/xlink}href"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "aria-label": caption, "font-family": FONT}
    return ET.tostring(root, encoding="unicode").replace(" />", "/>")


def _drawn(spec: dict[str, Any]) -> ET.Element:
    """Draw a specification by vl-convert.

    Vega cuts labels to a width, and measures each label again and again for this: a sixth of its
    time. So the first drawing has no limit; a chart is drawn a second time only if a label might be
    too long. Both drawings omit tooltips and descriptions of single marks, because a still picture
    has a caption instead.
    """
    data = spec.get("datasets", {})
    spec = _unpointed({name: section for name, section in spec.items() if name != "datasets"})
    spec["datasets"] = data
    config = spec.get("config", {}) | {"aria": False}
    unlimited = {
        section: config.get(section, {}) | {"labelLimit": 0} for section in LABELS.values()
    }
    root = _svg(spec | {"config": config | unlimited})
    if any(_long(group) for group in root.iter(GROUP) if _role(group) in LABELS):
        root = _svg(spec | {"config": config})
    return root


def _unpointed(part: Any) -> Any:
    """Return a part of a specification without tooltips."""
    if isinstance(part, dict):
        return {name: _unpointed(value) for name, value in part.items() if name != "tooltip"}
    return [_unpointed(value) for value in part] if isinstance(part, list) else part


def _svg(spec: dict[str, Any]) -> ET.Element:
    return ET.fromstring(vl_convert.vegalite_to_svg(spec))  # noqa: S314 - our own


def _role(group: ET.Element) -> str:
    return group.get("class", "").rpartition(" ")[2]


def _long(group: ET.Element) -> bool:
    """Whether a label of a group might be wider than labels may be, in any font."""
    return any(
        _width(text.text or "") * float(text.get("font-size", "11px").removesuffix("px"))
        > MAX_LABEL_PIXELS
        for text in group.iter(TEXT)
    )


def _width(text: str) -> float:
    """Return an upper estimate of the width of a text, divided by the height of its letters."""
    return 1.3 * len(text) - 0.65 * len(NARROW_LETTERS.findall(text))


def _prune(element: ET.Element) -> None:
    """Remove hidden shapes, empty shapes and empty groups."""
    for child in [*element]:
        _prune(child)
        empty_group = child.tag == GROUP and not len(child)
        shape = child.get("d", "") if child.tag == PATH else None
        if empty_group or child.get("display") == "none" or shape in EMPTY_SHAPES:
            element.remove(child)


def _join(element: ET.Element) -> None:
    """Draw neighbours that differ in nothing but their place as one shape: a map's cells.

    Only shapes that are filled or lines and no more, which look the same where they touch.
    """
    last = None
    for child in [*element]:
        _straight(child)
        if last is not None and _is_bare(child) and _style_of(child) == _style_of(last):
            last.set("d", last.attrib["d"] + child.attrib["d"])
            element.remove(child)
        else:
            last = child if _is_bare(child) else None
            _join(child)


def _straight(element: ET.Element) -> None:
    """Write a line at some place as a path."""
    place = TRANSLATION.fullmatch(element.get("transform", ""))
    if element.tag == LINE and place:
        x, y = (element.attrib.pop(name, "0") for name in ("x2", "y2"))
        del element.attrib["transform"]
        element.tag = PATH
        element.attrib = {"d": f"M{place[1]},{place[2]}l{x},{y}", **element.attrib}


def _place(text: ET.Element) -> None:
    """Write the place of a text in as few characters as possible."""
    match = TRANSLATION.fullmatch(text.get("transform", ""))
    if match and text.tag == TEXT and not len(text) and not text.attrib.keys() & {"x", "y"}:
        del text.attrib["transform"]
        place = zip("xy", match.groups(), strict=True)
        text.attrib = {name: pixels for name, pixels in place if pixels != "0"} | text.attrib


def _style_of(element: ET.Element) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name != "d"}


def _share(element: ET.Element) -> None:
    """Move attributes that all children share to their group, and dissolve groups without any."""
    for child in element:
        _share(child)
    disc = DISC.fullmatch(element.get("d", ""))
    if disc:
        del element.attrib["d"]
        element.tag, element.attrib = f"{{{SVG}}}circle", {"r": disc[1], **element.attrib}
    _place(element)
    for name in INHERITED_ATTRIBUTES if element.tag == GROUP else ():
        values = {child.get(name) for child in element}
        if len(values) == 1 and None not in values:
            element.set(name, values.pop() or "")
            for child in element:
                del child.attrib[name]
    element[:] = [
        part
        for child in element
        for part in ([*child] if child.tag == GROUP and not child.attrib else [child])
    ]


def _mark_ink(element: ET.Element) -> None:
    """Group neighbours with colours of a scale, which pages turn round on dark paper."""
    elements: list[ET.Element] = []
    for child in element:
        if not child.get("fill", "").startswith(SCALE_COLOURS):
            _mark_ink(child)
            elements.append(child)
            continue
        if not elements or elements[-1].get("class") != "ink":
            elements.append(ET.Element(GROUP, {"class": "ink"}))
        elements[-1].append(child)
    element[:] = elements


def _name_colours(root: ET.Element) -> None:
    """Write colours in as few characters as possible: ``#rrggbb``."""
    for element in root.iter():
        for key in COLOUR_ATTRIBUTES & element.attrib.keys():
            if colour := RGB.fullmatch(element.attrib[key]):
                element.set(key, "#" + bytes(map(int, colour.groups())).hex())


def _is_bare(element: ET.Element) -> bool:
    return "d" in element.attrib and element.attrib.keys() <= SHAPE_ATTRIBUTES and not len(element)


def _short(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _with_ids(value: str, ids: dict[str, str]) -> str:
    if value in ids:
        return ids[value]
    return re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{ids.get(match[1], match[1])})", value)
