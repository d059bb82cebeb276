"""The page of head outputs: its numbers are the study's, drawn and listed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
from block_parts import every
from chosen_results import Fake, fake_results
from headbook.charts import Plot
from headbook.charts.patterns import (
    distance_plot,
    similarity_of_gaps,
    similarity_plot,
)
from headbook.pages.outputs import has_outputs, outputs_page
from headbook.pages.parts.blocks import Page, Table
from headbook.report.facts.outputs import OUTPUTS, REPETITION, ROWS, SENTENCE
from headbook.report.results import StackResults, stack_results
from headbook.results.number import Number
from headbook.results.sentence import Link
from headbook.schema import CONTEXT_DISTANCES, GAP_TOKENS, HeadKey, SinkView
from headbook.study.study import Study
from sites import Site, make_study

Make = Callable[..., Study]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Make:
    """Return a study of a tiny model on few texts."""
    inputs = tmp_path_factory.mktemp("outputs") / "texts.txt"
    words = ["the", "old", "cat", "sleeps", "on", "a", "warm", "mat", "and", "nobody", "sees", "it"]
    lines = (" ".join(words[n % 5 : n % 5 + 4 + n % 4]) + "." for n in range(60))
    inputs.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def of(family: str, **options: Any) -> Study:
        return make_study(inputs, tiny_folder(family), importance="off", **options)

    return of


def asked(page: Page) -> list[str]:
    return [question.id for question in page.questions]


def curve_of(figure: Plot, results: StackResults, key: HeadKey, series: str) -> None:
    """Check that a line of a figure has the numbers of the study's layers."""
    drawn = figure.rows.loc[figure.rows["series"] == series, "value"]
    np.testing.assert_allclose(drawn.to_numpy(float), results.layers(*key).value)


def test_passages_answer_with_sentences(make: Make) -> None:
    results = stack_results(make("bert", pack=40, sentence_pages="0"))
    own, page = results["self"], outputs_page(results)
    assert own.has_value(*SENTENCE)
    assert "sentence" in page.title
    assert {"distance", "alike", "repetition", "ends"} <= {*asked(page)}
    lead, *_ = every(Plot, page)
    curve_of(lead, own, SENTENCE, "model")
    figures = {question.id: every(Plot, question) for question in page.questions}
    curve_of(figures["repetition"][0], own, REPETITION, "model")
    curve_of(figures["alike"][0], own, OUTPUTS, "head outputs")
    rows = {row[0]: every(Number, row) for table in every(Table, page) for row in table.rows}
    assert [n.value for n in rows["within a sentence, more alike by"]] == [
        *own.layers(*SENTENCE).value
    ]
    assert any("F1, 1 token off" in table.columns for table in every(Table, page))


def test_single_sentences_answer_with_similarity(make: Make) -> None:
    results = stack_results(make("gpt2", sentence_pages="0"))
    page = outputs_page(results)
    assert "alike" in page.title
    assert "alike" not in asked(page)
    assert "ends" not in asked(page)
    assert any("--pack" in text for text in page.absent)
    curve_of(every(Plot, page)[0], results["self"], OUTPUTS, "head outputs")


def test_similarity_by_distance_has_a_panel_a_layer_and_a_line_a_side(make: Make) -> None:
    results = stack_results(make("bert", pack=40, sentence_pages="0"))["self"]
    plot = distance_plot(results, "name", "caption")
    assert plot is not None
    assert plot.rows.groupby("panel")["series"].nunique().to_dict() == {
        f"Layer {layer}": 2 for layer in range(tiny.LAYERS)
    }
    for layer in range(tiny.LAYERS):
        of_layer = plot.rows[plot.rows["panel"] == f"Layer {layer}"]
        for side in ("within", "across"):
            labels = [label for label in CONTEXT_DISTANCES if label.startswith(side)]
            keys = (HeadKey(OUTPUTS.metric, SinkView.RAW, label) for label in labels)
            expected = [results.layers(*key).value[layer] for key in keys]
            drawn = of_layer.loc[of_layer["series"] == side, "value"].to_numpy(float)
            np.testing.assert_allclose(drawn, expected)


def test_similarity_across_a_gap_is_a_mean_of_pairs() -> None:
    rng = np.random.default_rng(1)
    cosines = rng.uniform(-1, 1, (30, 30))
    gaps = similarity_of_gaps(cosines)
    for before in range(29):
        pairs = [
            cosines[i, j]
            for i in range(before + 1) for j in range(before + 1, 30)
            if before - i < GAP_TOKENS and j - before <= GAP_TOKENS
        ]  # fmt: skip
        assert gaps[before] == pytest.approx(np.mean(pairs))
    assert np.isnan(gaps[-1])


def test_the_curve_of_a_passage_has_its_ends_and_dips(make: Make) -> None:
    results = stack_results(make("bert", pack=40, sentence_pages="3"))
    page = outputs_page(results)
    (plot,) = (plot for plot in every(Plot, page) if plot.name == "outputs-gaps")
    data = results["self"].study.sentence_data
    index = next(i for (_, i), marks in data.ends.items() if len(marks))
    text = data.sentences[index].texts[results["self"].stack.queries]
    (link,) = (link for link in every(Link, page) if "matrix=similarity" in link.href)
    assert link.href.startswith(f"sentences/{data.sentences[index].number:04}.html#at=self&heads=")
    drawn = [note for note in plot.marks if isinstance(note, str) and 'class="bl"' in note]
    assert len(drawn) == len(text.parts) - 1
    assert len(plot.rows) == sum(not special for special in text.special)


def test_a_study_without_outputs_has_no_page(decoder_site: Site) -> None:
    assert not has_outputs(decoder_site.results)


def test_all_lines_of_a_curve_are_in_its_file(encoder_site: Site) -> None:
    """What is drawn is exported: both lines, and no third."""
    own = encoder_site.results["self"]
    plot = similarity_plot(own, "name", "caption")
    lines = [curve for curve in plot.curves if curve.style.startswith("ln")]
    assert len(lines) == plot.rows["series"].nunique() == 2
    for series, key in (("head outputs", OUTPUTS), ("attention rows", ROWS)):
        values = plot.rows.loc[plot.rows["series"] == series, "value"]
        np.testing.assert_allclose(values, own.layers(*key).value)


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (6, 12), (32, 32)])
def test_charts_of_any_number_of_heads_are_small(n_layers: int, n_heads: int) -> None:
    draw = np.random.default_rng(3).random
    shape = n_layers, n_heads
    numbers = {OUTPUTS: Fake(draw(shape)), ROWS: Fake(draw(shape))}
    numbers |= {OUTPUTS._replace(label=label): Fake(draw(shape)) for label in CONTEXT_DISTANCES[1:]}
    found = fake_results(numbers)
    panels = distance_plot(found, "a", "b")
    assert panels is not None
    for plot in (similarity_plot(found, "c", "d"), panels):
        svg = re.sub(r'href="[^"]*"', f'href="{"?" * 32}"', plot.svg)
        assert len(svg) < 90_000
