"""The page on circuits and the section on what heads write, on sites with chosen results."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chosen_results import Fake, fake_results
from circuits import circuit_results, head_rows, pair_rows, small_study, towards_results
from headbook.pages.circuits import CircuitsPage, circuits_page
from headbook.pages.head_parts.writes import missing_text, writes_section
from headbook.pages.parts.page import plain_text
from headbook.report.answers.circuit_rules import feeds, has_circuits
from headbook.report.answers.circuits import random_walk
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, stack_results
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.site.sites import StudySite
from headbook.site.writer import page_writer
from headbook.study.circuits import CircuitResults
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from sites import Site, data_of


@pytest.fixture(scope="module")
def html(circuit_site: Site) -> str:
    return html_of(circuit_site.folder / "circuits.html")


def with_circuits(study: Study, circuits: CircuitResults) -> dict[str, StackResults]:
    return stack_results(replace(study, circuits=circuits))


def test_the_page_shows_the_circuit_copying_and_writing(html: str) -> None:
    text = text_of(html).replace("\u202f", " ")
    for words in (
        "An induction circuit: L0·H0 attends to the previous token, and L1·H1 uses what it writes",
        "Without L0·H0 in its keys, the induction score of L1·H1",
        "One of 8 heads copies the token that it reads; one lowers the logit",
        "One of 8 heads promotes the token that it attends to; one suppresses it.",
        "Do weights tell what an intervention finds?",
        "Rotary positions: composition is taken at relative offset 0.",
    ):
        assert words in text
    assert "style=" not in html
    assert "nan" not in text.lower().split()


def test_numbers_lead_to_their_rows(html: str, circuit_site: Site) -> None:
    links = [e for e in elements(html, "a") if e.attributes.get("class", "").startswith("n")]
    tables = {
        match[1]
        for link in links
        if (match := re.search(r"data\.html\?row=(\w+)", link.attributes["href"]))
    }
    assert {"composition", "heads"} <= tables
    assert (circuit_site.folder / "data/rows/circuits.js").exists()
    for name in ("composition", "promoted_tokens", "exemplar_tokens"):
        assert (circuit_site.folder / f"data/{name}.csv").exists()
        assert f'href="data.html#{name}"' in html


def test_figures_have_files(html: str, circuit_site: Site) -> None:
    for name in ("circuits-feeds", "circuits-weights"):
        assert f'href="figures/{name}.svg"' in html
        svg = (circuit_site.folder / f"figures/{name}.svg").read_text(encoding="utf-8")
        assert "<svg" in svg
        assert (circuit_site.folder / f"figures/{name}.pdf").stat().st_size > 1000
        assert len(pd.read_csv(circuit_site.folder / f"figures/{name}.csv")) >= 3


def test_menu_search_and_overview_lead_to_the_page(circuit_site: Site) -> None:
    overview = html_of(circuit_site.folder / "index.html")
    assert 'href="circuits.html"' in overview
    assert "none was made here" not in overview
    found = {row[1] for row in data_of(circuit_site, "find")["pages"]}
    assert "circuits.html" in found


def test_the_map_runs_right_if_there_are_many_layers(decoder_site: Site) -> None:
    study = decoder_site.study
    few = circuits_page(stack_results(small_study(study)))
    assert few.maps[0].table.columns[1:] == ("H0", "H1", "H2", "H3")
    assert [row.head for row in few.maps[0].table.rows] == ["layer 0", "layer 1"]
    many = tall_page(study, n_layers=9, n_heads=4)
    assert many.maps[0].table.columns[1:] == tuple(map(str, range(9)))
    assert [row.head for row in many.maps[0].table.rows] == [f"head {n}" for n in range(4)]


def tall_page(study: Study, n_layers: int, n_heads: int) -> CircuitsPage:
    """Return the page of a model of another shape, in which every layer feeds the next one."""
    stack = replace(
        study.manifest.stacks[0],
        n_layers=n_layers, n_heads=n_heads, attention_layers=tuple(range(n_layers)),
    )  # fmt: skip
    heads = head_rows(
        stack.name, n_layers, n_heads,
        copying_score={(n, 1): 0.5 for n in range(n_layers)},
        copy_rate={(n, 1): 0.5 for n in range(n_layers)},
    )  # fmt: skip
    pairs = [
        ((n, head), (n - 1, 0), 0.05 + 0.001 * n, -0.3)
        for n in range(1, n_layers)
        for head in (1, 2)
    ]
    previous, induction = np.zeros((2, n_layers, n_heads))
    previous[:, 0], induction[:, 1:3] = 0.6, 0.5
    scores = {
        HeadKey("previous_score", SinkView.RAW, ""): Fake(previous),
        HeadKey("induction_score", SinkView.RAW, ""): Fake(induction),
    }
    results = fake_results(scores, causal=True)
    other = replace(results.study, sentence_data=study.sentence_data)
    circuits = circuit_results(study, heads, pair_rows(pairs, stack=stack.name))
    return circuits_page(
        {stack.name: StackResults(replace(other, circuits=circuits), results.stack)}
    )


@pytest.mark.parametrize(("n_layers", "n_heads"), [(32, 32), (12, 12), (30, 9)])
def test_large_models_have_a_page(decoder_site: Site, n_layers: int, n_heads: int) -> None:
    page = tall_page(decoder_site.study, n_layers, n_heads)
    assert page.feeding is not None
    assert page.pairs is not None
    assert len(page.pairs.rows) <= 24
    cells = [cell for row in page.maps[0].table.rows for cell in row.cells]
    assert len(cells) == n_layers * n_heads
    height, _ = page.feeding.drawn(400)
    assert 0 < height < page.feeding.height


def test_a_text_with_the_circuit_is_drawn_or_random_tokens_said(decoder_site: Site) -> None:
    study = small_study(decoder_site.study)
    circuits = study.circuits
    drawn = circuits_page(stack_results(study))
    assert drawn.walk is not None
    assert "repeated random tokens" in drawn.walk.caption
    assert "from B to A" in plain_text(drawn.steps[0])
    row = circuits.exemplars.query("layer == 1 and head == 1").iloc[0].to_dict()
    row |= {"sentence": 99, "query": 3, "key": 1, "weight": 0.97, "true_token": "b"}
    sentences = pd.DataFrame([(99, "a b c a b", [0, 2, 4, 6, 8], [1, 3, 5, 7, 9])],
                             columns=[*circuits.sentences.columns])  # fmt: skip
    texts = pd.concat([circuits.sentences, sentences], ignore_index=True)
    exemplars = pd.DataFrame([row])
    on_text = replace(circuits, exemplars=exemplars, sentences=texts)
    page = circuits_page(with_circuits(study, on_text))
    assert page.walk is not None
    assert "on one text" in page.walk.caption
    assert plain_text(page.steps[1]).startswith(
        "At the second “a”, L1·H1 attends to “b”, which followed the first (weight 0.97)."
    )


def test_scores_of_a_walk_are_those_of_both_heads(decoder_site: Site) -> None:
    results = stack_results(small_study(decoder_site.study))["self"]
    lower, upper = HeadName("self", 0, 1), HeadName("self", 1, 2)
    feed = feeds(results)[0]._replace(lower=lower, upper=upper, before=0.25)
    first, second = random_walk(results, feed)
    heads = results.study.heads.set_index(["metric", "view", "layer", "head"])["value"]
    linked = [part for part in (*first, *second) if isinstance(part, LinkedNumber)]
    previous, induction, *_ = linked
    places = [{**dict(number.row)} for number in (previous, induction)]
    assert [(place["layer"], place["head"]) for place in places] == [(0, 1), (1, 2)]
    assert float(previous.text) == pytest.approx(heads["previous_score", "raw", 0, 1], abs=0.005)
    assert induction.text == "0.25"


def test_a_head_page_shows_what_the_head_writes(circuit_site: Site) -> None:
    html = html_of(circuit_site.folder / "heads/L01-H01.html")
    text = text_of(html)
    assert "What it writes promotes the token that it attends to" in text
    assert "2 [1, 6] of 504: median rank of the token that it attends to" in text
    assert "Uses what L0·H0 writes: without it in its keys" in text
    assert "Tokens that it reads, and what it writes there" in text
    for table in ("promoted_tokens", "exemplar_tokens", "composition"):
        assert f"data.html?row={table}:" in html
    lower = text_of(html_of(circuit_site.folder / "heads/L00-H00.html"))
    assert "L1·H1 uses what it writes" in lower


def test_tokens_over_all_queries_are_closed_if_none_is_clear(decoder_site: Site) -> None:
    study, head = small_study(decoder_site.study), HeadName("self", 1, 1)
    (results,) = stack_results(study).values()
    clear = writes_section(results, head)
    assert clear is not None
    assert clear.unclear == ""
    table = study.circuits.promoted.assign(low=np.nan, high=np.nan)
    (results,) = with_circuits(study, replace(study.circuits, promoted=table)).values()
    unclear = writes_section(results, head)
    assert unclear is not None
    assert unclear.unclear.endswith("no token is clearly promoted or suppressed")


def test_an_encoder_shows_words_only_where_the_test_holds(
    encoder_site: Site, tmp_path: Path
) -> None:
    study = encoder_site.study
    circuits = towards_results(study, {(1, 1): (97.0, 19.0, 420.0)})
    results = with_circuits(study, circuits)
    assert not has_circuits(results)
    (of_stack,) = results.values()
    writes, chance = (writes_section(of_stack, HeadName("self", 1, head)) for head in (1, 0))
    assert writes is not None
    assert chance is not None
    assert (writes.remark, writes.closed_title) == ("", "")
    assert chance.remark == "nothing that single words can express"
    assert chance.closed_title
    site = StudySite(replace(study, circuits=circuits))
    writer = page_writer(site, tmp_path, "")
    pages = {page.path: page for page in site.many()}
    writer.write_page(pages["heads/L01-H01.html"])
    text = text_of(html_of(tmp_path / "heads/L01-H01.html"))
    assert "97 [19, 420] of 21,357: median rank of the word" in text
    assert "into the sentence vector" in text
    assert "it moves the vector towards" in text


def test_pages_without_results_say_why(encoder_site: Site) -> None:
    nothing = replace(encoder_site.study, circuits=CircuitResults())
    (results,) = stack_results(nothing).values()
    assert missing_text(results) == "What it writes: --circuits on."
    assert writes_section(results, HeadName("self", 0, 0)) is None
    known = CircuitResults(missing={"": "the unembedding is unknown"})
    (results,) = with_circuits(encoder_site.study, known).values()
    assert missing_text(results) == ""  # the list of missing numbers has the reason


def test_encoder_heads_of_an_encoder_decoder_are_not_available(pair_site: Site) -> None:
    study = pair_site.study
    text = text_of(html_of(pair_site.folder / "heads/encoder-L00-H00.html"))
    assert "encoder heads reach the logits through cross-attention alone" in text
    assert "What it writes" not in text
    assert "What it writes" in text_of(html_of(pair_site.folder / "heads/cross-L00-H00.html"))
    (section,) = {
        writes_section(each, HeadName(name, 0, 0)) is None
        for name, each in stack_results(study).items()
        if name != "encoder"
    }
    assert not section
