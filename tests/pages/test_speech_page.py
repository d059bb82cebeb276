"""The page of parts of speech: the study's numbers, set against uniform attention."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import torch
from headbook.report.answers.speech import (
    Direction,
    frequent_tags,
    ratio_to_uniform,
    tag_name,
    word_class,
)

import headbook
import tiny
import treebank
from chosen_results import Fake, fake_results
from headbook.charts.theme import ratio_class
from headbook.metrics import all_metrics
from headbook.metrics.base import AttentionMetric
from headbook.pages import speech
from headbook.pages.head_parts.sections import tag_rows
from headbook.pages.parts.page import plain_text
from headbook.pages.speech import SpeechPage, TagRatios, speech_page
from headbook.report.claims.table import tests_table
from headbook.report.findings.finding import head_link
from headbook.report.head_types import sink_remark
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import FEW_WORDS, number
from headbook.schema import UPOS, HeadKey, HeadName, SinkView
from headbook.study.study import Study
from html_pages import elements, html_of, text, text_of
from layers import Marks, views_of
from sites import Site, make_study
from treebank import Gold

METRICS = "pos_received,pos_received_ratio,pos_given"
WORDS = {
    "DET": ("the", "ve"),
    "ADJ": ("old", "red", "small"),
    "NOUN": ("dog", "bird", "cat", "house", "garden", "water", "fisherman"),
    "VERB": ("sees", "runs", "sing"),
    "ADP": ("in", "near"),
    "PUNCT": (".", "!", "?"),
}
FORMS = (
    ("DET", "ADJ", "NOUN", "VERB", "PUNCT"),
    ("NOUN", "VERB", "ADP", "DET", "NOUN"),
    ("DET", "NOUN", "VERB", "DET", "ADJ", "ADJ", "NOUN", "ADP", "NOUN", "PUNCT"),
)
METRIC_AND_VIEW = {
    Direction.RECEIVED: ("pos_received", SinkView.RENORM),
    Direction.GIVEN: ("pos_given", SinkView.NOSINK),
}
RARE = 3  # interjections in the corpus
RECEIVED = Direction.RECEIVED
TAG_OF_NAME = {tag_name(tag): tag for tag in UPOS}
VIEWS = {"pos_received": "renorm", "pos_received_ratio": "renorm", "pos_given": "nosink"}


def corpus() -> tuple[tuple[Gold, ...], ...]:
    """Sentences with most parts of speech often, one seldom, the others never."""
    draw = random.Random(3)  # noqa: S311 - no secret
    found = [
        tuple(Gold(draw.choice(WORDS[tag]), tag, 0, "root") for tag in draw.choice(FORMS))
        for _ in range(90)
    ]
    for position in range(RARE):
        found[position] += (Gold("ve", "INTJ", 0, "root"),)
    return tuple(found)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A tiny BERT on that corpus."""
    folder = tmp_path_factory.mktemp("speech")
    inputs = treebank.write_trees(folder / "trees.conllu", corpus())
    return make_study(inputs, tiny.write("bert", folder / "model"), metrics=METRICS)


@pytest.fixture(scope="module")
def page(study: Study) -> SpeechPage:
    return speech_page(stack_results(study))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """A tiny BART on pairs of texts."""
    folder = tmp_path_factory.mktemp("pairs")
    inputs = treebank.write_pairs(folder / "pairs.jsonl")
    model = tiny.write("bart", folder / "model")

    def of(**annotators: str) -> Study:
        return make_study(inputs, model, metrics=METRICS, sentence_pages="0", **annotators)

    return of


def rows_of(page: SpeechPage, direction: Direction) -> dict[str, TagRatios]:
    """The tags with enough words of a page's first stack, by tag."""
    stack = page.stacks[0]
    rows = stack.received if direction is Direction.RECEIVED else stack.given
    return {TAG_OF_NAME[row.name]: row for row in rows}


def value(table: pd.DataFrame, metric: str, tag: str, column: str = "value", **where: Any) -> float:
    """One number of a study's table, in the view that pages show."""
    rows = table[(table["metric"] == metric) & (table["label"] == tag)]
    for name, wanted in ({"view": VIEWS[metric]} | where).items():
        rows = rows[rows[name] == wanted]
    (found,) = rows[column]
    return float(found)


def n_words(tag: str) -> int:
    return sum(word.tag == tag for sentence in corpus() for word in sentence)


