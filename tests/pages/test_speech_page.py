"""The page of parts of speech: the study's numbers, set against uniform attention."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import torch

import headbook
import tiny
import treebank
from chosen_results import Fake, fake_results
from headbook.charts import Figure, tag_heads
from headbook.metrics import all_metrics
from headbook.metrics.base import AttentionMetric
from headbook.pages.head_parts.sections import tag_rows
from headbook.pages.parts.table import DASH, NumberCell
from headbook.pages.speech import (
    Direction,
    DirectionSection,
    SpeechPage,
    over_chance,
    speech_page,
    tag_share,
)
from headbook.report.findings.finding import head_link
from headbook.report.head_types import sink_remark
from headbook.report.results import StackResults, stack_results
from headbook.report.wording import FEW_WORDS, number
from headbook.schema import UPOS, HeadKey, SinkView
from headbook.study.sentence_data import HeadName
from headbook.study.study import Study
from html_pages import elements, html_of, lines, text, text_of
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
RARE = 3  # interjections in the corpus
LOOKED_AT, LOOKING = Direction
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


def section_of(page: SpeechPage, direction: Direction) -> DirectionSection:
    """What a page's first stack has of a direction."""
    (found,) = [w for w in page.sections[0].directions if w.direction == direction]
    return found


def code(name: str) -> str:
    """The tag that follows its name: ``nouns (NOUN)``; any other stands alone."""
    return name.rpartition("(")[2].rstrip(")")


def rows_of(page: SpeechPage, direction: Direction) -> dict[str, dict[str, Any]]:
    """The table of a page's first stack, by tag."""
    return {code(row["Tag"]): row for row in lines(section_of(page, direction).heads)}


def layers_of(page: SpeechPage, direction: Direction) -> dict[str, list[tuple[str, ...]]]:
    """Ratio and share of each tag in each layer, with the class of their cell."""
    return {
        code(row.name): [cell_texts(cell) for cell in row.cells]
        for row in section_of(page, direction).layers.rows
    }


def cell_texts(cell: Any) -> tuple[str, ...]:
    ratio, _, part = cell.parts
    return ratio, part.text, cell.style


def value(table: pd.DataFrame, metric: str, tag: str, column: str = "value", **where: Any) -> float:
    """One number of a study's table, in the view that pages show."""
    rows = table[(table["metric"] == metric) & (table["label"] == tag)]
    for name, wanted in ({"view": VIEWS[metric]} | where).items():
        rows = rows[rows[name] == wanted]
    (found,) = rows[column]
    return float(found)


def n_words(tag: str) -> int:
    return sum(word.tag == tag for sentence in corpus() for word in sentence)


def test_tags_stand_in_the_order_of_their_frequency_in_the_corpus(page: SpeechPage) -> None:
    """Those that no word has are left out."""
    counts = Counter(word.tag for sentence in corpus() for word in sentence)
    total = sum(counts.values())
    for direction in Direction:
        rows = rows_of(page, direction)
        assert [row["words"] for row in rows.values()] == [str(n) for _, n in counts.most_common()]
        for tag, row in rows.items():
            assert row["words"] == str(counts[tag])
            assert row["of all words"] == number(counts[tag] / total, share=True)


def test_layers_have_the_numbers_of_the_study(study: Study, page: SpeechPage) -> None:
    for tag, row in layers_of(page, LOOKED_AT).items():
        for layer, cell in enumerate(row):
            ratio = value(study.layers, "pos_received_ratio", tag, layer=layer)
            part = value(study.layers, "pos_received", tag, layer=layer)
            assert cell[:2] == (number(ratio), number(part, share=True))
    for tag, row in layers_of(page, LOOKING).items():
        for layer, cell in enumerate(row):
            part = value(study.layers, "pos_given", tag, layer=layer)
            even = value(study.controls, "pos_given", tag, layer=layer)
            assert cell[:2] == (number(part / even), number(part, share=True))


