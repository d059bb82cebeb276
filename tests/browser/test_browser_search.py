"""The search of every page in a browser: what it finds is what the study holds."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from browser import DARK, Open, Record, each, sideways, violations
from html_pages import data_file
from sites import Site, data_of

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LIMIT = 50  # milliseconds from a key to the results


def box(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Search this site")


def ask(page: Page, query: str) -> dict[str, int]:
    """Type a query; the kinds that are found, with their numbers."""
    box(page).focus()
    page.locator("[data-finder][data-ready]").wait_for()
    box(page).fill(query)
    expect(page.locator("#found-count")).not_to_be_empty()
    page.wait_for_timeout(50)
    headings = page.locator("#found [role=group] > p").all_text_contents()
    matches = [re.fullmatch(r"(\w+) ([\d,]+)", heading) for heading in headings]
    return {match[1]: int(match[2].replace(",", "")) for match in matches if match}


def options(page: Page, kind: str = "") -> Locator:
    """What was found, of one kind or of all."""
    within = f"[aria-label^='{kind}']" if kind else ""
    return page.locator(f"#found [role=group]{within} [role=option]")


def hits(page: Page, kind: str) -> list[str]:
    """The titles of what was found."""
    return options(page, kind).locator(".hit").all_text_contents()


@pytest.fixture
def overview(encoder_site: Site, open_page: Open) -> Page:
    return open_page(encoder_site.folder / "index.html")


def test_data_come_when_the_box_is_entered_and_the_address_stays(
    overview: Page, record: Record
) -> None:
    def asked() -> list[str]:
        return [address for address in record.requests if "/data/" in address]

    assert asked() == []
    box(overview).focus()
    overview.wait_for_timeout(300)
    assert {address.rpartition("/")[2] for address in asked()} == {"find.js", "headlist.js"}
    keep_the_address(overview)


HEAD = ["L1 H2", "l1·h2", "layer 1 head 2", "1.2", "Layer 1, Head 2", "L1-H2", "1/2"]


def test_a_head_is_found_however_it_is_written(overview: Page) -> None:
    for query in HEAD:
        assert ask(overview, query)["Heads"] == 1, query
        assert hits(overview, "Heads") == ["L1·H2"], query
        assert options(overview, "Heads").first.get_attribute("href") == "heads/L01-H02.html"
    options(overview, "Heads").first.click()
    expect(overview.locator("h1")).to_have_text("Head L1·H2")


def test_search_is_on_every_page_and_keys_alone_lead_through_it(
    encoder_site: Site, open_page: Open
) -> None:
    """A slash enters the field, but in another field it is a slash."""
    page = open_page(encoder_site.folder / "heads.html")
    field = page.get_by_label("Filter by words")
    field.press("/")
    expect(field).to_be_focused()
    for path in ("heads/L00-H01.html", "methods.html", "sentences/0001.html"):
        page.goto((encoder_site.folder / path).as_uri())
        go_by_keys(page)


def go_by_keys(page: Page) -> None:
    """Enter by a slash, choose by arrows, open by Enter; the field keeps the focus."""
    page.keyboard.press("/")
    expect(box(page)).to_be_focused()
    expect(box(page)).to_have_value("")
    ask(page, "layer 1")
    expect(box(page)).to_have_attribute("aria-expanded", "true")
    for key, position in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowUp", 0)):
        box(page).press(key)
        chosen = options(page).nth(position)
        expect(chosen).to_have_attribute("aria-selected", "true")
        expect(box(page)).to_have_attribute("aria-activedescendant", chosen.get_attribute("id"))
        expect(box(page)).to_be_focused()
    box(page).press("ArrowUp")
    expect(page.locator("#found [aria-selected=true]")).to_have_count(0)
    ask(page, "sentence 2")
    box(page).press("ArrowDown")
    box(page).press("Enter")
    expect(page).to_have_url(re.compile("sentences/0002.html$"))


def leave_by_escape(overview: Page) -> None:
    """Close the list, empty the field, and leave it."""
    ask(overview, "layer 1")
    box(overview).press("Escape")
    expect(overview.locator("[data-found]")).to_be_hidden()
    expect(box(overview)).to_have_attribute("aria-expanded", "false")
    expect(box(overview)).to_have_value("layer 1")
    box(overview).press("Escape")
    expect(box(overview)).to_have_value("")
    ask(overview, "layer 1")
    overview.locator("h1").dispatch_event("click")
    box(overview).blur()
    expect(overview.locator("[data-found]")).to_be_hidden()


def keep_the_address(page: Page) -> None:
    """Type what could stand in an address."""
    page.goto(f"{page.url}#families")
    address = page.url
    ask(page, "the dog, & “é”#1")
    page.wait_for_timeout(400)
    assert page.url == address


WORDS = {
    "dobj": "relation_accuracy%2Fobj%3Ato_dependent",
    "induction": "metrics/duplicate_score.html",
    "coreference": "metrics/attention_to.html",
    "useless": "patterns.html",
    "dead heads": "patterns.html",
    "pruning": "metrics/output_norm_share.html",
    "duplicate": "metrics/duplicate_score.html",
    "previous-token head": "attention_to%2Fprevious",
    "sink": "metrics/sink_share.html",
    "overview": "index.html",
}
NEWCOMERS = ("previous token", "direct object", "SEP", "separator", "object")


def test_words_of_papers_tools_and_newcomers_are_understood(overview: Page) -> None:
    """Newcomers find every question with their words."""
    for query, address in WORDS.items():
        ask(overview, query)
        assert any(address in href for href in each(options(overview), "href")), query
    for query in NEWCOMERS:
        wanted = [q for q, *_ in data_of_questions(overview) if query.lower() in q.lower()]
        assert ask(overview, query).get("Questions", 0) >= len(wanted), query
        assert {*hits(overview, "Questions")} >= {*wanted}, query


def data_of_questions(page: Page) -> list[list[str]]:
    folder = urlsplit(page.url).path.rpartition("/")[0]
    _, found = data_file(Path(f"{folder}/data/find.js"))
    rows: list[list[str]] = found["questions"]
    return rows


def test_heads_sentences_and_tokens_are_those_of_the_study(
    encoder_site: Site, overview: Page
) -> None:
    """Heads by function, sentences by letters, tokens by their type."""
    find_heads(encoder_site, overview)
    find_sentences(encoder_site, overview)
    find_tokens(overview)


def find_heads(encoder_site: Site, overview: Page) -> None:
    """Ask for the noun of a function, and for its sentence."""
    functions = data_of(encoder_site, "find")["functions"]
    for query in {text for row in functions for text in row[:2]}:
        words = query.lower().split()
        wanted = sum(
            all(word in text.lower() or f" {word}" in f" {noun} {more}".lower() for word in words)
            for noun, text, more in functions
        )
        assert ask(overview, query)["Heads"] == wanted > 0


def find_sentences(encoder_site: Site, overview: Page) -> None:
    """Ask by parts of words, whatever their case and accents."""
    texts = {row[0]: row[2] for row in data_of(encoder_site, "find")["sentences"]}
    for query in ("FISHER", "fïsher", "old", "see the"):
        words = query.lower().replace("ï", "i").split()
        wanted = [t for t in texts.values() if all(word in t.lower() for word in words)]
        assert ask(overview, query).get("Sentences", 0) == len(wanted)
        if len(wanted) > 5:
            options(overview, "Sentences").last.click()
        displayed = [text.removesuffix("…").rstrip() for text in hits(overview, "Sentences")]
        assert len(displayed) == len(wanted)
        assert all(any(text.startswith(start) for start in displayed) for text in wanted)


def test_results_are_marked_counted_and_only_text(overview: Page) -> None:
    """And Escape closes them, then empties the field."""
    see_marks(overview)
    hear_the_count(overview)
    type_hostile_text(overview)
    leave_by_escape(overview)


def see_marks(overview: Page) -> None:
    """See the letters that were typed in what was found."""
    ask(overview, "attention DIST")
    marks = options(overview).locator(".hit mark").all_text_contents()
    assert {mark.lower() for mark in marks} >= {"attention", "dist"}
    ask(overview, "fisher")
    marks = options(overview).locator(".hit mark").all_text_contents()
    assert {mark.lower() for mark in marks} == {"fisher"}


def find_tokens(page: Page) -> None:
    """Go to a token's type, also from the page of tokens."""
    for token in ("house", "old"):
        ask(page, token)
        position = hits(page, "Tokens").index(token)
        options(page, "Tokens").nth(position).click()
        expect(page.locator(".topic")).to_have_text("Tokens")
        expect(page.locator("#all tbody th").first).to_have_text(token)
        assert page.locator("[data-types]").first.input_value() == token


