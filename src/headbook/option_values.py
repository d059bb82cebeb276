"""Conversion of values from a caller, a TOML file or the command line to an option's type."""

import operator
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args

MOST = 10**9  # largest whole number of an option, within what all libraries can represent
NAMES = {int: "a whole number", str: "text", bool: "true or false", Path: "a path"}


def option_value(
    kind: Any, value: Any, *, listed: bool = False, counted: bool = False, most: int = MOST
) -> Any:
    """Convert a value to the type of an option.

    A list of texts is accepted for an option of several comma-separated values, a number for an
    option that takes a number as text, and a path for an option that takes the name of a folder.

    Args:
        kind: type of the option, perhaps a union with None.
        listed: whether the option takes several values separated by commas.
        counted: whether the option is a text that may be a number, such as ``50`` or ``all``.
        most: largest size of a whole number.

    Raises:
        ValueError: the value does not fit; the message says what is expected.
    """
    wanted = [each for each in get_args(kind) or (kind,) if each is not type(None)]
    if value is None and len(wanted) < len(get_args(kind)):
        return None
    (wanted_kind,) = wanted
    if isinstance(value, wanted_kind) and isinstance(value, bool) == (wanted_kind is bool):
        fits = value
    elif wanted_kind is Path and isinstance(value, str | PathLike):
        fits = Path(value)
    elif wanted_kind is str and isinstance(value, PathLike):
        fits = str(fspath(value))
    elif wanted_kind is str and listed and _is_list_of_names(value):
        fits = ",".join(value)
    else:
        fits = _number(wanted_kind, value, counted=counted)
        if fits is None:
            raise ValueError(f"{NAMES[wanted_kind]}{' or a list of texts' if listed else ''}")
    if wanted_kind is int and abs(fits) > most:
        raise ValueError(f"at most {most:,}")
    return fits


def _is_list_of_names(value: Any) -> bool:
    """Whether a value is a list of texts without commas."""
    several = isinstance(value, list | tuple) and len(value) > 0
    return several and all(isinstance(each, str) and "," not in each for each in value)


def _number(kind: type, value: Any, *, counted: bool) -> Any:
    """Return a whole number, also of numpy, in the option's type; None if the option takes none."""
    if isinstance(value, bool) or not (kind is int or counted):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if kind is int else str(number)
