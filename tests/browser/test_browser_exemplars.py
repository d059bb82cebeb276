"""An exemplar's attention in a browser: every number on screen is the study's own."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

import naive_sentences as naive
from browser import Open, each
from browser_views import cells, strength, switch, tokens
from headbook.report.wording import VIEWS as NAMED
from headbook.results.formats import head_page
from headbook.schema import HeadName
from headbook.study.sentence_data import Ranking
from naive_sentences import Map, written
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEWS = {**{str(view): name for view, name in NAMED.items()}, "norm": "value-weighted"}
STATES = [(view, units) for units in ("pieces", "words") for view in VIEWS]
PLACES = [
    ("encoder", "self"),
    ("decoder", "self"),
    pytest.param("pair", "cross", marks=pytest.mark.slow),
]


def opened(site: Site, open_page: Open, head: HeadName) -> tuple[Locator, Map]:
    """The longest of a head's strongest exemplars, open, and its map from the stored study."""
    page = open_page(site.folder / head_page(head))
    sentence_data, terms = site.study.sentence_data, site.study.manifest.stack(head.stack)
    mine = [e for e in sentence_data.exemplars if (e.head, e.ranking) == (head, Ranking.STRONGEST)]
    own = max(mine, key=lambda e: e.attention.size)
    article = page.locator(f'[data-map="{own.ranking}-{own.rank}"]').first
    article.locator("summary").click()
    article.locator(".weights tbody tr").first.wait_for()
    texts = sentence_data.sentences[own.index].texts
    sides = texts[terms.queries], texts[terms.keys]
    return article, Map(own.attention, *sides, terms.causal, own.norms.tolist())


def table(box: Locator) -> list[list[str]]:
    """The rows of the table beside the lines."""
    script = "(found) => found.map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows: list[list[str]] = box.locator(".weights tbody tr").evaluate_all(script)
    return rows


def expected_table(head_map: Map, view: str, units: str, query: int) -> Iterator[list[str]]:
    """Key, weight, what is behind it, and the share of the row so far."""
    row, raw = (naive.weights(head_map, text, units)[query] for text in (view, "raw"))
    names, so_far = naive.names(head_map.keys, units), 0.0
    whole = naive.total(row)
    for key in naive.ranked(row):
        so_far += row[key]
        cells = [f"{key} {names[key]}", written(row[key])]
        cells += [written(raw[key])] if view != "raw" else []
        lengths = view == "norm" and units == "pieces"
        # What a file holds has four digits.
        cells += [f"{float(f'{head_map.norms[key]:.4g}'):.3f}"] if lengths else []
        yield [*cells, f"{math.floor(100 * so_far / whole + 0.5)} %"]


def close(seen: list[list[str]], wanted: list[list[str]]) -> None:
    """The same rows; numbers may differ by one in the last digit, since lengths are rounded."""
    assert [len(row) for row in seen] == [len(row) for row in wanted]
    for row, other in zip(sorted(seen), sorted(wanted), strict=True):
        assert row[0] == other[0]
        for cell, number in zip(row[1:], other[1:], strict=True):
            step = 1.1 if "%" in number and len(row) > 3 else 0.011
            assert abs(float(cell.removesuffix(" %")) - float(number.removesuffix(" %"))) < step


