"""Figures on the site: their numbers as files, and what stands under them."""

import csv
import io
import re
import xml.etree.ElementTree as ET
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import vl_convert

from headbook.charts import Figure, Plot, layers, paper
from headbook.charts.figure import TEXT
from headbook.pages.index import overview_page
from headbook.pages.metric import metric_pages, study_metrics
from headbook.pages.parts.page import SiteFacts
from headbook.report.wording import label_name, unbroken
from headbook.site import latex
from headbook.site.export import figure_files
from headbook.site.figures import study_figures
from headbook.site.page_writer import figures_of
from headbook.site.sites import across_pages
from headbook.study.study import Study
from html_pages import elements, html_of, text_of
from pdf_files import fonts, inches, letters, tall_inches, type_sizes
from sites import Site

pytestmark = pytest.mark.slow

KINDS = (".csv", ".pdf", ".svg")


@cache
def figures(folder: Path) -> dict[str, Figure | Plot]:
    return {figure.name: figure for figure in study_figures(Study.load(folder))}


def charts(folder: Path) -> dict[str, Figure]:
    """Return the figures that have a specification."""
    drawn = figures(folder).items()
    return {name: figure for name, figure in drawn if isinstance(figure, Figure)}


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


def file_rows(site: Site, name: str) -> list[dict[str, str]]:
    return rows_of((site.folder / name).read_bytes())


def drawn_rows(figure: Figure) -> pd.DataFrame:
    """What the specification gives its picture, as a table like the figure's own."""
    assert figure.rows is not None
    columns = [*figure.rows]
    parts = [pd.DataFrame(rows) for rows in figure.spec["datasets"].values()]
    table = pd.concat([part[columns] for part in parts if {*columns} <= {*part}])
    for param in figure.spec.get("params", []):
        field, _, displayed = param["name"].partition("_")
        table = table[table[field] == param["value"]] if displayed else table
    return table.drop_duplicates()


@pytest.mark.slow
def test_every_figure_is_an_svg_a_pdf_and_a_table(any_site: Site) -> None:
    found = {file.name for file in (any_site.folder / "figures").iterdir()}
    assert found == {f"{name}{kind}" for name in figures(any_site.stored) for kind in KINDS}


def test_only_texts_that_turn_or_have_lines_stand_by_transformation(small_site: Site) -> None:
    """Others have a place, which takes fewer letters."""
    files = sorted((small_site.folder / "figures").glob("*.svg"))
    texts = [text for file in files for text in ET.parse(file).iter(TEXT)]  # noqa: S314 - our own
    moved = [text for text in texts if "transform" in text.attrib]
    assert moved
    assert all("rotate" in text.attrib["transform"] or len(text) for text in moved)
    assert len([text for text in texts if {"x", "y"} <= text.attrib.keys()]) > len(moved)


def visible_text(element: ET.Element, hidden: set[str]) -> str:
    """The letters of an element without parts that a width hides."""
    if hidden & {*element.get("class", "").split()}:
        return ""
    parts = [visible_text(part, hidden) + (part.tail or "") for part in element]
    return (element.text or "") + "".join(parts)


