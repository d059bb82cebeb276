"""Published figures: what is computed for each, on the methods page, and in their document."""

import math
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import headbook
import tiny
import treebank
from ablation_results import ablation_results, around
from bare_model import Bare, given
from chosen_results import Fake, fake_results
from code_blocks import ROOT, blocks, commands, read
from headbook.metrics import all_metrics
from headbook.metrics.base import CircuitMetric
from headbook.pages.methods import computed_from, methods_page
from headbook.pages.parts.table import words_cell
from headbook.report.published import (
    BERT,
    CLARK,
    GPT2,
    GROUPS,
    NAME_MOVERS,
    RELATIONS,
    VIG,
    PaperFigures,
    PublishedFigure,
)
from headbook.report.quantities import (
    AblationQuantity,
    AtHead,
    AtOffset,
    AtReplaced,
    Correlation,
    HeadsAbove,
    MeanOver,
    RankReplaced,
    RemovableShare,
    TagsAbove,
)
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import MISSING
from headbook.schema import HeadKey, SinkView
from headbook.study.ablation_tables import HEAD_IMPORTANCE, PRUNING
from headbook.study.study import Study
from html_pages import data_file, elements, html_of, lines, text_of
from single_head import HeadAttention, Viewed
from sites import Site, make_study
from treebank import Gold

pytestmark = pytest.mark.slow

SIZE = 12  # layers and heads of the published models
NAMES = {GPT2: "gpt2", BERT: "bert-base-uncased"}
FIGURES = [
    (group, figure)
    for group in GROUPS
    for figure in group.figures
    if not isinstance(figure.quantity, AblationQuantity)
]
# Figures of the document that no study computes, by how their last cell begins.
ELSEWHERE = ("not computed", "what the command prints")
DOCUMENT = read(ROOT / "docs" / "published-results.md")
GARDEN = tuple(
    Gold(form, tag, int(head), relation)
    for form, tag, head, relation in map(str.split, (
        "The DET 3 det", "dog's NOUN 3 nmod:poss", "house NOUN 5 nsubj:pass", "was AUX 5 aux:pass",
        "seen VERB 0 root", "in ADP 8 case", "the DET 8 det", "garden NOUN 5 obl",
        "sees VERB 5 conj", "dogs NOUN 9 obj",
    ))
)  # fmt: skip
TREES = (*treebank.TREES, GARDEN, (*GARDEN[:-1], Gold("birds", "NOUN", 9, "obj")))


class Made(NamedTuple):
    """A study and the model that it is of."""

    model: Path
    study: Study

    @property
    def results(self) -> StackResults:
        """Of its only stack."""
        return stack_results(self.study)["self"]


SIZES = {
    "gpt2": {"n_embd": 48, "n_layer": SIZE, "n_head": SIZE},
    "bert-base-uncased": {
        "hidden_size": 48, "num_hidden_layers": SIZE, "num_attention_heads": SIZE
    },
}  # fmt: skip


