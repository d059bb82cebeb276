"""Views of one sentence's attention in a browser: every number on screen is the study's own."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import naive_instances as naive
from browser import Open, each
from naive_instances import Map, written
from panels import cells, picture, strength, switch, tokens
from sites import Site

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEWS = {"raw": "raw", "nosink": "no sink", "renorm": "renormalised", "norm": "norm-weighted"}
STATES = [(view, units) for units in ("pieces", "words") for view in VIEWS]
PLACES = [
    ("encoder", "self"),
    ("decoder", "self"),
    pytest.param("pair", "cross", marks=pytest.mark.slow),
]


def map_of(site: Site, stack: str, layer: int, head: int, index: int = 0) -> Map:
    """One head over one sentence, from the stored study."""
    portrait, terms = site.study.portrait, site.study.manifest.stack(stack)
    texts = portrait.sentences[index].texts
    maps, norms = portrait.maps[stack, index], portrait.norms[stack, index]
    queries, keys = texts[terms.queries], texts[terms.keys]
    return Map(maps[layer, head], queries, keys, terms.causal, norms[layer, head].tolist())


def choose(page: Page, name: str) -> Locator:
    """Choose a head by its thumbnail; the box with its views."""
    link = page.get_by_role("link", name=name, exact=True).first
    link.click()
    box = page.locator(".full").filter(has=page.get_by_role("link", name=f"Page of {name}"))
    expect(box.locator(".maptitle")).to_contain_text(name.rsplit(maxsplit=1)[-1])
    return box


def table(box: Locator) -> list[list[str]]:
    """The rows of the table beside the lines."""
    script = "(found) => found.map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows: list[list[str]] = box.locator(".weights tbody tr").evaluate_all(script)
    return rows


def expected_table(shown: Map, view: str, units: str, query: int) -> Iterator[list[str]]:
    """Key, weight, what is behind it, and the share of the row so far."""
    row, raw = (naive.weights(shown, each, units)[query] for each in (view, "raw"))
    names, so_far = naive.names(shown.keys, units), 0.0
    whole = naive.total(row)
    for key in naive.ranked(row):
        so_far += row[key]
        cells = [f"{key} {names[key]}", written(row[key])]
        cells += [written(raw[key])] if view != "raw" else []
        lengths = view == "norm" and units == "pieces"
        # What a file holds has four digits.
        cells += [written(float(f"{shown.norms[key]:.4g}"))] if lengths else []
        yield [*cells, f"{100 * so_far / whole:.1f} %"]


def close(seen: list[list[str]], wanted: list[list[str]]) -> None:
    """The same rows; numbers may differ by one in the last digit, since lengths are rounded."""
    assert [len(row) for row in seen] == [len(row) for row in wanted]
    for row, other in zip(sorted(seen), sorted(wanted), strict=True):
        assert row[0] == other[0]
        for cell, number in zip(row[1:], other[1:], strict=True):
            step = 0.11 if "%" in number and len(row) > 3 else 0.0011
            assert abs(float(cell.removesuffix(" %")) - float(number.removesuffix(" %"))) < step


@pytest.mark.parametrize(("kind", "stack"), PLACES)
def test_every_view_shows_the_weights_of_the_study(
    request: pytest.FixtureRequest, open_page: Open, kind: str, stack: str
) -> None:
    """Table, numbers beside keys and titles in the text, in each view, by pieces and by words."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / "sentences/0001.html")
    box = choose(page, "L1·H2" if stack == "self" else f"{stack} L1·H2")
    shown = map_of(site, stack, 1, 2)
    for view, units in STATES:
        switch(page, view=view, units=units)
        rows = naive.weights(shown, view, units)
        queries, keys = tokens(box, "queries"), tokens(box, "keys")
        assert queries.all_text_contents() == naive.names(shown.queries, units)
        for query in (1, len(rows) - 1):
            queries.nth(query).click()
            wanted = [*expected_table(shown, view, units, query)]
            if view == "norm":
                close(table(box), wanted)
                continue
            assert table(box) == wanted
            given = {k: written(rows[query][k]) for k in naive.fewest(rows[query], 0.9)}
            names = naive.names(shown.keys, units)
            numbers = [f"{name}{given.get(k, '')}" for k, name in enumerate(names)]
            assert keys.all_text_contents() == numbers
            check_text(box, shown, rows[query], units)


def check_text(box: Locator, shown: Map, row: list[float], units: str) -> None:
    """Each token's title tells what it, or its word, is given; its shade says the same."""
    tokens = box.locator(".sentence").last.locator(".t")
    names = naive.names(shown.keys, units)
    groups = [[i] for i in range(len(shown.keys.pieces))]
    unit = {i: u for u, own in enumerate(naive.groups(shown.keys)) for i in own}
    unit = unit if units == "words" else {i: i for own in groups for i in own}
    titles = [f"{unit[i]} {names[unit[i]]}: {written(row[unit[i]])}" for i in unit]
    assert sorted(each(tokens, "title")) == sorted(titles)
    for token, title in zip(each(tokens, "class"), each(tokens, "title"), strict=True):
        value = row[int(title.split()[0])]
        shade = int(token.split()[-1].removeprefix("s"))
        assert abs(shade - 10 * min(1, value if naive.seen(value) else 0)) <= 0.5 + 1e-9


