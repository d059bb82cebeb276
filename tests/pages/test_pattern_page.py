"""The page of patterns: every head in its class, with the study's numbers, and what follows."""

import base64
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import headbook
import tiny
import treebank
from bare_model import Bare, given
from headbook.metrics.patterns import pattern
from headbook.metrics.patterns.block_ratio import segments
from headbook.pages.patterns import (
    SHARES,
    PatternsPage,
    mean_map_pictures,
    mean_maps_of_sample,
    patterns_page,
)
from headbook.report.head_types import head_types
from headbook.report.results import stack_results
from headbook.report.wording import number
from headbook.schema import SinkView
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from layers import Marks, views_of
from naive import NAIVE_SAMPLED
from naive_ratios import ratio
from single_head import Viewed
from sites import make_study

METRICS = (
    "pattern,block_ratio,variability,attention_to,type_shares,confidence,sink_share,"
    "sink_norm_share,relative_entropy"
)
Make = Callable[..., Study]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Study some texts, by default the trees, with a tiny model."""

    def of(family: str, *lines: str, metrics: str = METRICS) -> Study:
        folder = tmp_path_factory.mktemp(family)
        if lines:
            inputs = folder / "texts.txt"
            inputs.write_text("\n".join(lines), encoding="utf-8")
        elif family == "bart":
            inputs = treebank.write_pairs(folder / "pairs.jsonl")
        else:
            inputs = treebank.write_trees(folder / "trees.conllu")
        model = tiny.write(family, folder / "model")
        return make_study(inputs, model, metrics=metrics, sentence_pages="0")

    return of


@pytest.fixture(scope="module")
def study(make: Make) -> Study:
    return make("bert")


@pytest.fixture(scope="module")
def page(study: Study) -> PatternsPage:
    found = patterns_page(stack_results(study))
    assert found is not None
    return found


def values(study: Study, metric: str, label: str) -> dict[tuple[int, int], float]:
    """A number of every head among all keys, from the study's table."""
    rows = study.heads.query(f"metric == '{metric}' and view == 'raw' and label == '{label}'")
    places = zip(rows["layer"], rows["head"], strict=True)
    return dict(zip(places, rows["value"], strict=True))


def test_every_head_stands_with_those_of_its_type(study: Study, page: PatternsPage) -> None:
    (section,) = page.sections
    found = {t.name: group.label for group in section.groups for t in group.heads}
    types = head_types(stack_results(study)["self"])
    assert found == {f"L{x}·H{y}": kind.family for (x, y), kind in types.items() if kind}
    assert len(set(found.values())) > 1
    assert sum(group.total for group in section.groups) == tiny.LAYERS * tiny.HEADS


def test_the_table_has_the_numbers_of_the_study(study: Study, page: PatternsPage) -> None:
    rows = {row.name: row for row in page.sections[0].table.rows}
    for index, label in enumerate(SHARES):
        for (layer, head), share in values(study, "pattern", label).items():
            written = rows[f"L{layer}·H{head}"].cells[1 + index]
            assert written == number(share, share=label in {"vertical", "diagonal", "rest"})
    assert page.sections[0].even[:4] == ("1.00", "0.00", "0.00", "100.0\u202f%")


def test_bars_have_the_numbers_of_the_study_and_add_up(study: Study, page: PatternsPage) -> None:
    (figure,) = page.sections[0].figures
    (cells,) = figure.spec["datasets"].values()
    totals = dict.fromkeys(values(study, "pattern", "rest"), 0.0)
    for cell in cells:
        share = values(study, "pattern", cell["part"])[cell["layer"], cell["number"]]
        assert cell["share"] == pytest.approx(share, abs=1e-4)
        totals[cell["layer"], cell["number"]] += cell["share"]
    assert list(totals.values()) == pytest.approx([1.0] * len(totals), abs=3e-4)


def viewed(model: Path, *lines: str) -> Iterator[tuple[int, int, Viewed]]:
    """Layer, head and what the head does in each sentence."""
    bare = Bare.load(model)
    texts = [treebank.Gold(word, "_", -1, "_") for line in lines for word in line.split()]
    trees = treebank.TREES if not lines else [tuple(texts)]
    for tree in trees:
        for _, layer, head, attention in bare.looks(given(tree)):
            yield layer, head, Viewed(attention, "raw")


