"""The page of attention patterns: what it shows of each stack, and where its numbers are."""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headbook
import tiny
import treebank
from bare_model import Bare, given
from block_parts import every, group_of
from chosen_results import Fake, fake_results
from headbook.charts.patterns import offset_plot, offset_rows, similarity_plot
from headbook.charts.plots import MAX_LINKED_MARKS, Plot, PlotMark
from headbook.charts.sinks import sink_plot, sink_rows
from headbook.metrics.patterns import pattern
from headbook.metrics.patterns.block_ratio import segments
from headbook.pages.parts.blocks import HeadMap, Maps, Page, Table
from headbook.pages.patterns import has_patterns, patterns_page
from headbook.report.facts.patterns import OUTPUTS, ROWS, SELF
from headbook.report.facts.sinks import SINK, SINK_OUTPUT, sink_answer, sink_heads
from headbook.report.results import StackResults, stack_results
from headbook.results.number import Number
from headbook.schema import SinkView
from headbook.study.study import Study
from html_pages import elements, html_of
from layers import Marks, views_of
from naive import NAIVE_SAMPLED
from naive_ratios import ratio
from single_head import Viewed
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


def asked(page: Page) -> list[str]:
    return [question.id for question in page.questions]


# Layout.


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_page_asks_and_answers(kind: str, request: pytest.FixtureRequest) -> None:
    page = patterns_page(request.getfixturevalue(f"{kind}_site").results)
    assert "diagonal" in asked(page)
    # Of the decoder, neither outputs nor types were measured.
    assert {"alike", "stripes"} & {*asked(page)} == (
        {"alike", "stripes"} if kind == "encoder" else set()
    )
    names = [plot.name for plot in every(Plot, page)]
    assert names[0] == "patterns-sinks"
    assert len(names) <= 8
    assert group_of(page, "maps")
    assert group_of(page, "tables" if kind == "encoder" else "alike")


def test_every_stack_is_on_the_page_and_the_first_answers(make: Make) -> None:
    page = patterns_page(stack_results(make("bart", importance="off")))
    assert asked(page)[-2:] == ["decoder", "cross"]
    assert [plot.name for plot in every(Plot, page)] == [
        "patterns-encoder-sinks", "patterns-encoder-offsets", "patterns-encoder-alike",
        "patterns-decoder-sinks", "patterns-cross-sinks",
    ]  # fmt: skip
    for stack in ("encoder", "decoder", "cross"):
        heads = every(HeadMap, group_of(page, f"maps-{stack}"))
        assert {head.style.split()[0] for head in heads} == {f"m-{stack}"}
    assert any("--pack" in text for text in page.absent)
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


def test_all_lines_of_a_curve_are_in_its_file(encoder_site: Site) -> None:
    """What is drawn is exported: both lines, and no third."""
    own = encoder_site.results["self"]
    plot = similarity_plot(own, "name", "caption")
    lines = [curve for curve in plot.curves if curve.style.startswith("ln")]
    assert len(lines) == plot.rows["series"].nunique() == 2
    for series, key in (("head outputs", OUTPUTS), ("attention rows", ROWS)):
        values = plot.rows.loc[plot.rows["series"] == series, "value"]
        np.testing.assert_allclose(values, own.layers(*key).value)


