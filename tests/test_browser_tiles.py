"""Sentence pages of models with many heads: one link that moves over the maps, and few pictures."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Locator, Page, expect

import headbook
import naive_instances as naive
from browser import Open, each, sideways, violations
from headbook.stored.shown import HeadName
from headbook.views import instance, sentencestack
from headbook.wording import head_name, head_page
from naive_instances import written
from sites import Once, Site
from test_browser_instances import map_of, table

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE = "sentences/0001.html"
WIDTHS = (360, 800, 1440)
Many = Callable[..., Path]


@pytest.fixture(scope="module")
def many(once: Once) -> Many:
    """A site written as if its model had too many heads for a link each, and too many layers."""

    def make(site: Site, *, exact: bool = True) -> Path:
        def write(draft: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sentencestack, "MOST_LINKS", 0)
                patch.setattr(sentencestack, "MOST_POINTS", 100)
                if not exact:
                    patch.setattr(instance, "MOST_BYTES", 0)
                headbook.render(site.study, draft / "site", processes=1)

        return once(f"{site.kind}-many-{exact}", write) / "site"

    return make


@pytest.fixture(params=["encoder", "pair"])
def any_kind(request: pytest.FixtureRequest) -> Site:
    """A model with one stack, and one with three."""
    site: Site = request.getfixturevalue(f"{request.param}_site")
    return site


def sheet(page: Page, stack: str) -> Locator:
    """The maps of a stack."""
    return page.locator(f'[data-sheet="{stack}"]')


def middle(sheet: Locator, row: int, column: int, heads: int) -> tuple[float, float]:
    """Where a head's map is in the window."""
    sheet.scroll_into_view_if_needed()
    box = sheet.locator("image").bounding_box()
    assert box is not None
    side = box["width"] / heads
    return box["x"] + (column + 0.5) * side, box["y"] + (row + 0.5) * side


def test_without_scripts_a_layer_has_a_link(
    encoder_site: Site, many: Many, open_page: Open
) -> None:
    """To its first head; the grid of all heads is linked, too, and no chart needs scripts."""
    page = open_page(many(encoder_site) / SENTENCE, java_script_enabled=False)
    (stack,) = encoder_site.study.manifest.stacks
    found = each(page.locator(".sheet a"), "href")
    first = [HeadName("self", layer, 0) for layer in stack.attention_layers]
    assert found == [f"../{head_page(head)}" for head in first]
    assert page.locator("main a[href='../index.html#heads']").is_visible()
    assert not page.get_by_role("button", name="Draw").first.is_visible()


def test_one_link_goes_to_every_head_by_pointer_and_keys(
    any_kind: Site, many: Many, open_page: Open
) -> None:
    """Its name and address are those of the head that is there."""
    page = open_page(many(any_kind) / SENTENCE)
    for stack in any_kind.study.manifest.stacks:
        maps, link = sheet(page, stack.name), sheet(page, stack.name).locator("a")
        assert link.count() == 1
        for row, layer in enumerate(stack.attention_layers):
            for column in range(stack.n_heads):
                page.mouse.move(*middle(maps, row, column, stack.n_heads))
                head = HeadName(stack.name, layer, column)
                there = [link.get_attribute(name) for name in ("aria-label", "href")]
                assert there == [head_name(head), f"../{head_page(head)}"]
        names = [
            HeadName(stack.name, stack.attention_layers[row], column)
            for row, column in ((0, 0), (0, 1), (1, 1), (1, 3), (0, 3), (0, 2), (0, 0), (1, 0))
        ]
        page.mouse.move(0, 0)
        link.focus()
        for key, head in zip(
            ("PageUp Home", "ArrowRight", "ArrowDown", "End", "PageUp", "ArrowLeft", "Home",
             "PageDown"), names, strict=True,
        ):  # fmt: skip
            for one in key.split():
                page.keyboard.press(one)
            assert link.get_attribute("aria-label") == head_name(head)
            assert maps.locator("xpath=../following-sibling::*[1]").text_content() == head_name(
                head
            )
        for key in ("ArrowDown", "ArrowLeft"):  # no map is there
            page.keyboard.press(key)
        assert link.get_attribute("aria-label") == head_name(names[-1])


def test_the_moving_link_opens_weights_and_its_address_brings_them_back(
    encoder_site: Site, many: Many, open_page: Open
) -> None:
    page = open_page(many(encoder_site) / SENTENCE)
    maps = sheet(page, "self")
    maps.locator("a").focus()
    for key in ("ArrowDown", "End", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".maptitle")).to_have_text("L1·H3")
    page.get_by_label("Compare with").select_option("L0·H2")
    expect(maps.locator(".kept")).to_have_count(2)
    assert parse_qs(urlparse(page.url).fragment)["heads"] == ["1.3,0.2"]
    again = open_page(many(encoder_site) / SENTENCE)
    again.goto(f"{again.url}#at=self&heads=1.3,0.2&q=4")
    again.reload()
    box = again.locator(".full")
    rows = [
        naive.weights(map_of(encoder_site, "self", *head), "raw", "pieces")[4]
        for head in ((1, 3), (0, 2))
    ]
    again.locator(".weights tbody tr").first.wait_for()
    assert [row[1:3] for row in table(box)] == [
        [written(row[k]) for row in rows] for k in naive.ranked(rows[0])
    ]
    side = sheet(again, "self").locator("image").evaluate("(e) => e.getAttribute('width') / 4")
    kept = sheet(again, "self").locator(".kept")
    assert [each(kept, name) for name in "xy"] == [
        [str(round(3 * side)), str(round(2 * side))],
        [str(round(side)), "0"],
    ]


def test_a_map_without_numbers_leads_to_its_head(
    small_site: Site, many: Many, open_page: Open
) -> None:
    page = open_page(many(small_site, exact=False) / SENTENCE)
    assert page.locator("[data-sheet]").count() == 0
    page.mouse.click(*middle(page.locator(".sheet"), 1, 2, 4))
    page.wait_for_url("**/heads/L01-H02.html")


def test_charts_without_a_picture_are_drawn_on_a_click(
    encoder_site: Site, many: Many, open_page: Open
) -> None:
    """The page says how many there are; a second click takes the chart away."""
    page = open_page(many(encoder_site) / SENTENCE)
    bare = page.locator("figure.chart:has([data-chart]):not(:has(svg))")
    still = page.locator("figure.chart:has([data-chart]):has(svg)")
    without, pictures = bare.count(), still.count()
    assert without > 0
    said = page.get_by_text("Of ").filter(has_text="charts the page has room for")
    numbers = re.findall(r"\d+", said.text_content() or "")
    assert [int(n) for n in numbers] == [without + pictures, pictures]
    name = bare.first.get_attribute("id")
    figure = page.locator(f"#{name}")
    figure.get_by_role("button", name="Draw").click()
    figure.locator(".live svg.marks").wait_for()
    figure.get_by_role("button", name="Take away").click()
    expect(bare).to_have_count(without)


def test_many_heads_fit_every_width_and_axe_finds_nothing(
    any_kind: Site, many: Many, open_page: Open
) -> None:
    page = open_page(many(any_kind) / SENTENCE, color_scheme="light", reduced_motion="reduce")
    link = page.locator("[data-sheet] a").first
    link.focus()
    page.keyboard.press("ArrowRight")
    link.click()
    page.locator(".maptitle").first.wait_for()
    assert {width: sideways(page, width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
