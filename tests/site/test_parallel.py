"""Work shared among processes, and sites that several of them draw."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import headbook
from headbook.errors import OutputError, ResourceError, StudyError
from headbook.pages.index import overview_page
from headbook.site import sites
from headbook.site.parallel import DrawingPool, default_processes
from html_pages import differing
from sites import Site
from worker_jobs import dies, is_killed, mumbles, refuses, squares

pytestmark = pytest.mark.slow  # each process imports Python's libraries afresh


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 3), (64, 3)])
def test_one_process_for_every_two_cores_is_the_default(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int
) -> None:
    """Each has the whole study in memory."""
    allowed = {*range(cores)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    assert default_processes() == processes


def test_every_piece_of_work_is_done_once() -> None:
    for processes in (1, 3):
        with DrawingPool(squares, (10,), processes) as shares:
            assert sorted(shares) == [number**2 for number in range(10)]


def test_what_a_process_raises_is_raised_where_the_work_was_asked_for() -> None:
    with pytest.raises(OutputError, match="no room"), DrawingPool(refuses, (), 2) as shares:
        list(shares)


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="died"), DrawingPool(dies, (), 2) as shares:
        list(shares)


def test_a_process_that_is_killed_tells_of_memory() -> None:
    """As Linux kills one where memory runs out."""
    with pytest.raises(ResourceError, match="SIGKILL"), DrawingPool(is_killed, (), 2) as shares:
        list(shares)


def test_an_error_that_cannot_travel_is_known_all_the_same() -> None:
    with (
        pytest.raises(RuntimeError, match="MumbledError: 3 words"),
        DrawingPool(mumbles, (), 1) as shares,
    ):
        list(shares)


PARENT = """
import sys
from headbook.site.parallel import DrawingPool
from worker_jobs import waits
if __name__ == "__main__":
    with DrawingPool(waits, (sys.argv[1],), 2) as found:
        list(found)
"""


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_when_their_parent_is_killed(tmp_path: Path, number: int) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    paths = [str(Path(__file__).parents[1] / "support"), *sys.path]
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py"), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    while len(found := [*tmp_path.glob("*.pid")]) < 2:
        assert parent.poll() is None
        time.sleep(0.02)
    parent.send_signal(number)
    parent.wait()
    workers = [int(file.stem) for file in found]
    for _ in range(250):
        if not any(map(psutil.pid_exists, workers)):
            break
        time.sleep(0.02)
    assert not any(map(psutil.pid_exists, workers))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("stored", [True, False])
def test_several_processes_write_the_bytes_of_one(
    small_site: Site, tmp_path: Path, temporary: Path, stored: bool
) -> None:
    """Of a study in its folder, and of one in memory, of which no copy is left."""
    study = small_site.stored if stored else small_site.study
    headbook.render(study, tmp_path / "site", processes=3)
    assert differing(small_site.folder, tmp_path / "site") == []
    assert [*temporary.iterdir()] == []


@pytest.mark.soak
@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt()])
def test_a_fault_leaves_no_copy_of_a_study(
    small_site: Site,
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
) -> None:
    def broken(*_: object) -> None:
        assert [*temporary.rglob("arrays.safetensors")]
        raise fault

    monkeypatch.setattr(sites, "about_page", broken)
    with pytest.raises(type(fault)):
        headbook.render(small_site.study, tmp_path / "site", processes=2)
    assert [*temporary.iterdir()] == []


@pytest.mark.soak
def test_pages_of_two_studies_are_never_mixed(
    small_site: Site, encoder_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another study takes the place of the one whose pages are drawn."""
    shutil.copytree(small_site.stored, tmp_path / "study")

    def replaced(*given: Any) -> Any:  # after this process has read it, before others do
        encoder_site.study.save(tmp_path / "study", force=True)
        return overview_page(*given)

    monkeypatch.setattr(sites, "overview_page", replaced)
    with pytest.raises(StudyError, match="another study was saved here"):
        headbook.render(tmp_path / "study", tmp_path / "site", processes=2)
    assert not (tmp_path / "site").exists()
