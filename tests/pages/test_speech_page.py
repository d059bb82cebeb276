"""The page of parts of speech: the study's numbers, set against uniform attention."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import treebank
from block_parts import every, group_of
from chosen_results import Fake, fake_results
from headbook.charts import Plot
from headbook.charts.theme import ratio_class
from headbook.metrics import all_metrics
from headbook.metrics.base import AttentionMetric
from headbook.pages import speech
from headbook.pages.head_parts.sections import tag_rows
from headbook.pages.parts.blocks import Heat, Page, Small, Table
from headbook.pages.speech import speech_page
from headbook.report.facts import words
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import FEW_WORDS
from headbook.results.formats import number
from headbook.results.number import TIMES
from headbook.schema import UPOS, HeadKey, HeadName, Side, SinkView, heads_of
from headbook.study.study import Study
from layers import Marks, views_of
from sites import Site, make_study
from treebank import Gold

Pairs = tuple[tuple[str, str], ...]
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
RARE = 3  # interjections in the corpus
TAG_OF_NAME = {words.tag_name(tag): tag for tag in UPOS}
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
def results(study: Study) -> StackResults:
    return stack_results(study)["self"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """A tiny BART on pairs of texts."""
    folder = tmp_path_factory.mktemp("pairs")
    model = tiny.write("bart", folder / "model")

    def of(texts: Pairs = treebank.MANY_PAIRS, **annotators: str) -> Study:
        inputs = treebank.write_pairs(folder / "pairs.jsonl", texts)
        return make_study(inputs, model, metrics=METRICS, sentence_pages="0", **annotators)

    return of


def value(table: pd.DataFrame, metric: str, tag: str, column: str = "value", **where: Any) -> float:
    """One number of a study's table, in the view that pages show."""
    rows = table[(table["metric"] == metric) & (table["label"] == tag)]
    for name, wanted in ({"view": VIEWS[metric]} | where).items():
        rows = rows[rows[name] == wanted]
    (found,) = rows[column]
    return float(found)


def n_words(tag: str) -> int:
    return sum(word.tag == tag for sentence in corpus() for word in sentence)


def test_kinds_are_those_of_the_corpus_with_their_words(results: StackResults) -> None:
    """Those with few words are folded; those that no word has are nowhere."""
    counts = Counter(word.tag for sentence in corpus() for word in sentence)
    assert counts["INTJ"] == RARE < FEW_WORDS
    assert {*words.received_tags(results)} == {*counts}
    assert {*words.frequent(results)} == {tag for tag, n in counts.items() if n >= FEW_WORDS}
    assert {tag: words.n_words(results, Side.SOURCE, tag) for tag in counts} == counts


def test_layers_have_the_numbers_of_the_study(study: Study, results: StackResults) -> None:
    """Attention given is a multiple of that under uniform attention."""
    for tag in words.received_tags(results):
        for number_ in words.received(results, tag):
            layer = number_.place("layer")
            assert number_.value == value(study.layers, "pos_received_ratio", tag, layer=layer)
    evidence = words.given_by_words(results).evidence
    assert {(tested.label, tested.layer) for tested in evidence} >= {
        (tag, layer) for tag in WORDS for layer in range(tiny.LAYERS)
    }
    for tested in evidence:
        part = value(study.layers, "pos_given", tested.label, layer=tested.layer)
        uniform = value(study.controls, "pos_given", tested.label, layer=tested.layer)
        assert tested.over_baseline(TIMES).value == pytest.approx(part / uniform, rel=1e-12)


def test_the_figure_has_the_ratios_of_frequent_tags(study: Study, results: StackResults) -> None:
    (plot,) = every(Plot, speech_page({"self": results}))
    rows = plot.rows.to_dict("records")
    assert len(rows) == tiny.LAYERS * len(words.frequent(results))
    for row in rows:
        tag, layer = TAG_OF_NAME[row["series"]], int(row["layer"])
        for part in ("value", "low"):
            expected = value(study.layers, "pos_received_ratio", tag, part, layer=layer)
            assert row[part] == pytest.approx(expected, nan_ok=True)


def test_the_head_of_a_kind_is_the_largest_and_has_a_number_of_the_other_half(
    results: StackResults,
) -> None:
    named = 0
    for tag in words.frequent(results):
        key = ("pos_received_ratio", SinkView.RENORM, tag)
        first, other = (results.split(n, *key) for n in (0, 1))
        largest, chosen_by_half = (
            divmod(int(np.nanargmax(np.where(of.effective >= 10, of.value, -1))), tiny.HEADS)
            for of in (results.heads(*key), first)
        )
        chosen = words.most_attending_head(results, tag)
        if chosen:
            named += 1
            assert chosen.head == HeadName("self", *map(int, largest))
            assert chosen.confirmed == HeadName("self", *map(int, chosen_by_half))
            assert chosen.held_out.value == other.at(*map(int, chosen_by_half)).value
    assert named >= 3


