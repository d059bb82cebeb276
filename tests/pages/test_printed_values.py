"""Pages print the numbers of the study, and print them honestly."""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from headbook.analysis.accumulators import Estimate
from headbook.charts import images
from headbook.charts.theme import (
    DARK,
    DARK_DIVERGING,
    DIVERGING,
    STOPS,
    colours,
    luminance,
    rgba_ramp,
    text_colour,
)
from headbook.metrics import all_metrics
from headbook.pages.head import head_pages
from headbook.pages.parts.page import gap_texts
from headbook.pages.parts.table import (
    COLOUR_STEPS,
    NumberCell,
    WordsCell,
    colour_step,
    domain,
    percentiles,
)
from headbook.pages.parts.text import running_text
from headbook.pages.sentence import sentence_pages
from headbook.report.results import stack_results
from headbook.report.wording import count_text, label_name, unbroken, visible
from headbook.results.formats import MISSING, head_file, head_name, interval_text, number, percent
from headbook.results.number import Unit
from headbook.results.sentence import Link
from headbook.schema import HeadName, SinkView
from headbook.study.manifest import NotAvailable
from headbook.study.sentence_data import StoredText
from sites import Site

NAN = math.nan
finite = st.floats(-1e6, 1e6)


@given(st.floats(0, 1))
def test_a_share_is_never_nothing_or_all_by_rounding(value: float) -> None:
    assert (percent(value) == "0.0\u202f%") == (value == 0)
    assert (percent(value) == "100.0\u202f%") == (value == 1)


@given(finite)
def test_a_number_is_never_nothing_by_rounding(value: float) -> None:
    text = number(value)
    assert (text == "0.00") == (value == 0)
    assert "-" not in text  # a minus sign, not a hyphen


@given(finite.filter(lambda value: abs(value) >= 0.005))
def test_a_number_is_within_half_a_digit(value: float) -> None:
    text = number(value).replace(",", "").replace("−", "-")
    digits = len(text.partition(".")[2])
    assert abs(float(text) - value) <= 0.5000001 * 10.0**-digits


def test_what_is_missing_is_a_dash_and_never_zero() -> None:
    assert number(NAN) == number(NAN, share=True) == Unit(" bits").text(NAN) == MISSING
    assert interval_text(NAN, 1) == interval_text(0, NAN) == ""
    cell = NumberCell.of(Estimate(NAN, NAN, NAN, 0, 0), all_metrics()["attention_distance"])
    assert (cell.text, cell.interval, cell.note) == (MISSING, "", "no data")


def test_few_observations_are_said_to_be_few() -> None:
    metric = all_metrics()["attention_distance"]
    few, many = (NumberCell.of(Estimate(1, 0, 2, 30, 90, behind), metric) for behind in (9.9, 10))
    assert few.too_few
    assert few.note == "too few sentences: 30 sentences, 90 observations"
    assert not many.too_few
    assert many.note == "30 sentences, 90 observations"


@given(st.text())
def test_visible_text_holds_no_control_character(text: str) -> None:
    displayed = visible(text)
    assert visible(displayed) == displayed
    assert len(displayed) == len(text)
    assert not {c for c in displayed if ord(c) < 0x20} - set("\n\t")
    displayed.encode()


def test_names_of_heads_and_amounts() -> None:
    assert head_name(HeadName("self", 4, 11)) == "L4·H11"
    assert head_name(HeadName("cross", 0, 2)) == "cross L0·H2"
    assert head_file(HeadName("self", 4, 11)) == "L04-H11"
    assert head_file(HeadName("decoder", 10, 2)) == "decoder-L10-H02"
    assert (count_text(1, "sentence"), count_text(1204, "sentence")) == (
        "1 sentence",
        "1,204 sentences",
    )


@given(st.lists(finite, min_size=2, max_size=9))
def test_percentiles_run_from_the_smallest_to_the_largest(values: list[float]) -> None:
    array = np.array(values)
    places = percentiles(array).tolist()
    assert all(0 <= value <= 1 for value in places)
    assert math.isclose(sum(places) / len(places), 0.5)
    assert places[int(array.argmax())] == max(places)


