"""What attention views save as files is what they show."""

import csv
import io
import math
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import Locator, Page, expect

import naive_sentences as naive
from browser import Open
from browser_views import choose, map_of, pair, switch
from headbook.site.figures import figures
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SVG = "{http://www.w3.org/2000/svg}"
STATES = [("raw", "pieces"), ("renorm", "pieces"), ("norm", "words"), ("nosink", "words")]


def saved(page: Page, box: Locator, name: str) -> str:
    """What a button hands out."""
    with page.expect_download() as waiting:
        box.get_by_role("button", name=name, exact=True).first.click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def elements(text: str, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(text).iter(SVG + tag))  # noqa: S314 - our own


def test_tables_maps_and_lines_are_those_of_the_view(decoder_site: Site, open_page: Open) -> None:
    """Every weight, a cell for each that there is, the fewest lines for the chosen share."""
    page = open_page(decoder_site.folder / "sentences/0001.html")
    choose(page, "L1·H2")
    head_map = map_of(decoder_site, "self", 1, 2)
    save_the_map(page, head_map, decoder_site.study.manifest.model.name)
    save_lines(page, head_map)
    for view, units in STATES:
        switch(page, view=view, units=units)
        save_the_table(page, head_map, view, units)


def save_the_table(page: Page, head_map: naive.Map, view: str, units: str) -> None:
    """Save every weight of a view."""
    text = saved(page, page.locator("[data-more]"), "Weights (CSV)")
    rows = list(csv.DictReader(io.StringIO(text)))
    expected, names = naive.weights(head_map, view, units), naive.names(head_map.keys, units)
    assert len(rows) == len(expected) * len(names)
    for row in rows:
        q, k = int(row["query_position"]), int(row["key_position"])
        assert row["key"].removeprefix("'") == names[k]
        value = float(row["weight"]) if row["weight"] else math.nan
        step = 1e-3 if view == "norm" else 1e-5  # lengths have four digits in the page's file
        assert value == pytest.approx(expected[q][k], rel=step, abs=1e-9, nan_ok=True)


def save_the_map(page: Page, head_map: naive.Map, model: str) -> None:
    """Save a map: a cell for each weight that there is, and a frame around the pair."""
    pair(page, 2, 1)
    text = saved(page, page.locator("[data-more]"), "Map (SVG)")
    there = sum(not math.isnan(w) for row in naive.weights(head_map, "raw", "pieces") for w in row)
    paths = [path.attrib["d"] for path in elements(text, "path")]
    assert sum(d.count("M") for d in paths) == there
    assert len([r for r in elements(text, "rect") if r.get("stroke")]) == 1  # the pair's frame
    message = [e.text for e in elements(text, "text")]
    names = naive.names(head_map.keys, "pieces")
    assert all(message.count(name) >= 2 for name in names)
    caption = elements(text, "title")[0].text or ""
    assert model in caption
    assert "L1·H2" in caption
    assert "all keys, weights of subword tokens" in caption


def save_lines(page: Page, head_map: naive.Map) -> None:
    """Save lines: the fewest that hold the chosen share."""
    switch(page, mass="80")
    pair(page, 3)
    text = saved(page, page.locator("[data-more]"), "Lines (SVG)")
    row = naive.weights(head_map, "raw", "pieces")[3]
    held, expected = 0.0, []
    for key in naive.ranked(row):
        if held >= 0.8 * naive.total(row) - 1e-9:
            break
        held += row[key]
        expected.append(f"{naive.names(head_map.keys, 'pieces')[key]}  {naive.written(row[key])}")
    assert len(elements(text, "path")) == len(expected)
    message = [e.text for e in elements(text, "text") if "  " in (e.text or "")]
    assert sorted(message, key=str) == sorted(expected)


@pytest.mark.parametrize(("kind", "head"), [("encoder", "L1·H2"), ("pair", "cross L0·H1")])
def test_a_command_writes_what_is_open_for_a_paper(
    request: pytest.FixtureRequest, open_page: Open, tmp_path: Path, kind: str, head: str
) -> None:
    """It follows the heads that are chosen, and its names are figures of the study."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / "sentences/0002.html")
    box = choose(page, head)
    command = page.locator("[data-more] .tools code")
    file = "cross-L00-H01" if kind == "pair" else "L01-H02"
    expect(command).to_have_text(f'headbook figures STUDY --only "*-S0002-{file}" --out figures')
    only = shlex.split(command.text_content() or "")[4:-2:2]
    names = figures(site.stored, tmp_path / "figures", only)
    assert names == [f"map-S0002-{file}", f"lines-S0002-{file}"]
    other = box.get_by_label("Compare with")
    text = str(other.locator("option").last.text_content())
    other.select_option(label=text)
    layer, number = text.rsplit(maxsplit=1)[-1].split("·")
    stack = "cross-" if kind == "pair" else ""
    expect(command).to_contain_text(f'"*-S0002-{stack}L0{layer[1:]}-H0{number[1:]}"')
    expect(command).to_contain_text(f'"*-S0002-{file}"')
    switch(page, view="norm", units="words")
    expect(command).to_contain_text(f'"*-S0002-{file}-norm-words"')
    only = shlex.split(command.text_content() or "")[4:5]
    names = figures(site.stored, tmp_path / "words", only)
    assert names == [f"{kind}-S0002-{file}-norm-words" for kind in ("map", "lines")]


def test_a_chart_of_the_page_is_saved_black_on_white(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "sentences/0001.html", color_scheme="dark")
    page.locator("details.tree > summary").click()
    figure = page.locator("figure#tree-source")
    figure.locator("svg").wait_for()
    text = saved(page, figure, "SVG")
    assert "currentColor" not in text
    assert len(elements(text, "path")) == figure.locator("svg path").count()
