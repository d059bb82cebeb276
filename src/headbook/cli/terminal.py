"""Terminal behaviour of the process: waiting threads, interrupts, warnings, and closed pipes.

All of this concerns the whole process, so only the command line uses it, never the library.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from headbook.errors import (
    HeadbookError,
    HeadbookWarning,
    OutputError,
    ResourceError,
    is_out_of_memory,
)
from headbook.progress import LossyStream
from headbook.safe_files import DISK_ERRORS

# Variables that decide how threads of OpenMP wait: of all its libraries, GNU's, LLVM's and Intel's.
WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def let_threads_sleep() -> None:
    """Let threads of OpenMP sleep while they wait, here and in processes that this one starts.

    Otherwise they spin between two products of matrices, which takes processors from other
    programs, and from the thread that they wait for (`benchmarks/waiting.py`). OpenMP reads the
    variables when torch is imported. If the user has set one of them, all stay as they are.
    """
    if not os.environ.keys() & set(WAITING_VARIABLES):
        os.environ["OMP_WAIT_POLICY"] = "passive"


STOPPED = "stopped; no partial output is left"  # true even if all output was written
RESUMABLE = (
    "stopped; finished parts are kept, the same command goes on from there; --restart begins anew"
)
MEMORY_ADVICE = (
    "expected more of it; lower --batch-tokens, --max-length, --sentence-pages or --exemplars, or "
    "give --processes 1; no partial output is left"
)


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an interrupt inside the block, so that cleanup runs."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    signals = [getattr(signal, name) for name in names]
    if threading.current_thread() is not threading.main_thread():
        signals = []  # Python delivers signals to the main thread alone
    # An ignored signal stays ignored, because nohup relies on that.
    handlers = {number: signal.getsignal(number) for number in signals}
    replaced_signals = [number for number, handler in handlers.items() if handler == signal.SIG_DFL]
    try:
        for number in replaced_signals:
            signal.signal(number, _interrupt)
        yield
    finally:
        for number in replaced_signals:
            signal.signal(number, handlers[number])


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def escape_unprintable() -> None:
    """Make the standard streams print characters that their encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_warnings() -> None:
    """Print each `HeadbookWarning` as one line on standard error; others stay as Python has it."""
    show_others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if isinstance(message, HeadbookWarning):
            LossyStream(sys.stderr).write(f"warning: {message.with_flags}\n")
        else:
            show_others(message, category, *place, **more)

    warnings.showwarning = show


def is_closed_pipe(error: BaseException) -> bool:
    """Check whether the reader of the output has closed the pipe.

    Typer and Rich exit in this case, so the causes of an exit are searched, too.
    """
    causes = _causes(error) if isinstance(error, SystemExit) else [error]
    return any(isinstance(cause, BrokenPipeError) for cause in causes)


def user_error(error: BaseException) -> HeadbookError | None:
    """Return an error that the user can resolve, with a message; None for a bug in Headbook."""
    if isinstance(error, ResourceError):  # has a message on memory of its own
        return error
    if any(is_out_of_memory(cause) for cause in _causes(error)):
        return ResourceError(f"out of memory; {MEMORY_ADVICE}")
    if isinstance(error, HeadbookError):
        return error
    if not isinstance(error, OSError) or error.errno not in DISK_ERRORS:
        return None
    if error.filename is None:  # standard output: other streams and folders raise HeadbookError
        return ResourceError(
            f"standard output: {error.strerror}; expected a file, a pipe or a terminal that takes "
            "what is printed"
        )
    path = os.fsdecode(error.filename)
    return OutputError(f"{path}: {error.strerror}; expected a place that can be read and written")


def close_stdout() -> None:
    """Discard unprinted output, which Python would otherwise try to print at exit."""
    streams = (sys.stdout, sys.__stdout__)  # Typer replaces the first
    for stream in streams:
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                null_device = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null_device, stream.fileno())
                os.close(null_device)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
