"""Similarity of head outputs in a browser: the script multiplies what the study has stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import headbook
import treebank
from browser import Open
from browser_views import cells, choose, pair, picture, ready, switch
from headbook.results.formats import head_name
from headbook.schema import HeadName
from sites import Site, make_study

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE = "sentences/0001.html"
PLACES = [("encoder", ("self", 1, 2)), ("decoder", ("self", 0, 1)), ("pair", ("cross", 1, 3))]


def show(page: Page, matrix: str) -> None:
    """Press a button of the switch."""
    button = page.locator(f'.dock [data-matrix="{matrix}"]')
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")


def status(page: Page, row: int, column: int) -> str:
    """What the page says of a cell of the map under the pointer."""
    canvas = page.locator(".dock canvas.cells").first
    left, top, size = map(float, (canvas.get_attribute("data-grid") or "").split())
    canvas.hover(position={"x": left + (column + 0.5) * size, "y": top + (row + 0.5) * size})
    return page.locator(".dock .status").inner_text()


def written(value: float) -> str:
    """A cosine as pages print it."""
    return "–" if np.isnan(value) else f"{value + 0:.2f}".replace("-", "−").replace("−0.00", "0.00")


@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_drawn_values_are_those_of_the_study(
    request: pytest.FixtureRequest, open_page: Open, kind: str, place: tuple[str, int, int]
) -> None:
    """Every cell of some rows, plain and centred; the address keeps what is shown."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    stack, layer, head = place
    page = open_page(site.folder / SENTENCE, viewport={"width": 1440, "height": 1200})
    choose(page, head_name(HeadName(*place)))
    for matrix in ("similarity", "centred"):
        show(page, matrix)
        cosines, tokens = site.study.similarity(0, layer, head, stack, centred=matrix == "centred")
        for row, column in [(1, 2), (2, 1), (3, 3), (len(tokens) - 2, 1)]:
            line = status(page, row, column)
            value = written(cosines[row, column])
            assert line.startswith(f"Outputs at {row} {tokens[row]} and {column} {tokens[column]}:")
            assert abs_difference(line.rpartition(" ")[2], value) < 0.011
        assert parse_qs(urlparse(page.url).fragment)["matrix"] == [matrix]
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    ready(page)
    expect(page.locator('.dock [data-matrix="centred"]')).to_have_attribute("aria-pressed", "true")
    assert status(page, 1, 2).startswith("Outputs at 1 ")
    show(page, "attention")
    assert " attends to " in status(page, 2, 1)
    assert "matrix" not in parse_qs(urlparse(page.url).fragment)


def abs_difference(one: str, other: str) -> float:
    """Of two printed numbers: rounding may differ in the last digit. 0 of two dashes."""
    if "–" in {one, other}:
        return 0 if one == other else 9
    return abs(float(one.replace("−", "-")) - float(other.replace("−", "-")))


def test_colours_lie_on_both_sides_of_zero_and_special_tokens_are_blank(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(
        encoder_site.folder / SENTENCE,
        viewport={"width": 1440, "height": 1200},
        color_scheme="light",
    )
    choose(page, "L1·H2")
    show(page, "centred")
    cosines, _ = encoder_site.study.similarity(0, 1, 2, centred=True)
    colours = cells(page.locator(".dock .pane.cosine"), cosines.shape).astype(int)
    warm = colours[..., 0] - colours[..., 2]
    clear = np.abs(cosines) > 0.3
    assert (cosines[clear] < 0).any()
    above, below = warm[clear & (cosines > 0)], warm[clear & (cosines < 0)]
    assert above.min() > below.max() or above.max() < below.min()
    blank = colours[np.isnan(cosines)]
    assert (blank[:, 3] == 0).all()


def test_words_have_the_mean_over_their_tokens(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / SENTENCE, viewport={"width": 1440, "height": 1200})
    choose(page, "L0·H1")
    show(page, "similarity")
    switch(page, units="words")
    cosines, tokens = encoder_site.study.similarity(0, 0, 1)
    text = next(iter(encoder_site.study.sentence_data.sentences[0].texts.values()))
    words = np.array(text.words)
    split = [w for w in range(words.max() + 1) if (words == w).sum() > 1]
    assert split, "a sentence with a word of several tokens"
    first, other = split[0], words.max()
    wanted = cosines[np.ix_(words == first, words == other)].mean()
    line = status(page, first + 1, other + 1)  # the first special token is a word of its own
    assert len(tokens) > words.max()
    assert abs_difference(line.rpartition(" ")[2], written(float(wanted))) < 0.011


def test_two_heads_are_compared_by_the_same_matrix(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / SENTENCE, viewport={"width": 1440, "height": 1200})
    panel = choose(page, "L0·H1")
    show(page, "similarity")
    panel.get_by_label("Compare with").select_option("1.2")
    expect(panel.locator(".pane.cosine")).to_have_count(2)
    expect(panel.locator(".pane.difference")).to_have_count(1)
    one, other = (encoder_site.study.similarity(0, *head).cosines for head in ((0, 1), (1, 2)))
    line = status(page, 1, 2)
    assert f"L0·H1 {written(one[1, 2])}" in line
    assert f"L1·H2 {written(other[1, 2])}" in line


def test_a_line_stands_where_a_sentence_of_a_passage_begins(
    tiny_folder: Callable[[str], Path], tmp_path: Path, open_page: Open
) -> None:
    """In the attention map as in the matrix, before the first token after the separator."""
    file = treebank.write_trees(tmp_path / "trees.conllu")
    study = make_study(file, tiny_folder("bert"), control="none", pack=40, importance="off")
    headbook.render(study, tmp_path / "site")
    text = next(iter(study.sentence_data.sentences[0].texts.values()))
    assert len(text.parts) > 1
    start = 1 + text.pieces.index("[SEP]")
    page = open_page(
        tmp_path / "site" / SENTENCE,
        viewport={"width": 1440, "height": 1200},
        color_scheme="light",
    )
    choose(page, "L0·H1")
    for matrix in ("attention", "similarity"):
        show(page, matrix)
        pair(page, 0)  # the frame of the chosen token is elsewhere
        canvas = page.locator(".dock canvas.cells").first
        left, top, size = map(float, (canvas.get_attribute("data-grid") or "").split())
        pixels = picture(canvas.evaluate("(canvas) => canvas.toDataURL()"))
        row = pixels[round(top + 2.5 * size)]
        line, other = (row[round(left + k * size - 1)] for k in (start, start - 2))
        assert ink(line) > 2 * ink(other) + 20


def ink(pixel: Any) -> float:
    """How dark a pixel is on white paper, 0 to 255."""
    return float(pixel[3] / 255 * (255 - pixel[:3].astype(float)).mean())
