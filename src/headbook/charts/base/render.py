"""From a chart to its picture, by vl-convert.

A chart is a Vega-Lite specification. The page holds it rendered as SVG; a reader who wants more
loads the same specification as a live chart. Text and axes take the colour of the page, so that
one picture serves light and dark.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol
from xml.etree import ElementTree as ET

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from headbook.charts.base.ink import DARK, DIVERGING, STOPS, turns
from headbook.charts.base.unchecked import checks

SVG = "http://www.w3.org/2000/svg"
GROUP, PATH, LINE, TEXT = (f"{{{SVG}}}{name}" for name in ("g", "path", "line", "text"))
LABELS = {"role-axis-label": "axis", "role-legend-label": "legend"}  # class in SVG: part of config
LIMIT = 160.0  # pixels of a label, the least that Vega has as a default
NARROW = re.compile(r"[a-ln-vx-z0-9 .,:'()-]")  # letters less than 0.65 as wide as high
AT = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
JOINED = {"d", "fill", "fill-opacity", "stroke", "stroke-width", "opacity"}  # of what is one shape
FONT = "system-ui, sans-serif"
# Okabe and Ito's colours, told apart by readers with any colour vision.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
PURPLE = "#AA4499"  # Tol's; lighter ones of Okabe and Ito do not stand out as text
USELESS = {"role", "class", "pointer-events"}  # in a still picture
DEFAULTS = {("opacity", "1"), ("transform", "translate(0,0)"), ("font-family", FONT)}
EMPTY = {"", "M0,0h0v0h0Z"}
DISC = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0")
INHERITED = (
    "fill", "font-size", "font-weight", "stroke", "stroke-opacity", "stroke-width", "text-anchor",
)  # fmt: skip
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
SCALED = ("rgb(", "url(")  # colours that a scale gave
RGB = re.compile(r"rgb\((\d+), (\d+), (\d+)\)")
COLOURED = {"fill", "stroke", "stop-color"}

Ends = tuple[float, float]
Given = ParamSpec("Given")


class Picture(Protocol):
    """What files are written of: a `Figure`, or a `Drawing`."""

    @property
    def name(self) -> str:
        """Also its file name."""

    @property
    def caption(self) -> str:
        """What it shows."""

    @property
    def svg(self) -> str:
        """An SVG element that inherits the page's colour."""

    @property
    def rows(self) -> pd.DataFrame | None:
        """What it shows, in full precision; None where no file of it is written."""


class Chart(NamedTuple):
    """What is behind a figure.

    Attributes:
        spec: Vega-Lite specification.
        interactive: whether the live chart shows more than the picture.
        rows: what the picture shows, a row for each of its marks, in full precision; None where
            no file of it is written.
    """

    spec: dict[str, Any]
    interactive: bool = True
    rows: pd.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart as pages and files use it; it is made when it is first looked at.

    Attributes:
        name: unique on its page; also its file name.
        caption: what it shows; also its text for who cannot see it.
        make: makes the chart.
    """

    name: str
    caption: str
    make: Callable[[], Chart]

    @cached_property
    def _chart(self) -> Chart:
        return self.make()

    @property
    def spec(self) -> dict[str, Any]:
        """Vega-Lite specification."""
        return self._chart.spec

    @cached_property
    def interactive(self) -> bool:
        """Whether the live chart shows more than the picture."""
        return self._chart.interactive

    @property
    def rows(self) -> pd.DataFrame | None:
        """What the picture shows, as in `Chart`."""
        return self._chart.rows

    def forget(self) -> None:
        """Let go of the chart, which can be made again; the picture stays, where it was drawn."""
        _ = self.interactive  # what pages still ask for
        vars(self).pop("_chart", None)

    @cached_property
    def svg(self) -> str:
        """The chart as an SVG element that inherits the page's colour.

        Element ids get the figure's name, so that several charts share a page; ids that
        vl-convert numbers within a process would differ between builds.
        """
        return svg_of(still(self.spec), self.name, self.caption)


def on_demand(make: Callable[Given, Chart]) -> Callable[Concatenate[str, str, Given], Figure]:
    """Let a function that makes a chart give a figure that makes it when it is asked for.

    The figure's name and caption stand before the other arguments.
    """

    @wraps(make)
    def figure(name: str, caption: str, /, *args: Given.args, **named: Given.kwargs) -> Figure:
        return Figure(name, caption, partial(make, *args, **named))

    return figure


def still(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with no more rows than its picture shows: others wait for readers."""
    chosen = {
        param["name"].removesuffix("_shown"): param["value"]
        for param in spec.get("params", ())
        if param["name"].endswith("_shown")
    }
    if not chosen:
        return spec
    sets = {
        name: [row for row in rows if all(row.get(k, v) == v for k, v in chosen.items())]
        for name, rows in spec.get("datasets", {}).items()
    }
    return spec | {"datasets": sets}


