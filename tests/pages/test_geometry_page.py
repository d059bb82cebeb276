"""The geometry of states in a study, its table and its page."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headbook
from block_parts import every, group_of
from geometry_texts import IDS, TEXTS, run, sentences
from headbook.analysis.accumulators import RatioSums
from headbook.charts.axes import even_places
from headbook.metrics import all_metrics
from headbook.pages.geometry import geometry_page, has_geometry
from headbook.pages.geometry_parts.state_space import HEADINGS
from headbook.pages.overview_parts.answers import words_text
from headbook.pages.parts.blocks import Details, Page, Table
from headbook.report.facts.states.geometry import few_dimensions, numbers_by_class
from headbook.report.relations import TAG_NAMES
from headbook.report.results import stack_results
from headbook.report.token_neighbours import class_of_tag
from headbook.results.number import Number
from headbook.results.sentence import Marked
from headbook.schema import SPECIAL_ROLES, UPOS
from headbook.study.manifest import MissingPart
from headbook.study.study import Study, merge
from headbook.study.sums.state_geometry import CKA, GeometrySums, StateColumn
from html_pages import elements, html_of, text_of, written_html
from sites import Site

pytestmark = pytest.mark.slow

Folder = Callable[[str], Path]
COLUMNS = ["stack", "layer", "state", "metric", "label", "value", "low", "high", "n_sentences"]


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Enough sentences for a few minibatches."""
    return run(tmp_path_factory.mktemp("long"), tiny_folder("bert"), sentences(200))


def page_of(study: Study) -> Page:
    return geometry_page(stack_results(study))


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
    # As texts: a missing part is NaN, which equals nothing.
    assert repr(number_tables(page_of(stored))) == repr(number_tables(page_of(study)))


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
    captions = [table.caption for table in every(Table, page_of(found))]
    assert "How alike two layers are" not in captions


def number_tables(page: Page) -> list[Table]:
    """The tables of all numbers of states."""
    (details,) = (each for each in every(Details, page) if each.file == "geometry.csv")
    return every(Table, details)


def test_tables_hold_every_number_of_the_file_with_its_interval(study: Study) -> None:
    file = study.geometry
    labels = {heading: label for label, heading in HEADINGS.items()} | {"value": ""}
    named = {metric.title: metric for metric in all_metrics().values()}
    checked = 0
    for table in number_tables(page_of(study)):
        assert [row[0] for row in table.rows] == ["input", "L0", "L1"]
        metrics = [named[words_text(title)] for title, n in table.groups for _ in range(n)]
        for cells, state in zip(table.rows, [np.nan, 0, 1], strict=True):
            for metric, heading, cell in zip(metrics, table.columns[1:], cells[1:], strict=True):
                assert isinstance(cell, Number)
                rows = file[(file["metric"] == metric.id) & (file["label"] == labels[str(heading)])]
                rows = rows[rows["layer"].isna() if np.isnan(state) else rows["layer"] == state]
                wanted = rows[["value", "low", "high"]].to_numpy(np.float64)[0]
                np.testing.assert_array_equal([cell.value, cell.low, cell.high], wanted)
                assert np.isnan(cell.low) or metric.limits[0] <= cell.low <= cell.high
                checked += not np.isnan(cell.low)
    assert checked > 20
    constant = (file["metric"] == "standardised_cosine") & file["layer"].isna()
    assert file[constant]["value"].to_numpy() == pytest.approx(1)
    assert file[constant][["low", "high"]].isna().all(axis=None)


def test_dimensions_are_those_that_add_most(study: Study) -> None:
    (table,) = (table for table in every(Table, page_of(study)) if "dimension" in table.columns)
    file = study.geometry[study.geometry["metric"] == "outlier_dimensions"]
    largest = []
    for name, _, _, dimension, _ in table.rows:
        part = file[
            file["layer"].isna()
            if name == "input"
            else file["layer"] == int(str(name).removeprefix("layer "))
        ]
        named = part[part["label"].str.startswith("dimension ")]
        assert dimension == named["label"].iloc[0].removeprefix("dimension ")
        three = part[part["label"] == "three"]["value"].item()
        assert three == pytest.approx(named["value"].iloc[:3].sum(), rel=0, abs=1e-12)
        largest.append(part[part["label"] == "largest"]["value"].item())
    assert largest == sorted(largest, reverse=True)


