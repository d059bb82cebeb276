"""The page of flow, and what sentence pages say of last states."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headbook
import tiny
import treebank
from browser_views import ink_steps
from chosen_results import Fake, fake_results
from headbook.analysis.arrays import effective_number
from headbook.charts.theme import rgba_ramp
from headbook.metrics import all_metrics, flow_metrics
from headbook.pages.flow import FlowPage, flow_page, has_flow, outputs
from headbook.pages.parts.rollout import COLOURS, MOST_TOKENS, sources
from headbook.report.results import stack_results
from headbook.report.wording import percent, unbroken
from headbook.schema import HeadKey, ResidualPoint, SinkView, TokenKey
from headbook.study.sentence_data import StoredText
from headbook.study.study import Study
from html_pages import data_file, elements, html_of, text_of
from html_pages import text as text_of_cell
from sites import make_study

METRICS = "output_norm_share," + ",".join(m.id for m in flow_metrics(all_metrics().values()))
SHARE = HeadKey("output_norm_share", SinkView.RAW, "")


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """Study the trees or the pairs with a tiny model."""

    def of(family: str, metrics: str = METRICS) -> Study:
        folder = tmp_path_factory.mktemp(family)
        pairs = family in tiny.ALL and tiny.ALL[family].pairs
        inputs = treebank.write_input(folder, pairs=pairs)
        return make_study(inputs, tiny.write(family, folder / "model"), metrics=metrics)

    return of


@pytest.fixture(scope="module")
def study(make: Callable[..., Study]) -> Study:
    return make("bert")


def page_of(study: Study) -> FlowPage:
    found = flow_page(stack_results(study))
    assert found is not None
    return found


def text(*pieces: str, special: tuple[int, ...] = ()) -> StoredText:
    """A text of such tokens."""
    n = len(pieces)
    flags = tuple(i in special for i in range(n))
    return StoredText("", pieces, ((0, 0),) * n, flags, (-1,) * n, ("",) * n, 0, generated=False)


def steps(*rows: list[int]) -> Any:
    return np.array(rows, dtype=np.uint8)


def test_the_tables_hold_the_numbers_of_the_study(study: Study) -> None:
    (section,) = page_of(study).sections
    columns = [("mixing_ratio", "mid"), ("rollout_self_measured", "out"), ("rollout_self", "out")]
    for metric, state in columns:
        position = [name for name, _ in columns].index(metric)
        assert section.table is not None
        for layer, line in enumerate(section.table.rows):
            row = study.layers.query(
                f"metric == '{metric}' and label == '{state}/all' and layer == {layer}"
            )
            assert text_of_cell(line.cells[position]) == percent(float(row["value"].iloc[0]))
    assert section.classes is not None
    nouns = next(line for line in section.classes.rows if line.name == "NOUN")
    rows = study.layers.query("metric == 'mixing_ratio' and label == 'mid/NOUN'")
    assert [text_of_cell(cell) for cell in nouns.cells] == [
        percent(value) for value in rows["value"]
    ]


def test_sentences_name_layers_with_least_and_most_and_what_is_left(study: Study) -> None:
    (section,) = page_of(study).sections
    rows = study.layers.query("metric == 'mixing_ratio' and label == 'mid/all'")
    values = rows["value"].to_numpy()
    least, most = int(values.argmin()), int(values.argmax())
    assert f"Context-mixing ratio: {percent(values[least])} (layer {least})" in section.sentences[0]
    assert f"{percent(values[most])} (layer {most})" in section.sentences[0]
    last = study.layers.query("metric == 'rollout_self' and label == 'out/all' and layer == 1")
    assert (
        f"{percent(float(last['value'].iloc[0]))} (one half in each layer)" in section.sentences[-1]
    )


def test_charts_write_shares_in_per_cent_as_tables_do(study: Study) -> None:
    (section,) = page_of(study).sections
    assert section.figures
    for figure in section.figures:
        assert "%</text>" in figure.svg
    assert section.outputs is not None
    assert "%</text>" in section.outputs.figure.svg


def test_function_and_content_words_are_told_apart_by_intervals_alone() -> None:
    def message(function: list[float], content: list[float]) -> tuple[str, ...]:
        column = TokenKey("mixing_ratio", ResidualPoint.MID, None, "all")
        tokens = {
            column: ([0.3, 0.2, 0.25], 0.01),
            column._replace(label="function"): (function, 0.01),
            column._replace(label="content"): (content, 0.01),
        }
        fake = fake_results({SHARE: Fake(np.full((3, 2), np.nan))}, tokens=tokens)
        page = flow_page({"self": fake})
        assert page is not None
        return page.sections[0].sentences

    reported = message([0.5, 0.1, 0.2], [0.2, 0.3, 0.2])
    assert "than content words in one of 3 layers and less in one (95 %" in reported[1]
    everywhere = message([0.5, 0.5, 0.5], [0.2, 0.3, 0.2])
    assert "than content words in all 3 layers (95 %" in everywhere[1]
    assert "No clear difference" in message([0.2, 0.2, 0.2], [0.2, 0.2, 0.2])[1]


@pytest.mark.parametrize(
    ("shares", "count"),
    [([0.25] * 4, 4), ([1, 0, 0], 1), ([0.5, 0.5, 0], 2), ([2, 2], 2), ([math.nan, 1], 1)],
)
def test_effective_heads_are_as_many_as_equal_heads_would_be(
    shares: list[float], count: float
) -> None:
    assert effective_number(np.array(shares)) == pytest.approx(count)


def test_without_any_share_no_number_of_heads() -> None:
    assert math.isnan(effective_number(np.array([0.0, math.nan])))


def test_strongest_and_weakest_are_those_of_all_sentences() -> None:
    """As on the picture and in the files, whatever one half of the sentences has."""
    first, second = [[0.5, 0.3, 0.2]], [[0.1, 0.8, 0.1]]
    found = outputs(fake_results({SHARE: Fake(first, second=second)}))
    assert found is not None
    (line,) = found.table.rows
    _, strongest, first_share, weakest, last_share = map(text_of_cell, line.cells)
    assert (strongest, weakest) == ("L0·H1", "L0·H2")
    assert (first_share, last_share) == (percent(0.55), percent(0.15))
    assert "norm: L0·H1, 55.0" in found.sentences[1]
    assert "smallest: L0·H2, 15.0" in found.sentences[1]


def test_without_values_heads_are_left_out() -> None:
    assert outputs(fake_results({SHARE: Fake(np.full((1, 2), np.nan))})) is None


def test_who_asked_for_none_of_its_metrics_gets_no_page(make: Callable[..., Study]) -> None:
    assert not has_flow(stack_results(make("bert", metrics="sink_share")))


def test_cross_attention_has_heads_and_a_remark(make: Callable[..., Study]) -> None:
    page = page_of(make("bart"))
    assert [s.stack for s in page.sections] == ["encoder", "decoder", "cross"]
    assert [bool(s.table) for s in page.sections] == [True, True, False]
    assert all(s.outputs for s in page.sections)
    assert len([r for r in page.remarks if "cross-attention" in r]) == 3


def test_without_values_rollout_is_with_one_half_only(make: Callable[..., Study]) -> None:
    page = page_of(make("neomme"))
    (section,) = page.sections
    assert section.table is not None
    assert section.table.columns == ("Layer", "own input, one half in each layer")
    assert section.outputs is None
    assert any("'neomme'" in remark for remark in page.remarks)


def test_a_study_from_before_has_no_page(study: Study) -> None:
    old = replace(study, corpus_sums=replace(study.corpus_sums, flows={}, sampled={}))
    assert not has_flow(stack_results(old))


def test_last_states_in_words() -> None:
    found = sources(
        {"half": steps([255, 0, 0], [128, 76, 51], [0, 25, 230])},
        text("[CLS]", "cat", "cat", special=(0,)),
    )
    assert found is not None
    (mixture,) = found.mixtures
    assert mixture.sentences == (
        "Lowest share of own input: “cat” (token 1), 30\u202f% (50\u202f% “[CLS]”, 20\u202f% “cat” "
        "(token 2)).",
        "Highest share of own input: “cat” (token 2), 90\u202f% (10\u202f% “cat” (token 1)).",
    )
    assert [row.name for row in found.table.rows] == ["0 [CLS]", "1 cat", "2 cat"]
    assert [*map(text_of_cell, found.table.rows[0].cells)] == ["100\u202f%", ""]


def test_measured_ratios_come_first_and_pictures_run_to_their_largest_share() -> None:
    half, measured = steps([51, 0], [102, 51]), steps([204, 51], [0, 255])
    found = sources({"half": half, "measured": measured}, text("a", "b"))
    assert found is not None
    assert [each.title for each in found.mixtures] == [
        "measured context-mixing ratios",
        "one half in each layer",
    ]
    for mixture, shares, most in zip(found.mixtures, (measured, half), (255, 102), strict=True):
        drawn = ink_steps(mixture.image, rgba_ramp(COLOURS))
        np.testing.assert_array_equal(drawn, np.rint(shares / most * (COLOURS - 1)))
        assert f"{round(100 * most / 255)}\u202f%, the largest share here" in mixture.note


def test_long_sentences_show_their_first_tokens() -> None:
    n = MOST_TOKENS + 5
    found = sources({"half": np.eye(n, dtype=np.uint8) * 255}, text(*"x" * n))
    assert found is not None
    assert (len(found.table.rows), found.cut) == (MOST_TOKENS, 5)
    assert len(found.mixtures[0].rows) == MOST_TOKENS


def test_a_sentence_of_special_tokens_says_nothing_in_words() -> None:
    found = sources({"half": steps([255])}, text("</s>", special=(0,)))
    assert found is not None
    assert found.mixtures[0].sentences == ()


def test_nothing_measured_nothing_shown() -> None:
    assert sources({}, text("a")) is None


@pytest.mark.slow
def test_the_site_shows_both(study: Study, tmp_path: Path) -> None:
    headbook.render(study, tmp_path / "site")
    html = html_of(tmp_path / "site" / "flow.html")
    (section,) = page_of(study).sections
    assert all(unbroken(sentence) in text_of(html) for sentence in section.sentences)
    sentence = html_of(tmp_path / "site" / "sentences" / "0001.html")
    pictures = [e for e in elements(sentence, "image") if e.attributes["href"].startswith("data:")]
    assert len(pictures) == 2
    assert any("data-carried" in e.attributes for e in elements(sentence, "p"))
    _, data = data_file(tmp_path / "site" / "data" / "sentences" / "0001.js")
    assert "norms" in data["self"]
    shares = html_of(tmp_path / "site" / "metrics" / "output_norm_share.html")
    assert not elements(shares, "table")  # a layer's heads together say nothing
    index = html_of(tmp_path / "site" / "index.html")
    assert [a.attributes["href"] for a in elements(index, "a")].count("flow.html") == 2
