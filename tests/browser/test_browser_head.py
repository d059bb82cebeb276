"""The page of a head in a browser: what stands on its first screen, and what opens in place."""

import re
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import expect

from browser import Open, Record, sideways
from browser_plain import plain
from html_pages import html_of
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = "heads/L00-H01.html"
TOP = "(element) => element.getBoundingClientRect().top + scrollY"
BOXES = """(parts) => parts.map((part) =>
  document.querySelector(part).getBoundingClientRect().toJSON())"""
SIDE_BY_SIDE = ((1440, 3), (1200, 3), (1024, 2), (390, 1))  # widths, and parts in a row there
BOTTOM = "(element) => element.getBoundingClientRect().bottom + scrollY"


@pytest.mark.parametrize(
    ("kind", "path"), [("encoder", HEAD), ("decoder", HEAD), ("pair", "heads/cross-L00-H01.html")]
)
def test_sentence_map_flow_and_exemplars_stand_on_the_first_screen(
    request: pytest.FixtureRequest, open_page: Open, kind: str, path: str
) -> None:
    """Of 1440 by 900; on a phone the map does, and the first exemplar on the second or before."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / path)
    page.set_viewport_size({"width": 1440, "height": 900})
    flow = [".fromto"] if page.locator(".fromto").count() else []
    evidence = [".evid p"] if page.locator(".evid p").count() else []
    for part in [".role", *evidence, ".mean .map", *flow, ".exemplar"]:
        assert page.locator(part).first.evaluate(BOTTOM) <= 900, part
    page.set_viewport_size({"width": 390, "height": 844})
    (box,) = page.evaluate(BOXES, [".mean .map"])
    assert box["width"] >= 200
    assert box["bottom"] <= 844
    assert page.locator(".exemplar").first.evaluate(TOP) <= 2 * 844
    for width, beside in SIDE_BY_SIDE if kind == "encoder" else ():
        page.set_viewport_size({"width": width, "height": 900})
        parts = (".first > .mean", ".first > .fromto", ".first > .strongest")
        tops = [page.locator(part).evaluate(TOP) for part in parts]
        assert tops.count(tops[0]) == beside, width
        assert sideways(page, width) == 0


def test_an_exemplar_opens_in_sight_in_every_window_and_in_the_address(
    encoder_site: Site, open_page: Open, record: Record
) -> None:
    """It takes the whole width, below the map that it stood beside; closed, it is gone."""
    page = open_page(encoder_site.folder / HEAD, viewport={"width": 1440, "height": 700})
    summary = page.locator(".strongest .exemplar summary").first
    summary.click()
    canvas = page.locator(".strongest canvas.cells").first
    expect(canvas).to_be_in_viewport(ratio=0.9)
    expect(summary).to_be_in_viewport()
    page.locator(".weights tbody tr").first.wait_for()
    page.set_viewport_size({"width": 1440, "height": 900})
    boxes = page.evaluate(BOXES, [".twice", "canvas.cells", ".side"])
    lefts = [box["x"] for box in boxes]
    rights = [box["x"] + box["width"] for box in boxes]
    assert lefts[1] >= rights[0]
    assert lefts[2] >= rights[1]
    assert max(box["y"] for box in boxes) - min(box["y"] for box in boxes) < 5
    page.locator("details:has(> summary #numbers) > summary").click()
    for width in (390, 800, 1440):
        assert sideways(page, width) == 0
    record.check()
    summary.click()
    article = page.locator('[data-map="strongest-2"]')
    article.locator("summary").click()
    expect(page).to_have_url(re.compile("at=strongest-2"))
    page.reload()
    expect(article.locator("details")).to_have_attribute("open", "")
    article.locator("canvas.cells").wait_for()
    article.locator("summary").click()
    expect(page).not_to_have_url(re.compile("at="))
    assert "at" not in parse_qs(urlparse(page.url).fragment)


def test_a_keyboard_an_address_and_a_reader_of_everything_open_exemplars(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / HEAD)
    page.locator(".exemplar summary").first.focus()
    page.keyboard.press("Enter")
    page.locator("canvas.cells").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.exemplar') !== null")
    place = page.locator('[data-map^="median-"]').first.get_attribute("data-map")
    page.goto(f"{(encoder_site.folder / HEAD).as_uri()}#at={place}")
    page.reload()
    article = page.locator(f'[data-map="{place}"]')  # in a section that was closed
    article.locator("canvas.cells").wait_for()
    expect(article).to_be_in_viewport()
    page.evaluate("for (const e of document.querySelectorAll('main details')) e.open = true")
    expect(page.locator("canvas.cells")).to_have_count(page.locator(".exemplar").count())
    expect(page.locator("[data-later]:empty")).to_have_count(0)


def test_numbers_come_where_a_reader_opens_them(encoder_site: Site, open_page: Open) -> None:
    """All of them, with links that lead where they should."""
    page = open_page(encoder_site.folder / HEAD)
    part = page.locator("details:has(> summary #numbers)")
    assert part.locator("table").count() == 0
    part.locator("> summary").click()
    part.locator("table").first.wait_for()
    whole = html_of(encoder_site.folder / HEAD)
    tables = re.findall(r'<table class="numbers all">.*?</table>', whole, re.DOTALL)
    assert part.locator("tbody tr").count() == sum(t.count('<tr><th scope="row">') for t in tables)
    part.locator("tbody a").first.click()
    expect(page).to_have_url(re.compile(r"/metrics/\w+\.html"))
    expect(page.locator("h1")).to_be_visible()


def test_without_scripts_weights_and_maps_can_be_read(encoder_site: Site) -> None:
    page = plain(encoder_site.folder / HEAD)
    article = page.one(".exemplar")
    for node in (article.one(".links li"), article.one("img.map"), page.one(".strips svg")):
        assert node.shows_something
        assert not node.is_hidden
    assert article.one("summary").shows_something
