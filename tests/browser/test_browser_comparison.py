"""Pages of comparisons in a browser: claims, live charts, and what is saved of them."""

import io
from collections.abc import Callable

import pandas as pd
import pytest
from playwright.sync_api import expect

from browser import Open, come_alive, sideways, violations
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
    expect(evidence).to_contain_text("Jensen–Shannon")


def test_keys_reach_heads_and_charts_are_drawn_live(compared: Make, open_page: Open) -> None:
    page = open_page(compared("tuned").folder / "index.html")
    tile = page.locator(".tiles a").first
    tile.focus()
    expect(tile).to_be_focused()
    assert str(tile.get_attribute("href")).startswith("heads/")
    page.goto((compared("tuned").folder / "metrics" / "attention_to.html").as_uri())
    page.locator("figure.chart button").nth(1).press("Enter")
    chooser = page.locator("figure.chart select[name^=label]").first
    expect(chooser).to_be_visible()
    assert chooser.locator("option").count() > 3
    assert violations(page) == []
    page.goto((compared("tuned").folder / "metrics" / "cosine_to_input.html").as_uri())
    charts = page.locator("figure.chart").all()
    assert len(charts) == 2
    for chart in charts:
        chart.locator("button").first.press("Enter")
        label = chart.locator("select[name^=label]")
        expect(label).to_be_visible()
        drawn = chart.locator("svg").first
        before = drawn.inner_html()
        label.select_option(index=label.locator("option").count() - 1)
        expect(drawn).not_to_have_js_property("innerHTML", before)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    assert sideways(page, 360) == 0


def test_a_choice_in_a_live_chart_is_saved_linked_and_cited_as_it_is_on_show(
    compared: Make, open_page: Open
) -> None:
    folder = compared("tuned").folder / "metrics"
    page = open_page(folder / "attention_to.html", alone=True)
    figure = page.locator("figure.chart:has([data-chart])").first
    name = figure.get_attribute("id") or ""
    picture = figure.locator(".scroll > svg[role=img]")
    come_alive(page)
    expect(picture).to_have_count(0)
    stored, note = figure.locator("a[href*='figures/']"), figure.locator(".made")
    chooser = figure.locator("select[name=label_shown]")
    usual = chooser.input_value()
    every = chooser.locator("option").evaluate_all("all => all.map((option) => option.value)")
    other = next(value for value in every if value != usual)
    chooser.select_option(other)
    for link in stored.all():
        expect(link).to_be_hidden()
    expect(note.locator("code")).to_contain_text("--label")
    with page.expect_download() as download:
        note.get_by_role("button", name="CSV").click()
    made = pd.read_csv(io.BytesIO(download.value.path().read_bytes()))
    assert {*made["label"]} == {other}
    assert len(made) > 1
    with page.expect_download() as download:
        note.get_by_role("button", name="SVG").click()
    svg = download.value.path().read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "currentColor" not in svg
    note.locator("summary", has_text="Cite").click()
    assert other in note.locator("pre").inner_text()
    address = note.get_by_role("link", name="Permalink").get_attribute("href") or ""
    assert name in address
    again = open_page(folder / "attention_to.html", alone=True)
    again.goto(f"{(folder / 'attention_to.html').as_uri()}{address}")
    again.reload()
    expect(again.locator(f"#{name} select[name=label_shown]")).to_have_value(other)
    chooser.select_option(usual)
    expect(note).to_have_count(0)
    chooser.select_option(other)
    figure.get_by_role("button", name="Still picture").click()
    expect(note).to_have_count(0)
    expect(picture).to_be_visible()
    for link in stored.all():
        expect(link).to_be_visible()
