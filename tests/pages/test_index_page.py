"""The overview is what the study holds: kind, claims, live sentence, wall, families, functions."""

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden.refresh import STUDY
from numpy.typing import NDArray
from PIL import Image

from ablation_results import ablation_results, around
from chosen_results import Fake, fake_results
from headbook.charts import images
from headbook.charts.drawing import interval_dot
from headbook.charts.layers import LABEL_DISTANCE, Curve, layer_lines
from headbook.charts.theme import COARSE_STEPS, STEPS, STOPS, coarse, ink_steps, rgba_ramp
from headbook.pages.index import OverviewPage, live_data, opacity_step, overview_page
from headbook.pages.overview_parts.answers import answered_pages, words_text
from headbook.pages.overview_parts.wall import wall_of
from headbook.pages.parts.page import SiteFacts
from headbook.report.answers.overview.family_claim import function_heads
from headbook.report.answers.overview.head_losses import STEPS as BAR_STEPS
from headbook.report.answers.overview.head_losses import bar_step, head_losses, layer_losses
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.results import StackResults, stack_results
from headbook.results.formats import head_page
from headbook.schema import (
    AblationTarget,
    Baseline,
    BaselineRun,
    HeadKey,
    HeadName,
    SinkView,
    heads_of,
)
from headbook.site.page_writer import PageWriter
from headbook.site.registry import study_menu
from headbook.site.sites import StudySite
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
    return encoder_site.results["self"]


def test_every_head_has_a_tile_with_its_function_and_family(own: StackResults) -> None:
    wall, functions = wall_of(own, None, {}, {}), functions_of(own)
    for layer, row in wall.rows:
        for head, tile in enumerate(row):
            function = functions[HeadName("self", layer, head)]
            assert tile.label == f"L{layer}·H{head}: {function.noun}"
            assert tile.function == function.noun
            assert tile.href == f"heads/L{layer:02}-H{head:02}.html"
            assert f"f-{function.family}" in tile.style.split()
            assert tile.bar == -1
    assert sum(n for *_, n in wall.legend) == len(functions) == wall.n_heads
    assert [(family, name) for family, name, _ in wall.legend] == [*families_of(own).items()]


def test_every_tinted_map_has_its_function_in_its_title(any_site: Site) -> None:
    html = html_of(any_site.folder / "index.html")
    functions = {
        head_page(head): function.noun
        for each in any_site.results.values()
        for head, function in functions_of(each).items()
    }
    tinted = [
        link for link in elements(html, "a") if "f-" in link.attributes.get("class", "")
        and "map" in link.attributes["class"].split()
    ]  # fmt: skip
    assert len(tinted) == sum(function != "not measured" for function in functions.values())
    for link in tinted:
        assert link.attributes["title"] == functions[link.attributes["href"]]


def test_claims_light_their_heads_and_labels_say_what_is_lost(own: StackResults) -> None:
    losses = head_losses(own.study)
    assert losses is not None
    wall = wall_of(own, losses, {}, {HeadName("self", 1, 2): [1, 3]})
    tiles = dict(wall.rows)
    assert tiles[1][2].style.endswith(" k1 k3")
    assert " k" not in tiles[0][0].style
    for layer, row in wall.rows:
        for head, tile in enumerate(row):
            loss = losses.heads[HeadName("self", layer, head)]
            assert tile.exact == loss.exact
            assert tile.bar == bar_step(loss.value, losses.heads[losses.largest].value)
            assert ("about" in tile.label) == (not loss.exact)


def test_layers_run_to_the_right_if_there_are_more_than_twice_as_many_as_heads() -> None:
    deep = wall_of(fake_results({SINK: Fake(np.full((5, 2), 0.1))}), None, {}, {})
    assert deep.deep
    assert deep.columns == (0, 1, 2, 3, 4)
    assert [[tile.label.partition(":")[0] for tile in row] for _, row in deep.rows] == [
        [f"L{layer}·H{head}" for layer in range(5)] for head in range(2)
    ]
    square = wall_of(fake_results({SINK: Fake(np.full((4, 2), 0.1))}), None, {}, {})
    assert not square.deep
    assert square.columns == (0, 1)


@pytest.mark.parametrize(
    ("shape", "mosaic"), [((6, 12), False), ((17, 12), True), ((2, 24), True), ((30, 9), False)]
)
def test_a_mosaic_stands_for_many_heads_or_layers(shape: tuple[int, int], mosaic: bool) -> None:
    results = fake_results({SINK: Fake(np.full(shape, 0.1))})
    assert wall_of(results, None, {}, {}).mosaic == mosaic


def test_bars_run_with_the_square_root_and_no_loss_has_none() -> None:
    assert [bar_step(value, 1.0) for value in (1.0, 0.25, 1e-9, 0.0, -0.5, np.nan)] == [
        BAR_STEPS, BAR_STEPS // 2, 1, 0, 0, 0,
    ]  # fmt: skip
    assert bar_step(1.0, -1.0) == 0