def test_words_say_the_weight_between_two_tokens(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "sentences/0001.html")
    box = choose(page, "L0·H3")
    switch(page, units="words")
    shown = map_of(encoder_site, "self", 0, 3)
    names = naive.names(shown.keys, "words")
    assert "Fisherman" in names
    for view in ("raw", "renorm", "nosink"):
        switch(page, view=view)
        rows = naive.weights(shown, view, "words")
        for query, key in ((1, 2), (3, 1), (2, 0)):
            tokens(box, "queries").nth(query).click()
            tokens(box, "keys").nth(key).click()
            page.locator("h1").hover()
            said = f"L0·H3: “{names[query]}” ({query}) looks at “{names[key]}” ({key}) with "
            why = "" if naive.seen(rows[query][key]) else ": it is the sink, which is left out"
            expect(box.locator(".pair")).to_have_text(f"{said}{written(rows[query][key])}{why}.")


def test_what_comes_later_is_missing_and_not_nothing(decoder_site: Site, open_page: Open) -> None:
    page = open_page(decoder_site.folder / "sentences/0001.html")
    box = choose(page, "L0·H1")
    tokens(box, "queries").nth(2).click()
    tokens(box, "keys").nth(3).click()
    expect(box.locator(".pair")).to_contain_text("with –: it comes later and cannot be seen.")
    assert len(table(box)) == 3


def test_several_heads_are_told_apart_by_letters(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "sentences/0001.html")
    box = choose(page, "L1·H3")
    box.get_by_label("Compare with").select_option("L0·H2")
    maps = [map_of(encoder_site, "self", 1, 3), map_of(encoder_site, "self", 0, 2)]
    rows = [naive.weights(shown, "raw", "pieces")[4] for shown in maps]
    tokens(box, "queries").nth(4).click()
    heading = box.locator(".weights thead th").all_text_contents()
    assert heading == ["Key", "L1·H3", "L0·H2", "cumulative share"]
    assert [row[1:3] for row in table(box)] == [
        [written(row[k]) for row in rows] for k in naive.ranked(rows[0])
    ]
    for key, text in enumerate(box.locator(".tokens.keys small").all_text_contents()):
        there = [
            (name, row)
            for name, row in zip("AB", rows, strict=True)
            if key in naive.fewest(row, 0.9)
        ]
        assert text == " · ".join(f"{name} {written(row[key])}" for name, row in there)
    assert page.locator(".sheet a[aria-current]").count() == 2
    box.get_by_role("button", name="Take L1·H3 away").click()
    expect(page.locator(".maptitle")).to_have_text("L0·H2")


def test_lines_hold_the_share_that_is_asked_for(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "sentences/0001.html")
    box = choose(page, "L1·H1")
    row = naive.weights(map_of(encoder_site, "self", 1, 1), "raw", "pieces")[3]
    tokens(box, "queries").nth(3).click()
    counts = []
    for share in ("50", "80", "99"):
        switch(page, mass=share)
        numbers = box.locator(".tokens.keys small").all_text_contents()
        counts.append(sum(map(bool, numbers)))
        assert counts[-1] == len(naive.fewest(row, int(share) / 100))
    assert counts[0] < counts[-1]


def test_maps_leave_the_sink_blank_and_logarithms_lift_what_is_small(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "sentences/0001.html")
    box = choose(page, "L0·H2")
    weights = np.array(naive.weights(map_of(encoder_site, "self", 0, 2), "raw", "pieces"))
    before = cells(box, weights.shape)
    assert (before[..., 3] == 255).all()
    switch(page, scale="log")
    lifted = cells(box, weights.shape)
    middle = (weights > 0.01) & (weights < 0.5)
    assert (strength(lifted)[middle] > strength(before)[middle]).all()
    switch(page, view="nosink")
    left = np.array(naive.weights(map_of(encoder_site, "self", 0, 2), "nosink", "pieces"))
    assert ((cells(box, weights.shape)[..., 3] == 0) == np.isnan(left)).all()


def test_thumbnails_follow_the_switches(encoder_site: Site, open_page: Open) -> None:
    """Without the sink, columns of special tokens are empty in every head; raw ones come back."""
    page = open_page(encoder_site.folder / "sentences/0001.html")
    image = page.locator(".sheet image")
    still = image.get_attribute("href")
    switch(page, view="nosink")
    expect(image).to_have_attribute("href", re.compile("^data:image/png;base64,"))
    pixels = picture(image.get_attribute("href") or "")
    stack = encoder_site.study.manifest.stack("self")
    shown = map_of(encoder_site, "self", 0, 0)
    n = len(shown.keys.pieces)
    side = pixels.shape[1] // stack.n_heads
    zoom = side // n
    alpha = pixels[..., 3]
    for layer in range(len(stack.attention_layers)):
        for head in range(stack.n_heads):
            row = alpha[layer * side + zoom // 2, head * side + zoom // 2 :: zoom][:n]
            assert all(
                value == 0 for value, off in zip(row, shown.keys.special, strict=True) if off
            )
            assert any(value > 0 for value in row)
    switch(page, view="raw")
    expect(image).to_have_attribute("href", still or "")
