"""Say what a change does to pages, by outlines of the golden sites.

Usage: python tests/golden/outlines.py diff BASE|write|compare [--only NAME ...] [--sites FOLDER]

``diff`` draws the sites with the code of the commit BASE and of the working tree, from the same
studies, and prints what came, went and changed, equal differences of several pages once; studies
that BASE cannot read are collected by its own code. ``write`` records outlines without what
depends on the machine in ``outlines.json.xz``, and ``compare`` compares with them. Both comparisons
end with 1 where something differs. With ``--sites``, studies stay there for another run.

An outline lists, for each page in the order of its HTML: headings, ids, tables with their size,
figures, downloads, links, labels, and every printed number, with the row of the table that it
leads to if it is a link.
"""

import argparse
import io
import json
import lzma
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from difflib import unified_diff
from functools import cache
from itertools import islice
from pathlib import Path

TESTS = Path(__file__).parents[1]
# As in pytest, for scripts.
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent / "benchmarks")]

from golden.studies import SITES, SOURCE, build, draw  # noqa: E402
from golden.tables import folder_of_sites  # noqa: E402
from html_pages import html_of  # noqa: E402
from linked_numbers import ADDRESS, in_line  # noqa: E402
from printed_numbers import ATTRIBUTES, Node, plain, tree_of  # noqa: E402
from same_tables import KEYS, MORE_KEYS  # noqa: E402

RECORDED = Path(__file__).with_name("outlines.json.xz")
LISTED = 40  # lines of one difference
FILE = re.compile(r"\.(csv|gz|jsonl|parquet|svg|pdf|png|tex|bib|json|txt|zip)$")
NUMBER = re.compile(r"[−+<>]? ?\d[\d,]*(?:\.\d+)?(?: ?%| points| times|×)?")
# Kinds of lines that hold what every machine writes, once digits are left out.
RECORDED_KINDS = ("heading", "id", "table", "figure", "download")

Outline = dict[str, list[str]]  # lines by address


def outline(site: Path) -> Outline:
    """Return the outlines of all pages of a site."""
    return {
        page.relative_to(site).as_posix(): [*_lines(tree_of(html_of(page)), site)]
        for page in sorted(site.rglob("*.html"))
    }


def _lines(tree: Node, site: Path) -> Iterator[str]:
    """Yield the lines of a page."""
    heading = ""
    for node in tree.every():
        if re.fullmatch(r"h[1-6]", node.tag):
            heading = node.text()
        yield from _element(node, heading)
        if address := node.attributes.get("href"):
            yield _link(node, address, site)
        if not any(map(_row_address, node.up())) and node.tag not in {"script", "style"}:
            yield from (f"number: {number}" for number in _numbers(node))


def _element(node: Node, heading: str) -> Iterator[str]:
    """Yield what an element is: heading, id, table, figure and its labels."""
    if re.fullmatch(r"h[1-6]", node.tag):
        yield f"heading {node.tag[1]}: {heading}"
    if name := node.attributes.get("id"):
        yield f"id: {name}"
    if node.tag == "table":
        yield f"table: {_title(node) or heading}: {_size(node)}"
    if node.attributes.get("role") == "img" or node.tag in {"img", "figure"}:
        yield f"figure: {_title(node) or heading}"
    for label in filter(None, map(node.attributes.get, ATTRIBUTES)):
        yield f"label: {label}"


def _numbers(node: Node) -> Iterator[str]:
    """Yield the numbers in texts of an element itself."""
    for text in node.children:
        if isinstance(text, str):
            yield from (number.strip() for number in NUMBER.findall(plain(text)))


def _title(node: Node) -> str:
    """Return the title of a table or a figure; empty without one."""
    if label := node.attributes.get("aria-label"):
        return label
    captions = (each for each in node.every() if each.tag in {"caption", "figcaption", "title"})
    caption = next(captions, Node("", {}, None))
    return next((each.text() for each in caption.elements if each.tag == "p"), caption.text())


def _size(table: Node) -> str:
    """Return the number of rows of a table and of the cells of its longest row."""
    rows = [*table.every("tr")]
    cells = (sum(child.tag in {"td", "th"} for child in row.elements) for row in rows)
    return f"{len(rows)} × {max(cells, default=0)}"


def _row_address(node: Node) -> re.Match[str] | None:
    """Return the match of a link to the row of a table."""
    return ADDRESS.fullmatch(node.attributes.get("href", ""))


