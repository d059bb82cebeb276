"""How a weight comes about, in a browser: every number on screen is that of the kept vectors."""

import math
import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from browser import DARK, Open, background, sideways, violations
from browser_views import choose, picture, switch
from browser_views import pair as choose_pair
from headbook.analysis.rounded_vectors import MAX_WEIGHT_ERROR
from naive_scores import Row, of_pages, row_of
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE = "sentences/0001.html"
LABELS = 92  # pixels before the bars
PLACES = [("encoder", ("self", 1, 2)), ("decoder", ("self", 0, 1)), ("pair", ("cross", 1, 3))]


def displayed(value: float) -> str:
    """A number as the view prints it: four decimals, a true minus, never minus nothing."""
    if math.isnan(value):
        return "–"
    return f"{round(value, 4) + 0.0:.4f}".replace("-", "−")


def opened(page: Page, place: tuple[str, int, int], pair: tuple[int, int]) -> Locator:
    """Choose a head and a pair, and open the view."""
    (stack, layer, head), (query, key) = place, pair
    choose(page, f"L{layer}·H{head}" if stack == "self" else f"{stack} L{layer}·H{head}")
    choose_pair(page, query, key)
    view = page.locator("[data-more] > .neurons:not([hidden])")
    if view.get_attribute("open") is None:
        view.locator("> summary").click()
    expect(view.locator(".how")).not_to_be_empty()
    return view


def rows(table: Locator) -> list[list[str]]:
    """The cells of a table's body."""
    script = "(found) => found.map((row) => [...row.cells].map((cell) => cell.textContent))"
    found: list[list[str]] = table.locator("tbody tr").evaluate_all(script)
    return found


def values(view: Locator) -> dict[str, str]:
    """Step and value of the table from the products to the weight."""
    return {step: value for step, value, _ in rows(view.locator(".derived"))}


def close(text: str, value: float) -> None:
    """The number on screen is the value, but for the last digit's rounding."""
    assert len(text.rpartition(".")[2]) == 4
    assert abs(float(text.replace("−", "-")) - value) <= 0.5001e-4


def check_steps(view: Locator, row: Row, key: int, width: int) -> None:
    found = rows(view.locator(".derived"))
    steps = dict(zip([step for step, _, _ in found], [value for _, value, _ in found], strict=True))
    assert [*steps] == ["Query · key", "Score", "Row", "Weight"]
    wanted = (row.products[key], row.scores[key], row.log_sum, row.weights[key])
    for text, value in zip(steps.values(), wanted, strict=True):
        close(text, value)
    sees = sum(not math.isnan(weight) for weight in row.weights)
    how = [how for _, _, how in found]
    assert how[0] == f"sum of the {width} products"
    assert how[2] == f"log of the sum of exp(score) over the {sees} keys visible to it"


