"""JSON as frozen values: every part is checked against the types of the fields that it fills."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

MOST = 1 << 63  # of whole numbers
NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def read_value(kind: Any, value: Any, place: str = "") -> Any:
    """Convert a JSON value to a type, without any leniency.

    Args:
        kind: a dataclass, an enumeration, a tuple or a mapping of such types, a scalar, or a union
            of a type and None.
        place: where the value stands, for messages.

    Raises:
        ValueError: the value does not fit; the message says where, and what is expected.
    """
    origin, inside = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return value
    if origin in {Union, UnionType}:
        (wanted,) = (each for each in inside if each is not type(None))
        return None if value is None else read_value(wanted, value, place)
    if is_dataclass(origin):
        return _record(origin, value, place)
    if origin in {tuple, Mapping}:
        return _several(origin, inside, value, place)
    return _scalar(origin, value, place)


def _several(origin: Any, inside: tuple[Any, ...], value: Any, place: str) -> Any:
    """Return a tuple of any length, or a mapping with texts as keys."""
    if origin is tuple:
        _expect(isinstance(value, list), value, place, "a list")
        return tuple(read_value(inside[0], part, f"{place}/{i}") for i, part in enumerate(value))
    _expect(isinstance(value, dict), value, place, "an object")
    return {name: read_value(inside[1], value[name], f"{place}/{name}") for name in value}


def _scalar(kind: Any, value: Any, place: str) -> Any:
    """Return a number, a text, a path or a member of an enumeration."""
    if issubclass(kind, Enum):
        _expect(value in [*kind], value, place, f"one of {', '.join(map(str, kind))}")
        return kind(value)
    kind = str if kind is Path else kind
    fits = isinstance(value, int | float if kind is float else kind)
    fits &= isinstance(value, bool) == (kind is bool)
    _expect(fits, value, place, NAMES[kind])
    _expect(kind is not int or abs(value) < MOST, value, place, f"less than {MOST}")
    if kind is str:
        _expect(value == value.encode(errors="replace").decode(), value, place, "text in UTF-8")
    return kind(value)


def _record(kind: Any, value: Any, place: str) -> Any:
    """Return a dataclass whose fields a JSON object fills; fields with defaults may be absent."""
    _expect(isinstance(value, dict), value, place, "an object")
    hints = get_type_hints(kind)
    _expect(value.keys() <= hints.keys(), [*value], place, f"keys among {', '.join(hints)}")
    lacking = [
        each.name
        for each in fields(kind)
        if each.name not in value and each.default is each.default_factory is MISSING
    ]
    _expect(not lacking, [*value], place, f"{', '.join(lacking)} as well")
    parts = {name: read_value(hints[name], part, f"{place}/{name}") for name, part in value.items()}
    return kind(**parts)


def _expect(fits: bool, value: Any, place: str, expected: str) -> None:
    if not fits:
        found = ascii(value)
        found = found if len(found) <= 100 else f"{found[:100]}…"
        raise ValueError(f"{place.lstrip('/') or 'all of it'}: got {found}, expected {expected}")
