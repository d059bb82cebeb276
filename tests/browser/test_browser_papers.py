"""What stands under figures, and pages on paper, in a browser."""

import re

import pytest
from playwright.sync_api import expect

from browser import LIGHT, Open, background
from headbook.pages.parts.page import SiteFacts
from headbook.site import latex
from headbook.site.figures import study_figures
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "attention_distance-self-heads"
WIDE = ("metrics/attention_distance.html", "heads/L00-H00.html", "speech.html", "syntax.html")
WIDTH = 670  # pixels of A4 without its margins
INK = "rgb(28, 31, 36)"


@pytest.mark.slow
def test_a_figures_address_and_entry_are_reached_by_keyboard(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "metrics/attention_distance.html")
    figure = page.locator(f"#{NAME}")
    link = figure.get_by_role("link", name="Permalink")
    link.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"#{NAME}$"))
    entry = figure.locator("pre")
    expect(entry).not_to_be_visible()
    link.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(entry).to_be_visible()
    study = encoder_site.study
    (drawn,) = (each for each in study_figures(study) if each.name == NAME)
    facts = SiteFacts.of(study.manifest, sentence_pages=True)
    assert entry.text_content() == latex.entry(drawn, facts, study.manifest.created[:4])


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1440])
def test_an_open_entry_keeps_to_the_page(encoder_site: Site, open_page: Open, width: int) -> None:
    page = open_page(encoder_site.folder / "metrics/attention_distance.html")
    page.set_viewport_size({"width": width, "height": 800})
    for summary in page.locator(".tools summary:visible, .files summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
@pytest.mark.parametrize("path", WIDE)
def test_paper_has_the_figures_whole_and_nothing_to_press(
    encoder_site: Site, open_page: Open, path: str
) -> None:
    """Dark themes, too, are printed in ink on white."""
    page = open_page(encoder_site.folder / path)
    page.set_viewport_size({"width": WIDTH, "height": 950})
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert background(page) != LIGHT
    page.emulate_media(media="print")
    assert background(page) == LIGHT
    for part in page.locator(".top nav, .steps, .tools, .files, button, select").all():
        expect(part).not_to_be_visible()
    opened = ":not(details:not([open]) *)"  # what a reader has not opened is not printed
    figures = ("figure.chart svg", "figure svg.pl", ".byoffset svg")
    pictures = page.locator(", ".join(f"{each}{opened}" for each in figures)).all()
    assert pictures
    for picture in pictures:
        box = picture.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= WIDTH
    link = page.locator("main p a, main li a").first
    assert link.evaluate("link => getComputedStyle(link).color") in {INK, "rgb(86, 93, 104)"}


BOXES = """() => [".between canvas", ".between", ".tokens.queries"].map((name) => {
  const { top, height, width } = document.querySelector(name).getBoundingClientRect();
  return [top, height, name === ".tokens.queries" ? 0 : width];
})"""


@pytest.mark.slow
def test_printed_lines_end_at_their_tokens(encoder_site: Site, open_page: Open) -> None:
    """Paper has smaller letters, and nothing draws the lines for it: they go with their tokens."""
    page = open_page(encoder_site.folder / "methods.html", alone=True)
    page.add_init_script("window.ResizeObserver = class { observe() {} }")
    page.goto((encoder_site.folder / "heads/L00-H01.html").as_uri())
    page.locator(".exemplar summary").first.click()
    page.locator(".between canvas").first.wait_for()
    page.evaluate("scrollTo(0, 600)")
    page.emulate_media(media="print")
    lines, between, tokens = page.evaluate(BOXES)
    assert lines == pytest.approx(between, abs=0.5)
    assert lines[:2] == pytest.approx(tokens[:2], abs=0.5)
    header = page.locator("header.top").bounding_box()
    assert header
    assert header["y"] < 0  # it stays at the top of the first sheet


@pytest.mark.slow
def test_scripts_draw_for_light_paper(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html", color_scheme="dark")
    page.get_by_role("button", name="Theme").click(click_count=2)
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(theme) == "light"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(theme) == "dark"