def _link(node: Node, address: str, site: Path) -> str:
    """Return the line of a link: a number with its row, a file, or another place."""
    if (row := _row_address(node)) is not None:
        key = _key(site / "data", row[1], int(row[2]))
        text = node.text() or node.attributes.get("aria-label", "")
        return f"number: {plain(text)} of {row[1]}: {key}"
    return f"{'download' if FILE.search(address) else 'link'}: {address}"


@cache
def _key(data: Path, table: str, line: int) -> str:
    """Return what a row is about."""
    row = in_line(data, table, line)
    names = (name for name in (*KEYS, *MORE_KEYS.get(table, ())) if row.get(name))
    return " ".join(f"{name}={row[name]}" for name in names)


def without_machine(pages: Outline) -> Outline:
    """Return outlines without what follows the last digits of numbers."""
    return {
        name: [re.sub(r"\d+", "0", line) for line in lines if line.startswith(RECORDED_KINDS)]
        for name, lines in pages.items()
    }


def differences(before: Outline, after: Outline) -> list[str]:
    """Return a report of what differs between pages, equal differences of several pages once."""
    lines = [f"missing: {name}" for name in before if name not in after]
    lines += [f"added: {name}" for name in after if name not in before]
    pages: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, lines_before in before.items():
        if name in after and (changed := _changed(lines_before, after[name])):
            pages[changed].append(name)
    for changed, names in pages.items():
        more = f" and {len(names) - 1} more: {', '.join(names[1:4])} …" if len(names) > 1 else ""
        left = len(changed) - LISTED
        lines += [f"{names[0]}{more}", *(f"    {line}" for line in changed[:LISTED])]
        lines += [f"    … {left} more lines"] if left > 0 else []
    return lines


def _changed(before: list[str], after: list[str]) -> tuple[str, ...]:
    """Return the lines that went and came."""
    if before == after:
        return ()
    lines = islice(unified_diff(before, after, n=0, lineterm=""), 2, None)  # behind both names
    return tuple(line for line in lines if not line.startswith("@@"))


def diff(base: str, names: list[str], sites: Path) -> Iterator[str]:
    """Yield what the working tree changes in pages since a commit, for each site."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _check_out(base, place / "base")
        source = place / "base" / "src"
        for name in names:
            build(name, sites)
            draw(name, sites, SOURCE, place / name / "after")
            try:
                draw(name, sites, source, place / name / "before")
            except subprocess.CalledProcessError:
                build(name, place / "studies", source)
                draw(name, place / "studies", source, place / name / "before")
            before, after = (outline(place / name / each) for each in ("before", "after"))
            if lines := differences(before, after):
                yield "\n".join([f"{name}:", *lines])


def _check_out(commit: str, folder: Path) -> None:
    """Write the package's code at a commit into a folder."""
    parts = ("src", "templates", "sample_inputs", "pyproject.toml")
    command = ["git", "-C", str(TESTS.parent), "archive", commit, *parts]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def read(file: Path = RECORDED) -> dict[str, Outline]:
    """Return the recorded outlines by site."""
    recorded: dict[str, Outline] = json.loads(lzma.decompress(file.read_bytes()))
    return recorded


def main() -> None:
    """Compare two commits, or write or compare what is recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("diff", "write", "compare"))
    parser.add_argument("base", nargs="?", default="HEAD")
    parser.add_argument("--only", nargs="+", choices=SITES, default=[*SITES], metavar="NAME")
    parser.add_argument("--sites", type=Path)
    given = parser.parse_args()
    different = False
    with folder_of_sites(given.sites) as sites:
        if given.what == "diff":
            for report in diff(given.base, given.only, sites):
                different = True
                print(report, flush=True)  # noqa: T201
            sys.exit(different)
        recorded = read() if RECORDED.exists() else {}
        for name in given.only:
            found = without_machine(outline(build(name, sites)))
            if given.what == "write":
                recorded[name] = found
            elif lines := differences(recorded.get(name, {}), found):
                different = True
                print("\n".join([f"{name}:", *lines]), flush=True)  # noqa: T201
    if given.what == "write":
        letters = json.dumps(recorded, ensure_ascii=False, indent=0)
        RECORDED.write_bytes(lzma.compress(letters.encode(), preset=9))
    sys.exit(different)


if __name__ == "__main__":
    main()
