"""Work shared out among processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headbook.errors import OutputError, ResourceError
from headbook.site.parallel import Shares
from shares import dies, is_killed, mumbles, refuses, squares

pytestmark = pytest.mark.slow  # each process imports Python's libraries afresh


def test_every_piece_of_work_is_done_once() -> None:
    for processes in (1, 3):
        with Shares(squares, (10,), processes) as shares:
            assert sorted(shares) == [number**2 for number in range(10)]


def test_what_a_process_raises_is_raised_where_the_work_was_asked_for() -> None:
    with pytest.raises(OutputError, match="no room"), Shares(refuses, (), 2) as shares:
        list(shares)


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="died"), Shares(dies, (), 2) as shares:
        list(shares)


def test_a_process_that_is_killed_tells_of_memory() -> None:
    """As Linux kills one where memory runs out."""
    with pytest.raises(ResourceError, match="SIGKILL"), Shares(is_killed, (), 2) as shares:
        list(shares)


def test_an_error_that_cannot_travel_is_told_all_the_same() -> None:
    with (
        pytest.raises(RuntimeError, match="MumbledError: 3 words"),
        Shares(mumbles, (), 1) as shares,
    ):
        list(shares)


PARENT = """
import sys
from pathlib import Path
from headbook.site.parallel import Shares
from shares import waits
if __name__ == "__main__":
    with Shares(waits, (sys.argv[1],), 2, Path(sys.argv[1])) as found:
        list(found)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_when_their_parent_is_killed(tmp_path: Path, number: int) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    paths = [str(Path(__file__).parent), *sys.path]
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
