"""The atlas and what stands around it are what the study holds."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from golden.refresh import STUDY
from numpy.typing import NDArray
from PIL import Image

from chosen_results import Fake, fake_results
from headbook.charts import images
from headbook.charts.drawing import interval_dot
from headbook.charts.layers import LABEL_DISTANCE, Curve, layer_lines
from headbook.charts.theme import COARSE_STEPS, STEPS, STOPS, coarse, ink_steps, rgba_ramp
from headbook.pages.index import CARDS, OverviewPage, functions, layer_curves, overview_page
from headbook.pages.parts.atlas import atlas, mean_maps
from headbook.pages.parts.head_card import atlas_data, notable
from headbook.pages.parts.page import SiteFacts
from headbook.report.findings.finding import Link
from headbook.report.findings.overview import overview_lead
from headbook.report.head_types import head_types
from headbook.report.results import StackResults, stack_results
from headbook.schema import EmbeddingSpace, HeadKey, ResidualPoint, SinkView, TokenKey
from headbook.site.page_writer import PageWriter
from headbook.site.registry import study_menu
from headbook.study.study import Study
from html_pages import data_file, elements, html_of, text_of
from sites import Site

Pixels = NDArray[np.uint8]


def pixels(address: str) -> Pixels:
    """A picture's colours. *Shape:* ``(row, column, 4)``."""
    picture = base64.b64decode(address.removeprefix("data:image/webp;base64,"))
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA"))


def over(colour: tuple[int, int, int, int], paper: int) -> list[int]:
    """What a colour becomes on grey paper."""
    *parts, alpha = colour
    return [round(part * alpha / 255 + paper * (1 - alpha / 255)) for part in parts]


def test_no_weight_is_no_ink_and_on_white_the_ramp_is_as_designed() -> None:
    assert rgba_ramp()[0] == (0, 0, 0, 0)
    ends = [over(rgba_ramp()[0], 255), over(rgba_ramp()[-1], 255)]
    assert ends == [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (STOPS[0], STOPS[-1])]
    lightness = [sum(over(colour, 255)) for colour in rgba_ramp()]
    assert lightness == sorted(lightness, reverse=True)


def test_steps_run_with_the_square_root() -> None:
    assert ink_steps(np.array([0.0, 0.25, 1.0, np.nan])).tolist() == [0, 32, 63, 0]


def test_few_steps_are_the_nearest_and_keep_both_ends() -> None:
    steps = np.arange(STEPS, dtype=np.uint8)
    few = coarse(steps)
    assert len({*few.tolist()}) == COARSE_STEPS
    assert (few[0], few[-1]) == (0, STEPS - 1)
    assert np.abs(few.astype(int) - steps).max() <= STEPS / COARSE_STEPS / 2 + 0.5


def test_a_sprite_holds_each_map_at_its_place_with_a_gap_between() -> None:
    maps = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4) % 64
    found = pixels(images.inline(images.sprite(maps, rgba_ramp())))
    assert found.shape == (2 * 5, 3 * 5, 4)
    for layer in range(2):
        for head in range(3):
            tile = found[layer * 5 : layer * 5 + 4, head * 5 : head * 5 + 4]
            np.testing.assert_array_equal(tile[..., 3], np.array(rgba_ramp())[maps[layer, head], 3])
    assert not found[4::5, :, 3].any()
    assert not found[:, 4::5, 3].any()


@pytest.fixture(scope="module")
def own(encoder_site: Site) -> StackResults:
    return stack_results(encoder_site.study)["self"]


def test_every_head_has_a_tile_with_its_type(own: StackResults) -> None:
    displayed, types = atlas(own), head_types(own)
    for layer, row in displayed.rows:
        for head, tile in enumerate(row):
            head_type = types[layer, head]
            assert head_type is not None
            assert tile.label == f"L{layer}·H{head}, {head_type.name}"
            assert tile.href == f"heads/L{layer:02}-H{head:02}.html"
            assert 1 <= len(tile.letters) <= 2
    assert sum(line.heads for line in displayed.legend) == len(types)


def test_tiles_are_the_mean_maps_of_the_study(own: StackResults) -> None:
    displayed, sums = atlas(own), own.study.corpus_sums.heads["self"].positions
    assert sums is not None
    found = pixels(displayed.sheet)
    for layer, head in head_types(own):
        tile = found[layer * 13 : layer * 13 + 12, head * 13 : head * 13 + 12]
        wanted = np.array(rgba_ramp())[ink_steps(sums.mean[layer, head])]
        np.testing.assert_array_equal(tile[..., 3], wanted[..., 3])
        alone = pixels(mean_maps(own).picture((layer, head)))
        np.testing.assert_array_equal(alone, tile)


