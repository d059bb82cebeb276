"""Pages of two heads, and of sentences that two models read, in a browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from browser import Open
from browser_plain import plain
from comparisons import Compared

pytest_plugins = ["browser_windows", "comparisons"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = "heads/L01-H01.html"
BOTTOM = "(element) => element.getBoundingClientRect().bottom + scrollY"
READY = ".pairmap:last-of-type canvas.cells"

Make = Callable[[str], Compared]


def test_two_models_are_read_side_by_side(compared: Make, open_page: Open) -> None:
    """Maps on the first screen, the same cell and query in both, words, and an address."""
    page = open_page(compared("tuned").folder / HEAD, viewport={"width": 1440, "height": 900})
    page.locator(READY).first.wait_for()
    for number in range(3):
        assert page.locator("canvas.cells").nth(number).evaluate(BOTTOM) <= 900
    mark_a_query(page)
    keep_its_word(page)
    read_a_cell_by_keys(page)
    page.locator("select[data-switch=view]").select_option("renorm")
    page.locator(".pairmap canvas.cells").first.click(position={"x": 120, "y": 120})
    status = page.locator(".pairmap .status").first.inner_text()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(READY).first.wait_for()
    expect(page.locator(".pairmap .status").first).to_have_text(status)


def mark_a_query(page: Page) -> None:
    """Point at a query: it is marked in both texts, alone."""
    texts = page.locator(".pairmap").first.locator(".looked .text")
    texts.nth(0).locator(".t").nth(2).hover()
    for number in range(2):
        expect(texts.nth(number).locator(".t").nth(2)).to_have_class(re.compile(r"\blooks\b"))
        assert texts.nth(number).locator(".t.looks").count() == 1
    page.locator("h1").hover()


def keep_its_word(page: Page) -> None:
    """Choose words, then subword tokens again, which bring the token back in both models."""
    article = page.locator(".pairmap").first
    status = article.locator(".status")
    before = status.inner_text()
    units = page.locator("select[data-switch=units]")
    units.select_option("words")
    expect(status).not_to_have_text(before)
    for number in range(2):
        line = article.locator(".looked .text").nth(number)
        pieces = line.locator(".t.looks").all_inner_texts()
        word = status.locator("bdi").first.inner_text()
        assert "".join(piece.removeprefix("##") for piece in pieces) == word
    units.select_option("pieces")
    expect(status).to_have_text(before)


def read_a_cell_by_keys(page: Page) -> None:
    """Walk in a map; Enter writes the cell into the address, Escape goes back."""
    first = page.locator(".pairmap").first
    status = first.locator(".status")
    before = status.inner_text()
    first.locator("canvas.cells").nth(1).focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(status).to_contain_text("difference")
    page.keyboard.press("Enter")
    assert "at=1" in page.url
    assert "q=" in page.url
    page.keyboard.press("Escape")
    expect(status).to_have_text(before)


def test_pictures_of_maps_stand_there_without_scripts(compared: Make) -> None:
    page = plain(compared("tuned").folder / HEAD)
    assert len(page.all(".pairmap img.map")) == 3 * len(page.all(".pairmap")) > 0


def test_a_token_is_marked_in_both_charts(compared: Make, open_page: Open) -> None:
    folder = compared("apart").folder
    page = open_page(min((folder / "sentences").glob("0*.html")))
    page.locator(".sentencepair[data-ready]").wait_for()
    line = page.locator('.words[data-side="b"] .text')
    line.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator('.words[data-side="b"] .t.looks')).to_have_count(1)
    expect(page.locator("#paths-self-b g.on")).to_have_count(1)
    first, second = page.locator("figure.paths select[aria-label]").all()
    page.locator("figure.paths").nth(0).get_by_label("Measure").select_option(index=1)
    expect(page.locator("figure.paths").nth(1).get_by_label("Measure")).not_to_have_value(
        "Cosine to the input embedding"
    )
    assert first.input_value() == second.input_value()
