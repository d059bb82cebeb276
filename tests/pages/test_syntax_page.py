"""The page of syntax: the study's numbers, each head against the best surface rule."""

import copy
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

import headbook
import tiny
import treebank
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.attention.word_pairs import LABELS
from headbook.metrics import all_metrics
from headbook.pages.head import found_relations, head_pages
from headbook.pages.heads import heads_page
from headbook.pages.index import functions
from headbook.pages.parts.table import NumberCell
from headbook.pages.syntax import SyntaxPage, syntax_page
from headbook.report import relation_tests
from headbook.report.claims.relations import relation_rows
from headbook.report.head_facts import head_facts
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import points_text, relation_words
from headbook.report.results import stack_results
from headbook.report.wording import DIRECTIONS, count_text, number, percent, rule_phrase
from headbook.report.wording import number_word as in_words
from headbook.schema import SinkView
from headbook.study.sentence_data import UINT8_STEPS
from headbook.study.study import Study
from html_pages import elements, html_of, lines, text, text_of
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
def page(study: Study) -> SyntaxPage:
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


def label_of(row: dict[str, Any]) -> str:
    """The relation and direction of a row as tables have them."""
    return f"{row['Relation']}:{DIRECTION[text(row['from query to key'])]}"


def test_every_row_has_the_numbers_of_the_study(study: Study, page: SyntaxPage) -> None:
    """Head and rule are those that find most in one half; numbers are the other's."""
    found, sentences = stack_results(study)["self"], annotated(study)
    report = half(sentences, 1)
    assert page.sections[0].relations is not None
    rows = lines(page.sections[0].relations.table)
    assert len(rows) == 10
    for row in rows:
        label = label_of(row)
        (layer, head), rule = chosen(sentences, label)
        assert row["head"] == (f"L{layer}·H{head}", f"heads/L{layer:02}-H{head:02}.html")
        accuracy = found.split(1, "relation_accuracy", VIEW, label).at(layer, head)
        assert row["accuracy"] == NumberCell.of(accuracy, all_metrics()["relation_accuracy"])
        words = sum(len([*s.cases(label)]) for s in report)
        assert row["words"] == str(words) == str(int(accuracy.events))
        at = sum(rule_hits(s, label, rule) for s in report) / words
        assert row["best surface rule"] == rule_phrase(rule)
        assert row["its accuracy"] == number(at, share=True)
        assert row["difference (points)"].text == points_text(accuracy.value - at)
        wrong = ratio(where_wrong(sentences, label, (layer, head), rule), (0, 1))
        assert row["where the rule is wrong"].text == number(wrong.value, share=True)
        others = n_others(report, label)
        inside, outside = preference(report, [1] * len(report), label, (layer, head))
        shares = f"{number(inside, share=True)}, {number(outside, share=True)}"
        if others < 30:
            shares = f"no comparison possible ({count_text(others, 'other word')})"
        assert row["right class, in the relation and elsewhere"].startswith(shares)
        even = found.split(1, "relation_accuracy", VIEW, label, of="uniform").at(layer)
        assert row["uniform attention"] == number(even.value, share=True)
        if found.has_value("relation_accuracy_far", VIEW, label):
            far = found.split(1, "relation_accuracy_far", VIEW, label).at(layer, head)
            assert row["accuracy at distance ≥ 3"] == NumberCell.of(
                far, all_metrics()["relation_accuracy_far"]
            )
        else:
            assert row["accuracy at distance ≥ 3"].text == "–"


def test_rows_are_sorted_by_margin_and_bold_where_supported(
    page: SyntaxPage, ranked: RelationTests
) -> None:
    assert page.sections[0].relations is not None
    order = sorted(range(len(ranked.labels)), key=lambda n: -ranked.margin.value[n])
    table = page.sections[0].relations.table
    for row, line, n in zip(table.rows, lines(table), order, strict=True):
        assert ranked.labels[n] == label_of(line)
        sure = ranked.p[n] < 0.05 and ranked.margin.low[n] > 0 and ranked.preference.clear[n]
        assert row.style == ("sure" if sure else "weak")
        assert ('class="dot"' in line["chart"].svg) == sure


