"""From the page of cross-attention to any sentence by any head, in a browser."""

import re

import pytest
from playwright.sync_api import expect

from browser import Open, each
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_sentence_opens_at_the_heads_that_are_chosen(pair_site: Site, open_page: Open) -> None:
    page = open_page(pair_site.folder / "alignment.html")
    first = page.locator(".aligned tbody th a").all_text_contents()[:4]
    links, select = page.locator("#listed a"), page.get_by_label("Open with")
    listed = [s.number for s in pair_site.study.sentence_data.listed]
    assert [int(text.split()[0]) for text in links.all_text_contents()] == listed
    links.nth(1).click()
    title = page.locator(".dock [data-title]")
    expect(title).to_have_text(f"A: {first[0]} B: {first[1]}")
    page.go_back()
    select.focus()
    select.select_option(first[3])
    assert len({*each(links, "href")}) == len(listed)
    links.nth(1).click()
    expect(page).to_have_url(re.compile(rf"sentences/000{listed[1]}\.html#at=cross&heads=\d+\.\d+"))
    expect(title).to_have_text(first[3])
    expect(page.locator("h1")).to_have_text(f"Sentence {listed[1]}")


def test_without_scripts_sentences_are_linked_all_the_same(
    pair_site: Site, open_page: Open
) -> None:
    page = open_page(pair_site.folder / "alignment.html", java_script_enabled=False)
    expect(page.get_by_label("Open with")).not_to_be_visible()
    page.locator("#listed a").first.click()
    expect(page.locator("h1")).to_have_text("Sentence 1")