def svg_of(spec: dict[str, Any], name: str, caption: str) -> str:
    """A specification as an SVG element, its ids beginning with a name."""
    root = _drawn(spec)
    ET.register_namespace("", SVG)
    ids: dict[str, str] = {}
    for number, element in enumerate(e for e in root.iter() if "id" in e.attrib):
        ids[element.attrib["id"]] = f"{name}-{number}"
    for element in root.iter():
        for key, value in [*element.attrib.items()]:
            if key in USELESS or key.startswith("aria-") or (key, value) in DEFAULTS:
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
    """A specification as Vega draws it.

    Vega cuts labels to a width, and to know whether it must, measures each of them again and again:
    a sixth of its time. So no width is asked for, and only where a label might be too long is the
    chart drawn a second time. Nor is it asked for what a picture does not say of each mark: to who
    cannot see it, as it has a caption, and to who points at it.
    """
    data = spec.get("datasets", {})
    spec = _unpointed({name: part for name, part in spec.items() if name != "datasets"})
    spec["datasets"] = data
    config = spec.get("config", {}) | {"aria": False}
    free = {part: config.get(part, {}) | {"labelLimit": 0} for part in LABELS.values()}
    root = _svg(spec | {"config": config | free})
    if any(_long(group) for group in root.iter(GROUP) if _role(group) in LABELS):
        root = _svg(spec | {"config": config})
    return root


def _unpointed(part: Any) -> Any:
    """A part of a specification without what live charts say where a reader points."""
    if isinstance(part, dict):
        return {name: _unpointed(each) for name, each in part.items() if name != "tooltip"}
    return [_unpointed(each) for each in part] if isinstance(part, list) else part


def _svg(spec: dict[str, Any]) -> ET.Element:
    return ET.fromstring(vl_convert.vegalite_to_svg(spec))  # noqa: S314 - our own


def _role(group: ET.Element) -> str:
    return group.get("class", "").rpartition(" ")[2]


def _long(group: ET.Element) -> bool:
    """Whether a label of a group might be wider than labels may be, in any font."""
    return any(
        _width(text.text or "") * float(text.get("font-size", "11px").removesuffix("px")) > LIMIT
        for text in group.iter(TEXT)
    )


def _width(text: str) -> float:
    """What a text is at most as wide as, over the height of its letters."""
    return 1.3 * len(text) - 0.65 * len(NARROW.findall(text))


def _prune(element: ET.Element) -> None:
    """Take out what is not drawn: hidden and empty shapes, and groups of nothing."""
    for child in [*element]:
        _prune(child)
        nothing = child.tag == GROUP and not len(child)
        shape = child.get("d", "") if child.tag == PATH else None
        if nothing or child.get("display") == "none" or shape in EMPTY:
            element.remove(child)