def test_pages_agree_on_what_heads_are_shown_to_find(study: Study, ranked: RelationTests) -> None:
    """Questions, list of heads, overview and head pages follow the rule of syntax.

    Every other relation is given a small p, of those every other one a margin below 0, and to one
    of the rest no preference for the right class of words.
    """
    n = np.arange(len(ranked.labels))
    low = np.where(n % 4 == 0, 0.1, -0.1)
    beyond = ranked.preference.difference._replace(low=np.where(n == 4, -0.1, 0.1))
    sure = replace(
        ranked,
        p=np.where(n % 2 == 0, 0.01, 0.2),
        margin=ranked.margin._replace(low=low),
        preference=ranked.preference._replace(difference=beyond, others=np.full(len(n), 100)),
    )
    whole = copy.copy(stack_results(study)["self"])
    object.__setattr__(whole, "_made", {relation_tests.tests_of_stack: sure})
    found = {"self": whole}
    (section,) = syntax_page(found).sections
    assert section.relations is not None
    table = section.relations.table
    rows = {
        label_of(line): (line["head"].text, row.style == "sure")
        for line, row in zip(lines(table), table.rows, strict=True)
    }
    assert [rows[label][1] for label in sure.labels] == ((n % 4 == 0) & (n != 4)).tolist()
    heads = heads_page(found)
    assert heads is not None
    asked = {parse_qs(q.view)["sort"][0].partition("/")[2]: q for q in heads.questions}
    for label in rows.keys() & asked.keys():
        (named_head,) = asked[label].heads
        assert (named_head.head.text, named_head.supported) == rows[label]
        weak = "not clearly above" in named_head.behind or "no more than" in named_head.behind
        assert weak == (not named_head.supported)
        assert ("family-wise" in named_head.behind) == named_head.supported
    assert rows.keys() & asked.keys()
    by_words = {relation_words(label): row for label, row in rows.items()}
    functions_of = {f.text: f for f in functions(found["self"]) if f.text in by_words}
    assert functions_of
    for words, function in functions_of.items():
        assert function.supported == by_words[words][1]
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
    """Of both halves; against plain loops over the words."""
    sentences, found = annotated(study), stack_results(study)["self"]
    rows = [*relation_rows(found)]
    assert all({*row} == COLUMNS for row in rows)
    by_key = {(r["claim"], r["label"], r["split"], r["layer"], r["head"]): r for r in rows}
    assert len(by_key) == len(rows)
    for n, label in enumerate(ranked.labels):
        head, rule = chosen(sentences, label)
        for split, which in (("choice", 0), ("held_out", 1)):
            row = by_key["relation", label, split, *head]
            part = half(sentences, which)
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


def test_the_verdict_counts_relations_with_a_small_p(
    page: SyntaxPage, ranked: RelationTests
) -> None:
    names = {label.rpartition(":")[0] for label in ranked.labels}
    beats = (ranked.p < 0.05) & (ranked.margin.low > 0)
    small = {x.rpartition(":")[0] for x, b in zip(ranked.labels, beats, strict=True) if b}
    assert page.sections[0].relations is not None
    wins = ", a head beats " if small else " does a head beat "
    assert page.sections[0].relations.verdict.startswith(
        f"In {in_words(len(small))} of {len(names)} relations{wins}"
    )


def test_a_relation_that_occurs_twice_is_named_and_not_ranked(page: SyntaxPage) -> None:
    counts = Counter(word.relation for words in corpus() for word in words)
    assert counts["vocative"] == RARE
    assert page.sections[0].relations is not None
    assert "vocative" not in {row.name for row in page.sections[0].relations.table.rows}
    assert page.sections[0].relations.left_out == "both directions: vocative"


