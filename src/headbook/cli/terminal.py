"""Terminal behaviour of the process: progress with its time left, interrupts, and closed pipes.

All of this concerns the whole process, so only the command line uses it, never the library.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from headbook.errors import (
    HeadbookError,
    HeadbookWarning,
    OutputError,
    ResourceError,
    is_out_of_memory,
)
from headbook.safe_files import DISK_ERRORS

LINE_INTERVAL = 10.0  # seconds between two lines of progress without a terminal
SPEED_PERIOD = 600.0  # seconds over which the speed is averaged, since workers report whole shards


class Display:
    """Progress of the current stage of a run, with the time left in the stage.

    Args:
        console: where to print.
        verbose: whether to show the speed in tokens per second.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console, self._verbose = console, verbose
        self._progress = Progress(
            TextColumn("{task.description:>16}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[read]}"),
            console=console,
            speed_estimate_period=SPEED_PERIOD,
            disable=not console.is_terminal,
        )
        self._id = self._progress.add_task("", visible=False, read="")
        self._tokens, self._printed = 0, 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def stage(self, name: str, amount: int) -> None:
        """Begin a stage."""
        self._tokens = 0
        self._progress.reset(
            self._id, total=max(amount, 1), description=name, visible=True, read=""
        )
        self._print_line()

    def advance(self, amount: int, tokens: int) -> None:
        """Advance the bar; without a terminal, print a line every `LINE_INTERVAL` seconds."""
        self._tokens += tokens
        finished = self._progress.finished
        self._progress.update(self._id, advance=amount, read=self._read())
        seconds = self._progress.get_time() - self._printed
        if self._progress.finished > finished or seconds >= LINE_INTERVAL:
            self._print_line()

    def message(self, text: str) -> None:
        """Print a line above the progress bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _read(self) -> str:
        """Return the tokens that the stage has read, with their speed if verbose."""
        if not self._tokens:
            return ""
        (task,) = self._progress.tasks
        speed = self._tokens / max(task.elapsed or 0.0, 1e-9)
        tokens = f"{self._tokens:,} tokens"
        return f"{tokens}, {speed:,.0f} tokens/s" if self._verbose else tokens

    def _print_line(self) -> None:
        """Print the state of the stage if no bar shows it."""
        self._printed = self._progress.get_time()
        if self._progress.disable:
            (task,) = self._progress.tasks
            remaining = task.time_remaining
            time_left = f"{timedelta(seconds=round(remaining))} left" if remaining else ""
            state = [f"{task.percentage:.0f} %", self._read(), time_left]
            self.message(f"{task.description}: {', '.join(text for text in state if text)}")


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
        if issubclass(category, HeadbookWarning):
            LossyStream(sys.stderr).write(f"warning: {message}\n")
        else:
            show_others(message, category, *place, **more)

    warnings.showwarning = show


class LossyStream:
    """A stream that ignores errors of writing, so that progress cannot stop a run."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, and ignore errors."""
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, and ignore errors."""
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
