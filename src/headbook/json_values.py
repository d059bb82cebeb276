"""Typed values from JSON: records, enumerations, tuples, mappings and scalars, checked strictly."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

MAX_INTEGER = 1 << 63  # bound of whole numbers in a manifest: they fit into 64 bits
TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def read_value(kind: Any, value: Any, place: str = "") -> Any:
    """Convert a JSON value to a type, without any leniency.

    Args:
        kind: a dataclass, an enumeration, a tuple or a mapping of such types, a scalar, or a union
            of a type and None.
        place: path of the value, for messages.

    Raises:
        ValueError: the value does not fit; the message has its path and the expected type.
    """
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return value
    if origin in {Union, UnionType}:
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else read_value(inner, value, place)
    if is_dataclass(origin):
        return _read_record(origin, value, place)
    if origin in {tuple, Mapping}:
        return _read_collection(origin, arguments, value, place)
    return _read_scalar(origin, value, place)


def _read_collection(origin: Any, arguments: tuple[Any, ...], value: Any, place: str) -> Any:
    """Convert a JSON list to a tuple of any length, or a JSON object to a mapping."""
    if origin is tuple:
        _expect(isinstance(value, list), value, place, "a list")
        return tuple(
            read_value(arguments[0], part, f"{place}/{index}") for index, part in enumerate(value)
        )
    _expect(isinstance(value, dict), value, place, "an object")
    return {name: read_value(arguments[1], value[name], f"{place}/{name}") for name in value}


def _read_scalar(kind: Any, value: Any, place: str) -> Any:
    """Convert a JSON scalar to a number, a text, a path or a member of an enumeration."""
    if issubclass(kind, Enum):
        _expect(value in [*kind], value, place, f"one of {', '.join(map(str, kind))}")
        return kind(value)
    kind = str if kind is Path else kind
    fits = isinstance(value, int | float if kind is float else kind)
    fits &= isinstance(value, bool) == (kind is bool)
    _expect(fits, value, place, TYPE_NAMES[kind])
    _expect(kind is not int or abs(value) < MAX_INTEGER, value, place, f"less than {MAX_INTEGER}")
    if kind is str:
        _expect(value == value.encode(errors="replace").decode(), value, place, "text in UTF-8")
    return kind(value)


def _read_record(kind: Any, value: Any, place: str) -> Any:
    """Convert a JSON object to a dataclass; fields with defaults may be absent."""
    _expect(isinstance(value, dict), value, place, "an object")
    hints = get_type_hints(kind)
    _expect(value.keys() <= hints.keys(), [*value], place, f"keys among {', '.join(hints)}")
    missing = [
        field.name
        for field in fields(kind)
        if field.name not in value and field.default is field.default_factory is MISSING
    ]
    _expect(not missing, [*value], place, f"{', '.join(missing)} as well")
    values = {
        name: read_value(hints[name], field_value, f"{place}/{name}")
        for name, field_value in value.items()
    }
    return kind(**values)


def _expect(fits: bool, value: Any, place: str, expected: str) -> None:
    if not fits:
        text = ascii(value)
        text = text if len(text) <= 100 else f"{text[:100]}…"
        raise ValueError(f"{place.lstrip('/') or 'all of it'}: got {text}, expected {expected}")
