"""Stored studies still render, and their pages change only when somebody means it."""

from pathlib import Path

import pytest

from golden.refresh import COMMAND, PAGES, STUDY, collect_again, outline, stored
from headbook import render
from headbook.study.study import Study
from same import WITHIN, differences

LATER = {"exemplars", "importance", "top_tokens"}  # of which the stored study has less, or none


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
    every = differences(Study.load(STUDY), again)
    rows = [difference for difference in every if difference.table not in LATER]
    assert sum(difference.rows for difference in rows) > 1000
    assert not [difference for difference in rows if difference.largest > WITHIN]
