"""Progress of a run: its protocol, bars for terminals and notebooks, and lines for logs."""

import html
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import IO, Any, Protocol, Self, TextIO, cast

from rich import progress as bars
from rich.console import Console

from headbook.errors import ConfigError


class Progress(Protocol):
    """Reporter of a run's progress."""

    def stage(self, name: str, amount: int) -> None:
        """Begin a stage of about ``amount`` tokens, passes, pages or figures."""

    def advance(self, amount: int, tokens: int) -> None:
        """Report that ``amount`` units of the stage are done, with ``tokens`` tokens read."""

    def message(self, text: str) -> None:
        """Print a line."""


class NoProgress:
    """Reporter that shows nothing."""

    def stage(self, name: str, amount: int) -> None:
        """Show nothing."""

    def advance(self, amount: int, tokens: int) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Print nothing."""


class Messages(NoProgress):
    """Reporter that prints messages alone, for programs without a terminal."""

    def message(self, text: str) -> None:
        """Print a line on standard error."""
        LossyStream(sys.stderr).write(f"{text}\n")


class NestedProgress:
    """Reporter of a run that is one stage of another run; stages of the inner run are not shown."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def stage(self, name: str, amount: int) -> None:
        """Show nothing."""

    def advance(self, amount: int, tokens: int) -> None:
        """Advance the stage of the outer run."""
        self._progress.advance(amount, tokens)

    def message(self, text: str) -> None:
        """Print a line."""
        self._progress.message(text)


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
        self._progress = bars.Progress(
            bars.TextColumn("{task.description:>16}"),
            bars.BarColumn(),
            bars.TaskProgressColumn(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[read]}"),
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


class NotebookBar:
    """Progress of the current stage below the cell of a notebook, where only messages stay.

    Args:
        display: `IPython.display.display`.
        html_of: `IPython.display.HTML`.
    """

    def __init__(self, display: Any, html_of: Any) -> None:
        self._output, self._html_of = display(html_of(""), display_id=True), html_of
        self._messages: list[str] = []
        self._name, self._amount, self._done, self._percent = "", 1, 0, -1

    def close(self) -> None:
        """Take the bar away."""
        self._name = ""
        self._show()

    def stage(self, name: str, amount: int) -> None:
        """Begin a stage."""
        self._name, self._amount, self._done, self._percent = name, max(amount, 1), 0, 0
        self._show()

    def advance(self, amount: int, tokens: int) -> None:
        """Advance the bar, if it has grown by a whole per cent."""
        self._done += amount
        percent = min(100, 100 * self._done // self._amount)
        if percent > self._percent:
            self._percent = percent
            self._show()

    def message(self, text: str) -> None:
        """Show a line above the bar, which stays."""
        self._messages.append(text)
        self._show()

    def _show(self) -> None:
        lines = "".join(f"<div>{html.escape(text)}</div>" for text in self._messages)
        bar = f'<progress max="100" value="{self._percent}"></progress> {html.escape(self._name)}'
        self._output.update(self._html_of(lines + (bar if self._name else "")))


def notebook() -> Any:
    """Return the module IPython if this process runs the cells of a notebook, else None."""
    ipython = sys.modules.get("IPython")  # a notebook has imported IPython
    shell = ipython.get_ipython() if ipython is not None else None
    return ipython if hasattr(shell, "kernel") else None


@contextmanager
def reporter(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield the reporter of a call: a bar in terminals and notebooks, none, or the caller's own.

    Args:
        progress: whether to show a bar where one can be shown; or a reporter.

    Raises:
        ConfigError: a reporter lacks a method.
    """
    if progress is None or progress is False:
        yield NoProgress()
    elif progress is not True:
        for method in ("stage", "advance", "message"):
            if not callable(getattr(progress, method, None)):
                raise ConfigError(
                    f"progress: got an object of type {type(progress).__name__} without the method "
                    f"{method}; expected True, False or a headbook.Progress"
                )
        yield progress
    elif (ipython := notebook()) is not None:
        with closing(NotebookBar(ipython.display.display, ipython.display.HTML)) as bar:
            yield bar
    elif sys.stderr is not None and sys.stderr.isatty():
        with Display(Console(file=cast("IO[str]", LossyStream(sys.stderr)))) as display:
            yield display
    else:
        yield Messages()
