"""The highest and the lowest of some numbers, as pages quote them, with what is tied.

Values are tied if they are equal, or if pages print them alike: a reader who compares the printed
numbers cannot tell such values apart. Where a head is chosen on one half of the sentences and
reported on the other, values of the choosing half decide ties.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from headbook.report.wording import small

NAMED = 3  # places beside the first that a note names
Values = NDArray[np.floating]
Written = Callable[[float], str]


def tied_places(values: Values, written: Written, *, lowest: bool = False) -> list[tuple[int, ...]]:
    """Return the index of the highest value, then the indices of values tied with it, in order.

    Args:
        values: numbers of any shape; NaN where one is unknown.
        written: prints a number as the page does.
        lowest: whether the lowest value is asked for instead.

    Returns:
        An empty list if no value is known.
    """
    if np.isnan(values).all():
        return []
    best = int(np.nanargmin(values) if lowest else np.nanargmax(values))
    flat = values.ravel()
    text = written(float(flat[best]))
    alike = [place for place in np.flatnonzero(~np.isnan(flat)).tolist()
             if flat[place] == flat[best] or written(float(flat[place])) == text]  # fmt: skip
    order = [best, *(place for place in alike if place != best)]
    return [tuple(map(int, np.unravel_index(place, values.shape))) for place in order]


def tie_note(others: Sequence[str]) -> str:
    """Return `` (tied with L0·H1 and L2·H3)`` for the names of tied places; empty without one."""
    if not others:
        return ""
    *most, last = others
    if len(others) > NAMED:
        most, last = [*others[:NAMED]], f"{small(len(others) - NAMED)} more"
    return f" (tied with {', '.join(most)}{' and ' * bool(most)}{last})"


def quoted(
    values: Values, written: Written, name: Callable[..., str], *, lowest: bool = False
) -> str:
    """Return the highest value with its place and ties: ``L0·H4 (tied with L0·H5), 13.2 %``.

    Args:
        values: numbers of any shape, at least one of which is known.
        written: prints a number as the page does.
        name: names a place, given its index.
        lowest: whether the lowest value is asked for instead.
    """
    first, *others = tied_places(values, written, lowest=lowest)
    note = tie_note([name(*place) for place in others])
    return f"{name(*first)}{note}, {written(float(values[first]))}"