@pytest.mark.parametrize(("kind", "stack"), PLACES)
def test_every_view_shows_the_weights_of_the_study(
    request: pytest.FixtureRequest, open_page: Open, kind: str, stack: str
) -> None:
    """Table, numbers beside keys and titles in the text, in each view, by pieces and by words."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    box, head_map = opened(site, open_page, HeadName(stack, 1, 2))
    page = box.page
    for view, units in STATES:
        switch(page, view=view, units=units)
        rows = naive.weights(head_map, view, units)
        queries, keys = tokens(box, "queries"), tokens(box, "keys")
        assert queries.all_text_contents() == naive.names(head_map.queries, units)
        for query in (1, len(rows) - 1):
            queries.nth(query).click()
            wanted = [*expected_table(head_map, view, units, query)]
            if view == "norm":
                close(table(box), wanted)
                continue
            assert table(box) == wanted
            given = {k: written(rows[query][k]) for k in naive.fewest(rows[query], 0.9)}
            names = naive.names(head_map.keys, units)
            numbers = [f"{name}{given.get(k, '')}" for k, name in enumerate(names)]
            assert keys.all_text_contents() == numbers
            check_text(box, head_map, rows[query], units)


def check_text(box: Locator, head_map: Map, row: list[float], units: str) -> None:
    """Each token's title tells what it, or its word, is given; its shade says the same."""
    tokens = box.locator(".looked .t")
    names = naive.names(head_map.keys, units)
    groups = [[i] for i in range(len(head_map.keys.pieces))]
    unit = {i: u for u, own in enumerate(naive.groups(head_map.keys)) for i in own}
    unit = unit if units == "words" else {i: i for own in groups for i in own}
    titles = [f"{unit[i]} {names[unit[i]]}: {written(row[unit[i]])}" for i in unit]
    assert sorted(each(tokens, "title")) == sorted(titles)
    for token, title in zip(each(tokens, "class"), each(tokens, "title"), strict=True):
        value = row[int(title.split()[0])]
        shade = int(token.split()[-1].removeprefix("s"))
        assert abs(shade - 10 * min(1, value if naive.seen(value) else 0)) <= 0.5 + 1e-9


def test_words_say_the_weight_between_two_tokens(encoder_site: Site, open_page: Open) -> None:
    box, head_map = opened(encoder_site, open_page, HeadName("self", 0, 3))
    page = box.page
    switch(page, units="words")
    names = naive.names(head_map.keys, "words")
    assert len(names) < len(head_map.keys.pieces)
    for view in ("raw", "renorm", "nosink"):
        switch(page, view=view)
        rows = naive.weights(head_map, view, "words")
        for query, key in ((1, 2), (3, 1), (2, 0)):
            tokens(box, "queries").nth(query).click()
            tokens(box, "keys").nth(key).click()
            page.locator("h1").hover()
            message = f"L0·H3: “{names[query]}” ({query}) attends to “{names[key]}” ({key}) with "
            why = "" if naive.seen(rows[query][key]) else ": this key is a sink, which is masked"
            expect(box.locator(".pair")).to_have_text(f"{message}{written(rows[query][key])}{why}.")


def test_what_comes_later_is_missing_and_not_nothing(decoder_site: Site, open_page: Open) -> None:
    box, _ = opened(decoder_site, open_page, HeadName("self", 0, 1))
    tokens(box, "queries").nth(2).click()
    tokens(box, "keys").nth(3).click()
    expect(box.locator(".pair")).to_contain_text("with –: the causal mask hides later keys.")
    assert len(table(box)) == 3


def test_lines_hold_the_share_that_is_asked_for(encoder_site: Site, open_page: Open) -> None:
    box, head_map = opened(encoder_site, open_page, HeadName("self", 1, 1))
    page = box.page
    row = naive.weights(head_map, "raw", "pieces")[3]
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
    box, head_map = opened(encoder_site, open_page, HeadName("self", 0, 2))
    page = box.page
    weights = np.array(naive.weights(head_map, "raw", "pieces"))
    switch(page, scale="linear")
    before = cells(box, weights.shape)
    assert (before[..., 3] == 255).all()
    middle = (weights > 0.01) & (weights < 0.5)
    for scale in ("root", "log"):
        switch(page, scale=scale)
        lifted = cells(box, weights.shape)
        assert (strength(lifted)[middle] > strength(before)[middle]).all()
        before = lifted
    switch(page, view="nosink")
    left = np.array(naive.weights(head_map, "nosink", "pieces"))
    assert ((cells(box, weights.shape)[..., 3] == 0) == np.isnan(left)).all()
