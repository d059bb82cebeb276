"""Workers of a machine, which share out shards among them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headbook.config import Config
from headbook.run.workers import WorkerJob, measure_in_processes

VARIABLE = "OF_WHO_BEGAN_IT"


@contextmanager
def tells(_job: WorkerJob, _device: str) -> Iterator[Callable[[int], str]]:
    """Names as each shard's fault what the variable is."""
    yield lambda _number: os.environ.get(VARIABLE, "nothing")


@pytest.mark.soak
def test_workers_have_the_environment_of_who_began_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process that they are forked from was begun with another."""
    job = WorkerJob((), tmp_path, Config(device="cpu", workers=2), tmp_path, {}, tells)
    for value in ("one", "another"):
        monkeypatch.setenv(VARIABLE, value)
        found: dict[int, str] = {}
        measure_in_processes(job, range(3), found.__setitem__)
        assert found == dict.fromkeys(range(3), value)
    monkeypatch.delenv(VARIABLE)
    measure_in_processes(job, (0,), found.__setitem__)
    assert found[0] == "nothing"
