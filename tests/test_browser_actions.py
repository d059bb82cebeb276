"""Choosing, filtering, themes and the keyboard, in a browser."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser import DARK, LIGHT, Open, background, come_alive, each
from sites import Site

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def data(file: Path) -> Any:
    """What a data file hands to the page."""
    _, _, value = file.read_text(encoding="utf-8").partition(",")
    return json.loads(value.strip().removesuffix(");"))


@pytest.mark.parametrize("kind", ["encoder", pytest.param("pair", marks=pytest.mark.slow)])
def test_grid_shows_the_chosen_metric(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / "index.html")
    grids = data(site.folder / "data" / "grid.js")
    assert {*grids} == {stack.name for stack in site.study.manifest.stacks}
    for stack, choices in grids.items():
        grid = page.locator(f'[data-grid="{stack}"]')
        for key in [*choices][::17]:
            grid.get_by_label("Metric").select_option(key)
            shown = choices[key]
            expect(grid.locator("[data-caption]")).to_have_text(shown["caption"])
            assert grid.locator("td a").all_text_contents() == shown["texts"]
            colours = [f"c{step}" if step >= 0 else "" for step in shown["steps"]]
            assert each(grid.locator("td"), "class") == colours
            ends = [grid.locator(f"[data-{end}]").text_content() for end in ("low", "high")]
            assert ends == [shown["low"], shown["high"]]
            titles = each(grid.locator("td a"), "title")
            names = [f"{title}: {text}" for title, text in zip(titles, shown["texts"], strict=True)]
            assert each(grid.locator("td a"), "aria-label") == names


def test_grid_values_are_those_of_the_table(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html")
    page.get_by_label("Metric").select_option("relative_entropy/")
    expect(page.locator("[data-caption]")).to_contain_text("all keys")
    heads = encoder_site.study.heads
    rows = heads[(heads["metric"] == "relative_entropy") & (heads["view"] == "raw")]
    for value, cell in zip(rows["value"], page.locator("table.heads td a").all(), strict=True):
        assert float(cell.text_content() or "") == pytest.approx(value, abs=0.006)


def test_live_chart_filters_its_numbers(encoder_site: Site, open_page: Open) -> None:
    """Every choice of its list shows that choice's numbers, and the picture comes back."""
    page = open_page(encoder_site.folder / "metrics/attention_distance.html")
    figure = page.locator("figure.chart").first
    picture = figure.locator(".scroll > svg[role=img]")
    expect(picture).to_be_visible()
    come_alive(page)
    expect(picture).to_have_count(0)
    heads = encoder_site.study.heads
    for view in ("nosink", "renorm", "raw"):
        figure.locator(".vega-bindings select").select_option(view)
        rows = heads[(heads["metric"] == "attention_distance") & (heads["view"] == view)]
        for layer, head, value in zip(rows["layer"], rows["head"], rows["value"], strict=True):
            place = f"head: {head}; layer: {layer}; "
            mark = f'.live [aria-label^="{place}"][aria-label*="; value: {value:.4g};"]'
            expect(figure.locator(mark)).to_have_count(1)
        expect(figure.locator(".live [aria-roledescription='rect mark']")).to_have_count(len(rows))
    figure.get_by_role("button", name="Still picture").click()
    expect(picture).to_be_visible()
    expect(figure.locator(".live")).to_have_count(0)
    come_alive(page)


def test_theme_is_remembered_on_the_next_page(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html", color_scheme="dark")
    switch = page.get_by_role("button", name="Theme")
    for theme, colour in (("system", DARK), ("light", LIGHT), ("dark", DARK), ("system", DARK)):
        expect(switch).to_have_text(f"Theme: {theme}")
        assert background(page) == colour
        switch.click()
    page.get_by_role("link", name="Methods", exact=True).click()
    expect(page.locator("h1")).to_have_text("Methods")
    expect(switch).to_have_text("Theme: light")
    assert background(page) == LIGHT
    page.emulate_media(color_scheme="light")
    switch.click()
    assert background(page) == DARK


def outline(page: Page) -> tuple[str, str]:
    """How the element with the focus is marked."""
    script = "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
    style, width = page.evaluate(f"{script}(getComputedStyle(document.activeElement))")
    return style, width


def test_keyboard_leads_from_the_overview_to_a_head(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "index.html")
    cell = page.locator("table.heads td a").first
    for _ in range(80):
        page.keyboard.press("Tab")
        assert outline(page) == ("solid", "3px")
        if cell.evaluate("cell => cell === document.activeElement"):
            break
    expect(cell).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Head L0·H0")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    assert outline(page) == ("solid", "3px")


def test_skip_link_leads_past_the_navigation(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "heads/L00-H01.html")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).not_to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("main a").first).to_be_focused()


def test_a_type_is_found_by_part_of_its_name_whatever_its_case(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "tokens.html")
    types = data(encoder_site.folder / "data" / "types.js")["self"]
    body = page.locator("[data-types-of=self]")
    still = body.all_inner_texts()
    search = page.get_by_label("Find a type")
    search.fill("O")
    wanted = [row for row in types if "o" in row[0].lower()]
    assert 0 < len(wanted) < len(types)
    expect(page.get_by_role("status").first).to_have_text(f"{len(wanted)} of {len(types)} types")
    rows = [row.locator("th, td").all_text_contents() for row in body.locator("tr").all()]
    assert rows == wanted
    search.fill("")
    expect(page.get_by_role("status").first).to_have_text("")
    assert body.all_inner_texts() == still
