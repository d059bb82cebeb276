"""The list of heads in a browser: its numbers, order, filters and address."""

import math
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from browser import Open, each
from browser_plain import plain
from browser_views import (
    DISTANCE,
    ENTROPY,
    PREVIOUS,
    address,
    by_value,
    column_of,
    drawn,
    in_order,
    names,
    rows_of,
    state_of,
    view_of,
    visit,
)
from headbook.pages.parts.head_list import EFFECT_KEY, number_columns
from headbook.pages.parts.table import NumberCell
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["encoder", pytest.param("pair", marks=pytest.mark.slow)])
def test_the_script_draws_the_table_that_stands_without_it(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    still = open_page(site.folder / "heads.html", java_script_enabled=False)
    page = visit(open_page, site)
    table = rows_of(page.locator(".finding"))
    assert table == rows_of(still.locator(".finding"))
    total = len(names(page))
    expect(page.locator("[data-count]")).to_have_text(f"{total} of {total} heads")
    for attribute in ("class", "title", "id"):
        selector = ".finding tbody :is(tr, td, td *)"
        drawn_ones, still_ones = (each(p.locator(selector), attribute) for p in (page, still))
        assert drawn_ones == still_ones


def test_filters_work_while_the_numbers_of_a_column_are_on_their_way(
    encoder_site: Site, open_page: Open
) -> None:
    page = visit(open_page, encoder_site)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(f"**/data/values/{PREVIOUS.partition('/')[0]}.js", hold)
    page.reload()  # what is asked for after that is held back
    drawn(page)
    page.get_by_label("Metric").select_option(PREVIOUS)
    page.get_by_role("button", name="Add column").click()
    page.get_by_label("Filter by words").fill("L1H")
    layer = [facts.name for facts in in_order(encoder_site) if facts.head.layer == 1]
    expect(page.locator("[data-count]")).to_contain_text(f"{len(layer)} of ")
    assert names(page) == layer
    for route in held:
        route.continue_()
    expect(page.locator(f'th[data-key="{PREVIOUS}"]')).to_be_visible()
    assert held
    assert names(page) == layer


# Text and interval of a cell of each row.
CELLS = """(rows, place) => rows.map((row) => {
  const cell = row.querySelectorAll("th, td")[place];
  return [cell.textContent, cell.querySelector("a")?.title];
})"""


def test_an_added_column_holds_the_numbers_of_the_study(
    encoder_site: Site, open_page: Open
) -> None:
    page, found = visit(open_page, encoder_site), encoder_site.results
    for column in number_columns(found)[::9]:
        if column.key in (view_of(page).get("columns") or [""])[0].split(" "):
            continue
        page.get_by_label("Metric").select_option(column.key)
        page.get_by_role("button", name="Add column").click()
        heading = page.locator(f'th[data-key="{column.key}"]')
        if heading.count() == 0:
            heading.wait_for()
        position = each(page.locator(".finding thead :is(th, td)"), "data-key").index(column.key)
        lines = page.locator(".finding tbody tr:not(.part)").evaluate_all(CELLS, position)
        for facts, (text, interval) in zip(in_order(encoder_site), lines, strict=True):
            cell = NumberCell.of(column.at(found, facts.head), column.metric)
            assert text == cell.text, (facts.name, column.key)
            if cell.interval:
                assert interval == cell.interval


def test_a_reader_sorts_searches_and_filters(encoder_site: Site, open_page: Open) -> None:
    """By the keyboard, by words whatever their case and accents, by kinds and by layers."""
    page = visit(open_page, encoder_site)
    sort_by_headings(page, encoder_site)
    search_without_accents(page, encoder_site)
    page.get_by_label("Filter by words").fill("")
    filter_by_what_they_name(page, encoder_site)


def sort_by_headings(page: Page, encoder_site: Site) -> None:
    """Press headings."""
    for key in (DISTANCE, ENTROPY):
        _, values = column_of(encoder_site, key)
        heading = page.locator(f'th[data-key="{key}"]')
        for state, down in (("descending", True), ("ascending", False)):
            heading.get_by_role("button").press("Enter")
            expect(heading).to_have_attribute("aria-sort", state)
            assert names(page) == by_value(values, down=down)
            expect(heading.get_by_role("button")).to_be_focused()
    expect(page.locator("th[aria-sort]")).to_have_count(1)
    page.get_by_role("button", name="Head", exact=True).press("Enter")
    assert names(page) == [*values]
    page.get_by_role("button", name="Reset").press("Enter")
    expect(page.locator("th[aria-sort]")).to_have_count(0)
    assert names(page) == [facts.name for facts in in_order(encoder_site)]


@pytest.mark.slow
def test_heads_without_a_number_come_last_and_pass_no_range(
    pair_site: Site, open_page: Open
) -> None:
    """Across two texts no token is the previous one."""
    _, values = column_of(pair_site, PREVIOUS)
    there = [name for name, value in values.items() if not math.isnan(value)]
    assert 0 < len(there) < len(values)
    page = visit(open_page, pair_site, address(columns=PREVIOUS, sort=f"-{PREVIOUS}"))
    for down in (True, False):
        assert names(page) == by_value(values, down=down)
        assert set(names(page)[: len(there)]) == set(there)
        page.locator(f'th[data-key="{PREVIOUS}"] button').press("Enter")
    page.locator(f'input[data-range="{PREVIOUS}"]').first.fill("0")
    assert {*names(page)} == {*there}


def test_a_range_leaves_the_heads_whose_numbers_lie_in_it(
    encoder_site: Site, open_page: Open
) -> None:
    """Shares are asked for in per cent, as they are shown."""
    page = visit(open_page, encoder_site, address(columns=f"{DISTANCE} {PREVIOUS}"))
    for key, unit in ((DISTANCE, 1), (PREVIOUS, 100)):
        _, values = column_of(encoder_site, key)
        least, most = np.quantile([*values.values()], [0.3, 0.8]) * unit
        ends = page.locator(f'input[data-range="{key}"]')
        ends.first.press_sequentially(f"{least:.4f}")
        ends.last.press_sequentially(f"{most:.4f}")
        order = [facts.name for facts in in_order(encoder_site)]
        wanted = [
            n for n in order if float(f"{least:.4f}") <= values[n] * unit <= float(f"{most:.4f}")
        ]
        assert 0 < len(wanted) < len(values)
        assert names(page) == wanted
        expect(page.locator("[data-count]")).to_have_text(f"{len(wanted)} of {len(values)} heads")
        assert view_of(page)["range"] == [f"{key} {least:.4f} {most:.4f}"]
        ends.first.fill("")
        ends.last.fill("")
        assert names(page) == order
        assert "range" not in view_of(page)


def filter_by_what_they_name(page: Page, encoder_site: Site) -> None:
    """Choose kinds of heads, layers and a name, and take all of it back."""
    facts = in_order(encoder_site)
    for filtered, attribute in (
        ("class", "label"),
        ("verdict", "verdict"),
    ):
        select = page.locator(f'select[data-filter="{filtered}"]')
        words = {getattr(f, attribute).word for f in facts} - {""}
        for word in sorted(words):
            wanted = [f.name for f in facts if getattr(f, attribute).word == word]
            select.select_option(word)
            assert names(page) == wanted
        select.select_option("")
    page.get_by_label("Layers from").fill("1")
    assert names(page) == [f.name for f in facts if f.head.layer >= 1]
    page.get_by_label("to", exact=True).fill("1")
    assert names(page) == [f.name for f in facts if f.head.layer == 1]
    page.get_by_label("Filter by words").fill("l1h0")
    assert names(page) == ["L1·H0"]
    page.get_by_role("button", name="Reset").click()
    expect(page.locator("[data-count]")).to_have_text(f"{len(facts)} of {len(facts)} heads")
    assert names(page) == [f.name for f in facts]
    assert view_of(page) == {}


def search_without_accents(page: Page, encoder_site: Site) -> None:
    """Type a word in capitals and with accents."""
    facts = in_order(encoder_site)
    word = facts[0].label.word.lower()
    accented = word.replace("a", "á").replace("o", "ö").upper()
    page.get_by_label("Filter by words").fill(accented)
    parts = [
        " ".join(
            (
                f.name,
                f.href,
                *(f"{x.word} {x.detail}" for x in (f.label, f.relation, f.verdict)),
            )
        )
        for f in facts
    ]
    wanted = [f.name for f, text in zip(facts, parts, strict=True) if word in text.lower()]
    assert names(page) == wanted


def test_the_address_reproduces_the_view(encoder_site: Site, open_page: Open) -> None:
    """What a reader has set up by hand is there after a reload and in another window."""
    page = visit(open_page, encoder_site)
    page.get_by_label("Metric").select_option(PREVIOUS)
    page.get_by_role("button", name="Add column").click()
    page.locator(f'th[data-key="{PREVIOUS}"] button').click()
    page.get_by_role("button", name="Remove Attention to the sink").click()
    page.locator(f'input[data-range="{PREVIOUS}"]').first.fill("1")
    page.get_by_label("Layers from").fill("1")
    before = state_of(page)
    initial = [ENTROPY, DISTANCE, EFFECT_KEY, PREVIOUS]
    listed = ("verdict", "relation")
    known = in_order(encoder_site)
    last = [name for name in listed if any(getattr(f, name).word for f in known)]
    parts = ""  # the bar of parts, which sorts nothing
    assert before[0] == ["head", "class", parts, *initial, *last]
    page.reload()
    drawn(page)
    assert state_of(page) == before
    other = visit(open_page, encoder_site, f"#{urlsplit(page.url).fragment}")
    assert state_of(other) == before


UNKNOWN = (
    "#12",
    "#-",
    "#nowhere",
    "#columns=nothing+attention_distance&sort=-sink&class=none&verdict=%FF&stack=mine",
    "#sort=-attention_to/previous&range=attention_to/previous+1+2&range=sink_share/+a+b",
    "#from=-1&to=1e9&role=yes&find=&constructor=1&sort=__proto__&class=toString",
    "#%E0%A4%A",
    "#list",
)


def test_what_an_address_holds_and_no_list_knows_is_ignored(
    encoder_site: Site, open_page: Open
) -> None:
    page = visit(open_page, encoder_site)
    expected = state_of(page)
    assert len(names(page)) == len(column_of(encoder_site, DISTANCE)[1])
    for fragment in UNKNOWN:
        page.goto("about:blank")
        page.goto((encoder_site.folder / "heads.html").as_uri() + fragment)
        drawn(page)
        assert state_of(page) == expected, fragment


def test_questions_families_and_maps_lead_to_their_heads(
    encoder_site: Site, open_page: Open
) -> None:
    """A question to its answer at the top, a family to its heads, a map to its line."""
    page = visit(open_page, encoder_site)
    page.emulate_media(reduced_motion="reduce")  # or the way to the link goes on after Enter
    links = page.locator(".questions li > a:first-child")
    assert links.count() > 3
    for link in links.all():
        link.focus()
        page.keyboard.press("Enter")
        (sort,) = parse_qs(link.get_attribute("data-view") or "")["sort"]
        key, down = sort.removeprefix("-"), sort.startswith("-")
        expect(page.locator("th[aria-sort]")).to_have_attribute("data-key", key)
        _, values = column_of(encoder_site, key)
        heads = page.locator(".finding tbody th")  # in their old order until numbers have come
        expect(heads).to_have_text(by_value(values, down=down))
        expect(page.locator("[data-count]")).to_be_in_viewport()
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Head", exact=True)).to_be_focused()
    page = visit(open_page, encoder_site)
    choose_a_family_and_a_map(page, encoder_site)


def choose_a_family_and_a_map(page: Page, encoder_site: Site) -> None:
    """Filter by a family, and go to the line of a map."""
    facts = in_order(encoder_site)
    family = page.locator(".family > a").first
    word = next(f.label.word for f in facts if f.label.word in (family.text_content() or ""))
    family.click()
    wanted = [f.name for f in facts if f.label.word == word]
    expect(page.locator("[data-count]")).to_have_text(f"{len(wanted)} of {len(facts)} heads")
    assert names(page) == wanted
    expect(page.locator('select[data-filter="class"]')).to_have_value(word)
    page.locator(".minis a").last.click()
    expect(page.locator(".finding tbody th")).to_have_count(len(facts))
    assert names(page) == [f.name for f in facts]
    expect(page.locator(".finding tr.named")).to_be_in_viewport()
    href = page.locator(".finding tr.named th a").get_attribute("href") or ""
    assert page.url.endswith(f"#{href.removeprefix('heads/').removesuffix('.html')}")


def test_without_scripts_a_map_leads_to_its_line(encoder_site: Site) -> None:
    page = plain(encoder_site.folder / "heads.html")
    last = page.all(".minis a")[-1]
    title = last.attributes["title"].partition(",")[0]
    (line,) = page.all(f".finding tr{last.attributes['href']}")
    assert line.one("th").text == title


def test_a_sentence_is_found_by_part_of_it_whatever_its_case(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "sentences" / "index.html")
    lines = page.locator("ol.sentences li")
    texts = lines.all_inner_texts()
    word = texts[0].split()[0]
    wanted = [text for text in texts if word.lower() in text.lower()]
    assert len(texts) > 1
    page.get_by_label("Find a sentence").fill(word.upper())
    expect(page.get_by_role("status")).to_have_text(f"{len(wanted)} of {len(texts)} sentences")
    assert [line.inner_text() for line in lines.all() if line.is_visible()] == wanted
    page.get_by_label("Find a sentence").fill("")
    expect(page.get_by_role("status")).to_have_text("")
    assert all(line.is_visible() for line in lines.all())
