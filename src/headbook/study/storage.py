"""A study's files: JSON for what it says, safetensors for arrays, Parquet for rows of tokens."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from headbook.errors import StudyError
from headbook.output_folder import MANIFEST
from headbook.study.array_checks import check_arrays
from headbook.study.manifest import Manifest, changed, read_sealed
from headbook.study.mapsample import MapSample
from headbook.study.sentencedata import SentenceData
from headbook.study.summaries.packing import Packed, pack, unpack
from headbook.study.summaries.sums import CorpusSums, HeadTable
from headbook.terms import Twin

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
class Parts:
    """What is stored of a study beside its manifest.

    Attributes:
        map_sample: attention maps by which models are compared.
        fitted: the numbers that follow from the statistics of the sample, so that who reads them
            need not fit anything.
    """

    corpus_sums: CorpusSums
    sentence_data: SentenceData
    twins: Mapping[Twin, Tables]
    fitted: Tables
    map_sample: MapSample


def save(folder: Path, manifest: Manifest, parts: Parts) -> None:
    """Write all files of a study into an empty folder; the manifest holds the others' sums."""
    packed = Packed()
    layout = json.dumps(pack(parts, "study", packed))
    write_arrays(folder / ARRAYS, packed.arrays, layout)
    for name, table in packed.tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
    sums = {name: _sum(folder / name) for name in FILES}
    (folder / MANIFEST).write_text(manifest.sealed(sums) + "\n", encoding="utf-8")
    shutil.copymode(folder / MANIFEST, folder / ARRAYS)  # else nobody else may read them


def load(folder: Path) -> tuple[Manifest, Parts]:
    """Read what `save` wrote, and check it: sums of files, arrays, indices.

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
        found = Packed(arrays(folder / ARRAYS), tables)
        parts: Parts = unpack(Parts, layout, found)
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
            room = AT_ONCE
            for name in waiting:
                found[name] = file.get_tensor(name)
                room -= found[name].nbytes
                if room < 0:
                    break
            else:
                return found
