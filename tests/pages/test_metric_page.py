"""Pages of metrics: questions, answers by rule, all heads with values, labels, and variants."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from chosen_results import Fake, fake_results
from headbook.charts.heads import MAX_LAYERS, heads_plot
from headbook.charts.plots import PlotMark
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import AttentionMetric, HeadMetric, LayerwiseMetric
from headbook.pages.metric import (
    is_measured,
    metric_pages,
    metrics_page,
    study_metrics,
)
from headbook.pages.metrics import heads
from headbook.pages.metrics.heads import HeadSection
from headbook.pages.metrics.states import StateSection
from headbook.pages.parts.page import plain_text
from headbook.pages.parts.table import HeatCell, NumberCell
from headbook.report import relation_tests
from headbook.report.answers.metric import (
    head_metric_answer,
    head_metric_scope,
    token_metric_answer,
)
from headbook.report.facts.tested.extremes import extreme_heads
from headbook.report.head_numbers import HeadMetricNumbers, cell_number, drawn_numbers
from headbook.report.leaders import chosen_head
from headbook.report.results import StackResults
from headbook.results.formats import metric_page, percent
from headbook.schema import HeadKey, ResidualPoint, SinkView, TokenKey
from headbook.site import latex
from html_pages import elements, html_of, text_of
from sites import Site

RAW = SinkView.RAW
NARROW, LETTER = 228, 8.5  # pixels of a plot on a phone, and of a bold digit
METRICS = all_metrics()


def head_metric(metric: str) -> HeadMetric:
    found = METRICS[metric]
    assert isinstance(found, HeadMetric)
    return found


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.id)
def test_every_metric_asks_a_short_question(metric: AttentionMetric) -> None:
    assert metric.question.endswith("?")
    assert len(metric.question) <= 60
    assert metric.question[0].isupper()


def test_questions_and_variants_are_of_one_metric_each() -> None:
    questions = [metric.question for metric in METRICS.values()]
    assert len({*questions}) == len(questions)
    variants = {metric.id: metric.variant_of for metric in METRICS.values() if metric.variant_of}
    assert len(variants) == 10
    assert {*variants.values()} <= METRICS.keys()
    assert not {*variants.values()} & variants.keys()


def test_a_variant_has_the_page_of_its_metric(encoder_site: Site) -> None:
    found = encoder_site.results
    metrics = study_metrics(found)
    pages = {page.path for page in metric_pages(found, metrics)}
    assert "metrics/distance_ratio.html" not in pages
    assert metric_page("distance_ratio") == "metrics/attention_distance.html#distance_ratio"
    alone = [METRICS["distance_ratio"]]
    assert [page.path for page in metric_pages(found, alone)] == ["metrics/attention_distance.html"]


DISTANCE = head_metric(ids.ATTENTION_DISTANCE)


def distances(values: Mapping[str, object] | np.ndarray, spread: float = 0.01) -> StackResults:
    return fake_results({HeadKey(DISTANCE.id, RAW, ""): Fake(values, 5.0, spread)})


def answer(results: StackResults, metric: HeadMetric) -> str:
    return plain_text(head_metric_answer(results, metric)).replace("\u202f", " ")


def test_the_answer_names_layers_only_if_a_paired_test_tells_some_apart() -> None:
    clear = distances(np.array([[1.0, 1.2], [4.0, 4.2], [2.0, 2.0]]))
    assert answer(clear, DISTANCE) == (
        "Most in layer 1: 4.10 tokens, all heads together; least in layer 0."
    )
    alike = distances(np.array([[1.0, 4.0], [2.0, 3.0]]), spread=3.0)
    assert answer(alike, DISTANCE) == (
        "Most in L0·H1, 4.00 tokens; less than uniform attention: 5.00 tokens."
    )
    one = distances(np.array([[1.0, 4.0]]))
    assert answer(one, DISTANCE) == (
        "Most in L0·H1, 4.00 tokens; less than uniform attention: 5.00 tokens."
    )
    none = distances(np.full((2, 2), np.nan))
    assert answer(none, DISTANCE) == "Not measured in this model."
    assert head_metric_scope(none, DISTANCE) == ()
    scope = dict(head_metric_scope(clear, DISTANCE))
    assert scope["Sentences"] == "100, all of them; all keys."
    assert "6 heads with each other" in scope["Compared with"]


def test_of_several_labels_the_one_that_is_drawn_answers() -> None:
    metric = head_metric(ids.ATTENTION_TO)
    keys = {
        HeadKey(metric.id, RAW, label): Fake([[share, 0.1], [0.2, 0.3]], 0.05)
        for label, share in (("previous", 0.9), ("next", 0.4))
    }
    found = answer(fake_results(keys), metric)
    assert found == "To the previous token: most in L0·H0, 90.0 %; uniform attention: 5.0 %."


@pytest.mark.parametrize(("even", "is_less"), [(0.05, False), (0.95, True)])
def test_an_answer_says_if_the_highest_number_is_below_its_baseline(
    even: float, is_less: bool
) -> None:
    metric = head_metric("pattern")
    numbers = {HeadKey(metric.id, RAW, "column"): Fake([[0.8, 0.1]], even),
               HeadKey(metric.id, RAW, "offset"): Fake([[0.8, 0.1]], even)}  # fmt: skip
    found = answer(fake_results(numbers), metric)
    assert "most in L0·H0, 80.0 %; " in found
    assert ("less than uniform attention: 95.0 %" in found) == is_less


def test_a_relation_is_held_against_the_best_surface_rule(encoder_site: Site) -> None:
    """Without a test of the relation against uniform attention."""
    found = encoder_site.results["self"]
    metric = head_metric(ids.RELATION_ACCURACY)
    numbers = drawn_numbers(found, metric)
    tests = relation_tests.tests_of_stack(found)
    assert numbers is not None
    assert tests is not None
    parts = head_metric_answer(found, metric)
    if numbers.label in tests.labels:
        n = tests.labels.index(numbers.label)
        own, rule = (float(s.value[n]) for s in (tests.scores.accuracy, tests.scores.at_rule))
        assert f", {percent(own)}; " in plain_text(parts)
        assert ("less than the best surface rule" in plain_text(parts)) == (own < rule)
        assert f"best surface rule: {percent(rule)}." in plain_text(parts)
    else:
        assert "best surface rule" not in plain_text(parts)
    alone = fake_results({HeadKey(metric.id, SinkView.NOSINK, "obj:to_head"): Fake([[0.9]], 0.2)})
    assert "uniform attention: 20.0 %" in answer(alone, metric)


COSINE = METRICS[ids.COSINE_TO_INPUT]


@pytest.mark.parametrize(
    ("values", "spread", "expected"),
    [
        ((0.9, 0.5), 0.01, "Lower after the last layer than in the first: 0.50 on average over "
                           "all tokens."),
        ((0.2, 0.5), 0.01, "Higher after the last layer than in the first: 0.50 on average over "
                           "all tokens."),
        ((0.5, 0.5), 0.3, "About the same after the last layer as in the first: 0.50 on average "
                          "over all tokens."),
        ((0.5,), 0.3, "On average over all tokens, after the last layer: 0.50."),
    ],
)  # fmt: skip
def test_tokens_answer_by_the_first_and_the_last_layer(
    values: tuple[float, ...], spread: float, expected: str
) -> None:
    assert isinstance(COSINE, LayerwiseMetric)
    heads_of_layers = Fake(np.zeros((len(values), 1)))
    results = fake_results(
        {HeadKey(DISTANCE.id, RAW, ""): heads_of_layers},
        tokens={TokenKey(COSINE.id, ResidualPoint.POST, None, "all"): (values, spread)},
    )
    assert plain_text(token_metric_answer(results, COSINE)) == expected
    empty = fake_results({HeadKey(DISTANCE.id, RAW, ""): heads_of_layers})
    assert plain_text(token_metric_answer(empty, COSINE)) == "Not measured in this model."


@pytest.mark.parametrize(
    ("value", "share", "expected"),
    [
        (np.nan, False, "–"), (0.0, True, "0.0"), (0.0001, True, "<\u202f0.1"),
        (0.8634, True, "86.3"), (1.0, True, "100.0"), (0.001, False, "<\u202f0.01"),
        (0.994, False, "0.99"), (4.467, False, "4.5"), (-4.467, False, "−4.5"),
        (11.36, False, "11.4"), (1234.4, False, "1,234"),
    ],
)  # fmt: skip
def test_numbers_in_cells_are_short(value: float, share: bool, expected: str) -> None:
    assert cell_number(value, share=share) == expected


def test_every_head_stands_on_the_page_with_its_value(any_site: Site) -> None:
    """And the numbers of the maps are those of the table of heads."""
    found, table = any_site.results, any_site.study.heads
    values = table.set_index(["stack", "layer", "head", "metric", "view", "label"])["value"]
    seen = 0
    for page in metric_pages(found, study_metrics(found)):
        assert len(page.title) <= 60
        assert len(plain_text(page.answer).split()) <= 30
        for section in page.sections:
            if not isinstance(section, HeadSection):
                assert isinstance(section, StateSection)
                assert section.plots
                continue
            stack = found[section.stack].stack
            for row in section.maps[0].table.rows:
                assert len(row.cells) == stack.n_heads
                for cell in row.cells:
                    assert isinstance(cell, HeatCell)
                    if cell.number:
                        value = values[tuple(each for _, each in cell.number.row)]
                        assert cell.text == cell_number(value, share=page.share)
                        seen += 1
            assert len(section.maps[0].table.rows) == len(stack.attention_layers)
    stacks = [results.stack for results in found.values()]
    assert seen >= sum(len(stack.attention_layers) * stack.n_heads for stack in stacks)


def test_the_highest_head_of_a_label_is_framed_and_said(encoder_site: Site) -> None:
    found = encoder_site.results
    (page,) = metric_pages(found, [METRICS[ids.ATTENTION_TO]])
    (section,) = page.sections
    assert isinstance(section, HeadSection)
    assert section.plot is None
    framed = [
        (row.name, column)
        for row in section.maps[0].table.rows
        for column, cell in enumerate(row.cells)
        if isinstance(cell, HeatCell) and "top1" in cell.fill
    ]
    assert len(framed) == 1
    layer, head = framed[0][0].removeprefix("layer "), framed[0][1]
    assert re.search(rf"most in L{layer}·H{head}( \(alike: [^)]*\))?,", section.highest)
    phrases = {label: phrase for label, _, phrase in section.labels}
    assert section.highest.startswith(phrases[section.choice[1]])
    assert section.best is not None
    assert len(section.best.rows) + (len(section.few.rows) if section.few else 0) == len(
        found["self"].drawable(head_metric(ids.ATTENTION_TO))
    )


def test_variants_are_columns_and_maps_of_their_metric(encoder_site: Site) -> None:
    found = encoder_site.results
    metrics = study_metrics(found)
    pages = {page.metric.id: page for page in metric_pages(found, metrics)}
    (distance,) = pages[ids.ATTENTION_DISTANCE].sections
    assert isinstance(distance, HeadSection)
    assert [each.id for each in distance.maps if each.id] == ["distance_ratio"]
    assert distance.layers is not None
    assert "distance ratio" in distance.layers.columns
    (accuracy,) = pages[ids.RELATION_ACCURACY].sections
    assert isinstance(accuracy, HeadSection)
    table = accuracy.best or accuracy.few
    assert table is not None
    if accuracy.best:
        assert "relation accuracy at distance ≥ 3" in accuracy.best.columns
    (overlap,) = pages[ids.NEIGHBOUR_OVERLAP].sections
    assert isinstance(overlap, StateSection)
    lines = {*overlap.plots[0].rows["series"]}
    assert len([line for line in lines if "token" not in line or "another" in line]) >= 2


def test_with_many_heads_cells_are_neither_links_nor_notes(
    encoder_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = encoder_site.results["self"]
    numbers = HeadMetricNumbers(found, DISTANCE, RAW)
    section = heads.head_section(found, DISTANCE, ())
    assert section is not None
    assert section.plot is not None
    assert all(isinstance(mark, PlotMark) for mark in section.plot.marks if "circle" in str(mark))
    assert len(section.maps) > 1
    monkeypatch.setattr(heads, "MAX_LINKED_MARKS", 1)
    cell = heads._cell(numbers, (0, 0), "q1")
    assert cell.number is not None
    assert cell.note == ""
    monkeypatch.setattr(heads, "MAX_LINKED", 1)
    assert heads._cell(numbers, (0, 0), "q1").number is None
    section = heads.head_section(found, DISTANCE, ())
    assert section is not None
    assert section.plot is not None
    assert not any(isinstance(mark, PlotMark) for mark in section.plot.marks)
    assert len(section.maps) == 1


@pytest.mark.parametrize(("layers", "n_heads", "panels"), [(6, 12, 1), (30, 9, 3), (32, 32, 3)])
def test_many_layers_stand_in_several_panels(layers: int, n_heads: int, panels: int) -> None:
    """Every head is drawn inside of the plot, and in few elements."""
    values = np.random.default_rng(0).random((layers, n_heads)) * 10
    values[0, 0] = np.nan
    plot = heads_plot(
        "n", "Caption.", values, layers=range(layers), means=values.mean(1),
        uniform=np.full(layers, 5.0), written=lambda value: f"{value:.1f}", unit="tokens",
    )  # fmt: skip
    assert panels == -(-layers // MAX_LAYERS)
    assert plot.axis.count("<g ") == panels
    svg = plot.svg
    names = re.findall(r"<text[^>]*>([^<]*)</text>", "".join(plot.behind))
    assert names == [str(layer) for layer in range(layers)]
    assert max(map(len, names)) * LETTER < NARROW / -(-layers // panels)
    assert svg.count("<circle") == layers * n_heads - 1
    assert svg.count("<") < 5000
    assert len(svg) < 120_000
    assert len(plot.rows) == layers * n_heads - 1
    assert {*plot.paper(columns=True)} == {".svg", ".pdf", "-column.svg", "-column.pdf"}


def test_unknown_numbers_make_an_empty_plot() -> None:
    plot = heads_plot(
        "n", "Caption.", np.full((2, 2), np.nan), layers=range(2), means=np.full(2, np.nan),
        uniform=np.full(2, np.nan), written=str,
    )  # fmt: skip
    assert "<circle" not in plot.svg
    assert plot.rows.empty


def test_the_list_holds_every_metric_with_its_question(any_site: Site) -> None:
    results = any_site.results
    metrics = study_metrics(results)
    page = metrics_page(metrics, results)
    html = html_of(any_site.folder / "metrics/index.html")
    text = text_of(html)
    assert page.amount + len(page.missing) == len(metrics)
    for listed in page.missing:
        assert not is_measured(results, listed.metric)
    for _, group in page.groups:
        for listed in group:
            assert is_measured(results, listed.metric)
            assert isinstance(listed.metric, HeadMetric) == bool(listed.heat_map)
            assert not listed.heat_map or (any_site.folder / listed.heat_map).exists()
    for metric in metrics:
        assert metric.title in text
        assert metric.question in text
    maps = [each for _, group in page.groups for each in group if each.heat_map]
    assert html.count("@misc{headbook-") == len(maps)
    for listed in maps:
        assert f"howpublished = {{Figure {latex.escaped(listed.name)} in" in html
    linked = [e.attributes["href"] for e in elements(html.partition('id="metrics"')[2], "a")]
    for address in linked:
        file, _, fragment = address.removeprefix("../").partition("#")
        assert (any_site.folder / file).exists()
        assert not fragment or f'id="{fragment}"' in html_of(any_site.folder / file)


def test_tables_of_layers_lead_to_their_rows(encoder_site: Site) -> None:
    found = encoder_site.results
    (page,) = metric_pages(found, [DISTANCE])
    (section,) = page.sections
    assert isinstance(section, HeadSection)
    assert section.layers is not None
    layers = encoder_site.study.layers
    for row in section.layers.rows:
        cell = row.cells[0]
        assert isinstance(cell, NumberCell)
        assert cell.number is not None
        matching = pd.Series(True, layers.index)
        for column, value in cell.number.row:
            matching &= layers[column].fillna("") == value
        assert matching.sum() == 1


def test_the_best_head_of_a_label_is_chosen_on_one_half(any_site: Site) -> None:
    """With enough held-out observations: a share of one word, 100 %, is no result."""
    found, heads = any_site.results, any_site.study.heads
    for page in metric_pages(found, study_metrics(found)):
        for section in page.sections:
            if not isinstance(section, HeadSection) or section.best is None:
                continue
            for row in section.best.rows:
                cell = row.cells[2]
                assert isinstance(cell, NumberCell)
                assert cell.number is not None
                key = dict(cell.number.row)
                column = HeadKey(str(key["metric"]), SinkView(str(key["view"])), str(key["label"]))
                chosen = chosen_head(found[section.stack], column)
                assert chosen is not None
                assert chosen.place == (key["layer"], key["head"])
                assert chosen.held_out.events >= 30
                matching = pd.Series(True, heads.index)
                for name, value in key.items():
                    matching &= heads[name] == value
                assert matching.sum() == 1
                assert heads["value"][matching].item() == pytest.approx(chosen.value.value)


def test_labels_of_few_observations_have_no_best_head(encoder_site: Site) -> None:
    found = encoder_site.results
    (page,) = metric_pages(found, [METRICS[ids.RELATION_ACCURACY]])
    (section,) = page.sections
    assert isinstance(section, HeadSection)
    numbers = HeadMetricNumbers(found["self"], head_metric(ids.RELATION_ACCURACY), SinkView.NOSINK)
    known = [
        label
        for label in found["self"].drawable(numbers.metric)
        if numbers._replace(label=label).known
    ]
    best, few = (len(table.rows) if table else 0 for table in (section.best, section.few))
    assert best + few == len(known)
    assert few
    assert section.few is not None
    assert section.few.columns == ("label", "observations")
    assert "with each other" in dict(page.scope)["Compared with"]


def test_the_lowest_is_first_where_low_is_good() -> None:
    """And numbers of rules without a model are of no head."""
    segmentation = head_metric(ids.SEGMENTATION)
    keys = {label: HeadKey(segmentation.id, RAW, label) for label in ("f1:similarity",
            "pk:similarity", "pk:even")}  # fmt: skip
    found = fake_results({key: Fake([[0.4, 0.2, 0.3]], spread=0.001) for key in keys.values()})
    best = {
        label: HeadMetricNumbers(found, segmentation, RAW, label).best()
        for label in ("f1:similarity", "pk:similarity")
    }
    assert best == {"f1:similarity": (0, 0), "pk:similarity": (0, 1)}
    rows = [tested for tested in extreme_heads(found) if tested.split == "all"]
    assert {(row.claim, row.label, row.head) for row in rows} == {
        ("highest of all heads", "f1:similarity", 0),
        ("lowest of all heads", "f1:similarity", 1),
        ("lowest of all heads", "pk:similarity", 1),
    }
