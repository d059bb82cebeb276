"""The page of syntax: the study's numbers, each head against the best surface rule."""

import copy
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

import headbook
import tiny
import treebank
from block_parts import every, group_of
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.attention.word_pairs import LABELS
from headbook.charts import Plot
from headbook.charts.theme import points_class
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.pages import syntax
from headbook.pages.head import head_pages
from headbook.pages.head_parts.sections import found_relations
from headbook.pages.heads import heads_page
from headbook.pages.parts.blocks import Details, Group, Heat, Page, Steps, Table, Text
from headbook.pages.parts.relations import example_of, examples_of_labels
from headbook.pages.syntax import margin_legend, syntax_page
from headbook.report import relation_tests
from headbook.report.facts.head_facts import head_facts
from headbook.report.facts.language.relations import untested
from headbook.report.facts.tested.relations import relation_rows
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import arrow_words, relation_words
from headbook.report.results import stack_results
from headbook.report.wording import DIRECTIONS, rule_phrase
from headbook.report.wording import number_word as in_words
from headbook.results.formats import percent, signed
from headbook.results.number import Number, Printed
from headbook.results.sentence import Link, Sentence
from headbook.schema import HeadName, SinkView, relation_of
from headbook.study.sentence_data import UINT8_STEPS
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from naive_ratios import ratio
from naive_relations import (
    Annotated,
    Place,
    chosen,
    half,
    head_hits,
    n_others,
    preference,
    rule_hits,
    where_wrong,
)
from sites import Site, make_study
from treebank import Gold

METRICS = (
    "relation_accuracy,relation_accuracy_far,phrase_trees,dependency_trees,attention_to,"
    "surface_rule"
)
NOUNS = ("dog", "bird", "house", "gardener", "fisherman")
RARE = 2  # vocatives in the corpus
VIEW = SinkView.NOSINK


def sentence(draw: random.Random) -> tuple[Gold, ...]:
    """A subject, a verb and an object, the object sometimes far away."""
    noun = draw.choice(NOUNS)
    if draw.random() < 0.5:
        return (
            Gold("the", "DET", 2, "det"), Gold(noun, "NOUN", 3, "nsubj"),
            Gold("sees", "VERB", 0, "root"), Gold("the", "DET", 7, "det"),
            Gold("old", "ADJ", 7, "amod"), Gold("red", "ADJ", 7, "amod"),
            Gold(draw.choice(NOUNS), "NOUN", 3, "obj"), Gold(".", "PUNCT", 3, "punct"),
        )  # fmt: skip
    return (
        Gold(noun, "NOUN", 2, "nsubj"), Gold("sees", "VERB", 0, "root"),
        Gold(draw.choice(NOUNS), "NOUN", 2, "obj"), Gold("!", "PUNCT", 2, "punct"),
    )  # fmt: skip


def corpus() -> tuple[tuple[Gold, ...], ...]:
    """Sentences with some relations often, one seldom."""
    draw = random.Random(4)  # noqa: S311 - no secret
    found = [sentence(draw) for _ in range(150)]
    for position in range(RARE):
        found[position] += (Gold("ve", "INTJ", 2, "vocative"),)
    return tuple(found)


DIRECTION = {name: code for code, name in DIRECTIONS.items()}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A tiny BERT on that corpus."""
    folder = tmp_path_factory.mktemp("syntax")
    inputs = treebank.write_trees(folder / "trees.conllu", corpus())
    model = tiny.write("bert", folder / "model")
    return make_study(inputs, model, metrics=METRICS, sentence_pages="6")


@pytest.fixture(scope="module")
def page(study: Study) -> Page:
    return syntax_page(stack_results(study))


@pytest.fixture(scope="module")
def ranked(study: Study) -> RelationTests:
    tests = relation_tests.tests_of_stack(stack_results(study)["self"])
    assert tests is not None
    return tests


def annotated(study: Study) -> list[Annotated]:
    """The sentences of the corpus with the heads' strongest words, as the study keeps them."""
    words = study.corpus_sums.heads["self"].strongest_words
    assert words is not None
    found = []
    first = 0
    for key, index, length in zip(words.content_hash, words.index, words.lengths, strict=True):
        gold = corpus()[index]
        assert len(gold) == length
        strongest = words.strongest[first : first + length]
        first += length
        rows: dict[Place, list[int | None]] = {
            place: [None if w < 0 else int(w) for w in strongest[:, *place]]
            for place in np.ndindex(tiny.LAYERS, tiny.HEADS)
        }
        found.append(
            Annotated(
                int(key),
                [word.tag for word in gold],
                [word.head - 1 if word.head else None for word in gold],
                [word.relation for word in gold],
                rows,
            )
        )
    return found


