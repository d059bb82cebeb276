"""Registry of pages: menu, pages that exist, and pages at old addresses."""

from pathlib import Path

import pytest

from headbook.pages.parts.page import SiteFacts
from headbook.site.page_writer import PageWriter
from headbook.site.registry import (
    PAGES,
    MenuPlace,
    MovedPage,
    PageEntry,
    moved_pages,
    study_menu,
    study_pages,
)
from sites import Site


def test_addresses_are_those_of_one_page_each() -> None:
    addresses = [path for entry in PAGES for path in (entry.path, *entry.moved)]
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


def test_an_old_address_leads_to_the_page_that_took_its_place(
    encoder_site: Site, tmp_path: Path
) -> None:
    entry = PageEntry("new.html", "New", MenuPlace.ANALYSES, moved={"a/old.html": "part"})
    (page,) = moved_pages([entry])
    assert page == MovedPage(
        path="a/old.html", title="New", description="This page has moved to new.html.",
        moved_to="new.html#part",
    )  # fmt: skip
    manifest = encoder_site.study.manifest
    frame = {
        "site": SiteFacts.of(manifest, sentence_pages=False), "manifest": manifest,
        "across": set[str](), "base": "", "menu": study_menu(()), "preview": "",
    }  # fmt: skip
    PageWriter(tmp_path, "", frame).write_page(page)
    html = (tmp_path / "a/old.html").read_text()
    assert '<meta http-equiv="refresh" content="0; url=../new.html#part">' in html
    assert '<a data-moved href="../new.html#part">' in html
    assert '<meta name="robots" content="noindex">' in html
