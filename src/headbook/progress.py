"""How far a run has come, told to whoever wants to know."""

from typing import Protocol


class Progress(Protocol):
    """Something that shows progress."""

    def stage(self, name: str, sentences: int) -> None:
        """A new stage begins; it will see so many sentences."""

    def advance(self, sentences: int, tokens: int) -> None:
        """So many sentences and tokens of this stage are done."""

    def say(self, text: str) -> None:
        """A line for whoever waits."""


class Silent:
    """Shows nothing."""

    def stage(self, name: str, sentences: int) -> None:
        """Say nothing."""

    def advance(self, sentences: int, tokens: int) -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""