@pytest.mark.parametrize(
    ("largest", "holds"), [([0.02, 0.03, 0.04], False), ([0.02, 0.1, 0.04], True)]
)
def test_few_dimensions_make_tokens_alike_from_a_quarter_of_the_mean_cosine_on(
    study: Study, largest: list[float], holds: bool
) -> None:
    """A quarter of the mean cosine of 0.2 is 0.05."""
    sums = study.corpus_sums.geometry["self"]
    chosen = sums.states.sums.copy()
    for column, values in (("raw", [0.2] * 3), ("largest", largest)):
        metric = "anisotropy" if column == "raw" else "outlier_dimensions"
        place = sums.columns.index(StateColumn(metric, column))
        chosen[0, :, :, place] = np.array(values) * chosen[1, :, :, place]
    changed = {"self": replace(sums, states=RatioSums(chosen))}
    other = replace(study, corpus_sums=replace(study.corpus_sums, geometry=changed))
    assert few_dimensions(stack_results(other)["self"]).holds is holds


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
    page = page_of(encoder_site.study)
    tables = [table for table in every(Table, group_of(page, "kinds")) if "words" in table.columns]
    heads = [row[0] for table in tables for row in table.rows]
    words = encoder_site.study.words
    tags = words[words["class"].isin(UPOS)]["class"].unique()
    assert sorted(heads, key=str) == sorted(
        (Marked(TAG_NAMES[tag], f"cl c-{class_of_tag(tag)}") for tag in tags), key=str
    )


def test_pages_as_written_are_small_and_begin_with_a_figure(any_site: Site) -> None:
    html = html_of(any_site.folder / "geometry.html")
    first = written_html(any_site.folder / "geometry.html")
    assert first.index("<figure") < first.index('class="closer"')
    assert 0 < len(elements(html, "figure")) <= 8
    assert not [e for e in elements(html) if "style" in e.attributes]
    assert len(elements(html)) <= 5000
    assert len((any_site.folder / "geometry.html").read_bytes()) <= 150_000


def test_special_tokens_have_a_line_for_each_role(encoder_site: Site) -> None:
    """The mean of both would be that of neither."""
    results = stack_results(encoder_site.study)["self"]
    rows = encoder_site.study.words
    rows = rows[(rows["metric"] == "cosine_to_input") & (rows["state"] == "out")]
    values = {kind: rows[rows["class"] == kind]["value"].to_numpy() for kind in SPECIAL_ROLES}
    by_class = numbers_by_class(results, "cosine_to_input")
    for kind in SPECIAL_ROLES:
        np.testing.assert_array_equal([n.value for n in by_class[kind]], values[kind])
    assert "special" not in by_class


@pytest.mark.parametrize("family", ["bart", "gpt_neo", "t5"])
def test_each_stack_with_states_has_a_section(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Cross-attention has none of its own, and the page says so."""
    found = run(tmp_path, tiny_folder(family), TEXTS, paired=family != "gpt_neo")
    page = page_of(found)
    crossing = [text for text in page.absent if "no states of its own" in text]
    if family == "gpt_neo":
        assert group_of(page, "space")
        assert not crossing
    else:
        assert group_of(page, "space-encoder")
        assert group_of(page, "space-decoder")
        assert len(crossing) == 1


def test_metrics_can_be_asked_for_one_by_one(tiny_folder: Folder, tmp_path: Path) -> None:
    """A page with what there is, and without the metrics none at all."""
    for name in (*IDS, "cosine_to_input"):
        path = tmp_path / name
        path.mkdir()
        options: dict[str, Any] = {"metrics": f"{name},attention_distance", "sentence_pages": "0"}
        found = run(path, tiny_folder("bert"), TEXTS, **options)
        assert has_geometry(stack_results(found))
        assert page_of(found).answer
        assert set(found.geometry["metric"]) == ({name} if name in IDS else set())
