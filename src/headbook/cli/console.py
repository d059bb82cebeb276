"""Progress on the command line: a bar on a terminal; in a pipe or a log, lines."""

from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

PAUSE = 10.0  # seconds between two lines
PERIOD = 600.0  # seconds that the speed is averaged over; workers report whole shards


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
            speed_estimate_period=PERIOD,
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
        """Advance the bar, or print a line at the end of the stage and now and then before."""
        self._tokens += tokens
        finished = self._progress.finished
        self._progress.update(self._id, advance=amount, read=self._read())
        if self._progress.finished > finished or self._progress.get_time() - self._printed >= PAUSE:
            self._print_line()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _read(self) -> str:
        """Return the tokens that the stage has read, with their speed if asked for."""
        if not self._tokens:
            return ""
        (task,) = self._progress.tasks
        speed = self._tokens / max(task.elapsed or 0.0, 1e-9)
        return f"{self._tokens:,} tokens" + f", {speed:,.0f} tokens/s" * self._verbose

    def _print_line(self) -> None:
        """Print the state of the stage if no bar shows it."""
        self._printed = self._progress.get_time()
        if self._progress.disable:
            (task,) = self._progress.tasks
            left = task.time_remaining
            parts = f"{task.percentage:.0f} %", self._read()
            time_left = f"{timedelta(seconds=round(left))} left" if left else ""
            self.say(f"{task.description}: {', '.join(filter(None, (*parts, time_left)))}")
