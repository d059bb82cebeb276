"""The door to vl-convert.

Vega-Lite to SVG that follows the page's colours, SVG to PDF, Vega as one script.

A chart is a Vega-Lite specification. The page holds it rendered as SVG; a reader who wants more
loads the same specification as a live chart. Text and axes take the colour of the page, so that
one picture serves light and dark.

Bundling it takes as long as rendering fifty pages, and a version of vl-convert always gives the
same bytes, so it is kept where the user's programs keep what they can make again.
"""

import re
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any
from xml.etree import ElementTree as ET

import vl_convert
from platformdirs import user_cache_path

from headbook.charts.theme import FONT
from headbook.output_folder import read_checked, write_checked

SVG = "http://www.w3.org/2000/svg"
GROUP, PATH, LINE, TEXT = (f"{{{SVG}}}{name}" for name in ("g", "path", "line", "text"))
LABELS = {"role-axis-label": "axis", "role-legend-label": "legend"}  # class in SVG: part of config
LIMIT = 160.0  # pixels of a label, the least that Vega has as a default
NARROW = re.compile(r"[a-ln-vx-z0-9 .,:'()-]")  # letters less than 0.65 as wide as high
AT = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
JOINED = {"d", "fill", "fill-opacity", "stroke", "stroke-width", "opacity"}  # of what is one shape

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
        if last is not None and _is_bare(child) and _style_of(child) == _style_of(last):
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


def _style_of(element: ET.Element) -> dict[str, str]:
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


ENTRY = "window.vegaEmbed=vegaEmbed;"


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that defines ``vegaEmbed`` and no more."""
    file = user_cache_path("headbook") / f"vega-{version('vl-convert-python')}.kept"
    entry, _, kept = (read_checked(file) or b"").decode().partition("\n")
    if entry == ENTRY:
        return kept
    script = str(vl_convert.javascript_bundle(ENTRY))
    if file.is_absolute():  # else there is no home, and the folder would be the current one's
        with suppress(OSError):  # it may be read-only, or the disk full
            write_checked(file, f"{ENTRY}\n{script}".encode())
    return script