def test_every_tag_of_the_corpus_stands_once_with_its_words(page: SpeechPage) -> None:
    """Those with few words are folded; those that no word has are nowhere."""
    counts = Counter(word.tag for sentence in corpus() for word in sentence)
    frequent = {tag for tag, n in counts.items() if n >= FEW_WORDS}
    assert counts["INTJ"] == RARE < FEW_WORDS
    for direction in Direction:
        rows = rows_of(page, direction)
        assert rows.keys() == frequent
        assert {tag: row.words for tag, row in rows.items()} == {
            t: str(counts[t]) for t in frequent
        }
    (few,) = page.stacks[0].few
    assert (few.name, few.words) == ("interjections", str(RARE))
    assert {TAG_OF_NAME[grid.name] for grid in page.stacks[0].grids} == frequent


def ratio_of(study: Study, direction: Direction, tag: str, layer: int) -> float:
    if direction is RECEIVED:
        return value(study.layers, "pos_received_ratio", tag, layer=layer)
    part = value(study.layers, "pos_given", tag, layer=layer)
    return part / value(study.controls, "pos_given", tag, layer=layer)


@pytest.mark.parametrize("direction", Direction)
def test_layers_have_the_numbers_of_the_study(
    study: Study, page: SpeechPage, direction: Direction
) -> None:
    """The farthest from uniform attention first; fills follow the ratio."""
    distances = []
    for tag, row in rows_of(page, direction).items():
        ratios = [ratio_of(study, direction, tag, layer) for layer in range(tiny.LAYERS)]
        assert [cell.text for cell in row.cells] == [number(ratio) for ratio in ratios]
        assert [cell.fill for cell in row.cells] == [ratio_class(ratio) for ratio in ratios]
        assert row.kind == word_class(tag)
        distances.append(max(abs(math.log2(ratio)) for ratio in ratios))
    assert distances == sorted(distances, reverse=True)


def test_printed_ratios_lead_to_their_rows(study: Study, page: SpeechPage) -> None:
    """Ratios of attention given are those of value and baseline in the table of tests."""
    tables = {"layers": study.layers, "heads": study.heads, "tests": tests_table(study)}
    stack = page.stacks[0]
    cells = [cell for row in (*stack.received, *stack.given, *stack.few) for cell in row.cells]
    cells += [cell for grid in stack.grids for _, cells in grid.rows for cell in cells]
    assert len(cells) > 60
    for cell in cells:
        assert cell.number is not None
        rows = tables[cell.number.table]
        for column, wanted in cell.number.row:
            rows = rows[rows[column].astype(str) == str(wanted)]
        assert len(rows) == 1
        row = rows.iloc[0]
        given = cell.number.table == "tests"
        ratio = row["value"] / row["baseline_value"] if given else row["value"]
        assert cell.text in {number(ratio), f"{ratio:.1f}"}


def test_the_figure_has_the_ratios_of_frequent_tags(study: Study, page: SpeechPage) -> None:
    plot = page.stacks[0].plot
    assert plot is not None
    rows = plot.rows.to_dict("records")
    assert len(rows) == tiny.LAYERS * len(rows_of(page, RECEIVED))
    for row in rows:
        tag, layer = TAG_OF_NAME[row["series"]], int(row["layer"])
        assert row["value"] == ratio_of(study, RECEIVED, tag, layer)
        low = value(study.layers, "pos_received_ratio", tag, "low", layer=layer)
        assert row["low"] == pytest.approx(low, nan_ok=True)


def test_all_heads_have_the_numbers_of_the_study(study: Study, page: SpeechPage) -> None:
    """A head is chosen on one half and reported on the other."""
    found, named = stack_results(study)["self"], 0
    for grid in page.stacks[0].grids:
        tag = TAG_OF_NAME[grid.name]
        assert grid.picture is None
        for layer, cells in grid.rows:
            where = [
                value(study.heads, "pos_received_ratio", tag, layer=layer, head=head)
                for head in range(tiny.HEADS)
            ]
            assert [cell.text for cell in cells] == [f"{ratio:.1f}" for ratio in where]
            assert [cell.fill.split()[0] for cell in cells] == [*map(ratio_class, where)]
        first, other = (found.split(n, "pos_received_ratio", SinkView.RENORM, tag) for n in (0, 1))
        enough = np.minimum(first.events, n_words(tag)) >= FEW_WORDS
        values = np.where(enough & (first.effective >= 10), first.value, -1)
        framed = {
            (layer, head)
            for layer, cells in grid.rows
            for head, cell in enumerate(cells)
            if "top1" in cell.fill
        }
        if values.max() < 0:
            assert (grid.head, grid.most, framed) == (None, None, set())
            continue
        named += 1
        layer, head = (int(n) for n in np.unravel_index(int(values.argmax()), values.shape))
        assert framed == {(layer, head)}
        assert grid.head == head_link(HeadName("self", layer, head))
        assert grid.most is not None
        assert grid.most.text == f"{number(other.at(layer, head).value)}×"
    assert named >= 3


