"""The fonts that charts are measured and printed with.

vl-convert carries Liberation Sans and takes the system's fonts for what that lacks. Where the
system has Liberation Sans as well, it takes that one instead, and opens its file anew for every
text that it measures: a sixth of the time of rendering. So on Linux it is shown the system's fonts
without the folders of that one. Charts are then as wide on every such machine.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import vl_convert

CONFIGURED = "FONTCONFIG_FILE"  # the variable that names another list of folders
SYSTEM = Path("/etc/fonts")
FAMILY = "Liberation"  # how files of the fonts begin of which vl-convert carries one
CARRIED = f"{FAMILY}Sans-"
FONTS = {".ttf", ".otf", ".ttc", ".otc"}
# Fonts are looked for when the first text is drawn, and never again.
TEXT = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" font-family="sans-serif">'
    '<text y="9">a</text></svg>'
)


@cache
def converter() -> ModuleType:
    """vl-convert, with the fonts that it is to use."""
    if sys.platform == "linux" and CONFIGURED not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place, "fonts.conf")
            folders = chain.from_iterable(map(others, font_folders(SYSTEM, os.environ)))
            _write_list(file, [*folders, Path(place)])  # without any it takes all
            os.environ[CONFIGURED] = str(file)
            try:
                vl_convert.svg_to_pdf(TEXT)
            finally:
                del os.environ[CONFIGURED]
    return vl_convert


def font_folders(system: Path, environment: Mapping[str, str]) -> list[Path]:
    """The folders of fonts that the files of a folder of fontconfig name."""
    home = Path(environment.get("HOME", "/"))
    data = Path(environment.get("XDG_DATA_HOME", home / ".local/share"))
    found: dict[Path, None] = {}
    for file in [system / "fonts.conf", *sorted(system.glob("conf.d/*.conf"))]:
        for element in _elements(file):
            text = (element.text or "").strip()
            from_home = text == "~" or text.startswith("~/")
            under = data if element.get("prefix") == "xdg" else Path("/")
            found[home / text[2:] if from_home else under / text] = None
    return [*found]


def _elements(file: Path) -> Iterable[ET.Element]:
    """What a file says of folders; nothing where it cannot be read."""
    try:
        return ET.parse(file).iter("dir")  # noqa: S314 - the system's own
    except (OSError, ET.ParseError):
        return ()


def others(folder: Path) -> list[Path]:
    """The folders, a folder itself or some below it, that hold other fonts than the carried one.

    All that is below a folder is taken with it, so one that holds both stays.
    """
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return []
    fonts = [each.name for each in inside if each.suffix.lower() in FONTS]
    links = [each for each in inside if each.is_symlink() and each.is_dir()]
    below = {each: others(each) for each in inside if each.is_dir() and each not in links}
    carried = any(name.startswith(CARRIED) for name in fonts)
    untouched = not carried and all(found == [each] for each, found in below.items())
    if untouched or any(not name.startswith(FAMILY) for name in fonts):
        return [folder]
    return [*links, *chain.from_iterable(below.values())]


def _write_list(file: Path, folders: Iterable[Path]) -> None:
    root = ET.Element("fontconfig")
    for folder in folders:
        ET.SubElement(root, "dir").text = str(folder)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
