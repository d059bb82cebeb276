"""Registry of pages: menu, pages that exist, and pages at old addresses."""

import pytest

from headbook.site.registry import (
    PAGES,
    study_menu,
    study_pages,
)
from sites import Site


def test_addresses_are_those_of_one_page_each() -> None:
    addresses = [entry.path for entry in PAGES]
    assert len(addresses) == len({*addresses})


def test_the_menu_of_a_site_leads_to_its_pages(encoder_site: Site) -> None:
    entries = study_pages(encoder_site.results)
    menu = study_menu(entries)
    links = [*menu.first, *menu.analyses, *menu.last, *menu.foot]
    assert {link.path for link in links} == {entry.path for entry in entries}
    for link in links:
        assert (encoder_site.folder / link.path).is_file()


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        ("heads/L00-H01.html", "heads.html"),
        ("sentences/0001.html", "sentences/index.html"),
        ("metrics/sink_share.html", "metrics/index.html"),
        ("about.html", "methods.html"),
        ("tokens.html", "tokens.html"),
        ("404.html", "404.html"),
    ],
)
def test_a_page_belongs_to_the_entry_that_leads_to_pages_like_it(path: str, entry: str) -> None:
    assert study_menu(PAGES).entry(path) == entry
