"""Numbers of pages that are links, and the rows of tables that they lead to."""

import csv
import gzip
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from html_pages import html_of
from printed_numbers import NUMBER, Node, tree_of
from site_tables import SCALES, rounds_to
from sites import Site

ADDRESS = re.compile(r"(?:\.\./)*data\.html\?row=(\w+):(\d+)&on=([\w/-]+)#(\w+)")


class Linked(NamedTuple):
    """A number of a page that is a link: its text, and the table and the line that it names."""

    text: str
    table: str
    line: int


def linked(node: Node) -> Iterator[Node]:
    """Yield the numbers below an element that are links."""
    for link in node.every("a"):
        if "n" in link.attributes.get("class", "").split():
            yield link


def numbers_of(site: Path, page: Path) -> list[Linked]:
    """Return the linked numbers of a page, each of which names a line and the page itself."""
    found = []
    for link in linked(tree_of(html_of(page))):
        if (
            "heads/" in link.attributes["href"].partition("?")[0]
        ):  # a mark of a chart that leads to its head
            continue
        match = ADDRESS.fullmatch(link.attributes["href"])
        assert match, f"{page}: {link.attributes['href']} names no line"
        table, line, on, fragment = match.groups()
        assert (f"{on}.html", fragment) == (page.relative_to(site).as_posix(), table)
        # Labels have the narrow spaces of pages, which `Node.text` has made plain.
        label = link.attributes.get("aria-label", "").replace("\u202f", " ")
        found.append(Linked(label or link.text(), table, int(line)))
    return found


def pages_of(site: Site) -> list[tuple[Path, list[Linked]]]:
    return [(page, numbers_of(site.folder, page)) for page in site.pages]


@cache
def lines_of(data: Path, table: str) -> list[str]:
    """Return the lines of a CSV as a reader counts them."""
    plain, packed = data / f"{table}.csv", data / f"{table}.csv.gz"
    content = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    return content.decode().split("\n")


@cache
def frame_of(data: Path, table: str) -> pd.DataFrame:
    return pd.read_parquet(data / f"{table}.parquet")


def in_line(data: Path, table: str, line: int) -> dict[str, str]:
    """Return the row that begins on a line of a CSV."""
    lines = lines_of(data, table)  # a row fills several lines if texts in it do
    return next(csv.DictReader(io.StringIO("\n".join([lines[0], *lines[line - 1 : line + 30]]))))


def as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def holds(row: dict[str, str], text: str, loss: float) -> bool:
    """Check whether a row holds every estimate in a text, to the digits printed.

    Numbers in cells have their unit in the heading of the column: per cent, thousandths, or per
    cent of the loss.
    """
    text = text.replace("\u202f", " ").replace("\xa0", " ")
    values = [as_number(value) for value in row.values()]
    if "baseline_value" in row and as_number(row["baseline_value"]):
        values.append(as_number(row["value"]) / as_number(row["baseline_value"]))
    if row.get("metric") == "vocabulary_rank":  # mean log10(1 + rank), printed as a rank
        values.append(10 ** as_number(row["value"]) - 1)
    numbers = np.array([*values, *(-value for value in values)])
    scales = {**SCALES, "% of the loss": loss / 100}
    matches = [*NUMBER.finditer(text)]
    exact = [match for match in matches if "." in match[1] or (match[2] or "").strip() in SCALES]
    in_cell = len(matches) == 1 and not matches[0][2]
    return bool(matches) and all(
        rounds_to(numbers, match[1], scale).any()
        if not in_cell
        else any(rounds_to(numbers, match[1], each).any() for each in {1.0, *scales.values()})
        for match in exact or matches[-1:]
        for scale in (scales.get((match[2] or "").strip(), 1.0),)
    )


def loss_of(data: Path) -> float:
    tests = frame_of(data, "tests")
    return float(tests.loc[tests["claim"] == "whole model", "value"].max())
