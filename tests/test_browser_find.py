"""The overview's search in a browser: what it finds is what the study holds."""

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from browser import DARK, Open, Record, each, sideways, violations
from headbook.numbers.results import results
from headbook.views.headfacts import head_facts
from sites import Site
from test_find import data_of

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LIMIT = 50  # milliseconds from a key to the results


def box(page: Page) -> Locator:
    return page.get_by_label("Search", exact=True)


def ask(page: Page, query: str) -> dict[str, int]:
    """Type a query; the kinds that are found, with their numbers."""
    box(page).fill(query)
    expect(page.locator("[data-finder] [role=status]")).not_to_be_empty()
    page.wait_for_timeout(50)
    headings = page.locator("[data-results] h2").all_text_contents()
    found = [re.fullmatch(r"(\w+) ([\d,]+)", heading) for heading in headings]
    return {match[1]: int(match[2].replace(",", "")) for match in found if match}


def hits(page: Page, kind: str) -> list[str]:
    """The titles of what was found."""
    section = page.locator("[data-results] section").filter(has=page.locator("h2", has_text=kind))
    return section.locator("a.hit").all_text_contents()


@pytest.fixture
def overview(encoder_site: Site, open_page: Open) -> Page:
    return open_page(encoder_site.folder / "index.html")


def test_data_come_when_the_box_is_entered(overview: Page, record: Record) -> None:
    def asked() -> list[str]:
        return [address for address in record.requests if "/data/" in address]

    assert asked() == []
    box(overview).focus()
    overview.wait_for_timeout(300)
    assert {address.rpartition("/")[2] for address in asked()} == {"find.js", "headlist.js"}


@pytest.mark.parametrize("query", ["L1 H2", "l1·h2", "layer 1 head 2", "1.2", "Layer 1, Head 2"])
def test_a_head_is_found_however_it_is_written(overview: Page, query: str) -> None:
    assert ask(overview, query)["Heads"] == 1
    assert hits(overview, "Heads") == ["L1·H2"]
    link = overview.locator("[data-results] a.hit", has_text="L1·H2")
    assert link.get_attribute("href") == "heads/L01-H02.html"
    link.click()
    expect(overview.locator("h1")).to_have_text("Head L1·H2")


@pytest.mark.parametrize("query", ["previous token", "direct object", "SEP", "separator", "object"])
def test_what_newcomers_type_leads_to_questions(overview: Page, query: str) -> None:
    """Every question with these words, and the heads in the order that answers it."""
    wanted = [q for q, *_ in data_of_questions(overview) if query.lower() in q.lower()]
    assert ask(overview, query).get("Questions", 0) == len(wanted)
    assert {*hits(overview, "Questions")} == {*wanted}


def data_of_questions(page: Page) -> list[list[str]]:
    folder = urlsplit(page.url).path.rpartition("/")[0]
    with open(f"{folder}/data/find.js", encoding="utf-8") as stream:  # noqa: PTH123
        text = stream.read()
    rows: list[list[str]] = json.loads(text.partition(",")[2].removesuffix(");\n"))["questions"]
    return rows


def test_heads_are_found_by_what_they_look_at(encoder_site: Site, overview: Page) -> None:
    facts = [f for r in results(encoder_site.study).values() for f in head_facts(r)]
    word = next(f.looks.word for f in facts if f.looks.word)
    wanted = {f.name for f in facts if f.looks.word == word}
    ask(overview, f"looks most at {word}")
    assert {*hits(overview, "Heads")} == wanted


def test_sentences_are_those_with_the_letters(encoder_site: Site, overview: Page) -> None:
    """Parts of words, whatever their case and accents."""
    texts = {row[0]: row[2] for row in data_of(encoder_site, "find")["sentences"]}
    for query in ("FISHER", "fïsher", "old", "see the"):
        words = query.lower().replace("ï", "i").split()
        wanted = [t for t in texts.values() if all(word in t.lower() for word in words)]
        assert ask(overview, query).get("Sentences", 0) == len(wanted)
        assert {*hits(overview, "Sentences")} == {*wanted}


def test_what_was_found_is_marked(overview: Page) -> None:
    ask(overview, "attention DIST")
    marks = overview.locator("[data-results] a.hit mark").all_text_contents()
    assert {mark.lower() for mark in marks} == {"attention", "dist"}
    ask(overview, "fisher")
    marks = overview.locator("[data-results] a.hit mark").all_text_contents()
    assert {mark.lower() for mark in marks} == {"fisher"}


