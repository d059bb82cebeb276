"""Printed names of the entries of a vocabulary."""

from collections.abc import Iterable
from typing import Any

SPACE_MARKS = ("\u2581", "\u0120")  # symbols of tokenizers for a space before a word
REPLACEMENT_CHARACTER = "\ufffd"  # result of decoding a part of a character


class TokenStrings(dict[int, str]):
    """Printed names of vocabulary entries, computed at first access.

    Entries are printed as text, with ``␣`` at the start of a word; entries that are no text, such
    as single bytes of a character, keep the tokenizer's name.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, entry: int) -> str:
        self[entry] = self._name(entry)
        return self[entry]

    def of(self, entries: Iterable[int]) -> list[str]:
        """Return the names of several entries."""
        return [self[int(entry)] for entry in entries]

    def _name(self, entry: int) -> str:
        name = self._tokenizer.convert_ids_to_tokens(entry)
        if name is None:  # a language-model head may have more entries than the tokenizer
            return f"entry {entry}"
        text: str = self._tokenizer.decode([entry])
        if not text.strip() or REPLACEMENT_CHARACTER in text:
            return str(name)
        marked = name.startswith(SPACE_MARKS) and not text.startswith(" ")
        return (" " * marked + text).replace(" ", "␣")