def drawn(figure: Figure) -> Iterator[dict[str, Any]]:
    """The cells of a map."""
    (rows,) = figure.spec["datasets"].values()
    yield from rows


def test_maps_have_the_numbers_of_the_study(study: Study, page: SpeechPage) -> None:
    by_layer, by_head = page.sections[0].figures
    n_tags = len(rows_of(page, LOOKED_AT))
    cells = [*drawn(by_layer)]
    assert len(cells) == 2 * n_tags * tiny.LAYERS
    for cell in cells:
        where = {"layer": cell["layer"]}
        if cell["way"] == "attention received":
            ratio = value(study.layers, "pos_received_ratio", cell["tag"], **where)
            low = value(study.layers, "pos_received_ratio", cell["tag"], "low", **where)
        else:
            even = value(study.controls, "pos_given", cell["tag"], **where)
            ratio = value(study.layers, "pos_given", cell["tag"], **where) / even
            low = value(study.layers, "pos_given", cell["tag"], "low", **where) / even
        assert cell["ratio"] == pytest.approx(ratio, abs=1e-5)
        drawn_low = math.nan if cell["low"] is None else cell["low"]
        assert drawn_low == pytest.approx(low, abs=1e-5, nan_ok=True)
    cells = [*drawn(by_head)]
    assert len(cells) == n_tags * tiny.LAYERS * tiny.HEADS
    for cell in cells:
        where = {"layer": cell["layer"], "head": cell["number"]}
        assert cell["head"] == f"L{cell['layer']}·H{cell['number']}"
        for column, name in (("ratio", "value"), ("low", "low"), ("high", "high")):
            wanted = value(study.heads, "pos_received_ratio", cell["tag"], name, **where)
            displayed = math.nan if cell[column] is None else cell[column]
            assert displayed == pytest.approx(wanted, abs=1e-5, nan_ok=True)
        wanted = value(study.heads, "pos_received", cell["tag"], **where)
        assert cell["share"] == pytest.approx(wanted, abs=1e-5)
        assert cell["thin"] == (n_words(cell["tag"]) < FEW_WORDS)


def test_a_colour_is_the_nearest_eighth_of_an_octave(page: SpeechPage) -> None:
    for figure in page.sections[0].figures:
        for cell in drawn(figure):
            octaves = min(max(np.log2(cell["ratio"]), -2), 2)
            assert abs(cell["octaves"] - octaves) <= 1 / 16 + 1e-4


def halves(
    found: StackResults, direction: Direction, tag: str, half: int, least: int = 0
) -> dict[tuple[int, int], float]:
    """Times chance of each head on half of the sentences, where there are enough observations."""
    metric = "pos_received_ratio" if direction is LOOKED_AT else "pos_given"
    numbers = found.split(half, metric, SinkView(VIEWS[metric]), tag)
    even = found.split(half, "pos_given", SinkView.NOSINK, tag, of="uniform")
    ratios = {}
    for layer in range(tiny.LAYERS):
        for head in range(tiny.HEADS):
            cell = numbers.at(layer, head)
            chance = 1 if direction is LOOKED_AT else even.at(layer).value
            if min(cell.events, n_words(tag)) >= least:
                ratios[layer, head] = cell.value / chance
    return ratios


