"""Frozen values as arrays, tables and JSON, and back: what a study is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SCALARS = {bool, int, float, str}


@dataclass(frozen=True)
class Packed:
    """The arrays and tables of values, each under a name that says where it stands.

    Attributes:
        tables: by their own name alone, so that files can be named after them.
        names: of arrays by what makes them the same, so that one that stands in several places is
            there once.
    """

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def array(self, value: NDArray[Any], path: str) -> str:
        """Put an array in and return its name; empty ones are the same as others of their kind."""
        same = (id(value),) if value.size else (value.dtype.str, value.shape)
        name = self.names.setdefault(same, path)
        # Not by `np.ascontiguousarray`: that gives arrays of no dimension one.
        self.arrays[name] = np.require(value, requirements="C")
        return name

    def table(self, value: pd.DataFrame, path: str) -> str:
        """Put a table in and return its name."""
        name = path.rpartition("/")[2]
        self.tables[name] = value
        return name


def pack(value: Any, path: str, packed: Packed) -> Any:
    """Put the arrays and tables of a value into ``packed`` and return the rest as for JSON.

    Args:
        value: dataclasses, mappings, tuples, arrays, tables, numbers and texts, one inside the
            other. Keys of mappings may be numbers and tuples, too; it must live until what is
            packed is written.
        path: where it stands; the arrays' names begin with it.
    """
    if isinstance(value, np.ndarray):
        return packed.array(value, path)
    if isinstance(value, pd.DataFrame):
        return packed.table(value, path)
    if is_dataclass(value):
        return {f.name: pack(getattr(value, f.name), f"{path}/{f.name}", packed)
                for f in fields(value)}  # fmt: skip
    if isinstance(value, Mapping):
        parts = [(key, pack(part, f"{path}/{_name(key)}", packed)) for key, part in value.items()]
        return dict(parts) if all(isinstance(key, str) for key in value) else parts
    if isinstance(value, tuple):
        return [pack(part, f"{path}/{index}", packed) for index, part in enumerate(value)]
    return value


def _name(key: Any) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def unpack(kind: Any, layout: Any, packed: Packed) -> Any:
    """What `pack` took apart, as a value of a type."""
    origin, inside = _taken_apart(kind)
    if origin in {np.ndarray, pd.DataFrame}:
        return (packed.arrays if origin is np.ndarray else packed.tables)[layout]
    if origin in {Union, UnionType}:
        wanted = next(each for each in inside if each is not type(None))
        return None if layout is None else unpack(wanted, layout, packed)
    if origin is Mapping:
        items = layout.items() if isinstance(layout, dict) else layout
        of_key, of_part = inside
        return {unpack(of_key, k, packed): unpack(of_part, part, packed) for k, part in items}
    if origin is tuple:
        return _tuple(inside, layout, packed)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind, layout, packed)
    return kind(layout)


def _record(kind: Any, layout: Any, packed: Packed) -> Any:
    """A dataclass or a named tuple."""
    hints = _hints(kind)
    if isinstance(layout, dict):
        return kind(**{name: unpack(hints[name], part, packed) for name, part in layout.items()})
    return kind(*_tuple(tuple(hints.values()), layout, packed))


def _tuple(inside: tuple[Any, ...], layout: Any, packed: Packed) -> tuple[Any, ...]:
    """A tuple of any length of one type, or of as many as there are types."""
    if inside[-1] is not Ellipsis:
        return tuple(unpack(kind, part, packed) for kind, part in zip(inside, layout, strict=True))
    if inside[0] in SCALARS:
        return tuple(map(inside[0], layout))
    return tuple(unpack(inside[0], part, packed) for part in layout)


@cache
def _taken_apart(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind) or kind, get_args(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
