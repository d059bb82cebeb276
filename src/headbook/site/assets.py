"""Style sheets and scripts of a site, and the scripts that other scripts load on demand.

Each page names the scripts and the style sheets of its own (`headbook.pages.parts.page.Page`). The
scripts are classic scripts that share functions in ``window.headbook``, so their order matters.
"""

import base64
import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from headbook.charts.theme import (
    BAR,
    BELOW,
    CHART_COLOURS,
    CHART_TEXT,
    CLASS_COLOURS,
    DARK,
    DARK_DIVERGING,
    DIVERGING,
    FAMILY_COLOURS,
    FAMILY_TEXT,
    GOOD,
    ROLE_COLOURS,
    STOPS,
    colours,
    text_colour,
)
from headbook.pages.parts.table import COLOUR_STEPS
from headbook.resources import folder as resource_folder
from headbook.site import export

# Scripts that another script loads on demand, in the order of loading.
SCRIPTS_ON_DEMAND = {
    "site": ("gunzip", "search", "rows"),
    "metric": ("numbers", "choices", "heat_picture"),
    "sentencepair": ("token_paths",),
    "sentence": (
        "token_paths",
        "work_panel",
        "save",
        "query_key_math",
        "query_key",
        "output_similarity",
    ),
}


def digest(text: str) -> str:
    """Return the hash by which a page's policy allows an inline script or style."""
    encoded = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{encoded}'"


PAPER = "var(--paper)"  # background of pages, light or dark


def colour_rules() -> Iterator[str]:
    """Yield the stops of the scale as variables, and a class for each step of both scales.

    ``c0`` is paper and the last step dark, or bright on dark paper; ``d0`` is the lower end of the
    scale of signed values. Letters are black or white by contrast.
    """
    yield from _variables()
    yield from _marks()
    yield from _charts()
    yield from _fills()
    yield from _steps("c", STOPS, DARK)
    yield from _steps("d", DIVERGING, DARK_DIVERGING)


def _variables() -> Iterator[str]:
    stops = [PAPER, *(_both(*pair) for pair in zip(STOPS[1:], DARK[1:], strict=True))]
    named = {"bar": _both(*BAR), "good": _both(*GOOD)}
    named |= {f"q{n}": stop for n, stop in enumerate(stops)}
    yield f":root{{{''.join(f'--{name}:{value};' for name, value in named.items())}}}\n"
    for n, each in enumerate(zip(DIVERGING, DARK_DIVERGING, strict=True)):
        yield f".v{n}{{background:{_both(*each)}}}\n"


def _marks() -> Iterator[str]:
    """Yield a class for each class of words, role and family."""
    for name, pair in (CLASS_COLOURS | ROLE_COLOURS).items():
        yield f".c-{name}{{--c:{_both(*pair)}}}\n"
    for name, pair in FAMILY_COLOURS.items():
        yield f".f-{name}{{--c:{_both(*pair)};--t:{_both(*FAMILY_TEXT[name])}}}\n"


def _charts() -> Iterator[str]:
    """Yield rules that give charts, which are drawn for white paper, the colours of the page."""
    for name, pair in CHART_COLOURS.items():
        for part in ("stroke", "fill"):
            selectors = f'figure.chart [{part}="{name}"],.curve [{part}="{name}"]'
            yield f"{selectors}{{{part}:{_both(*pair)}}}"
    for name, pair in CHART_TEXT.items():
        fill = _both(*pair)
        yield f'figure.chart text[fill="{name}"],.curve [fill="{name}"]{{fill:{fill}}}'
        yield f'.curve [stroke="{name}"]{{stroke:{fill}}}'


def _fills() -> Iterator[str]:
    """Yield a class for each fill of cells: amounts, and amounts below a baseline."""
    for n, pair in enumerate(zip(STOPS, DARK, strict=True)):
        colour, text = f"var(--q{n})", _both(*map(text_colour, pair))
        yield f".q{n}{{background:{colour};fill:{colour};color:{text}}}"
    for n, pair in enumerate(BELOW, start=1):
        colour, text = _both(*pair), _both(*map(text_colour, pair))
        yield f".z{n}{{background:{colour};fill:{colour};color:{text}}}"


def _steps(name: str, light: tuple[str, ...], dark: tuple[str, ...]) -> Iterator[str]:
    scales = (colours(COLOUR_STEPS, stops) for stops in (light, dark))
    for step, pair in enumerate(zip(*scales, strict=True)):
        paper = step == 0 and light is STOPS
        colour, text = PAPER if paper else _both(*pair), _both(*map(text_colour, pair))
        rule = f"background:{colour};color:{text};fill:{colour}"
        yield f".{name}{step},.{name}{step} a{{{rule}}}"


def _both(light: str, dark: str) -> str:
    return f"light-dark({light},{dark})"


def size_rules(max_tiles: int) -> Iterator[str]:
    """Yield classes for numbers and places of columns and rows; policies forbid attributes."""
    for number in range(1, max_tiles + 1):
        yield f".n{number}{{--cols:{number}}}.r{number}{{--rows:{number}}}"
    for place in range(max_tiles):
        yield f".x{place}{{--x:{place}}}.y{place}{{--y:{place}}}"


def compact(style: str) -> str:
    """Return a style sheet without comments and unnecessary spaces."""
    bare = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    lines = (line.strip() for line in bare.splitlines())
    text = re.sub(r"\s*([{};,])\s*", r"\1", "\n".join(filter(None, lines)))
    text = re.sub(r":\s+", ":", text)
    return text.replace(";}", "}") + "\n"


def bare(script: str) -> str:
    """Return a script without comments, indents and empty lines.

    A comment is removed if it fills lines, ends a line, or gives a type. No string of the script
    may span several lines.
    """
    comment = r"/\*(?:(?!\*/).)*\*/"
    typed = re.sub(r"/\*\* @type (?:(?!\*/).)*\*/ (?=\S)", "", script)
    ended = re.sub(rf"(?<=\S)[ \t]+{comment}[ \t]*$", "", typed, flags=re.MULTILINE)
    return re.sub(rf"^\s*(?:{comment}[ \t]*\n)?", "", ended, flags=re.DOTALL | re.MULTILINE)


# Scripts and styles that only sites of several models have, by kind of site.
ASSETS_OF_SITES = {
    "comparison": ("comparison.css", "headpair.js", "sentencepair.js"),
    "checkpoints": ("checkpoints.css", "checkpoints.js"),
}


def write_assets(folder: Path, max_tiles: int, site: str = "") -> None:
    """Write style and scripts into a site.

    Args:
        max_tiles: largest number of layers of a model, or of heads of a layer.
        site: kind of site, a key of `ASSETS_OF_SITES`; empty for the site of a study.
    """
    assets = folder / "assets"
    assets.mkdir()
    foreign = {name for kind, names in ASSETS_OF_SITES.items() if kind != site for name in names}
    for file in export.walk(resource_folder("templates") / "assets"):
        if file.name not in foreign:
            shutil.copy(file, assets)  # copytree would hide why one of them failed
    for file in assets.glob("*.js"):
        text = bare(file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8", newline="\n")
    for file in assets.glob("*.css"):
        rules = [compact(file.read_text(encoding="utf-8"))]
        if file.name == "site.css":
            rules += [*colour_rules(), *size_rules(max_tiles)]
        file.write_text("".join(rules), encoding="utf-8", newline="\n")
