"""The page on circuits and the section on what heads write, on sites with chosen results."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from block_parts import Rows, every
from chosen_results import Fake, fake_results
from circuits import circuit_results, head_rows, pair_rows, small_study, towards_results
from headbook.charts import Drawing
from headbook.charts.circuits import COLUMN_WIDTH, FeedingPlot
from headbook.charts.plots import PlotMark
from headbook.pages.circuits import circuits_page
from headbook.pages.head_parts.writes import missing_text, writes_section
from headbook.pages.parts.blocks import Bullets, Page, Table, Text
from headbook.report.facts.circuits import facts
from headbook.report.facts.circuits.facts import random_walk
from headbook.report.facts.circuits.rules import feeds, has_circuits
from headbook.report.results import StackResults, stack_results
from headbook.report.tables import STUDY_TABLES
from headbook.results.number import Number
from headbook.results.sentence import Link
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.site.rows import SiteRows
from headbook.site.sites import StudySite
from headbook.site.writer import page_writer
from headbook.study.circuits import CircuitResults
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from sites import Site, data_of


@pytest.fixture(scope="module")
def html(circuit_site: Site) -> str:
    return html_of(circuit_site.folder / "circuits.html")


def spaced(text: str) -> str:
    """Return a text with plain spaces."""
    return text.replace("\u202f", " ").replace("\xa0", " ")


def with_circuits(study: Study, circuits: CircuitResults) -> dict[str, StackResults]:
    return stack_results(replace(study, circuits=circuits))


def test_the_page_prints_its_facts(html: str, circuit_site: Site) -> None:
    text, results = spaced(text_of(html)), circuit_site.results
    (first,) = results.values()
    for fact in (
        facts.circuits(results), facts.intervention(results), facts.copying(results),
        facts.writers(results), facts.agreement(first),
    ):  # fmt: skip
        assert fact.text
        assert spaced(fact.text.text) in text
    assert "Rotary positions: composition is taken at relative offset 0." in text
    assert "style=" not in html
    assert "nan" not in text.lower().split()


def test_every_number_is_that_of_its_row(circuit_site: Site) -> None:
    rows = Rows(SiteRows(dict(STUDY_TABLES), circuit_site.study))
    columns = {"composition": ("value", "random", "intervention", "before"),
               "exemplar_tokens": ("weight", "key_rank", "true_probability", "true_contribution"),
               "promoted_tokens": ("value",), "heads": ("value",)}  # fmt: skip
    page = circuits_page(circuit_site.results)
    sections = [
        writes_section(results, HeadName("self", *place))
        for results in circuit_site.results.values()
        for place in np.ndindex(2, 4)
    ]
    numbers = every(Number, (page.answer, page.blocks, *sections))
    assert {number.row.table for number in numbers} == {*columns}
    for number in numbers:
        row = rows.behind(number)
        assert number.value in [row[name] for name in columns[number.row.table]]


def test_first_screen_links_to_every_question(html: str, circuit_site: Site) -> None:
    page = circuits_page(circuit_site.results)
    (below,) = [block for block in page.blocks if isinstance(block, Text) and block.style == "asks"]
    addresses = [link.href for link in every(Link, below)]
    assert [f"circuits.html#{question.id}" for question in page.questions] == addresses[:4]
    assert {"text", "copying", "writes", "weights"} == {q.id for q in page.questions}


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


def tall_page(study: Study, n_layers: int, n_heads: int) -> Page:
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
    (feeding,) = every(FeedingPlot, page)
    (copying,) = [table for table in every(Table, page) if "all-heads" in table.style]
    (pairs,) = [table for table in every(Table, page) if "Composition" in table.columns]
    assert len(pairs.rows) <= 24
    assert [len(row) for row in copying.rows] == [n_heads + 1] * n_layers
    height, _ = feeding.drawn(400)
    assert 0 < height < feeding.height


def test_both_rows_of_heads_begin_at_the_left(decoder_site: Site) -> None:
    """So that a narrow window shows an induction head without a scroll."""
    page = tall_page(decoder_site.study, 30, 9)
    (feeding,) = every(FeedingPlot, page)
    marks = [mark for mark in feeding.marks if isinstance(mark, PlotMark)]
    assert {mark.label.split(":")[1].split()[0] for mark in marks} == {
        "previous-token",
        "induction",
    }
    for kind in ("previous-token", "induction"):
        first = min((m for m in marks if kind in m.label), key=lambda mark: mark.x)
        assert first.x * COLUMN_WIDTH * feeding.n_columns / 100 < 390


def test_a_text_with_the_circuit_is_drawn_or_random_tokens_said(decoder_site: Site) -> None:
    study = small_study(decoder_site.study)
    circuits = study.circuits
    drawing, steps = walk_of(circuits_page(stack_results(study)))
    assert "repeated random tokens" in drawing.caption
    assert "from B to A" in steps[0]
    row = circuits.exemplars.query("layer == 1 and head == 1").iloc[0].to_dict()
    row |= {"sentence": 99, "query": 3, "key": 1, "weight": 0.97, "true_token": "b"}
    sentences = pd.DataFrame([(99, "a b c a b", [0, 2, 4, 6, 8], [1, 3, 5, 7, 9])],
                             columns=[*circuits.sentences.columns])  # fmt: skip
    texts = pd.concat([circuits.sentences, sentences], ignore_index=True)
    on_text = replace(circuits, exemplars=pd.DataFrame([row]), sentences=texts)
    drawing, steps = walk_of(circuits_page(with_circuits(study, on_text)))
    assert "on one text" in drawing.caption
    assert steps[1].startswith(
        "At the second “a”, L1·H1 attends to “b”, which followed the first (weight 0.97)."
    )


def walk_of(page: Page) -> tuple[Drawing, list[str]]:
    """Return the picture of the circuit on a text, and its steps."""
    (drawing,) = every(Drawing, page)
    (steps,) = [bullets for bullets in every(Bullets, page) if bullets.numbered]
    return drawing, [item if isinstance(item, str) else item.text for item in steps.items]


def test_scores_of_a_walk_are_those_of_both_heads(decoder_site: Site) -> None:
    results = stack_results(small_study(decoder_site.study))["self"]
    lower, upper = HeadName("self", 0, 1), HeadName("self", 1, 2)
    feed = feeds(results)[0]._replace(lower=lower, upper=upper)
    first, second = random_walk(results, feed)
    heads = results.study.heads.set_index(["metric", "view", "layer", "head"])["value"]
    previous, induction, change = every(Number, (first, second))
    places = [(number.place("layer"), number.place("head")) for number in (previous, induction)]
    assert places == [(0, 1), (1, 2)]
    assert previous.value == heads["previous_score", "raw", 0, 1]
    assert induction.value == heads["induction_score", "raw", 1, 2]
    assert change == feed.change


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


def test_tokens_of_the_opposite_sign_are_not_listed(decoder_site: Site) -> None:
    study, head = small_study(decoder_site.study), HeadName("self", 1, 1)
    table = study.circuits.promoted
    of_head = table[["layer", "head"]].eq([1, 1]).all(axis=1) & table["kind"].eq("promoted")
    wrong = of_head & table["rank"].eq(1)
    turned = table.assign(value=table["value"].where(~wrong, -0.05))
    (results,) = with_circuits(study, replace(study.circuits, promoted=turned)).values()
    section = writes_section(results, head)
    assert section is not None
    listed = [(dict(n.row.key)["kind"], n.value) for n in every(Number, section.listed)]
    assert sum(kind == "promoted" for kind, _ in listed) == of_head.sum() - 1
    assert all((value > 0) is (kind == "promoted") for kind, value in listed)


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