def metrics_of(group: PaperFigures) -> set[str]:
    """The metrics that the figures of a group are computed from, without those of circuits."""
    found = {column.metric for figure in group.figures for column in figure.quantity.columns}
    return {name for name in found if not isinstance(all_metrics()[name], CircuitMetric)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Tiny models with as many layers and heads as the published ones, on a few trees."""

    @cache
    def of(name: str) -> Made:
        folder, family = tmp_path_factory.mktemp(name), name.partition("-")[0]
        small = tiny.ALL[family]
        with pytest.MonkeyPatch.context() as patch:
            large = replace(small, options={**small.options, **SIZES[name]})
            patch.setitem(tiny.ALL, family, large)
            model = tiny.write(family, folder / name, head=name == "gpt2")
        inputs = treebank.write_trees(folder / "trees.conllu", TREES)
        metrics = ",".join(
            {m for group in GROUPS if name in group.names for m in metrics_of(group)}
        )
        return Made(model, make_study(inputs, model, metrics=metrics, sentence_pages="0"))

    return of


def looks(model: Path, tree: tuple[Gold, ...]) -> Iterator[tuple[int, int, HeadAttention]]:
    """Layer, head and what the head of a bare model does in one sentence."""
    bare = Bare.load(model)
    (text,) = bare.texts(given(tree))
    n, causal = len(text.tokens), model.name == "gpt2"
    seen = [[j for j in range(n) if j <= i or not causal] for i in range(n)]
    maps = bare.run([[t.id for t in text.tokens]], output_attentions=True).attentions
    for layer, heads in enumerate(maps):
        for head, weights in enumerate(heads[0].tolist()):
            yield layer, head, HeadAttention(weights, seen, text, text, causal, crosses=False)


@pytest.mark.parametrize(("group", "figure"), FIGURES, ids=lambda each: getattr(each, "what", ""))
def test_every_figure_has_a_number(
    made: Callable[[str], Made], group: PaperFigures, figure: PublishedFigure
) -> None:
    number = figure.quantity.number(made(NAMES[group.names]).results)
    assert math.isfinite(number.value)
    assert number.sentences > 1
    assert figure.quantity.written(number.value) != MISSING


@pytest.mark.usefixtures("of_any_number")
def test_the_mean_attention_to_the_first_token_is_that_of_the_bare_model(
    made: Callable[[str], Made],
) -> None:
    """Every head's own mean over tokens, then the mean over heads."""
    study = made("gpt2")
    first: dict[tuple[int, int], list[float]] = {}
    for tree in TREES:
        for layer, head, attention in looks(study.model, tree):
            weights = [row.weights[0] for row in Viewed(attention, "raw").rows]
            first.setdefault((layer, head), []).extend(weights)
    expected = np.mean([np.mean(weights) for weights in first.values()])
    estimate = VIG.figures[0].quantity.number(study.results)
    assert estimate.value == pytest.approx(expected, rel=1e-9)
    assert estimate.low < estimate.value < estimate.high


def test_correlations_are_those_of_scipy_over_the_numbers_of_the_heads(
    made: Callable[[str], Made],
) -> None:
    study = made("gpt2")
    heads = study.study.heads.set_index(["metric", "view", "label"]).sort_index()["value"]
    distance = heads["attention_distance", "nosink", ""]
    others = [heads["attention_entropy", "renorm", ""]]
    others += [heads["dependency_alignment", "nosink", "either"]]
    assert len(distance) == SIZE * SIZE
    correlations = [f for f in VIG.figures if isinstance(f.quantity, Correlation)]
    for figure, other in zip(correlations, others, strict=True):
        value = figure.quantity.number(study.results).value
        assert value == pytest.approx(stats.pearsonr(distance, other).statistic, rel=1e-9)


def test_a_relation_is_found_by_the_head_of_the_paper_as_often_as_by_hand(
    made: Callable[[str], Made],
) -> None:
    """Determiners whose strongest other word is their head, in L7·H10 of a bare model."""
    study = made("bert-base-uncased")
    hits = []
    for tree in TREES:
        for layer, head, attention in looks(study.model, tree):
            if (layer, head) == (7, 10):
                words = Viewed(attention, "nosink").between_words()
                for number, word in enumerate(given(tree).words):
                    if word.relation == "det":
                        others = {w: a for w, a in words[number].items() if w != number}
                        hits.append(max(others, key=lambda w: others[w]) == word.head)
    (figure,) = [f for f in RELATIONS.figures if f.what == "det: accuracy, dependent → head"]
    assert figure.quantity.number(study.results).value == pytest.approx(np.mean(hits))


def test_an_offset_finds_as_many_words_as_stand_there(made: Callable[[str], Made]) -> None:
    """Of the determiners, counted by hand; the best of ten offsets."""
    away = [
        word.head - number
        for tree in TREES
        for number, word in enumerate(given(tree).words)
        if word.relation == "det" and word.head is not None
    ]
    shares = [away.count(o) / len(away) for o in range(-5, 6) if o]
    quantity = AtOffset(HeadKey("relation_accuracy", SinkView.NOSINK, "det:to_head"))
    estimate = quantity.number(made("bert-base-uncased").results)
    assert estimate.value == pytest.approx(max(shares))


def test_aggregates_over_heads_by_hand() -> None:
    column = HeadKey("attention_to", SinkView.RAW, "next")
    of = fake_results({column: Fake([[0.2, 0.6], [0.9, 0.51], [0.1, 0.3]])})
    assert HeadsAbove(column, 0.5).number(of).value == 3
    assert MeanOver(column, (0, 1)).number(of).value == pytest.approx((0.2 + 0.6 + 0.9 + 0.51) / 4)
    assert AtHead(column, 1, 0).number(of).value == pytest.approx(0.9)
    received = {"NOUN": [[0.1, 0.9]], "DET": [[0.4, 0.5]], "ADJ": [[0.1, 0.1]]}
    tags = {HeadKey("pos_received", SinkView.RAW, tag): Fake(v) for tag, v in received.items()}
    assert TagsAbove("pos_received", SinkView.RAW, 1.5).number(fake_results(tags)).value == 1


def test_what_a_study_lacks_is_missing_and_never_nothing() -> None:
    column = HeadKey("attention_to", SinkView.RAW, "next")
    of = fake_results({column: Fake([[0.2, 0.6]])})
    for figure in (f for _, f in FIGURES if column not in f.quantity.columns):
        estimate = figure.quantity.number(of)
        assert math.isnan(estimate.value)
        assert figure.quantity.written(estimate.value) == MISSING
    for quantity in (AtHead(column, 1, 0), AtHead(column, 0, 2), MeanOver(column, (0, 1))):
        assert math.isnan(quantity.number(of).value)
    even = HeadKey("attention_to", SinkView.RAW, "previous")
    flat = fake_results({column: Fake([[0.2, 0.6]]), even: Fake([[0.5, 0.5]])})
    assert math.isnan(Correlation(column, even).number(flat).value)


def test_figures_about_replaced_heads_are_those_of_the_tables() -> None:
    """Of the right head, label and target; nothing where not all heads were replaced."""
    of = fake_results({HeadKey("attention_to", SinkView.RAW, "next"): Fake([[0.2, 0.6], [0.1, 0]])})
    rows = [
        ("self", layer, head, metric, "mean", "logit", label, value, value - 0.1, value + 0.1,
         40, 400, "exact", *[math.nan] * 4, "")
        for metric, label, values in (
            ("ablation_effect", "", (-0.1, -0.5, 0.2, 0.0)), ("direct_effect", "", (0, 0, 0, 0.3)),
            ("self_repair", "", (0.9,) * 4), ("self_repair", "top_2_percent", (0.1, 0.2, 0.3, 0.4)),
        )
        for (layer, head), value in zip(((0, 0), (0, 1), (1, 0), (1, 1)), values, strict=True)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=[*HEAD_IMPORTANCE.columns])
    of.study.__dict__["importance"] = table
    assert RankReplaced(0, 1).number(of).value == 1
    assert RankReplaced(1, 0).number(of).value == 4
    assert RankReplaced(1, 0).written(4.0) == "4"
    estimate = AtReplaced("self_repair", 1, 0, "top_2_percent").number(of)
    assert (estimate.value, estimate.sentences) == (0.3, 40)
    assert estimate.low == pytest.approx(0.2)
    assert AtReplaced("direct_effect", 1, 1).number(of).value == 0.3
    of.study.__dict__["importance"] = table[table["head"] == 0]
    assert math.isnan(RankReplaced(1, 0).number(of).value)
    assert math.isnan(AtReplaced("direct_effect", 1, 1).number(of).value)


def test_what_can_go_is_the_share_of_its_order() -> None:
    of = fake_results({HeadKey("attention_to", SinkView.RAW, "next"): Fake([[0.2, 0.6]])})
    rows = [
        ("self", order, "mean", "loss", share, 0.0, 0.0, high)
        for order, highs in (("gradient_importance", (0, 0.01, 0.5)), ("type", (0, 0.001, 0.001)))
        for share, high in zip((0.0, 0.5, 1.0), highs, strict=True)
    ]
    of.study.__dict__["pruning"] = pd.DataFrame(rows, columns=[*PRUNING.columns])
    assert math.isnan(RemovableShare("gradient_importance").number(of).value)
    sums = replace(of.study.corpus_sums, ablation=ablation_results(around(0.0, 0.05)))
    of.study.__dict__["corpus_sums"] = sums
    assert RemovableShare("gradient_importance").number(of).value == 0.5
    assert RemovableShare("type").number(of).value == 1
    assert RemovableShare("type").written(1.0) == "100.0\u202f%"


def plain(text: str) -> str:
    """A text with plain blanks between its words, without links of Markdown."""
    return " ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).split())


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: str(group.title))
def test_the_document_has_the_figures_of_the_program(group: PaperFigures) -> None:
    """Source, figures and differences word by word; a command that measures what they need."""
    section = DOCUMENT.partition(f"\n## {group.title}\n")[2].partition("\n## ")[0]
    assert f"Published by {group.source}." in plain(section)
    table = [line for line in section.splitlines() if line.startswith("| ")][1:]
    rows = [[plain(cell) for cell in line.strip("| ").split(" | ")] for line in table]
    assert [row for row in rows if not row[-1].startswith(ELSEWHERE)] == [
        [
            plain(f"{figure.what}. {figure.differs}" if figure.differs else figure.what),
            plain(figure.value),
            plain(figure.where),
            plain(words_cell(*computed_from(figure, set())).text),
        ]
        for figure in group.figures
    ]
    found = section.rpartition("What differs from the paper:")[2].split("\n- ")[1:]
    assert [*map(plain, found)] == [*map(plain, group.differs)]
    (command,) = commands(blocks(section, "sh")[0][1])
    given_ = shlex.split(command)
    assert given_[given_.index("--model") + 1] in group.names
    if needed := metrics_of(group):
        assert set(given_[given_.index("--metrics") + 1].split(",")) == needed
    elif any(figure.quantity.columns for figure in group.figures):
        assert "--circuits" not in given_  # on, unless it is turned off
    else:
        assert given_[given_.index("--importance") + 1] == "full"


