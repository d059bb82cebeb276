"""Work shared out among processes."""

from pathlib import Path

import pytest

from headbook.errors import OutputError
from headbook.writing.export import walk
from headbook.writing.parallel import Shares
from headbook.writing.site import render
from shares import dies, refuses, squares
from sites import Site

pytestmark = pytest.mark.slow  # each process imports Python's libraries afresh


def test_every_piece_of_work_is_done_once() -> None:
    for processes in (1, 3):
        with Shares(squares, (10,), processes) as found:
            assert sorted(found) == [number**2 for number in range(10)]


def test_what_a_process_raises_is_raised_where_the_work_was_asked_for() -> None:
    with pytest.raises(OutputError, match="no room"), Shares(refuses, (), 2) as found:
        list(found)


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="died"), Shares(dies, (), 2) as found:
        list(found)


def test_several_processes_write_the_same_site_as_one(small_site: Site, tmp_path: Path) -> None:
    summary = render(small_site.study, tmp_path / "site", processes=2)
    written = {file.relative_to(tmp_path / "site"): file for file in walk(tmp_path / "site")}
    alone = {file.relative_to(small_site.folder): file for file in walk(small_site.folder)}
    assert written.keys() == alone.keys()
    for path, file in written.items():
        assert file.read_bytes() == alone[path].read_bytes(), path
    assert summary.pages == sum(path.suffix == ".html" for path in written)
