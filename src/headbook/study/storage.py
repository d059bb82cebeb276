"""Storage of studies and other values as safetensors and Parquet, in a folder or as bytes."""

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
    """Arrays and tables of a value, each under the path of its field.

    Attributes:
        arrays: arrays by path.
        tables: tables by the last part of their path, which is the name of a file.
        names: path of each array by its identity, so that an array with several paths is stored
            once.
    """

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def array(self, value: NDArray[Any], path: str) -> str:
        """Add an array and return its name; empty arrays of one type and shape share a name."""
        same = (id(value),) if value.size else (value.dtype.str, value.shape)
        name = self.names.setdefault(same, path)
        # Not by `np.ascontiguousarray`: that gives arrays of no dimension one.
        self.arrays[name] = np.require(value, requirements="C")
        return name

    def table(self, value: pd.DataFrame, path: str) -> str:
        """Add a table and return its name."""
        name = path.rpartition("/")[2]
        self.tables[name] = value
        return name


def to_layout(value: Any, path: str, packed: PackedArrays) -> Any:
    """Put the arrays and tables of a value into ``packed`` and return the rest as for JSON.

    Args:
        value: nested dataclasses, mappings, tuples, arrays, tables, numbers and texts. Keys of
            mappings may be numbers and tuples, too. The value must live until ``packed`` is
            written, for arrays are known by their ids.
        path: path of the value, with which the names of its arrays begin.
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
            (key, to_layout(part, f"{path}/{name}", packed))
            for key, part in value.items()
            for name in ["/".join(map(str, key)) if isinstance(key, tuple) else key]
        ]
        return dict(parts) if all(isinstance(key, str) for key in value) else parts
    if isinstance(value, tuple):
        return [to_layout(part, f"{path}/{index}", packed) for index, part in enumerate(value)]
    return value


def from_layout(kind: Any, layout: Any, packed: PackedArrays) -> Any:
    """Return the value of a type from a layout of `to_layout`."""
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
    """Return a dataclass or a named tuple."""
    hints, (origin, _) = _hints(kind), _taken_apart(kind)
    if isinstance(layout, dict):
        return origin(
            **{name: from_layout(hints[name], part, packed) for name, part in layout.items()}
        )
    return origin(*_tuple(tuple(hints.values()), layout, packed))


def _tuple(inside: tuple[Any, ...], layout: Any, packed: PackedArrays) -> tuple[Any, ...]:
    """Return a tuple of any length of one type, or with a type for each element."""
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
CODEC = "zstd"  # a tenth of the size, for many sums of a few sentences are zero
LENGTH = 8  # bytes of the prefix that holds the length before compression


def to_bytes(value: Any) -> bytes:
    """Return a value as bytes: arrays, tables and layout in one compressed file."""
    packed = PackedArrays()
    layout = json.dumps(to_layout(value, "v", packed)).encode()
    arrays = {**packed.arrays, LAYOUT: np.frombuffer(layout, np.uint8)}
    for name, table in packed.tables.items():
        arrays[TABLE + name] = np.frombuffer(table.to_parquet(index=False), np.uint8)
    body = safetensors.numpy.save(arrays)
    packed_body: bytes = pa.compress(body, codec=CODEC, asbytes=True)
    return len(body).to_bytes(LENGTH, "little") + packed_body


def from_bytes(kind: Any, body: bytes) -> Any:
    """Return the value of a type from the bytes of `to_bytes`."""
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
AT_ONCE = 1 << 26  # bytes that are read before the file is opened anew
OS_ERROR = re.compile(r"os error (\d+)")  # in messages of safetensors
TABLES = ("tokens", "nearest")
FILES = (ARRAYS, *(f"{name}.parquet" for name in TABLES))  # beside the manifest
UNREADABLE = (
    OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError, OverflowError,
    RecursionError, NotImplementedError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class StoredParts:
    """Parts of a study that are stored beside its manifest.

    Attributes:
        corpus_sums: sums over all sentences.
        sentence_data: data of single sentences for pages.
        baselines: numbers of heads of each baseline, by stack.
        stored_sampled: sampled metrics by stack, stored so that reading a study fits nothing anew.
        map_sample: attention maps by which models are compared.
    """

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    baselines: Mapping[BaselineRun, Tables]
    stored_sampled: Tables
    map_sample: MapSample


def save_study(folder: Path, manifest: Manifest, parts: StoredParts) -> None:
    """Write all files of a study into an empty folder; the manifest has their SHA-256 sums."""
    packed = PackedArrays()
    layout = json.dumps(to_layout(parts, "study", packed))
    write_arrays(folder / ARRAYS, packed.arrays, layout)
    for name, table in packed.tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    sums = {name: _sum(folder / name) for name in FILES}
    (folder / MANIFEST).write_text(manifest.sealed(sums) + "\n", encoding="utf-8")
    shutil.copymode(folder / MANIFEST, folder / ARRAYS)  # safetensors hides it from others


def load_study(folder: Path) -> tuple[Manifest, StoredParts]:
    """Read the files of a study and check their SHA-256 sums, arrays and indices.

    Raises:
        StudyError: a file is missing, broken or changed, or holds impossible values.
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
    """Write all arrays straight to a file, for as bytes they would take twice more memory.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        safetensors.numpy.save_file(found, path, metadata={"layout": layout})
    except SafetensorError as error:
        number = OS_ERROR.search(str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code)) from error


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file, the largest first.

    An open file keeps what was read in memory, beside the arrays. So the file is opened anew after
    every `AT_ONCE` bytes, and the largest array is read while memory holds no other one.
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
