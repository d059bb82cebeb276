"""Choosing, filtering, themes and the keyboard, in a browser."""

import pytest
from playwright.sync_api import Page, expect

from browser import DARK, LIGHT, Open, background, each, sideways
from html_pages import data_file
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_theme_is_remembered_and_letters_grow_as_a_reader_sets_them(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "index.html", color_scheme="dark")
    switch = page.get_by_role("button", name="Theme")
    for theme, colour in (("system", DARK), ("light", LIGHT), ("dark", DARK), ("system", DARK)):
        expect(switch).to_have_text(f"Theme: {theme}")
        assert background(page) == colour
        switch.click()
    page.get_by_role("link", name="Methods", exact=True).click()
    expect(page.locator("h1")).to_have_text(METHODS)
    expect(switch).to_have_text("Theme: light")
    assert background(page) == LIGHT
    page.emulate_media(color_scheme="light")
    switch.click()
    assert background(page) == DARK
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate("getComputedStyle(document.body).fontSize") == "32px"


def test_analyses_open_and_close_by_click_and_escape(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html")
    summary, links = page.locator(".drop summary"), page.locator(".drop a")
    expect(links.first).to_be_hidden()
    summary.click()
    expect(links.first).to_be_visible()
    page.locator("main").click(position={"x": 5, "y": 5})
    expect(links.first).to_be_hidden()
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    page.keyboard.press("Escape")
    expect(links.first).to_be_hidden()
    expect(summary).to_be_focused()
    page.set_viewport_size({"width": 390, "height": 800})
    summary.click()
    for link in links.all():
        displayed = link.bounding_box()
        assert displayed
        assert displayed["x"] >= 0
        assert displayed["x"] + displayed["width"] <= 390
    links.last.click()
    expect(page.locator("h1")).to_have_text("Which numbers are there?")


def test_contents_stay_in_sight_and_mark_what_is_read(encoder_site: Site, open_page: Open) -> None:
    """Beside the page where it is wide, else in a row above it, never over what they lead to."""
    page = open_page(encoder_site.folder / "methods.html", reduced_motion="reduce")
    contents = page.get_by_role("navigation", name="On this page")
    first = contents.locator("a").first.inner_text()
    expect(contents.locator("[aria-current]")).to_have_text(first)
    for width, top in ((1440, 68), (800, 52), (390, 0)):
        assert sideways(page, width) == 0
        for name in ("checks", "views"):
            contents.locator(f'a[href$="#{name}"]').click()
            marked = contents.locator("[aria-current]")
            expect(marked).to_have_attribute("href", f"#{name}")
            expect(marked).to_be_in_viewport()
            box, heading = contents.bounding_box(), page.locator(f"#{name}").bounding_box()
            assert box
            assert heading
            assert box["y"] == top
            beside = heading["x"] + heading["width"] <= box["x"]
            assert beside or box["y"] + box["height"] <= heading["y"]
            assert beside == (width == 1440)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(contents.locator("[aria-current]")).to_have_attribute("href", "#run")
    page.evaluate("scrollTo(0, 0)")
    expect(contents.locator("[aria-current]")).to_have_attribute("href", "#rules")


METHODS = "How are the numbers made, and when should they be trusted?"
TILES = {
    "patterns.html": ".head-maps:not(.s96)",
    "sentences/0001.html": ".over",
    "heads/L00-H01.html": ".near",
}
TOPS = "(links) => links.map((link) => link.getBoundingClientRect().y)"


def test_pictures_of_heads_are_one_tab_stop(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "404.html")
    for path, tiles in TILES.items():
        page.goto((encoder_site.folder / path).as_uri())
        box = page.locator(tiles).first
        box.evaluate("(box) => box.closest('details')?.setAttribute('open', '')")
        assert not each(box.locator("a.n"), "tabindex").count("0")
        links = box.locator("a:not(.n), button")
        links.nth(1).wait_for()
        assert links.count() > 1
        stops = each(links, "tabindex")
        assert (stops.count("0"), stops.count("-1")) == (1, len(stops) - 1)
        links.first.focus()
        for key, position in (("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowLeft", 0)):
            page.keyboard.press(key)
            expect(links.nth(position)).to_be_focused()
        rows = {round(y) for y in links.evaluate_all(TOPS)}
        if len(rows) > 1:
            columns = sum(round(y) == min(rows) for y in links.evaluate_all(TOPS))
            page.keyboard.press("ArrowDown")
            expect(links.nth(columns)).to_be_focused()
        page.keyboard.press("Tab")
        assert not box.evaluate("box => box.contains(document.activeElement)")


def outline(page: Page) -> tuple[str, str]:
    """How the element with the focus is marked."""
    script = "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
    style, width = page.evaluate(f"{script}(getComputedStyle(document.activeElement))")
    return style, width


def test_keyboard_leads_from_the_overview_to_a_head_and_past_its_navigation(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "index.html")
    cell = page.locator("[data-wall] td a").first
    for _ in range(80):
        page.keyboard.press("Tab")
        assert outline(page) == ("solid", "3px")
        if cell.evaluate("cell => cell === document.activeElement"):
            break
    expect(cell).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Head L0·H0")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).not_to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    assert outline(page) == ("solid", "3px")
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("main a").first).to_be_focused()


def test_a_type_is_found_by_part_of_its_name_whatever_its_case(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "tokens.html")
    page.locator("#all summary").click()
    types = data_file(encoder_site.folder / "data" / "types.js")[1]["self"]
    body = page.locator("#all tbody")
    still = body.all_inner_texts()
    search = page.get_by_label("Find a token")
    search.fill("O")
    wanted = [row for row in types if "o" in row[0].lower()]
    assert 0 < len(wanted) < len(types)
    expect(page.get_by_role("status").first).to_have_text(f"{len(wanted)} of {len(types)} types")
    rows = [row.locator("th, td").all_text_contents() for row in body.locator("tr").all()]
    assert rows == wanted
    search.fill("")
    expect(page.get_by_role("status").first).to_have_text("")
    assert body.all_inner_texts() == still