def plain(value: object) -> str:
    """What a cell or a sentence says."""
    return value if isinstance(value, str) else str(getattr(value, "text", value))


def numbers_of(page: Page) -> Table:
    """The table of all numbers of a page's first stack."""
    (table,) = every(Table, every(Details, page.closer)[0])
    return table


def lines(table: Table) -> list[dict[str, Any]]:
    """Rows of a table by the titles of its columns."""
    names = [plain(column) for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def label_of(row: dict[str, Any]) -> str:
    """The relation and direction of a row as tables have them."""
    return f"{row['Relation']}:{DIRECTION[row['from query to key']]}"


def values(sentence: Sentence) -> list[float]:
    return [part.number.value for part in sentence.parts if isinstance(part, Printed)]


def test_every_row_has_the_numbers_of_the_study(study: Study, page: Page) -> None:
    """Head and rule are those that find most in one half; numbers are of all sentences."""
    found, sentences = stack_results(study)["self"], annotated(study)
    rows = lines(numbers_of(page))
    assert len(rows) == 10
    for row in rows:
        label = label_of(row)
        (layer, head), rule = chosen(sentences, label)
        assert row["head"] == HeadName("self", layer, head)
        accuracy = found.heads("relation_accuracy", VIEW, label).at(layer, head)
        printed = row["accuracy"]
        assert [printed.value, printed.low, printed.high] == pytest.approx(
            accuracy[:3], nan_ok=True
        )
        words = sum(len([*s.cases(label)]) for s in sentences)
        assert row["words"] == words == int(accuracy.events)
        at = sum(rule_hits(s, label, rule) for s in sentences) / words
        assert row["best surface rule"] == rule_phrase(rule)
        assert row["its accuracy"].value == pytest.approx(at)
        assert row["difference"].value == pytest.approx(accuracy.value - at)
        wrong = ratio(where_wrong(sentences, label, (layer, head), rule), (0, 1))
        fails = row["where the rule is wrong"]
        assert wrong.value == pytest.approx(fails.value if fails else np.nan, nan_ok=True)
        preferred = row["right class, in the relation and elsewhere"]
        if n_others(sentences, label) < 30:
            assert not values(preferred)
        else:
            wanted = preference(sentences, [1] * len(sentences), label, (layer, head))
            assert values(preferred)[:2] == pytest.approx(wanted)
        even = found.uniform("relation_accuracy", VIEW, label).at(layer)
        assert row["uniform attention"].value == pytest.approx(even.value)
        far = row["accuracy at distance ≥ 3"]
        assert (far is not None) == found.has_value("relation_accuracy_far", VIEW, label)
        if far is not None:
            same = found.heads("relation_accuracy_far", VIEW, label).at(layer, head)
            assert far.value == pytest.approx(same.value, nan_ok=True)


def drawn(page: Page) -> list[dict[str, Any]]:
    """Rows of the figure's file."""
    plot = next(plot for plot in every(Plot, page) if plot.name == "syntax-self")
    return [
        {str(name): value for name, value in row.items()} for row in plot.rows.to_dict("records")
    ]


def test_lines_of_the_figure_have_the_numbers_of_the_tests(
    page: Page, ranked: RelationTests
) -> None:
    """Claimed ones first, then by margin; names run from query to key."""
    order = sorted(range(len(ranked.labels)), key=lambda n: -ranked.scores.margin.value[n])
    order.sort(key=lambda n: not ranked.claimed[n])
    for row, n in zip(drawn(page), order, strict=True):
        layer, head = ranked.head[n]
        accuracy = ranked.scores.accuracy.at(n)
        assert (row["relation"], row["head"]) == (
            arrow_words(ranked.labels[n]), f"L{layer}·H{head}",
        )  # fmt: skip
        assert [row["accuracy"], row["low"]] == pytest.approx(accuracy[:2], nan_ok=True)
        assert row["rule"] == ranked.scores.at_rule.value[n]
        assert row["supported"] == ranked.claimed[n]


def test_examples_are_pairs_of_the_corpus(study: Study) -> None:
    examples = examples_of_labels(stack_results(study)["self"])
    assert len(examples) > 5
    for label, pair in examples.items():
        ends = {ends for words in corpus() for ends in pairs_of(words, *relation_of(label))}
        assert pair in ends


def pairs_of(words: tuple[Gold, ...], relation: str, direction: str) -> Iterator[tuple[str, str]]:
    for word in words:
        if word.relation == relation and word.head:
            ends = word.form, words[word.head - 1].form
            yield ends if direction == "to_head" else ends[::-1]


def test_rows_are_sorted_by_margin_and_grey_where_not_supported(
    page: Page, ranked: RelationTests
) -> None:
    order = sorted(range(len(ranked.labels)), key=lambda n: -ranked.scores.margin.value[n])
    table = numbers_of(page)
    for place, (line, n) in enumerate(zip(lines(table), order, strict=True)):
        assert ranked.labels[n] == label_of(line)
        is_above = ranked.p[n] < 0.05 and ranked.held_out.margin.low[n] > 0
        sure = is_above and ranked.held_out_preference.clear[n]
        assert (place in table.grey) == (not sure)
        assert line["p family-wise"].value == pytest.approx(ranked.p[n], nan_ok=True)


def test_pages_agree_on_what_heads_are_shown_to_find(study: Study, ranked: RelationTests) -> None:
    """Questions, list of heads, overview and head pages follow the rule of syntax.

    Every other relation is given a small p, of those every other one a margin below 0, and to one
    of the rest no preference for the right class of words.
    """
    n = np.arange(len(ranked.labels))
    low = np.where(n % 4 == 0, 0.1, -0.1)
    preference = ranked.held_out_preference
    beyond = preference.difference._replace(low=np.where(n == 4, -0.1, 0.1))
    sure = replace(
        ranked,
        p=np.where(n % 2 == 0, 0.01, 0.2),
        held_out=ranked.held_out._replace(margin=ranked.held_out.margin._replace(low=low)),
        held_out_preference=preference._replace(difference=beyond, others=np.full(len(n), 100)),
    )
    whole = copy.copy(stack_results(study)["self"])
    object.__setattr__(whole, "_made", {relation_tests.tests_of_stack: sure})
    found = {"self": whole}
    table = numbers_of(syntax_page(found))
    rows = {
        label_of(line): (f"L{line['head'].layer}·H{line['head'].head}", place not in table.grey)
        for place, line in enumerate(lines(table))
    }
    assert [rows[label][1] for label in sure.labels] == ((n % 4 == 0) & (n != 4)).tolist()
    heads = heads_page(found)
    assert heads is not None
    asked = {parse_qs(q.view)["sort"][0].partition("/")[2]: q for q in heads.rankings}
    for label in rows.keys() & asked.keys():
        (named_head,) = asked[label].heads
        assert (named_head.head.text, named_head.supported) == rows[label]
        weak = "not clearly above" in named_head.behind or "no more than" in named_head.behind
        assert weak == (not named_head.supported)
        assert ("family-wise" in named_head.behind) == named_head.supported
    assert rows.keys() & asked.keys()
    displayed = {(head, label) for label, (head, supported) in rows.items() if supported}
    named = {(name, relation_words(label)) for name, label in displayed}
    for facts in head_facts(found["self"]):
        assert (
            facts.beats
            == (" over " in facts.relation.detail)
            == ((facts.name, facts.relation.word) in named)
        )
        served = {
            found_relation.text
            for found_relation in found_relations(found["self"], facts.head)
            if found_relation.supported
        }
        assert served <= {relation_words(label) for name, label in displayed if name == facts.name}


COLUMNS = {
    "claim", "stack", "layer", "head", "metric", "view", "label", "split", "value", "low", "high",
    "baseline", "baseline_value", "difference", "difference_low", "difference_high", "p",
    "n_sentences", "n_observations",
}  # fmt: skip


def test_rows_of_tests_hold_every_number_of_relations_and_rules(
    study: Study, ranked: RelationTests
) -> None:
    """Of both halves, and of all sentences; against plain loops over the words."""
    sentences, found = annotated(study), stack_results(study)["self"]
    every_row = [tested.columns for tested in relation_rows(found)]
    assert all({*row} == COLUMNS for row in every_row)
    rows = [row for row in every_row if "best" not in row["claim"]]
    by_key = {(r["claim"], r["label"], r["split"], r["layer"], r["head"]): r for r in rows}
    assert len(by_key) == len(rows)
    for n, label in enumerate(ranked.labels):
        head, rule = chosen(sentences, label)
        choice, held_out = (half(sentences, which) for which in (0, 1))
        for split, part in (("choice", choice), ("all", sentences), ("held_out", held_out)):
            row = by_key["relation", label, split, *head]
            words = sum(len([*s.cases(label)]) for s in part)
            own, other = (
                sum(hits) / words
                for hits in (
                    [head_hits(s, label, head) for s in part],
                    [rule_hits(s, label, rule) for s in part],
                )
            )
            assert (row["baseline"], row["n_observations"]) == (rule, words)
            assert row["n_sentences"] == sum(bool([*s.cases(label)]) for s in part)
            numbers = [row["value"], row["baseline_value"], row["difference"]]
            assert numbers == pytest.approx([own, other, own - other])
            assert row["low"] <= row["value"] <= row["high"]
        assert row["p"] == ranked.p[n]
        share = by_key.get(("class_preference", label, "held_out", *head))
        assert (share is not None) == (n_others(part, label) >= 30)
        if share is not None:
            wanted = preference(part, [1] * len(part), label, head)
            assert [share["value"], share["baseline_value"]] == pytest.approx(wanted)
    for place in np.ndindex(tiny.LAYERS, tiny.HEADS):
        (own_rule,) = (
            r for r in rows
            if r["claim"] == "surface_rule" and r["split"] == "held_out"
            and (r["layer"], r["head"]) == place
        )  # fmt: skip
        value = found.split(1, "surface_rule", VIEW, str(own_rule["label"])).at(*place)
        assert own_rule["value"] == pytest.approx(value.value)
        assert [own_rule["low"], own_rule["high"]] == pytest.approx([value.low, value.high])
        heads = found.split(1, "surface_rule", VIEW, str(own_rule["label"])).value
        assert own_rule["baseline_value"] == pytest.approx(heads.mean())


def test_a_relation_that_occurs_twice_is_named_and_not_ranked(study: Study, page: Page) -> None:
    counts = Counter(word.relation for words in corpus() for word in words)
    assert counts["vocative"] == RARE
    assert "vocative" not in {line["Relation"] for line in lines(numbers_of(page))}
    assert untested(stack_results(study)["self"]) == (("vocative",), ())


def margins_of(page: Page) -> list[Table]:
    return every(Table, group_of(page, "layers-self"))


def names_of(table: Table) -> list[tuple[str, str]]:
    """Relation in words and in the annotation, of each row."""
    cells = [cell for cell, *_ in table.rows if isinstance(cell, Sentence)]
    return [(str(cell.parts[0]), plain(cell.parts[-1])) for cell in cells]


def test_tables_by_layer_have_the_margins_of_the_best_heads(
    page: Page, ranked: RelationTests
) -> None:
    printed = []
    for table, direction in zip(margins_of(page), DIRECTIONS, strict=True):
        for (name, relation), (_, *cells) in zip(names_of(table), table.rows, strict=True):
            n = ranked.labels.index(f"{relation}:{direction}")
            assert name == arrow_words(ranked.labels[n])
            for layer, cell in enumerate(cells):
                assert isinstance(cell, Heat)
                assert isinstance(cell.number, Sentence)
                value = ranked.layer_margin.value[layer, n]
                printed += values(cell.number)
                assert printed[-1] == value
                head = ranked.layer_head[layer, n]
                assert cell.number.text.endswith(f"H{head}")
                low = ranked.layer_margin.low[layer, n]
                p = ranked.p_of_all_heads[layer, head, n]
                assert ("top1" in cell.fill) == (p < 0.05 and low > 0)
                assert cell.fill.split()[0] == points_class(100 * value)
    assert len(printed) == tiny.LAYERS * len(ranked.labels)
    (legend,) = every(Steps, group_of(page, "layers-self"))
    assert (legend.low, legend.high) == (
        signed(round(100 * min(printed))), f"{signed(round(100 * max(printed)))} points",
    )  # fmt: skip


def test_the_legend_reaches_from_the_lowest_cell_to_the_highest() -> None:
    (legend,) = margin_legend(np.array([[-0.58, np.nan], [0.1, 0.41]]))
    assert (legend.low, legend.high) == ("−58", "+41 points")
    assert legend.fills == ("z4", "z3", "z2", "z1", "q0", "q1", "q2", "q3", "q4", "q5")
    (below,) = margin_legend(np.array([[-0.3, -0.17]]))
    assert below.fills == ("z3", "z2")
    assert not [*margin_legend(np.array([[np.nan]]))]


def test_long_figures_and_tables_are_cut(
    study: Study, ranked: RelationTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut lies farthest below the rule; subjects and objects are always drawn."""
    monkeypatch.setattr(syntax, "MOST_ROWS", 2)
    monkeypatch.setattr(syntax, "MOST_CELLS", 3 * tiny.LAYERS)
    page = syntax_page(stack_results(study))
    order = np.argsort(-ranked.scores.margin.value)
    wanted = [arrow_words(ranked.labels[n]) for n in order[:2]]
    printed = [row["relation"] for row in drawn(page)]
    assert printed[:2] == wanted
    main = {arrow_words(label) for label in ranked.labels if label.split(":")[0] in syntax.MAIN}
    assert len(main) == 4
    assert {*printed} == {*wanted} | main
    assert len(lines(numbers_of(page))) == len(ranked.labels)
    best = ranked.layer_margin.value.max(0)
    highest = [arrow_words(ranked.labels[n]) for n in np.argsort(-best)[:3]]
    assert {name for table in margins_of(page) for name, _ in names_of(table)} == {*highest}


def test_an_example_is_shown_of_a_claimed_relation_alone(
    study: Study, page: Page, ranked: RelationTests
) -> None:
    """The listed sentence in which the head finds most."""
    assert not ranked.claimed.any()
    assert "example-self" not in {group.id for group in every(Group, page)}
    n = ranked.labels.index("obj:to_head")
    found = stack_results(study)["self"]
    assert example_of(found, ranked) is None
    example = example_of(found, claiming(ranked, n))
    assert example is not None
    layer, head = ranked.head[n].tolist()
    assert isinstance(example.title, Sentence)
    assert isinstance(example.note, Sentence)
    (head_link,) = [part for part in example.title.parts if isinstance(part, Link)]
    assert head_link == (f"L{layer}·H{head}", f"heads/L{layer:02}-H{head:02}.html")
    assert example.note.parts[0] == arrow_words("obj:to_head")
    best = {}
    for index, sentence in study.sentence_data.sentences.items():
        if not sentence.listed:
            continue
        (text,) = sentence.texts.values()
        steps = study.sentence_data.maps["self", index][layer, head].astype(int)
        hits = asked = 0
        for word, above in enumerate(text.heads):
            if text.relations[word] != "obj":
                continue
            weight = {}
            for other in set(text.words) - {-1, word}:
                rows = [i for i, w in enumerate(text.words) if w == word]
                keys = [j for j, w in enumerate(text.words) if w == other]
                weight[other] = (
                    sum(steps[i, j] for i in rows for j in keys) / len(rows) / UINT8_STEPS
                )
            asked += 1
            hits += max(weight, key=lambda w: weight[w]) == above
        best[index] = hits, asked
    most = max(best, key=lambda index: best[index][0])
    (sentence_link,) = [part for part in example.note.parts if isinstance(part, Link)]
    assert sentence_link.text == f"sentence {most + 1}"
    address, _, state = sentence_link.href.partition("#")
    assert address == f"sentences/{most + 1:04d}.html"
    assert state.startswith(f"view=nosink&units=words&at=self&heads={layer}.{head}&q=")
    right, cases = map(in_words, best[most])
    assert example.title.text.endswith(f"is right for {right} of {cases}")


def claiming(tests: RelationTests, *places: int) -> RelationTests:
    """The tests with some relations supported, whatever their numbers."""
    there = np.isin(np.arange(len(tests.labels)), places)
    preference, low = tests.held_out_preference, np.where(there, 0.1, -0.1)
    beyond = preference.difference._replace(low=low)
    return replace(
        tests,
        p=np.where(there, 0.01, 0.9),
        held_out=tests.held_out._replace(margin=tests.held_out.margin._replace(low=low)),
        held_out_preference=preference._replace(difference=beyond, others=np.full(len(there), 100)),
    )


def test_trees_have_the_numbers_of_the_study(study: Study, page: Page) -> None:
    """Of the best head of each layer for dependencies, of all heads together for phrases."""
    found = stack_results(study)["self"]
    dependencies, phrases = every(Plot, group_of(page, "trees-self"))
    of_heads = found.heads("dependency_trees", VIEW, "uas")
    first, other = (found.split(n, "dependency_trees", VIEW, "uas") for n in (0, 1))
    chain = found.split(1, "dependency_trees", VIEW, "chain").at(0, 0)
    for layer, row in enumerate(dependencies.rows.to_dict("records")):
        head = int(first.value[layer].argmax())
        assert row["tree"] == f"L{layer}·H{head}"
        assert (row["score"], row["low"]) == of_heads.at(layer, head)[:2]
        assert row["above_plain_trees"] == (other.low[layer, head] > chain.high)
    joint, of_layers = (
        found.split(1, "phrase_trees", VIEW, "joint"),
        found.layers("phrase_trees", VIEW, "joint"),
    )
    plain = [
        found.split(1, "phrase_trees", VIEW, name).at(0, 0)
        for name in ("right_branching", "left_branching", "balanced")
    ]
    for layer, row in enumerate(phrases.rows.to_dict("records")):
        assert (row["tree"], row["score"]) == (f"L{layer}", of_layers.at(layer).value)
        low = joint.low[layer, 0]
        assert row["above_plain_trees"] == all(low > tree.high for tree in plain)


def test_split_words_are_counted(study: Study, page: Page) -> None:
    words, split = (study.manifest.counts[f"source.{name}"] for name in ("words", "split_words"))
    assert words == sum(map(len, corpus()))
    texts = [plain(text.words) for text in every(Text, page.measured)]
    start = f"Of {words:,} words {split:,} are split into several tokens"
    (sentence,) = [text for text in texts if text.startswith(start)]
    assert "attention inside words" in sentence


def test_a_head_page_has_the_relations_that_it_finds_most(study: Study) -> None:
    """And none of them in the table of all numbers."""
    found = stack_results(study)["self"]
    for made, (layer, head) in zip(
        head_pages(found), np.ndindex(tiny.LAYERS, tiny.HEADS), strict=True
    ):
        above = {}
        for label in LABELS:
            cell = found.heads("relation_accuracy", VIEW, label).at(layer, head)
            if cell.effective >= MIN_EFFECTIVE:
                even = found.uniform("relation_accuracy", VIEW, label).at(layer)
                above[label] = cell.value - even.value
        wanted = sorted(above, key=lambda label: -above[label])[:8]
        assert [row.text for row in made.relations] == [relation_words(x) for x in wanted]
        tests = relation_tests.tests_of_stack(found)
        assert tests is not None
        for row, label in zip(made.relations, wanted, strict=True):
            cell = found.heads("relation_accuracy", VIEW, label).at(layer, head)
            n = tests.labels.index(label) if label in tests.labels else None
            own = n is not None and tuple(tests.head[n]) == (layer, head)
            assert ("family-wise" in row.baseline) == own
            if n is not None:
                assert f"best surface rule ({rule_phrase(tests.rule[n])}): " in row.baseline
            if n is not None and own:
                assert row.supported == bool(tests.claimed[n])
            assert row.value == percent(cell.value)
            assert row.behind == f"{cell.events:,.0f} words"
        assert not [row for row in made.numbers.rows if row.name.startswith("Relation accuracy")]


def rendered(place: Path, inputs: Path, family: str = "bert", **options: str) -> str:
    """The page of a study of some inputs."""
    made = make_study(inputs, tiny.write(family, place / "model"), metrics=METRICS, **options)
    headbook.render(made, place / "site")
    return html_of(place / "site" / "syntax.html")


def test_without_trees_the_page_says_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("The dog sees the bird.\nOld dogs sleep near the house.\n")
    html = rendered(tmp_path, tmp_path / "some.txt", sentence_pages="0")
    assert "--annotator, or CoNLL-U" in text_of(html)
    assert "Not measured here" in text_of(html)
    assert not elements(html, "figure")
    assert not elements(html, "table")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_one_sentence_ranks_nothing(tmp_path: Path, family: str) -> None:
    inputs = treebank.write_trees(tmp_path / "one.conllu", (treebank.TREES[1],))
    html = rendered(tmp_path, inputs, family)
    assert "Not known: no relation has words in at least 10 sentences" in text_of(html)
    assert "nan" not in text_of(html).lower().split()
    assert not elements(html, "table")


def test_a_causal_model_is_asked_for_words_that_came_before(tmp_path: Path) -> None:
    inputs = treebank.write_trees(tmp_path / "trees.conllu", corpus())
    made = make_study(inputs, tiny.write("gpt2", tmp_path / "model"), metrics=METRICS)
    page = syntax_page(stack_results(made))
    assert {
        (line["Relation"], line["from query to key"]) for line in lines(numbers_of(page))
    } == {
        ("obj", DIRECTIONS["to_head"]), ("punct", DIRECTIONS["to_head"]),
        ("det", DIRECTIONS["to_dependent"]),
        ("amod", DIRECTIONS["to_dependent"]), ("nsubj", DIRECTIONS["to_dependent"]),
    }  # fmt: skip
    found = stack_results(made)["self"]
    assert {"det:to_head", "nsubj:to_head", "obj:to_dependent"} <= {*untested(found).masked}
    assert untested(found).seldom == ("vocative",)


def test_cross_attention_has_no_section(tmp_path: Path) -> None:
    inputs = treebank.write_pairs(tmp_path / "pairs.jsonl")
    model = tiny.write("bart", tmp_path / "model")
    options = {"annotator": "embedded", "target_annotator": "embedded", "sentence_pages": "1"}
    page = syntax_page(stack_results(make_study(inputs, model, metrics=METRICS, **options)))
    assert page.absent == ()
    assert not any("cross" in plot.name for plot in every(Plot, page))
    assert plain(page.answer).startswith("Not known: ")


def test_without_the_metrics_the_page_names_them(small_site: Site) -> None:
    text = text_of(html_of(small_site.folder / "syntax.html"))
    for metric in METRICS.split(",")[:4]:
        assert metric in text


def test_the_page_as_written_has_figures_files_and_numbers(
    study: Study, page: Page, tmp_path: Path
) -> None:
    headbook.render(study, tmp_path / "site")
    html = html_of(tmp_path / "site" / "syntax.html")
    assert "Which heads follow grammar?" in text_of(html)
    assert plain(page.answer) in text_of(html)
    table = numbers_of(page)
    for number in every(Number, table):
        assert number.as_text() in text_of(html)
    greyed = [e for e in elements(html, "tr") if e.attributes.get("class") == "weak"]
    assert len(greyed) == len(table.grey)
    assert len(elements(html, "figure")) == 3
    for name in ("syntax-self", "syntax-self-phrase-trees", "syntax-self-dependency-trees"):
        for ending in ("svg", "pdf", "csv"):
            assert (tmp_path / "site" / "figures" / f"{name}.{ending}").is_file()
    index = html_of(tmp_path / "site" / "index.html")
    assert "syntax.html" in [link.attributes["href"] for link in elements(index, "a")]


def test_a_stored_sentence_keeps_its_tree(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "study")
    read = Study.load(tmp_path / "study")
    assert read.sentence_data.sentences == study.sentence_data.sentences
    for index, sentence in read.sentence_data.sentences.items():
        (text,) = sentence.texts.values()
        gold = corpus()[index]
        assert text.heads == tuple(word.head - 1 for word in gold)
        assert text.relations == tuple(word.relation for word in gold)


def test_charts_of_a_metric_offer_the_labels_with_most_observations(encoder_site: Site) -> None:
    from headbook.pages.metrics.figures import MOST_DRAWN, map_data
    from headbook.pages.metrics.heads import head_lead
    from headbook.report.head_numbers import drawn_numbers

    found = encoder_site.results
    metric = all_metrics()["relation_accuracy"]
    assert isinstance(metric, HeadMetric)
    numbers = drawn_numbers(found["self"], metric)
    assert numbers is not None
    choices = head_lead(numbers).choices
    assert choices is not None
    drawn = {*map_data(numbers)["label"]}
    labels = [x for x in LABELS if found["self"].has_value(metric.id, VIEW, x)]
    assert len(drawn) == min(len(labels), MOST_DRAWN)
    assert {option.name for option in choices.labels} == drawn
