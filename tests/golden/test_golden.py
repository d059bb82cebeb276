"""Stored studies still render; pages and tables change only when somebody means it."""

from pathlib import Path

import pandas as pd
import pytest

from golden import pages
from golden import tables as golden
from golden.refresh import COMMAND, PAGES, STUDY, collect_again, outline, stored
from headbook import render
from headbook.study.study import Study
from same_tables import differences, stored_tables, tables

LATER = {"exemplars", "importance", "top_tokens"}  # of which the stored study has less, or none

HEADS = pd.DataFrame({"layer": [0, 0, 1], "head": [0, 1, 0], "value": [0.5, 1.0, None]})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the stored study."""
    return render(STUDY, tmp_path_factory.mktemp("golden") / "site").index.parent


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_as_it_did(site: Path, name: str) -> None:
    expected = stored(name).read_text(encoding="utf-8").splitlines()
    found = outline(site / name).splitlines()
    assert found == expected, f"{name} changed; if that is meant, run: {COMMAND}"


def test_a_stored_study_is_read_as_it_was_written() -> None:
    study = Study.load(STUDY)
    assert study.manifest.title == "A stored study"
    assert len(study.heads) > 0
    assert len(study.sentence_data.maps) > 0


def test_numbers_are_those_of_the_stored_study(tmp_path: Path) -> None:
    again = Study.load(collect_again(tmp_path))
    every = differences(tables(Study.load(STUDY)), tables(again))
    rows = [difference for difference in every if difference.table not in LATER]
    assert sum(difference.rows for difference in rows) > 1000
    assert not [str(difference) for difference in rows if difference.where]


def test_stored_tables_are_those_that_were_written(tmp_path: Path) -> None:
    golden.write({"heads": HEADS}, tmp_path / "encoder")
    stored = stored_tables(tmp_path / "encoder")
    equal, lines = golden.compare(stored, {"heads": HEADS})
    assert equal
    assert len(lines) == 1
    equal, lines = golden.compare(stored, {"heads": HEADS.assign(value=0.5)})
    assert not equal
    assert "value of layer=0 head=1: 1.0 and 0.5" in lines[0]


def test_renamed_tables_and_columns_are_compared_by_their_stored_names() -> None:
    found = {"head_values": HEADS.rename(columns={"value": "share"})}
    given = golden.stored_names(found, {"heads": "head_values"}, {"heads": {"value": "share"}})
    assert golden.compare({"heads": HEADS}, given)[0]


def test_pages_are_compared_line_by_line_and_equal_changes_listed_once() -> None:
    stored = {name: ["<p>", " One", "</p>"] for name in ("a.html", "b.html", "c.html", "d.html")}
    assert pages.compare(stored, {name: ["<p>", "One", "</p>"] for name in stored}) == []
    found = {name: ["<p>", " Two", "</p>"] for name in ("a.html", "b.html")} | {
        "c.html": ["<p>", " One"],
        "e.html": [],
    }
    assert pages.compare(stored, found) == [
        "missing: d.html",
        "added: e.html",
        "a.html and 1 more: b.html …",
        "    -One",
        "    +Two",
        "c.html",
        "    -</p>",
    ]
