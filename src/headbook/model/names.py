"""How vocabulary entries are printed."""

from collections.abc import Iterable
from typing import Any

MARKS = ("\u2581", "\u0120")  # what tokenizers write for a space before a word
REPLACEMENT = "\ufffd"  # what decoding part of a character gives


class Names(dict[int, str]):
    """Names by vocabulary entry, each made when it is first asked for.

    Entries are printed as text, with ``␣`` where a piece begins a word; those that are no text of
    their own, such as single bytes of a character, keep the tokenizer's name for them.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, entry: int) -> str:
        self[entry] = self._name(entry)
        return self[entry]

    def of(self, entries: Iterable[int]) -> list[str]:
        """The names of several."""
        return [self[int(entry)] for entry in entries]

    def _name(self, entry: int) -> str:
        name = self._tokenizer.convert_ids_to_tokens(entry)
        if name is None:  # a head may know more entries than the tokenizer
            return f"entry {entry}"
        text: str = self._tokenizer.decode([entry])
        if not text.strip() or REPLACEMENT in text:
            return str(name)
        marked = name.startswith(MARKS) and not text.startswith(" ")
        return (" " * marked + text).replace(" ", "␣")