def test_the_map_has_the_margins_of_the_best_heads_of_layers(
    page: SyntaxPage, ranked: RelationTests
) -> None:
    assert page.sections[0].relations is not None
    figure = page.sections[0].relations.figure
    assert figure is not None
    (cells,) = figure.spec["datasets"].values()
    assert len(cells) == tiny.LAYERS * len(ranked.labels)
    for cell in cells:
        n = ranked.labels.index(f"{cell['relation']}:{DIRECTION[cell['way']]}")
        layer = cell["layer"]
        assert cell["margin"] == pytest.approx(ranked.layer_margin.value[layer, n], abs=1e-4)
        assert cell["head"] == f"L{layer}·H{ranked.layer_head[layer, n]}"
        low = ranked.layer_margin.low[layer, n]
        p = ranked.p_of_all_heads[layer, ranked.layer_head[layer, n], n]
        assert cell["supported"] == (p < 0.05 and low > 0)


def test_the_example_is_the_listed_sentence_in_which_the_head_finds_most(
    study: Study, page: SyntaxPage
) -> None:
    assert page.sections[0].relations is not None
    example = page.sections[0].relations.example
    assert example is not None
    layer, head = (int(part[1:]) for part in example.head.split("·"))
    best = {}
    for index, sentence in study.sentence_data.sentences.items():
        if not sentence.listed:
            continue
        (text,) = sentence.texts.values()
        steps = study.sentence_data.maps["self", index][layer, head].astype(int)
        found = asked = 0
        for word, above in enumerate(text.heads):
            if text.relations[word] != example.relation:
                continue
            attentions, looked = (
                (word, above) if DIRECTION[example.direction] == "to_head" else (above, word)
            )
            weight = {}
            for other in set(text.words) - {-1, attentions}:
                rows = [i for i, w in enumerate(text.words) if w == attentions]
                keys = [j for j, w in enumerate(text.words) if w == other]
                weight[other] = (
                    sum(steps[i, j] for i in rows for j in keys) / len(rows) / UINT8_STEPS
                )
            asked += 1
            found += max(weight, key=lambda w: weight[w]) == looked
        best[index] = found, asked
    most = max(best, key=lambda index: best[index][0])
    assert example.sentence == most + 1
    address, _, state = example.sentence_href.partition("#")
    assert address == f"sentences/{example.sentence:04d}.html"
    assert state.startswith(f"view=nosink&units=words&at=self&heads={layer}.{head}&q=")
    assert (example.found, example.asked) == best[most]


def test_trees_have_the_numbers_of_the_study(study: Study, page: SyntaxPage) -> None:
    found = stack_results(study)["self"]
    phrases, dependencies = page.sections[0].trees
    for table, own in ((phrases, "f1"), (dependencies, "uas")):
        metric = all_metrics()[table.metric]
        first, other = (found.split(n, table.metric, VIEW, own) for n in (0, 1))
        for layer, row in enumerate(lines(table.table)):
            head = int(first.value[layer].argmax())
            assert row["best head"].text == f"L{layer}·H{head}"
            assert row["its score"] == NumberCell.of(other.at(layer, head), metric)
        for name, cell in table.baselines:
            label = name.replace("-", "_")
            assert cell == NumberCell.of(found.split(1, table.metric, VIEW, label).at(0, 0), metric)
    joint = found.split(1, "phrase_trees", VIEW, "joint")
    for layer, row in enumerate(lines(phrases.table)):
        value = NumberCell.of(joint.at(layer, 0), all_metrics()["phrase_trees"])
        assert row["all heads, mean attention"] == value
    assert dependencies.table.columns == ("Layer", "best head", "its score")


def test_pieces_are_counted_and_their_heads_are_chosen_on_one_half(
    study: Study, page: SyntaxPage
) -> None:
    pieces, counts = page.sections[0].pieces, study.manifest.counts
    assert pieces is not None
    words, split = counts["source.words"], counts["source.split_words"]
    assert words == sum(map(len, corpus()))
    assert (pieces.words, pieces.split) == (f"{words:,}", f"{split:,}")
    assert pieces.share == number(split / words, share=True)
    first, other = (
        stack_results(study)["self"].split(n, "attention_to", SinkView.RAW, "rest_of_word")
        for n in (0, 1)
    )
    places = [(a, b) for a in range(tiny.LAYERS) for b in range(tiny.HEADS)]
    order = sorted(places, key=lambda place: -first.value[place])
    assert pieces.heads is not None
    for row, place in zip(lines(pieces.heads), order, strict=False):
        assert row["Head"].text == f"L{place[0]}·H{place[1]}"
        assert row["rest of word"] == NumberCell.of(other.at(*place), all_metrics()["attention_to"])


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
                cell = tests.accuracy.at(n)
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
    assert not elements(html, "figure")
    assert "table" not in {e.tag for e in elements(html)} or "Words and subword tokens" in text_of(
        html
    )
    assert not {"relations", "trees"} & {
        name for e in elements(html, "table") for name in e.attributes["class"].split()
    }


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_one_sentence_ranks_nothing(tmp_path: Path, family: str) -> None:
    inputs = treebank.write_trees(tmp_path / "one.conllu", (treebank.TREES[1],))
    html = rendered(tmp_path, inputs, family)
    assert "No relation is ranked" in text_of(html)
    assert "nan" not in text_of(html).split()
    assert not elements(html, "figure")


