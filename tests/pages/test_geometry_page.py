"""The geometry of states in a study, its table and its page."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headbook
from geometry_texts import IDS, TEXTS, run, sentences
from headbook.analysis.accumulators import RatioSums
from headbook.charts.axes import even_places
from headbook.charts.panels import PanelPlot
from headbook.metrics import all_metrics
from headbook.pages.geometry import GeometryPage, geometry_page, has_geometry
from headbook.pages.geometry_parts.state_space import HEADINGS, outlier_title
from headbook.pages.parts.page import plain_text
from headbook.pages.parts.table import HeatCell, NumberCell, PageTable, WordsCell
from headbook.report.linked_rows import LinkedNumber
from headbook.report.relations import TAG_NAMES
from headbook.report.results import stack_results
from headbook.report.token_neighbours import class_of_tag
from headbook.report.wording import is_share
from headbook.results.formats import interval_text, number, percent, whole_percent
from headbook.schema import UPOS
from headbook.site.page_writer import figures_of
from headbook.study.manifest import MissingPart
from headbook.study.study import Study, merge
from headbook.study.sums.state_geometry import CKA, GeometrySums, StateColumn
from html_pages import elements, html_of, text, text_of, written_html
from sites import Site

pytestmark = pytest.mark.slow

Folder = Callable[[str], Path]
COLUMNS = ["stack", "layer", "state", "metric", "label", "value", "low", "high", "n_sentences"]


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Enough sentences for a few minibatches."""
    return run(tmp_path_factory.mktemp("long"), tiny_folder("bert"), sentences(200))


def page_of(study: Study) -> GeometryPage:
    page = geometry_page(stack_results(study))
    assert page is not None
    return page


def test_every_metric_is_in_the_table_in_every_state(study: Study) -> None:
    table = study.geometry
    assert set(table["metric"]) == set(IDS)
    assert list(table)[: len(COLUMNS)] == COLUMNS
    for _, part in table.groupby("metric"):
        assert part["layer"].isna().any()
        assert set(part["layer"].dropna()) == {0, 1}
        assert part["value"].notna().all()
        assert (part["n_sentences"] == 200).all()
    assert not table.duplicated(["stack", "state", "layer", "metric", "label"]).any()


def test_batches_change_no_number(study: Study, tiny_folder: Folder, tmp_path: Path) -> None:
    one_by_one = run(tmp_path, tiny_folder("bert"), sentences(200), batch_tokens=1)
    pd.testing.assert_frame_equal(study.geometry, one_by_one.geometry, rtol=1e-9, atol=1e-9)


def test_a_stored_study_has_the_same_numbers(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "study")
    stored = Study.load(tmp_path / "study")
    pd.testing.assert_frame_equal(study.geometry, stored.geometry)
    assert page_of(stored).sections[0].numbers == page_of(study).sections[0].numbers


def test_two_studies_together_have_no_numbers_of_states_and_say_why(
    study: Study, tiny_folder: Folder, tmp_path: Path
) -> None:
    """No mean of both: their tokens were not compared with each other."""
    merged = merge([study, run(tmp_path, tiny_folder("bert"), TEXTS)])
    assert merged.geometry.empty
    (gap,) = (gap for gap in merged.manifest.gaps if gap.key == MissingPart.GEOMETRY)
    more = f"{','.join(IDS)},cosine_to_input"
    parts = [run(tmp_path, tiny_folder("bert"), TEXTS, metrics=more) for _ in range(2)]
    assert any(gap.why in text for text in page_of(merge([parts[0], parts[1]])).absent)


def sizes_of(sums: GeometrySums) -> tuple[int, int, int]:
    return sums.sentences, sums.tokens, sums.minibatches


@pytest.mark.parametrize(
    ("texts", "expected", "missing"),
    [
        (["water"], (1, 1, 0), {"anisotropy", "self-similarity", "effective rank"}),
        (["the dog sees the bird"] * 9, (1, 5, 0), {"anisotropy", "self-similarity"}),
        (["the dog", "old water"], (2, 4, 0), {"self-similarity", "explainable", "effective rank"}),
    ],
    ids=["one token", "equal sentences", "nothing recurs"],
)
def test_what_cannot_be_computed_is_missing_and_said(
    texts: list[str],
    expected: tuple[int, int, int],
    missing: set[str],
    tiny_folder: Folder,
    tmp_path: Path,
) -> None:
    found = run(tmp_path, tiny_folder("bert"), texts)
    sums = found.corpus_sums.geometry["self"]
    assert sizes_of(sums) == expected
    remarks = " ".join(page_of(found).absent).lower()
    for what in missing:
        assert what in remarks
    table = found.geometry
    gone = {"effective_rank", CKA, "self_similarity"}
    assert table[table["metric"].isin(gone)]["value"].isna().all()
    assert ((table["metric"] == "anisotropy") & table["value"].isna()).any() == (expected[0] < 2)
    headbook.render(found, tmp_path / "site")
    html = html_of(tmp_path / "site/geometry.html")
    assert "Not measured here" in text_of(html)
    assert not page_of(found).sections[0].similarity


