"""Sentences as pages print them: in their own spelling and spacing, token by token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headbook.study.sentence_data import UINT8_STEPS, StoredText

SHADES = 10
WINDOW = 48  # tokens of a long text on a page with exemplars


@dataclass(frozen=True)
class Token:
    """A token in running text.

    Attributes:
        position: index in the sequence, from 0.
        before: letters between the last token and this one, usually a space.
        text: letters of the token.
        special: whether the token is a special one without text.
        shade: attention to the token in tenths, 0 to 10; None without attention.
        weight: attention to the token in per cent; empty without attention.
        is_query: whether the token is the query.
        chosen: whether the token is the key that is marked.
        gap: whether tokens before this one are left out.
        text_of_pair: text of a pair that the token, special or not, belongs to: 0 or 1; None for a
            single text.
    """

    position: int
    before: str
    text: str
    special: bool
    shade: int | None = None
    weight: str = ""
    is_query: bool = False
    chosen: bool = False
    gap: bool = False
    text_of_pair: int | None = None

    @property
    def unmarked(self) -> bool:
        """Whether nothing but the letters of the token is printed."""
        return not (self.special or self.is_query or self.chosen or self.shade)

    @cached_property
    def plain(self) -> bool:
        """Whether the token is unmarked and one word for a script that splits its run at blanks."""
        return self.unmarked and self.text != "" and " " not in self.text

    def joins(self, last: "Token") -> bool:
        """Whether the token continues a run: both tokens plain, with a blank between them."""
        runs_on = self.before == " " and not self.gap and self.text_of_pair == last.text_of_pair
        return self.plain and last.plain and runs_on


def running_text(
    text: StoredText,
    *,
    weights: NDArray[np.uint8] | None = None,
    query: int | None = None,
    key: int | None = None,
    around: Sequence[int] = (),
    most: int = WINDOW,
) -> tuple[Token, ...]:
    """Return the tokens of a text with the letters between them.

    If a byte-level vocabulary cuts a character into pieces, each piece keeps its own name.

    Args:
        weights: attention to each token, in steps of 1/255.
        query: position of the query.
        key: position of the key that is marked.
        around: positions whose neighbourhood is kept of a long text; empty for the whole text.
        most: largest number of tokens.
    """
    tokens: list[Token] = []
    positions = window(len(text.pieces), around, most)
    second = _start_of_second(text)
    for position, (before, letters) in zip(positions, _letters(text, positions), strict=True):
        share = None if weights is None else int(weights[position]) / UINT8_STEPS
        tokens.append(
            Token(
                position=position,
                before=" " if before.isspace() else before,
                text=letters or text.pieces[position],
                special=text.special[position],
                shade=None if share is None else round(share * SHADES),
                weight="" if share is None else f"{100 * share:.0f}\u202f%",
                is_query=position == query,
                chosen=position == key,
                gap=position != (tokens[-1].position + 1 if tokens else 0),
                text_of_pair=None if second is None else int(position >= second),
            )
        )
    return tuple(tokens)


def _start_of_second(text: StoredText) -> int | None:
    """Return the position of the first token of the second text of a pair; None without one."""
    if not text.of_pair:
        return None
    start = text.of_pair[1][0]
    places = (
        place
        for place, (begin, end) in enumerate(text.spans)
        if begin >= start and end > begin and not text.special[place]
    )
    return next(places, None)


def _letters(text: StoredText, positions: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield the letters between the last token and each token, and the letters of the token."""
    end, last = 0, -1
    for position in positions:
        start, stop = text.spans[position]
        if position != last + 1:
            end = start
        last = position
        if stop > start:
            before = text.text[end:start] if start >= end else ""
            yield before, text.text[max(start, end) : stop]
            end = max(end, stop)
        else:
            yield "", ""
            piece = text.pieces[position]
            if text.text[end:].lstrip().startswith(piece):
                # The text of a passage contains its separators, but they have no span.
                end = text.text.index(piece, end) + len(piece)


def window(n_tokens: int, around: Sequence[int], most: int = WINDOW) -> list[int]:
    """Return the positions nearest to any of some positions, ascending, at most ``most``."""
    positions = range(n_tokens)
    if not around or n_tokens <= most:
        return list(positions)
    nearest = sorted(positions, key=lambda p: (min(abs(p - centre) for centre in around), p))
    return sorted(nearest[:most])


def distinct_tokens(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return pieces, those that occur several times with their positions."""
    return tuple(f"{position} {piece}" for position, piece in enumerate(pieces))
