"""The picture of all heads in a browser; access to the page, and a list of 1,024 heads."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from browser import Open, each, sideways, violations
from browser_views import (
    DISTANCE,
    ENTROPY,
    PREVIOUS,
    address,
    column_of,
    drawn,
    in_order,
    names,
    visit,
)
from headbook.charts.theme import LAYERS
from headbook.report.head_facts import head_facts
from headbook.schema import HeadName
from headbook.site.markup import script
from html_pages import data_file
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDTHS = (360, 800, 1440)


def places(page: Page) -> dict[str, tuple[float, float]]:
    """Where the points of heads stand."""
    locator = page.locator("[data-stage] a")
    labels, moves = each(locator, "aria-label"), each(locator, "transform")
    return {
        label.partition(":")[0]: tuple(map(float, re.findall(r"-?[\d.]+", move)))  # type: ignore[misc]
        for label, move in zip(labels, moves, strict=True)
    }


@pytest.mark.parametrize("pair", [(DISTANCE, ENTROPY), (PREVIOUS, DISTANCE)])
def test_points_stand_where_their_numbers_are(
    encoder_site: Site, open_page: Open, pair: tuple[str, str]
) -> None:
    """Places are the numbers on a linear scale, upwards and to the right."""
    page = visit(open_page, encoder_site, address(x=pair[0], y=pair[1]))
    found = places(page)
    for axis, key, sign in ((0, pair[0], 1), (1, pair[1], -1)):
        _, values = column_of(encoder_site, key)
        known = {name: v for name, v in values.items() if name in found}
        assert len(known) == sum(not math.isnan(v) for v in values.values())
        at = np.array([found[name][axis] for name in known])
        slope, start = np.polyfit([*known.values()], at, 1)
        assert slope * sign > 0
        np.testing.assert_allclose(at, start + slope * np.array([*known.values()]), atol=0.12)
        if min(known.values()) >= 0:  # the axis begins at 0, as that of the still picture
            line = page.locator("[data-stage] .axis").get_attribute("d") or ""
            corner = re.findall(r"-?[\d.]+", line)
            assert abs(start - float(corner[0 if axis == 0 else 2])) < 1


def test_the_head_nearest_to_the_pointer_is_told(encoder_site: Site, open_page: Open) -> None:
    """Beside a point as on it, and none where all are out of reach."""
    page = visit(open_page, encoder_site)
    page.locator("[data-stage] svg").scroll_into_view_if_needed()
    box = page.locator("[data-stage] svg").bounding_box()
    assert box is not None
    found, message = places(page), page.locator("[data-stage] .status")
    for dx, dy in ((0, 0), (9, 3), (-4, -9)):
        for x, y in found.values():
            away = {n: math.dist((x + dx, y + dy), place) for n, place in found.items()}
            if sorted(away.values())[1] - min(away.values()) < 1:
                continue  # two are as near
            page.mouse.move(box["x"] + x + dx, box["y"] + y + dy)
            nearest = min(away, key=lambda n: away[n])
            expect(message).to_contain_text(f"{nearest}: ")
            expect(page.locator("[data-stage] .near")).to_have_attribute(
                "aria-label", re.compile(rf"^{nearest}: ")
            )
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    expect(page.locator("[data-stage] .near")).to_have_count(0)


def test_layers_have_the_colours_of_the_still_picture(encoder_site: Site, open_page: Open) -> None:
    page = visit(open_page, encoder_site)
    fills = page.locator("[data-stage] a path").evaluate_all(
        "found => found.map((each) => getComputedStyle(each).fill.match(/[\\d.]+/g).map(Number))"
    )
    layers = [int(name[1]) for name in places(page)]
    assert {*layers} == {0, 1}
    for layer, fill in zip(layers, fills, strict=True):
        wanted = [int(LAYERS[-layer][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        np.testing.assert_allclose(fill, wanted, atol=0.005)


def test_names_hide_no_point_and_no_name(encoder_site: Site, open_page: Open) -> None:
    page = visit(open_page, encoder_site)
    boxes = page.locator("[data-stage] a text:not([hidden])").evaluate_all(
        """found => found.map((each) => {
          const { left, right, top, bottom } = each.getBoundingClientRect();
          return [left, right, top + 2, bottom - 2];  // letters do not fill their line
        })"""
    )
    assert len(boxes) > 2
    for n, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[:n]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top


def test_points_lead_to_their_heads_by_keyboard(encoder_site: Site, open_page: Open) -> None:
    """One is in the order of Tab; arrow keys go to the next one by place."""
    page = visit(open_page, encoder_site)
    dots = page.locator("[data-stage] a")
    facts = {f.name: f.href for f in head_facts(encoder_site.results["self"])}
    labels = [label.partition(":")[0] for label in each(dots, "aria-label")]
    assert [*zip(labels, each(dots, "href"), strict=True)] == [*facts.items()]
    expect(page.locator('[data-stage] a[tabindex="0"]')).to_have_count(1)
    page.locator('[data-filter="y"]').focus()
    page.keyboard.press("Tab")
    order = sorted(labels, key=lambda name: (places(page)[name][0], labels.index(name)))
    focused = "document.activeElement.getAttribute('aria-label').split(':')[0]"
    at = order.index(page.evaluate(focused))
    for key, step in (("ArrowRight", 1), ("ArrowLeft", -1)):
        while 0 <= at + step < len(order):
            page.keyboard.press(key)
            at += step
            assert page.evaluate(focused) == order[at]
    expect(page.locator("[data-stage] .status")).to_contain_text(f"{order[at]}: Attention distance")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(f"Head {order[at]}")


def test_filters_hold_for_the_points_too(encoder_site: Site, open_page: Open) -> None:
    page = visit(open_page, encoder_site)
    page.get_by_label("Layers from").fill("1")
    displayed = [
        label.partition(":")[0]
        for label in each(page.locator("[data-stage] a:not([hidden])"), "aria-label")
    ]
    assert sorted(displayed) == sorted(names(page))
    hidden = page.locator("[data-stage] a[hidden]")
    assert hidden.count() > 0
    assert not any(dot.is_visible() for dot in hidden.all())
    page.get_by_label("Filter by words").fill("no head is called this")
    expect(page.locator("[data-count]")).to_contain_text("0 of ")
    assert names(page) == []
    assert page.locator("[data-stage] a:not([hidden])").count() == 0


def test_stacks_share_the_list(pair_site: Site, open_page: Open) -> None:
    page = visit(open_page, pair_site)
    found = pair_site.results
    facts = in_order(pair_site)
    assert names(page) == [f.name for f in facts]
    for name in found:
        page.locator('[data-filter="stack"]').select_option(name)
        assert names(page) == [f.name for f in facts if f.head.stack == name]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_list_that_was_set_up_is_accessible_and_fits(
    encoder_site: Site, open_page: Open, theme: str
) -> None:
    fragment = address(columns=f"{PREVIOUS} {DISTANCE}", sort=f"-{PREVIOUS}", find="l1")
    page = open_page(encoder_site.folder / "heads.html", color_scheme=theme)
    page.goto("about:blank")
    page.goto((encoder_site.folder / "heads.html").as_uri() + fragment)
    drawn(page)
    assert violations(page) == []
    assert {width: sideways(page, width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0)


LARGE = 1024
TYPING = """(text) => new Promise((done) => {
  const input = document.querySelector('[data-filter="find"]');
  const start = performance.now();
  input.value = text;
  input.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect();
  done(performance.now() - start);
})"""


@pytest.fixture
def large(encoder_site: Site, tmp_path: Path) -> Callable[[], Path]:
    """The page with 32 layers of 32 heads, all else as it is written."""

    def made() -> Path:
        folder = tmp_path / "large"
        shutil.copytree(encoder_site.folder / "assets", folder / "assets")
        (folder / "data" / "values").mkdir(parents=True)
        shutil.copy(encoder_site.folder / "heads.html", folder)
        _, listed = data_file(encoder_site.folder / "data" / "headlist.js")
        kinds = [row[4:] for row in listed["heads"]]
        heads = [HeadName("self", *divmod(i, 32)) for i in range(LARGE)]
        listed["heads"] = [
            [
                f"L{h.layer}·H{h.head}",
                f"heads/L{h.layer:02}-H{h.head:02}.html",
                "self",
                h.layer,
                *kinds[i % len(kinds)][:-1],
                i,
            ]
            for i, h in enumerate(heads)
        ]
        (folder / "data" / "headlist.js").write_text(script("headlist", listed))
        numbers = np.random.default_rng(1).random(LARGE)
        ends = numbers.astype("<f4").tobytes()
        packed = {
            "value": numbers.astype("<f8").tobytes(),
            "low": ends,
            "high": ends,
            "thin": "0" * LARGE,
        }
        for metric in listed["metrics"]:
            values = {key: packed for key, _, _ in metric["labels"]}
            file = folder / "data" / "values" / f"{metric['id']}.js"
            file.write_text(script(f"values-{metric['id']}", values))
        return folder / "heads.html"

    return made


@pytest.mark.slow
def test_typing_follows_within_50_ms_in_a_list_of_1024_heads(
    large: Callable[[], Path], open_page: Open
) -> None:
    """Filtering, drawing the table and the points, and laying the page out again."""
    page = open_page(large())
    drawn(page)
    limit = int(page.locator("[data-list]").get_attribute("data-limit") or 0)
    times = []
    for text in ("l", "l1", "l12", "l12h", "l12h3", "", "v", "ve", "l3", "l"):
        times.append(page.evaluate(TYPING, text))
        found = page.locator("[data-count]").text_content() or ""
        assert f"of {LARGE:,} heads" in found
        amount = int(found.partition(" ")[0].replace(",", ""))
        assert page.locator(".finding tbody th").count() == min(amount, limit)
    print("ms:", [round(each, 1) for each in times])  # noqa: T201 - the measurement
    assert median(times) < 50


@pytest.mark.slow
def test_a_long_list_shows_all_heads_when_asked(large: Callable[[], Path], open_page: Open) -> None:
    page = open_page(large())
    drawn(page)
    page.get_by_role("button", name="List all").press("Enter")
    expect(page.locator(".finding tbody th")).to_have_count(LARGE)
    expect(page.locator("[data-count]")).to_have_text("1,024 of 1,024 heads")
    assert page.evaluate("document.activeElement.closest('tbody') !== null")