def test_a_token_leads_to_its_type_and_its_sentences(encoder_site: Site, overview: Page) -> None:
    row = next(r for r in data_of(encoder_site, "find")["tokens"] if r[0] == "house")
    ask(overview, "house")
    assert "house" in hits(overview, "Tokens")
    item = overview.locator("[data-results] li").filter(
        has=overview.get_by_text("house", exact=True)
    )
    item = item.filter(has_text="time").first
    sentences = each(item.locator("small a"), "href")
    assert sentences == [f"sentences/{number:04}.html" for number in row[3]]
    item.locator("a.hit").click()
    expect(overview.locator("h1")).to_have_text("Tokens")
    assert overview.locator("[data-types]").first.input_value() == "house"
    expect(overview.locator("[data-types-of] th").first).to_have_text("house")


def test_keys_lead_through_results_and_back(overview: Page) -> None:
    ask(overview, "layer 1")
    box(overview).press("ArrowDown")
    focused = overview.locator(":focus")
    expect(focused).to_have_class("hit")
    first = focused.text_content()
    focused.press("ArrowDown")
    assert overview.locator(":focus").text_content() != first
    for _ in range(2):
        overview.locator(":focus").press("ArrowUp")
    expect(box(overview)).to_be_focused()
    box(overview).press("Escape")
    expect(box(overview)).to_have_value("")
    expect(overview.locator("[data-results] li")).to_have_count(0)
    expect(overview.locator("[data-finder] [role=status]")).to_be_empty()


def test_the_count_is_said(overview: Page) -> None:
    found = ask(overview, "dist")
    said = ", ".join(f"{kind} {number}" for kind, number in found.items())
    expect(overview.locator("[data-finder] [role=status]")).to_have_text(f"{said}.")
    ask(overview, "qqqqq")
    expect(overview.locator("[data-finder] [role=status]")).to_have_text("Nothing found.")


def test_a_link_reproduces_the_search(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html")
    found = ask(page, "the dog, & “é”#1")
    found = ask(page, "old house")
    page.wait_for_timeout(400)
    assert parse_qs(urlsplit(page.url).fragment) == {"find": ["old house"]}
    other = open_page(encoder_site.folder / "index.html")
    other.goto("about:blank")
    other.goto(page.url)
    expect(box(other)).to_have_value("old house")
    expect(other.locator("[data-results] h2")).to_have_count(len(found))
    assert (
        other.locator("[data-results]").inner_text() == page.locator("[data-results]").inner_text()
    )


def test_ten_of_a_kind_are_shown_and_all_on_request(overview: Page) -> None:
    number = ask(overview, "e")["Tokens"]
    assert number > 10
    assert len(hits(overview, "Tokens")) == 10
    overview.get_by_role("button", name=f"Show all {number} tokens").click()
    assert len(hits(overview, "Tokens")) == number
    expect(overview.locator(":focus")).to_have_class("hit")


def test_results_are_accessible_in_both_themes(overview: Page) -> None:
    ask(overview, "e")
    assert violations(overview) == []
    overview.emulate_media(color_scheme="dark")
    assert overview.evaluate("getComputedStyle(document.body).backgroundColor") == DARK
    assert violations(overview, "color-contrast") == []
    assert {width: sideways(overview, width) for width in (360, 800, 1440)} == dict.fromkeys(
        (360, 800, 1440), 0
    )


def test_hostile_text_stays_text(overview: Page) -> None:
    for query in ("<img src=x onerror=alert(1)>", "__proto__", "constructor", "\\d+(", "%E0%A4%A"):
        ask(overview, query)
    assert overview.locator("[data-finder] img").count() == 0


# What a key press costs: from setting the value to the results standing in the page, laid out.
TYPING = """async () => {
  const input = document.querySelector("#find"), found = [];
  for (const query of ["w", "wo", "wor", "word1", "word12 ", "word12 w", "word12 word3"]) {
    const begun = performance.now();
    input.value = query;
    input.dispatchEvent(new Event("input"));
    await new Promise((resolve) => setTimeout(resolve));
    document.querySelector("[data-results]").getBoundingClientRect();
    found.push(performance.now() - begun);
  }
  return found;
}"""


def test_a_key_costs_little_with_5000_sentences(
    small_site: Site, open_page: Open, tmp_path: Any
) -> None:
    """Of 25 words each; the median of keys, since the machine does other things, too."""
    import shutil

    folder = tmp_path / "site"
    shutil.copytree(small_site.folder, folder)
    found = data_of(small_site, "find")
    words = [" ".join(f"word{(7 * i + 31 * j) % 900}" for j in range(25)) for i in range(5000)]
    found["sentences"] = [[i + 1, "sentences/0001.html", text] for i, text in enumerate(words)]
    found["total"] = 6000
    (folder / "data/find.js").write_text(f'headbook.take("find",{json.dumps(found)});\n')
    page = open_page(folder / "index.html")
    assert ask(page, "word12")["Sentences"] == sum("word12" in text for text in words)
    expect(page.locator("[data-finder] [role=status]")).to_contain_text(
        "Only the first 5,000 sentences are searched."
    )
    times = sorted(page.evaluate(TYPING))
    assert times[len(times) // 2] < LIMIT, times
