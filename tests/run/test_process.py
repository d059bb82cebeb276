"""The process that calls `collect` is left as it was: random numbers, threads, switches, memory."""

import ctypes
import gc
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import huggingface_hub.utils
import numpy as np
import pandas as pd
import pytest
import torch
import transformers

import treebank
from headbook.attention import map_sums
from headbook.cli import actions
from headbook.cli.terminal import WAITING_VARIABLES
from headbook.config import Config
from headbook.inputs import TextRecord
from headbook.model.devices import isolated_random_state
from headbook.model.load import quiet
from headbook.progress import NoProgress
from headbook.run import sentences as texts
from headbook.run.collect import collect
from headbook.text.annotate import Annotator

HUB: Any = huggingface_hub.utils
TUNING = {"mallopt"}  # what only the owner of a process may call
Given = dict[str, Any]


def state() -> dict[str, object]:
    """What a library has no business changing."""
    loggers = [
        logging.getLogger(name) for name in (None, "transformers", "huggingface_hub", "torch")
    ]
    return {
        "torch's random numbers": torch.get_rng_state().tolist(),
        "numpy's": repr(np.random.get_state()),
        "python's": random.getstate(),
        "threads of torch": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "number format": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
            torch.get_float32_matmul_precision(),
        ),
        "warnings": [*warnings.filters],
        "loggers": [(logger.level, logger.disabled, logger.handlers) for logger in loggers],
        "logging": logging.root.manager.disable,
        "transformers": (
            transformers.utils.logging.get_verbosity(),
            transformers.utils.logging.is_progress_bar_enabled(),
        ),
        "hub": HUB.are_progress_bars_disabled(),
        "environment": dict(os.environ),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "numpy's errors": np.geterr(),
        "folder": Path.cwd(),
        "excepthook": (sys.excepthook, threading.excepthook),
    }


@pytest.fixture(scope="module")
def given(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Given]:
    """An input and options: every pass, and an untrained twin, whose weights are random."""
    file = treebank.write_trees(tmp_path_factory.mktemp("trees") / "trees.conllu", treebank.TREES)
    model = str(tiny_folder("gpt2"))
    return file, {"model": model, "annotator": "none", "control": "untrained", "control_seeds": 1}


@pytest.fixture
def unusual() -> Iterator[None]:
    """Switches in other places than where they are by default."""
    logs: Any = transformers.utils.logging
    level = logging.getLogger("transformers").level
    torch.manual_seed(11)
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    logs.disable_progress_bar()
    yield
    logging.getLogger("transformers").setLevel(level)
    logs.enable_progress_bar()


class Stopping(NoProgress):
    """Stops a run at one of its stages.

    Attributes:
        last: name of the stage; none has an empty one.
    """

    def __init__(self, last: str) -> None:
        self.last = last

    def stage(self, name: str, sentences: int) -> None:
        """Stop at the last stage."""
        if name == self.last:
            raise RuntimeError("stop")


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of the thread pools that loops over maps have used: three threads for any work."""
    sizes: list[int] = []

    class Noted(ThreadPoolExecutor):
        def __init__(self, size: int, name: str) -> None:
            sizes.append(size)
            super().__init__(size, name)

    monkeypatch.setattr(map_sums, "ThreadPoolExecutor", Noted)
    monkeypatch.setattr(map_sums, "MIN_THREADED_NUMBERS", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield sizes
    torch.set_num_threads(before)


@pytest.mark.usefixtures("unusual")
@pytest.mark.parametrize("last", ["", "sentences"], ids=["done", "failed"])
def test_collect_leaves_the_process_as_it_was(
    given: tuple[Path, Given], pools: list[int], last: str
) -> None:
    file, options = given
    before = state()
    with pytest.raises(RuntimeError, match="stop") if last else nullcontext():
        collect(file, **options, progress=Stopping(last))
    after = state()
    assert {name for name in before if before[name] != after[name]} == set()
    assert 3 in pools


LIBRARY = "import headbook; headbook.collect"
COMMAND = """
import sys
from headbook.cli.main import main
assert "torch" not in sys.modules
sys.argv = ["headbook", "--version"]
try:
    main()
finally:
    import torch
"""


def process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The process of some code that nobody has told how threads wait, and what OpenMP is told."""
    kept = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "OMP_DISPLAY_ENV": "verbose", **environment},
        check=True, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="another library says it in other words")
