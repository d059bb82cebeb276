"""The list of heads as tests look at it: what it shows, and the numbers it should show."""

import math
import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Locator, Page, expect

from browser import Open, each
from headbook.pages.heads import Column, number_columns
from headbook.report.head_facts import head_facts
from headbook.report.results import stack_results
from sites import Site

DISTANCE, ENTROPY = "attention_distance/", "relative_entropy/"
PREVIOUS = "attention_to/previous"


def address(**view: Any) -> str:
    """The list in some view, as addresses write it."""
    return "#" + urlencode(view, doseq=True)


def visit(open_page: Open, site: Site, fragment: str = "") -> Page:
    """The page of a site in a view, its list drawn."""
    page = open_page(site.folder / "heads.html")
    drawn(page)
    if fragment:
        page.goto("about:blank")
        page.goto((site.folder / "heads.html").as_uri() + fragment)
        drawn(page)
    return page


def drawn(page: Page) -> None:
    """Wait until the script has drawn the list."""
    page.locator(".finding th[data-key]").first.wait_for()
    expect(page.locator("[data-count]")).to_contain_text(" of ")


def names(page: Page) -> list[str]:
    """The heads of the list, from the top."""
    return page.locator(".finding tbody th").all_text_contents()


def view_of(page: Page) -> dict[str, list[str]]:
    """What the address says."""
    return parse_qs(urlsplit(page.url).fragment, keep_blank_values=True)


def column_of(site: Site, key: str) -> tuple[Column, dict[str, float]]:
    """A column, and its numbers by the names of heads in the order of layers."""
    found = stack_results(site.study)
    column = next(c for c in number_columns(found) if c.key == key)
    facts = [each for r in found.values() for each in head_facts(r)]
    return column, {f.name: column.at(found, f.head).value for f in facts}


def by_value(values: dict[str, float], *, down: bool) -> list[str]:
    """Names in the order of their numbers; those without one last."""
    sign = -1 if down else 1
    return sorted(values, key=lambda n: math.inf if math.isnan(values[n]) else sign * values[n])


def rows_of(found: Locator) -> list[list[str]]:
    """The texts of a table's cells, their spaces as one."""
    lines = [line.locator("th, td").all_inner_texts() for line in found.locator("tbody tr").all()]
    return [[re.sub(r"\s+", " ", cell).strip() for cell in line] for line in lines]


def state_of(page: Page) -> Any:
    """What the page shows: headings, rows, controls and points."""
    headings = page.locator(".finding thead th")
    controls = "found => found.map((c) => c.type === 'checkbox' ? c.checked : c.value)"
    return [
        each(headings, "data-key"),
        each(headings, "aria-sort"),
        rows_of(page.locator(".finding")),
        page.locator("[data-filter], [data-range]").evaluate_all(controls),
        each(page.locator("[data-stage] a:not([hidden])"), "aria-label"),
        page.locator("[data-count]").text_content(),
    ]