def test_every_label_of_a_figure_is_one_of_its_metric() -> None:
    columns = [c for _, figure in FIGURES for c in figure.quantity.columns]
    assert len(columns) > 20
    assert all(column.label in all_metrics()[column.metric].labels for column in columns)


def published(of: StackResults, name: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables on the methods page of a model with this name, by title."""
    manifest = of.study.manifest
    named = replace(manifest, model=replace(manifest.model, name=name))
    found = stack_results(replace(of.study, manifest=named))
    return {each.title: lines(each.table) for each in methods_page(found, ()).published}


@pytest.mark.parametrize("name", sorted(CLARK.names))
def test_only_figures_with_a_value_stand_on_the_page_of_their_model(name: str) -> None:
    column = HeadKey("attention_to", SinkView.RAW, "next")
    of = fake_results({column: Fake([[0.7, 0.6]])})
    ((title, (row,)),) = published(of, name).items()
    assert title == CLARK.title
    assert row["Figure"].text == "Heads that give most of their attention to the next token"
    assert (row["published"], row["this study"].text) == ("5", "2")
    assert published(of, "my/gpt2") == published(of, "gpt2") == {}


def test_sites_of_other_models_have_no_section(any_site: Site) -> None:
    html = html_of(any_site.folder / "methods.html")
    ids = {e.attributes["id"] for e in elements(html, "h2") if "id" in e.attributes}
    assert {"rules", "metrics", "run"} <= ids
    assert "published" not in ids


def test_every_figure_of_the_model_itself_has_its_number(made: Callable[[str], Made]) -> None:
    found = published(made("gpt2").results, "gpt2")
    for group, observed in ((VIG, "sentences"), (NAME_MOVERS, "token types")):
        for figure, row in zip(group.figures, found[group.title], strict=True):
            number, own = figure.quantity.number(made("gpt2").results), row["this study"]
            assert own.text == figure.quantity.written(number.value)
            assert bool(own.interval) == math.isfinite(number.low)
            assert own.note == f"{number.sentences} {observed}"


def test_a_site_of_the_model_itself_has_the_section(small_site: Site, tmp_path: Path) -> None:
    """With a link to the paper and what differs; the search leads to it."""
    study = small_site.study
    model = replace(study.manifest.model, name="bert-base-uncased")
    headbook.render(replace(study, manifest=replace(study.manifest, model=model)), tmp_path / "s")
    html = html_of(tmp_path / "s" / "methods.html")
    assert "published" in {e.attributes.get("id") for e in elements(html, "h2")}
    links = {e.attributes.get("href") for e in elements(html, "a")}
    assert "https://arxiv.org/abs/1906.04341" in links
    text = plain(text_of(html))
    assert all(plain(each) in text for each in CLARK.differs)
    assert RELATIONS.title not in text
    found = data_file(tmp_path / "s" / "data" / "find.js")[1]["pages"]
    assert "methods.html#published" in {address for _, address, *_ in found}