def test_pictures_show_the_mean_attention_by_position(study: Study, tmp_path: Path) -> None:
    """Special tokens have no row; the colours are the square root of the weight."""
    model = tiny.write("bert", tmp_path / "model")
    total, there = np.zeros((tiny.LAYERS, tiny.HEADS, 10, 10)), np.zeros((10, 10))
    for layer, head, attention in viewed(model):
        for row in attention.rows:
            for key, weight in row.weights.items():
                if max(row.query, key) < 10:
                    total[layer, head, row.query, key] += weight
                    there[row.query, key] += layer == head == 0
    own = stack_results(study)["self"]
    for (layer, head), mean in mean_maps_of_sample(own).items():
        expected = total[layer, head][1:] / there[1:]
        np.testing.assert_allclose(mean, expected, atol=1e-9)
        packed = mean_map_pictures(own)[layer, head].partition(",")[2]
        picture = Image.open(io.BytesIO(base64.b64decode(packed)))
        assert picture.size == (10, 9)


@pytest.mark.parametrize(("tokens", "rows"), [(64, 64), (65, 0)])
def test_sentences_of_more_than_64_tokens_take_no_part(tokens: int, rows: int) -> None:
    even = torch.full((2, tokens, tokens), 1 / tokens)
    layer = views_of(even, Marks(tokens, special=[0]))[SinkView.RAW]
    finished = pattern.finish(pattern.measure(layer).numpy(), pattern.about(layer.scope).numpy())
    assert (finished.denominator == rows).all()
    assert finished.numerator[..., 0] == pytest.approx(rows)


def test_blocks_are_told_by_separators_in_the_middle(make: Make, tmp_path: Path) -> None:
    line = "the dog sees [SEP] old dogs sleep near the house [SEP] water"
    study = make("bert", line, "the red bird sings", line, metrics="block_ratio")
    model = tiny.write("bert", tmp_path / "model")
    for layer, head, attention in viewed(model, line):
        (part,) = NAIVE_SAMPLED["block_ratio"]([attention])
        wanted = ratio([part[""]], (0, math.inf)).value
        assert values(study, "block_ratio", "")[layer, head] == pytest.approx(wanted, abs=1e-9)
    assert set(study.heads["n_sentences"]) == {2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[ a b ]", "0000"),
        ("[ a ] b ]", "00011"),
        ("[ a ] ] b ]", "000011"),
        ("] a ] b", "0001"),
        ("a ] [ b c ] d", "0001112"),
    ],
)
def test_a_separator_closes_its_sentence_and_the_next_word_opens_one(
    text: str, expected: str
) -> None:
    """``]`` is a separator, ``[`` another special token, which stays with what is before it."""
    pieces = text.split()
    separator = np.array([piece == "]" for piece in pieces])
    special = np.array([piece in "[]" for piece in pieces])
    assert "".join(map(str, segments(separator, special))) == expected


def test_across_two_texts_there_are_no_offsets(make: Make) -> None:
    study = make("bart")
    page = patterns_page(stack_results(study))
    assert page is not None
    assert [section.stack for section in page.sections] == ["encoder", "decoder", "cross"]
    cross = page.sections[2]
    assert cross.figures == ()
    _, *heads = cross.table.rows
    assert all(row.cells[3:7] == ("–",) * 4 for row in heads)
    assert all(row.cells[1] != "–" for row in heads)


@pytest.mark.slow
def test_a_study_without_patterns_has_no_page_and_no_link(make: Make, tmp_path: Path) -> None:
    for metrics in ("sink_share", "pattern"):
        headbook.render(make("bert", metrics=metrics), tmp_path / metrics)
        pages = {page.name: html_of(page) for page in (tmp_path / metrics).glob("*.html")}
        there = metrics == "pattern"
        assert ("patterns.html" in pages) == there
        for html in pages.values():
            linked = [a for a in elements(html, "a") if "patterns.html" in a.attributes["href"]]
            assert bool(linked) == there
    assert not elements(pages["patterns.html"], "img")  # nor pictures, without their weights
    assert "Heads by type" in text_of(pages["patterns.html"])