def test_tables_hold_the_numbers_of_the_file(study: Study) -> None:
    section = page_of(study).sections[0]
    file = study.geometry
    named = {metric.title: metric.id for metric in all_metrics().values()}
    assert [row.name for row in section.numbers[0].rows] == ["input", "L0", "L1"]
    for table in section.numbers:
        titles = [text(title) for title, n in table.groups for _ in range(n)]
        for index, title in enumerate(titles):
            metric = named[title]
            values = {number(v) for v in file[file["metric"] == metric]["value"]}
            displayed = {text(row.cells[index]) for row in table.rows}
            assert displayed <= values - {"–"}


def test_every_interval_is_that_of_the_file_and_constants_have_none(study: Study) -> None:
    section, file = page_of(study).sections[0], study.geometry
    named = {metric.title: metric for metric in all_metrics().values()}
    labels = {heading: label for label, heading in HEADINGS.items()} | {"value": ""}
    checked = 0
    for table in section.numbers:
        metrics = [named[text(title)] for title, n in table.groups for _ in range(n)]
        for row, state in zip(table.rows, [np.nan, 0, 1], strict=True):
            for metric, heading, cell in zip(metrics, table.columns[1:], row.cells, strict=True):
                assert isinstance(cell, NumberCell)
                label = labels[str(heading)]
                found = file[(file["metric"] == metric.id) & (file["label"] == label)]
                found = found[found["layer"].isna() if np.isnan(state) else found["layer"] == state]
                low, high = found[["low", "high"]].to_numpy(np.float64)[0]
                assert cell.interval == interval_text(low, high, share=is_share(metric))
                assert np.isnan(low) or metric.limits[0] <= low <= high <= metric.limits[1]
                checked += bool(cell.interval)
    assert checked > 20
    constant = (file["metric"] == "standardised_cosine") & file["layer"].isna()
    assert file[constant]["value"].to_numpy() == pytest.approx(1)
    assert file[constant][["low", "high"]].isna().all(axis=None)


def rows_named(study: Study, found: LinkedNumber) -> pd.DataFrame:
    """Return the rows of a study's tables that a number leads to."""
    table: pd.DataFrame = getattr(study, found.table)
    for column, value in found.row:
        table = table[(table[column] == value).fillna(False)]
    return table


def linked_numbers(part: Any) -> Iterator[LinkedNumber]:
    """Yield every number with a row inside a page."""
    if isinstance(part, LinkedNumber):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from linked_numbers(each)
    elif isinstance(part, PageTable):
        yield from linked_numbers(part.rows)
    elif is_dataclass(part) and not isinstance(part, PanelPlot):
        for field in fields(part):
            yield from linked_numbers(getattr(part, field.name))


def printed_values(row: "pd.Series[Any]") -> set[str]:
    """Return the value of a row, and a baseline beside it, as pages print numbers."""
    values = [row["value"], row.get("baseline_value", np.nan)]
    written = {form(float(v)) for v in values for form in (number, percent, whole_percent)}
    return written | {number(10 ** float(row["value"]) - 1)}


def test_every_number_of_a_page_is_that_of_its_row(any_site: Site) -> None:
    study = any_site.study
    found = [*linked_numbers(page_of(study))]
    for each in found:
        rows = rows_named(study, each)
        assert len(rows) == 1, each
        assert each.text.partition(" (dim")[0] in printed_values(rows.iloc[0]), each
    assert len(found) > 2


def test_dimensions_are_those_that_add_most(study: Study) -> None:
    table = page_of(study).sections[0].outliers
    assert table is not None
    file = study.geometry[study.geometry["metric"] == "outlier_dimensions"]
    largest = []
    for row in table.rows:
        part = file[
            file["layer"].isna()
            if row.name == "input"
            else file["layer"] == int(row.name.removeprefix("layer "))
        ]
        named = part[part["label"].str.startswith("dimension ")]
        (cell,) = [cell for cell in row.cells if isinstance(cell, HeatCell) and "dim." in cell.text]
        assert cell.text.endswith(f"(dim. {named['label'].iloc[0].removeprefix('dimension ')})")
        three = part[part["label"] == "three"]["value"].item()
        assert three == pytest.approx(named["value"].iloc[:3].sum(), rel=0, abs=1e-12)
        largest.append(part[part["label"] == "largest"]["value"].item())
    assert largest == sorted(largest, reverse=True)