def test_a_stored_study_without_types_has_an_overview() -> None:
    found = stack_results(Study.load(STUDY))
    page = overview_page(found, ())
    assert not page.atlases[0].legend
    assert page.inspected is not None
    assert page.inspected.card.summary == "No role by these rules."


def test_the_card_begins_with_a_head_that_has_a_role(own: StackResults) -> None:
    seen = notable({"self": own})
    assert seen is not None
    assert seen.picture == mean_maps(own).picture(seen.place)
    layer, head = seen.place
    position = own.stack.attention_layers.index(layer) * own.stack.n_heads + head
    assert atlas_data(own)[position] == seen.card.data
    assert len(atlas_data(own)) == len(head_types(own))


def test_who_does_what_is_supported_only_where_it_is_clear() -> None:
    """One head well above uniform attention, one that may be below it."""
    clear, weak = HeadKey("sink_share", SinkView.RAW, ""), HeadKey("confidence", SinkView.RAW, "")
    numbers = {
        clear: Fake([[0.8, 0.3]], uniform=0.1),
        weak: Fake([[0.1, 0.1]], uniform=0.1),
        HeadKey("attention_to", SinkView.RAW, "previous"): Fake([[0.1, 0.1]], 0.1, spread=0.5),
    }
    sink, previous = functions(fake_results(numbers))
    assert isinstance(sink.behind, Link)
    assert (sink.behind.text, sink.supported) == ("L0·H0", True)
    assert sink.value.startswith("80.0")
    assert sink.baseline == "uniform attention: 10.0\u202f%"
    assert not previous.supported
    assert "weak" in previous.dot.svg
    assert "weak" not in sink.dot.svg


def test_a_dot_stands_where_its_value_is() -> None:
    svg = interval_dot(0.5, 0.25, 0.75, 0.0, supported=True)
    assert 'cx="50.0%"' in svg
    assert '<line x1="26.0%" x2="74.0%"/>' in svg
    assert '<rect x="2.0%" width="2" height="16"/>' in svg
    assert not {"<line", "<rect"} & set(
        re.findall(r"<\w+", interval_dot(0.5, np.nan, np.nan, np.nan, supported=False))
    )


def test_names_of_lines_stand_apart_and_lines_stay_inside() -> None:
    values = [np.array([0.5, -0.3]), np.array([0.4, -0.31]), np.array([0.1, -0.32])]
    none = np.full(2, np.nan)
    lines = [Curve(f"line {n}", v, none, none, ("x", "y")) for n, v in enumerate(values)]
    drawn = layer_lines("a", "b", lines, layers=(0, 1), ends=(-0.4, 0.6), ticks=((0, "0"),)).svg
    height = float(re.findall(r'viewBox="0 0 \d+ (\d+)"', drawn)[0])
    names = sorted(float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*weight', drawn))
    assert len(names) == 3
    assert re.findall("<title>([^<]*)", drawn)[:2] == ["line 0, layer 0: x", "line 0, layer 1: y"]
    assert np.diff(names).min() >= LABEL_DISTANCE - 0.1
    places = [float(y) for y in re.findall(r'cy="([-\d.]+)"', drawn)]
    assert len(places) == 6
    assert min(places) >= 0
    assert max([*places, *names]) <= height


def test_one_wide_interval_does_not_flatten_the_curves() -> None:
    """A mean rank of 0.02 from sentences that are up to 1 away from it."""
    column = TokenKey("vocabulary_rank", ResidualPoint.POST, EmbeddingSpace.RAW, "all")
    sink = {HeadKey("confidence", SinkView.RAW, ""): Fake([[0.5], [0.5]])}
    found = fake_results(sink, tokens={column: ([0.02, 0.02], 1.0)})
    numbers = found.tokens("vocabulary_rank", ResidualPoint.POST, EmbeddingSpace.RAW, "all")
    assert numbers is not None
    assert numbers.high.max() > 0.1
    (curve,) = layer_curves(found, ())
    axis = [float(each) for each in re.findall(r">([\d.]+)</text>", curve.picture.svg)]
    assert 0.02 in axis
    assert 0.04 in axis
    assert not {0.1, 0.2, 0.4} & {*axis}


def test_the_lead_says_how_even_layers_are_and_what_the_sink_gets() -> None:
    even, sharp = [0.9, 0.9, 0.9, 0.1], [0.1, 0.1, 0.1, 0.1]
    numbers = {
        HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.1] * 4, [0.6] * 4], uniform=0.1),
        HeadKey("sink_norm_share", SinkView.RAW, ""): Fake([[0.1] * 4, [0.05] * 4], uniform=0.1),
        HeadKey("relative_entropy", SinkView.RENORM, ""): Fake([even, sharp]),
        HeadKey("type_shares", SinkView.RENORM, "left_out"): Fake(np.zeros((2, 4))),
        HeadKey("type_shares", SinkView.RENORM, "after"): Fake(np.ones((2, 4))),
    }
    parts = overview_lead({"self": fake_results(numbers)})
    message = "".join(part if isinstance(part, str) else part.text for part in parts)
    assert message == (
        "In fake, layer 0 attends almost evenly (3 of 4 heads are near-uniform); layer 1 gives "
        "60\u202f% of its attention to special tokens (uniform attention: 10\u202f%), which "
        "contribute only 5\u202f% of the output norm."
    )


