"""The map of all heads at the foot of pages, in a browser."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser import Open, Record, each
from sites import Site, data_of

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def opened(open_page: Open, site: Site, path: str, **options: Any) -> Page:
    """A page with its map open."""
    page = open_page(site.folder / path, **options)
    page.locator(".atlas summary").click()
    page.locator(".atlas table").first.wait_for()
    return page


def displayed(page: Page) -> list[tuple[str, str]]:
    """Names with values, and colours, of all heads."""
    links = page.locator(".atlas td a")
    steps = page.locator(".atlas tbody td").evaluate_all("cells => cells.map((c) => c.className)")
    return [*zip(each(links, "aria-label"), steps, strict=True)]


def expected(site: Site, key: str) -> list[tuple[str, str]]:
    """The same from the data."""
    grids, found = data_of(site, "grid"), []
    for stack, _, _, _, names, _ in data_of(site, "map")["stacks"]:
        numbers = grids[stack].get(key)
        for index, name in enumerate(names):
            text = numbers["texts"][index] if numbers else "–"
            step = numbers["steps"][index] if numbers else -1
            found.append((f"{name}: {text}", "" if step < 0 else f"c{step}"))
    return found


@pytest.mark.parametrize("kind", ["encoder", "pair"])
def test_it_shows_every_head_by_any_metric(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    """Values and colours are those of the data; what a stack lacks is a dash."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = opened(open_page, site, "metrics/index.html")
    assert displayed(page) == expected(site, data_of(site, "map")["chosen"])
    for key in ("relative_entropy/", "attention_to/previous"):
        page.locator(".atlas select").select_option(key)
        expect(page.locator(".atlas caption").first).to_contain_text("(strong)")
        page.wait_for_timeout(200)
        assert displayed(page) == expected(site, key)


def test_the_map_of_another_page_begins_as_every_map_with_its_head_marked(
    encoder_site: Site, open_page: Open
) -> None:
    """Nothing is remembered: a page shows colleagues what it shows its author."""
    page = opened(open_page, encoder_site, "data.html")
    page.locator(".atlas select").select_option("relative_entropy/")
    page.goto((encoder_site.folder / "heads/L01-H02.html").as_uri())
    page.locator(".atlas summary").click()
    page.locator(".atlas table").wait_for()
    assert displayed(page) == expected(encoder_site, data_of(encoder_site, "map")["chosen"])
    current = page.locator('.atlas [aria-current="page"]')
    expect(current).to_have_count(1)
    assert (current.get_attribute("aria-label") or "").startswith("L1·H2: ")


def test_arrow_keys_move_and_a_click_leads_to_the_head(encoder_site: Site, open_page: Open) -> None:
    page = opened(open_page, encoder_site, "heads/L00-H01.html")
    assert each(page.locator(".atlas td a"), "tabindex").count("0") == 1
    page.locator(".atlas select").press("Tab")
    for key, name in (("ArrowDown", "L1·H1"), ("ArrowRight", "L1·H2"), ("ArrowDown", "L1·H2")):
        page.locator(":focus").press(key)
        label = page.locator(":focus").get_attribute("aria-label") or ""
        assert label.startswith(f"{name}: ")
        expect(page.locator(".atlas .status")).to_have_text(label)
    page.locator(":focus").press("Enter")
    expect(page.locator("h1")).to_have_text("Head L1·H2")


def test_it_is_loaded_when_it_is_opened_and_closed_by_escape(
    encoder_site: Site, open_page: Open, record: Record
) -> None:
    page = open_page(encoder_site.folder / "methods.html")
    parts = ("map.js", "atlas.js", "find.js")
    assert not any(name in address for address in record.requests for name in parts)
    page.locator(".atlas summary").click()
    page.locator(".atlas table").first.wait_for()
    expect(page.locator(".atlas [aria-current]")).to_have_count(0)
    page.locator(".atlas select").press("Escape")
    expect(page.locator(".atlas table")).to_be_hidden()
    expect(page.locator(".atlas summary")).to_be_focused()