@pytest.mark.parametrize(
    ("code", "environment", "spins"),
    [
        (COMMAND, {}, 0),
        (COMMAND, {"GOMP_SPINCOUNT": "77"}, 77),
        (COMMAND, {"OMP_WAIT_POLICY": "active"}, 30_000_000_000),
        (LIBRARY, {}, 300_000),
    ],
)
def test_only_the_command_line_lets_waiting_threads_sleep(
    code: str, environment: dict[str, str], spins: int
) -> None:
    settings = process(code, **environment).stderr
    assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", settings)) == {str(spins)}


TORCHAO_WARNS = """
import logging, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == "torchao":
            logging.getLogger("torchao").warning("Failed to load _C.so")
sys.meta_path.insert(0, Finder)
"""
AFTER = """
assert "transformers.modeling_utils" in sys.modules
logging.getLogger("torchao").warning("later")
"""
VERBOSE = """
import headbook.run.arguments
from headbook.cli import actions
from headbook.config import Config
actions._load_torch(Config(verbose=True))
"""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "verbose"),
    [
        (LIBRARY, False),
        ("import headbook.run.workers, headbook.run.collect", False),
        ("import headbook.model.weights, headbook.model.load", False),
        (VERBOSE, True),
    ],
)
def test_torchao_warns_of_its_libraries_only_if_verbose(code: str, *, verbose: bool) -> None:
    pytest.importorskip("torchao")
    lines = process(TORCHAO_WARNS + code + AFTER).stderr.splitlines()
    assert ("Failed to load _C.so" in lines) == verbose
    assert lines.count("later") == 1
    assert verbose or not [line for line in lines if "torchao" in line or "_pytree" in line]


@pytest.mark.parametrize("caller", ["library", "command line"])
def test_only_the_command_line_tunes_the_process(
    given: tuple[Path, Given], caller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()

    class Noted(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            return super().__getattr__(name)

    monkeypatch.setattr(ctypes, "CDLL", Noted)
    file, options = given
    config = Config(**options | {"metrics": "sink_share", "verbose": True})
    if caller == "library":
        collect(file, config=config)
        assert not asked & TUNING
        return
    actions.collect([str(file)], config, NoProgress())
    if sys.platform == "linux":
        assert asked & TUNING == TUNING
    assert gc.isenabled()


def test_sentences_of_a_small_corpus_are_parsed_once(
    given: tuple[Path, Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever passes come after the first; the numbers are those of parsing them again."""
    parsed: list[int] = []
    annotate = Annotator.annotate

    def noted(self: Annotator, sentences: Iterable[TextRecord]) -> Iterator[TextRecord]:
        for sentence in annotate(self, sentences):
            parsed.append(sentence.index)
            yield sentence

    monkeypatch.setattr(Annotator, "annotate", noted)
    file, options = given
    options = options | {"control": "none", "metrics": "sink_share,nearest_tokens,variability"}
    few = collect(file, **options)
    assert parsed == [*range(len(treebank.TREES))]
    monkeypatch.setattr(texts, "MAX_CACHED_SENTENCES", 0)
    many = collect(file, **options)
    assert set(parsed[len(treebank.TREES) :]) == set(parsed)
    for name in ("heads", "tokens", "nearest"):
        pd.testing.assert_frame_equal(getattr(few, name), getattr(many, name))


def test_numbers_are_those_of_the_seed_whatever_the_process_has_drawn(
    given: tuple[Path, Given],
) -> None:
    file, options = given
    studies = []
    for number in (1, 2):
        torch.manual_seed(number)
        studies.append(collect(file, **options, seed=3))
    for table in ("heads", "compared"):
        frames = [getattr(study, table) for study in studies]
        assert len(frames[0])
        pd.testing.assert_frame_equal(frames[0], frames[1])


def test_own_random_numbers_are_those_that_the_seed_gives_everybody() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    state = torch.get_rng_state()
    with isolated_random_state(5):
        torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
        np.random.rand()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("bars", [False, True])
@pytest.mark.parametrize("hub", [False, True])
def test_progress_bars_are_on_or_off_as_before(*, bars: bool, hub: bool) -> None:
    logs: Any = transformers.utils.logging
    try:
        (logs.enable_progress_bar if bars else logs.disable_progress_bar)()
        (HUB.enable_progress_bars if hub else HUB.disable_progress_bars)()
        with quiet(verbose=False):
            assert not logs.is_progress_bar_enabled()
            assert HUB.are_progress_bars_disabled()
        assert logs.is_progress_bar_enabled() == bars
        assert HUB.are_progress_bars_disabled() != hub
    finally:
        logs.enable_progress_bar()
