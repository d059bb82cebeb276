"""Stored studies still render, and their pages change only when somebody means it."""

from pathlib import Path

import pytest

from golden.refresh import COMMAND, PAGES, STUDY, outline, stored
from headbook import render
from headbook.stored.study import Study


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
    assert len(study.portrait.maps) > 0
