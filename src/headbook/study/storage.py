"""Storage of studies and other values as safetensors and Parquet, in a folder or as bytes."""

import errno
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
from headbook.resources import sha256
from headbook.safe_files import is_endless
from headbook.schema import BaselineRun
from headbook.study.array_checks import check_arrays
from headbook.study.circuits import CircuitResults
from headbook.study.corpus_sums import CorpusSums, HeadTable
from headbook.study.manifest import Manifest, changed, read_sealed
from headbook.study.sentence_data import MapSample, SentenceData

# Types whose tuples are read without a call for each element.
SCALAR_TYPES = {bool, int, float, str}


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
        identity = (id(value),) if value.size else (value.dtype.str, value.shape)
        name = self.names.setdefault(identity, path)
        # `np.ascontiguousarray` would turn an array without dimensions into one with a dimension.
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
        return {field.name: to_layout(getattr(value, field.name), f"{path}/{field.name}", packed)
                for field in fields(value)}  # fmt: skip
    if isinstance(value, Mapping):
        parts = [
            (key, to_layout(element, f"{path}/{name}", packed))
            for key, element in value.items()
            for name in ["/".join(map(str, key)) if isinstance(key, tuple) else key]
        ]
        return dict(parts) if all(isinstance(key, str) for key in value) else parts
    if isinstance(value, tuple):
        return [
            to_layout(element, f"{path}/{index}", packed) for index, element in enumerate(value)
        ]
    return value


def from_layout(kind: Any, layout: Any, packed: PackedArrays) -> Any:
    """Return the value of a type from a layout of `to_layout`.

    Args:
        kind: type of the value: a dataclass, a named tuple, a tuple, a mapping, an array, a table,
            a scalar, or a union of a type and None.
        layout: layout of the value.
        packed: arrays and tables, under the names in the layout.
    """
    origin, arguments = _split_generic(kind)
    if origin in {np.ndarray, pd.DataFrame}:
        return (packed.arrays if origin is np.ndarray else packed.tables)[layout]
    if origin in {Union, UnionType}:
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if layout is None else from_layout(inner, layout, packed)
    if origin is Mapping:
        entries = layout.items() if isinstance(layout, dict) else layout
        key_type, value_type = arguments
        return {
            from_layout(key_type, key, packed): from_layout(value_type, element, packed)
            for key, element in entries
        }
    if origin is tuple:
        return _tuple_from_layout(arguments, layout, packed)
    if is_dataclass(origin) or hasattr(origin, "_fields"):
        return _record_from_layout(kind, layout, packed)
    return kind(layout)


def _record_from_layout(kind: Any, layout: Any, packed: PackedArrays) -> Any:
    """Return a dataclass or a named tuple."""
    hints, (origin, _) = _hints(kind), _split_generic(kind)
    if isinstance(layout, dict):
        return origin(
            **{name: from_layout(hints[name], part, packed) for name, part in layout.items()}
        )
    return origin(*_tuple_from_layout(tuple(hints.values()), layout, packed))


def _tuple_from_layout(
    types: tuple[Any, ...], layout: Any, packed: PackedArrays
) -> tuple[Any, ...]:
    """Return a tuple of any length of one type, or with a type for each element."""
    if types[-1] is not Ellipsis:
        return tuple(
            from_layout(kind, element, packed) for kind, element in zip(types, layout, strict=True)
        )
    if types[0] in SCALAR_TYPES:
        return tuple(map(types[0], layout))
    return tuple(from_layout(types[0], element, packed) for element in layout)


@cache
def _split_generic(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    origin = get_origin(kind) or kind
    # Since numpy 2.5, NDArray is an alias with a name, and the origin of NDArray[...] is the alias.
    return np.ndarray if origin is NDArray else origin, get_args(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a record's fields; type variables have the arguments of a generic."""
    origin, arguments = _split_generic(kind)
    type_arguments = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=True))
    return {name: type_arguments.get(hint, hint) for name, hint in get_type_hints(origin).items()}


LAYOUT_KEY, TABLE_PREFIX = "layout", "table:"
CODEC = "zstd"  # a tenth of the size, since many sums of a few sentences are zero
LENGTH_BYTES = 8  # bytes of the prefix that holds the length before compression


def to_bytes(value: Any) -> bytes:
    """Return a value as bytes: arrays, tables and layout in one compressed file."""
    packed = PackedArrays()
    layout = json.dumps(to_layout(value, "v", packed)).encode()
    arrays = {**packed.arrays, LAYOUT_KEY: np.frombuffer(layout, np.uint8)}
    for name, table in packed.tables.items():
        arrays[TABLE_PREFIX + name] = np.frombuffer(table.to_parquet(index=False), np.uint8)
    body = safetensors.numpy.save(arrays)
    compressed: bytes = pa.compress(body, codec=CODEC, asbytes=True)
    return len(body).to_bytes(LENGTH_BYTES, "little") + compressed


