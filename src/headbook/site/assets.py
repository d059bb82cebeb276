"""Style, scripts and what draws live charts: the same files in every site."""

import shutil
from functools import cache
from pathlib import Path

from headbook import charts
from headbook.resources import folder as resource_folder
from headbook.site import export, markup
from headbook.site.stylesheet import bare, colour_rules, compact, size_rules

# Scripts and styles of sites of several models, which are named after the files of these.
SEVERAL = {
    "comparison": ("comparison.css", "headpair.js", "sentencepair.js"),
    "film": ("film.css", "film.js"),
}


def write_assets(folder: Path, most: int, site: str = "") -> None:
    """Write style and scripts into a site.

    Args:
        most: layers, or heads of a layer, of the largest table of tiles.
        site: which of `SEVERAL` it is; empty for a study's.
    """
    assets = folder / "assets"
    assets.mkdir()
    foreign = {name for kind, names in SEVERAL.items() if kind != site for name in names}
    for file in export.walk(resource_folder("templates") / "assets"):
        if file.name not in foreign:
            shutil.copy(file, assets)  # copytree would hide why one of them failed
    for file in assets.glob("*.js"):
        text = bare(file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8", newline="\n")
    style = assets / "site.css"
    rules = [compact(style.read_text(encoding="utf-8"))]
    for file in assets.glob("*.css"):
        if file != style:  # one file for all: pages link no other
            rules.append(compact(file.read_text(encoding="utf-8")))
            file.unlink()
    rules += [*colour_rules(), *size_rules(most)]
    style.write_text("".join(rules), encoding="utf-8", newline="\n")


def write_runtime(folder: Path) -> None:
    """Write what draws live charts, packed; pages load it when a reader asks for one."""
    file = folder / "assets" / "vega.js"
    file.write_text(_runtime(), encoding="utf-8", newline="\n")


@cache
def _runtime() -> str:
    return markup.script("vega", charts.runtime())
