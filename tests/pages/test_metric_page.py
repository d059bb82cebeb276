"""Pages of metrics: questions, all heads with values, labels, layers, variants, and their list."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from block_parts import Rows, every
from chosen_results import Fake, fake_results
from headbook.charts.heads import MAX_LAYERS, heads_plot
from headbook.charts.plots import MAX_LINKED_MARKS, PlotMark
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import HeadMetric, Metric, Notable
from headbook.pages.metric import (
    is_measured,
    metric_page_of,
    metric_pages,
    metrics_page,
    study_metrics,
    with_variants,
)
from headbook.pages.metrics import heads
from headbook.pages.metrics.figures import heat_figure, offered_labels
from headbook.pages.metrics.heads import fill_of, head_closer, head_lead
from headbook.pages.parts import all_heads
from headbook.pages.parts.blocks import Block, Finder, Group, Heat, Lead, Page, Table
from headbook.report.facts.metrics import head_values
from headbook.report.facts.tested.extremes import extreme_heads
from headbook.report.head_numbers import HeadMetricNumbers, drawn_numbers
from headbook.report.leaders import chosen_head
from headbook.report.results import StackResults
from headbook.report.tables import STUDY_TABLES
from headbook.results.formats import metric_page
from headbook.results.number import SHARE, Number, Printed, RowAddress
from headbook.results.sentence import Link
from headbook.schema import HeadKey, HeadName, Place, SinkView
from headbook.site.rows import SiteRows
from html_pages import elements, html_of, text_of
from sites import Site

RAW, NOSINK = SinkView.RAW, SinkView.NOSINK
NARROW, LETTER = 228, 8.5  # pixels of a plot on a phone, and of a bold digit
METRICS = all_metrics()


def head_metric(metric: str) -> HeadMetric:
    found = METRICS[metric]
    assert isinstance(found, HeadMetric)
    return found


DISTANCE = head_metric(ids.ATTENTION_DISTANCE)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.id)
def test_every_metric_asks_a_short_question(metric: Metric) -> None:
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


def maps(page: Page) -> list[Table]:
    """Return the tables of all heads of a page."""
    return [table for table in every(Table, page) if "all-heads" in table.style]


def heat_cells(table: Table) -> Iterator[tuple[Place, Heat]]:
    """Yield the cells of a table of all heads, by layer and head."""
    for layer, *cells in table.rows:
        for head, cell in enumerate(cells):
            assert isinstance(cell, Heat)
            yield (int(str(layer).removeprefix("layer ")), head), cell


def test_every_head_stands_on_the_page_with_its_value(any_site: Site) -> None:
    """And the numbers of the maps are those of the table of heads."""
    results, rows = any_site.results, Rows(SiteRows(STUDY_TABLES, any_site.study))
    seen = 0
    for metric, variants in with_variants(results, study_metrics(results)):
        if not isinstance(metric, HeadMetric):
            continue
        page = metric_page_of(results, metric, variants)
        for result in results.values():
            numbers = drawn_numbers(result, metric)
            if numbers is None:
                continue
            leads = [head_lead(numbers), *head_closer(numbers, (), is_first=True)]
            table = next(
                table for table in every(Table, tuple(leads)) if "all-heads" in table.style
            )
            cells = dict(heat_cells(table))
            stack = result.stack
            assert len(cells) == len(stack.attention_layers) * stack.n_heads
            for place, cell in cells.items():
                value = numbers.heads.value[place]
                assert np.isnan(value) == isinstance(cell.number, str)
                if isinstance(cell.number, Printed):
                    assert cell.number.number.value == value
                    assert rows.behind(cell.number.number)["value"] == pytest.approx(value)
                    seen += 1
        assert maps(page)
    stacks = [result.stack for result in results.values()]
    assert seen >= sum(len(stack.attention_layers) * stack.n_heads for stack in stacks)


def test_the_head_that_leads_a_label_is_framed(encoder_site: Site) -> None:
    results = encoder_site.results
    metric = head_metric(ids.ATTENTION_TO)
    (page,) = metric_pages(results, [metric])
    numbers = drawn_numbers(results["self"], metric)
    assert numbers is not None
    (lead,) = every(Lead, page.blocks)
    assert lead.figure is None
    assert lead.choices is not None
    framed = [place for place, cell in heat_cells(maps(page)[0]) if "top1" in cell.fill]
    assert [HeadName("self", *place) for place in framed] == [*head_values(numbers).heads]
    labels = [option.value for option in lead.choices.labels]
    assert labels == offered_labels(numbers)
    assert {option.notable for option in lead.choices.labels} == {"high"}
    assert (lead.choices.label, lead.choices.view) == (numbers.label, numbers.view)
    assert lead.drawn is not None
    assert lead.drawn.name == heat_figure(numbers).name


def test_dark_is_the_notable_end() -> None:
    """Also where it is the lower one: rank 1 is dark, the last rank is not."""
    key = HeadKey(ids.TOWARDS_RANK, RAW, "")
    ranks = HeadMetricNumbers(
        fake_results({key: Fake([[1.5, 19_530.0, 10_000.0]])}), head_metric(key.metric), RAW
    )
    fills = [fill_of(ranks, (1.0, 19_530.0))(ranks.number((0, head))) for head in range(3)]
    assert fills == ["q6", "q0", "q3"]
    key = HeadKey(ids.INDUCTION_SCORE, RAW, "")
    scores = HeadMetricNumbers(
        fake_results({key: Fake([[0.01, 0.99]])}), head_metric(key.metric), RAW
    )
    assert [fill_of(scores, (0, 1))(scores.number((0, head))) for head in (0, 1)] == ["q0", "q6"]


def test_labels_have_the_end_that_is_notable_of_each() -> None:
    metric = head_metric(ids.SEGMENTATION)
    keys = {label: HeadKey(metric.id, RAW, label) for label in ("f1:similarity", "pk:similarity")}
    results = fake_results({key: Fake([[0.4, 0.2]], spread=0.001) for key in keys.values()})
    lead = head_lead(HeadMetricNumbers(results, metric, RAW, "f1:similarity"))
    assert lead.choices is not None
    notable = {option.value: option.notable for option in lead.choices.labels}
    assert notable == {"f1:similarity": "high", "pk:similarity": "low"}
    metric = head_metric(ids.REPETITION_LIFT)
    keys = {label: HeadKey(metric.id, RAW, label) for label in metric.labels[:2]}
    results = fake_results({key: Fake([[0.4, 0.2]]) for key in keys.values()})
    lead = head_lead(HeadMetricNumbers(results, metric, RAW, metric.labels[0]))
    assert lead.choices is not None
    assert {option.notable for option in lead.choices.labels} == {""}
    assert not any("top1" in cell.fill for _, cell in heat_cells(every(Table, lead)[0]))


def test_variants_are_columns_and_maps_of_their_metric(encoder_site: Site) -> None:
    results = encoder_site.results
    pages = {page.path: page for page in metric_pages(results, study_metrics(results))}
    distance = pages["metrics/attention_distance.html"]
    (variant,) = [group for group in every(Group, distance) if group.id == "distance_ratio"]
    (table,) = every(Table, variant)
    assert all(dict(n.row.key)["metric"] == "distance_ratio" for n in every(Number, table))
    columns = [title for table in every(Table, distance) for title in table.columns]
    assert "distance ratio" in columns
    accuracy = pages["metrics/relation_accuracy.html"]
    best = [table for table in every(Table, accuracy) if "head" in table.columns[2:3]]
    assert all("relation accuracy at distance ≥ 3" in table.columns for table in best)
    overlap = pages["metrics/neighbour_overlap.html"]
    (lead, *_) = every(Lead, overlap)
    assert lead.figure is not None
    lines = {*lead.figure.rows["series"]}
    assert len([line for line in lines if "token" not in line or "another" in line]) >= 2


def test_a_label_that_a_variant_has_no_number_of_has_a_dash() -> None:
    """In causal attention no query sees the dependents that follow it."""
    metric, far = (head_metric(x) for x in (ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR))
    numbers = {HeadKey(metric.id, NOSINK, label): Fake([[0.9, 0.1]])
               for label in ("obj:to_head", "amod:to_dependent")}  # fmt: skip
    numbers[HeadKey(far.id, NOSINK, "obj:to_head")] = Fake([[0.7, 0.2]])
    numbers[HeadKey(far.id, NOSINK, "amod:to_dependent")] = Fake([[np.nan, np.nan]])
    drawn = HeadMetricNumbers(fake_results(numbers), metric, NOSINK, "obj:to_head")
    (best,) = (t for t in every(Table, tuple(head_closer(drawn, [far], is_first=True)))
               if t.label == "Best head for each label")  # fmt: skip
    assert {str(line[0]): line[-1] == "–" for line in best.rows} == {
        "From a direct object to its verb (obj)": False,
        "From a noun to its adjective (amod)": True,
    }


def test_with_many_heads_cells_and_marks_are_no_links(
    encoder_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = HeadMetricNumbers(encoder_site.results["self"], DISTANCE, RAW)
    few = [*head_closer(numbers, (), is_first=True)]
    assert every(Printed, tuple(few))
    assert len(maps_of(few)) > 1
    monkeypatch.setattr(all_heads, "MAX_LINKED", 1)
    monkeypatch.setattr(heads, "MAX_LINKED", 1)
    many = [*head_closer(numbers, (), is_first=True)]
    (table,) = maps_of(many)
    assert not every(Printed, table)


def maps_of(blocks: Sequence[Block]) -> list[Table]:
    return [table for table in every(Table, tuple(blocks)) if "all-heads" in table.style]


def numbers_by_layer(values: np.ndarray) -> dict[int, list[Number]]:
    """Return values as numbers of heads, one of too few sentences."""
    return {
        layer: [
            Number(
                float(value), SHARE, RowAddress("heads", (("layer", layer), ("head", head))),
                effective=1.0 if (layer, head) == (0, 1) else 50.0,
            )
            for head, value in enumerate(of_layer)
        ]
        for layer, of_layer in enumerate(values)
    }  # fmt: skip


@pytest.mark.parametrize(("layers", "n_heads", "panels"), [(6, 12, 1), (30, 9, 3), (32, 32, 3)])
def test_many_layers_stand_in_several_panels(layers: int, n_heads: int, panels: int) -> None:
    """Every head is drawn inside of the plot, in few elements; few ones are links to rows."""
    values = np.random.default_rng(0).random((layers, n_heads))
    values[0, 0] = np.nan
    numbers = numbers_by_layer(values)
    means = {layer: numbers[layer][-1] for layer in numbers}
    plot = heads_plot("n", "Caption.", numbers, means=means, uniform=means)
    assert panels == -(-layers // MAX_LAYERS)
    assert plot.axis.count("<g ") == panels
    svg = plot.svg
    names = re.findall(r"<text[^>]*>([^<]*)</text>", "".join(plot.behind))
    assert names == [str(layer) for layer in range(layers)]
    assert max(map(len, names)) * LETTER < NARROW / -(-layers // panels)
    linked = [part for part in plot.marks if isinstance(part, PlotMark)]
    n_known = layers * n_heads - 1
    assert len(linked) == (n_known if layers * n_heads <= MAX_LINKED_MARKS else 0)
    assert all(part.href in {n.row for of in numbers.values() for n in of} for part in linked)
    assert svg.count('class="hit"') == len(linked)
    assert svg.count("<circle") == n_known + len(linked)
    assert len(re.findall(r'class="[^"]*\bo"', svg)) == 1  # hollow: too few sentences
    assert svg.count("<") < 5000
    assert len(svg) < 120_000
    rows = plot.rows.set_index(["layer", "head"])["value"]
    assert len(rows) == n_known
    assert all(rows[layer, head] == values[layer, head] for layer, head in rows.index)
    assert {*plot.paper(columns=True)} == {".svg", ".pdf", "-column.svg", "-column.pdf"}


def test_marks_stand_in_the_order_of_their_values_on_both_scales() -> None:
    values = np.array([[1.0, 10.0, 100.0, 10_000.0]])
    numbers = numbers_by_layer(values)
    for log in (False, True):
        plot = heads_plot("n", "Caption.", numbers, log=log)
        heights = [part.y for part in plot.marks if isinstance(part, PlotMark)]
        assert heights == sorted(heights, reverse=True)
        steps = -np.diff(heights)
        assert (steps[1] == pytest.approx(steps[0])) == log


def test_unknown_numbers_make_an_empty_plot() -> None:
    plot = heads_plot("n", "Caption.", numbers_by_layer(np.full((2, 2), np.nan)))
    assert "<circle" not in plot.svg
    assert plot.rows.empty


def test_the_list_holds_every_metric_with_its_question(any_site: Site) -> None:
    results = any_site.results
    metrics = study_metrics(results)
    page = metrics_page(metrics, results)
    (finder,) = every(Finder, page)
    links = [entry[0] for _, entries in finder.sections for entry in entries]
    listed = {link.text for link in links if isinstance(link, Link)}
    assert listed == {metric.title for metric in metrics if is_measured(results, metric)}
    assert len(links) == len(listed)
    html = html_of(any_site.folder / "metrics/index.html")
    text = text_of(html)
    for metric in metrics:
        assert metric.title in text
        assert metric.question in text
    linked = [e.attributes["href"] for e in elements(html.partition('id="metrics"')[2], "a")]
    for address in linked:
        file, _, fragment = address.removeprefix("../").partition("#")
        assert (any_site.folder / file).exists()
        assert not fragment or f'id="{fragment}"' in html_of(any_site.folder / file)


def best_tables(page: Page) -> list[Table]:
    """Return the tables of the heads that lead labels."""
    return [table for table in every(Table, page) if table.label == "Best head for each label"]


def test_the_best_head_of_a_label_is_that_of_a_test(any_site: Site) -> None:
    """With enough held-out observations: a share of one word, 100 %, is no result."""
    results = any_site.results
    for page in metric_pages(results, study_metrics(results)):
        for line in (line for table in best_tables(page) for line in table.rows):
            number = line[3]
            assert isinstance(number, Number)
            key = dict(number.row.key)
            column = HeadKey(str(key["metric"]), SinkView(str(key["view"])), str(key["label"]))
            metric = head_metric(column.metric)
            assert metric.notable is not Notable.NONE
            of_stack = results[str(key["stack"])]
            chosen = chosen_head(of_stack, column, lowest=metric.is_low(column.label))
            assert chosen is not None
            assert chosen.place == (key["layer"], key["head"])
            assert chosen.held_out.events >= 30
            assert number.value == chosen.value.value


def test_labels_of_few_observations_have_no_best_head(encoder_site: Site) -> None:
    results: StackResults = encoder_site.results["self"]
    metric = head_metric(ids.RELATION_ACCURACY)
    (page,) = metric_pages(encoder_site.results, [metric])
    numbers = HeadMetricNumbers(results, metric, NOSINK)
    known = [x for x in results.drawable(metric) if numbers._replace(label=x).known]
    few = [t for t in every(Table, page) if t.label == "Labels with too few observations"]
    assert sum(len(table.rows) for table in (*best_tables(page), *few)) == len(known)
    assert few
    assert few[0].columns == ("label", "observations")


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