def test_losses_are_those_of_the_tables(encoder_site: Site) -> None:
    """Naively: exact effects, else estimates, of the main target."""
    study = encoder_site.study
    losses = head_losses(study)
    assert losses is not None
    table = study.importance
    table = table[(table["target"] == losses.target) & (table["replacement"] == "mean")]
    for head, loss in losses.heads.items():
        rows = table[
            (table["stack"] == head.stack) & (table["layer"] == head.layer)
            & (table["head"] == head.head)
        ].set_index("metric")["value"]  # fmt: skip
        metric = "ablation_effect" if loss.exact else "attribution_estimate"
        assert loss.value == pytest.approx(rows[metric])
    assert losses.heads[losses.largest].value == max(x.value for x in losses.heads.values())
    groups = study.head_groups.set_index(["group", "replacement", "target"])["value"]
    of_layers = layer_losses(stack_results(study))["self"]
    for layer, loss_of_layer in of_layers.items():
        value = groups[f"layer {layer}", "mean", losses.target]
        assert loss_of_layer.effect.value == pytest.approx(value)


def test_a_stored_study_without_functions_has_an_overview() -> None:
    page = overview_page(stack_results(Study.load(STUDY)))
    assert not page.families
    assert not page.live
    assert not page.walls[0].legend
    assert page.unsupported.startswith("No claim is supported by these ")


@pytest.mark.parametrize(("sentences", "words"), [(9, "these 9 sentences"), (1, "this 1 sentence")])
def test_without_claims_a_sentence_says_so(sentences: int, words: str) -> None:
    page = overview_page({"self": fake_results({SINK: Fake([[0.1]], 0.1)}, sentences=sentences)})
    assert page.claims == ()
    assert page.unsupported.startswith(f"No claim is supported by {words}; ")


def test_without_ablation_no_bar_stands_and_the_option_is_named(tmp_path: Path) -> None:
    page, html = rendered((2, 2), tmp_path)
    assert page.losses is None
    assert "--importance auto" in text_of(html)
    assert 'class="lay"' not in html


def test_without_groups_the_bars_of_layers_are_absent(tmp_path: Path) -> None:
    results = fake_results({SINK: Fake([[0.1] * 3], 0.1)})
    ablation = ablation_results(around(0.1, 0.2, 0.05), AblationTarget.STATE)
    sums = replace(results.study.corpus_sums, ablation=ablation)
    page, html = written(StackResults(replace(results.study, corpus_sums=sums), results.stack),
                         tmp_path)  # fmt: skip
    assert page.losses is not None
    assert page.layers is None
    assert "without a whole layer (--importance auto" in text_of(html)
    assert 'class="lay"' not in html
    assert html.count('<b class="w') == 3


def test_functions_are_listed_with_the_head_of_the_largest_number(own: StackResults) -> None:
    (rows,) = (rows for _, rows in overview_page({"self": own}).functions)
    groups = [group for group in function_heads(own) if group.example.number]
    assert [row.function for row in rows] == groups
    for row in rows:
        functions, number = row.function.functions, row.function.example.number
        assert number is not None
        assert number.value == max(f.number.value for f in functions if f.number)
        assert {f.id for f in functions} == {row.function.example.id}


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


def test_the_page_says_what_the_model_is_before_its_first_picture(any_site: Site) -> None:
    html = html_of(any_site.folder / "index.html")
    opened = re.sub(r"<details>.*?</details>", "", html.partition("<figure")[0], flags=re.DOTALL)
    before = text_of(opened).partition("Skip to content")[2]
    assert len(before.split()) <= 150  # but for the evidence, which waits in closed details
    order = [html.index(mark) for mark in ('class="about-model"', 'class="claims"', "<figure")]
    assert order == sorted(order)
    names = ("families", "who", "later", "answers", "limits")
    places = [html.index(f'id="{name}"') for name in names if f'id="{name}"' in html]
    assert places == sorted(places)
    assert html.index('id="limits"') < html.index("About this run")
    assert "style=" not in html


def test_every_head_stands_on_the_wall_once(any_site: Site) -> None:
    html = html_of(any_site.folder / "index.html")
    links = [
        e.attributes["href"] for e in elements(html, "a")
        if "map" in e.attributes.get("class", "").split() and "href" in e.attributes
    ]  # fmt: skip
    study = any_site.study
    assert len(links) == len({*links})
    assert len(links) == sum(len(heads_of(stack)) for stack in study.manifest.stacks)


def test_the_answers_of_all_pages_stand_on_the_page_with_links_that_lead_somewhere(
    any_site: Site,
) -> None:
    html = html_of(any_site.folder / "index.html")
    lines = re.findall(
        r"<li>(.*?)</li>", html.partition('id="answers"')[2].partition("</details>")[0]
    )
    answered = answered_pages(StudySite(any_site.study).charted)
    assert len(lines) == len(answered) > 5
    for line, page in zip(lines, answered, strict=True):
        assert line.startswith(f'<a href="{page.path}"')
        assert " ".join(words_text(page.answer).split())[:40] in " ".join(text_of(line).split())
        for address in re.findall(r'href="([^"#?]*)', line):
            assert (any_site.folder / address).is_file(), line


