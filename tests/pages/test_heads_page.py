"""The list of heads holds the numbers of the study, and its answers follow from them."""

import math
import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics.base import ChartKind
from headbook.pages.heads import HeadsPage, heads_page
from headbook.pages.parts.head_list import (
    EFFECT_KEY,
    Column,
    initial_columns,
    list_data,
    number_columns,
)
from headbook.report import ablation, relation_tests
from headbook.report.answers.heads import RANKINGS
from headbook.report.facts.functions import FunctionFamily, families_of, functions_of
from headbook.report.facts.head_facts import HeadWord, head_facts
from headbook.report.results import StackResults, share_of_head
from headbook.schema import SinkView, heads_of
from headbook.study.ablation_tables import EFFECT
from html_pages import data_file, html_of
from sites import Site

pytestmark = pytest.mark.slow


def decoded(packed: Mapping[str, bytes]) -> tuple[np.ndarray[Any, Any], ...]:
    """Value, low and high of a column."""
    kinds = {"value": "<f8", "low": "<f4", "high": "<f4"}
    return tuple(np.frombuffer(packed[k], kind) for k, kind in kinds.items())


def page_of(site: Site) -> HeadsPage:
    """The page of a site's study."""
    page = heads_page(site.results)
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
    views = {c.key: c.views for c in number_columns(any_site.results)}
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
    assert [key for key, _, _ in choice["labels"]] == [EFFECT_KEY]
    packed = data_file(folder / "values" / f"{EFFECT}.js")[1][EFFECT_KEY]
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
    heads = [head for r in any_site.results.values() for head in heads_of(r.stack)]
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
    found = encoder_site.results
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


def test_a_page_has_a_line_and_a_map_for_every_head(any_site: Site) -> None:
    page = page_of(any_site)
    stacks = any_site.study.manifest.stacks
    amount = sum(len(s.attention_layers) * s.n_heads for s in stacks)
    listed = list_data(any_site.results)["heads"]
    by_rank = [row[1] for row in sorted(listed, key=lambda row: row[9])]
    assert page.total == len(page.lines) == amount
    assert [line.facts.href for line in page.lines] == by_rank
    assert all((any_site.folder / href).is_file() for href in by_rank)
    maps = [each for s in page.sections for panel in s.panels for each in panel.maps]
    assert sorted(each.facts.href for each in maps) == sorted(by_rank)
    assert {each.href for each in maps} == {f"#{line.id}" for line in page.lines}


def test_lines_stand_by_family_and_by_the_change_without_the_head(any_site: Site) -> None:
    """In the table as in the data of the script; families in the order of the enumeration."""
    page, found = page_of(any_site), any_site.results
    results = any_site.study.corpus_sums.ablation
    assert results is not None
    changes = ablation.head_changes(results).set_index(["stack", "layer", "head"])["value"]
    order = [*FunctionFamily, None]
    keys = [
        (order.index(line.facts.function.family), -changes[line.facts.head]) for line in page.lines
    ]
    assert keys == sorted(keys)
    listed = {row[1]: row[7] for row in list_data(found)["heads"]}
    for line in page.lines:
        assert listed[line.facts.href] == (line.facts.function.family or "")


def test_maps_stand_in_the_family_of_their_heads(any_site: Site) -> None:
    """The largest family first; in a family the most attention to the sink last."""
    found = any_site.results
    for section in page_of(any_site).sections:
        r = found[section.stack]
        assert [len(panel.maps) for panel in section.panels] == sorted(
            (len(panel.maps) for panel in section.panels), reverse=True
        )
        for panel in section.panels:
            heads = [each.facts.head for each in panel.maps]
            of_heads = {functions_of(r)[head].family for head in heads}
            assert len(of_heads) == 1
            (family,) = of_heads
            assert panel.family == (f"f-{family}" if family else "")
            assert panel.name == (families_of(r)[family] if family else "Not measured")
            asked = parse_qs(panel.view)
            assert asked.get("class", [""]) == [heads[0] and panel.maps[0].facts.label.word]
            assert ("stack" in asked) == (len(found) > 1)
            shares = [
                share_of_head(r, "sink_share", SinkView.RAW, "", (head.layer, head.head)).value
                for head in heads
            ]
            assert shares == sorted(shares) or all(map(math.isnan, shares))


