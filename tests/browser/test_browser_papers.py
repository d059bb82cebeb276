"""Pages on paper, and the address and entry of a figure, in a browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from browser import DARK, LIGHT, Open, background
from headbook.pages.parts.page import SiteFacts
from headbook.site import latex
from headbook.site.figures import study_figures
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "attention_distance-self-heads"
FIGURES = ("figure.chart svg", "figure svg.pl", ".byoffset svg")
CONTROLS = (
    "nav, .steps, .tools, .files, .skip, select, button:not(.words button, .roll button, .linklike)"
)
# Pages, and whether they have figures and nothing at all to press.
PRINTED = {
    "metrics/attention_distance.html": True,
    "heads/L00-H01.html": True,
    "speech.html": True,
    "syntax.html": True,
    "index.html": False,
    "sentences/0001.html": False,
}
WIDTH = 670  # pixels of A4 without its margins
INK = "rgb(28, 31, 36)"
BOXES = """() => [".between canvas", ".between", ".tokens.queries"].map((name) => {
  const { top, height, width } = document.querySelector(name).getBoundingClientRect();
  return [top, height, name === ".tokens.queries" ? 0 : width];
})"""


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
    (drawn,) = (figure for figure in study_figures(study) if figure.name == NAME)
    facts = SiteFacts.of(study.manifest, sentence_pages=True)
    assert entry.text_content() == latex.entry(drawn, facts, study.manifest.created[:4])


@pytest.mark.parametrize("path", PRINTED)
def test_paper_has_the_figures_whole_and_nothing_to_press(
    encoder_site: Site, open_page: Open, path: str
) -> None:
    """A theme that a reader chose to be dark, too, is printed in ink on white."""
    page = open_page(encoder_site.folder / path, color_scheme="dark")
    page.set_viewport_size({"width": WIDTH, "height": 950})
    theme = "document.documentElement.dataset.theme"
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()  # from the system's to dark
    assert (page.evaluate(theme), background(page)) == ("dark", DARK)
    page.emulate_media(media="print")
    assert background(page) == LIGHT
    for control in page.locator(CONTROLS).all():
        expect(control).not_to_be_visible()
    expect(page.locator("h1")).to_be_visible()
    if PRINTED[path]:
        check_figures(page)
    assert page.pdf().startswith(b"%PDF")
    for event, colour in (("beforeprint", "light"), ("afterprint", "dark")):
        page.evaluate("(event) => window.dispatchEvent(new Event(event))", event)
        assert page.evaluate(theme) == colour  # scripts draw for light paper


def check_figures(page: Page) -> None:
    """Figures keep to the paper, links are of ink, and nothing can be pressed."""
    for control in page.locator("button").all():
        expect(control).not_to_be_visible()
    unfolded = ":not(details:not([open]) *)"  # what a reader has not opened is not printed
    pictures = page.locator(", ".join(f"{figure}{unfolded}" for figure in FIGURES)).all()
    assert pictures
    for picture in pictures:
        box = picture.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= WIDTH
    link = page.locator("main p a, main li a").first
    assert link.evaluate("link => getComputedStyle(link).color") in {INK, "rgb(86, 93, 104)"}


def test_printed_lines_end_at_their_tokens(encoder_site: Site, open_page: Open) -> None:
    """Paper has smaller letters, and nothing draws the lines for it: they go with their tokens."""
    page = open_page(encoder_site.folder / "404.html", alone=True)
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