# Claims.


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_heads_are_counted_as_the_chart_draws_them(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The answer, the solid marks and the types of heads agree."""
    own = next(iter(stack_results(request.getfixturevalue(f"{kind}_site").study).values()))
    plot = sink_plot(own, "name", "caption")
    solid = [mark for mark in plot.marks if isinstance(mark, PlotMark) and "model" in mark.style]
    assert len(solid) == len(sink_heads(own)) == plot.rows["sink_head"].sum()
    found = many(6, 12)
    count = len(sink_heads(found))
    assert 0 < count < 72
    assert len(sink_answer(found).heads) == count
    drawn = sink_plot(found, "name", "caption").marks
    solid = [mark for mark in drawn if isinstance(mark, PlotMark) and "model" in mark.style]
    assert len(solid) == count


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
    return fake_results(numbers | {OUTPUTS: Fake(draw(shape)), ROWS: Fake(draw(shape))})


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (6, 12), (12, 12), (30, 9), (32, 32)])
def test_charts_of_any_number_of_heads_are_small(n_layers: int, n_heads: int) -> None:
    found = many(n_layers, n_heads)
    drawn = [sink_plot(found, "a", "b"), offset_plot(found, "c", "d"),
             similarity_plot(found, "e", "f")]  # fmt: skip
    # Pages have the lines of rows in place of their values, which makes addresses shorter.
    drawings = [re.sub(r'href="[^"]*"', f'href="{"?" * 32}"', plot.svg) for plot in drawn]
    assert sum(map(len, drawings)) < 125_000
    assert sum(plot.svg.count("<") for plot in drawn) < 2 * 3000
    assert len(sink_rows(found)) == n_layers * n_heads == len(drawn[0].rows)
    linked = [mark for mark in drawn[0].marks if isinstance(mark, PlotMark)]
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
    assert len(page.absent) == 4
    assert all("--" in text for text in page.absent)
    (plot,) = every(Plot, page)
    assert len(plot.rows) == 1
    unknown = fake_results({SINK: Fake([[math.nan, math.nan]])})
    assert not has_patterns({"self": unknown})


@pytest.mark.usefixtures("of_any_number")
def test_passages_add_a_question_and_a_table(make: Make) -> None:
    page = patterns_page(stack_results(make("bert", pack=40, importance="off")))
    assert asked(page) == ["stripes", "diagonal", "parts", "alike", "own-sentence"]
    rows = {row[0]: row[1:] for table in every(Table, page) for row in table.rows}
    assert {"dips of similarity", "attention to . ! ?"} <= {*rows}
    assert not any("--pack" in text for text in page.absent)


def test_few_passages_give_no_odds_and_the_reason(make: Make) -> None:
    page = patterns_page(stack_results(make("bert", pack=40, importance="off")))
    assert "own-sentence" not in asked(page)
    assert any("several sentences; at least 20 are needed" in text for text in page.absent)


def viewed(model: Path, *lines: str) -> Iterator[tuple[int, int, Viewed]]:
    """Layer, head and what the head does in each sentence."""
    bare = Bare.load(model)
    texts = [treebank.Gold(word, "_", -1, "_") for line in lines for word in line.split()]
    trees = treebank.TREES if not lines else [tuple(texts)]
    for tree in trees:
        for _, layer, head, attention in bare.looks(given(tree)):
            yield layer, head, Viewed(attention, "raw")


@pytest.mark.parametrize(("tokens", "rows"), [(64, 64), (65, 0)])
def test_sentences_of_more_than_64_tokens_take_no_part(tokens: int, rows: int) -> None:
    even = torch.full((2, tokens, tokens), 1 / tokens)
    layer = views_of(even, Marks(tokens, special=[0]))[SinkView.RAW]
    finished = pattern.finish(pattern.measure(layer).numpy(), pattern.about(layer.scope).numpy())
    assert (finished.denominator == rows).all()
    assert finished.numerator[..., 0] == pytest.approx(rows)


def test_blocks_are_told_by_separators_in_the_middle(make: Make, tmp_path: Path) -> None:
    line = "the dog sees [SEP] old dogs sleep near the house [SEP] water"
    study = make("bert", line, "the red bird sings", line, metrics="block_ratio")
    model = tiny.write("bert", tmp_path / "model")
    for layer, head, attention in viewed(model, line):
        (part,) = NAIVE_SAMPLED["block_ratio"]([attention])
        wanted = ratio([part[""]], (0, math.inf)).value
        assert values(study, "block_ratio", "")[layer, head] == pytest.approx(wanted, abs=1e-9)
    assert set(study.heads["n_sentences"]) == {2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ a b ]", "0000"),
        ("[ a ] b ]", "00011"),
        ("[ a ] ] b ]", "000011"),
        ("] a ] b", "0001"),
        ("a ] [ b c ] d", "0001112"),
    ],
)
def test_a_separator_closes_its_sentence_and_the_next_word_opens_one(
    text: str, expected: str
) -> None:
    """``]`` is a separator, ``[`` another special token, which stays with what is before it."""
    pieces = text.split()
    separator = np.array([piece == "]" for piece in pieces])
    special = np.array([piece in "[]" for piece in pieces])
    assert "".join(map(str, segments(separator, special))) == expected


def values(study: Study, metric: str, label: str) -> dict[tuple[int, int], float]:
    """A number of every head among all keys, from the study's table."""
    rows = study.heads.query(f"metric == '{metric}' and view == 'raw' and label == '{label}'")
    places = zip(rows["layer"], rows["head"], strict=True)
    return dict(zip(places, rows["value"], strict=True))


@pytest.mark.slow
def test_a_study_without_the_sink_has_no_page_and_no_link(make: Make, tmp_path: Path) -> None:
    for metrics in ("pattern", "sink_share"):
        headbook.render(make("bert", metrics=metrics), tmp_path / metrics)
        pages = {page.name: html_of(page) for page in (tmp_path / metrics).glob("*.html")}
        there = metrics == "sink_share"
        assert ("patterns.html" in pages) == there
        for html in pages.values():
            linked = [a for a in elements(html, "a") if "patterns.html" in a.attributes["href"]]
            assert bool(linked) == there
