"""Progress: on a terminal one bar for the whole run with the time left; in a pipe, lines."""

import time
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from headbook.progress import Estimate, lasting

PAUSE = 10.0  # seconds between two lines in a pipe
KNOWN = 0.03  # part of a run from which on the time left is told
STEPS = 1000  # of the bar


class Display:
    """What both forms share: the stage, the share that is done, and the time left.

    Args:
        without: stages of a plan that this command does not reach.
        verbose: whether the speed of each stage is told, too.
    """

    def __init__(
        self, console: Console, *, without: Collection[str] = (), verbose: bool = False
    ) -> None:
        self._console, self._without, self._verbose = console, without, verbose
        self._estimate = Estimate()
        self._name, self._tokens, self._began = "", 0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def plan(self, stages: Mapping[str, float]) -> None:
        """Know what is to come."""
        self._estimate.plan({n: s for n, s in stages.items() if n not in self._without})

    def stage(self, name: str, amount: int) -> None:
        """Begin a stage."""
        self._name, self._tokens, self._began = name, 0, time.monotonic()
        self._estimate.stage(name, amount)

    def advance(self, amount: int, tokens: int) -> None:
        """Move on."""
        self._tokens += tokens
        self._estimate.advance(amount)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True)

    @property
    def _speed(self) -> str:
        """Tokens per second of this stage in words; empty where nobody asks for it."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        asked = self._verbose and self._tokens
        return f"{self._tokens / seconds:,.0f} tokens/s" if asked else ""

    @property
    def _left(self) -> str:
        """Time left in words; empty where it is not known, and at the end."""
        left = self._estimate.left if self._estimate.share >= KNOWN else None
        if left is None or self._estimate.share >= 1:
            return ""
        return f"{lasting(left)} left"


class Bar(Display):
    """One bar for the whole run."""

    def __init__(
        self, console: Console, *, without: Collection[str] = (), verbose: bool = False
    ) -> None:
        super().__init__(console, without=without, verbose=verbose)
        self._progress = Progress(
            TextColumn("{task.description:>16}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[status]}"),
            console=console,
        )
        self._task = self._progress.add_task("", total=STEPS, status="", visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, name: str, amount: int) -> None:
        """Name the stage beside the bar."""
        super().stage(name, amount)
        self._show()

    def advance(self, amount: int, tokens: int) -> None:
        """Move the bar on."""
        super().advance(amount, tokens)
        self._show()

    def _show(self) -> None:
        status = ", ".join(text for text in (self._left, self._speed) if text)
        done = round(self._estimate.share * STEPS)
        self._progress.update(
            self._task, completed=done, description=self._name, status=status, visible=True
        )


class Lines(Display):
    """A line when a stage begins, every few seconds and at its end, for logs."""

    _last = 0.0

    def stage(self, name: str, amount: int) -> None:
        """Say that a stage begins."""
        super().stage(name, amount)
        self._print()

    def advance(self, amount: int, tokens: int) -> None:
        """Say how far it has come, now and then and at its end."""
        super().advance(amount, tokens)
        if self._estimate.over or time.monotonic() - self._last >= PAUSE:
            self._print()

    def _print(self) -> None:
        self._last = time.monotonic()
        share = f"{100 * self._estimate.share:.0f} %"
        self.say(f"{self._name}: {', '.join(e for e in (share, self._left, self._speed) if e)}")
