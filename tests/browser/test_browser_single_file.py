"""A site in one file in a browser, opened from disk: where it differs from the folder.

Pages, their data, links, files and addresses all come from the one file; what pages show is
compared with the folder, whose tests say what that must be.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from browser import LIGHT, WIDE, Open, Record, Windows, background, each, sideways, violations
from browser_plain import plain
from browser_views import choose, ranked
from headbook.resources import folder
from headbook.site.archive import pack
from headbook.site.markup import gzipped
from html_pages import html_of, ids
from sites import Once, Site, data_of

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "report.html"
METHODS = "How are the numbers made, and when should they be trusted?"
WIDTHS = (360, 800, 1440)
AWAKE = "body[data-root='#/'] > .top .theme"  # not hidden once the scripts of a page have run
REST = """() => new Promise((done) => {
  let timer = setTimeout(done, 250);
  const later = () => { clearTimeout(timer); timer = setTimeout(done, 250); };
  const all = { subtree: true, childList: true, attributes: true };
  new MutationObserver(later).observe(document, all);
})"""  # a quarter of a second without a change


@pytest.fixture(scope="session")
def one_file(once: Once) -> Callable[[Site], Path]:
    """A site in one file, made once for all workers."""

    def made(site: Site) -> Path:
        name = f"{site.kind}-one-file"
        fill = lambda draft: pack(site.folder, draft / NAME, single_file=True)  # noqa: E731
        return once(name, fill) / NAME

    return made


@pytest.fixture
def open_page(windows: Windows, record: Record, one_file: Callable[[Site], Path]) -> Iterator[Open]:
    """Open a page of the folder in the one file instead; in the end nothing may have complained."""
    taken = []

    def opened(file: Path, **options: Any) -> Page:
        folder = next(parent for parent in file.parents if parent.name == "site")
        site = Site(folder.parent.name.removesuffix("-site"), folder.parent)
        taken.append(page := windows.take(**options))
        record.observe(page)
        page.goto(f"{one_file(site).as_uri()}#/{file.relative_to(folder).as_posix()}")
        if options.get("java_script_enabled", True):
            page.locator(AWAKE).wait_for()
        return page

    yield opened
    for page in taken:
        record.leave(page)
        windows.give_back(page)
    record.check()
    assert {Path(urlsplit(address).path).name for address in record.requests} == {NAME}


def paths(site: Site) -> list[str]:
    """The pages of a site; of those whose names differ in numbers alone, the first two."""
    found = defaultdict[str, list[str]](list)
    for page in site.pages:
        path = page.relative_to(site.folder).as_posix()
        found[re.sub(r"\d+", "", path)].append(path)
    return [path for same in found.values() for path in same[:2]]


def go(page: Page, path: str) -> None:
    """Go to another page of the one file."""
    page.evaluate(
        "(hash) => { document.body.dataset.old = ''; location.hash = hash; }", f"#/{path}"
    )
    page.locator("body:not([data-old])").wait_for()


def seen(page: Page) -> list[object]:
    """What a page shows: title, text, places of elements, and how large pictures are."""
    pictures = "(found) => found.map((each) => [each.naturalWidth, each.naturalHeight])"
    boxes = "(found) => found.map((each) => [each.tagName, each.getBoundingClientRect().top])"
    return [
        page.title(),
        page.locator("body").inner_text(),
        page.locator("img").evaluate_all(pictures),
        page.locator("main *:not(noscript *)").evaluate_all(boxes),
    ]


def test_every_kind_of_page_shows_what_it_shows_in_the_folder(
    small_site: Site, open_page: Open, chromium: Browser
) -> None:
    one = open_page(small_site.folder / "index.html")
    other = chromium.new_page(viewport={"width": WIDE["width"], "height": WIDE["height"]})
    for path in paths(small_site):
        go(one, path)
        other.goto((small_site.folder / path).as_uri())
        other.locator("a[href$='.pdf']").evaluate_all("(all) => all.forEach((a) => a.remove())")
        if path == "data.html":  # which says what was left out
            one.locator("h1 + .warnings").evaluate("(note) => note.remove()")
        if path.startswith("sentences/0"):  # whose data comes after the page
            same(one, other)
        assert seen(one) == seen(other), path
    other.close()


def same(one: Page, other: Page) -> None:
    """Wait until pages that are at rest show the same, or have had time for it."""
    for _ in range(10):
        for page in (one, other):
            page.evaluate(REST)
        if seen(one) == seen(other):
            return


def test_every_link_leads_to_a_page_or_a_file_that_is_there(
    any_site: Site, open_page: Open
) -> None:
    """And to a place in it; what was left out is no link where all files are listed."""
    page = open_page(any_site.folder / "index.html", color_scheme="light")
    places = cache(lambda target: {*ids(html_of(target))})
    for path in paths(any_site):
        go(page, path)
        for href in {*each(page.locator("a[href]:not(.skip)"), "href")}:
            if re.match("https://(doi|arxiv).org/", href):
                continue
            name, _, place = href.removeprefix("#/").partition("#")
            target = any_site.folder / name.partition("?")[0]
            assert href.startswith("#/"), href
            assert target.is_file(), href
            assert not place or "=" in place or place in places(target), href
        left = page.locator("main a:not([href])")
        assert (left.count() > 0) == (path == "data.html")
        texts = left.all_text_contents()
        assert all(text.endswith((".gz", ".parquet")) for text in texts)
        if any_site.kind == "encoder" and path == "data.html":  # which differs from the folder's
            widths = {width: sideways(page, width) for width in WIDTHS}
            assert widths == dict.fromkeys(WIDTHS, 0)
            assert violations(page) == []


def test_back_returns_to_the_page_its_view_and_its_place(
    encoder_site: Site, open_page: Open
) -> None:
    """Steps of a reader, in the history of the one file; a reload keeps them, too."""
    page = open_page(encoder_site.folder / "heads.html")
    page.get_by_label("Filter by words").fill("L01")
    displayed = page.locator("[data-count]").inner_text()
    page.locator("table.finding tbody th a").last.scroll_into_view_if_needed()
    assert page.evaluate("scrollY") > 0
    page.locator("table.finding tbody th a").last.click()
    expect(page.locator("h1")).to_contain_text("Head L1")
    assert page.evaluate("scrollY") == 0
    page.locator("[data-switch=view]").first.select_option("renorm")
    assert re.search(r"#/heads/L01-H\d\d\.html#.*view=renorm", page.url)
    address = page.url
    page.go_back()  # to the choice before
    page.go_back()
    expect(page.locator("h1")).to_have_text("What does each head do?")
    expect(page.locator("[data-count]")).to_have_text(displayed)
    page.go_forward()
    page.go_forward()
    expect(page.locator("[data-switch=view]").first).to_have_value("renorm")
    assert page.url == address
    page.reload()
    expect(page.locator("[data-switch=view]").first).to_have_value("renorm")
    assert page.url == address
    go(page, "methods.html")
    page.evaluate("scrollTo(0, 500)")
    page.locator("nav a").first.evaluate("(link) => link.click()")
    page.locator("[data-wall]").first.wait_for()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(page.locator("h1")).to_have_text(METHODS)
    assert page.evaluate("scrollY") == 500


def test_keys_search_data_and_theme_go_from_page_to_page(
    encoder_site: Site, open_page: Open
) -> None:
    """A reader sets a theme, finds a sentence by keys, and follows an exemplar to its weight."""
    page = open_page(encoder_site.folder / "index.html", color_scheme="dark")
    switch = page.get_by_role("button", name="Theme")
    switch.click()
    assert background(page) == LIGHT
    page.keyboard.press("/")
    search = page.get_by_role("combobox", name="Search this site")
    expect(search).to_be_focused()
    page.locator("[data-finder][data-ready]").wait_for()
    search.fill("sentence 2")
    expect(page.locator("#found-count")).not_to_be_empty()
    search.press("ArrowDown")
    search.press("Enter")
    expect(page).to_have_url(re.compile("sentences/0002.html$"))
    expect(switch).to_have_text("Theme: light")
    assert background(page) == LIGHT
    choose(page, "L1·H2")
    address = page.url
    before = ranked(page)
    page.reload()
    expect(page.locator(".dock [data-title]")).to_have_text("L1·H2")
    assert (page.url, ranked(page)) == (address, before)
    go(page, "heads/L00-H01.html")
    article = page.locator(".exemplar").filter(has=page.locator("header a")).first
    article.locator("summary").click()
    reported = re.compile(r"“(.+)” \((\d+)\) attends to “(.+)” \((\d+)\) with ([01]\.\d+)\.$")
    expect(article.locator(".pair")).to_have_text(reported)
    match = reported.search(article.locator(".pair").text_content() or "")
    assert match is not None
    query, q, key, k, weight = match.groups()
    article.locator("header a").first.click()
    expect(page.locator(".dock [data-title]")).to_have_text("L0·H1")
    status = f"{q} {query} attends to {k} {key}: {weight}"
    expect(page.locator(".dock .status")).to_have_text(status)


def test_numbers_and_rows_are_those_of_the_folder(encoder_site: Site, open_page: Open) -> None:
    """Folded numbers, types of tokens and saved files."""
    page = open_page(encoder_site.folder / "heads/L00-H01.html")
    numbers = page.locator("details:has(> summary #numbers)")
    assert numbers.locator("table").count() == 0
    numbers.locator("> summary").click()
    numbers.locator("table").first.wait_for()
    whole = html_of(encoder_site.folder / "heads/L00-H01.html")
    tables = re.findall(r'<table class="numbers all">.*?</table>', whole, re.DOTALL)
    rows = sum(table.count('<tr><th scope="row">') for table in tables)
    assert numbers.locator("tbody tr").count() == rows
    numbers.locator("tbody a").first.click()
    expect(page).to_have_url(re.compile(r"/metrics/\w+\.html"))
    go(page, "tokens.html")
    page.locator("#all summary").first.click()
    types = data_of(encoder_site, "types")["self"]
    page.get_by_label("Find a token").fill("O")
    wanted = [row for row in types if "o" in row[0].lower()]
    expect(page.get_by_role("status").first).to_have_text(f"{len(wanted)} of {len(types)} types")
    go(page, "metrics/attention_distance.html")
    for suffix in ("SVG", "CSV"):
        link = page.get_by_role("link", name=suffix, exact=True).first
        name = each(link, "href")[0].removeprefix("#/")
        with page.expect_download() as saved:
            link.click()
        assert saved.value.suggested_filename == Path(name).name
        assert saved.value.path().read_bytes() == (encoder_site.folder / name).read_bytes()
    assert page.get_by_role("link", name="PDF").count() == 0


def test_addresses_of_no_pages_and_listeners_that_end(encoder_site: Site, open_page: Open) -> None:
    """A page that is come back to answers once."""
    page = open_page(encoder_site.folder / "index.html")
    missing = plain(encoder_site.folder / "404.html").one("h1").text
    go(page, "heads/L99-H99.html")
    expect(page.locator("h1")).to_have_text(missing)
    switch = page.get_by_role("button", name="Theme")
    for _ in range(3):
        go(page, "methods.html")
        go(page, "index.html")
    expect(switch).to_have_text("Theme: system")
    switch.click()
    expect(switch).to_have_text("Theme: light")
    page.locator("[data-wall] td a").first.hover()
    expect(page.locator("[data-say-wall]")).to_contain_text("L0·H0")
    page.locator(".roll [data-i='1']").hover()
    expect(page.locator(".roll [data-i='1']")).to_have_attribute("aria-pressed", "true")


def test_the_overview_can_be_read_without_scripts(
    encoder_site: Site, one_file: Callable[[Site], Path]
) -> None:
    page = plain(one_file(encoder_site))
    assert "need scripts" in page.one("noscript, .warnings").text
    for part in ("h1", ".claims", "table.roll", "table.wall", "#who"):
        assert page.one(part).shows_something
        assert not page.one(part).is_hidden


def test_what_is_compressed_opens(chromium: Browser) -> None:
    """Nothing, what repeats, and what never does."""
    noise = np.random.default_rng(0).bytes(70_000)
    page = chromium.new_page()
    page.add_script_tag(content=html_of(folder("templates") / "assets/gunzip.js"))
    for content in (b"", b"a", noise, b"a" * 90_000 + noise[:300] * 9):
        opened = page.evaluate("async (text) => [...await unpack(text)]", gzipped(content))
        assert bytes(opened) == content
    page.close()


def test_a_browser_that_opens_no_gzip_says_which_do(
    encoder_site: Site, one_file: Callable[[Site], Path], chromium: Browser
) -> None:
    """In the folder a page without its data stays; the one file shows the overview in it."""
    for file in (encoder_site.folder / "heads.html", one_file(encoder_site)):
        page = chromium.new_page()
        page.add_init_script("delete window.DecompressionStream")
        page.goto(file.as_uri())
        expect(page.locator("main > [role=alert]")).to_contain_text("Safari 16.4, Firefox 113")
        expect(page.locator("h1")).to_be_visible()
        page.close()
