"""Pages of comparisons in a browser: claims, and keys that reach heads."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from browser import Open, sideways, violations
from browser_plain import plain
from comparisons import Compared

pytest_plugins = ["comparisons", "browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

Make = Callable[[str], Compared]


PARTS = (
    ".claim", ".walls .tiles img", ".tiles a", ".changed img", ".model", "figure.chart svg",
    ".metriclinks a",
)  # fmt: skip


def test_everything_is_there_without_scripts(compared: Make) -> None:
    folder = compared("tuned").folder
    page = plain(folder / "index.html")
    for part in PARTS:
        node = page.one(part)
        assert node.shows_something, part
        assert not node.is_hidden, part
        assert not node.is_folded, part
    (link,) = [a for a in page.all(".metriclinks a") if "Attention to the sink" in a.text]
    metric = plain(folder / link.attributes["href"])
    assert metric.one("h1").text == "Attention to the sink"
    assert len(metric.all("figure.chart svg")) == 3


def test_a_claim_lights_its_heads_and_opens_its_evidence(compared: Make, open_page: Open) -> None:
    page = open_page(compared("tuned").folder / "index.html", java_script_enabled=False)
    claim = page.locator("#c1")
    lit = page.locator(".walls .tiles a.k1").first
    dim = page.locator(".walls .tiles a:not(.k1)").first
    clear = "rgba(0, 0, 0, 0)"
    expect(dim).to_have_css("background-color", clear)
    claim.hover()
    expect(dim).not_to_have_css("background-color", clear)
    expect(lit).to_have_css("background-color", clear)
    evidence = claim.locator("details p")
    expect(evidence).to_be_hidden()
    claim.locator("summary").click()
    expect(evidence).to_be_visible()
    expect(evidence).to_contain_text("q < 0.05")


def test_keys_reach_heads(compared: Make, open_page: Open) -> None:
    page = open_page(compared("tuned").folder / "index.html")
    tile = page.locator(".tiles a").first
    tile.focus()
    expect(tile).to_be_focused()
    assert str(tile.get_attribute("href")).startswith("heads/")
    assert violations(page) == []
    assert sideways(page, 360) == 0