def test_the_page_begins_with_the_atlas_and_keeps_lists_short(any_site: Site) -> None:
    html = html_of(any_site.folder / "index.html")
    before = text_of(html.partition("<table")[0]).partition("Skip to content")[2]
    assert len(before.split()) <= 120
    order = [html.index(f'id="{name}"') for name in ("atlas", "layers", "heads", "limits")]
    assert order == sorted(order)
    assert html.index('id="limits"') < html.index("About this run")
    cards = html.partition('class="cards"')[2].partition("</ul>")[0]
    assert cards.count("<li>") <= CARDS


def test_the_script_of_the_card_knows_every_tile(any_site: Site) -> None:
    """Names and addresses in the order of the tiles."""
    _, cards = data_file(any_site.folder / "data/atlas.js")
    html = html_of(any_site.folder / "index.html")
    parts = html.split('data-tiles="')[1:]
    assert len(parts) == len(cards)
    for part in parts:
        stack = part.partition('"')[0]
        body = part.partition("<tbody>")[2].partition("</tbody>")[0]
        links = [e.attributes["href"] for e in elements(body, "a")]
        assert links == [card[1] for card in cards[stack]]


def rendered(shape: tuple[int, int], folder: Path) -> tuple[OverviewPage, str]:
    """The overview of a model of so many layers and heads, and its file."""
    values = np.random.default_rng(0).random(shape)
    parts = dict.fromkeys(("left_out", "previous", "after"), values)
    numbers = {
        HeadKey("sink_share", SinkView.RAW, ""): Fake(values),
        HeadKey("sink_norm_share", SinkView.RAW, ""): Fake(values),
        HeadKey("relative_entropy", SinkView.RENORM, ""): Fake(values),
        **{HeadKey("type_shares", SinkView.RENORM, n): Fake(v) for n, v in parts.items()},
    }
    found = fake_results(numbers)
    page = overview_page({"self": found}, ())
    facts = SiteFacts.of(found.study.manifest, sentence_pages=False)
    frame = {
        "site": facts, "manifest": found.study.manifest, "across": set[str](), "base": "",
        "menu": study_menu(()), "preview": "",
    }  # fmt: skip
    PageWriter(folder, "", frame).write_page(page)
    return page, html_of(folder / "index.html")


@pytest.mark.parametrize(("shape", "tall"), [((5, 2), True), ((4, 2), False)])
def test_an_atlas_of_more_than_two_layers_a_head_is_tall(
    tmp_path: Path, shape: tuple[int, int], tall: bool
) -> None:
    _, html = rendered(shape, tmp_path)
    assert ('class="stack tall"' in html) == tall


@pytest.mark.slow
def test_many_heads_keep_within_the_budgets(tmp_path: Path) -> None:
    """32 layers of 32 heads: pictures are a file, single numbers no links."""
    page, html = rendered((32, 32), tmp_path)
    assert not page.linked
    assert page.atlases[0].small
    assert len(html) <= 190_000
    assert len(elements(html)) <= 4_800
    noise = ink_steps(np.random.default_rng(0).random((32, 32, 8, 8)))
    assert len(images.sprite(noise, rgba_ramp())) < 90_000  # at worst: noise does not pack
