"""What readers come for, from the overview within three clicks; a search counts as one."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from browser import Open
from browser_views import ready, tile, word
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST = 3


class Reader:
    """Somebody on a page, whose clicks are counted."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    def click(self, target: Locator) -> None:
        """Follow a link, press a button or open what is closed."""
        self.clicks += 1
        target.click()

    def search(self, text: str, title: str) -> None:
        """Type into the search of the header, and go where it leads first."""
        self.clicks += 1
        self.page.get_by_role("combobox", name="Search this site").fill(text)
        option = self.page.locator("#found [role=option]", has_text=title).first
        option.wait_for()
        option.click()

    def respond(self, target: Locator, text: str | re.Pattern[str] = re.compile(r"\S")) -> None:
        """The answer can be seen, and did not take more than three clicks."""
        expect(target.first).to_be_visible()
        expect(target.first).to_contain_text(text)
        assert self.clicks <= MOST


@pytest.fixture
def reader(encoder_site: Site, open_page: Open) -> Reader:
    return Reader(open_page(encoder_site.folder / "index.html"))


def again(reader: Reader) -> Reader:
    """The reader at the overview, who has clicked nothing."""
    address = reader.page.url.partition("/site/")[0] + "/site/index.html"
    reader.page.goto("about:blank")
    reader.page.goto(address)
    return Reader(reader.page)


def test_what_the_model_does(reader: Reader) -> None:
    reader.respond(reader.page.locator(".about-model"), "encoder")
    texts = (reader.page.locator(part).text_content() or "" for part in (".about-model", ".claims"))
    assert sum(len(text.split()) for text in texts) <= 250


def test_what_heads_do(reader: Reader) -> None:
    """The first function of the list, with the head of its largest number."""
    row = reader.page.locator(".who li").first
    reader.respond(row.locator("> a"), "L")
    reader = again(reader)
    reader.respond(reader.page.locator(".who li .value").first, "")


def test_direct_objects_and_whether_a_head_beats_a_rule(reader: Reader) -> None:
    reader.search("dobj", "From a verb to its direct object")
    line = reader.page.locator("#questions ~ * li, ul.questions li", has_text="direct object (obj)")
    reader.respond(line, re.compile("best surface rule"))


def test_a_question_is_answered_where_it_is_found(reader: Reader) -> None:
    """By a head, its number and the baseline; it leads to all heads in that order."""
    for query in ("previous token", "direct object", "punctuation"):
        ask(again(reader), query)


def ask(reader: Reader, query: str) -> None:
    """Type a question, read its answer, and go where it leads."""
    option = reader.page.locator("#found [role=option]").first
    reader.clicks += 1
    reader.page.get_by_role("combobox", name="Search this site").fill(query)
    baseline = "best surface rule" if query == "direct object" else "uniform attention"
    reader.respond(option, query)
    reader.respond(option.locator("small"), re.compile(rf"^L\d·H\d \d.*{baseline}"))
    reader.click(option)
    row = reader.page.locator("table.finding tbody tr:not(.part)").first
    expect(row).to_be_in_viewport()
    reader.respond(row, re.compile(r"L\d·H\d"))


def test_why_vertical_and_whether_such_heads_are_useless(reader: Reader) -> None:
    """The question on patterns is found by words that the page does not use."""
    for query in ("vertical", "why vertical", "useless", "dead heads"):
        reader = again(reader)
        reader.search(query, "Why do so many heads")
        asked = reader.page.get_by_role("heading", name="Why do so many heads")
        expect(asked).to_be_in_viewport()
        reader.respond(reader.page.locator(".why").first, "values are near zero")
        expect(reader.page.locator(".why").first).to_be_in_viewport()


def test_the_largest_weight_of_a_head_in_a_sentence(encoder_site: Site, reader: Reader) -> None:
    reader.search("sentence 2", "")
    expect(reader.page.locator("h1")).to_contain_text("Sentence 2")
    ready(reader.page)
    reader.click(tile(reader.page, "L1·H3"))
    weight = int(encoder_site.study.sentence_data.maps["self", 1][1, 3].max()) / 255
    reader.respond(reader.page.locator("[data-largest]"), f"{weight:.2f}")


def test_a_function_word_against_content_words(reader: Reader) -> None:
    reader.search("sentence 1", "")
    ready(reader.page)
    reader.click(word(reader.page, 1))
    expect(word(reader.page, 1)).to_have_attribute("aria-pressed", "true")
    reader.respond(reader.page.locator("figure text", has_text="content words"))


def test_a_heat_map_as_pdf_with_its_citation(reader: Reader) -> None:
    reader.click(reader.page.locator(".later").get_by_role("link", name="All metrics"))
    reader.click(reader.page.get_by_role("link", name="Attention distance", exact=True).first)
    reader.click(reader.page.locator(".files summary", has_text="Cite").first)
    reader.respond(reader.page.locator("details.cite[open] pre"), "@")
    expect(reader.page.get_by_role("link", name="PDF", exact=True).first).to_be_visible()


def test_heads_that_are_nearly_the_same_and_the_most_similar_pairs(reader: Reader) -> None:
    reader.search("redundant heads", "Which heads attend alike")
    reader.respond(reader.page.locator("h1"), "Which heads attend alike")
    reader = again(reader)
    reader.search("near-duplicate", "Which heads attend alike")
    reader.click(reader.page.locator(".eyebrow").get_by_role("link", name="nearest pairs"))
    pairs = reader.page.locator("#pairs-self table")
    expect(pairs.first).to_be_in_viewport()
    reader.respond(pairs.first, re.compile(r"L\d·H\d and L\d·H\d"))


def test_an_exact_view_to_share(reader: Reader, encoder_site: Site, open_page: Open) -> None:
    """The address alone opens it for a colleague."""
    reader.search("sentence 1", "")
    ready(reader.page)
    reader.click(tile(reader.page, "L1·H2"))
    reader.click(word(reader.page, 2))
    reader.respond(reader.page.locator(".dock [data-title]"), "L1·H2")
    other = open_page(encoder_site.folder / "index.html")
    other.goto(reader.page.url)
    ready(other)
    expect(other.locator(".dock [data-title]")).to_have_text("L1·H2")
    expect(word(other, 2)).to_have_attribute("aria-pressed", "true")


def test_two_heads_in_a_sentence(reader: Reader) -> None:
    reader.search("sentence 1", "")
    ready(reader.page)
    reader.click(tile(reader.page, "L1·H2"))
    reader.clicks += 1
    reader.page.get_by_label("Compare with").select_option("0.1")
    reader.respond(reader.page.locator(".dock h3", has_text="Difference, A − B"))


def test_what_to_distrust(reader: Reader) -> None:
    for query in ("", "distrust", "limitations"):
        reader = again(reader)
        if query:
            reader.search(query, "")
        else:
            reader.click(reader.page.get_by_role("link", name="What not to conclude"))
        limits = reader.page.locator("section", has=reader.page.locator("#limits"))
        expect(reader.page.locator("#limits")).to_be_in_viewport()
        reader.respond(limits, re.compile("cause|causal"))
