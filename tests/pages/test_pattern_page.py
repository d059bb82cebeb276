"""The page of attention patterns: what it shows of each stack, and where its numbers are."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from headbook.report.answers.patterns import OUTPUTS, ROWS, SELF
from headbook.report.answers.sinks import SINK, SINK_OUTPUT, sink_answer, sink_heads

import headbook
import tiny
import treebank
from bare_model import Bare, given
from chosen_results import Fake, fake_results
from headbook.charts.patterns import offset_plot, offset_rows, similarity_plot
from headbook.charts.plots import Plot, PlotMark
from headbook.charts.sinks import MAX_LINKED_HEADS, sink_plot, sink_rows
from headbook.metrics.patterns import pattern
from headbook.metrics.patterns.block_ratio import segments
from headbook.pages.parts.page import plain_text
from headbook.pages.parts.table import HeatCell
from headbook.pages.patterns import PatternsPage, has_patterns, patterns_page
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, stack_results
from headbook.report.tables import STUDY_TABLES
from headbook.report.wording import percent
from headbook.schema import SinkView
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from layers import Marks, views_of
from naive import NAIVE_SAMPLED
from naive_ratios import ratio
from single_head import Viewed
from site_tables import rounds_to
from sites import Site, make_study

METRICS = (
    "sink_share,sink_norm_share,attention_to,offset_profile,type_shares,relative_entropy,"
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


@pytest.fixture(scope="module")
def pairs(make: Make) -> PatternsPage:
    """Return the page of a model with three stacks."""
    return patterns_page(stack_results(make("bart", importance="off")))


def page_of(site: Site) -> PatternsPage:
    return patterns_page(site.results)


def parts_of(each: Any) -> Iterator[Any]:
    """Yield everything that a page holds, without the rows of charts."""
    yield each
    if isinstance(each, tuple):
        for part in each:
            yield from parts_of(part)
    elif is_dataclass(each) and not isinstance(each, Plot):
        for field in fields(each):
            yield from parts_of(getattr(each, field.name))


def plots(page: PatternsPage) -> list[Plot]:
    return [part for part in parts_of(page) if isinstance(part, Plot)]


# Layout.


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_page_asks_and_answers(kind: str, request: pytest.FixtureRequest) -> None:
    page = page_of(request.getfixturevalue(f"{kind}_site"))
    assert len(page.title) <= 60
    for answer in (page.answer, *(question.answer for question in page.questions)):
        assert 5 < len(plain_text(answer).split()) <= 30
    asked = [question.id for question in page.questions]
    assert "diagonal" in asked
    assert ("alike" in asked) == (kind == "encoder")
    assert page.figure.name == "patterns-sinks"
    drawn = [question for question in page.questions if question.figure]
    assert ("stripes" in asked) == (kind == "encoder")  # the decoder's types were not measured
    assert len(plots(page)) == 1 + len(drawn) <= 8
    assert page.others == ()


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_the_page_of_a_site_holds_its_parts(kind: str, request: pytest.FixtureRequest) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    html = html_of(site.folder / "patterns.html")
    page = page_of(site)
    found = {each.attributes.get("id") for each in elements(html)}
    assert {"maps", "tables", "measured", "alike", *(q.id for q in page.questions)} <= found
    assert len(elements(html, "h1")) == 1
    assert not [each for each in elements(html) if "style" in each.attributes]
    assert text_of(html).count("How it is measured") == 1
    for plot in plots(page):
        for ending in ("svg", "pdf", "csv"):
            assert (site.folder / f"figures/{plot.name}.{ending}").is_file()


def test_every_stack_is_on_the_page_and_the_first_answers(pairs: PatternsPage) -> None:
    assert [section.stack for section in pairs.others] == ["decoder", "cross"]
    assert [part.stack for part in pairs.details] == ["encoder", "decoder", "cross"]
    assert [plot.name for plot in plots(pairs)] == [
        "patterns-encoder-offsets", "patterns-encoder-alike", "patterns-encoder-sinks",
        "patterns-decoder-sinks", "patterns-cross-sinks",
    ]  # fmt: skip
    facts = [plain_text(fact) for fact in pairs.others[1].facts]
    assert [fact.partition("? ")[0] for fact in facts] == [
        "Why the vertical stripes", "Do all tokens then receive the same",
    ]  # fmt: skip
    assert len(pairs.others[0].facts) == 3  # queries and keys are of one text
    assert any("--pack" in text for text in pairs.absent)
    assert len(pairs.absent) == len({*pairs.absent})


def test_heads_stand_in_the_order_of_their_attention_to_the_sink(
    encoder_site: Site, pairs: PatternsPage
) -> None:
    own = encoder_site.results["self"]
    (part,) = page_of(encoder_site).details
    shares = own.heads(*SINK).value
    assert len(part.maps) == shares.size
    assert part.which == "All heads"
    printed = [plain_text(head.share) for head in part.maps]
    assert printed == [percent(share) for share in sorted(shares.ravel(), reverse=True)]
    assert {head.style.split()[0] for part in pairs.details for head in part.maps} == {
        "m-encoder", "m-decoder", "m-cross"
    }  # fmt: skip


# Numbers.


def numbers_on(page: PatternsPage) -> list[LinkedNumber]:
    found = [part for part in parts_of(page) if isinstance(part, LinkedNumber)]
    return found + [part.number for part in parts_of(page)
                    if isinstance(part, HeatCell) and part.number]  # fmt: skip


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_every_number_is_that_of_the_row_it_leads_to(
    kind: str, request: pytest.FixtureRequest
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    study = site.study
    frames = {name: table.build(study) for name, table in STUDY_TABLES.items()
              if name in {"heads", "layers", "controls", "head_groups"}}  # fmt: skip
    numbers = numbers_on(page_of(site))
    assert len(numbers) > tiny.LAYERS * tiny.HEADS
    for number in numbers:
        frame = frames[number.table]
        for name, value in number.row:
            frame = frame[frame[name] == value]
        assert len(frame) == 1, number
        if number.text[0].isdigit() and " of " not in number.text and number.text[-2:] != "th":
            digits, scale = number.text.strip("%\u202f"), 0.01 if "%" in number.text else 1.0
            assert rounds_to(frame["value"].to_numpy(), digits, scale).all(), number


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
    assert plain_text(sink_answer(found)).startswith(f"{count} of 72 heads attend mostly to")
    drawn = sink_plot(found, "name", "caption").marks
    solid = [mark for mark in drawn if isinstance(mark, PlotMark) and "model" in mark.style]
    assert len(solid) == count


def test_the_page_says_how_shares_of_the_output_are_summed(encoder_site: Site) -> None:
    """Norms are summed, not vectors; and nothing is said that holds by selection alone."""
    text = text_of(html_of(encoder_site.folder / "patterns.html"))
    assert "by summed value-weighted norms" in text
    assert "Norms are summed, not vectors" in text
    for claim in ("most of them in layer", "; the other", "Mean maximum weight", "mostly come from",
                  "apart from special tokens"):  # fmt: skip
        assert claim not in text


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
    if n_layers * n_heads <= MAX_LINKED_HEADS:
        assert len(linked) == n_layers * n_heads
    else:
        assert len(linked) == 2 * n_layers


def test_large_models_show_every_nth_map() -> None:
    page = patterns_page({"self": many(32, 32)})
    (part,) = page.details
    assert part.which == "One head in eight"
    assert len(part.maps) == 128
    assert not page.narrow_tables or part.destinations is None


def test_nothing_is_printed_of_missing_numbers() -> None:
    """Only attention to the sink was measured, and of one head not even that."""
    found = fake_results({SINK: Fake([[0.7, math.nan]], uniform=0.1)})
    page = patterns_page({"self": found})
    assert plain_text(page.answer) == "1 of 1 head attends mostly to special tokens."
    assert [question.id for question in page.questions] == []
    assert page.details[0].destinations is None
    assert page.details[0].outputs is None
    assert len(page.absent) == 4
    assert all("--" in text for text in page.absent)
    assert len(page.figure.rows) == 1
    unknown = fake_results({SINK: Fake([[math.nan, math.nan]])})
    assert not has_patterns({"self": unknown})


def test_passages_add_a_question_and_a_table(make: Make) -> None:
    page = patterns_page(stack_results(make("bert", pack=40, importance="off")))
    assert [question.id for question in page.questions] == [
        "stripes", "diagonal", "alike", "own-sentence",
    ]  # fmt: skip
    (part,) = page.details
    assert part.ends is not None
    assert [row.name for row in part.ends.rows] == ["dips of similarity", "attention to . ! ?"]
    assert plain_text(part.baselines).startswith("every . ! ?: ")
    assert not any("--pack" in text for text in page.absent)


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
