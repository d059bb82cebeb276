"""Every kind of page as its file is written: what it shows before scripts, and without them."""

from collections.abc import Callable

import pytest

from browser_plain import plain
from sites import Site

pytestmark = pytest.mark.slow

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
    ("encoder", "heads.html"): (".minis a", "table.finding", "ul.questions"),
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
    ("encoder", "syntax.html"): ("figure.lead svg.pl", "details.fold"),
    ("encoder", "patterns.html"): ("ul.head-maps .map", "figure.lead svg.pl", "table.heat"),
    ("encoder", "depth.html"): ("figure.lead svg.pl", "table.numbers"),
    ("encoder", "outputs.html"): ("figure.lead svg.pl", "table.heat"),
    ("encoder", "importance.html"): ("figure.lead", "table.all-heads", "svg.pl"),
    ("encoder", "similar.html"): ("details.fold", "ul.head-maps .map"),
    ("encoder", "geometry.html"): ("figure.lead .plot svg", "#mixing svg"),
    ("encoder", "tokens.html"): ("figure.lead .plot svg", "table.heat"),
    ("encoder", "methods.html"): ("#rules", "section summary"),
    ("encoder", "data.html"): (".lead table", ".lead td", "main details"),
    ("encoder", "about.html"): ("pre",),
    ("encoder", "404.html"): ("main a",),
    ("circuit", "circuits.html"): (
        ".feeds .plot svg",
        "svg.walk",
        "table.all-heads",
        "table.wrote",
        "figure.lead svg.pl",
    ),
    ("circuit", "heads/L01-H01.html"): (".writes table.wrote", ".writes table.listed"),
    ("pair", "index.html"): (".claims", "table.wall", "ul.later"),
    ("pair", "alignment.html"): ("table.numbers", "figure.chart svg"),
    ("pair", "heads/cross-L00-H01.html"): (
        ".mean .map",
        ".strongest .looking .text",
        ".strongest .looked .text",
    ),
    ("pair", "sentences/0001.html"): (".maps img", "[data-others] li"),
}

Where = Callable[[str], Site]


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Where:
    """The site of a kind."""
    return lambda kind: request.getfixturevalue(f"{kind}_site")


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _ in PARTS))
def test_every_kind_of_page_is_complete_without_scripts(where: Where, kind: str) -> None:
    """But for what waits in closed details, which open without scripts."""
    for (site, path), parts in PARTS.items():
        if site != kind:
            continue
        page = plain(where(kind).folder / path)
        for part in ("h1", *parts):
            nodes = [node for node in page.all(part) if not node.is_folded]
            assert nodes, (path, part)
            assert all(node.shows_something and not node.is_hidden for node in nodes), (path, part)
        for control in ("button", "select", ".js"):
            assert all(node.is_hidden for node in page.all(control)), (path, control)


MENU = ["Overview", "Heads", "Sentences", "Tokens", "Analyses", "Methods"]
MARKED = {
    "index.html": ["Overview"],
    "heads/L00-H01.html": ["Heads"],
    "sentences/0001.html": ["Sentences"],
    "tokens.html": ["Tokens"],
    "geometry.html": ["Analyses", "How words travel"],
    "metrics/attention_to.html": ["Analyses", "All metrics"],
    "data.html": ["Methods"],
}


@pytest.mark.parametrize("path", MARKED)
def test_the_menu_marks_the_page_and_opens_without_scripts(encoder_site: Site, path: str) -> None:
    page = plain(encoder_site.folder / path)
    entries = page.all(".top nav > ul > li > a, .top nav summary")
    assert [node.text.strip() for node in entries] == MENU
    assert [node.text for node in page.all(".top [aria-current]")] == MARKED[path]
    drop = page.one(".drop")
    assert drop.tag == "details" or drop.all("details")
    assert page.all(".drop a")
    assert not any(node.is_hidden for node in (*page.all(".drop summary"), *page.all(".drop a")))
    assert page.one(".search").is_hidden


def test_layout_follows_the_size_of_letters(encoder_site: Site) -> None:
    """Where letters are twice as large, a window counts as half as wide."""
    style = (encoder_site.folder / "assets/site.css").read_text(encoding="utf-8")
    assert not [rule for rule in style.split("@media")[1:] if "px" in rule.partition("{")[0]]
