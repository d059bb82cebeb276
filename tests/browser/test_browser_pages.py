"""Every kind of page in a browser, opened from disk: quiet, readable, accessible, printable."""

from collections.abc import Callable

import pytest

from browser import DARK, LIGHT, Open, Record, background, cramped, sideways, violations
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

# What a page of each kind must show, scripts or not, beside its heading.
PARTS = {
    ("encoder", "index.html"): (
        ".claims",
        "table.roll",
        "table.wall",
        "section.family .map",
        "#who",
        "ul.later",
    ),
    ("encoder", "heads.html"): (".minis a", "table.finding", "ul.questions", "figure.chart svg"),
    ("encoder", "heads/L00-H01.html"): (
        ".mean .map",
        ".flows",
        ".byoffset svg",
        ".strongest .exemplar .text",
        ".strips svg.strip",
        "details.more > summary",
    ),
    ("encoder", "metrics/attention_distance.html"): (".plot .pl", "table.all-heads"),
    ("encoder", "metrics/attention_to.html"): (
        "table.all-heads",
        "table.by-label",
    ),
    ("encoder", "metrics/cosine_to_input.html"): ("table.numbers", ".plot .pl"),
    ("encoder", "metrics/index.html"): ("#metrics li",),
    ("encoder", "sentences/0001.html"): (
        ".maps img",
        "[data-ranked] li",
        "table.nearest",
    ),
    ("encoder", "sentences/index.html"): ("ol.sentences",),
    ("encoder", "speech.html"): ("figure.lead svg.pl", "table.tags", "details.fold"),
    ("encoder", "syntax.html"): (".relation-rows li", "figure.lead svg.pl", "details.fold"),
    ("encoder", "patterns.html"): ("ul.thumbs .map", "figure.lead svg.pl", "table.heat"),
    ("encoder", "importance.html"): (".effects", "table.effects-map", ".plot .pl"),
    ("encoder", "similar.html"): (".cells image", "details.fold", "aside .map", ".alone .map"),
    ("encoder", "geometry.html"): ("figure.lead .plot svg", "#mixing svg", "#space svg"),
    ("encoder", "tokens.html"): (".fates .plot svg", "table.heat"),
    ("encoder", "methods.html"): ("#rules", "section summary"),
    ("encoder", "data.html"): (".origin-row", "tr .number", "main details"),
    ("encoder", "about.html"): ("pre",),
    ("encoder", "404.html"): ("main a",),
    ("circuit", "circuits.html"): (
        ".feeds .plot svg",
        "svg.walk",
        "table.copymap",
        "table.wrote",
        "figure.lead svg.pl",
    ),
    ("circuit", "heads/L01-H01.html"): (".writes table.wrote", ".writes table.listed"),
    ("pair", "index.html"): (".claims", "table.wall", "ul.who svg", "ul.later"),
    ("pair", "alignment.html"): ("table.aligned", "figure.alignment svg", "figure.alignment img"),
    ("pair", "heads/cross-L00-H01.html"): (
        ".mean .map",
        ".strongest .looking .text",
        ".strongest .looked .text",
    ),
    ("pair", "sentences/0001.html"): (".maps img", "[data-others] li"),
}
KINDS = [*PARTS]
# The pages with charts, tables, tokens and maps; the others wait for the slow round.
QUICK = {"index.html", "heads/L00-H01.html", "metrics/attention_distance.html"}
QUICK |= {"sentences/0001.html"}
QUICK_OR_SLOW = [
    pytest.param(*kind, marks=[] if kind[0] == "encoder" and kind[1] in QUICK else pytest.mark.slow)
    for kind in KINDS
]
# Not in a part of closed details beside their summary.
OPEN = ":not(details:not([open]) > :not(summary), details:not([open]) > :not(summary) *)"
CONTRAST = "color-contrast"  # the one rule whose findings depend on the theme
WIDTHS = (360, 800, 1440)

Where = Callable[[str], Site]


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Where:
    """The site of a kind."""
    return lambda kind: request.getfixturevalue(f"{kind}_site")


@pytest.mark.parametrize(("kind", "path"), KINDS)
def test_every_kind_of_page_is_quiet_and_fits_its_window(
    where: Where, open_page: Open, record: Record, kind: str, path: str
) -> None:
    """In light and dark: an empty console, no request but for files, room for every text."""
    page = open_page(where(kind).folder / path, color_scheme="light")
    for width in WIDTHS:
        assert (sideways(page, width), cramped(page)) == (0, []), width
    assert background(page) == LIGHT
    page.emulate_media(color_scheme="dark")
    assert background(page) == DARK
    page.reload()
    assert background(page) == DARK
    assert any(address.endswith("assets/site.js") for address in record.requests)
    assert not any(address.endswith("assets/vega.js") for address in record.requests)
    record.check()


@pytest.mark.parametrize(("kind", "path"), QUICK_OR_SLOW)
def test_every_kind_of_page_is_complete_without_scripts(
    where: Where, open_page: Open, kind: str, path: str
) -> None:
    """But for what waits in closed details, which open without scripts."""
    page = open_page(where(kind).folder / path, java_script_enabled=False)
    for part in ("h1", *PARTS[kind, path]):
        locators = page.locator(f"{part}{OPEN}").all()
        assert locators, part
        boxes = [locator.bounding_box() for locator in locators]
        assert all(box and box["width"] > 8 and box["height"] > 8 for box in boxes), part
    for control in ("button", "select", ".js"):
        assert not any(locator.is_visible() for locator in page.locator(control).all()), control


@pytest.mark.parametrize(("kind", "path"), QUICK_OR_SLOW)
def test_axe_finds_nothing(where: Where, open_page: Open, kind: str, path: str) -> None:
    page = open_page(where(kind).folder / path, color_scheme="light")
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert background(page) == DARK
    assert violations(page, CONTRAST) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", ["heads/L00-H01.html", "sentences/0001.html"])
def test_axe_finds_nothing_about_maps_that_were_opened(
    encoder_site: Site, open_page: Open, path: str
) -> None:
    page = open_page(encoder_site.folder / path, color_scheme="dark")
    page.locator(".exemplar summary, .over button").first.click()
    page.locator("canvas.cells").first.press("ArrowDown")
    assert violations(page) == []
    assert sideways(page, 360) == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", ["index.html", "heads/L00-H01.html", "sentences/0001.html"])
def test_print_is_dark_on_white_without_controls(
    encoder_site: Site, open_page: Open, path: str
) -> None:
    page = open_page(encoder_site.folder / path, color_scheme="dark")
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()  # from the system's to dark
    assert background(page) == DARK
    page.emulate_media(media="print")
    assert background(page) == LIGHT
    for control in ("nav", "button:not(.words button, .roll button, .linklike)", "select", ".skip"):
        assert not any(locator.is_visible() for locator in page.locator(control).all()), control
    assert page.locator("h1").is_visible()
    assert page.pdf().startswith(b"%PDF")