def test_many_heads_are_drawn_without_numbers(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each head once, with the fill of its ratio."""
    monkeypatch.setattr(speech, "MOST_CELLS", 10)
    (stack,) = speech_page(stack_results(study)).stacks
    for grid in stack.grids:
        assert not grid.rows
        assert grid.picture is not None
        svg = ET.fromstring(grid.picture.svg)  # noqa: S314
        paths = {e.attrib["class"]: e.attrib["d"] for e in svg if e.tag.endswith("path")}
        drawn = {
            (int(layer), head): fill
            for fill, path in paths.items()
            for first, layer, n in re.findall(r"M(\d+) (\d+)h(\d+)", path)
            for head in range(int(first), int(first) + int(n))
        }
        tag = TAG_OF_NAME[grid.name]
        assert drawn == {
            (layer, head): ratio_class(
                value(study.heads, "pos_received_ratio", tag, layer=layer, head=head)
            )
            for layer in range(tiny.LAYERS)
            for head in range(tiny.HEADS)
        }
        assert len([e for e in svg if e.attrib.get("class") == "framed"]) == (grid.head is not None)


@pytest.mark.parametrize("direction", Direction)
def test_uniform_attention_is_chance(study: Study, direction: Direction) -> None:
    found = stack_results(study)["self"]
    for tag in WORDS:
        ratio = ratio_to_uniform(direction, found.uniform, found.uniform, tag).value
        np.testing.assert_allclose(ratio, 1, rtol=1e-12)


@pytest.mark.parametrize("direction", Direction)
def test_shares_of_all_tags_are_the_whole_where_every_word_has_one(
    study: Study, direction: Direction
) -> None:
    """And so the shares, weighed by chance, average to 1 times chance."""
    found = stack_results(study)["self"]
    metric, view = METRIC_AND_VIEW[direction]
    total = sum(found.heads(metric, view, tag).value for tag in UPOS)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


def by_hand() -> StackResults:
    """A head that gives much to the sink and of the rest most to the verb, and one that does not.

    Of ``[CLS] the dog sees [SEP]``; uniform attention gives two fifths to the sink.
    """
    sinks, verb = (0.4, 0.05, 0.05, 0.1, 0.4), (0.02, 0.15, 0.15, 0.65, 0.03)
    marks = Marks(5, special=(0, 4), tags=("", "DET", "NOUN", "VERB"))
    maps = torch.tensor([[sinks] * 5, [verb] * 5], dtype=torch.float64)
    layers, even = (views_of(weights, marks) for weights in (maps, torch.full((1, 5, 5), 0.2)))
    numbers = {}
    for name in ("pos_received", "pos_received_ratio", "sink_share"):
        metric = all_metrics()[name]
        assert isinstance(metric, AttentionMetric)
        for view in metric.views:
            (own, uniform) = (metric.measure(each[view]) for each in (layers, even))
            values, chance = (
                (part.numerator / part.denominator).reshape(-1, len(metric.labels)).numpy()
                for part in (own, uniform)
            )
            for place, label in enumerate(metric.labels):
                heads, one = values[None, :, place], float(chance[0, place])
                numbers[HeadKey(name, view, label)] = Fake(heads, one)
    return fake_results(numbers)


def test_a_head_with_a_sink_keeps_what_it_prefers_of_the_rest() -> None:
    """Verbs get 0.10 of all and 0.50 of the rest: 0.5 times and 1.5 times uniform attention."""
    found = by_hand()
    head, other = (HeadName("self", 0, number) for number in (0, 1))
    raw = found.heads("pos_received_ratio", SinkView.RAW, "VERB").value[0]
    assert raw == pytest.approx([0.5, 3.25])
    rows = {row.tag: row for row in tag_rows(found, head)}
    assert rows["verbs"].share.text == number(0.5, share=True)
    assert rows["verbs"].ratio.text == "1.50"
    assert rows["verbs"].uniform == number(1 / 3, share=True)
    assert rows["determiners"].ratio.text == "0.75"
    assert sink_remark(found, (0, 0)) == "80.0\u202f% of all its attention goes to the sink."
    rows = {row.tag: row for row in tag_rows(found, other)}
    assert rows["verbs"].ratio.text == number(3 * 0.65 / 0.95)
    assert sink_remark(found, (0, 1)) == ""


def test_halves_of_the_sentences_make_the_whole(study: Study) -> None:
    found = stack_results(study)["self"]
    for table in ("heads", "uniform"):
        whole = getattr(found, table)("pos_given", SinkView.NOSINK, "NOUN")
        one, two = (found.split(n, "pos_given", SinkView.NOSINK, "NOUN", of=table) for n in (0, 1))
        np.testing.assert_array_equal(one.events + two.events, whole.events)
        assert (np.minimum(one.value, two.value) <= whole.value).all()
        assert (np.maximum(one.value, two.value) >= whole.value).all()


def test_cross_attention_looks_from_the_target_at_the_source(pairs: Callable[..., Study]) -> None:
    study = pairs(annotator="embedded", target_annotator="embedded")
    page = speech_page(stack_results(study))
    assert page.absent == ()
    assert [stack.stack for stack in page.stacks] == ["encoder", "decoder", "cross"]
    sides = {"encoder": ("source",) * 2, "decoder": ("target",) * 2, "cross": ("source", "target")}
    for stack in page.stacks:
        received, given = sides[stack.stack]
        tags = ((received, (*stack.received, *stack.few)), (given, stack.given))
        for side, rows in tags:
            for row in rows:
                count = study.manifest.counts[f"{side}.tag.{TAG_OF_NAME[row.name]}"]
                assert row.words == str(count)
        assert stack.few


def test_without_tags_on_one_side_the_other_is_shown(pairs: Callable[..., Study]) -> None:
    page = speech_page(stack_results(pairs(annotator="embedded")))
    assert [stack.stack for stack in page.stacks] == ["encoder", "cross"]
    assert not page.stacks[1].given
    (absent,) = page.absent
    assert "target texts" in absent
    assert "--target-annotator" in absent


def test_without_tags_the_page_says_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("The dog sees the bird.\nOld dogs sleep near the house.\n")
    model = tiny.write("bert", tmp_path / "model")
    metrics = f"attention_distance,{METRICS}"
    study = make_study(tmp_path / "some.txt", model, metrics=metrics, sentence_pages="0")
    headbook.render(study, tmp_path / "site")
    html = html_of(tmp_path / "site" / "speech.html")
    assert "--annotator, or CoNLL-U" in text_of(html)
    assert "Not measured here" in text_of(html)
    assert not elements(html, "table") + elements(html, "figure") + elements(html, "h2")
    assert not list((tmp_path / "site" / "figures").glob("speech*"))


def test_without_the_metrics_the_page_names_them(small_site: Site) -> None:
    html = html_of(small_site.folder / "speech.html")
    for metric in METRICS.split(","):
        assert metric in text_of(html)
    assert not elements(html, "table")


def test_the_figure_has_files_for_papers(encoder_site: Site) -> None:
    figures = encoder_site.folder / "figures"
    assert (figures / "speech-self.svg").read_bytes().startswith(b"<svg")
    assert (figures / "speech-self.pdf").read_bytes().startswith(b"%PDF")
    rows = pd.read_csv(figures / "speech-self.csv")
    assert {"series", "layer", "value", "low", "high"} <= {*rows.columns}


def test_the_page_as_written_has_the_tables_and_leads_to_heads(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "speech.html")
    page = speech_page(encoder_site.results)
    stack = page.stacks[0]
    assert plain_text(page.answer) in text_of(html)
    assert len(elements(html, "table")) == 2 + len(stack.grids) + bool(stack.few)
    for row in (*stack.received, *stack.given, *stack.few):
        assert all(text(cell) in text_of(html) for cell in (row.name, row.words, *row.cells))
    links = {link.attributes["href"] for link in elements(html, "a")}
    assert {grid.head.href for grid in stack.grids if grid.head} <= links
    index = html_of(encoder_site.folder / "index.html")
    assert [link.attributes["href"] for link in elements(index, "a")].count("speech.html") == 2


def test_lines_near_uniform_attention_step_back(study: Study) -> None:
    """The strong ones are those whose last number is farthest from 1."""
    found = stack_results(study)["self"]
    tags = frequent_tags(found, Direction.RECEIVED)
    lines = speech._lines(found, tags)
    ends = {line.name: abs(np.log2(line.values[-1])) for line in lines}
    strong = {line.name for line in lines if not line.faint}
    assert len(strong) == min(speech.MOST_STRONG, len(lines))
    assert all(ends[name] >= ends[line.name] for name in strong for line in lines if line.faint)
    assert ("Strong lines" in speech._caption(tags, lines)) == (len(lines) > len(strong))
