"""Processes that Headbook starts, in a folder of somebody else with modules of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headbook.child_processes import SAFE_PATH, without_current_folder

# Modules that a process would take from the current folder instead of Python's library or packages.
OTHERS = ("headbook", "numpy", "pandas", "ray", "torch", "vl_convert", "worker_jobs")
MODULE = "open({mark!r}, 'a').write(__name__ + ' ')\nraise SystemExit(0)\n"

DRAWING = """
from headbook.site.parallel import DrawingPool
from worker_jobs import squares
if __name__ == "__main__":
    with DrawingPool(squares, (6,), 2) as shares:
        print(sorted(shares))
"""
WORKERS = """
from pathlib import Path
from headbook.config import Config
from headbook.run.workers import WorkerJob, measure_in_workers
from worker_jobs import echoes
if __name__ == "__main__":
    config = Config(device="cpu", workers=2, engine={engine!r})
    job, found = WorkerJob((), Path.cwd(), config, Path.cwd(), {{}}, echoes), {{}}
    measure_in_workers(job, range(3), found.__setitem__)
    print(sorted(found.items()))
"""
LIMITED = """
import resource
from headbook.memory import check_address_space
resource.setrlimit(resource.RLIMIT_AS, (1 << 46, 1 << 46))
print(check_address_space())
"""
MEASURED = "[(0, 'shard 0'), (1, 'shard 1'), (2, 'shard 2')]\n"


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder with a module for every name, each of which would tell that it has run."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    for name in (*sys.stdlib_module_names, *OTHERS):
        (folder / f"{name}.py").write_text(MODULE.format(mark=str(tmp_path / "ran")))
    return folder


def output(script: str, here: Path, *words: str) -> str:
    """Run a script, which lies elsewhere, in a folder; return what it prints."""
    file = here.parent / "script.py"
    file.write_text(script)
    paths = [str(Path(__file__).parent / "support"), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, str(file), *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        cwd=here, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert not (here.parent / "ran").exists(), (here.parent / "ran").read_text()
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.slow
def test_processes_that_draw_run_nothing_of_the_current_folder(stranger: Path) -> None:
    assert output(DRAWING, stranger) == "[0, 1, 4, 9, 16, 25]\n"


@pytest.mark.soak
@pytest.mark.slow
def test_workers_run_nothing_of_the_current_folder(stranger: Path) -> None:
    assert output(WORKERS.format(engine="local"), stranger) == MEASURED


@pytest.mark.soak
@pytest.mark.slow
def test_actors_run_nothing_of_the_current_folder(stranger: Path) -> None:
    """Ray gives them the current folder as a place of modules, before Python's library."""
    assert output(WORKERS.format(engine="ray"), stranger) == MEASURED


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of addresses as Linux has them")
def test_the_check_of_addresses_runs_nothing_of_the_current_folder(stranger: Path) -> None:
    assert output(LIMITED, stranger) == "None\n"


@pytest.mark.soak
def test_processes_that_libraries_start_are_started_so_too(stranger: Path) -> None:
    """A command sets the variable for all that it starts, and only until its end."""
    script = "import os, sys; print(json := __import__('json').dumps(sys.path))"
    with without_current_folder():
        inside = subprocess.run(
            [sys.executable, "-c", script], cwd=stranger, check=True, capture_output=True
        )
    assert "" not in json.loads(inside.stdout)
    assert SAFE_PATH not in os.environ


def test_a_variable_that_was_set_before_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SAFE_PATH, "yes")
    with without_current_folder():
        assert os.environ[SAFE_PATH]
    assert os.environ[SAFE_PATH] == "yes"
