"""Links to views of attention, in a browser."""

import re
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, expect

from browser import Open, each
from browser_views import DEFAULTS, choose, pair, ready, switch, switches, tokens
from sites import Site

pytest_plugins = ["browser_windows"]
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
    reported = re.compile(
        r"^L0·H1: “(.+)” \((\d+)\) attends to “(.+)” \((\d+)\) with ([01]\.\d+)\.$"
    )
    message = article.locator(".pair")
    expect(message).to_have_text(reported)
    match = reported.match(message.text_content() or "")
    assert match is not None
    query, q, key, k, weight = match.groups()
    article.locator("header a").first.click()
    expect(page.locator(".dock [data-title]")).to_have_text("L0·H1")
    status = page.locator(".dock .status")
    expect(status).to_have_text(f"{q} {query} attends to {k} {key}: {weight}")


WRONG = (
    "at=self&heads=9.9&q=1",
    "at=elsewhere&heads=0.1&q=1",
    "at=self&heads=0.1&q=-1&k=x",
    "at=self&heads=0.1&q=99999&k=2",
    "view=__proto__&units=letters&scale=&mass=12",
    "at=self&heads=0.1%22%5D,%3Cb%3E,,0.2.1&view=constructor",
)


def test_what_an_address_gets_wrong_is_ignored(encoder_site: Site, open_page: Open) -> None:
    """The page stands as without it; a head that there is opens at its first token."""
    page = open_page(encoder_site.folder / "index.html")
    for state in WRONG:
        page.goto("about:blank")
        page.goto(f"{(encoder_site.folder / SENTENCE).as_uri()}#{state}")
        assert switches(page) == DEFAULTS, state
        opened = "heads=0.1&" in state and "at=self" in state
        panel = ready(page).locator(".dock")
        expect(panel).to_have_class("dock docked" if opened else "dock")
        home = panel.get_attribute("data-head") or ""
        name = "L0·H1" if opened else f"L{home.replace('.', '·H')}"
        expect(panel.locator("[data-title]")).to_have_text(name)
    page.goto(f"{(encoder_site.folder / HEAD).as_uri()}#exemplars")  # an ordinary fragment
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
    page = open_page(encoder_site.folder / "index.html", alone=True)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied'); }})"
    )
    page.goto((encoder_site.folder / SENTENCE).as_uri())
    switch(page, view="nosink")
    choose(page, "L1·H2")
    assert parse_qs(urlparse(page.url).fragment)["view"] == ["nosink"]


def test_link_is_copied(encoder_site: Site, open_page: Open) -> None:
    page = open_page(
        encoder_site.folder / SENTENCE, permissions=["clipboard-read", "clipboard-write"]
    )
    choose(page, "L0·H0")
    pair(page, 1)
    page.locator("details.options summary").click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".switches [role=status]")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    fragment = "#" + urlparse(page.url).fragment
    expect(page.get_by_role("link", name="Link to this view")).to_have_attribute("href", fragment)
