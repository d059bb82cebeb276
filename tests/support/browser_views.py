"""Handles for views in a browser: sentence workspace, list of heads, switches and tokens."""

import base64
import io
import math
import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from browser import Open, each
from headbook.charts.images import Ink
from headbook.pages.parts.head_list import (
    Column,
    all_facts,
    head_effects,
    list_order,
    number_columns,
)
from headbook.report.facts.head_facts import HeadFacts, head_facts
from naive_sentences import Map
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
    """Return a head's map in the grid."""
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
    """Return a token of the text at the top."""
    return page.locator(".words").nth(side).locator(f'button[data-i="{place}"]')


def ranked(page: Page, pane: str = "ranked") -> list[list[str]]:
    """Return the lines of a ranked list: token, numbers."""
    script = (
        "(found) => found.map((line) => [line.children[0].textContent, line.lastChild.textContent])"
    )
    rows: list[list[str]] = page.locator(f".pane.{pane} li").evaluate_all(script)
    return rows


DISTANCE, ENTROPY = "attention_distance/", "relative_entropy/"
PREVIOUS = "attention_to/previous"


def address(**view: Any) -> str:
    """Return the list in some view, as addresses write it."""
    return "#" + urlencode(view, doseq=True)


def visit(open_page: Open, site: Site, fragment: str = "") -> Page:
    """Return the page of a site in a view, its list drawn."""
    page = open_page(site.folder / "heads.html")
    drawn(page)
    if fragment:
        page.goto("about:blank")
        page.goto((site.folder / "heads.html").as_uri() + fragment)
        drawn(page)
    return page


def drawn(page: Page) -> None:
    """Wait until the script has drawn the list, and show all of its controls."""
    page.locator(".finding th[data-key]").first.wait_for()
    page.locator("details.more").evaluate("(more) => { more.open = true; }")
    expect(page.locator("[data-count]")).to_contain_text(" of ")


def names(page: Page) -> list[str]:
    """Return the heads of the list, from the top."""
    return page.locator(".finding tbody th").all_text_contents()


def in_order(site: Site) -> list[HeadFacts]:
    """Return the facts of all heads in the order of the list."""
    results = site.results
    facts = all_facts(results)
    return [facts[i] for i in list_order(facts, head_effects(results))]


def view_of(page: Page) -> dict[str, list[str]]:
    """Return the view in the address."""
    return parse_qs(urlsplit(page.url).fragment, keep_blank_values=True)


def column_of(site: Site, key: str) -> tuple[Column, dict[str, float]]:
    """Return a column, and its numbers by the names of heads in the order of layers."""
    found = site.results
    column = next(c for c in number_columns(found) if c.key == key)
    facts = [each for r in found.values() for each in head_facts(r)]
    return column, {f.name: column.at(found, f.head).value for f in facts}


def by_value(values: dict[str, float], *, down: bool) -> list[str]:
    """Names in the order of their numbers; those without one last."""
    sign = -1 if down else 1
    return sorted(values, key=lambda n: math.inf if math.isnan(values[n]) else sign * values[n])


def rows_of(found: Locator) -> list[list[str]]:
    """Return the texts of a table's cells, their spaces as one."""
    lines = [line.locator("th, td").all_inner_texts() for line in found.locator("tbody tr").all()]
    return [[re.sub(r"\s+", " ", cell).strip() for cell in line] for line in lines]


def state_of(page: Page) -> Any:
    """Return headings, rows, controls and points of the page."""
    headings = page.locator(".finding thead th")
    controls = "found => found.map((c) => c.type === 'checkbox' ? c.checked : c.value)"
    return [
        each(headings, "data-key"),
        each(headings, "aria-sort"),
        rows_of(page.locator(".finding")),
        page.locator("[data-filter], [data-range]").evaluate_all(controls),
        each(page.locator("[data-stage] a:not([hidden])"), "aria-label"),
        page.locator("[data-count]").text_content(),
    ]


DEFAULTS = {"view": "raw", "units": "pieces", "scale": "root", "mass": "90"}


def switches(page: Page) -> dict[str, str]:
    """How the switches stand."""
    return {name: page.locator(f"[data-switch={name}]").first.input_value() for name in DEFAULTS}


def switch(page: Page, **choices: str) -> None:
    """Set switches."""
    for options in page.locator("details.options:not([open]) > summary").all():
        options.click()
    for name, value in choices.items():
        page.locator(f"[data-switch={name}]").first.select_option(value)


def tokens(page: Page | Locator, side: str) -> Locator:
    """Return the queries, or the keys."""
    return page.locator(f".tokens.{side} > div")


def picture(address: str) -> Any:
    """Return the pixels of a picture in a ``data:`` address. *Shape:* ``(row, column, 4)``."""
    content = base64.b64decode(address.partition(",")[2])
    return np.array(Image.open(io.BytesIO(content)).convert("RGBA"))


def ink_steps(address: str, ink: Ink) -> Any:
    """Which step of an ink each pixel of a picture has. *Shape:* ``(row, column)``."""
    same = (picture(address)[..., None, :] == np.array(ink)).all(-1)
    assert same.any(-1).all(), "a colour that the ink lacks"
    return same.argmax(-1)


def cells(box: Locator, shape: tuple[int, int]) -> Any:
    """Return the colour in the middle of each cell of the map. *Shape:* ``(query, key, 4)``."""
    canvas = box.locator("canvas.cells").first
    grid = (canvas.get_attribute("data-grid") or "").split()
    left, above, size = (round(float(text)) for text in grid)
    pixels = picture(canvas.evaluate("(canvas) => canvas.toDataURL()"))[above:, left:]
    return pixels[size // 2 :: size, size // 2 :: size][: shape[0], : shape[1]]


def strength(colours: Any) -> Any:
    """How far colours are from white paper, 0 to 255."""
    return 255 - colours[..., :3] @ np.array([0.2126, 0.7152, 0.0722])
