"""The list of heads holds the numbers of the study, and its answers follow from them."""

import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headbook.analysis.accumulators import Reservoir
from headbook.analysis.intervals import FEW
from headbook.attention.relations import LABELS, OFFSETS
from headbook.metrics.base import Chart
from headbook.pages.heads import effectvalues
from headbook.pages.heads.headfacts import LEAST, LOOKS, head_facts
from headbook.pages.heads.headvalues import Column, columns, first_columns, list_data
from headbook.pages.heads.page import HeadsPage, heads_page
from headbook.pages.heads.questions import ASKED
from headbook.report.findings import CHOICE, REPORT, Link
from headbook.report.numbers import changes
from headbook.report.numbers.headrelations import HeadRelations, head_relations
from headbook.report.numbers.headtypes import head_types
from headbook.report.numbers.results import StackResults, results
from headbook.report.numbers.typeshares import share
from headbook.study.importancetables import EFFECT
from headbook.study.sentencedata import heads_of
from headbook.study.summaries.sums import RelationHits
from headbook.terms import View
from pages import data_file
from sites import Site

pytestmark = pytest.mark.slow


def decoded(packed: Mapping[str, bytes]) -> tuple[np.ndarray[Any, Any], ...]:
    """Value, low and high of a column."""
    kinds = {"value": "<f8", "low": "<f4", "high": "<f4"}
    return tuple(np.frombuffer(packed[k], kind) for k, kind in kinds.items())


def page_of(site: Site) -> HeadsPage:
    """The page of a site's study."""
    page = heads_page(results(site.study))
    assert page is not None
    return page


def test_the_files_hold_every_number_of_the_table_of_heads(any_site: Site) -> None:
    """In the order of the list: equal values, intervals to seven digits, NaN where none is."""
    folder, heads = any_site.folder / "data", any_site.study.heads
    listed = data_file(folder / "headlist.js")[1]
    order = [row[1] for row in listed["heads"]]
    prefix = {"self": ""} | {n: f"{n}-" for n in ("encoder", "decoder", "cross")}
    href = (
        heads["stack"].astype(str).map(prefix)
        + heads["layer"].map("L{:02}".format)
        + heads["head"].map("-H{:02}".format)
    )
    table = heads.assign(href="heads/" + href + ".html")
    views = {c.key: c.views for c in columns(results(any_site.study))}
    count = 0
    for metric in listed["metrics"]:
        if metric["id"] == EFFECT:
            continue  # which the table of importance has
        values = data_file(folder / "values" / f"{metric['id']}.js")[1]
        assert list(values) == sorted(key for key, _, _ in metric["labels"])
        for key, packed in values.items():
            rows = table[(table["metric"] == metric["id"]) & (table["label"] == key.split("/")[1])]
            rows = rows[rows["view"] == rows["stack"].map(views[key])]
            rows = rows.set_index("href").reindex(order)
            value, low, high = decoded(packed)
            np.testing.assert_array_equal(value, rows["value"])
            np.testing.assert_allclose(low, rows["low"], rtol=1e-6)
            np.testing.assert_allclose(high, rows["high"], rtol=1e-6)
            thin = np.array([few == "1" for few in packed["thin"]])
            assert not (thin & rows["low"].notna().to_numpy()).any()
            count += 1
    assert count == len(views) >= 3


def test_what_is_lost_without_a_head_is_a_column_with_estimates_marked(any_site: Site) -> None:
    """Per cent of the loss, or thousandths of a cosine; estimates have no interval."""
    folder, table = any_site.folder / "data", any_site.study.importance
    listed = data_file(folder / "headlist.js")[1]
    (choice,) = [each for each in listed["metrics"] if each["id"] == EFFECT]
    assert [key for key, _, _ in choice["labels"]] == [effectvalues.KEY]
    packed = data_file(folder / "values" / f"{EFFECT}.js")[1][effectvalues.KEY]
    value, low, high = decoded(packed)
    removals = any_site.study.corpus_sums.removals
    assert removals is not None
    target, by = changes.primary(removals), changes.scale(removals)
    mean = table[(table["replacement"] == "mean") & (table["target"] == target)]
    place = ["stack", "layer", "head"]
    exact, guess = (
        mean[mean["metric"] == name].set_index(place)
        for name in ("ablation_effect", "attribution_estimate")
    )
    heads = [head for r in results(any_site.study).values() for head in heads_of(r.stack)]
    assert len(heads) == len(value) == len(packed["guess"]) == len(listed["heads"])
    rows = {kind: frame.to_dict("index") for kind, frame in (("0", exact), ("1", guess))}
    for head, *numbers, estimated in zip(heads, value, low, high, packed["guess"], strict=True):
        assert (estimated == "1") == (head not in rows["0"])
        row = rows[estimated][head]
        assert numbers[0] == pytest.approx(row["value"] * by)
        assert numbers[1:] == pytest.approx(
            [row["low"] * by, row["high"] * by], rel=1e-6, nan_ok=True
        )
        assert estimated == "0" or np.isnan(numbers[1])


