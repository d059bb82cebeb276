"""Frozen values as arrays and JSON, and back: what `sums` and `accumulators` are made of."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def pack(value: Any, path: str, arrays: Arrays) -> Any:
    """Put the arrays of a value into ``arrays`` and return the rest as JSON can hold it.

    Args:
        value: dataclasses, mappings, tuples, arrays, numbers and texts, one inside the other.
        path: where it stands; the arrays' names begin with it.
    """
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value)
        return None
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: pack(part, f"{path}/{name}", arrays) for name, part in parts.items()}
    if isinstance(value, Mapping):
        return {name: pack(part, f"{path}/{name}", arrays) for name, part in value.items()}
    if isinstance(value, tuple):
        return [pack(part, f"{path}/{index}", arrays) for index, part in enumerate(value)]
    return value


def unpack(kind: Any, layout: Any, path: str, arrays: Arrays) -> Any:
    """What `pack` took apart, as a value of a type."""
    origin, inside = get_origin(kind) or kind, get_args(kind)
    if origin is np.ndarray:
        return arrays[path]
    if origin in {Union, UnionType}:
        wanted = next(each for each in inside if each is not type(None))
        return None if layout is None else unpack(wanted, layout, path, arrays)
    if origin is Mapping:
        parts = {name: (inside[1], part) for name, part in layout.items()}
    elif origin is tuple:
        parts = {str(index): (inside[0], part) for index, part in enumerate(layout)}
    elif is_dataclass(kind):
        parts = {name: (get_type_hints(kind)[name], part) for name, part in layout.items()}
    elif hasattr(kind, "_fields"):  # a named tuple
        hints = get_type_hints(kind)
        parts = {name: (hints[name], part) for name, part in zip(kind._fields, layout, strict=True)}
    else:
        return kind(layout)
    made = {n: unpack(each, part, f"{path}/{n}", arrays) for n, (each, part) in parts.items()}
    if origin is Mapping:
        return made
    return tuple(made.values()) if origin is tuple else kind(**made)