@pytest.mark.parametrize("direction", Direction)
def test_a_head_is_chosen_on_one_half_and_reported_on_the_other(
    study: Study, page: SpeechPage, direction: Direction
) -> None:
    found, named = stack_results(study)["self"], 0
    for tag, row in rows_of(page, direction).items():
        first, other = halves(found, direction, tag, 0, FEW_WORDS), halves(found, direction, tag, 1)
        if not first:
            assert row["head"] == DASH
            continue
        named += 1
        layer, head = max(first, key=lambda place: first[place])
        link = head_link(HeadName("self", layer, head))
        best = number(first[layer, head])
        tied = [f"L{x}·H{y}" for (x, y), ratio in sorted(first.items()) if number(ratio) == best]
        assert (row["head"] == link) == (len(tied) == 1)
        if len(tied) > 1:
            assert row["head"].parts[0] == link
            assert set(re.findall(r"L\d+·H\d+", row["head"].parts[1])) == {*tied} - {link.text}
        assert row["ratio to uniform attention"].text == number(other[layer, head])
        metric = "pos_received" if direction is LOOKED_AT else "pos_given"
        part = found.split(1, metric, SinkView(VIEWS[metric]), tag).at(layer, head)
        assert row["share"] == NumberCell.of(part, all_metrics()[metric])
        if direction is LOOKED_AT:
            title = "of all attention"
            beside = found.split(1, metric, SinkView.RAW, tag).at(layer, head)
        else:
            title = "uniform attention"
            beside = found.split(1, metric, SinkView.NOSINK, tag, of="uniform").at(layer)
        assert row[title] == number(beside.value, share=True)
    assert named >= 3


def test_heads_above_twice_chance_are_counted(study: Study, page: SpeechPage) -> None:
    for direction in Direction:
        for tag, row in rows_of(page, direction).items():
            above = 0
            for layer in range(tiny.LAYERS):
                even = value(study.controls, "pos_given", tag, layer=layer)
                for head in range(tiny.HEADS):
                    where = {"layer": layer, "head": head}
                    if direction is LOOKED_AT:
                        low = value(study.heads, "pos_received_ratio", tag, "low", **where)
                    else:
                        low = value(study.heads, "pos_given", tag, "low", **where) / even
                    above += low > 2
            all_heads = tiny.LAYERS * tiny.HEADS
            assert row["heads above 2×"] == (
                "–" if n_words(tag) < FEW_WORDS else f"{above} of {all_heads}"
            )


def test_a_tag_of_few_words_is_greyed_and_has_no_head(page: SpeechPage) -> None:
    for direction in Direction:
        for tag, row in layers_of(page, direction).items():
            assert {style.endswith("thin") for *_, style in row} == {tag == "INTJ"}
        assert rows_of(page, direction)["INTJ"]["words"] == str(RARE)
        assert rows_of(page, direction)["INTJ"]["head"] == DASH
        assert rows_of(page, direction)["NOUN"]["head"] != DASH


@pytest.mark.parametrize("direction", Direction)
def test_uniform_attention_is_chance(study: Study, direction: Direction) -> None:
    found = stack_results(study)["self"]
    for tag in WORDS:
        ratio = over_chance(direction, found.uniform, found.uniform, tag).value
        np.testing.assert_allclose(ratio, 1, rtol=1e-12)


@pytest.mark.parametrize("direction", Direction)
def test_shares_of_all_tags_are_the_whole_where_every_word_has_one(
    study: Study, direction: Direction
) -> None:
    """And so the shares, weighed by chance, average to 1 times chance."""
    found = stack_results(study)["self"]
    total = sum(tag_share(direction, found.heads, tag).value for tag in UPOS)
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


def test_a_picture_draws_every_cell_and_each_colour_as_one_shape(page: SpeechPage) -> None:
    for figure in page.sections[0].figures:
        elements = ET.fromstring(figure.svg).iter()  # noqa: S314
        shapes = [e for e in elements if e.get("fill", "")[:1] in {"#", "r"}]
        panels = len({cell["way"] for cell in drawn(figure)})
        assert sum(e.attrib["d"].count("M") for e in shapes) == len([*drawn(figure)])
        colours = {(c["way"], c["octaves"], c["thin"]) for c in drawn(figure)}
        assert len(shapes) <= len(colours)
        assert panels <= 2


