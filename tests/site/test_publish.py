"""A published site: below any path, with a picture for links, and addresses if they are known."""

import functools
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser

import headbook
from browser import LIGHT, background
from headbook.charts import images
from headbook.charts.theme import colours
from headbook.metrics import all_metrics
from headbook.pages.parts.table import COLOUR_STEPS, colour_step, domain
from headbook.site.writer import PREVIEW, web_files
from html_pages import differing, elements, html_of, links, tree
from sites import Once, Site

pytestmark = pytest.mark.slow

pytest_plugins = ["browser_windows"]
BASE = "https://somebody.example/work/heads/"
OWN_TEXTS = {"CITATION.cff", "references.bib", "sitemap.xml"}


def meta(html: str) -> dict[str, str]:
    """What a page says of itself to search engines and previews."""
    reported = [element.attributes for element in elements(html, "meta")]
    return {
        e[kind]: e["content"]
        for e in reported
        for kind in ("name", "property")
        if "content" in e and kind in e
    }


def test_no_page_leads_to_an_address_from_the_root_of_a_host(any_site: Site) -> None:
    """So that a site works below any path, and from disk."""
    for page in any_site.pages:
        for tag, link in links(html_of(page)):
            parts = urlsplit(link)
            outside = tag == "a" and parts.scheme == "https" and parts.netloc
            assert outside or parts.scheme == "data" or not (parts.scheme or parts.netloc), link
            assert outside or not parts.path.startswith("/") or parts.scheme == "data", link


def test_every_page_describes_itself(any_site: Site) -> None:
    title = any_site.study.manifest.title
    for page in any_site.pages:
        reported = meta(html_of(page))
        if page.name == "404.html":
            assert reported["robots"] == "noindex"
            continue
        assert reported["og:description"] == reported["description"]
        assert reported["og:title"]
        assert reported["og:site_name"] == title
        assert (page.parent / reported["og:image"]).resolve() == any_site.folder / PREVIEW
        assert not {"og:url", "canonical"} & set(reported)
        assert not [
            e for e in elements(html_of(page), "link") if e.attributes["rel"] == "canonical"
        ]


def places_of(sitemap: str) -> list[str]:
    """The addresses in a sitemap."""
    texts = ET.fromstring(sitemap).itertext()  # noqa: S314 - our own
    return [text for text in texts if text.strip()]


