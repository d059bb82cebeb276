"""The files of a site hold the numbers of its study, documented column by column."""

import csv
import gzip
import hashlib
import io
import json
import math
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from headbook.metrics.patterns.type_shares import LABELS
from headbook.output_folder import FILE_LIST
from headbook.report.tables import STUDY_TABLES
from headbook.site import export
from headbook.site.markup import MAX_PLAIN_CHARACTERS, script
from headbook.site.rows import KeptTable
from headbook.study.manifest import SCHEMA
from headbook.study.study import Study
from headbook.study.tables import TableSpec
from html_pages import data_file, written_html
from sites import Site

TABLES = (*STUDY_TABLES,)
ALWAYS = [name for name in TABLES if not STUDY_TABLES[name].optional]


def safe(text: str) -> str:
    """A text as a CSV has it: one that begins like a formula and is no number has an apostrophe."""
    is_number = text[1:].replace(".", "", 1).isdecimal() and not text.startswith(("=", "@"))
    return "'" * (text[:1] in {*"=+-@\t\r"} and not is_number) + text.replace("\r", "␍")


def rows_of(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, which may be compressed."""
    packed = file.with_name(f"{file.name}.gz")
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else file.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


@cache
def frame_of(site: Site, name: str) -> pd.DataFrame:
    """A table of a site's study, built once for all tests that only look at it."""
    frame: pd.DataFrame = STUDY_TABLES[name].build(site.study)
    return frame


def written(site: Site) -> set[str]:
    """The tables that a site has: those with numbers, and those that every site has."""
    return {name for name in TABLES if (site.folder / f"data/{name}.parquet").exists()}


@pytest.mark.parametrize("name", sorted(ALWAYS))
def test_a_table_that_every_site_has_is_written(any_site: Site, name: str) -> None:
    assert name in written(any_site)


@pytest.mark.parametrize("name", TABLES)
def test_the_parquet_file_is_the_frame_of_the_study(any_site: Site, name: str) -> None:
    frame = frame_of(any_site, name)
    if name not in written(any_site):
        assert frame.empty
        return
    table = pq.read_table(any_site.folder / f"data/{name}.parquet")
    assert table.schema.metadata is None
    assert len(frame)
    pd.testing.assert_frame_equal(table.to_pandas(), frame, check_dtype=False)


@pytest.mark.parametrize("name", TABLES)
def test_the_csv_file_has_the_same_cells_and_empty_ones_for_missing_numbers(
    any_site: Site, name: str
) -> None:
    """To six significant digits; an interval is a hundredth wider at most, and never smaller."""
    frame = frame_of(any_site, name)
    if name not in written(any_site):
        assert frame.empty
        return
    rows = rows_of(any_site.folder / f"data/{name}.csv")
    assert len(rows) == len(frame)
    for column in frame:
        cells = [row[str(column)] for row in rows]
        if pd.api.types.is_float_dtype(frame[column]):
            found = np.array([float(cell) if cell else math.nan for cell in cells])
            exact = frame[column].to_numpy(float)
            assert (np.isnan(found) == np.isnan(exact)).all()
            if column in {"low", "high"}:
                out = (found - exact if column == "high" else exact - found)[~np.isnan(exact)]
                wide = (frame["high"] - frame["low"]).to_numpy(float)[~np.isnan(exact)]
                small = np.abs(exact[~np.isnan(exact)]) * 5e-6
                assert (out >= -small).all()
                assert (out <= wide / 100 + small).all()
                assert max(len(cell.strip("-0.").replace(".", "")) for cell in cells) <= 6
            else:
                expected = [float(f"{value:.6g}") for value in exact]
                np.testing.assert_array_equal(found, expected)
        else:
            assert cells == ["" if v is pd.NA else safe(str(v)) for v in frame[column]]


def test_many_exemplars_are_compressed(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MAX_PLAIN_CSV_BYTES", 0)
    export.write_exemplars(small_site.study, tmp_path)
    (packed,) = tmp_path.iterdir()
    assert packed.name == "exemplars.jsonl.gz"
    basic = (small_site.folder / "data/exemplars.jsonl").read_bytes()
    assert gzip.decompress(packed.read_bytes()) == basic


def test_missing_numbers_are_there_to_be_empty(encoder_site: Site) -> None:
    rows = rows_of(encoder_site.folder / "data/heads.csv")
    assert [row for row in rows if row["value"] == "" and row["n_observations"] == "0"]


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_documented_in_order(any_site: Site, name: str) -> None:
    assert list(frame_of(any_site, name)) == list(STUDY_TABLES[name].columns)


def test_the_data_page_explains_every_file_of_numbers(any_site: Site) -> None:
    page = written_html(any_site.folder / "data.html")
    for file in (any_site.folder / "data").iterdir():
        if file.is_file() and file.suffix != ".js" and file.name != FILE_LIST:
            assert f'href="data/{file.name}"' in page
    for name, table in STUDY_TABLES.items():
        if (any_site.folder / f"data/{name}.parquet").exists():
            assert all(f"<code>{c}</code>" in page or f">{c}<" in page for c in table.columns)


def test_exemplars_are_one_object_a_line(any_site: Site) -> None:
    study = any_site.study
    lines = (any_site.folder / "data/exemplars.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == len(study.sentence_data.exemplars) > 0
    documented = {name for names in export.EXEMPLARS for name in names.split(", ")}
    for record, exemplar in zip(records, study.sentence_data.exemplars, strict=True):
        assert set(record) == documented
        assert (record["stack"], record["layer"], record["head"]) == exemplar.head
        assert record["query_token"]
        assert set(record["texts"]) <= {"source", "target"}


def test_the_manifest_says_how_the_site_was_made(any_site: Site) -> None:
    data = any_site.folder / "data"
    manifest = json.loads((data / "manifest.json").read_text())
    assert manifest["schema"] == SCHEMA
    model = manifest["model"]
    assert model["revision"].startswith("sha256:")
    assert model["name"] == any_site.model.name
    assert model["tokenizer_sha256"]
    assert manifest["options"]["seed"] == 0
    assert {"torch", "transformers", "tokenizers", "spacy", "numpy"} <= set(manifest["versions"])
    (facts,) = manifest["inputs"]
    content = (any_site.place / facts["name"]).read_bytes()
    assert facts["sha256"] == hashlib.sha256(content).hexdigest()
    assert facts["sentences"] == manifest["counts"]["sentences"]
    assert manifest["checked_sentences"] > 0
    assert all(check["error"] <= check["tolerance"] for check in manifest["checks"])
    assert manifest["checks"]
    for name, size in manifest["sizes"].items():
        assert (data / name).stat().st_size == size
    there = {name.removesuffix(".gz") for name in manifest["sizes"]}
    assert {f"{name}.csv" for name in written(any_site)} <= there


def test_maps_of_heads_are_the_bytes_of_the_study(any_site: Site) -> None:
    exemplars = any_site.study.sentence_data.by_weight
    drawn = Counter(exemplar.head for exemplar in exemplars)
    for exemplar in exemplars:
        stack, layer, head = exemplar.head
        prefix = "" if stack == "self" else f"{stack}-"
        name = f"{prefix}L{layer:02}-H{head:02}"
        called, maps = data_file(any_site.folder / f"data/heads/{name}.js")
        assert called == name
        assert len(maps) == drawn[exemplar.head]
        found = maps[f"{exemplar.ranking}-{exemplar.rank}"]
        cells = np.frombuffer(found["weights"], np.uint8)
        assert cells.tolist() == exemplar.attention.ravel().tolist()
        sides = (found.get("queries", found["keys"]), found["keys"])
        assert tuple(len(side["pieces"]) for side in sides) == exemplar.attention.shape


def test_every_script_of_data_can_stand_in_a_page(any_site: Site) -> None:
    for file in sorted((any_site.folder / "data").rglob("*.js")):
        assert not set("<>&") & set(file.read_bytes().decode()), file
        data_file(file)


def test_a_table_that_is_too_large_for_csv_stays_in_parquet(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (small_site.folder / "data/heads.csv").stat().st_size
    monkeypatch.setattr(export, "MAX_CSV_BYTES", size - 1)
    (left_out, *_) = export.write_tables(STUDY_TABLES.values(), small_site.study, tmp_path)
    assert left_out == f"heads.csv would hold more than {size - 1:,} bytes; use the Parquet file"
    assert not (tmp_path / "heads.csv").exists()
    assert (tmp_path / "heads.parquet").exists()
    monkeypatch.undo()
    small = replace(STUDY_TABLES["tokens"], csv_limit=100)
    monkeypatch.setitem(STUDY_TABLES, "tokens", small)
    (left_out,) = export.write_tables(STUDY_TABLES.values(), small_site.study, tmp_path)
    assert left_out.startswith("tokens.csv would hold more than 100 bytes")


def test_a_table_written_in_pieces_is_the_same(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "CSV_BLOCK_ROWS", 7)
    export.write_tables(STUDY_TABLES.values(), small_site.study, tmp_path)
    for name in ("heads.csv", "layers.csv", "tokens.csv"):
        assert (tmp_path / name).read_bytes() == (small_site.folder / "data" / name).read_bytes()


def test_a_large_table_is_compressed_and_holds_the_same(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most used ones stay as they are for longer; the same bytes every time."""
    basic = small_site.folder / "data"
    size = (basic / "layers.csv").stat().st_size
    monkeypatch.setattr(export, "MAX_PLAIN_CSV_BYTES", 0)
    for name in STUDY_TABLES:
        limit = size if name == "layers" else None
        table = replace(STUDY_TABLES[name], plain_csv_limit=limit)
        monkeypatch.setitem(STUDY_TABLES, name, table)
    assert export.write_tables(STUDY_TABLES.values(), small_site.study, tmp_path) == []
    assert (tmp_path / "layers.csv").read_bytes() == (basic / "layers.csv").read_bytes()
    packed = tmp_path / "heads.csv.gz"
    assert gzip.decompress(packed.read_bytes()) == (basic / "heads.csv").read_bytes()
    assert not (tmp_path / "heads.csv").exists()
    first = packed.read_bytes()
    export.write_tables(STUDY_TABLES.values(), small_site.study, tmp_path)
    assert packed.read_bytes() == first


def test_numbers_that_repeat_stand_whole_in_parquet_and_others_byte_by_byte(tmp_path: Path) -> None:
    """Which takes less, as repetitions are found; missing ones repeat nothing."""
    rng = np.random.default_rng(0)
    rare = np.where(np.arange(4_000) % 4, np.nan, rng.random(4_000))
    frame = pd.DataFrame(
        {"same": rng.random(400).repeat(10), "new": rng.random(4_000), "rare": rare}
    )
    export.write_table(frame, TableSpec("t", "Numbers.", {}, lambda _: frame), tmp_path)
    stored = pq.ParquetFile(tmp_path / "t.parquet")
    columns = map(stored.metadata.row_group(0).column, range(3))
    spread = {each.path_in_schema for each in columns if "BYTE_STREAM_SPLIT" in each.encodings}
    assert spread == {"new", "rare"}
    pd.testing.assert_frame_equal(stored.read().to_pandas(), frame)


@pytest.mark.parametrize(
    "value",
    [
        [1, "é</script>"],
        {"a": ["<&>" * MAX_PLAIN_CHARACTERS, 0.25]},
        {"10": b"\n<", "9": [b"", {"bytes": 1}]},
    ],
)
def test_a_data_file_gives_back_what_it_holds(value: Any, tmp_path: Path) -> None:
    text = script("name", value)
    packed = len(str(value)) > MAX_PLAIN_CHARACTERS or "bytes" in str(value)
    assert text.startswith("headbook.packed(" if packed else "headbook.take(")
    assert not set("<&>") & set(text)
    assert script("name", value) == text
    (tmp_path / "name.js").write_bytes(text.encode())
    assert data_file(tmp_path / "name.js") == ("name", value)


@pytest.mark.parametrize("text", ["=1+1", "+1-1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "-"])
def test_a_cell_that_a_spreadsheet_would_run_is_quoted(
    small_site: Site, tmp_path: Path, text: str
) -> None:
    displayed = "'" + text.replace("\r", "␍")  # as pages show it; a bare one would end a row
    study = Study.load(small_site.stored)
    study.tokens["token"] = text
    study.nearest["neighbour"] = text
    export.write_tables(STUDY_TABLES.values(), study, tmp_path)
    assert {row["token"] for row in rows_of(tmp_path / "tokens.csv")} == {displayed}
    assert {row["neighbour"] for row in rows_of(tmp_path / "nearest.csv")} == {displayed}
    assert set(pq.read_table(tmp_path / "tokens.parquet")["token"].to_pylist()) == {text}


CELLS = ["=1+1", "+x", "-LRB-", "@", "-2", "+3", "-0.5", "even_-2", "a\nb", "", None]
SAFE = ["'=1+1", "'+x", "'-LRB-", "'@", "-2", "+3", "-0.5", "even_-2", "a\nb", "", ""]
NUMBERS = np.linspace(-5, 5, len(CELLS))


@pytest.mark.parametrize("column", ["label", "facet", "metric", "class", "a column of a plug-in"])
@pytest.mark.parametrize("categories", [False, True])
def test_texts_of_any_column_are_no_formulas_and_numbers_stay(
    tmp_path: Path, column: str, categories: bool
) -> None:
    """Tags of a treebank are labels: "-LRB-" is a formula to a spreadsheet, and "-2" a number."""
    frame = pd.DataFrame({column: CELLS, "value": NUMBERS, "n": range(-5, 6)})
    if categories:
        frame = frame.astype({column: "category"})
    table: TableSpec[None] = TableSpec("small", "", dict.fromkeys([*frame], ""), lambda _: frame)
    export.write_table(frame, table, tmp_path)
    rows = rows_of(tmp_path / "small.csv")
    assert [row[column] for row in rows] == SAFE
    assert [float(row["value"]) for row in rows] == pytest.approx(NUMBERS.tolist(), rel=1e-5)
    assert [int(row["n"]) for row in rows] == [*range(-5, 6)]
    kept = KeptTable(frame)
    assert kept.n_lines == len((tmp_path / "small.csv").read_text().splitlines())
    assert kept.find((("n", 5),)).line == kept.n_lines


def test_no_label_of_a_metric_is_a_formula() -> None:
    """Labels of shares begin with offsets such as -2; only a whole number may have a sign."""
    frame = pd.DataFrame({"label": LABELS})
    assert export.csv_rows(frame, header=False).decode().split() == [*LABELS]
