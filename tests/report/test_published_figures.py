"""Published numbers: what is computed for each, on pages, and in their document."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import headbook
import tiny
import treebank
from bare_model import Bare, given
from chosen_results import Fake, fake_results
from code_blocks import ROOT, read
from headbook.metrics import all_metrics
from headbook.metrics.base import CircuitMetric
from headbook.pages.head import head_pages
from headbook.pages.methods import published_tables
from headbook.report.published import (
    PublishedNumber,
    all_published,
    published_numbers,
    published_of_head,
)
from headbook.report.results import StackResults, stack_results
from headbook.results.number import Number
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.study import Study
from html_pages import data_file, elements, html_of, text_of
from single_head import HeadAttention, Viewed
from sites import Site, make_study
from treebank import Gold

pytestmark = pytest.mark.slow

SIZE = 12  # layers and heads of the published models
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
        metrics = {x.key.metric for x in all_published() if name in x.models.split()}
        metrics -= {m for m in metrics if isinstance(all_metrics()[m], CircuitMetric)}
        return Made(model, make_study(inputs, model, metrics=[*metrics], sentence_pages="0"))

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


def numbers_of(results: StackResults, name: str) -> dict[PublishedNumber, Number | str]:
    """Published numbers of a model with this name, with those of a study."""
    manifest = results.study.manifest
    named = replace(manifest, model=replace(manifest.model, name=name))
    return published_numbers(StackResults(replace(results.study, manifest=named), results.stack))


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased"])
def test_every_number_has_one_of_the_study(made: Callable[[str], Made], name: str) -> None:
    numbers = numbers_of(made(name).results, name)
    of_model = [x for x in all_published() if name in x.models.split()]
    assert [*numbers] == of_model
    for published, number in numbers.items():
        assert isinstance(number, str) == published.heads.startswith("mean")
        if isinstance(number, Number):
            assert (number.row.table, dict(number.row.key)["metric"]) == (
                "heads", published.key.metric,
            )  # fmt: skip
            if published.head:
                assert (number.place("layer"), number.place("head")) == published.head


def test_a_head_has_its_own_published_numbers(made: Callable[[str], Made]) -> None:
    results = made("gpt2").results
    manifest = results.study.manifest
    named = replace(manifest, model=replace(manifest.model, name="gpt2"))
    of_model = StackResults(replace(results.study, manifest=named), results.stack)
    for place, metrics in (((5, 1), ["attention_distance", "attention_entropy"]), ((0, 0), [])):
        numbers = [*published_of_head(of_model, HeadName("self", *place))]
        assert [number.key.metric for number, _ in numbers] == metrics
    page = next(p for p in head_pages(of_model) if p.title.endswith("L5·H1"))
    assert [line.text.count("14.2 tokens") for line in page.published] == [1, 0]


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
    number = all_published()[0].of_study(study.results)
    assert number == f"{100 * expected:.1f}\u202f%"


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
    (accuracy,) = [x for x in all_published() if x.figure.startswith("det: ")]
    value = accuracy.of_study(study.results)
    assert isinstance(value, Number)
    assert value.value == pytest.approx(np.mean(hits))


NEXT = HeadKey("attention_to", SinkView.RAW, "next")


def published(heads: str) -> PublishedNumber:
    return PublishedNumber("gpt2", "A paper", "a figure", "1 %", "table 1", heads, NEXT)


def test_numbers_of_heads_by_hand() -> None:
    study = fake_results({NEXT: Fake([[0.2, 0.6], [0.9, 0.51], [0.1, math.nan]])})
    assert published("mean").of_study(study) == "46.2\u202f%"
    assert published("mean of layers 0–1").of_study(study) == "55.2\u202f%"
    for heads, place, value in (("highest", (1, 0), 0.9), ("L0·H1", (0, 1), 0.6)):
        number = published(heads).of_study(study)
        assert isinstance(number, Number)
        assert number.value == pytest.approx(value)
        assert (number.place("layer"), number.place("head")) == place


def test_what_a_study_lacks_is_missing_and_never_nothing() -> None:
    study = fake_results({NEXT: Fake([[0.2, 0.6], [0.1, math.nan]])})
    for heads in ("L2·H0", "L0·H2", "L1·H1", "mean of layers 1–2"):
        assert published(heads).of_study(study) == ""
    other = published("mean")._replace(key=NEXT._replace(label="previous"))
    assert other.of_study(study) == ""
    assert numbers_of(study, "my/gpt2") == {}


def plain(text: str) -> str:
    """A text with plain blanks between its words, without links of Markdown."""
    return " ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).split())


def test_the_document_has_the_numbers_of_the_program() -> None:
    """Figure, value and place in the paper, in the section of the source."""
    document = plain(read(ROOT / "docs" / "published-results.md"))
    for number in all_published():
        assert number.source in document
        row = f" | {number.value} | {number.place} | "
        (following,) = {*document.split(f"| {number.figure}")[1:2]}
        assert row in following[:400], number.figure


def test_columns_and_models_are_those_of_the_file() -> None:
    assert len(all_published()) > 15
    for number in all_published():
        assert number.key.label in all_metrics()[number.key.metric].labels or not number.key.label
        assert number.head or number.heads.startswith(("mean", "highest"))


def test_sites_of_other_models_have_no_section(any_site: Site) -> None:
    html = html_of(any_site.folder / "methods.html")
    ids = {e.attributes["id"] for e in elements(html, "section") if "id" in e.attributes}
    assert {"rules", "metrics", "run"} <= ids
    assert "published" not in ids


def test_a_site_of_the_model_itself_has_the_numbers(small_site: Site, tmp_path: Path) -> None:
    """With a link to the paper; the search leads to them."""
    study = small_site.study
    model = replace(study.manifest.model, name="gpt2")
    named = replace(study, manifest=replace(study.manifest, model=model))
    headbook.render(named, tmp_path / "s")
    html = html_of(tmp_path / "s" / "methods.html")
    assert "published" in {e.attributes.get("id") for e in elements(html, "section")}
    assert "https://arxiv.org/abs/1906.04284" in {
        e.attributes.get("href") for e in elements(html, "a")
    }
    searched = data_file(tmp_path / "s" / "data" / "find.js")[1]["questions"]
    assert "methods.html#published" in {address for _, address, *_ in searched}
    ((source, table),) = published_tables(stack_results(named))
    assert source in text_of(html)
    assert all(str(row[0]) in text_of(html) for row in table.rows)
