"""The page of attention patterns: what it shows of each stack, and where its numbers are."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiny
import treebank
from block_parts import every, group_of
from chosen_results import Fake, fake_results
from headbook.charts.patterns import offset_plot, offset_rows
from headbook.charts.plots import MAX_LINKED_MARKS, Plot, PlotMark
from headbook.charts.sinks import sink_plot, sink_rows
from headbook.pages.parts.blocks import HeadMap, Lead, Maps, Page, Table
from headbook.pages.patterns import has_patterns, patterns_page
from headbook.report.facts.patterns import SELF
from headbook.report.facts.sinks import SINK, SINK_OUTPUT, sink_answer, sink_heads
from headbook.report.results import StackResults, stack_results
from headbook.results.number import Number
from headbook.study.study import Study
from sites import Site, make_study

METRICS = (
    "sink_share,sink_norm_share,attention_to,offset_profile,type_shares,attention_parts,relative_entropy,"
    "context_similarity,row_similarity,same_sentence_preference,segmentation"
)
Make = Callable[..., Study]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Study some texts, by default the trees, with a tiny model."""

    def of(family: str, *lines: str, metrics: str = METRICS, **options: Any) -> Study:
        folder = tmp_path_factory.mktemp(family)
        if lines:
            inputs = folder / "texts.txt"
            inputs.write_text("\n".join(lines), encoding="utf-8")
        elif family == "bart":
            inputs = treebank.write_pairs(folder / "pairs.jsonl")
        else:
            inputs = treebank.write_trees(folder / "trees.conllu")
        model = tiny.write(family, folder / "model")
        return make_study(inputs, model, metrics=metrics, sentence_pages="0", **options)

    return of


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_captions_have_at_most_40_words(kind: str, request: pytest.FixtureRequest) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = patterns_page(site.results)
    captions = [lead.caption or (lead.figure.caption if lead.figure else "")
                for lead in every(Lead, page)]  # fmt: skip
    assert captions
    for caption in map(str, captions):
        assert len(caption.split()) <= 40, caption


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_every_mark_has_its_row_and_its_numbers(kind: str, request: pytest.FixtureRequest) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    plots = every(Plot, patterns_page(site.results))
    marks = [mark for plot in plots for mark in plot.marks if isinstance(mark, PlotMark)]
    assert marks
    assert all(mark.href and re.search(r"\d", mark.label.split(": ")[1]) for mark in marks)


def asked(page: Page) -> list[str]:
    return [question.id for question in page.questions]


# Layout.


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_page_asks_and_answers(kind: str, request: pytest.FixtureRequest) -> None:
    page = patterns_page(request.getfixturevalue(f"{kind}_site").results)
    assert "diagonal" in asked(page)
    assert ("stripes" in asked(page)) == (kind == "encoder")  # of the decoder, not measured
    names = [plot.name for plot in every(Plot, page)]
    assert names[0] == "patterns-sinks"
    assert len(names) <= 8
    assert group_of(page, "maps")
    assert kind == "decoder" or group_of(page, "tables")


def test_every_stack_is_on_the_page_and_the_first_answers(make: Make) -> None:
    page = patterns_page(stack_results(make("bart", importance="off")))
    assert asked(page)[-2:] == ["decoder", "cross"]
    assert [plot.name for plot in every(Plot, page)] == [
        "patterns-encoder-sinks", "patterns-encoder-offsets", "patterns-decoder-sinks",
        "patterns-cross-sinks",
    ]  # fmt: skip
    for stack in ("encoder", "decoder", "cross"):
        heads = every(HeadMap, group_of(page, f"maps-{stack}"))
        assert {head.style.split()[0] for head in heads} == {f"m-{stack}"}
    assert len(page.absent) == len({*page.absent})


def test_heads_stand_in_the_order_of_their_attention_to_the_sink(encoder_site: Site) -> None:
    shares = encoder_site.results["self"].heads(*SINK).value
    maps = group_of(patterns_page(encoder_site.results), "maps")
    printed = [number.value for number in every(Number, maps.blocks)]
    assert printed == sorted(shares.ravel(), reverse=True)


# Numbers.


def test_the_first_chart_has_both_shares_of_every_head(encoder_site: Site) -> None:
    study = encoder_site.study
    own = stack_results(study)["self"]
    rows = sink_plot(own, "name", "caption").rows.set_index(["layer", "head"])
    assert len(rows) == tiny.LAYERS * tiny.HEADS
    for column, metric in (("attention", "sink_share"), ("output", "sink_norm_share")):
        table = study.heads.query(f"metric == '{metric}' and view == 'raw'")
        wanted = table.set_index(["layer", "head"])["value"]
        np.testing.assert_allclose(rows[column], wanted.loc[rows.index])
    assert {*rows.index[rows["sink_head"]]} == {*sink_heads(own)}
    assert (rows.groupby("layer")["attention"].diff().dropna() <= 0).all()