def test_there_is_no_percentile_without_others() -> None:
    assert np.isnan(percentiles(np.array([1.0, NAN]))).all()
    assert np.isnan(percentiles(np.array([1.0, 2.0, NAN]))).tolist() == [False, False, True]


@given(
    st.lists(finite | st.just(NAN), min_size=1),
    st.sampled_from([(0.0, 1.0), (-math.inf, math.inf)]),
)
def test_every_value_has_a_place_on_its_colour_scale(
    values: list[float], limits: tuple[float, float]
) -> None:
    ends = domain(np.array(values), limits)
    assert ends[0] < ends[1]
    for value in values:
        step = colour_step(value, ends)
        assert step is None if math.isnan(value) else step in range(COLOUR_STEPS)


def test_running_text_is_the_text(encoder_site: Site) -> None:
    """Letter for letter, but for the width of spaces."""
    for sentence in encoder_site.study.sentence_data.sentences.values():
        for text in sentence.texts.values():
            tokens = running_text(text)
            assert len(tokens) == len(text.pieces)
            displayed = "".join(t.before + t.text for t in tokens if not t.special)
            assert displayed.split() == text.text.split()


def test_running_text_keeps_what_no_token_covers() -> None:
    text = StoredText(
        text="ab  — c", pieces=("<s>", "ab", "c"), spans=((0, 0), (0, 2), (6, 7)),
        special=(True, False, False), words=(-1, 0, 1), tags=("", "X", "X"),
        lost=0, generated=False,
    )  # fmt: skip
    tokens = running_text(text, weights=np.array([255, 128, 0], np.uint8), query=2)
    assert [t.before + t.text for t in tokens] == ["<s>", "ab", "  — c"]
    assert [t.shade for t in tokens] == [10, 5, 0]
    assert tokens[1].weight == "50\u202f%"
    assert [t.is_query for t in tokens] == [False, False, True]


def test_the_table_of_a_head_has_the_numbers_of_the_study(any_site: Site) -> None:
    study = any_site.study
    heads = study.heads.set_index(["stack", "layer", "head", "metric", "view", "label"])["value"]
    for stack, result in stack_results(study).items():
        for page in head_pages(result):
            layer, head = map(int, page.path[-10:-5].removeprefix("L").split("-H"))
            row = page.numbers.rows[0]
            link, *rest = row.head.parts if isinstance(row.head, WordsCell) else [row.head]
            assert isinstance(link, Link)
            metric = all_metrics()[link.href.removeprefix("metrics/").removesuffix(".html")]
            share = metric.limits == (0, 1)
            named = [each for each in metric.labels if f": {unbroken(label_name(each))}" in rest]
            label = named[0] if named else ""
            values = [heads[stack, layer, head, metric.id, view, label] for view in SinkView]
            assert [c.text for c in row.cells if isinstance(c, NumberCell)] == [
                number(v, share=share) for v in values
            ]
            assert page.title == f"Head {head_name(HeadName(stack, layer, head))}"


@pytest.mark.slow
def test_neighbours_of_heads_and_sentences_lead_through_all_of_them(pair_site: Site) -> None:
    found = pair_site.results
    walks: list[Sequence[Any]] = [list(head_pages(r)) for r in found.values()]
    for pages in (*walks, list(sentence_pages(found))):
        before = [p.previous[0] if isinstance(p.previous, tuple) else p.previous for p in pages]
        after = [p.next[0] if isinstance(p.next, tuple) else p.next for p in pages]
        assert before == [None, *(page.path for page in pages[:-1])]
        assert after == [*(page.path for page in pages[1:]), None]