def hear_the_count(overview: Page) -> None:
    """Hear how many of each kind there are."""
    found = ask(overview, "dist")
    message = ", ".join(f"{kind} {number}" for kind, number in found.items())
    expect(overview.locator("#found-count")).to_have_text(f"{message}.")
    ask(overview, "qqqqq")
    expect(overview.locator("#found-count")).to_have_text("Nothing found.")


def test_five_of_a_kind_are_shown_and_all_on_request(overview: Page) -> None:
    """By key, which goes on from the first of the others."""
    number = ask(overview, "e")["Tokens"]
    assert number > 5
    assert len(hits(overview, "Tokens")) == 5
    more = options(overview, "Tokens").last
    expect(more).to_have_text(f"Show all {number}")
    while more.get_attribute("aria-selected") == "false":
        box(overview).press("ArrowDown")
    box(overview).press("Enter")
    assert len(hits(overview, "Tokens")) == number
    expect(options(overview, "Tokens").nth(5)).to_have_attribute("aria-selected", "true")
    expect(box(overview)).to_be_focused()


def test_results_are_accessible_in_both_themes(overview: Page) -> None:
    ask(overview, "e")
    assert violations(overview) == []
    overview.emulate_media(color_scheme="dark")
    assert overview.evaluate("getComputedStyle(document.body).backgroundColor") == DARK
    assert violations(overview, "color-contrast") == []
    widths = (360, 390, 800, 1440)
    assert {width: sideways(overview, width) for width in widths} == dict.fromkeys(widths, 0)
    for width in widths:
        overview.set_viewport_size({"width": width, "height": 800})
        displayed = overview.locator("[data-found]").bounding_box()
        assert displayed
        assert displayed["x"] >= 0
        assert displayed["x"] + displayed["width"] <= width


def type_hostile_text(overview: Page) -> None:
    """Type markup and names of properties."""
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
    document.querySelector("#found").getBoundingClientRect();
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
    expect(page.locator("#found-count")).to_contain_text(
        "Only the first 5,000 sentences are searched."
    )
    times = sorted(page.evaluate(TYPING))
    assert times[len(times) // 2] < LIMIT, times
