"""Every kind of page in a browser, opened once from disk: quiet, accessible, and never too wide."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser import DARK, LIGHT, Open, Record, background, cramped, sideways, violations
from browser_views import ready, switch

pytest_plugins = ["browser_windows", "comparisons"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDTHS = (360, 390, 800, 1440)
ROWS = (701, 800, 1280, 1440)  # widths at which the menu is one row
HEADER = """() => {
  const box = (name) => document.querySelector(name).getBoundingClientRect();
  const { y, height } = box(".top"), ends = (name) => [box(name).left, box(name).right];
  const entries = [...document.querySelectorAll(".top nav > ul > li")];
  const rows = entries.map((entry) => Math.round(entry.getBoundingClientRect().y));
  return [[y, height], ends(".top nav"), ends(".search"), rows];
}"""
CONTRAST = "color-contrast"  # the one rule whose findings depend on the theme

Where = Callable[[str], Path]


def unfolded(page: Page, selector: str = "main details") -> None:
    """Open what can be opened, and wait for what comes then."""
    page.locator(selector).evaluate_all("(all) => all.forEach((e) => { e.open = true; })")
    expect(page.locator("[data-later]:empty")).to_have_count(0)


def overview(page: Page) -> None:
    """Point at a head, and open every claim."""
    page.locator(".theme").wait_for()
    page.locator("[data-wall] td a.map").nth(1).hover()
    unfolded(page)


def head(page: Page) -> None:
    """Open everything but further exemplars like the first, and walk in its map."""
    page.locator(".exemplar summary").first.click()
    page.locator("canvas.cells").first.press("ArrowDown")
    unfolded(page, "main details:not(.exemplar details), [data-map='median-1'] details")


def sentence(page: Page) -> None:
    """Open a head beside another, with special tokens masked."""
    ready(page).locator(".over button").first.click()
    page.get_by_label("Compare with").select_option(index=3)
    switch(page, view="nosink")
    page.locator(".dock canvas.cells").first.press("ArrowDown")


def figure_files(page: Page) -> None:
    """Open what stands under figures: entries for bibliographies and files."""
    for summary in page.locator(".tools summary:visible, .files summary:visible").all():
        summary.click()


def row(page: Page) -> None:
    """Open the row behind a number."""
    page.locator(".answer a.n").click()
    expect(page.locator(".behind-number")).to_be_visible()


def two_heads(page: Page) -> None:
    """Wait for the maps of two models, and open the numbers."""
    page.locator(".pairmap:last-of-type canvas.cells").first.wait_for()
    page.locator("#numbers ~ details > summary").first.click()


def two_sentences(page: Page) -> None:
    """Wait for the paths of two models."""
    page.locator(".sentencepair[data-ready]").wait_for()


def as_opened(page: Page) -> None:
    """Leave it."""
    page.locator("h1").wait_for()


# Address of a page of each kind, and what a reader opens there first.
PAGES: dict[str, dict[str, Callable[[Page], None]]] = {
    "encoder": {
        "index.html": overview,
        "heads.html": as_opened,
        "heads/L00-H01.html": head,
        "metrics/attention_distance.html": figure_files,
        "metrics/attention_to.html": as_opened,
        "metrics/cosine_to_input.html": as_opened,
        "metrics/index.html": as_opened,
        "sentences/0001.html": sentence,
        "sentences/index.html": as_opened,
        "speech.html": as_opened,
        "syntax.html": as_opened,
        "patterns.html": as_opened,
        "depth.html": as_opened,
        "outputs.html": as_opened,
        "importance.html": as_opened,
        "similar.html": as_opened,
        "geometry.html": as_opened,
        "tokens.html": as_opened,
        "data.html": row,
        "about.html": as_opened,
        "404.html": as_opened,
    },
    "decoder": {"index.html": overview, "sentences/0001.html": sentence},
    "circuit": {"circuits.html": as_opened, "heads/L01-H01.html": as_opened},
    "pair": {
        "index.html": overview,
        "alignment.html": as_opened,
        "heads/cross-L00-H01.html": as_opened,
        "sentences/0001.html": sentence,
    },
    "tuned": {
        "index.html": as_opened,
        "metrics/attention_to.html": as_opened,
        "matched.html": as_opened,
        "metrics/cosine_to_input.html": as_opened,
        "comparing.html": as_opened,
        "heads/L01-H01.html": two_heads,
        "sentences/0*.html": two_sentences,
    },
    "apart": {
        "index.html": as_opened,
        "metrics/attention_to.html": as_opened,
        "matched.html": as_opened,
        "metrics/cosine_to_input.html": as_opened,
        "heads/L01-H01.html": two_heads,
        "sentences/0*.html": two_sentences,
    },
    "trained": {
        "index.html": as_opened,
        "heads.html": as_opened,
        "steps/induction_score.html": as_opened,
        "data.html": as_opened,
    },
}


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Where:
    """The folder of a site by its kind."""

    def folder(kind: str) -> Path:
        if kind in {"tuned", "apart"}:
            compared: Path = request.getfixturevalue("compared")(kind).folder
            return compared
        if kind == "trained":
            run: Path = request.getfixturevalue("trained_run")
            return run / "site"
        site: Path = request.getfixturevalue(f"{kind}_site").folder
        return site

    return folder


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind in PAGES for path in PAGES[kind]])
def test_every_kind_of_page_is_quiet_accessible_and_fits_its_window(
    where: Where, open_page: Open, record: Record, kind: str, path: str
) -> None:
    """In dark and light: no complaint, no request but for files, room for every text."""
    page = open_page(min(where(kind).glob(path)), color_scheme="dark")
    assert background(page) == DARK
    PAGES[kind][path](page)
    assert violations(page) == []
    page.emulate_media(color_scheme="light")
    assert background(page) == LIGHT
    assert violations(page, CONTRAST) == []
    assert {width: sideways(page, width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0)
    assert {width: wider(page, width) for width in WIDTHS} == dict.fromkeys(WIDTHS, (0, []))
    if page.locator(".top .search").count():  # sites of comparisons have a short menu
        check_menu(page)
    page.emulate_media(color_scheme="dark")
    assert background(page) == DARK
    assert any(address.endswith("assets/site.js") for address in record.requests)
    record.check()


def wider(page: Page, width: int) -> tuple[int, list[str]]:
    """Unfold all parts of a page; by how much it is wider than a window, and what is squeezed."""
    sideways(page, width)
    squeezed = cramped(page)
    return sideways(page, width), squeezed


def check_menu(page: Page) -> None:
    """The menu is one row that stays at the top, beside the search, and never leaves the window."""
    for width in ROWS:
        assert sideways(page, width) == 0
        page.evaluate("scrollTo(0, 400)")
        (top, height), (_, nav), (search, _), rows = page.evaluate(HEADER)
        assert (top, height, len({*rows})) == (0, 52, 1)
        assert nav <= search
    assert sideways(page, 390) == 0
    box = page.locator(".top nav li").last.bounding_box()
    assert box is None or box["x"] + box["width"] <= 390
