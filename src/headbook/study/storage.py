"""Values as safetensors and Parquet, in a folder or as bytes, and back."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from headbook.errors import StudyError
from headbook.output_folder import MANIFEST
from headbook.schema import BaselineRun
from headbook.study.array_checks import check_arrays
from headbook.study.corpus_sums import CorpusSums, HeadTable
from headbook.study.manifest import Manifest, changed, read_sealed
from headbook.study.sentence_data import MapSample, SentenceData

SCALARS = {bool, int, float, str}


@dataclass(frozen=True)
class PackedArrays:
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


def to_layout(value: Any, path: str, packed: PackedArrays) -> Any:
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
        return {f.name: to_layout(getattr(value, f.name), f"{path}/{f.name}", packed)
                for f in fields(value)}  # fmt: skip
    if isinstance(value, Mapping):
        parts = [
            (key, to_layout(part, f"{path}/{_name(key)}", packed)) for key, part in value.items()
        ]
        return dict(parts) if all(isinstance(key, str) for key in value) else parts
    if isinstance(value, tuple):
        return [to_layout(part, f"{path}/{index}", packed) for index, part in enumerate(value)]
    return value


def _name(key: Any) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def from_layout(kind: Any, layout: Any, packed: PackedArrays) -> Any:
    """What `to_layout` took apart, as a value of a type."""
    origin, inside = _taken_apart(kind)
    if origin in {np.ndarray, pd.DataFrame}:
        return (packed.arrays if origin is np.ndarray else packed.tables)[layout]
    if origin in {Union, UnionType}:
        wanted = next(each for each in inside if each is not type(None))
        return None if layout is None else from_layout(wanted, layout, packed)
    if origin is Mapping:
        items = layout.items() if isinstance(layout, dict) else layout
        of_key, of_part = inside
        return {
            from_layout(of_key, k, packed): from_layout(of_part, part, packed) for k, part in items
        }
    if origin is tuple:
        return _tuple(inside, layout, packed)
    if is_dataclass(origin) or hasattr(origin, "_fields"):
        return _record(kind, layout, packed)
    return kind(layout)


def _record(kind: Any, layout: Any, packed: PackedArrays) -> Any:
    """A dataclass or a named tuple."""
    hints, (origin, _) = _hints(kind), _taken_apart(kind)
    if isinstance(layout, dict):
        return origin(
            **{name: from_layout(hints[name], part, packed) for name, part in layout.items()}
        )
    return origin(*_tuple(tuple(hints.values()), layout, packed))


def _tuple(inside: tuple[Any, ...], layout: Any, packed: PackedArrays) -> tuple[Any, ...]:
    """A tuple of any length of one type, or of as many as there are types."""
    if inside[-1] is not Ellipsis:
        return tuple(
            from_layout(kind, part, packed) for kind, part in zip(inside, layout, strict=True)
        )
    if inside[0] in SCALARS:
        return tuple(map(inside[0], layout))
    return tuple(from_layout(inside[0], part, packed) for part in layout)


@cache
def _taken_apart(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind) or kind, get_args(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a record's fields; of a generic one, such as ``Part[int]``, its own."""
    origin, inside = _taken_apart(kind)
    own = dict(zip(getattr(origin, "__parameters__", ()), inside, strict=True))
    return {name: own.get(hint, hint) for name, hint in get_type_hints(origin).items()}


LAYOUT, TABLE = "layout", "table:"
CODEC = "zstd"  # much of what a few sentences give is zero: a tenth of the size
LENGTH = 8  # bytes of the length before compression


def to_bytes(value: Any) -> bytes:
    """Arrays, tables and the rest of a value, as one file."""
    packed = PackedArrays()
    layout = json.dumps(to_layout(value, "v", packed)).encode()
    arrays = {**packed.arrays, LAYOUT: np.frombuffer(layout, np.uint8)}
    for name, table in packed.tables.items():
        arrays[TABLE + name] = np.frombuffer(table.to_parquet(index=False), np.uint8)
    body = safetensors.numpy.save(arrays)
    packed_body: bytes = pa.compress(body, codec=CODEC, asbytes=True)
    return len(body).to_bytes(LENGTH, "little") + packed_body