def test_files_are_as_wide_as_a_page_and_a_column_with_letters_that_can_be_read(
    encoder_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6.9 and 3.3 inches; 7 to 9 points, selectable. The wide ones are those of the site."""
    monkeypatch.delitem(paper.WIDTHS, "")
    seen = 0
    for name, figure in figures(encoder_site.stored).items():
        drawn = figure_files(figure)
        for kind in (".pdf", ".svg"):
            drawn[kind] = (encoder_site.folder / f"figures/{name}{kind}").read_bytes()
        for ending, wide in (("", 6.9), ("-column", 3.3)):
            pdf, path = drawn[f"{ending}.pdf"], f"{name}{ending}"
            assert inches(pdf) == pytest.approx(wide, abs=0.1 / 72), path
            assert tall_inches(pdf) <= 7 or ending, path
            picture = drawn[f"{ending}.svg"].decode("utf-8")
            assert f'width="{wide}in"' in picture
            texts = [*ET.fromstring(picture).iter(TEXT)]  # noqa: S314 - our own
            hidden = {"at-wide"} if wide > 4 else {"at-wide", "at-page"}
            texts = [text for text in texts if not hidden & {*text.get("class", "").split()}]
            texts += [text for text in texts if "halo" in text.get("class", "")]  # drawn twice
            written = "".join(visible_text(text, hidden) for text in texts)
            assert letters(pdf) == sorted("".join(written.split())), path
            sizes = type_sizes(pdf)
            assert sizes, path
            assert min(sizes) >= 7, path
            assert max(sizes) <= 9.01, path
            seen += 1
    assert seen > 50


def test_files_have_a_title_with_metric_and_keys(encoder_site: Site) -> None:
    for name, title in (
        ("attention_distance-self", "Attention distance of every head, all keys"),
        ("depth-distance", "Attention distance by layer, all heads, sink masked and renormalised"),
    ):
        picture = (encoder_site.folder / f"figures/{name}.svg").read_text("utf-8")
        texts = [*ET.fromstring(picture).iter(TEXT)]  # noqa: S314 - our own
        assert texts[0].text == title


def test_a_pdf_of_several_fonts_and_groups_has_the_same_bytes_each_time() -> None:
    """vl-convert lists fonts, groups and their objects in another order each time."""
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="80" font-family="sans-serif"'
        ' font-size="12">'
        '<g opacity="0.4"><rect width="90" height="40" fill="#0072b2"/></g>'
        '<g opacity="0.7"><rect x="20" width="90" height="40"/><text y="9">in a group</text></g>'
        '<text y="30">Entropy of H5, Ångström, é: 0.25</text>'
        '<text y="50" font-weight="bold">bold</text><text y="70" font-style="italic">italic</text>'
        "</svg>"
    )
    first, *others = (paper.with_ordered_objects(vl_convert.svg_to_pdf(svg)) for _ in range(12))
    assert {*others} == {first}
    assert paper.with_ordered_objects(first) == first
    assert len(fonts(first)) == 3
    assert letters(first) == sorted("inagroupEntropyofH5,Ångström,é:0.25bolditalic")
    assert type_sizes(first) == {12.0}


@pytest.mark.slow
def test_the_table_of_a_figure_has_the_rows_that_are_drawn_and_no_other(any_site: Site) -> None:
    """The picture's own numbers are those of the table, to four decimals."""
    for figure in charts(any_site.stored).values():
        assert figure.rows is not None
        drawn, reported = drawn_rows(figure), figure.rows
        assert len(drawn) == len(reported) > 0, figure.name
        numbers = [name for name in reported if reported[name].dtype.kind == "f"]
        places = [str(name) for name in reported if name not in numbers]
        frames = [frame.sort_values(places, ignore_index=True) for frame in (drawn, reported)]
        for name in places:
            assert frames[0][name].tolist() == frames[1][name].tolist(), figure.name
        seen, exact = (frame[numbers].to_numpy(float) for frame in frames)
        np.testing.assert_allclose(seen, exact, rtol=0, atol=5.1e-5, err_msg=figure.name)


@pytest.mark.slow
def test_plots_of_heads_have_the_numbers_of_the_table(any_site: Site) -> None:
    """In the table's unit, of one view and label of the metric: a share is no per cent."""
    table = file_rows(any_site, "data/heads.csv")
    groups: dict[str, dict[tuple[str, str], dict[tuple[str, str], float]]] = {}
    for row in table:
        if row["value"]:
            of_metric = groups.setdefault(f"{row['metric']}-{row['stack']}-heads", {})
            heads = of_metric.setdefault((row["view"], row["label"]), {})
            heads[row["layer"], row["head"]] = float(row["value"])
    count = 0
    for name in groups.keys() & figures(any_site.stored).keys():
        rows = file_rows(any_site, f"figures/{name}.csv")
        reported = {(row["layer"], row["head"]): float(row["value"]) for row in rows}
        assert any(pytest.approx(one, rel=1e-5) == reported for one in groups[name].values()), name
        count += 1
    assert count


@pytest.mark.slow
def test_numbers_of_heads_and_layers_are_those_of_the_tables(any_site: Site) -> None:
    """Every figure of one head metric, digit by digit."""
    count = 0
    for table, ending in (("heads", ""), ("layers", "-layers")):
        rows = file_rows(any_site, f"data/{table}.csv")
        for stack, metric in dict.fromkeys((row["stack"], row["metric"]) for row in rows):
            name = f"{metric}-{stack}{ending}"
            if name not in figures(any_site.stored) or not (rows and rows[0].get("view")):
                continue
            reported = file_rows(any_site, f"figures/{name}.csv")
            reported = [row for row in reported if row.get("series", "model") == "model"]
            if not reported or "view" not in reported[0]:
                continue  # of a token metric
            displayed = (reported[0]["view"], reported[0].get("label", ""))
            expected = {
                (row["layer"], row.get("head", "")): [row[n] for n in ("value", "low", "high")]
                for row in rows
                if (row["stack"], row["metric"]) == (stack, metric) and row["value"]
                and (row["view"], label_name(row["label"])) == displayed
            }  # fmt: skip
            found = {
                (row["layer"], row.get("head", "")): [row[n] for n in ("value", "low", "high")]
                for row in reported
            }
            assert found == expected, name
            count += len(found)
    assert count > 30


@pytest.mark.slow
def test_numbers_of_states_are_those_of_the_table(encoder_site: Site) -> None:
    states = {row["value"] for row in file_rows(encoder_site, "data/geometry.csv")}
    reported = file_rows(encoder_site, "figures/geometry-space-self.csv")
    assert {row["value"] for row in reported} <= states
    assert len(reported) > 5


def test_the_overview_waits_for_no_chart(small_site: Site) -> None:
    found = small_site.results
    pages = [*metric_pages(found, study_metrics(found))]
    drawn = [figure for page in (*pages, *across_pages(found)) for figure in figures_of(page)]
    waiting = [figure for figure in drawn if isinstance(figure, Figure)]
    assert waiting
    assert not [*figures_of(overview_page(found))]
    assert not [figure.name for figure in waiting if "_chart" in vars(figure)]
    first = waiting[0]
    spec, picture = first.spec, first.svg
    assert "_chart" in vars(first)
    first.forget()
    assert first.svg == picture
    assert "_chart" not in vars(first)  # what was asked for did not need it
    assert first.spec == spec


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "-a", "+a"])
def test_a_label_that_a_spreadsheet_would_run_is_quoted_in_a_figures_table(text: str) -> None:
    rows = pd.DataFrame({"layer": [0, 1], "series": [text, "-1"], "value": [0.5, 0.25]})
    rows = rows.assign(view="raw", low=np.nan, high=np.nan)
    figure = layers.layer_curve("n", "Caption.", rows, title="t")
    table = rows_of(figure_files(figure)[".csv"])
    assert [row["series"] for row in table] == [f"'{text}", "-1"]
    assert [row["low"] for row in table] == ["", ""]