def _join(element: ET.Element) -> None:
    """Draw neighbours that differ in nothing but their place as one shape: a map's cells.

    Only shapes that are filled or lines and no more, which look the same where they touch.
    """
    last = None
    for child in [*element]:
        _straight(child)
        if last is not None and _is_bare(child) and _looks(child) == _looks(last):
            last.set("d", last.attrib["d"] + child.attrib["d"])
            element.remove(child)
        else:
            last = child if _is_bare(child) else None
            _join(child)


def _straight(element: ET.Element) -> None:
    """Write a line at some place as a path."""
    at = AT.fullmatch(element.get("transform", ""))
    if element.tag == LINE and at:
        x, y = (element.attrib.pop(name, "0") for name in ("x2", "y2"))
        del element.attrib["transform"]
        element.tag = PATH
        element.attrib = {"d": f"M{at[1]},{at[2]}l{x},{y}", **element.attrib}


def _place(text: ET.Element) -> None:
    """Say where a text stands in as many letters as that takes; as PDF, discs take more so."""
    at = AT.fullmatch(text.get("transform", ""))
    if at and text.tag == TEXT and not len(text) and not text.attrib.keys() & {"x", "y"}:
        del text.attrib["transform"]
        place = zip("xy", at.groups(), strict=True)
        text.attrib = {name: far for name, far in place if far != "0"} | text.attrib


def _looks(element: ET.Element) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name != "d"}


def _share(element: ET.Element) -> None:
    """Let a group say once what all its children say; those that say nothing are no groups."""
    for child in element:
        _share(child)
    disc = DISC.fullmatch(element.get("d", ""))
    if disc:
        del element.attrib["d"]
        element.tag, element.attrib = f"{{{SVG}}}circle", {"r": disc[1], **element.attrib}
    _place(element)
    for name in INHERITED if element.tag == GROUP else ():
        tag_names = {child.get(name) for child in element}
        if len(tag_names) == 1 and None not in tag_names:
            element.set(name, tag_names.pop() or "")
            for child in element:
                del child.attrib[name]
    element[:] = [
        each
        for child in element
        for each in ([*child] if child.tag == GROUP and not child.attrib else [child])
    ]


def _mark_ink(element: ET.Element) -> None:
    """Group neighbours with colours of a scale, which pages turn round on dark paper."""
    elements: list[ET.Element] = []
    for child in element:
        if not child.get("fill", "").startswith(SCALED):
            _mark_ink(child)
            elements.append(child)
            continue
        if not elements or elements[-1].get("class") != "ink":
            elements.append(ET.Element(GROUP, {"class": "ink"}))
        elements[-1].append(child)
    element[:] = elements


def _name_colours(root: ET.Element) -> None:
    """Colours in as few letters as they have: ``#rrggbb``."""
    for element in root.iter():
        for key in COLOURED & element.attrib.keys():
            if found := RGB.fullmatch(element.attrib[key]):
                element.set(key, "#" + bytes(map(int, found.groups())).hex())


def _is_bare(element: ET.Element) -> bool:
    return "d" in element.attrib and element.attrib.keys() <= JOINED and not len(element)


