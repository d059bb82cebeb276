"""The page of similar heads in a browser: the pair that is pointed at, and chosen by keys."""

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from browser import Open, violations
from headbook.pages.parts.nearest_heads import nats_text
from headbook.pages.similar import matrix_data
from headbook.report.similar_heads import head_distances
from headbook.schema import SinkView
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def compared(page: Page) -> list[str]:
    """The two heads of the panel, and their distances."""
    return [
        *page.locator("aside .two a").all_text_contents(),
        *page.locator("aside dd").all_text_contents(),
    ]


def expected(site: Site, row: int, column: int) -> list[str]:
    """The same from the study, by row and column of the matrix."""
    matrices = head_distances(site.results["self"])
    data = matrix_data(site.results["self"])
    assert data is not None
    order = matrices[SinkView.RENORM].order
    names = [data["heads"][row][0], data["heads"][column][0]]
    if row == column:
        return [*names, "the same head", "the same head"]
    values = [
        matrices[view].value[order[row], order[column]] for view in (SinkView.RENORM, SinkView.RAW)
    ]
    return [*names, *(f"{nats_text(float(np.round(value, 3)))} nats" for value in values)]


def test_the_pair_under_the_pointer_is_shown(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "similar.html")
    page.set_viewport_size({"width": 1440, "height": 1400})  # the whole matrix is in sight
    matrix = page.locator(".cells svg")
    matrix.scroll_into_view_if_needed()
    box = matrix.bounding_box()
    assert box is not None
    side = box["width"] / 8
    for row, column in ((0, 3), (5, 5), (7, 2)):
        page.mouse.move(box["x"] + (column + 0.5) * side, box["y"] + (row + 0.5) * side)
        expect(page.locator(".cross")).to_have_attribute("x", str(column))
        expect(page.locator(".cross")).to_have_attribute("y", str(row))
        assert compared(page) == expected(encoder_site, row, column)
    assert violations(page) == []


def test_arrow_keys_choose_a_pair(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "similar.html")
    page.locator(".cells").focus()
    row = column = 0
    for key, down, right in (
        ("ArrowDown", 1, 0),
        ("ArrowRight", 0, 1),
        ("ArrowRight", 0, 1),
        ("ArrowUp", -1, 0),
        ("ArrowLeft", 0, -1),
    ):
        page.keyboard.press(key)
        row, column = row + down, column + right
        expect(page.locator(".cross")).to_have_attribute("x", str(column))
        expect(page.locator(".cross")).to_have_attribute("y", str(row))
        assert compared(page) == expected(encoder_site, row, column)


def test_without_scripts_the_nearest_pair_is_shown(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "similar.html", java_script_enabled=False)
    first = page.locator(".pairs tbody tr").first
    names = first.locator("th a").all_text_contents()
    numbers = first.locator("td.h").all_text_contents()
    assert compared(page) == [*names, *(f"{number} nats" for number in numbers)]