def test_rankings_lead_to_columns_that_the_list_has(any_site: Site) -> None:
    """The column of a ranking comes first, and the list is sorted by it."""
    found = any_site.results
    keys = [column.key for column in number_columns(found)]
    lowest_by_key = {f"{each.metric}/{each.label}": each.lowest for each in RANKINGS}
    rankings = page_of(any_site).rankings
    assert rankings or any_site.kind == "pair"  # of which there are too few
    for ranking in rankings:
        view = {name: values[0] for name, values in parse_qs(ranking.view).items()}
        key = view["sort"].removeprefix("-")
        assert view["sort"] == (key if lowest_by_key[key] else f"-{key}")
        chosen = view["columns"].split(" ")
        assert chosen[0] == key
        assert set(chosen) <= set(keys)
        assert set(chosen) >= {column.key for column in initial_columns(number_columns(found))}


def kish(words: "np.ndarray[Any, Any]") -> float:
    """The effective number of sentences."""
    words = words.astype(float)
    return float(words.sum() ** 2 / max((words**2).sum(), 1))


def head_by_hand(r: StackResults, column: Column, *, lowest: bool) -> str:
    """The head with the best number of all sentences; empty without observations."""
    numbers = r.heads(column.metric.id, column.views[r.stack.name], column.label)
    best, sign = "", -1 if lowest else 1
    most = -math.inf
    for facts in head_facts(r):
        cell = facts.head.layer, facts.head.head
        if numbers.effective[cell] >= MIN_EFFECTIVE and sign * numbers.value[cell] > most:
            best, most = facts.href, sign * numbers.value[cell]
    return best


def test_the_first_head_of_a_ranking_is_that_of_all_sentences(any_site: Site) -> None:
    found = any_site.results
    offered = {column.key: column for column in number_columns(found)}
    checked = 0
    for ranking in page_of(any_site).rankings:
        key = parse_qs(ranking.view)["sort"][0].removeprefix("-")
        asked = next(each for each in RANKINGS if key == f"{each.metric}/{each.label}")
        if asked.metric == "relation_accuracy":
            continue  # chosen by the tests of relations, which have tests of their own
        column = offered[key]
        there = [found[stack] for stack in column.views]
        by_hand = [head_by_hand(r, column, lowest=asked.lowest) for r in there]
        links = [first.head.href for first in ranking.heads]
        assert links == [href for href in by_hand if href], ranking.text
        checked += 1
    assert checked or any_site.kind == "pair"


def test_names_and_numbers_of_the_list_are_those_of_functions(any_site: Site) -> None:
    """On the page and in the data of the script."""
    rows = {row[1]: row[4] for row in list_data(any_site.results)["heads"]}
    for r in any_site.results.values():
        functions, names = functions_of(r), families_of(r)
        for facts in head_facts(r):
            function = functions[facts.head]
            assert facts.function is function
            family = names[function.family] if function.family else ""
            assert facts.label == HeadWord(family, function.noun, function.number)
            number = function.number
            more = [number.value, number.as_text(), number.row.table] if number else [None]
            assert rows[facts.href] == [family, function.noun, *more]
    html = html_of(any_site.folder / "heads.html")
    for line in page_of(any_site).lines:
        [row] = re.findall(rf'<tr id="{line.id}">.*?</tr>', html)
        assert f">{line.facts.function.noun}" in unescape(row)


def test_only_claimed_relations_stand_in_the_list(any_site: Site) -> None:
    """With the accuracy over all sentences; other heads have none."""
    for r in any_site.results.values():
        tests = r.cached(relation_tests.tests_of_stack)
        claimed = set()
        if tests is not None:
            claimed = {tuple(map(int, tests.head[n])) for n in np.flatnonzero(tests.claimed)}
        for facts in head_facts(r):
            cell = facts.head.layer, facts.head.head
            assert bool(facts.relation.word) == facts.beats == (cell in claimed)
            if facts.relation.number:
                label = dict(facts.relation.number.row.key)["label"]
                value = r.heads("relation_accuracy", SinkView.NOSINK, str(label)).value[cell]
                assert facts.relation.number.value == value
    titles = page_of(any_site).facts
    assert ("relation" in titles) == any(line.facts.beats for line in page_of(any_site).lines)
