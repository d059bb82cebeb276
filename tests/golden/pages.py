"""Write outlines of all pages of the golden sites and their charts, or compare with stored ones.

Usage: python tests/golden/pages.py write|compare [FOLDER] [--only NAME ...] [--sites FOLDER]
           [--data]

FOLDER holds all of them in one file, ``pages.json.xz``; by default it is ``tests/golden``.
``--only`` and ``--sites`` are those of `tables.py`. With ``--data``, the files that scripts of
pages read are compared, too, by digests of their values: after changes of how these files are
packed, on one machine, since digests tell 0.5 from 0.50000001. ``compare`` prints equal differences
of several pages once, and ends with 1 if there are any.

An outline has the elements and texts of a page, one a line, so white space between tags does not
matter. Pictures are described by size, mean and centre. Charts are left out of outlines and stored
beside them: those of pages of each kind, and a few of the exported figures.
"""

import base64
import hashlib
import io
import json
import lzma
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TESTS = Path(__file__).parents[1]
# As in pytest, for scripts.
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent / "benchmarks")]

from golden.refresh import outline_of  # noqa: E402
from golden.studies import build  # noqa: E402
from golden.tables import arguments, folder_of_sites  # noqa: E402
from html_pages import data_file, html_of  # noqa: E402

STORED, FILE = Path(__file__).parent, "pages.json.xz"
MANY = {"heads", "sentences"}  # folders whose pages have the same charts
EACH = 2  # pages of such a folder whose charts are kept
FIGURES = 4  # exported figures of a site that are kept
LISTED = 40  # lines of one difference
CHART = re.compile(r'<svg\b[^>]*role="img".*?</svg>', re.DOTALL)
PICTURE = re.compile(r"data:image/webp;base64,([^\s\"']*)")
# Lines that may differ although nothing changed, with the reason.
EXCLUDED: dict[re.Pattern[str], str] = {}


def site_outlines(site: Path, *, data: bool = False) -> dict[str, list[str]]:
    """Return the lines of all outlines of a site, its charts, and maybe its data, by address."""
    found: dict[str, list[str]] = {}
    places = sorted(file.relative_to(site) for file in site.rglob("*.html"))
    kept = {p for name in MANY for p in [p for p in places if p.parts[0] == name][EACH:]}
    for place in places:
        html = html_of(site / place)
        text = outline_of(PICTURE.sub(lambda match: _picture(match[1]), html))
        found[place.as_posix()] = text.splitlines()
        for number, chart in enumerate(() if place in kept else CHART.findall(html), 1):
            found[f"{place.as_posix()} chart {number}"] = _svg_lines(chart)
    for figure in sorted((site / "figures").glob("*.svg"))[:FIGURES]:
        found[f"figures/{figure.name}"] = _svg_lines(figure.read_text(encoding="utf-8"))
    if data:
        for file in sorted((site / "data").rglob("*.js")):
            found[file.relative_to(site).as_posix()] = [*_data_lines(file)]
    return found


def _picture(letters: str) -> str:
    """Describe a picture by its size, and by mean and centre of its values, for each channel."""
    with Image.open(io.BytesIO(base64.b64decode(letters))) as opened:
        values = np.asarray(opened.convert("RGBA"), np.float64) / 255
    rows, columns = (np.linspace(0, 1, n) for n in values.shape[:2])
    total = np.maximum(values.sum((0, 1)), 1e-9)
    moments = (
        values.mean((0, 1)),
        (values * rows[:, None, None]).sum((0, 1)) / total,
        (values * columns[None, :, None]).sum((0, 1)) / total,
    )
    size = "×".join(map(str, values.shape[1::-1]))
    return f"picture {size} " + " ".join(f"{x:.2f}" for moment in moments for x in moment)


def _svg_lines(svg: str) -> list[str]:
    return re.sub(r">\s*<", ">\n<", svg.strip()).splitlines()


def _data_lines(file: Path) -> Iterator[str]:
    """Yield name and digest of each part of a data file."""
    name, value = data_file(file)
    parts = value if isinstance(value, dict) else {"": value}
    for key, part in sorted(parts.items()):
        letters = json.dumps(part, sort_keys=True, default=_hexadecimal)
        yield f"{name} {key}: {hashlib.sha256(letters.encode()).hexdigest()[:16]}"


def _hexadecimal(value: Any) -> str:
    """Return bytes, which JSON lacks, as letters."""
    letters: str = value.hex()
    return letters


def compare(stored: dict[str, list[str]], found: dict[str, list[str]]) -> list[str]:
    """Return a report of what differs between pages, equal differences of several pages once."""
    lines = [f"missing: {name}" for name in stored if name not in found]
    lines += [f"added: {name}" for name in found if name not in stored]
    pages: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, lines_before in stored.items():
        if name in found and (changed := _changed(lines_before, found[name])):
            pages[changed].append(name)
    for changed, names in pages.items():
        more = f" and {len(names) - 1} more: {', '.join(names[1:4])} …" if len(names) > 1 else ""
        left = len(changed) - LISTED
        lines += [f"{names[0]}{more}", *(f"    {line}" for line in changed[:LISTED])]
        lines += [f"    … {left} more lines"] if left > 0 else []
    return lines


def _changed(stored: list[str], found: list[str]) -> tuple[str, ...]:
    """Return the lines that went and came; indentation alone is no difference."""
    one, other = _compared(stored), _compared(found)
    if one == other:
        return ()
    lines = islice(unified_diff(one, other, n=0, lineterm=""), 2, None)  # behind both names
    return tuple(line for line in lines if not line.startswith("@@"))


def _compared(lines: list[str]) -> list[str]:
    stripped = [line.strip() for line in lines]
    return [line for line in stripped if not any(p.search(line) for p in EXCLUDED)]


def read(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Read what is stored, by site."""
    file = folder / FILE
    if not file.exists():
        return {}
    found: dict[str, dict[str, list[str]]] = json.loads(lzma.decompress(file.read_bytes()))
    return found


def main() -> None:
    """Write or compare."""
    parser = arguments(__doc__, STORED)
    parser.add_argument("--data", action="store_true")
    given = parser.parse_args()
    stored, report = read(given.folder), []
    with folder_of_sites(given.sites) as sites:
        for name in given.only:
            found = site_outlines(build(name, sites), data=given.data)
            if given.what == "write":
                stored[name] = found
            else:
                lines = compare(stored.get(name, {}), found)
                report += lines
                text = "equal" if not lines else "\n".join(["differs", *lines])
                print(f"{name}: {len(found)} pages and charts, {text}", flush=True)  # noqa: T201
    if given.what == "write":
        given.folder.mkdir(parents=True, exist_ok=True)
        letters = json.dumps(stored, ensure_ascii=False, indent=0)
        (given.folder / FILE).write_bytes(lzma.compress(letters.encode(), preset=9))
    sys.exit(bool(report))


if __name__ == "__main__":
    main()
