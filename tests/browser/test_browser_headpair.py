"""Pages of two heads, and of sentences that two models read, in a browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from browser import Open, Record, sideways, violations
from comparisons import Compared

pytest_plugins = ["browser_windows", "comparisons"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = "heads/L01-H01.html"
BOTTOM = "(element) => element.getBoundingClientRect().bottom + scrollY"
READY = ".pairmap:last-of-type canvas.cells"


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong_with_a_pair_page(
    compared: Callable[[str], Compared], open_page: Open, record: Record, width: int, scheme: str
) -> None:
    """No violation of access rules, no complaint of the policy, nothing asked of the network."""
    for kind in ("tuned", "apart"):
        page = open_page(compared(kind).folder / HEAD, color_scheme=scheme)
        page.locator(READY).first.wait_for()
        page.locator("#numbers ~ details > summary").first.click()
        assert sideways(page, width) == 0
        assert violations(page) == []
    record.check()


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wrong_with_a_sentence(
    compared: Callable[[str], Compared], open_page: Open, record: Record, width: int
) -> None:
    for kind in ("tuned", "apart"):
        file = min((compared(kind).folder / "sentences").glob("0*.html"))
        page = open_page(file)
        page.locator(".sentencepair[data-ready]").wait_for()
        assert sideways(page, width) == 0
        assert violations(page) == []
    record.check()


def test_maps_stand_on_the_first_screen(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
    page = open_page(compared("tuned").folder / HEAD)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.locator(READY).first.wait_for()
    for number in range(3):
        assert page.locator("canvas.cells").nth(number).evaluate(BOTTOM) <= 900


def test_keys_read_the_same_cell_in_both_models(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
    page = open_page(compared("tuned").folder / HEAD)
    page.locator(READY).first.wait_for()
    first = page.locator(".pairmap").first
    status = first.locator(".status")
    before = status.inner_text()
    canvas = first.locator("canvas.cells").nth(1)
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(status).to_contain_text("difference")
    page.keyboard.press("Enter")
    assert "at=1" in page.url
    assert "q=" in page.url
    page.keyboard.press("Escape")
    expect(status).to_have_text(before)


def test_a_query_is_marked_in_both_texts(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
    page = open_page(compared("tuned").folder / HEAD)
    page.locator(READY).first.wait_for()
    texts = page.locator(".pairmap").first.locator(".looked .text")
    texts.nth(0).locator(".t").nth(2).hover()
    for number in range(2):
        expect(texts.nth(number).locator(".t").nth(2)).to_have_class(re.compile(r"\blooks\b"))
        assert texts.nth(number).locator(".t.looks").count() == 1


def test_a_view_in_the_address_opens_again(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
    page = open_page(compared("tuned").folder / HEAD)
    page.locator(READY).first.wait_for()
    page.locator("select[data-switch=view]").select_option("renorm")
    page.locator(".pairmap canvas.cells").first.click(position={"x": 120, "y": 120})
    status = page.locator(".pairmap .status").first.inner_text()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(READY).first.wait_for()
    expect(page.locator(".pairmap .status").first).to_have_text(status)


def test_words_keep_the_token_that_is_kept(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
    """And subword tokens again bring it back, in both models."""
    page = open_page(compared("tuned").folder / HEAD)
    page.locator(READY).first.wait_for()
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


def test_pictures_of_maps_stand_there_without_scripts(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
    page = open_page(compared("tuned").folder / HEAD, java_script_enabled=False)
    assert page.locator(".pairmap img.map").count() == 3 * page.locator(".pairmap").count() > 0


def test_a_token_is_marked_in_both_charts(
    compared: Callable[[str], Compared], open_page: Open
) -> None:
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
