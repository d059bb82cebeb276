"""The geometry of states in a study, its table and its page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headbook
from geometry_texts import IDS, TEXTS, run, sentences
from headbook.analysis.state_vectors import MINIBATCH
from headbook.metrics import all_metrics
from headbook.pages.geometry import HEADINGS, GeometryPage, geometry_page, has_geometry
from headbook.pages.parts.table import NumberCell
from headbook.report.results import stack_results
from headbook.report.wording import interval_text, is_share, number
from headbook.study.state_geometry import CKA, GeometrySums
from headbook.study.study import Study
from html_pages import elements, html_of, lines, text, text_of
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
    assert page_of(stored).sections[0].tables == page_of(study).sections[0].tables


def test_two_studies_have_the_mean_of_their_numbers_by_sentences(
    study: Study, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Squared errors add up, each weighted by its part of the sentences squared."""
    other = run(tmp_path, tiny_folder("bert"), TEXTS)
    both = (study + other).corpus_sums.geometry["self"]
    parts = [s.corpus_sums.geometry["self"] for s in (study, other)]
    assert (both.sentences, both.tokens) == tuple(
        sum(pair) for pair in zip(*((p.sentences, p.tokens) for p in parts), strict=True)
    )
    one, two = (part.states.value for part in parts)
    mean = np.where(np.isnan(two), one, (200 * one + 14 * two) / 214)  # no minibatch in the other
    assert both.states.value == pytest.approx(mean, rel=0, abs=1e-12)
    assert np.isnan(two).any()
    assert both.cka == pytest.approx(parts[0].cka, rel=0, abs=1e-12)
    contributions = (200 * parts[0].contributions + 14 * parts[1].contributions) / 214
    assert both.contributions == pytest.approx(contributions, rel=0, abs=1e-12)


def sizes_of(sums: GeometrySums) -> tuple[int, int, int]:
    return sums.sentences, sums.tokens, sums.minibatches


@pytest.mark.parametrize(
    ("texts", "expected", "missing"),
    [
        (["water"], (1, 1, 0), {"anisotropy", "self-similarity", "effective rank"}),
        (["the dog sees the bird"] * 9, (1, 5, 0), {"anisotropy", "self-similarity"}),
        (["the dog", "old water"], (2, 4, 0), {"self-similarity", "maximum", "effective rank"}),
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
    remarks = " ".join(page_of(found).sections[0].remarks)
    for what in missing:
        assert what in remarks
    table = found.geometry
    gone = {"effective_rank", CKA, "self_similarity"}
    assert table[table["metric"].isin(gone)]["value"].isna().all()
    assert ((table["metric"] == "anisotropy") & table["value"].isna()).any() == (expected[0] < 2)
    headbook.render(found, tmp_path / "site")
    html = html_of(tmp_path / "site/geometry.html")
    assert "Not available" in text_of(html)
    assert not [e for e in elements(html, "figure") if "cka" in e.attributes.get("id", "")]


def test_tables_hold_the_numbers_of_the_file(study: Study) -> None:
    section = page_of(study).sections[0]
    file = study.geometry
    named = {metric.title: metric.id for metric in all_metrics().values()}
    assert [row.name for row in section.tables[0][1].rows] == ["input", "L0", "L1"]
    for _, table in section.tables:
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
    for _, table in section.tables:
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


def test_outliers_are_those_of_the_file_with_their_part_of_the_whole(study: Study) -> None:
    file = study.geometry
    table = page_of(study).sections[0].outliers
    assert table is not None
    for row, layer in zip(lines(table), (-1, 0, 1), strict=True):
        part = file[(file["layer"].fillna(-1) == layer) & (file["metric"] == "outlier_dimensions")]
        named = part[part["label"].str.startswith("dimension ")]
        assert [
            f"dimension {part.text}" for part in row["the largest"].parts if part[1:] == ("b",)
        ] == named["label"].tolist()[:3]
        three = part[part["label"] == "three"]["value"].item()
        assert three == pytest.approx(named["value"].iloc[:3].sum(), rel=0, abs=1e-12)
        assert row["together"].text == number(three)


def test_sentences_of_the_page_name_its_numbers(study: Study) -> None:
    section, sums = page_of(study).sections[0], study.corpus_sums.geometry["self"]
    message = " ".join(section.summary)
    position = next(i for i, c in enumerate(sums.columns) if c == ("anisotropy", "raw"))
    first, *_, last = sums.states.value[:, position]
    assert (
        f"different sentences: {number(first)} at the input, {number(last)} after the last"
        in message
    )
    assert f"CKA {number(float(np.diag(sums.cka, 1).min()))}" in message
    assert f"; input and last layer: {number(float(sums.cka[0, -1]))}" in message
    assert f"Effective rank of {MINIBATCH} tokens: " in message


def test_pages_as_written_have_figures_tables_and_files(encoder_site: Site) -> None:
    html = html_of(encoder_site.folder / "geometry.html")
    for name in encoder_site.study.corpus_sums.geometry:
        for kind in ("geometry", "geometry-dimensions"):
            assert (encoder_site.folder / f"figures/{kind}-{name}.pdf").is_file()
        assert name in {e.attributes.get("id") for e in elements(html, "h2")}
    assert (encoder_site.folder / "data/geometry.csv").is_file()
    assert "geometry.html" in html_of(encoder_site.folder / "index.html")
    metric = html_of(encoder_site.folder / "metrics/anisotropy.html")
    assert "../geometry.html" in {e.attributes.get("href") for e in elements(metric, "a")}
    assert "Not available" not in text_of(metric)


@pytest.mark.parametrize("family", ["bart", "gpt_neo", "t5"])
def test_each_stack_with_states_has_a_section(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Cross-attention has none of its own, and the page says so."""
    found = run(tmp_path, tiny_folder(family), TEXTS, paired=family != "gpt_neo")
    page = page_of(found)
    if family == "gpt_neo":
        assert [s.stack for s in page.sections] == ["self"]
        assert not page.without
    else:
        assert [s.stack for s in page.sections] == ["encoder", "decoder"]
        assert "no states of its own" in page.without[0]


def test_metrics_can_be_asked_for_one_by_one(tiny_folder: Folder, tmp_path: Path) -> None:
    """A page with what there is, and without the metrics none at all."""
    for name in (*IDS, "cosine_to_input"):
        path = tmp_path / name
        path.mkdir()
        options: dict[str, Any] = {"metrics": f"{name},attention_distance", "sentence_pages": "0"}
        found = run(path, tiny_folder("bert"), TEXTS, **options)
        assert has_geometry(stack_results(found)) == (name in IDS)
        assert set(found.geometry["metric"]) == ({name} if name in IDS else set())
