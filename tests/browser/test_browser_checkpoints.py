"""Checkpoints in a browser: the slider, and what is there without scripts."""

from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from browser import Open, each
from browser_plain import plain
from trained_runs import REVISIONS

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest_plugins = ["browser_windows"]

NAMES = [name.replace("step-", "step ") for name in REVISIONS]


def opened(open_page: Open, trained_run: Path, **options: object) -> Page:
    """The overview, its slider ready."""
    page = open_page(trained_run / "site" / "index.html", **options)
    page.locator("[data-ready]").wait_for()
    return page


def test_the_slider_shows_each_step(trained_run: Path, open_page: Open) -> None:
    page = opened(open_page, trained_run)
    slider, output = page.get_by_role("slider", name="Step"), page.locator("output")
    sheet, tiles = (
        page.locator("[data-checkpoints] .tiles img"),
        page.locator("[data-checkpoints] .tiles td a"),
    )
    assert output.text_content() == NAMES[-1]
    last = each(tiles, "aria-label")
    slider.press("Home")
    assert output.text_content() == NAMES[0]
    assert slider.get_attribute("aria-valuetext") == NAMES[0]
    first = each(tiles, "aria-label")
    assert first != last
    functions = pd.read_parquet(trained_run / "site" / "data" / "functions.parquet")
    nouns = functions[functions["step"] == functions["step"].min()]["noun"]
    assert all(label.endswith(f", {noun}") for label, noun in zip(first, nouns, strict=True))
    assert {*nouns} == {"spread evenly"}
    seen = [sheet.get_attribute("src")]
    for name in NAMES[1:]:
        slider.press("ArrowRight")
        assert output.text_content() == name
        seen.append(sheet.get_attribute("src"))
        marked = page.locator(".frames [aria-current]")
        assert (marked.text_content() or "").strip() == name
    assert len({*seen}) == len(NAMES)
    assert each(tiles, "aria-label") == last
    for src in seen:
        assert src is not None
        assert (trained_run / "site" / src).is_file()
    page.get_by_role("button", name="Previous").click()
    assert output.text_content() == NAMES[-2]
    page.locator(".frames li").nth(0).click()
    assert output.text_content() == NAMES[0]


def test_it_plays_to_the_end_unless_motion_is_unwanted(trained_run: Path, open_page: Open) -> None:
    page = opened(open_page, trained_run, alone=True)  # clocks cannot be taken out again
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    expect(page.locator("output")).to_have_text(NAMES[0])
    page.clock.run_for(1000)
    expect(page.locator("output")).to_have_text(NAMES[1])
    page.clock.run_for(10_000)
    expect(page.locator("output")).to_have_text(NAMES[-1])
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    still = opened(open_page, trained_run, reduced_motion="reduce")
    expect(still.get_by_role("button", name="Play")).to_be_hidden()
    expect(still.get_by_role("button", name="Next")).to_be_visible()


def test_without_scripts_all_steps_are_there(trained_run: Path) -> None:
    page = plain(trained_run / "site" / "index.html")
    pictures = page.all(".frames img")
    assert [picture.attributes["alt"] for picture in pictures] == [
        f"Mean attention of all heads at {name}" for name in NAMES
    ]
    assert not any(picture.is_hidden or picture.is_folded for picture in pictures)
    assert page.one(".drawn").is_hidden
    for wall in (".walls", "[data-checkpoints]"):
        tile = page.one(f"{wall} .tiles td a")
        assert tile.attributes["href"] == "heads.html#L00-H00"
    for part in (".claim", ".walls .tiles img", ".changed img"):
        assert page.one(part).shows_something
        assert not page.one(part).is_hidden