def from_bytes(kind: Any, body: bytes) -> Any:
    """What `to_bytes` wrote."""
    size = int.from_bytes(body[:LENGTH], "little")
    arrays = safetensors.numpy.load(pa.decompress(body[LENGTH:], size, codec=CODEC, asbytes=True))
    layout = json.loads(arrays.pop(LAYOUT).tobytes())
    tables = {
        name.removeprefix(TABLE): pd.read_parquet(BytesIO(arrays.pop(name).tobytes()))
        for name in [name for name in arrays if name.startswith(TABLE)]
    }
    return from_layout(kind, layout, PackedArrays(arrays, tables))


Tables = Mapping[str, HeadTable]
ARRAYS = "arrays.safetensors"
AT_ONCE = 1 << 26  # bytes
OS_ERROR = re.compile(r"os error (\d+)")  # as safetensors says it
TABLES = ("tokens", "nearest")
FILES = (ARRAYS, *(f"{name}.parquet" for name in TABLES))  # beside the manifest
UNREADABLE = (
    OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError, OverflowError,
    RecursionError, NotImplementedError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredParts:
    """What is stored of a study beside its manifest.

    Attributes:
        map_sample: attention maps by which models are compared.
        stored_sampled: the numbers that follow from the statistics of the sample, so that who
            reads them need not fit anything.
    """

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    baselines: Mapping[BaselineRun, Tables]
    stored_sampled: Tables
    map_sample: MapSample


def save_study(folder: Path, manifest: Manifest, parts: StoredParts) -> None:
    """Write all files of a study into an empty folder; the manifest holds the others' sums."""
    packed = PackedArrays()
    layout = json.dumps(to_layout(parts, "study", packed))
    write_arrays(folder / ARRAYS, packed.arrays, layout)
    for name, table in packed.tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    sums = {name: _sum(folder / name) for name in FILES}
    (folder / MANIFEST).write_text(manifest.sealed(sums) + "\n", encoding="utf-8")
    shutil.copymode(folder / MANIFEST, folder / ARRAYS)  # else nobody else may read them


def load_study(folder: Path) -> tuple[Manifest, StoredParts]:
    """Read what `save_study` wrote, and check it: sums of files, arrays, indices.

    Raises:
        StudyError: a file is missing, broken or changed, or holds what cannot be.
    """
    try:
        manifest, sums = read_sealed(folder)
        for name in FILES:
            if _sum(folder / name) != sums.get(name):
                raise changed(folder / name)
        with safe_open(folder / ARRAYS, framework="numpy") as file:
            layout = json.loads(file.metadata()["layout"])
        tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
        found = PackedArrays(arrays(folder / ARRAYS), tables)
        parts: StoredParts = from_layout(StoredParts, layout, found)
        check_arrays(manifest, parts.sentence_data.sentences, parts, f"{folder / ARRAYS}: ")
    except UNREADABLE as error:
        found_instead = (str(error) or type(error).__name__).splitlines()[0]
        raise StudyError(
            f"{folder}: {found_instead}; expected the files of a study, whole"
        ) from error
    return manifest, parts


def _sum(file: Path) -> str:
    """Return the SHA-256 sum of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_arrays(path: Path, found: dict[str, NDArray[Any]], layout: str) -> None:
    """Write all arrays, straight to the file: as bytes they would stand in memory twice more.

    Raises:
        OSError: the disk does not take them.
    """
    try:
        safetensors.numpy.save_file(found, path, metadata={"layout": layout})
    except SafetensorError as error:
        number = OS_ERROR.search(str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code)) from error


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file.

    The file is opened anew after every `AT_ONCE` bytes: what was read of it stays in memory, beside
    the arrays, as long as it is open. So the largest, which is twice there, comes first.
    """
    found: dict[str, NDArray[Any]] = {}
    with safe_open(path, framework="numpy") as file:
        waiting = iter(sorted(file.keys(), key=lambda n: -math.prod(file.get_slice(n).get_shape())))
    while True:
        with safe_open(path, framework="numpy") as file:
            free = AT_ONCE
            for name in waiting:
                found[name] = file.get_tensor(name)
                free -= found[name].nbytes
                if free < 0:
                    break
            else:
                return found