@pytest.mark.parametrize(
    ("largest", "title"),
    [
        ([0.02, 0.03, 0.04], "Which dimensions make tokens alike"),
        ([0.02, 0.1, 0.04], "Few dimensions make tokens alike"),
    ],
)
def test_the_title_of_dimensions_follows_their_share(
    study: Study, largest: list[float], title: str
) -> None:
    """A quarter of the mean cosine of 0.2 is 0.05."""
    sums = study.corpus_sums.geometry["self"]
    chosen = sums.states.sums.copy()
    for column, values in (("raw", [0.2] * 3), ("largest", largest)):
        metric = "anisotropy" if column == "raw" else "outlier_dimensions"
        place = sums.columns.index(StateColumn(metric, column))
        chosen[0, :, :, place] = np.array(values) * chosen[1, :, :, place]
    assert outlier_title(replace(sums, states=RatioSums(chosen))) == title


def test_many_states_have_even_places_with_both_ends() -> None:
    assert even_places(7, 13) == [*range(7)]
    assert even_places(31, 13) == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30]
    assert even_places(33, 11) == [0, 4, 8, 12, 16, 20, 24, 28, 32]
    assert even_places(30, 11)[-1] == 29
    assert even_places(1, 8) == [0]
    for n, most in product(range(1, 70), range(2, 30)):
        places = even_places(n, most)
        assert (places[0], places[-1]) == (0, n - 1)
        assert len(places) <= most
        assert places == sorted({*places})


def test_a_part_of_speech_without_words_has_no_row(encoder_site: Site) -> None:
    study = encoder_site.study
    (section,) = page_of(study).sections
    tables = [table for table in (section.kinds, section.few) if table]
    names = [row.name for table in tables for row in table.rows]
    words = study.words[study.words["class"].isin(UPOS)]
    assert sorted(names) == sorted(TAG_NAMES[tag] for tag in words["class"].unique())
    for table in tables:
        for row in table.rows:
            assert isinstance(row.head, WordsCell)
            (tag,) = [tag for tag, name in TAG_NAMES.items() if name == row.name]
            assert row.head.style == f"cl c-{class_of_tag(tag)}"


def test_pages_as_written_answer_with_figures_and_their_files(any_site: Site) -> None:
    html = html_of(any_site.folder / "geometry.html")
    page = page_of(any_site.study)
    assert len(page.title) <= 60
    first = written_html(any_site.folder / "geometry.html")
    assert first.index("<figure") < first.index('class="closer"')
    charts = elements(html, "figure")
    assert 0 < len(charts) <= 8
    assert {figure.name for figure in figures_of(page)} == {e.attributes["id"] for e in charts}
    for figure in charts:
        for kind in ("svg", "pdf", "csv"):
            assert (any_site.folder / f"figures/{figure.attributes['id']}.{kind}").is_file()
    assert not [e for e in elements(html) if "style" in e.attributes]
    assert len(elements(html)) <= 5000
    assert len((any_site.folder / "geometry.html").read_bytes()) <= 150_000
    for sentence in (page.answer, *(q.answer for q in page.questions)):
        assert len(plain_text(sentence).split()) <= 30
    assert [q.id for q in page.questions] == [s.stack for s in page.sections[1:]]


@pytest.mark.parametrize("family", ["bart", "gpt_neo", "t5"])
def test_each_stack_with_states_has_a_section(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Cross-attention has none of its own, and the page says so."""
    found = run(tmp_path, tiny_folder(family), TEXTS, paired=family != "gpt_neo")
    page = page_of(found)
    crossing = [text for text in page.absent if "no states of its own" in text]
    if family == "gpt_neo":
        assert [s.stack for s in page.sections] == ["self"]
        assert not crossing
    else:
        assert [s.stack for s in page.sections] == ["encoder", "decoder"]
        assert len(crossing) == 1


def test_metrics_can_be_asked_for_one_by_one(tiny_folder: Folder, tmp_path: Path) -> None:
    """A page with what there is, and without the metrics none at all."""
    for name in (*IDS, "cosine_to_input"):
        path = tmp_path / name
        path.mkdir()
        options: dict[str, Any] = {"metrics": f"{name},attention_distance", "sentence_pages": "0"}
        found = run(path, tiny_folder("bert"), TEXTS, **options)
        assert has_geometry(stack_results(found))
        assert plain_text(page_of(found).answer)
        assert set(found.geometry["metric"]) == ({name} if name in IDS else set())
