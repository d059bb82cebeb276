"""Pages of groups and pairs print the numbers of the study, and only where there are any."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import grouped_studies
import headbook
import tiny
import treebank
from block_parts import Rows, every
from browser import Open, Record, cramped, sideways, violations
from headbook.analysis.accumulators import Estimate
from headbook.charts import Figure
from headbook.pages.groups import MOST_ROWS, groups_page
from headbook.pages.head import head_pages
from headbook.pages.parts.blocks import Page, Question, Table, Text, Title
from headbook.pages.parts.groups import difference_cell, group_table, pair_table
from headbook.report.facts.columns import contrasts as facts
from headbook.report.results import StackResults, stack_results
from headbook.report.tables import STUDY_TABLES
from headbook.results.number import Number
from headbook.schema import HeadName
from headbook.site.archive import anonymise
from headbook.site.rows import SiteRows
from headbook.study import tables
from headbook.study.study import Study
from html_pages import broken_links, html_of, text_of
from sites import Once, make_study

pytest_plugins = ["browser_windows"]
pytestmark = pytest.mark.slow

METRICS = "attention_distance,relative_entropy,sink_share,attention_to,dependency_alignment"
HOSTILE = "</script><b>bad</b> \u0007 {{7*7}} =1+1"
# Each twice with other last words, so that groups are large enough to compare.
ROWS = tuple(
    row._replace(text=f"{row.text} {more}", pair=f"{row.pair}{more}", kind=kind)
    for more, kind in (("old", "one"), ("red water", "two"), ("the", HOSTILE))
    for row in grouped_studies.ROWS
)


def write(place: Path) -> None:
    """A study of sentences with labels and pairs, and its site."""
    tiny.write("bert", place / "model")
    inputs = grouped_studies.write_rows(place / "rows.jsonl", ROWS)
    study = make_study(
        inputs, place / "model", metrics=METRICS, facet="label,kind", annotator="embedded",
        control="none", exemplars=1,
    )  # fmt: skip
    study.save(place / "study")
    headbook.render(place / "study", place / "site")


@pytest.fixture(scope="module")
def place(once: Once) -> Path:
    """The folder that `write` fills."""
    return once("groups", write)


@pytest.fixture(scope="module")
def study(place: Path) -> Study:
    return Study.load(place / "study")


@pytest.fixture(scope="module")
def stack(study: Study) -> StackResults:
    return stack_results(study)["self"]


@pytest.fixture(scope="module")
def page(stack: StackResults) -> Page:
    return groups_page({"self": stack})


def read(text: str) -> float:
    """A number as pages print it, shares as parts of 1."""
    basic = re.sub("[\u202f,+<>]", "", text).replace("−", "-")
    size = float(re.sub(r"%| points", "", basic))
    return size / 100 if basic.endswith(("%", " points")) else size


def table_of(question: Question, caption: str = "") -> Table:
    """Return the table of a question with a caption."""
    return next(table for table in every(Table, question) if table.caption == caption)


def columns_of(page: Page) -> dict[str, Question]:
    """Return the questions on metadata columns."""
    return {
        question.title.removeprefix("By "): question
        for question in page.questions
        if not question.id.endswith("pairs")
    }


def words(cell: Any) -> str:
    """Return a cell without links and marks."""
    return cell if isinstance(cell, str) else str(cell.text)


def test_the_page_counts_the_sentences_of_every_group(page: Page) -> None:
    counts = {
        column: {words(row[0]): row[1] for row in table_of(question).rows}
        for column, question in columns_of(page).items()
    }
    assert counts == {
        "label": {"good": 18, "bad": 18},
        "kind": {"one": 12, "two": 12, HOSTILE: 12},
    }


def test_every_number_is_that_of_its_row(page: Page, study: Study, stack: StackResults) -> None:
    rows = Rows(SiteRows(dict(STUDY_TABLES), study))
    head = HeadName("self", 0, 1)
    numbers = every(Number, (page.blocks, group_table(stack, head), pair_table(stack, head)))
    assert {number.row.table for number in numbers} == {"groups", "minimal_pairs"}
    columns = {"groups": ("value",), "minimal_pairs": ("first", "second", "value", "p")}
    for number in numbers:
        row = rows.behind(number)
        assert number.value in [row[name] for name in columns[number.row.table]]


def test_differences_are_those_of_both_groups(stack: StackResults) -> None:
    """First minus second group with its interval, the smallest p first."""
    for column, groups in facts.groups_by_column(stack).items():
        compared = facts.comparisons_by_column(stack)[column]
        pairs = len(groups) * (len(groups) - 1) // 2
        n_heads = stack.stack.n_layers * stack.stack.n_heads
        assert 0 < len(compared) <= n_heads * len(facts.compared_metrics(stack)) * pairs
        assert [each.p for each in compared] == sorted(each.p for each in compared)
        for each in compared[:MOST_ROWS]:
            one, other = (number.value for number in each.numbers)
            change, ends = each.change.split(" [")
            assert read(change) == pytest.approx(one - other, abs=0.0051)
            unit = " points" * change.endswith(" points")
            low, high = (read(end + unit) for end in ends.strip("]").split(", "))
            assert low <= read(change) <= high
        below = sum(each.p * len(compared) < 0.05 for each in compared)
        assert facts.small_p(column, compared).holds is (below > 0)


def test_small_groups_are_named_and_not_compared(study: Study) -> None:
    sums = study.corpus_sums.heads["self"]
    groups = tuple(
        replace(g, sentences=facts.MIN_SENTENCES - 1) if g.value == "two" else g
        for g in sums.groups
    )
    heads = {"self": replace(sums, groups=groups)}
    less = stack_results(replace(study, corpus_sums=replace(study.corpus_sums, heads=heads)))
    kind = columns_of(groups_page(less))["kind"]
    (hint,) = [text for text in every(Text, kind) if text.style == "hint"]
    assert words(hint.words).endswith(": two.")
    assert {*table_of(kind, "Largest differences").columns[2:4]} == {"one", HOSTILE}


def test_pairs_are_listed_by_their_p(page: Page, study: Study, stack: StackResults) -> None:
    differences = study.pair_differences["self"]
    question = next(each for each in page.questions if each.id == "self-pairs")
    assert differences.pairs == 12
    note = words(every(Text, question)[0].words)
    assert "Column label distinguishes" in note
    assert "6 identifiers" in note
    table = study.minimal_pairs
    below, family = (table["p"] < 0.05).sum(), table["p"].notna().sum()
    fact = facts.small_p_of_pairs(differences)
    assert fact.holds is bool(below)
    assert f"of {family:,} comparisons" in fact.text.text
    listed = [*facts.pairs_by_p(stack, differences, MOST_ROWS)]
    assert [each.p.value for each in listed] == sorted(table["p"].dropna())[: len(listed)]
    assert len(table_of(question, "Largest differences within pairs").rows) == len(listed)


def test_head_pages_print_their_own_numbers(stack: StackResults, place: Path) -> None:
    head = next(iter(head_pages(stack, slice(5, 6))))
    assert head.by_group is not None
    assert len(head.by_group.rows) == 5
    assert head.in_pairs is not None
    assert len(head.in_pairs.rows) == len(METRICS.split(","))
    page = text_of(html_of(place / "site" / head.path))
    for number in every(Number, (head.by_group, head.in_pairs)):
        assert f"L{number.place('layer')}·H{number.place('head')}" == head.name
        assert number.as_text() in page


def test_figures_have_a_line_for_each_group(page: Page, stack: StackResults) -> None:
    sums = stack.study.corpus_sums.heads["self"]
    questions = columns_of(page)
    assert {*questions} == {"label", "kind"}
    figures = every(Figure, questions["label"])
    assert figures
    for figure in figures:
        assert figure.rows is not None
        groups = {g.value: g for g in sums.groups if g.column == "label"}
        metric = figure.name.rpartition("-")[2]
        place = next(m.place for m in facts.compared_metrics(stack) if m.metric.id == metric)
        for name, drawn in figure.rows.groupby("series"):
            expected = groups[str(name)].layers[..., place].value
            np.testing.assert_array_equal(drawn["value"], expected)


def test_texts_of_columns_stay_texts(place: Path) -> None:
    html = html_of(place / "site/groups.html")
    assert "<b>bad" not in html
    assert "</script><b>bad</b> \u2407 {{7*7}} =1+1" in text_of(html)
    frame = pd.read_csv(place / "site/data/groups.csv.gz", keep_default_na=False)
    assert {*frame["facet"]} == {"label", "kind"}
    files = html_of(place / "site/data.html")
    for name, suffix in (("groups", ".gz"), ("minimal_pairs", "")):
        assert f'href="data/{name}.csv{suffix}"' in files
        assert all(f">{column}<" in files for column in STUDY_TABLES[name].columns)
    for name in ("groups.html", "heads/L00-H01.html"):
        assert broken_links(place / "site", place / "site" / name) == []


def test_without_groups_there_is_neither_page_nor_link(study: Study, tmp_path: Path) -> None:
    heads = {n: replace(s, groups=(), members=None) for n, s in study.corpus_sums.heads.items()}
    basic = replace(study, corpus_sums=replace(study.corpus_sums, heads=heads))
    headbook.render(basic, tmp_path / "site")
    assert not (tmp_path / "site/groups.html").exists()
    assert not [*(tmp_path / "site/data").glob("groups*")]
    for name in ("index.html", "heads/L00-H00.html"):
        assert "groups.html" not in html_of(tmp_path / "site" / name)


def test_anonymous_studies_lose_groups_that_a_link_names(study: Study) -> None:
    sums = study.corpus_sums.heads["self"]
    telling = [replace(g, value="https://ours.example") for g in sums.groups[:1]]
    heads = {"self": replace(sums, groups=(*telling, *sums.groups[1:]))}
    left = anonymise(replace(study, corpus_sums=replace(study.corpus_sums, heads=heads)))
    assert left.corpus_sums.heads["self"].groups == sums.groups[1:]


@given(st.floats(-1e4, 1e4), st.floats(0, 1e3), st.booleans())
def test_a_difference_is_printed_with_its_sign_and_never_as_nothing(
    value: float, reach: float, share: bool
) -> None:
    number = Estimate(value, value - reach, value + reach, 5, 5.0)
    cell = difference_cell(number, share=share, behind="")
    assert cell.text[0] == ("−" if value < 0 else "+" if value > 0 else "0")
    assert cell.text.endswith(" points") == share
    if value and abs(value) > 1e-6:
        assert read(cell.text) != 0
        assert read(cell.text) == pytest.approx(value, rel=0.5)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["groups.html", "heads/L00-H01.html"])
def test_pages_with_groups_fit_their_window_and_axe_finds_nothing(
    place: Path, open_page: Open, record: Record, name: str, scheme: str
) -> None:
    page = open_page(place / "site" / name, color_scheme=scheme)
    assert violations(page) == []
    for width in (360, 800, 1440):
        assert (sideways(page, width), cramped(page)) == (0, []), width
    record.check()


def test_the_overview_leads_to_the_groups(place: Path, open_page: Open) -> None:
    page = open_page(place / "site/index.html")
    menu = page.get_by_role("navigation", name="Site")
    menu.locator("summary").click()
    menu.get_by_role("link", name="Groups").click()
    expect(page.locator("h1")).to_have_text("Which heads differ between groups of sentences?")
    first = page.locator("section.q table.numbers tbody tr").nth(3)
    name = first.locator("th").inner_text()
    first.locator("th a").click()
    expect(page.locator("h1")).to_contain_text(name)
    expect(page.locator("#groups")).to_be_visible()


def test_every_stack_of_a_translator_has_its_groups(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Numbers that a stack lacks are left out: in cross-attention no token is the one before."""
    rows = [
        {"source": f"{source} {more}", "target": target, "label": label, "pair_id": f"{source}{n}"}
        for n, more in enumerate(("dog", "the dog", "water", "old", "red"))
        for source, target in treebank.PAIRS
        for label, more in (("a", more), ("b", f"{more} bird"))
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    study = make_study(
        tmp_path / "rows.jsonl", tiny_folder("bart"), metrics=grouped_studies.METRICS, exemplars=1,
        control="none", importance="off", sentence_pages="1",
    )  # fmt: skip
    headbook.render(study, tmp_path / "site")
    page = groups_page(stack_results(study))
    titles = [title.words for title in every(Title, page) if title.level == 2]
    assert titles == ["Encoder self-attention", "Decoder self-attention", "Cross-attention"]
    assert {question.id for question in page.questions} == {
        f"{stack}-{part}" for stack in ("encoder", "decoder", "cross") for part in ("1", "pairs")
    }
    results = stack_results(study)
    numbers = {name: len(facts.compared_metrics(each)) for name, each in results.items()}
    assert numbers == {"encoder": 4, "decoder": 4, "cross": 2}
    assert {differences.pairs for differences in study.pair_differences.values()} == {20}
    assert broken_links(tmp_path / "site", tmp_path / "site/groups.html") == []


def test_a_long_table_has_what_groups_are_compared_by_alone(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers that are left stay the same; without any of those the first metric is there."""
    whole = study.groups
    monkeypatch.setattr(tables, "MAX_GROUP_ROWS", 10)
    for headlines in (("sink_share", "attention_to"), ("none",)):
        monkeypatch.setattr(tables, "MAIN_METRICS", headlines)
        less = tables.groups_table(study.corpus_sums.heads, {"self": (0, 1)})
        kept = {*headlines} & {*whole["metric"]} or {
            study.corpus_sums.heads["self"].table.columns[0].metric
        }
        assert 0 < len(less) < len(whole)
        expected = whole[whole["metric"].isin(kept)].reset_index(drop=True)
        pd.testing.assert_frame_equal(less, expected)