def test_offsets_are_those_of_the_table_and_causal_models_look_back(
    encoder_site: Site, decoder_site: Site
) -> None:
    for site, offsets in ((encoder_site, range(-6, 7)), (decoder_site, range(-12, 1))):
        own = next(iter(site.results.values()))
        rows = offset_rows(own)
        assert {*rows["offset"]} <= {*offsets}
        assert 0 in {*rows["offset"]}
        table = site.study.heads.query("metric == 'offset_profile' and view == 'raw'")
        wanted = table.assign(offset=table["label"].astype(int))
        both = rows.merge(wanted, on=["layer", "head", "offset"], validate="one_to_one")
        assert len(both) == len(rows)
        np.testing.assert_allclose(both["share"], both["value"])


# Claims.


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_heads_are_counted_as_the_chart_draws_them(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The answer, the solid marks and the types of heads agree."""
    own = next(iter(stack_results(request.getfixturevalue(f"{kind}_site").study).values()))
    plot = sink_plot(own, "name", "caption")
    solid = solid_circles(plot)
    assert len(solid) == len(sink_heads(own)) == plot.rows["sink_head"].sum()
    found = many(6, 12)
    count = len(sink_heads(found))
    assert 0 < count < 72
    assert len(sink_answer(found).heads) == count
    assert len(solid_circles(sink_plot(found, "name", "caption"))) == count


def circles(plot: Plot) -> list[PlotMark]:
    """Return the marks of attention to the sink."""
    marks = [mark for mark in plot.marks if isinstance(mark, PlotMark)]
    return [mark for mark in marks if mark.label.endswith("of its attention")]


def solid_circles(plot: Plot) -> list[PlotMark]:
    """Return the marks of sink heads."""
    return [mark for mark in circles(plot) if "model" in mark.style]


# Sizes.


def many(n_layers: int, n_heads: int) -> StackResults:
    """Return numbers of a larger model, some of them sink heads."""
    draw = np.random.default_rng(3).random
    shape = n_layers, n_heads
    numbers = {SINK: Fake(draw(shape), uniform=0.1), SINK_OUTPUT: Fake(draw(shape) / 4)}
    numbers |= {
        SELF._replace(label=str(offset)): Fake(draw(shape) ** 4, uniform=0.1)
        for offset in range(-6, 7)
    }
    return fake_results(numbers)


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (6, 12), (12, 12), (30, 9), (32, 32)])
def test_charts_of_any_number_of_heads_are_small(n_layers: int, n_heads: int) -> None:
    found = many(n_layers, n_heads)
    drawn = [sink_plot(found, "a", "b"), offset_plot(found, "c", "d")]
    # Pages have the lines of rows in place of their values, which makes addresses shorter.
    drawings = [re.sub(r'href="[^"]*"', f'href="{"?" * 32}"', plot.svg) for plot in drawn]
    assert sum(map(len, drawings)) < 125_000
    assert sum(plot.svg.count("<") for plot in drawn) < 2 * 3000
    assert len(sink_rows(found)) == n_layers * n_heads == len(drawn[0].rows)
    linked = circles(drawn[0])
    if n_layers * n_heads <= MAX_LINKED_MARKS:
        assert len(linked) == n_layers * n_heads
        assert drawn[0].curves == ()
    else:
        assert linked == []
        bars, dots, sink_bars, sink_dots = (len(curve.points) for curve in drawn[0].curves)
        assert bars == dots == n_layers * n_heads - sink_dots
        assert sink_bars == sink_dots == drawn[0].rows["sink_head"].sum()


def test_large_models_show_every_nth_map() -> None:
    (maps,) = every(Maps, patterns_page({"self": many(32, 32)}))
    assert len(maps.maps) == 128


def test_nothing_is_printed_of_missing_numbers() -> None:
    """Only attention to the sink was measured, and of one head not even that."""
    found = fake_results({SINK: Fake([[0.7, math.nan]], uniform=0.1)})
    page = patterns_page({"self": found})
    assert len(sink_answer(found).heads) == 1
    assert asked(page) == []
    assert not every(Table, page)
    assert len(page.absent) == 3
    assert all("--" in text for text in page.absent)
    (plot,) = every(Plot, page)
    assert len(plot.rows) == 1
    unknown = fake_results({SINK: Fake([[math.nan, math.nan]])})
    assert not has_patterns({"self": unknown})
