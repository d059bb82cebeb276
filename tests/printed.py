"""What a run prints, for tests."""

from headbook.progress import NoProgress


class Lines(NoProgress):
    """Keeps the lines that a run prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)