@pytest.mark.parametrize("most_cells", [10, 400])
def test_all_heads_are_tables_of_the_kinds_with_the_largest_multiples(
    study: Study, monkeypatch: pytest.MonkeyPatch, most_cells: int
) -> None:
    """Each head once, with the fill of its ratio; the fewer kinds, the more heads."""
    monkeypatch.setattr(speech, "MAX_LINKED", most_cells)
    (small,) = every(Small, speech_page(stack_results(study)))
    heads = [*heads_of(study.manifest.stacks[0])]
    by_tag = {
        tag: [
            value(study.heads, "pos_received_ratio", tag, layer=head.layer, head=head.head)
            for head in heads
        ]
        for tag in WORDS
    }
    largest = sorted(by_tag, key=lambda tag: -np.nanmax(by_tag[tag]))
    tables = [table for table in small.blocks if isinstance(table, Table)]
    drawn_tags = [TAG_OF_NAME[getattr(table.caption, "text", "")] for table in tables]
    assert drawn_tags == largest[: max(1, most_cells // len(heads))]
    for tag, table in zip(drawn_tags, tables, strict=True):
        cells = [cell for line in table.rows for cell in line[1:] if isinstance(cell, Heat)]
        assert [cell.fill.split()[0] for cell in cells] == [*map(ratio_class, by_tag[tag])]
        framed = [cell for cell in cells if "top1" in cell.fill]
        assert len(framed) == bool(table.note)


def test_uniform_attention_is_1_times_uniform_attention(results: StackResults) -> None:
    for tag in WORDS:
        ratio = results.uniform(*words.received_key(tag)).value
        np.testing.assert_allclose(ratio, 1, rtol=1e-12)


@pytest.mark.parametrize("metric", ["pos_received", "pos_given"])
def test_shares_of_all_tags_are_the_whole_where_every_word_has_one(
    results: StackResults, metric: str
) -> None:
    """And so the shares, weighed by uniform attention, average to 1."""
    total = sum(results.heads(metric, SinkView(VIEWS[metric]), tag).value for tag in UPOS)
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
    rows = {row.tag: row for row in tag_rows(found, other)}
    assert rows["verbs"].ratio.text == number(3 * 0.65 / 0.95)


def test_halves_of_the_sentences_make_the_whole(results: StackResults) -> None:
    for table in ("heads", "uniform"):
        whole = getattr(results, table)("pos_given", SinkView.NOSINK, "NOUN")
        one, two = (
            results.split(n, "pos_given", SinkView.NOSINK, "NOUN", of=table) for n in (0, 1)
        )
        np.testing.assert_array_equal(one.events + two.events, whole.events)
        assert (np.minimum(one.value, two.value) <= whole.value).all()
        assert (np.maximum(one.value, two.value) >= whole.value).all()


def amounts(page: Page, stack: str) -> list[Mapping[str, Any]]:
    """Return the numbers of words of each table by layer: attention received, and given."""
    tables = every(Table, group_of(page, f"tables-{stack}"))
    return [
        {TAG_OF_NAME[getattr(row[0], "text", "")]: row[1] for row in table.rows} for table in tables
    ]


def test_cross_attention_goes_from_the_target_to_the_source(pairs: Callable[..., Study]) -> None:
    study = pairs(annotator="embedded", target_annotator="embedded")
    page = speech_page(stack_results(study))
    assert page.absent == ()
    sides = {"encoder": ("source",) * 2, "decoder": ("target",) * 2, "cross": ("source", "target")}
    for stack, of_stack in sides.items():
        for side, counts in zip(of_stack, amounts(page, stack), strict=True):
            assert counts
            for tag, n in counts.items():
                assert n == study.manifest.counts[f"{side}.tag.{tag}"]


def test_without_tags_on_one_side_the_other_is_shown(pairs: Callable[..., Study]) -> None:
    page = speech_page(stack_results(pairs(annotator="embedded")))
    assert len(amounts(page, "encoder")) == 2
    assert len(amounts(page, "cross")) == 1
    (absent,) = page.absent
    assert "--target-annotator" in absent


def test_kinds_of_few_words_are_not_absent(pairs: Callable[..., Study]) -> None:
    study = pairs(treebank.PAIRS, annotator="embedded", target_annotator="embedded")
    assert speech_page(stack_results(study)).absent == ()


@pytest.mark.parametrize("kind", ["small", "decoder"])
def test_without_tags_or_metrics_the_page_says_what_to_pass(
    kind: str, request: pytest.FixtureRequest
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = speech_page(site.results)
    assert page.blocks == page.closer == page.measured == ()
    assert all(any(metric in text for text in page.absent) for metric in METRICS.split(","))
