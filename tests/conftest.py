"""Tiny models, written once a session, and what holds for all tests."""

import gc
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from headbook.analysis import intervals
from headbook.cli.terminal import let_threads_sleep

pytest_plugins = ["sites", "trained_runs", "command_line"]

# No test fails for being slow: it may share its machine with others.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Tests run in several processes; threads of their own would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Torch is imported below this line at the earliest, and then reads how its threads wait.
let_threads_sleep()

# Looking for garbage as often as Python does would take a sixth of all time.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    """Leave what has been imported out of every later look."""
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a tiny random model, by the name of its family."""
    import tiny

    @cache
    def folder(name: str) -> Path:
        place = tmp_path_factory.mktemp(name) / name
        if name in tiny.ALL or name in tiny.OTHERS:
            return tiny.write(name, place)
        import translators  # needs SentencePiece

        return translators.write(name, place)

    return folder


@pytest.fixture(autouse=True)
def _studies_of_tests_that_change_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give tests that change code studies of their own, since studies keep their numbers."""
    from sites import SHARING

    SHARING["studies"] = not {"monkeypatch", "of_any_number"} & {*request.fixturenames}
    yield
    SHARING["studies"] = True


@pytest.fixture
def of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of two sentences, too: those of the few that tests have are compared."""
    monkeypatch.setattr(intervals, "MIN_EFFECTIVE", 1)
    monkeypatch.setattr(intervals, "MIN_COMPARED", 1)