def test_metrics_in_which_no_layer_differs_from_random_weights_are_a_limit() -> None:
    key = HeadKey("attention_distance", SinkView.RAW, "")
    same = {BaselineRun(Baseline.UNTRAINED, 0): {key: Fake([[0.5]])}}
    other = {BaselineRun(Baseline.UNTRAINED, 0): {key: Fake([[0.9]])}}
    for runs, is_listed in ((same, True), (other, False), ({}, False)):
        results = {"self": fake_results({key: Fake([[0.5]])}, baseline_runs=runs)}
        assert bool(overview_page(results).like_random) == is_listed


def test_the_live_sentence_is_drawn_for_its_word_and_scripts_have_its_data(
    encoder_site: Site,
) -> None:
    found = encoder_site.results
    (figure,) = overview_page(found).live
    live = figure.live
    assert figure.words == live.keys.pieces
    for row, each in zip(figure.rows, live.families, strict=True):
        assert (row.family, row.heads) == (each.family, each.heads)
        assert row.steps == tuple(
            round(10 * min(1, 2 * each.mean[q, live.word]) ** 0.5) for q in range(len(row.steps))
        )
    _, data = data_file(encoder_site.folder / "data/live.js")
    stored = live_data(found)["self"]
    assert {*data} == {*found}
    assert [*stored["families"]] == [str(each.family) for each in live.families]
    first = stored["families"][str(live.families[0].family)]
    assert len(first["head"]) == 2 * len(first["mean"]) == 2 * live.sizes[0] * live.sizes[1]
    mean = np.frombuffer(first["mean"], np.uint8).reshape(live.sizes) / 255
    np.testing.assert_allclose(mean, live.families[0].mean, atol=0.5 / 255 + 1e-9)


def test_cells_have_their_full_colour_from_half_of_the_attention_on() -> None:
    assert [opacity_step(weight) for weight in (0.0, 0.125, 0.5, 0.9, -0.1)] == [0, 5, 10, 10, 0]


def test_families_are_counted_once_and_shown_by_an_exemplar(encoder_site: Site) -> None:
    page = overview_page(encoder_site.results)
    (wall,) = page.walls
    assert {each.heads.family: len(each.heads.heads) for each in page.families} == {
        family: n for family, _, n in wall.legend
    }
    for each in page.families:
        assert each.heads.example.head in each.heads.heads
        assert each.weight is not None
        assert each.weight.href.startswith("heads/")
        assert each.text


SINK = HeadKey("sink_share", SinkView.RAW, "")


def written(results: StackResults, folder: Path) -> tuple[OverviewPage, str]:
    """The overview of some results, and its file."""
    page = overview_page({"self": results})
    facts = SiteFacts.of(results.study.manifest, sentence_pages=False)
    frame = {
        "site": facts, "manifest": results.study.manifest, "across": set[str](), "base": "",
        "menu": study_menu(()), "preview": "",
    }  # fmt: skip
    return page, PageWriter(folder, "", frame).render(page.template, page=page, root="")


def rendered(shape: tuple[int, int], folder: Path) -> tuple[OverviewPage, str]:
    """The overview of a model of so many layers and heads, and its file."""
    values = np.random.default_rng(0).random(shape)
    parts = dict.fromkeys(("left_out", "previous", "after"), values)
    numbers = {
        SINK: Fake(values),
        HeadKey("sink_norm_share", SinkView.RAW, ""): Fake(values),
        HeadKey("relative_entropy", SinkView.RENORM, ""): Fake(values),
        **{HeadKey("type_shares", SinkView.RENORM, n): Fake(v) for n, v in parts.items()},
    }
    return written(fake_results(numbers), folder)


@pytest.mark.parametrize("shape", [(1, 1), (30, 9), (12, 12)])
def test_models_of_any_shape_have_an_overview(tmp_path: Path, shape: tuple[int, int]) -> None:
    _, html = rendered(shape, tmp_path)
    assert html.count('class="map m-self') >= shape[0] * shape[1]
    assert len(html) <= 200_000


@pytest.mark.slow
def test_many_heads_keep_within_the_budgets(tmp_path: Path) -> None:
    """32 layers of 32 heads."""
    page, html = rendered((32, 32), tmp_path)
    assert page.walls[0].mosaic
    assert len(html) <= 450_000
    assert len(elements(html)) <= 9_000
    noise = ink_steps(np.random.default_rng(0).random((32, 32, 8, 8)))
    assert len(images.opacity_sheet(noise)) < 120_000  # at worst: noise does not pack


def test_every_page_is_listed_with_what_it_answers(any_site: Site) -> None:
    html = html_of(any_site.folder / "index.html").partition('<ul class="later">')[2]
    items = html.partition("</ul>")[0].split("<li>")[1:]
    assert len(items) > 10
    assert not [item for item in items if "<small>" not in item]
