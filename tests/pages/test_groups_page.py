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
from browser import Open, Record, cramped, sideways, violations
from headbook.analysis.accumulators import Estimate
from headbook.pages.groups import FEW_SENTENCES, MOST_ROWS, GroupsPage, groups_page
from headbook.pages.head import head_pages
from headbook.pages.parts.groups import difference_cell
from headbook.pages.parts.table import NumberCell, PageTable, Row
from headbook.report.results import StackResults, stack_results
from headbook.report.tables import STUDY_TABLES
from headbook.site.archive import anonymise
from headbook.study import tables
from headbook.study.study import Study
from html_pages import broken_links, html_of, lines, text, text_of
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
def page(stack: StackResults) -> GroupsPage:
    found = groups_page({"self": stack})
    assert found is not None
    return found


def read(text: str) -> float:
    """A number as pages print it, shares as parts of 1."""
    basic = re.sub("[\u202f,+<>]", "", text).replace("−", "-")
    size = float(re.sub(r"%| points", "", basic))
    return size / 100 if basic.endswith(("%", " points")) else size


def chosen(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Rows with some values."""
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def test_the_page_counts_the_sentences_of_every_group(page: GroupsPage) -> None:
    (section,) = page.sections
    counts = {
        c.title: {r.name: int(text(r.cells[0])) for r in c.table.rows} for c in section.columns
    }
    assert counts == {
        "label": {"good": 18, "bad": 18},
        "kind": {"one": 12, "two": 12, HOSTILE: 12},
    }


def test_heads_that_differ_have_the_numbers_of_the_table(
    page: GroupsPage, study: Study, stack: StackResults
) -> None:
    """Values of both groups, their difference, and a p that grows with its family."""
    for column in page.sections[0].columns:
        contrasts = column.contrasts
        assert len(contrasts.table.rows) == MOST_ROWS
        assert contrasts.family <= column.heads * column.numbers * column.pairs
        for row in contrasts.table.rows:
            numbers = []
            for group, cell in compared(contrasts.table, row):
                at = chosen(
                    study.groups, facet=column.title, group=group, **column_of(stack, row.cells[0])
                )
                at = at[[head_name_of(each) == row.name for each in at.itertuples()]]
                numbers.append(float(at["value"].item()))
                assert read(text(cell)) == pytest.approx(numbers[-1], abs=0.0051)
            difference = row.cells[-3]
            assert isinstance(difference, NumberCell)
            assert read(difference.text) == pytest.approx(numbers[0] - numbers[1], abs=0.0051)
            low, high = (read(end) for end in ends(difference))
            assert low <= read(difference.text) <= high


def compared(table: PageTable, row: Row) -> list[tuple[str, Any]]:
    """The two groups of a row with their numbers; of only two, the titles name them."""
    if "its value" not in table.columns:
        return [(text(table.columns[i]), row.cells[i - 1]) for i in (2, 3)]
    return [(text(row.cells[i]), row.cells[i + 1]) for i in (1, 3)]


def column_of(stack: StackResults, link: Any) -> dict[str, Any]:
    """The column of a study's tables that a row's metric leads to."""
    (found,) = [h.column for h in stack.cached(headlines) if h.title == text(link)]
    return dict(found._asdict())


def head_name_of(row: Any) -> str:
    """How pages call the head of a table's row."""
    return f"L{row.layer}·H{row.head}"


def ends(cell: NumberCell) -> tuple[str, str]:
    """The ends of a difference's interval, each with the unit of the difference."""
    low, high = cell.interval.strip("[]").split(", ")
    unit = " points" if cell.text.endswith(" points") else ""
    return low + unit, high + unit


def test_small_groups_are_named_and_not_compared(study: Study) -> None:
    sums = study.corpus_sums.heads["self"]
    groups = tuple(
        replace(g, sentences=FEW_SENTENCES - 1) if g.value == "two" else g for g in sums.groups
    )
    heads = {"self": replace(sums, groups=groups)}
    less = stack_results(replace(study, corpus_sums=replace(study.corpus_sums, heads=heads)))
    found = groups_page(less)
    assert found is not None
    kind = next(c for c in found.sections[0].columns if c.title == "kind")
    assert kind.small == ("two",)
    assert kind.pairs == 1
    assert {*kind.contrasts.table.columns[2:4]} == {"one", HOSTILE}


def test_pairs_are_listed_by_their_p(page: GroupsPage, study: Study, stack: StackResults) -> None:
    section, pair_differences = page.sections[0].pairs, study.pair_differences["self"]
    assert section is not None
    assert (section.pairs, section.left_out, section.member_column) == ("12 pairs", 6, "label")
    table = study.minimal_pairs.sort_values("p", kind="stable")
    assert section.below == (table["p"] < 0.05).sum()
    assert section.family == pair_differences.family == table["p"].notna().sum()
    for row, p in zip(section.table.rows, table["p"], strict=False):
        metric, first, _, difference, of_p = row.cells
        assert of_p == ("< 0.001" if p < 0.001 else f"{p:.3f}")
        at = chosen(table, **column_of(stack, metric))
        at = at[[head_name_of(each) == row.name for each in at.itertuples()]]
        assert read(text(difference)) == pytest.approx(at["value"].item(), abs=0.0051)
        assert read(text(first)) == pytest.approx(at["first"].item(), abs=0.0051)


def test_head_pages_say_their_own_numbers(stack: StackResults, study: Study, place: Path) -> None:
    head = next(iter(head_pages(stack, slice(5, 6))))
    assert head.by_group is not None
    assert len(head.by_group.rows) == 5
    for row in head.by_group.rows:
        column, _, group = row.name.partition(": ")
        for title, cell in zip(head.by_group.columns[2:], row.cells[1:], strict=True):
            at = chosen(study.groups, facet=column, group=group, **column_of(stack, title))
            at = at[[head_name_of(each) == head.name for each in at.itertuples()]]
            assert read(text(cell)) == pytest.approx(at["value"].item(), abs=0.0051)
    assert head.in_pairs is not None
    metrics = {column_of(stack, row.head)["metric"] for row in head.in_pairs.rows}
    assert metrics == {*METRICS.split(",")}
    page = text_of(html_of(place / "site" / head.path))
    for pair in lines(head.in_pairs):
        assert pair["difference"].text in page


def test_figures_have_a_line_for_each_group(page: GroupsPage, stack: StackResults) -> None:
    sums = stack.study.corpus_sums.heads["self"]
    label, kind = page.sections[0].columns[1], page.sections[0].columns[0]
    assert {c.title for c in (label, kind)} == {"label", "kind"}
    for figure in label.figures:
        assert figure.rows is not None
        groups = {g.value: g for g in sums.groups if g.column == "label"}
        metric = figure.name.rpartition("-")[2]
        place = next(h.place for h in stack.cached(headlines) if h.metric.id == metric)
        for name, drawn in figure.rows.groupby("series"):
            expected = groups[str(name)].layers[..., place].value
            np.testing.assert_array_equal(drawn["value"], expected)


def headlines(stack: StackResults) -> Any:
    """The numbers that groups are compared by."""
    from headbook.pages.parts.groups import stack_headlines

    return stack_headlines(stack)


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
    expect(page.locator("h1")).to_have_text("Groups of sentences")
    first = page.locator("section table.numbers tbody tr").nth(3)
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
    assert page is not None
    assert [section.stack for section in page.sections] == ["encoder", "decoder", "cross"]
    assert [section.columns[0].numbers for section in page.sections] == [4, 4, 2]
    assert {section.pairs.pairs for section in page.sections if section.pairs} == {"20 pairs"}
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