@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_numbers_are_those_of_queries_and_keys(
    request: pytest.FixtureRequest, open_page: Open, kind: str, place: tuple[str, int, int]
) -> None:
    """Steps, dimensions and the whole row, for two pairs; the weight is that of the other views."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    sentence_data, (stack, layer, head) = site.study.sentence_data, place
    kept, steps = (
        of_pages(sentence_data.queries_and_keys[stack, 0, layer]),
        sentence_data.maps[stack, 0][layer, head],
    )
    page = open_page(site.folder / SENTENCE)
    for query, key in ((2, 1), (1, 0)):
        view = opened(page, place, (query, key))
        row = row_of(kept, head, query)
        expect(view.locator(".how")).to_contain_text(f"({key}) with {displayed(row.weights[key])}.")
        check_steps(view, row, key, kept.queries.shape[2])
        assert abs(row.weights[key] - steps[query, key] / 255) < 0.51 / 255 + MAX_WEIGHT_ERROR
        stored = f"{steps[query, key]}/255 = {steps[query, key] / 255:.2f}"
        expect(view.get_by_text("Stored with 8 bits as")).to_contain_text(stored)
        for name in ("Every dimension", "Every key"):
            details = view.locator("details").filter(has_text=name)
            if details.get_attribute("open") is None:
                details.locator("summary").click()
        check_dimensions(view, kept, head, query, key)
        table = view.locator("details table").nth(1)
        expect(table.locator("tr").nth(len(row.weights))).to_be_attached()  # filled when opened
        keys = rows(table)
        assert len(keys) == len(row.weights)
        for cells, *wanted in zip(keys, row.products, row.scores, row.weights, strict=True):
            for text, value in zip(cells[1:], wanted, strict=True):
                if math.isnan(value):
                    assert text == "–"
                else:
                    close(text, value)


def check_dimensions(view: Locator, kept: Any, head: int, query: int, key: int) -> None:
    """A row a dimension, the largest product first; together they are the sum."""
    one = kept.queries[head, query].astype(float)
    other = kept.keys[head * len(kept.keys) // len(kept.queries), key].astype(float)
    found = rows(view.locator("details table").first)
    order = [int(cells[0]) for cells in found]
    assert sorted(order) == [*range(len(one))]
    sizes = np.abs(one * other)[order]
    assert (np.diff(sizes) <= 0).all()
    for cells, i in zip(found, order, strict=True):
        for text, value in zip(cells[1:], (one[i], other[i], one[i] * other[i]), strict=True):
            close(text, value)


def test_bars_point_up_and_down_as_their_numbers_do(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / SENTENCE, color_scheme="light")
    view = opened(page, ("self", 0, 3), (3, 2))
    kept = of_pages(encoder_site.study.sentence_data.queries_and_keys["self", 0, 0])
    one, other = kept.queries[3, 3], kept.keys[3, 2]
    view.locator("canvas.bars").evaluate("(canvas) => canvas.blur()")
    pixels = picture(view.locator("canvas.bars").evaluate("(canvas) => canvas.toDataURL()"))
    width, height = len(one), len(pixels) // 3
    thick = (pixels.shape[1] - LABELS) // width
    ink = pixels[..., :3].astype(int)
    orange = (ink[..., 0] - ink[..., 2] > 100) & (pixels[..., 3] > 200)
    blue = (ink[..., 2] - ink[..., 0] > 100) & (pixels[..., 3] > 200)
    for number, values_ in enumerate((one, other, one * other)):
        line = slice(number * height, (number + 1) * height)
        for i, value in enumerate(values_):
            column = LABELS + i * thick + thick // 2
            heights = orange[line, column].sum(), blue[line, column].sum()
            share = abs(value) / np.abs(values_).max()
            assert min(heights) == 0
            assert abs((heights[0] - heights[1]) - np.sign(value) * share * 31) <= 2


def test_the_view_follows_keys_and_what_is_chosen_and_is_accessible(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / SENTENCE, color_scheme="light")
    read_single_dimensions(page, encoder_site)
    choose_other_pairs(page, encoder_site)
    look_at_all_of_it(page)


def read_single_dimensions(page: Page, encoder_site: Site) -> None:
    """Walk along the bars by arrow keys."""
    view = opened(page, ("self", 1, 0), (4, 1))
    kept = of_pages(encoder_site.study.sentence_data.queries_and_keys["self", 0, 1])
    one, other = kept.queries[0, 4].astype(float), kept.keys[0, 1].astype(float)
    bars, status = view.locator("canvas.bars"), view.locator(".dimension")
    bars.focus()
    last = len(one) - 1
    presses = ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"]
    for press, i in zip(presses, (0, 1, 0, last, last, 0, 0), strict=True):
        bars.press(press)
        numbers = f"{displayed(one[i])} × {displayed(other[i])} = {displayed(one[i] * other[i])}"
        expect(status).to_have_text(f"dimension {i}: {numbers}")
    bars.blur()
    expect(status).to_have_text("Point at the bars, or use the arrow keys.")


def choose_other_pairs(page: Page, encoder_site: Site) -> None:
    """Choose another key, then another head, then words."""
    opened(page, ("self", 1, 1), (2, 3))
    view = page.locator(".neurons")
    choose_pair(page, 2, 4)
    kept = encoder_site.study.sentence_data.queries_and_keys
    wanted = row_of(of_pages(kept["self", 0, 1]), 1, 2).weights[4]
    expect(view.locator(".how")).to_contain_text(f"(4) with {displayed(wanted)}.")
    choose(page, "L0·H2")
    wanted = row_of(of_pages(kept["self", 0, 0]), 2, 2).weights[4]
    expect(view.locator(".how")).to_have_text(
        f"L0·H2: “{text_of(encoder_site, 2)}” (2) attends to “{text_of(encoder_site, 4)}” (4) "
        f"with {displayed(wanted)}."
    )
    switch(page, units="words")
    expect(view.locator(".how")).to_contain_text("choose subword tokens above")
    expect(view.locator("canvas.bars")).to_be_hidden()
    switch(page, units="pieces")
    expect(view.locator("canvas.bars")).to_be_visible()


def text_of(site: Site, place: int) -> str:
    """A piece of the first sentence."""
    [text] = site.study.sentence_data.sentences[0].texts.values()
    return text.pieces[place]


def test_what_the_mask_hides_has_no_score(decoder_site: Site, open_page: Open) -> None:
    page = open_page(decoder_site.folder / SENTENCE)
    view = opened(page, ("self", 1, 1), (2, 4))
    expect(view.locator(".how")).to_contain_text("(4): the model's mask hides it.")
    expect(view.locator("canvas.bars")).to_be_hidden()
    choose_pair(page, 2, 1)
    view.locator("details").filter(has_text="Every key").locator("summary").click()
    n = len(decoder_site.study.sentence_data.queries_and_keys["self", 0, 1].seen)
    dashes = [cells[1:] == ["–"] * 3 for cells in rows(view.locator("details table").nth(1))]
    assert dashes == [key > 2 for key in range(n)]


def test_a_link_opens_the_view(encoder_site: Site, open_page: Open) -> None:
    """The address says that it is open, on reload and elsewhere; closing takes that back."""
    page = open_page(encoder_site.folder / SENTENCE)
    view = opened(page, ("self", 1, 2), (3, 1))
    message = view.locator(".how").text_content() or ""
    before = values(view)
    expect(page).to_have_url(re.compile("neurons=1"))
    address = page.url
    page.reload()
    expect(view.locator(".how")).to_have_text(message)
    assert values(view) == before
    other = open_page(encoder_site.folder / "index.html")
    other.goto(address)
    expect(other.locator(".neurons .how")).to_have_text(message)
    assert values(other.locator(".neurons")) == before
    view.locator("> summary").click()
    expect(view.locator("canvas.bars")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("neurons"))
    page.reload()
    expect(page.locator(".dock [data-title]")).to_have_text("L1·H2")
    assert page.locator(".neurons").first.get_attribute("open") is None


def test_exemplars_lead_to_how_their_weight_comes_about(
    encoder_site: Site, open_page: Open
) -> None:
    """From the strongest pair of an exemplar to the same weight, in full."""
    page = open_page(encoder_site.folder / "heads/L00-H01.html")
    article = page.locator(".exemplar:has([data-neurons])").first
    place = article.get_attribute("data-map")
    [exemplar] = [
        e
        for e in encoder_site.study.sentence_data.exemplars
        if e.head == ("self", 0, 1) and f"{e.ranking}-{e.rank}" == place
    ]
    article.get_by_text("Lines, map, ranked weights").click()
    article.get_by_role("link", name="how this weight comes about").click()
    kept = encoder_site.study.sentence_data.queries_and_keys["self", exemplar.index, 0]
    exact, weight = (
        row_of(each, 1, exemplar.query).weights[exemplar.key] for each in (kept, of_pages(kept))
    )
    assert abs(exact - exemplar.score) < 1e-5
    assert abs(exact - weight) <= kept.rounded().error
    expect(page.locator(".neurons .how")).to_contain_text(
        f"({exemplar.query}) attends to “{text_at(encoder_site, exemplar)}” ({exemplar.key}) "
        f"with {displayed(weight)}."
    )


def text_at(site: Site, exemplar: Any) -> str:
    """The token that an exemplar's strongest pair ends at."""
    [text] = site.study.sentence_data.sentences[exemplar.index].texts.values()
    return str(text.pieces[exemplar.key])


def look_at_all_of_it(page: Page) -> None:
    """Open every table, in both themes and every width."""
    view = opened(page, ("self", 1, 2), (3, 1))
    for name in ("Every dimension", "Every key"):
        view.locator("details").filter(has_text=name).locator("summary").click()
    assert violations(page) == []
    assert [sideways(page, width) for width in (360, 800, 1440)] == [0, 0, 0]
    page.emulate_media(color_scheme="dark")
    assert background(page) == DARK
    assert violations(page, "color-contrast") == []