def test_cross_attention_looks_from_the_target_at_the_source(pairs: Callable[..., Study]) -> None:
    study = pairs(annotator="embedded", target_annotator="embedded")
    page = speech_page(stack_results(study))
    assert page.remarks == ()
    assert [section.stack for section in page.sections] == ["encoder", "decoder", "cross"]
    for direction in page.sections[2].directions:
        assert all(row.cells for row in direction.layers.rows)
    sides = {"encoder": ("source",) * 2, "decoder": ("target",) * 2, "cross": ("source", "target")}
    for section in page.sections:
        for direction, side in zip(section.directions, sides[section.stack], strict=True):
            for row in lines(direction.heads):
                count = study.manifest.counts[f"{side}.tag.{code(row['Tag'])}"]
                assert row["words"] == str(count)
    assert sum(len(section.figures) for section in page.sections) <= 8


def test_without_tags_on_one_side_the_other_is_shown(pairs: Callable[..., Study]) -> None:
    page = speech_page(stack_results(pairs(annotator="embedded")))
    directions = {
        section.stack: [direction.direction for direction in section.directions]
        for section in page.sections
    }
    assert directions == {"encoder": [*Direction], "cross": [Direction.LOOKED_AT]}
    (remark,) = page.remarks
    assert "target texts" in remark
    assert "--target-annotator" in remark


def test_without_tags_the_page_says_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("The dog sees the bird.\nOld dogs sleep near the house.\n")
    model = tiny.write("bert", tmp_path / "model")
    metrics = f"attention_distance,{METRICS}"
    study = make_study(tmp_path / "some.txt", model, metrics=metrics, sentence_pages="0")
    headbook.render(study, tmp_path / "site")
    html = html_of(tmp_path / "site" / "speech.html")
    assert "--annotator, or CoNLL-U" in text_of(html)
    assert not elements(html, "table") + elements(html, "figure") + elements(html, "h2")
    assert not list((tmp_path / "site" / "figures").glob("speech*"))


def test_without_the_metrics_the_page_names_them(small_site: Site) -> None:
    html = html_of(small_site.folder / "speech.html")
    for metric in METRICS.split(","):
        assert metric in text_of(html)
    assert not elements(html, "table")


def test_maps_of_parts_of_speech_are_files_for_papers(encoder_site: Site) -> None:
    for name in ("speech-self-layers", "speech-self-heads"):
        assert (encoder_site.folder / "figures" / f"{name}.svg").read_bytes().startswith(b"<svg")
        assert (encoder_site.folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_page_as_written_has_the_tables_and_leads_to_heads(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "speech.html")
    page = speech_page(stack_results(encoder_site.study))
    assert len(elements(html, "table")) == 4
    for direction in page.sections[0].directions:
        for row in (*direction.heads.rows, *direction.layers.rows):
            assert all(text(cell) in text_of(html) for cell in row.cells)
    index = html_of(encoder_site.folder / "index.html")
    assert [link.attributes["href"] for link in elements(index, "a")].count("speech.html") == 2


@pytest.mark.parametrize(("n_layers", "n_heads"), [(6, 12), (30, 9), (48, 25)])
def test_names_of_layers_do_not_touch_in_the_map_of_all_heads(n_layers: int, n_heads: int) -> None:
    """A letter of 9.5 pixels is about 6 wide."""
    places = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    rows = pd.DataFrame(places, columns=["layer", "number"]).assign(
        head=[f"L{layer}·H{head}" for layer, head in places], tag="NOUN", ratio=1.0, low=0.9,
        high=1.1, share=0.1, words=50, thin=False,
    )  # fmt: skip
    svg = tag_heads("speech", "", rows, tags=["NOUN"], n_heads=n_heads).svg
    name = r'translate\(([\d.]+),10\)">.{0,30}?<tspan x="0" dy="11.5">([^<]+)<'
    texts = re.findall(name, svg)
    assert len(texts) > 2
    places_of = sorted((float(x), 6 * len(text)) for x, text in texts)
    gaps = [right - left - (one + two) / 2 for (left, one), (right, two) in pairwise(places_of)]
    assert min(gaps) > 0