def test_columns_are_all_labels_that_have_numbers(encoder_site: Site) -> None:
    found = results(encoder_site.study)
    keys = {column.key for column in columns(found)}
    assert len(keys) == len(columns(found))
    for metric in found["self"].metrics:
        if metric.chart is Chart.PROFILE:
            assert not any(key.startswith(f"{metric.id}/") for key in keys)
        elif metric.chart is not Chart.DISTANCES:
            r = found["self"]
            labels = [x for x in metric.listed if r.has(metric.id, r.view(metric, x), x)]
            there = {f"{metric.id}/{label}" for label in labels}
            assert {key for key in keys if key.startswith(f"{metric.id}/")} == there


def test_a_page_has_a_row_for_every_head_in_the_order_of_layers(any_site: Site) -> None:
    page = page_of(any_site)
    stacks = any_site.study.manifest.stacks
    assert (
        page.total
        == len(page.table.rows)
        == sum(len(s.attention_layers) * s.n_heads for s in stacks)
    )
    listed = list_data(results(any_site.study))["heads"]
    links = [row.head.href for row in page.table.rows if isinstance(row.head, Link)]
    assert links == [row[1] for row in listed]
    assert all((any_site.folder / link).is_file() for link in links)


def test_questions_lead_to_columns_that_the_list_has(any_site: Site) -> None:
    """The column that is asked for comes first, and the list is sorted by it."""
    found = results(any_site.study)
    keys = [column.key for column in columns(found)]
    asked = {f"{name}/{label}": lowest for _, name, label, lowest in ASKED}
    questions = page_of(any_site).questions
    assert questions or any_site.kind == "pair"  # of which there are too few
    for question in questions:
        view = {name: values[0] for name, values in parse_qs(question.view).items()}
        key = view["sort"].removeprefix("-")
        assert view["sort"] == (key if asked[key] else f"-{key}")
        chosen = view["columns"].split(" ")
        assert chosen[0] == key
        assert set(chosen) <= set(keys)
        assert set(chosen) >= {column.key for column in first_columns(columns(found))}


def kish(words: "np.ndarray[Any, Any]") -> float:
    """The effective number of sentences."""
    words = words.astype(float)
    return float(words.sum() ** 2 / max((words**2).sum(), 1))


def head_by_hand(r: StackResults, column: Column, *, lowest: bool) -> str:
    """The head with the best number on one half of the sentences; empty without observations."""
    numbers = r.half(CHOICE, column.metric.id, column.views[r.stack.name], column.label)
    best, sign = "", -1 if lowest else 1
    most = -math.inf
    for facts in head_facts(r):
        cell = facts.head.layer, facts.head.head
        if numbers.effective[cell] >= FEW and sign * numbers.value[cell] > most:
            best, most = facts.href, sign * numbers.value[cell]
    return best


def test_the_head_that_answers_is_chosen_on_the_other_half(any_site: Site) -> None:
    found = results(any_site.study)
    offered = {column.key: column for column in columns(found)}
    checked = 0
    for question in page_of(any_site).questions:
        key = parse_qs(question.view)["sort"][0].removeprefix("-")
        _, name, _, lowest = next(each for each in ASKED if key == f"{each[1]}/{each[2]}")
        if name == "relation_accuracy":
            continue  # chosen by the tests of relations, which have tests of their own
        column = offered[key]
        there = [found[stack] for stack in column.views]
        by_hand = [head_by_hand(r, column, lowest=lowest) for r in there]
        links = [answering_head.head.href for answering_head in question.heads]
        assert links == [href for href in by_hand if href], question.text
        checked += 1
    assert checked or any_site.kind == "pair"