def squares(picture: NDArray[np.uint8]) -> list[list[str]]:
    """Colours of the cells of a picture with one table, row by row."""
    ink = (picture != 255).any(2)

    def middles(there: NDArray[np.bool_]) -> list[int]:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(int), [0]])))
        return [int(start + end) // 2 for start, end in edges.reshape(-1, 2)]

    rows, columns = middles(ink.any(1)), middles(ink.any(0))
    return [["#" + bytes(picture[y, x].tolist()).hex() for x in columns] for y in rows]


def test_the_picture_for_links_shows_the_map_of_all_heads(encoder_site: Site) -> None:
    """Cell for cell in the colours that the table has."""
    picture = Image.open(encoder_site.folder / PREVIEW)
    assert picture.size == (1200, 630)
    stack = encoder_site.study.manifest.stacks[0]
    heads = encoder_site.study.heads.query(
        "metric == 'attention_distance' and view == 'nosink'"
    ).sort_values(["layer", "head"])
    values = heads["value"].to_numpy()
    ends = domain(values, all_metrics()["attention_distance"].limits)
    steps = [colour_step(value, ends) or 0 for value in values]
    assert len(steps) == stack.n_layers * stack.n_heads
    displayed = squares(np.asarray(picture.convert("RGB")))
    assert [colour for row in displayed for colour in row] == [
        colours(COLOUR_STEPS)[s] for s in steps
    ]
    assert (len(displayed), {*map(len, displayed)}) == (stack.n_layers, {stack.n_heads})


def test_a_picture_holds_several_tables_side_by_side() -> None:
    """All cells of one size; a missing one is paper."""
    palette = ["#0000ff", "#ff0000"]
    tables = [np.array([[1, 2], [2, 0]], np.uint8), np.array([[1]], np.uint8)]
    picture = np.asarray(Image.open(io.BytesIO(images.banner(tables, palette))).convert("RGB"))
    assert picture.shape == (630, 1200, 3)
    counts = [(picture == colour).all(2).sum() for colour in ([0, 0, 255], [255, 0, 0])]
    assert counts[0] == counts[1] > 2 * 100 * 100
    blue = np.flatnonzero((picture == [0, 0, 255]).all(2).any(0))
    red = np.flatnonzero((picture == [255, 0, 0]).all(2).any(0))
    assert blue.min() == red.min() < red.max() < blue.max()


@pytest.mark.parametrize("shape", [(32, 32), (1, 200), (100, 2)])
def test_a_picture_takes_large_models(shape: tuple[int, int]) -> None:
    cells = np.ones(shape, np.uint8)
    picture = Image.open(io.BytesIO(images.banner([cells] * 3, ["#0000ff"])))
    assert picture.size == (1200, 630)
    assert (np.asarray(picture.convert("RGB")) == [0, 0, 255]).all(2).any()


def test_a_sitemap_has_every_page_but_the_one_for_wrong_addresses() -> None:
    paths = ["sentences/index.html", "index.html", "404.html", "about.html"]
    files = dict(web_files("https://a.example/x&y/", paths))
    assert [*files] == ["sitemap.xml"]
    home = "https://a.example/x&y/"
    assert places_of(files["sitemap.xml"]) == [
        f"{home}about.html",
        home,
        f"{home}sentences/index.html",
    ]


def test_robots_are_told_only_at_the_root_of_a_host() -> None:
    files = dict(web_files("https://a.example/", ["index.html"]))
    assert "Sitemap: https://a.example/sitemap.xml\n" in files["robots.txt"]


@pytest.fixture(scope="module")
def based(once: Once, small_site: Site) -> Path:
    """The smallest site with an address."""

    def fill(place: Path) -> None:
        headbook.render(small_site.stored, place / "site", base_url=BASE.rstrip("/"))

    return once("based", fill) / "site"


@pytest.mark.slow
def test_with_an_address_pages_say_where_they_are(based: Path) -> None:
    places = []
    for page in sorted(based.rglob("*.html")):
        html = html_of(page)
        if page.name == "404.html":
            continue
        path = page.relative_to(based).as_posix()
        place = BASE + ("" if path == "index.html" else path)
        links = [e.attributes for e in elements(html, "link")]
        assert [e["href"] for e in links if e["rel"] == "canonical"] == [place]
        assert meta(html)["og:url"] == place
        assert meta(html)["og:image"] == BASE + PREVIEW
        places.append(place)
    assert sorted(places_of((based / "sitemap.xml").read_text())) == sorted(places)


@pytest.mark.slow
def test_an_address_changes_no_more_than_that(based: Path, small_site: Site) -> None:
    """Beside the heads of pages: files that name the site, and the page for wrong addresses."""

    def body(content: bytes) -> bytes:
        return content.partition(b"</head>")[2]

    assert set(tree(based)) - set(tree(small_site.folder)) == {"sitemap.xml"}
    mine, basic = tree(based), tree(small_site.folder)
    others = {"404.html", "about.html", "data/files.json"}
    for name in {*differing(based, small_site.folder)} - OWN_TEXTS - others:
        assert name.endswith(".html")
        assert body(mine[name]) == body(basic[name]), name
    assert f'url: "{BASE}"' in mine["CITATION.cff"].decode()
    assert f"url = {{{BASE}}}" in mine["references.bib"].decode()


@pytest.fixture
def host(based: Path) -> Iterator[str]:
    """A server that shows the site below its path, and its page for wrong addresses elsewhere."""
    prefix = urlsplit(BASE).path

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.path = (
                "/" + self.path.removeprefix(prefix) if self.path.startswith(prefix) else "/-"
            )
            super().do_GET()

        def send_error(
            self, code: int, message: str | None = None, explain: str | None = None
        ) -> None:
            content = (based / "404.html").read_bytes()
            self.send_response(code, message)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    handler = functools.partial(Handler, directory=str(based))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.browser
def test_a_site_works_below_a_path(chromium: Browser, host: str) -> None:
    """Pages, styles, scripts and pictures; every address that is asked for is there."""
    page = chromium.new_page(color_scheme="light")
    replies: list[tuple[int, str]] = []
    page.on("response", lambda response: replies.append((response.status, response.url)))
    page.goto(host + urlsplit(BASE).path)
    page.locator("[data-wall] a").first.click()
    page.locator("h1").wait_for()
    assert "/work/heads/heads/L00-H00.html" in page.url
    page.locator("button.theme").wait_for()
    page.get_by_role("link", name="Overview").click()
    page.locator("[data-wall]").first.wait_for()
    wrong = [reply for reply in replies if reply[0] >= 400 and "favicon.ico" not in reply[1]]
    assert (len(replies) > 5, wrong) == (True, [])
    page.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("path", ["nowhere.html", "heads/L99-H99.html", "a/b/c/d"])
def test_the_page_for_wrong_addresses_works_at_any_depth(
    chromium: Browser, host: str, path: str
) -> None:
    page = chromium.new_page(color_scheme="light")
    reply = page.goto(f"{host}{urlsplit(BASE).path}{path}")
    assert reply is not None
    assert reply.status == 404
    assert page.locator("h1").inner_text() == "Page not found"
    assert background(page) == LIGHT
    page.locator("main a").click()
    page.locator("[data-wall]").first.wait_for()
    assert page.url == f"{host}{urlsplit(BASE).path}index.html"
    page.close()
