"""Attention views by keyboard and in every window, in a browser."""

import re
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Locator, Page, expect

from browser import DARK, Open, background, sideways, violations
from panels import switch, tokens
from sites import Site

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE, HEAD = "sentences/0001.html", "heads/L00-H01.html"
WIDTHS = (360, 800, 1440)
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


def tab_to(page: Page, target: Locator, most: int = 150) -> None:
    """Press Tab until something has the focus, and see that the focus shows."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if target.evaluate("(element) => element === document.activeElement"):
            style = "(element) => getComputedStyle(element).outlineStyle"
            visible = target.evaluate(style) != "none"
            marked = target.evaluate("(element) => element.closest('.sheet') !== null")
            assert visible or marked
            return
    raise AssertionError(f"Tab does not reach {target}")


def test_keyboard_leads_from_thumbnails_to_one_weight(encoder_site: Site, open_page: Open) -> None:
    """Tab and arrows, Enter on a thumbnail, arrows over tokens, Enter keeps, Escape lets go."""
    page = open_page(encoder_site.folder / SENTENCE)
    tab_to(page, page.get_by_role("link", name="L0·H0", exact=True).first)
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("link", name="L0·H2", exact=True).first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".maptitle")).to_have_text("L0·H2")
    looks, looked = page.locator(".tokens.queries"), page.locator(".tokens.keys")
    tab_to(page, looks)
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".pair")).to_contain_text("“man” (2) looks most at")
    active = looks.get_attribute("aria-activedescendant")
    assert tokens(page, "queries").nth(2).get_attribute("id") == active
    page.keyboard.press("Enter")
    assert parse_qs(urlparse(page.url).fragment)["q"] == ["2"]
    tab_to(page, looked)
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator(".pair")).to_contain_text("“man” (2) looks at “.” (7) with 0.")
    canvas = page.locator("canvas.cells")
    tab_to(page, canvas)
    page.keyboard.press("ArrowUp")
    expect(page.locator(".pair")).to_contain_text("“Fisher” (1) looks at “.” (7)")
    page.keyboard.press("Escape")
    expect(page.locator(".pair")).to_have_text("L0·H2: lines from every token.")
    assert "q" not in parse_qs(urlparse(page.url).fragment)
    tab_to(page, page.locator(".weights"))  # on to the next round


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


@pytest.mark.parametrize(
    "kind", ["encoder", *(pytest.param(k, marks=pytest.mark.slow) for k in ("decoder", "pair"))]
)
def test_open_views_fit_and_axe_finds_nothing(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / SENTENCE, color_scheme="light", reduced_motion="reduce")
    first = page.locator("[data-sheet] a").first
    first.click()
    page.get_by_label("Compare with").select_option(index=3)
    tokens(page, "queries").nth(2).click()
    switch(page, view="nosink")
    assert {width: sideways(page, width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert background(page) == DARK
    assert violations(page, "color-contrast") == []
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("document.getAnimations().length") == 0


def test_pointing_moves_nothing_that_is_pointed_at(encoder_site: Site, open_page: Open) -> None:
    """However long the sentence beside it: on a narrow page tokens and map stay where they are."""
    page = open_page(encoder_site.folder / SENTENCE, viewport={"width": 360, "height": 700})
    page.locator("[data-sheet] a").nth(2).click()
    tokens(page, "queries").nth(1).click()
    parts = [page.locator(part) for part in (".tokens.queries", ".tokens.keys", "canvas.cells")]
    script = "(part) => { const {x, y} = part.getBoundingClientRect(); return [x, y + scrollY]; }"
    before = [part.evaluate(script) for part in parts]
    for token in tokens(page, "queries").all():
        token.hover()
        assert [part.evaluate(script) for part in parts] == before


def test_theme_redraws_the_lines(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / SENTENCE, color_scheme="light")
    page.locator("[data-sheet] a").nth(1).click()
    canvas = page.locator(".between canvas")
    drawn = "(canvas) => canvas.toDataURL()"
    light = canvas.evaluate(drawn)
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
    page.wait_for_timeout(100)
    assert canvas.evaluate(drawn) != light


def test_a_map_whose_numbers_are_not_there_yet_waits(encoder_site: Site, open_page: Open) -> None:
    """Keys and the pointer may come before them; `open_page` sees that no script complains."""
    page = open_page(encoder_site.folder / SENTENCE)
    page.evaluate(EARLY)
    page.get_by_role("link", name="L0·H2", exact=True).first.click()
    expect(page.locator("body")).to_have_attribute("data-early", "1")
    page.locator("canvas.cells").press("ArrowDown")
    expect(page.locator("[aria-live=polite].told")).to_contain_text("looks at")