def test_a_preview_shows_every_weight_in_its_colour() -> None:
    cells = np.arange(12, dtype=np.uint8).reshape(3, 4) * 23
    address = images.map_preview(cells, rgba_ramp(256))
    picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    assert picture.size == (4, 3)
    paper = Image.new("RGBA", picture.size, "white")
    on_paper = np.asarray(Image.alpha_composite(paper, picture))[..., :3].astype(int)
    for (row, column), weight in np.ndenumerate(cells):
        wanted = [int(colours(256)[weight][i : i + 2], 16) for i in (1, 3, 5)]
        np.testing.assert_allclose(on_paper[row, column], wanted, atol=2)
    assert picture.getpixel((0, 0)) == (0, 0, 0, 0)  # the page itself, light or dark


def test_a_picture_names_no_colour_that_it_lacks() -> None:
    """Colours weigh more than the weights of a small map."""
    cells = np.array([[7, 63], [20, 7]], np.uint8)
    picture = Image.open(io.BytesIO(images.inked(cells, rgba_ramp())))
    assert len(picture.getpalette() or []) == 3 * 3
    displayed = np.asarray(picture.convert("RGBA"))
    assert displayed.tolist() == [
        [list(rgba_ramp()[step]) for step in row] for row in cells.tolist()
    ]


def test_a_preview_that_is_shrunk_loses_no_strong_weight() -> None:
    cells = np.zeros((200, 150), np.uint8)
    cells[133, 77] = 255
    address = images.map_preview(cells, rgba_ramp(256))
    picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    assert max(picture.size) <= images.MAX_PREVIEW_PIXELS
    assert {colour for _, colour in picture.getcolors() or []} == {
        rgba_ramp(256)[0],
        rgba_ramp(256)[255],
    }


@pytest.mark.parametrize("length", [1, 5, 21, 45, 130])
def test_a_sheet_has_a_pixel_for_every_weight_and_one_between_two_maps(length: int) -> None:
    maps = np.full((2, 3, length, length), 50, np.uint8)
    picture = Image.open(io.BytesIO(images.map_sheet(maps, rgba_ramp(), side=44)))
    n = length if length <= 88 else -(-length // -(-length // 88))
    assert picture.size == (3 * (n + 1), 2 * (n + 1))
    alpha = np.asarray(picture.convert("RGBA"))[..., 3].reshape(2, n + 1, 3, n + 1)
    assert (alpha[:, :n, :, :n] == rgba_ramp()[50][3]).all()
    assert not alpha[:, n].any()
    assert not alpha[..., n].any()


def test_every_step_of_the_colour_scale_is_another_colour() -> None:
    assert len(set(colours(COLOUR_STEPS))) == COLOUR_STEPS
    assert colours(COLOUR_STEPS)[0] == colours(256)[0]
    assert colours(COLOUR_STEPS)[-1] == colours(256)[-1]


@pytest.mark.parametrize("stops", [STOPS, DARK, DIVERGING, DARK_DIVERGING])
def test_letters_are_legible_on_every_step_of_every_scale(stops: tuple[str, ...]) -> None:
    """WCAG 2 asks for a contrast of 4.5."""
    for colour in colours(200, stops):
        below, above = sorted([luminance(colour), 1.0 if text_colour(colour) == "#fff" else 0.0])
        assert (above + 0.05) / (below + 0.05) >= 4.5


def test_signed_numbers_have_their_zero_in_the_middle_of_the_scale() -> None:
    assert domain(np.array([0.1, -0.3, np.nan]), (-1, 1)) == (-0.3, 0.3)
    assert colour_step(0.0, (-0.3, 0.3)) == (COLOUR_STEPS - 1) / 2


def test_gaps_of_one_place_and_one_reason_are_said_together() -> None:
    gaps = [
        NotAvailable("this", "cross", "two texts"),
        NotAvailable("that", "", "no reason"),
        NotAvailable("more", "cross", "two texts"),
        NotAvailable("more", "decoder", "two texts"),
    ]
    assert gap_texts(gaps) == [
        "this, more in cross-attention: two texts",
        "that: no reason",
        "more in decoder self-attention: two texts",
    ]
