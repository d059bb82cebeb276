"""Attention views by keyboard and in every window, in a browser."""

import re

import pytest
from playwright.sync_api import expect

from browser import Open
from browser_views import tokens
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = "heads/L00-H01.html"
RIGHT_TO_LEFT = (
    "{ for (const token of line.querySelectorAll('.t:not(.special)')) "
    "token.textContent = 'كتاب '; }"
)


EARLY = """() => new MutationObserver((_, observer) => {
  const map = document.querySelector("canvas.cells");
  if (!map) return;
  observer.disconnect();
  map.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
  map.dispatchEvent(new PointerEvent("pointermove"));
  map.dispatchEvent(new MouseEvent("click"));
  document.body.dataset.early = "1";
}).observe(document.body, { childList: true, subtree: true })"""


def test_arrows_follow_the_direction_of_the_text(encoder_site: Site, open_page: Open) -> None:
    """Which its words decide, not special tokens; there, too, Enter keeps and Escape goes back."""
    page = open_page(encoder_site.folder / HEAD)
    article = page.locator(".exemplar").first
    line, status = article.locator(".text"), article.locator("[data-status]")
    line.evaluate(f"(line) => {RIGHT_TO_LEFT}")
    assert line.evaluate("(line) => getComputedStyle(line).direction") == "rtl"
    home = int(article.get_attribute("data-looks") or "")
    line.focus()
    key = "ArrowLeft" if home == 0 else "ArrowRight"
    there = home + 1 if home == 0 else home - 1
    line.press(key)
    expect(status).to_have_text(re.compile(f"^{there} "))
    line.press("Enter")
    page.locator("h1").click()
    expect(status).to_have_text(re.compile(f"^{there} "))
    line.press("Escape")
    expect(status).to_have_text(re.compile(f"^{home} "))


def test_pointing_moves_nothing_that_is_pointed_at(encoder_site: Site, open_page: Open) -> None:
    """However long the sentence beside it: on a narrow page tokens and map stay where they are."""
    page = open_page(encoder_site.folder / HEAD, viewport={"width": 360, "height": 700})
    page.locator(".exemplar summary").first.click()
    tokens(page, "queries").nth(1).click()
    parts = [page.locator(part) for part in (".tokens.queries", ".tokens.keys", "canvas.cells")]
    script = "(part) => { const {x, y} = part.getBoundingClientRect(); return [x, y + scrollY]; }"
    before = [part.evaluate(script) for part in parts]
    for token in tokens(page, "queries").all():
        token.hover()
        assert [part.evaluate(script) for part in parts] == before


def test_theme_redraws_the_lines(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / HEAD, color_scheme="light")
    page.locator(".exemplar summary").first.click()
    canvas = page.locator(".between canvas")
    drawn = "(canvas) => canvas.toDataURL()"
    light = canvas.evaluate(drawn)
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
    page.wait_for_timeout(100)
    assert canvas.evaluate(drawn) != light


def test_a_map_whose_numbers_are_not_there_yet_waits(encoder_site: Site, open_page: Open) -> None:
    """Keys and the pointer may come before them; `open_page` sees that no script complains."""
    page = open_page(encoder_site.folder / HEAD)
    page.evaluate(EARLY)
    page.locator(".exemplar summary").first.click()
    expect(page.locator("body")).to_have_attribute("data-early", "1")
    page.locator("canvas.cells").press("ArrowDown")
    expect(page.locator(".exemplar [data-status]").first).to_contain_text("attends to")
