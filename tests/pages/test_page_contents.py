"""The contents of a page are its headings, in order, each with an address of its own."""

import re

from headbook.site.page_writer import MAIN, MAIN_END, with_contents
from headbook.site.registry import PAGES, MenuPlace
from html_pages import elements, html_of, ids, text_of
from sites import Site


def page(body: str) -> str:
    return f"<body>\n<nav><h2>Menu</h2></nav>\n{MAIN}{body}{MAIN_END}</body>\n"


def addresses(html: str) -> list[str]:
    """What the contents lead to."""
    displayed = html.partition('<nav class="contents"')[2].partition("</nav>")[0]
    return [e.attributes["href"].removeprefix("#") for e in elements(displayed, "a")]


def test_lower_headings_stand_inside_upper_ones_and_get_ids() -> None:
    html = with_contents(
        page(
            '<h2 id="self">Self <small>72</small></h2><h3>All &amp; <b>more</b></h3>'
            "<details><h3>Folded</h3></details><aside><h2>Card</h2></aside>"
            "<h2>Cross</h2><h3>All &amp; more</h3><h3>All &amp; more</h3>"
        )
    )
    assert addresses(html) == [
        "self", "self-all-more", "cross", "cross-all-more", "cross-all-more-2",
    ]  # fmt: skip
    assert {*addresses(html), "main"} == {*ids(html)}
    assert '<h3 id="self-all-more">All &amp; <b>more</b></h3>' in html
    assert '<a href="#self-all-more">All &amp; more</a></li></ul></li>' in html
    assert '<a href="#self">Self</a><ul>' in html
    assert "<h3>Folded</h3>" in html


def test_the_parts_of_a_single_stack_are_entries_themselves() -> None:
    html = with_contents(page("<h2>Self</h2><h3>One</h3><h3>Two</h3>"))
    assert addresses(html) == ["self-one", "self-two"]
    assert addresses(with_contents(page("<h2>One</h2><h2>Two</h2>"))) == ["one", "two"]


def test_a_lower_heading_before_the_first_upper_one_leaves_lists_closed() -> None:
    html = with_contents(page("<h3>Before</h3><h2>Self</h2><h3>One</h3><h2>Cross</h2>"))
    assert addresses(html) == ["before", "self", "self-one", "cross"]
    contents = html.partition('<nav class="contents"')[2].partition("</nav>")[0]
    assert contents.count("<ul>") == contents.count("</ul>") == 2
    assert contents.count("<li>") == contents.count("</li>") == 4
    assert '<a href="#before">Before</a></li>\n<li><a href="#self">' in contents


def test_a_page_with_one_heading_stays_as_it_was() -> None:
    html = page("<h1>Page</h1><h2>One</h2>")
    assert with_contents(html) == html


def test_ids_that_other_elements_have_are_left_to_them() -> None:
    html = with_contents(page('<figure id="one"></figure><h2>One</h2><h2>Two</h2>'))
    assert addresses(html) == ["one-2", "two"]


def test_long_pages_have_contents_and_wide_ones_none(encoder_site: Site) -> None:
    for path in ("methods.html",):
        assert len(addresses(html_of(encoder_site.folder / path))) >= 2, path
    for path in ("index.html", "heads/L00-H01.html", "sentences/0001.html"):
        assert 'class="contents"' not in html_of(encoder_site.folder / path)


def test_an_analysis_is_called_as_the_menu_calls_it(encoder_site: Site) -> None:
    analyses = [
        entry
        for entry in PAGES
        if entry.place is MenuPlace.ANALYSES and (encoder_site.folder / entry.path).exists()
    ]
    assert len(analyses) > 5
    for entry in analyses:
        html = html_of(encoder_site.folder / entry.path)
        topic = re.search(r'<p class="topic">(.*?)</p>', html)  # the title is a question
        title = topic[1] if topic else text_of(html).strip().partition(" · ")[0]
        assert title == entry.name


def test_a_table_stands_once_among_the_files_with_both_of_its_formats(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "data.html")
    tables = html.split("<details")[1:]
    heads, *_ = [table for table in tables if 'href="data/heads.' in table]
    linked = {link.attributes["href"] for link in elements(heads, "a")}
    assert linked == {"data/heads.csv", "data/heads.parquet"}
    files = {f"data/{file.name}" for file in (encoder_site.folder / "data").glob("*.parquet")}
    assert files <= {link.attributes["href"] for link in elements(html, "a")}
