"""The workspace of a sentence in a browser."""

from playwright.sync_api import Locator, Page, expect

from naive_instances import Map
from sites import Site


def map_of(site: Site, stack: str, layer: int, head: int, index: int = 0) -> Map:
    """One head over one sentence, from the stored study."""
    sentence_data, terms = site.study.sentence_data, site.study.manifest.stack(stack)
    texts = sentence_data.sentences[index].texts
    maps, norms = sentence_data.maps[stack, index], sentence_data.norms[stack, index]
    queries, keys = texts[terms.queries], texts[terms.keys]
    return Map(maps[layer, head], queries, keys, terms.causal, norms[layer, head].tolist())


def ready(page: Page) -> Page:
    """Wait until the page is alive."""
    expect(page.locator(".sentence-page")).to_have_attribute("data-ready", "")
    return page


def tile(page: Page, name: str) -> Locator:
    """A head's map in the grid."""
    return page.locator(f'.over button[aria-label="{name}"], .over button[aria-label^="{name},"]')


def choose(page: Page, name: str) -> Locator:
    """Choose a head by its map; the panel."""
    ready(page)
    tile(page, name).click()
    expect(page.locator(".dock [data-title]")).to_have_text(name)
    return page.locator(".dock")


def pair(page: Page, query: int | str, key: int | str = "") -> None:
    """Choose a pair, or a query alone, of the head that is open."""
    script = """([q, k]) => {
      const { hash, link } = window.headbook, now = new URLSearchParams(hash().slice(1));
      now.set("q", q);
      now.set("k", k);
      location.hash = link(`#${now}`);
    }"""
    page.evaluate(script, [str(query), str(key)])
    expect(page.locator(".dock .status")).not_to_be_empty()


def word(page: Page, place: int, side: int = 0) -> Locator:
    """A token of the text at the top."""
    return page.locator(".words").nth(side).locator(f'button[data-i="{place}"]')


def ranked(page: Page, pane: str = "ranked") -> list[list[str]]:
    """The lines of a ranked list: token, numbers."""
    script = (
        "(found) => found.map((line) => [line.children[0].textContent, line.lastChild.textContent])"
    )
    rows: list[list[str]] = page.locator(f".pane.{pane} li").evaluate_all(script)
    return rows
