"""The protocol by which a run reports its progress, and reporters without a display."""

from typing import Protocol


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
