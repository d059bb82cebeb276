"""Links to views of attention, in a browser."""

import re
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, expect

from browser import Open, each
from panels import DEFAULTS, switch, switches, tokens
from sites import Site

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE, HEAD = "sentences/0001.html", "heads/L00-H01.html"


def kept(page: Page) -> dict[str, Any]:
    """Everything that a reader sees of a view."""
    page.locator(".weights tbody tr").first.wait_for()
    return {
        "switches": switches(page),
        "heads": page.locator(".maptitle a, .maptitle span span").all_text_contents(),
        "chosen": [each(tokens(page, side), "aria-selected") for side in ("queries", "keys")],
        "said": page.locator(".pair").text_content(),
        "table": page.locator(".weights table").inner_text(),
        "shades": [each(page.locator(f".{box} .t"), "class") for box in ("full", "looked")],
    }


def test_a_link_reproduces_the_view(encoder_site: Site, open_page: Open) -> None:
    """On reload, and in another browser that has its own memory."""
    page = open_page(encoder_site.folder / SENTENCE)
    page.get_by_role("link", name="L1·H2", exact=True).first.click()
    page.get_by_label("Compare with").select_option("L0·H3")
    switch(page, view="renorm", units="words", scale="log", mass="80")
    tokens(page, "queries").nth(2).click()
    tokens(page, "keys").nth(1).click()
    page.locator("h1").hover()
    before, address = kept(page), page.url
    assert before["heads"] == ["L1·H2", "L0·H3"]
    page.reload()
    assert kept(page) == before
    other = open_page(encoder_site.folder / SENTENCE)
    switch(other, scale="linear", mass="50")
    other.goto("about:blank")
    other.goto(address)
    assert kept(other) == before


def test_a_link_opens_the_exemplar_and_its_pair(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / HEAD)
    article = page.locator('[data-map="strongest-2"]')
    article.locator("summary").click()
    tokens(page, "queries").nth(3).click()
    tokens(page, "keys").nth(1).click()
    page.locator("h1").hover()
    before = kept(page)
    page.reload()
    expect(article.locator("details")).to_have_attribute("open", "")
    assert kept(page) == before
    expect(article).to_be_in_viewport()


def test_the_exemplar_leads_to_the_same_weight_among_all_heads(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / HEAD)
    article = page.locator(".exemplar").filter(has=page.locator("header a")).first
    article.locator("summary").click()
    pair = article.locator(".pair")
    expect(pair).to_have_text(
        re.compile(r"^L0·H1: “.+” \(\d+\) looks at “.+” \(\d+\) with [01]\.\d+\.$")
    )
    said = pair.text_content() or ""
    article.locator("header a").first.click()
    expect(page.locator(".pair")).to_have_text(said)


@pytest.mark.parametrize(
    "state",
    [
        "at=self&heads=9.9&q=1",
        "at=elsewhere&heads=0.1&q=1",
        "at=self&heads=0.1&q=-1&k=x",
        "at=self&heads=0.1&q=99999&k=2",
        "view=__proto__&units=letters&scale=&mass=12",
        "at=self&heads=0.1%22%5D,%3Cb%3E,,0.2.1&view=constructor",
    ],
)
def test_what_an_address_gets_wrong_is_ignored(
    encoder_site: Site, open_page: Open, state: str
) -> None:
    """The page stands as without it; a head that there is opens without a token."""
    page = open_page(encoder_site.folder / "index.html")
    page.goto(f"{(encoder_site.folder / SENTENCE).as_uri()}#{state}")
    assert switches(page) == DEFAULTS
    opened = "heads=0.1&" in state and "at=self" in state
    expect(page.locator(".maptitle")).to_have_count(int(opened))
    if opened:
        expect(page.locator(".pair")).to_have_text("L0·H1: lines from every token.")


def test_an_ordinary_fragment_stays_one(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html")
    page.goto(f"{(encoder_site.folder / HEAD).as_uri()}#exemplars")
    expect(page.locator("#exemplars")).to_be_in_viewport()
    assert switches(page) == DEFAULTS
    assert page.url.endswith("#exemplars")


def test_another_page_begins_as_for_everybody(encoder_site: Site, open_page: Open) -> None:
    """What its address does not say, it does not show."""
    page = open_page(encoder_site.folder / SENTENCE)
    switch(page, view="nosink", units="words", scale="log", mass="95")
    for path in (HEAD, "sentences/0002.html", SENTENCE):
        page.goto((encoder_site.folder / path).as_uri())
        assert switches(page) == DEFAULTS
    assert page.evaluate("Object.keys(localStorage).filter((key) => !/theme/.test(key))") == []


def test_pages_work_where_nothing_can_be_remembered(encoder_site: Site, open_page: Open) -> None:
    """As in windows whose storage throws."""
    page = open_page(encoder_site.folder / "index.html")
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied'); }})"
    )
    page.goto((encoder_site.folder / SENTENCE).as_uri())
    switch(page, view="nosink")
    page.get_by_role("link", name="L1·H2", exact=True).first.click()
    expect(page.locator(".maptitle")).to_have_text("L1·H2")
    assert parse_qs(urlparse(page.url).fragment)["view"] == ["nosink"]


def test_link_is_copied(encoder_site: Site, open_page: Open) -> None:
    page = open_page(
        encoder_site.folder / SENTENCE, permissions=["clipboard-read", "clipboard-write"]
    )
    page.get_by_role("link", name="L0·H0", exact=True).first.click()
    tokens(page, "queries").nth(1).click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".switches [role=status]")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    fragment = "#" + urlparse(page.url).fragment
    expect(page.get_by_role("link", name="Link to this view")).to_have_attribute("href", fragment)
