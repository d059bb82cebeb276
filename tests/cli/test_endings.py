"""How a command ends: in one line and a code, whatever the machine does."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from headbook.cli.terminal import is_closed_pipe, signals_as_interrupt, user_error
from headbook.errors import (
    AnnotatorError,
    CheckError,
    ConfigError,
    HeadbookError,
    InputError,
    ModelError,
    NonFiniteStateError,
    OutputError,
    PartialResultError,
    ResourceError,
    StudyError,
    is_device_lost,
    is_out_of_memory,
)
from headbook.progress import LossyStream
from sites import Site

COMMAND = f"{sys.executable} -m headbook"
PLAIN = (
    HeadbookError, ConfigError, AnnotatorError, ModelError, StudyError, CheckError,
    PartialResultError, OutputError, ResourceError,
)  # fmt: skip
ERRORS: tuple[HeadbookError, ...] = (
    *(each("what was found") for each in PLAIN),
    InputError("a.txt", 3, found="a blank line", expected="text"),
    InputError("a.txt", None, found="no such file", expected="a file that exists"),
    NonFiniteStateError({2: "sentence 3: NaN", 5: "sentence 6: NaN"}),
)


def shell(line: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, in which H stands for the command; the code is that of the command."""
    return subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}".replace("H ", f"{COMMAND} ")],
        check=False, capture_output=True, text=True, env=os.environ | given,
    )  # fmt: skip


def raised(action: Callable[[], object]) -> BaseException:
    """What an action raises."""
    try:
        action()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def while_loading() -> None:
    try:
        torch.empty(10**16)
    except RuntimeError as error:
        raise ModelError("model m: cannot be loaded") from error


@pytest.mark.parametrize(
    "action",
    [
        lambda: bytearray(10**17),
        lambda: np.empty(10**17),
        lambda: torch.empty(10**16),
        while_loading,
        lambda: (_ for _ in ()).throw(OSError(errno.ENOMEM, "Cannot allocate memory")),
    ],
)
def test_every_way_to_run_out_of_memory_is_known_alike(action: Callable[[], object]) -> None:
    fault = user_error(raised(action))
    assert isinstance(fault, ResourceError)
    assert str(fault).startswith("out of memory; expected more of it; ")


def test_a_bug_stays_a_bug(tmp_path: Path) -> None:
    assert user_error(ValueError("out of memory is no word of a ValueError")) is None
    assert user_error(RuntimeError("shapes do not fit")) is None
    assert user_error(raised((tmp_path / "no").read_text)) is None
    assert isinstance(user_error(OSError(errno.EIO, "Input/output error", "/x")), OutputError)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: HeadbookError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - written here
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_every_class_of_errors_is_pickled() -> None:
    known = [HeadbookError]
    for each in known:
        known += each.__subclasses__()
    named = {each for each in known if each.__module__ == HeadbookError.__module__}
    assert named == {type(error) for error in ERRORS}


def test_a_full_gpu_is_not_a_lost_one() -> None:
    full, lost = (RuntimeError(f"CUDA error: {x}") for x in ("out of memory", "launch failure"))
    assert (is_out_of_memory(full), is_device_lost(full)) == (True, False)
    assert (is_out_of_memory(lost), is_device_lost(lost)) == (False, True)


def test_a_broken_connection_is_no_closed_pipe() -> None:
    assert is_closed_pipe(BrokenPipeError())
    broken = ModelError("cannot be loaded")
    broken.__cause__ = BrokenPipeError()
    assert not is_closed_pipe(broken)
    assert not is_closed_pipe(SystemExit(1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_and_only_there(number: signal.Signals) -> None:
    outside = signal.signal(number, signal.SIG_DFL)  # under nohup one of them is ignored
    try:
        with pytest.raises(KeyboardInterrupt), signals_as_interrupt():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outside)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupt():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nothing_that_is_imported_takes_signals() -> None:
    code = (
        "import signal, headbook.cli.main, headbook.output_folder; print(signal.getsignal(15) == 0)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert output.stdout == "True\n"


def test_progress_that_nobody_takes_is_dropped() -> None:
    with Path("/dev/full").open("w") as full:
        stream = LossyStream(full)
        assert stream.write("a\n" * 10_000) == 20_000
        stream.flush()
        assert not stream.isatty()
    stream.write("a")
    stream.flush()
    LossyStream(None).write("a")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--help", "metrics"])
def test_a_pipe_that_closes_early_is_no_error(command: str) -> None:
    output = shell(f"H {command} | true")
    assert (output.returncode, output.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--help", "metrics"])
def test_a_full_standard_output_is_one_line(command: str) -> None:
    output = shell(f"H {command} > /dev/full")
    assert output.returncode == 2
    assert output.stderr.startswith("headbook: standard output: No space left on device; expected ")
    assert output.stderr.count("\n") == 1


@pytest.mark.slow
def test_closed_streams_and_other_letters_are_no_bug(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    c = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    out = tmp_path / "out"
    code = "from headbook.inputs import open_corpus; open_corpus(['-'])"
    output = shell(f'{sys.executable} -c "{code}" <&-')
    assert "standard input: closed; expected one sentence a line" in output.stderr
    assert shell("H --help >&- 2>&-").returncode == 0
    assert shell("H metrics", **c).returncode == 0
    for line in (f"H render {name} -o {out}", f"H render x -o {name}"):
        output = shell(line, **c)
        assert (output.returncode, output.stderr.count("\n")) == (2, 1)
        assert "headbook: " in output.stderr
        assert "bug" not in output.stderr


@pytest.mark.soak
@pytest.mark.parametrize(
    ("command", "megabytes", "message"),
    [
        ("collect", 400, "ulimit -v: got a limit of 409 MB of address space"),
        ("collect", 1200, "ulimit -v: got a limit of 1,228 MB of address space"),
        ("render", 2000, "ulimit -v: got a limit of 2,048 MB of address space"),
    ],
)
def test_too_little_memory_is_one_line(
    small_site: Site, tmp_path: Path, command: str, megabytes: int, message: str
) -> None:
    given = small_site.stored
    if command == "collect":
        given = Path(f"{small_site.place}/trees.conllu --model {small_site.model}")
    line = f"ulimit -v {megabytes * 1024 * 1000 // 1024}; H {command} -q {given} -o {tmp_path}/out"
    output = shell(line)
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr.startswith(f"headbook: {message}")
    assert output.stderr.count("\n") == 1
    assert [*tmp_path.iterdir()] == []
