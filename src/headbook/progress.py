"""How far a run has come, told to whoever wants to know; and how long it may take."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol


class Progress(Protocol):
    """Something that shows progress."""

    def plan(self, stages: Mapping[str, float]) -> None:
        """The stages to come, in their order, with the seconds that each may take."""

    def stage(self, name: str, amount: int) -> None:
        """A new stage begins; it will see so many tokens, or pages."""

    def advance(self, amount: int, tokens: int) -> None:
        """So much of this stage is done, with so many tokens."""

    def say(self, text: str) -> None:
        """A line for whoever waits."""


class Silent:
    """Shows nothing."""

    def plan(self, stages: Mapping[str, float]) -> None:
        """Say nothing."""

    def stage(self, name: str, amount: int) -> None:
        """Say nothing."""

    def advance(self, amount: int, tokens: int) -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


class Wordless:
    """A run whose stages are shown, but not what it says: that is about one site of its own."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def plan(self, stages: Mapping[str, float]) -> None:
        """The stages to come."""
        self._progress.plan(stages)

    def stage(self, name: str, amount: int) -> None:
        """A new stage begins."""
        self._progress.stage(name, amount)

    def advance(self, amount: int, tokens: int) -> None:
        """So much is done."""
        self._progress.advance(amount, tokens)

    def say(self, text: str) -> None:
        """Say nothing."""


class Inside:
    """A run that is one stage of another one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def plan(self, stages: Mapping[str, float]) -> None:
        """The other one has planned for it."""

    def stage(self, name: str, amount: int) -> None:
        """Its stages are none of the other one's."""

    def advance(self, amount: int, tokens: int) -> None:
        """So much is done."""
        self._progress.advance(amount, tokens)

    def say(self, text: str) -> None:
        """A line for whoever waits."""
        self._progress.say(text)


class Estimate:
    """The share of a run that is done, and the time left.

    What stages may take is known before anything has run, as seconds on some machine. How fast this
    one is follows from what has been done so far, each stage weighing as much as is expected of it.

    Args:
        clock: tells seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()
        self._plan: dict[str, float] = {}
        self._behind = 0.0  # seconds expected of stages that are over
        self._stage, self._done, self._amount = "", 0, 1

    def plan(self, stages: Mapping[str, float]) -> None:
        """Begin with a plan."""
        self._plan, self._behind, self._start = dict(stages), 0.0, self._clock()

    def stage(self, name: str, amount: int) -> None:
        """Begin a stage; those of the plan before it count as done."""
        if name not in self._plan:  # nobody has foreseen it: it is all that can be judged
            self.plan({name: 1.0})
        names = list(self._plan)
        self._behind = sum(self._plan[each] for each in names[: names.index(name)])
        self._stage, self._done, self._amount = name, 0, max(amount, 1)

    def advance(self, amount: int) -> None:
        """So much of the stage is done."""
        self._done += amount

    @property
    def over(self) -> bool:
        """Whether all of the stage is done."""
        return self._done >= self._amount

    @property
    def share(self) -> float:
        """Part of the whole that is done, 0 to 1."""
        total = sum(self._plan.values())
        within = min(self._done / self._amount, 1.0) * self._plan.get(self._stage, 0.0)
        return (self._behind + within) / total if total > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest may take; None as long as nothing is known of the speed."""
        share = self.share
        return (self._clock() - self._start) * (1 - share) / share if share > 0 else None


def lasting(seconds: float) -> str:
    """A time in words: ``42 s``, ``3 min``, ``5 h``."""
    if seconds < 100:
        return f"{seconds:,.0f} s"
    minutes = seconds / 60
    return f"{minutes:,.0f} min" if minutes < 100 else f"{minutes / 60:,.0f} h"
