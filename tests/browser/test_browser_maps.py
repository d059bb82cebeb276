"""Attention maps in a browser: every weight that a reader can ask for is the study's own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from browser import Open, each
from browser_views import cells, strength
from headbook.schema import Side
from headbook.study.sentence_data import Exemplar, Ranking
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = ("self", 0, 1)
CROSS = ("cross", 1, 2)


def exemplars_of(site: Site, head: tuple[str, int, int]) -> list[Exemplar]:
    """A head's strongest exemplars in the order of its page."""
    own = [e for e in site.study.sentence_data.exemplars if e.head == head]
    return [e for e in own if e.ranking is Ranking.STRONGEST]


def longest(exemplars: list[Exemplar]) -> int:
    """Place of the exemplar with the largest map."""
    return max(range(len(exemplars)), key=lambda place: exemplars[place].attention.size)


def written(step: Any) -> str:
    """A stored weight as pages print it."""
    return f"{int(step) / 255:.2f}"


def strongest(pieces: Sequence[str], row: Any) -> str:
    """The three keys that a query attends to most, as the page lists them."""
    order = sorted(range(len(row)), key=lambda key: (-int(row[key]), key))[:3]
    return ", ".join(f"{key} {pieces[key]} {written(row[key])}" for key in order)


STEPS = {"ArrowDown": (1, 0), "ArrowRight": (0, 1), "ArrowUp": (-1, 0), "ArrowLeft": (0, -1)}


def check_canvas(
    box: Locator, texts: tuple[Any, Any], weights: Any, start: tuple[int, int] = (0, 0)
) -> None:
    """Arrow keys read the weights from the kept one on, and strong weights have strong colours."""
    canvas, status = box.locator("canvas.cells"), box.locator(".status")
    queries, keys = texts
    canvas.focus()
    row, column = start
    for key in ("ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowUp", "ArrowRight"):
        canvas.press(key)
        down, right = STEPS[key]
        if not (0 <= row + down < len(queries) and 0 <= column + right < len(keys)):
            continue
        row, column = row + down, column + right
        read = f"{row} {queries[row]} → {column} {keys[column]}: {written(weights[row, column])}"
        expect(status).to_have_text(read)
    shades = strength(cells(box, weights.shape))
    order = np.argsort(weights, axis=None, kind="stable")
    assert (np.diff(shades.ravel()[order]) > -3).all()  # colours are rounded
    assert np.ptp(shades) > 0.3 * np.ptp(weights)


def test_exemplar_tells_where_the_token_looks(encoder_site: Site, open_page: Open) -> None:
    """Pointing shows a token's weights, leaving goes back to the kept one, a click keeps."""
    page = open_page(encoder_site.folder / "heads/L00-H01.html")
    exemplars = exemplars_of(encoder_site, HEAD)
    position = longest(exemplars)
    exemplar = exemplars[position]
    pieces = encoder_site.study.sentence_data.sentences[exemplar.index].texts[Side.SOURCE].pieces
    article = page.locator("article.exemplar").nth(position)
    line, status = article.locator(".text"), article.locator("[data-status]")

    def shows(query: int) -> None:
        row = exemplar.attention[query]
        expect(status).to_have_text(f"{query} {pieces[query]} attends to {strongest(pieces, row)}")
        assert article.locator(".t.looks").get_attribute("data-i") == str(query)
        tokens = article.locator(".t")
        titles = [f"{i} {piece}: {written(row[i])}" for i, piece in enumerate(pieces)]
        assert each(tokens, "title") == titles
        shades = [f"s{round(int(step) / 25.5)}" for step in row]
        assert [names.split()[-1] for names in each(tokens, "class")] == shades

    other, kept = (exemplar.query + 2) % len(pieces), 1 + (exemplar.query + 3) % (len(pieces) - 1)
    article.locator(f'.t[data-i="{other}"]').hover()
    shows(other)
    page.locator("h1").hover()
    shows(exemplar.query)
    article.locator(f'.t[data-i="{kept}"]').click()
    page.locator("h1").hover()
    shows(kept)
    line.press("ArrowLeft")
    shows(kept - 1)
    line.press("ArrowRight")
    shows(kept)


def test_exemplar_of_two_texts_looks_from_one_to_the_other(
    pair_site: Site, open_page: Open
) -> None:
    page = open_page(pair_site.folder / "heads/cross-L01-H02.html")
    exemplar = exemplars_of(pair_site, CROSS)[0]
    texts = pair_site.study.sentence_data.sentences[exemplar.index].texts
    queries, keys = texts[Side.TARGET].pieces, texts[Side.SOURCE].pieces
    assert exemplar.attention.shape == (len(queries), len(keys))
    article = page.locator("article.exemplar").first
    for query in (len(queries) - 1, 0):
        article.locator(f'.looking .t[data-i="{query}"]').hover()
        best = strongest(keys, exemplar.attention[query])
        reported = f"{query} {queries[query]} attends to {best}"
        expect(article.locator("[data-status]")).to_have_text(reported)
    last = article.locator(".looking .text")
    last.press("Enter")  # keeps the one that was pointed at
    article.locator("summary").click()
    box = article.locator("[data-full]")
    check_canvas(box, (queries, keys), exemplar.attention, (0, 0))


def test_full_map_tells_every_weight(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "heads/L00-H01.html")
    exemplars = exemplars_of(encoder_site, HEAD)
    position = longest(exemplars)
    exemplar = exemplars[position]
    pieces = encoder_site.study.sentence_data.sentences[exemplar.index].texts[Side.SOURCE].pieces
    article = page.locator("article.exemplar").nth(position)
    article.locator("summary").click()
    box = article.locator("[data-full]")
    check_canvas(box, (pieces, pieces), exemplar.attention, (exemplar.query, exemplar.key))