def test_a_causal_model_is_asked_for_words_that_came_before(tmp_path: Path) -> None:
    inputs = treebank.write_trees(tmp_path / "trees.conllu", corpus())
    made = make_study(inputs, tiny.write("gpt2", tmp_path / "model"), metrics=METRICS)
    relations = syntax_page(stack_results(made)).sections[0].relations
    assert relations is not None
    assert {
        (row.name, text(row.cells[0])) for row in relations.table.rows
    } == {
        ("obj", DIRECTIONS["to_head"]), ("punct", DIRECTIONS["to_head"]),
        ("det", DIRECTIONS["to_dependent"]),
        ("amod", DIRECTIONS["to_dependent"]), ("nsubj", DIRECTIONS["to_dependent"]),
    }  # fmt: skip
    assert relations.example is not None


def test_cross_attention_has_no_section(tmp_path: Path) -> None:
    inputs = treebank.write_pairs(tmp_path / "pairs.jsonl")
    model = tiny.write("bart", tmp_path / "model")
    options = {"annotator": "embedded", "target_annotator": "embedded", "sentence_pages": "1"}
    page = syntax_page(stack_results(make_study(inputs, model, metrics=METRICS, **options)))
    assert [section.stack for section in page.sections] == ["encoder", "decoder"]
    assert page.remarks == ()
    assert all(section.relations and section.trees for section in page.sections)


def test_without_the_metrics_the_page_names_them(small_site: Site) -> None:
    text = text_of(html_of(small_site.folder / "syntax.html"))
    for metric in METRICS.split(",")[:4]:
        assert metric in text


def test_the_page_as_written_has_the_tables_and_leads_to_heads(
    study: Study, page: SyntaxPage, tmp_path: Path
) -> None:
    headbook.render(study, tmp_path / "site")
    html = html_of(tmp_path / "site" / "syntax.html")
    assert page.sections[0].relations is not None
    table = page.sections[0].relations.table
    for row in lines(table):
        assert row["accuracy"].text in text_of(html)
        assert (tmp_path / "site" / row["head"].href).is_file()
    greyed = [e for e in elements(html, "tr") if e.attributes.get("class") == "weak"]
    assert len(greyed) == sum(row.style == "weak" for row in table.rows)
    assert len(elements(html, "figure")) == 3
    assert (tmp_path / "site" / "figures" / "syntax-self-layers.pdf").is_file()
    index = html_of(tmp_path / "site" / "index.html")
    assert [link.attributes["href"] for link in elements(index, "a")].count("syntax.html") == 2


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
    from headbook.pages.metric import metric_pages
    from headbook.pages.metrics.figures import MOST_DRAWN
    from headbook.pages.metrics.heads import HeadSection

    found = stack_results(encoder_site.study)
    metric = all_metrics()["relation_accuracy"]
    (made,) = metric_pages(found, [metric])
    (section,) = made.sections
    assert isinstance(section, HeadSection)
    (cells,) = section.figure.spec["datasets"].values()
    labels = [x for x in LABELS if found["self"].has_value(metric.id, VIEW, x)]
    assert len({cell["label"] for cell in cells}) == min(len(labels), MOST_DRAWN)
    assert {name for _, name in section.labels} == {cell["label"] for cell in cells}