def test_numbers_of_many_layers_do_not_run_together() -> None:
    rows = pd.DataFrame({"layer": range(30), "series": "model", "value": 0.5})
    rows = rows.assign(view="raw", low=0.4, high=0.6)
    svg = layers.layer_curve("n", "Caption.", rows, title="t").svg
    seen = [*map(float, re.findall(r'<text x="([\d.]+)" y="16">\d+</text>', svg))]
    assert len(seen) > 9
    assert min(right - left for left, right in pairwise(seen)) > 16  # two digits, and a gap


def test_curves_with_names_of_lines_are_no_wider_than_others() -> None:
    """So that a metric's map and both of its curves stand beside each other."""
    rows = pd.DataFrame({"layer": range(6), "value": 0.5, "view": "raw", "low": 0.4, "high": 0.6})
    one, other = (rows.assign(series=name) for name in ("model", "uniform attention"))
    wide, named = (
        float(re.search(r'width="([\d.]+)"', figure.svg)[1])  # type: ignore[index]
        for figure in (
            layers.layer_curve("n", "Caption.", each, title="t")
            for each in (one, pd.concat([one, other]))
        )
    )
    assert named <= wide + 1


@pytest.mark.slow
def test_under_a_figure_stand_source_files_address_and_entry(any_site: Site) -> None:
    manifest = any_site.study.manifest
    source = (
        f"{any_site.model.name} ({manifest.model.revision.removeprefix('sha256:')[:12]}) on "
        f"{manifest.inputs[0].name}, {manifest.counts['sentences']} sentences."
    )
    facts = SiteFacts.of(manifest, sentence_pages=True)
    seen = set()
    for page in any_site.pages:
        html = html_of(page)
        there = [e.attributes["href"] for e in elements(html, "a") if "href" in e.attributes]
        files = [link for link in there if re.search(r"(^|/)figures/", link)]
        for name in dict.fromkeys(Path(link).stem for link in files):
            figure = figures(any_site.stored)[name]
            assert [Path(link).suffix for link in files if Path(link).stem == name] == [
                ".svg", ".pdf", ".csv"
            ]  # fmt: skip
            if page.name == "index.html":  # the overview leads to where it stands
                assert any(link.endswith(f".html#{name}") for link in there), name
                continue
            assert f"#{name}" in there
            text = text_of(html)
            is_table = re.search(rf'id="{name}"[^>]*>(?:(?!</figure>).)*?<table', html, re.DOTALL)
            # A caption may stand as title, unit and note.
            parts = re.split(r"[.:] ", figure.caption)
            assert is_table or all(unbroken(part) in text for part in parts), name
            assert source not in text, name  # it stands once, at the end of the page
            assert latex.entry(figure, facts, manifest.created[:4]) in text
            seen.add(name)
    assert seen == set(figures(any_site.stored))