def test_facts_follow_from_types_and_kinds_of_keys(encoder_site: Site) -> None:
    r = results(encoder_site.study)["self"]
    types = head_types(r)
    for facts in head_facts(r):
        cell = facts.head.layer, facts.head.head
        head_type = types[cell]
        assert facts.label.word == (head_type.family if head_type else "")
        assert facts.label.behind == (head_type.detail if head_type else "")
        gains = {}
        for kind, word in LOOKS.items():
            own = share(r, "attention_to", View.RAW, kind, cell).value
            even = float(r.uniform("attention_to", View.RAW, kind).value[cell[0]])
            if not math.isnan(own):
                gains[word] = own - even
        special = LOOKS["special"]
        gains[special] -= gains[LOOKS["first"]] + gains[LOOKS["separator"]]
        best = max(gains, key=lambda word: gains[word])
        assert facts.looks.word == (best if gains[best] >= LEAST else "")


LAYERS, HEADS, SENTENCES = 2, 2, 24
SOME = (0, 3, 40)  # labels that occur


@pytest.fixture(scope="module")
def make_found() -> Callable[[int], RelationHits]:
    """Words found and asked for, at random."""

    def make(seed: int) -> RelationHits:
        rng = np.random.default_rng(seed)
        n = 2 * SENTENCES
        asked = np.zeros((n, len(LABELS), 1 + len(OFFSETS)), dtype=np.int64)
        hits = np.zeros((n, LAYERS, HEADS, len(LABELS)), dtype=np.int64)
        for label in SOME:
            words = rng.integers(4, 12, n)
            asked[:, label, 0] = words
            asked[:, label, 1:] = rng.integers(0, words[:, None] + 1, (n, len(OFFSETS)))
            hits[..., label] = rng.integers(0, words[:, None, None] + 1, (n, LAYERS, HEADS))
        key = np.arange(n, dtype=np.uint64)  # even ones are of the one half, odd ones of the other
        index = np.arange(n)
        return RelationHits(Reservoir(n, key, index, hits), Reservoir(n, key, index, asked))

    return make


@given(seed=st.integers(0, 1000))
def test_relations_of_heads_are_chosen_on_one_half_and_reported_on_the_other(
    make_found: Callable[[int], RelationHits], seed: int
) -> None:
    relation_hits = make_found(seed)
    uniform = np.full((LAYERS, len(LABELS)), np.nan)
    uniform[:, SOME[1]] = 0.3
    present = np.ones((LAYERS, HEADS), dtype=bool)
    relations = head_relations(relation_hits, present, uniform)
    asked, hits = relation_hits.asked.payload, relation_hits.hits.payload
    choice, report = (relation_hits.hits.half == half for half in (CHOICE, REPORT))
    enough = [x for x in SOME if min(kish(asked[h][:, x, 0]) for h in (choice, report)) >= FEW]
    if not enough:
        assert relations is None
        return
    assert isinstance(relations, HeadRelations)
    for layer in range(LAYERS):
        for head in range(HEADS):

            def gain(x: int, layer: int = layer, head: int = head) -> float:
                share = hits[choice][:, layer, head, x].sum() / asked[choice][:, x, 0].sum()
                return float(share - (0.3 if x == SOME[1] else 0))

            best = max(enough, key=gain)
            finds = asked[choice][:, best, 1:].sum(0)
            position = min(range(len(OFFSETS)), key=lambda x: (-finds[x], abs(OFFSETS[x])))
            words = asked[report][:, best, 0].sum()
            mine = relations.at(layer, head)
            assert mine is not None
            assert (mine.label, mine.offset) == (LABELS[best], OFFSETS[position])
            own = hits[report][:, layer, head, best].sum() / words
            other = asked[report][:, best, 1 + position].sum() / words
            assert mine.accuracy.value == pytest.approx(own)
            assert mine.at_offset.value == pytest.approx(other)
            assert mine.margin.value == pytest.approx(own - other)
            assert mine.margin.low <= mine.margin.value <= mine.margin.high


def test_a_head_that_is_not_there_finds_nothing(make_found: Callable[[int], RelationHits]) -> None:
    present = np.array([[True, False], [True, True]])
    relations = head_relations(make_found(1), present, np.zeros((LAYERS, len(LABELS))))
    assert relations is not None
    assert [relations.at(*place) is None for place in np.ndindex(2, 2)] == [
        False,
        True,
        False,
        False,
    ]