def _short(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _with_ids(value: str, ids: dict[str, str]) -> str:
    if value in ids:
        return ids[value]
    return re.sub(r"url\(#([^)]+)\)", lambda match: f"url(#{ids.get(match[1], match[1])})", value)


def ramp(ends: Ends, stops: Sequence[str] = STOPS) -> alt.Scale:
    """A scale of colours: from paper at its lower end, or both ways from 0 where that is below 0.

    Args:
        stops: of a scale that begins at its lower end.
    """
    low, high = (round(end, 5) for end in ends)
    chosen = DIVERGING if low < 0 else stops
    domain = [float(place) for place in np.linspace(low, high, len(chosen)).round(7)]
    return alt.Scale(domain=domain, range=[*chosen], interpolate="rgb", clamp=True)


def letters_on(
    field: str, ends: Ends, stops: tuple[str, ...] = STOPS, dark: tuple[str, ...] = DARK
) -> Any:
    """Ink of letters on cells of `ramp` from paper to dark, legible on light and on dark paper.

    What is light on light paper is dark on dark paper; in between letters are black on both.
    """
    first, second = (ends[0] + part * (ends[1] - ends[0]) for part in turns(stops, dark))
    return (
        alt.when(f"datum.{field} < {first:.5f}")
        .then(alt.value("currentColor"))
        .when(f"datum.{field} < {second:.5f}")
        .then(alt.value("black"))
        .otherwise(alt.value("white"))
    )


def config() -> dict[str, Any]:
    """The site's style, with text and axes in the colour of the page."""
    ink = "currentColor"
    text = {"labelColor": ink, "titleColor": ink, "labelFontSize": 11, "titleFontSize": 12}
    axis = {"domainColor": ink, "tickColor": ink, "gridColor": ink, "gridOpacity": 0.12}
    return {
        "background": None,
        # Readers' fonts may be wider than the one that labels were measured with.
        "padding": {"left": 5, "top": 5, "bottom": 5, "right": 28},
        "font": FONT,
        "axis": text | axis | {"titleFontWeight": "normal", "titlePadding": 10},
        "legend": text | {"titleFontWeight": "normal", "gradientLength": 140},
        "header": text,
        "text": {"color": ink},
        # One weight everywhere: a PDF holds each font that it uses.
        "title": {"color": ink, "fontSize": 12, "anchor": "start", "fontWeight": "normal"},
        "view": {"stroke": None},
    }


def drawn(rows: pd.DataFrame, digits: int = 5) -> pd.DataFrame:
    """Rows with no more decimals than a picture can show, so that live charts stay short."""
    single = rows.select_dtypes("float32").columns
    return rows.astype(dict.fromkeys(single, float)).round(digits)


def chosen_rows(rows: pd.DataFrame, show: dict[str, str]) -> pd.DataFrame:
    """The rows of a picture, without those that only the live chart offers."""
    chosen = (rows[[*show]] == pd.Series(show)).all(axis=1)
    return rows[chosen].reset_index(drop=True)


def finished(chart: Any, rows: pd.DataFrame | None = None, *, interactive: bool = True) -> Chart:
    """An Altair chart in the site's style.

    Args:
        rows: what the picture shows.
    """
    named: dict[int, tuple[str, pd.DataFrame]] = {}  # by identity: layers share their rows

    def name(table: Any) -> dict[str, str]:
        first = f"rows-{len(named)}", table
        return {"name": named.setdefault(id(table), first)[0]}

    # Altair looks at every cell several times, to check it and to name the whole.
    alt.data_transformers.register("named", name)
    with alt.data_transformers.enable("named"):
        spec = chart.to_dict(validate=checks())
    spec.pop("$schema", None)  # an address that nothing should ask for
    spec |= {"background": None, "config": config()}
    if named:
        spec["datasets"] = {each: records(table) for each, table in named.values()}
    return Chart(spec, interactive, rows)


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """A mapping for each row, as JSON has it; None for what is no number."""
    text = rows.to_json(orient="records", double_precision=15)
    found: list[dict[str, Any]] = json.loads(text)
    return found


def columnar(figure: Figure) -> dict[str, Any]:
    """The specification with its rows as columns: shorter, and quick to turn back."""
    tables = figure.spec.get("datasets", {})
    columns = {
        name: {column: _once([row[column] for row in rows]) for column in rows[0]} if rows else {}
        for name, rows in tables.items()
    }
    return figure.spec | {"datasets": columns}


def _once(column: list[Any]) -> list[Any] | dict[str, list[Any]]:
    """A column as it is, or, where its texts repeat, each text once and the places of all."""
    if not all(isinstance(value, str) for value in column):
        return column
    texts = {text: index for index, text in enumerate(dict.fromkeys(column))}
    if 2 * len(texts) > len(column):
        return column
    return {"texts": [*texts], "at": [texts[text] for text in column]}