def from_bytes(kind: Any, body: bytes) -> Any:
    """Return the value of a type from the bytes of `to_bytes`."""
    size = int.from_bytes(body[:LENGTH_BYTES], "little")
    arrays = safetensors.numpy.load(
        pa.decompress(body[LENGTH_BYTES:], size, codec=CODEC, asbytes=True)
    )
    layout = json.loads(arrays.pop(LAYOUT_KEY).tobytes())
    tables = {
        name.removeprefix(TABLE_PREFIX): pd.read_parquet(BytesIO(arrays.pop(name).tobytes()))
        for name in [name for name in arrays if name.startswith(TABLE_PREFIX)]
    }
    return from_layout(kind, layout, PackedArrays(arrays, tables))


Tables = Mapping[str, HeadTable]
ARRAYS_FILE = "arrays.safetensors"
MAX_READ_BYTES = 1 << 26  # bytes that are read before the file is opened again
OS_ERROR = re.compile(r"os error (\d+)")  # in messages of safetensors
# Fields of sentence data and of circuits that are tables.
TABLE_NAMES = (
    "tokens", "nearest", "uses", "numbers", "composition", "promoted", "exemplars", "sentences",
)  # fmt: skip
STUDY_FILES = (ARRAYS_FILE, *(f"{name}.parquet" for name in TABLE_NAMES))  # beside the manifest
READ_ERRORS = (
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
        circuits: what heads read and write.
    """

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    baselines: Mapping[BaselineRun, Tables]
    stored_sampled: Tables
    map_sample: MapSample
    circuits: CircuitResults


def save_study(folder: Path, manifest: Manifest, parts: StoredParts) -> None:
    """Write all files of a study into an empty folder; the manifest has their SHA-256 sums."""
    packed = PackedArrays()
    layout = json.dumps(to_layout(parts, "study", packed))
    write_arrays(folder / ARRAYS_FILE, packed.arrays, layout)
    for name, table in packed.tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    sums = {name: sha256(folder / name) for name in STUDY_FILES}
    (folder / MANIFEST).write_text(manifest.sealed(sums) + "\n", encoding="utf-8")
    shutil.copymode(folder / MANIFEST, folder / ARRAYS_FILE)  # safetensors hides it from others


def load_study(folder: Path) -> tuple[Manifest, StoredParts]:
    """Read the files of a study and check their SHA-256 sums, arrays and indices.

    Raises:
        StudyError: a file is missing, broken or changed, or holds impossible values.
    """
    try:
        manifest, sums = read_sealed(folder)
        for name in STUDY_FILES:
            if is_endless(folder / name):
                raise StudyError(f"{folder / name}: no file; expected the files of a study, whole")
            if sha256(folder / name) != sums.get(name):
                raise changed(folder / name)
        with safe_open(folder / ARRAYS_FILE, framework="numpy") as file:
            layout = json.loads(file.metadata()["layout"])
        tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLE_NAMES}
        packed = PackedArrays(arrays(folder / ARRAYS_FILE), tables)
        parts: StoredParts = from_layout(StoredParts, layout, packed)
        check_arrays(manifest, parts.sentence_data.sentences, parts, f"{folder / ARRAYS_FILE}: ")
    except READ_ERRORS as error:
        cause = (str(error) or type(error).__name__).splitlines()[0]
        raise StudyError(f"{folder}: {cause}; expected the files of a study, whole") from error
    return manifest, parts


def write_arrays(path: Path, arrays_by_name: dict[str, NDArray[Any]], layout: str) -> None:
    """Write all arrays straight to a file, since bytes in memory would take twice more memory.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        safetensors.numpy.save_file(arrays_by_name, path, metadata={"layout": layout})
    except SafetensorError as error:
        error_number = OS_ERROR.search(str(error))
        code = int(error_number[1]) if error_number else errno.EIO
        raise OSError(code, os.strerror(code)) from error


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file, the largest first.

    An open file keeps what was read in memory, beside the arrays. So the file is opened anew after
    every `MAX_READ_BYTES` bytes, and the largest array is read while memory holds no other one.
    """
    arrays_by_name: dict[str, NDArray[Any]] = {}
    with safe_open(path, framework="numpy") as file:
        names = iter(
            sorted(file.keys(), key=lambda name: -math.prod(file.get_slice(name).get_shape()))
        )
    while True:
        with safe_open(path, framework="numpy") as file:
            free_bytes = MAX_READ_BYTES
            for name in names:
                arrays_by_name[name] = file.get_tensor(name)
                free_bytes -= arrays_by_name[name].nbytes
                if free_bytes < 0:
                    break
            else:
                return arrays_by_name
