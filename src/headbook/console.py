"""Progress: on a terminal a bar with tokens per second and time left; in a pipe, lines."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

PAUSE = 10.0  # seconds between two lines in a pipe


class Bar:
    """A bar for each stage."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = TaskID(0)
        self._clock = _Clock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, name: str, sentences: int) -> None:
        """Begin a bar."""
        self._clock = _Clock()
        self._task = self._progress.add_task(name, total=sentences, speed="")

    def advance(self, sentences: int, tokens: int) -> None:
        """Move the bar on."""
        self._clock.count(tokens)
        self._progress.update(self._task, advance=sentences, speed=self._clock.speed)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(text, highlight=False, soft_wrap=True)


class Lines:
    """A line when a stage begins and every few seconds, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = _Clock()
        self._name, self._done, self._total = "", 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def stage(self, name: str, sentences: int) -> None:
        """Say that a stage begins."""
        self._name, self._done, self._total, self._clock = name, 0, sentences, _Clock()
        self._console.print(f"{name}: 0/{sentences}", highlight=False)

    def advance(self, sentences: int, tokens: int) -> None:
        """Say how far it has come, now and then and at its end."""
        self._done += sentences
        self._clock.count(tokens)
        if self._clock.pause_is_over() or self._done >= self._total:
            left = self._clock.left(self._done, self._total)
            parts = (f"{self._name}: {self._done}/{self._total}", self._clock.speed, left)
            line = ", ".join(part for part in parts if part)
            self._console.print(line, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True)


class _Clock:
    """Tokens per second, and when the last line was printed."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()
        self._tokens = 0

    def count(self, tokens: int) -> None:
        self._tokens += tokens

    @property
    def speed(self) -> str:
        """Tokens per second in words; empty where no tokens are counted."""
        seconds = max(time.monotonic() - self._start, 1e-9)
        return f"{self._tokens / seconds:,.0f} tokens/s" if self._tokens else ""

    def left(self, done: int, total: int) -> str:
        """Time left in words; empty at the end."""
        if done >= total or not done:
            return ""
        return f"{(time.monotonic() - self._start) * (total - done) / done:,.0f} s left"

    def pause_is_over(self) -> bool:
        """Whether it is time for another line."""
        now = time.monotonic()
        over = now - self._last >= PAUSE
        self._last = now if over else self._last
        return over
