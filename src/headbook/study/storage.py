"""A study's files: JSON for what it says, safetensors for arrays, Parquet for rows of tokens."""

import errno
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
from headbook.study import mappedarrays
from headbook.study.manifest import Manifest
from headbook.study.mapsample import MapSample
from headbook.study.sentencedata import SentenceData
from headbook.study.summaries.packing import Packed, pack, unpack
from headbook.study.summaries.sums import CorpusSums, HeadTable
from headbook.terms import Twin

Tables = Mapping[str, HeadTable]
ARRAYS = "arrays.safetensors"
AT_ONCE = 1 << 26  # bytes
OS_ERROR = re.compile(r"os error (\d+)")  # as safetensors says it
TABLES = ("tokens", "nearest", "demonstration")


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
    """Write all files of a study into an empty folder."""
    (folder / MANIFEST).write_text(manifest.to_json() + "\n", encoding="utf-8")
    packed = Packed()
    layout = json.dumps(pack(parts, "study", packed))
    write_arrays(folder / ARRAYS, packed.arrays, layout)
    shutil.copymode(folder / MANIFEST, folder / ARRAYS)  # else nobody else may read them
    for name, table in packed.tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)


def load(folder: Path, *, mapped: bool = False) -> tuple[Manifest, Parts]:
    """Read what `save` wrote.

    Args:
        mapped: large arrays stay in their file until they are looked at; it must stay, too.

    Raises:
        StudyError: a file is missing or broken.
    """
    try:
        manifest = Manifest.read(folder)
        with safe_open(folder / ARRAYS, framework="numpy") as file:
            layout = json.loads(file.metadata()["layout"])
        tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
        found = arrays(folder / ARRAYS, mapped=mapped)
        return manifest, unpack(Parts, layout, Packed(found, tables))
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError) as error:
        came = (str(error) or type(error).__name__).splitlines()[0]
        raise StudyError(f"{folder}: {came}; expected the files of a study, whole") from error


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


def arrays(path: Path, *, mapped: bool = False) -> dict[str, NDArray[Any]]:
    """All arrays of a file; with ``mapped`` the large ones stay there.

    The file is opened anew after every `AT_ONCE` bytes: what was read of it stays in memory, beside
    the arrays, as long as it is open. So the largest, which is twice there, comes first.
    """
    found = mappedarrays.large(path) if mapped else {}
    with safe_open(path, framework="numpy") as file:
        left = {*file.keys()} - found.keys()
        waiting = iter(sorted(left, key=lambda n: -math.prod(file.get_slice(n).get_shape())))
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
