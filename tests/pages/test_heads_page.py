"""The list of heads holds the numbers of the study, and its answers follow from them."""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.attention.word_pairs import LABELS
from headbook.metrics.base import ChartKind
from headbook.pages import heads as effectvalues
from headbook.pages.heads import (
    ASKED,
    Column,
    HeadsPage,
    first_columns,
    heads_page,
    list_data,
    number_columns,
)
from headbook.report import ablation
from headbook.report.findings import HELD_OUT, SELECTION, Link
from headbook.report.head_facts import KEY_KINDS, MIN_SHARE_ABOVE_UNIFORM, head_facts
from headbook.report.head_types import head_types, share_of_head
from headbook.report.relations import HeadRelations, head_relations
from headbook.report.results import StackResults, stack_results
from headbook.schema import SinkView
from headbook.study.ablation_tables import EFFECT
from headbook.study.sentence_data import heads_of
from html_pages import data_file
from naive_relations import SIMPLEST, drawn, half, head_hits, rule_hits, stored
from sites import Site

pytestmark = pytest.mark.slow


def decoded(packed: Mapping[str, bytes]) -> tuple[np.ndarray[Any, Any], ...]:
    """Value, low and high of a column."""
    kinds = {"value": "<f8", "low": "<f4", "high": "<f4"}
    return tuple(np.frombuffer(packed[k], kind) for k, kind in kinds.items())


def page_of(site: Site) -> HeadsPage:
    """The page of a site's study."""
    page = heads_page(stack_results(site.study))
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
    views = {c.key: c.views for c in number_columns(stack_results(any_site.study))}
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
    results = any_site.study.corpus_sums.ablation
    assert results is not None
    target, by = ablation.main_target(results), ablation.unit_factor(results)
    mean = table[(table["replacement"] == "mean") & (table["target"] == target)]
    place = ["stack", "layer", "head"]
    exact, guess = (
        mean[mean["metric"] == name].set_index(place)
        for name in ("ablation_effect", "attribution_estimate")
    )
    heads = [head for r in stack_results(any_site.study).values() for head in heads_of(r.stack)]
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
    found = stack_results(encoder_site.study)
    keys = {column.key for column in number_columns(found)}
    assert len(keys) == len(number_columns(found))
    for metric in found["self"].metrics:
        if metric.chart is ChartKind.PROFILE:
            assert not any(key.startswith(f"{metric.id}/") for key in keys)
        elif metric.chart is not ChartKind.DISTANCES:
            r = found["self"]
            labels = [x for x in metric.listed if r.has_value(metric.id, r.view(metric, x), x)]
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
    listed = list_data(stack_results(any_site.study))["heads"]
    links = [row.head.href for row in page.table.rows if isinstance(row.head, Link)]
    assert links == [row[1] for row in listed]
    assert all((any_site.folder / link).is_file() for link in links)


def test_questions_lead_to_columns_that_the_list_has(any_site: Site) -> None:
    """The column that is asked for comes first, and the list is sorted by it."""
    found = stack_results(any_site.study)
    keys = [column.key for column in number_columns(found)]
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
        assert set(chosen) >= {column.key for column in first_columns(number_columns(found))}


def kish(words: "np.ndarray[Any, Any]") -> float:
    """The effective number of sentences."""
    words = words.astype(float)
    return float(words.sum() ** 2 / max((words**2).sum(), 1))


def head_by_hand(r: StackResults, column: Column, *, lowest: bool) -> str:
    """The head with the best number on one half of the sentences; empty without observations."""
    numbers = r.split(SELECTION, column.metric.id, column.views[r.stack.name], column.label)
    best, sign = "", -1 if lowest else 1
    most = -math.inf
    for facts in head_facts(r):
        cell = facts.head.layer, facts.head.head
        if numbers.effective[cell] >= MIN_EFFECTIVE and sign * numbers.value[cell] > most:
            best, most = facts.href, sign * numbers.value[cell]
    return best


def test_the_head_that_answers_is_chosen_on_the_other_half(any_site: Site) -> None:
    found = stack_results(any_site.study)
    offered = {column.key: column for column in number_columns(found)}
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
    r = stack_results(encoder_site.study)["self"]
    types = head_types(r)
    for facts in head_facts(r):
        cell = facts.head.layer, facts.head.head
        head_type = types[cell]
        assert facts.label.word == (head_type.family if head_type else "")
        assert facts.label.detail == (head_type.detail if head_type else "")
        gains = {}
        for kind, word in KEY_KINDS.items():
            own = share_of_head(r, "attention_to", SinkView.RAW, kind, cell).value
            even = float(r.uniform("attention_to", SinkView.RAW, kind).value[cell[0]])
            if not math.isnan(own):
                gains[word] = own - even
        special = KEY_KINDS["special"]
        gains[special] -= gains[KEY_KINDS["first"]] + gains[KEY_KINDS["separator"]]
        best = max(gains, key=lambda word: gains[word])
        assert facts.attends_to.word == (best if gains[best] >= MIN_SHARE_ABOVE_UNIFORM else "")


LAYERS, HEADS, SENTENCES = 2, 2, 60
EVEN = "nsubj:to_head"  # a relation that uniform attention finds, too


@pytest.mark.parametrize("seed", range(3))
def test_relations_of_heads_are_chosen_on_one_half_and_reported_on_the_other(seed: int) -> None:
    sentences = drawn(seed, SENTENCES, (LAYERS, HEADS))
    found = stored(sentences)
    uniform = np.full((LAYERS, len(LABELS)), np.nan)
    uniform[:, LABELS.index(EVEN)] = 0.3
    relations = head_relations(found, np.ones((LAYERS, HEADS), dtype=bool), uniform)
    assert isinstance(relations, HeadRelations)
    first, second = (half(sentences, number) for number in (SELECTION, HELD_OUT))
    words = {x: [[len([*s.cases(x)]) for s in part] for part in (first, second)] for x in LABELS}
    enough = [x for x in LABELS if min(kish(np.array(part)) for part in words[x]) >= MIN_EFFECTIVE]
    assert enough
    for place in np.ndindex(LAYERS, HEADS):

        def gain(label: str, place: tuple[int, int] = place) -> float:
            share = sum(head_hits(s, label, place) for s in first) / sum(words[label][0])
            return share - (0.3 if label == EVEN else 0)

        best = max(enough, key=gain)
        rule = max(SIMPLEST, key=lambda rule: sum(rule_hits(s, best, rule) for s in first))
        mine = relations.at(*place)
        assert mine is not None
        assert (mine.label, mine.rule) == (best, rule)
        own = sum(head_hits(s, best, place) for s in second) / sum(words[best][1])
        other = sum(rule_hits(s, best, rule) for s in second) / sum(words[best][1])
        assert mine.accuracy.value == pytest.approx(own)
        assert mine.at_rule.value == pytest.approx(other)
        assert mine.margin.value == pytest.approx(own - other)
        assert mine.margin.low <= mine.margin.value <= mine.margin.high


def test_a_head_that_is_not_there_finds_nothing() -> None:
    present = np.array([[True, False], [True, True]])
    sentences = stored(drawn(1, SENTENCES, (LAYERS, HEADS)))
    relations = head_relations(sentences, present, np.zeros((LAYERS, len(LABELS))))
    assert relations is not None
    there = [relations.at(*place) is not None for place in np.ndindex(2, 2)]
    assert there == [True, False, True, True]
    assert head_relations(sentences.of(SELECTION), present, np.zeros((LAYERS, len(LABELS)))) is None
