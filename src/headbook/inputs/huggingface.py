r"""Reader of Hugging Face datasets, from a folder or by an id of the hub.

A folder contains the output of ``save_to_disk``, or files in the layout of the hub. A folder is
read as a stream, repeatedly and without network; a dataset of the hub is read once.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.file_list import leads_outside
from headbook.inputs.records import (
    InputLayout,
    Record,
    Records,
    TextColumns,
    within_blank_limit,
)
from headbook.inputs.rows import column_names, record_of
from headbook.safe_files import read_object

DATASET_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DEFAULT_SPLIT = "train"  # split that is read if a dataset has several
IN_MEMORY = "in-memory dataset"  # name of a dataset that a program has loaded
BATCH_ROWS = 256  # held in memory at a time
MAX_MESSAGE_CHARACTERS = 300  # of the library's message in an error
# Files of a folder that save_to_disk has written: of several splits, and of one.
SPLITS_FILE, STATE_FILE = "dataset_dict.json", "state.json"
INSTALL_COMMAND = "pip install 'headbook[datasets]'"


def is_id(name: str) -> bool:
    """Whether a name has the form of a dataset id on the hub: an owner and a name."""
    return DATASET_ID.fullmatch(name) is not None


@dataclass(frozen=True)
class DatasetSource:
    """One split of a dataset.

    Attributes:
        name: folder or id, with subset and split.
        label: name as the user gave it.
        data: a `datasets.Dataset` or `datasets.IterableDataset`.
        chosen: columns of the texts.
        remote: whether every reading needs the network.
    """

    name: str
    label: str
    data: Any
    chosen: TextColumns
    remote: bool

    @classmethod
    def of(cls, name: str, layout: InputLayout) -> "DatasetSource":
        """Open a dataset.

        Raises:
            InputError: the dataset cannot be opened, lacks the split, or its library is missing.
        """
        path = Path(name)
        with _readable(name):
            dataset = _load(name, path, layout.subset)
        data, split = _chosen_split(dataset, layout.split, name)
        short_name = path.resolve().name if path.is_dir() else name
        details = ", ".join(part for part in (layout.subset, split) if part)
        return cls(
            f"{short_name} ({details})" if details else short_name,
            name,
            data,
            layout.texts,
            not path.is_dir(),
        )

    @classmethod
    def of_object(cls, dataset: Any, layout: InputLayout) -> "DatasetSource":
        """Return the source of a dataset that a program has loaded, or of one of its splits.

        Raises:
            InputError: the dataset lacks the split.
        """
        data, split = _chosen_split(dataset, layout.split, IN_MEMORY)
        # A stream may be read only once, and is copied to the disk like a remote dataset.
        is_stream = not hasattr(data, "__len__")
        name = f"{IN_MEMORY} ({split})" if split else IN_MEMORY
        return cls(name, name, data, layout.texts, remote=is_stream)

    @property
    def kind(self) -> str:
        """Empty: a dataset has no file name extension."""
        return ""

    def records(self) -> Records:
        """Yield the rows as records; rows without text count as blank lines."""
        return within_blank_limit(self._records(), self.name)

    def _records(self) -> Records:
        features = dict(self.data.features or {})
        row_number = 0
        class_names = {
            name: feature.int2str
            for name, feature in features.items()
            if hasattr(feature, "int2str")
        }
        rows = _rows(_without_media(self.data, features), class_names)
        while True:
            with _readable(self.name, row_number):
                row, numbers = next(rows, (None, {}))
            if row is None:
                return
            row_number += 1
            record = record_of(row, row_number, self.name, self.chosen)
            if isinstance(record, Record) and numbers:
                names = dict(zip(row, column_names(row), strict=True))
                classes = {names[column]: number for column, number in numbers.items()}
                record = replace(record, class_numbers=classes)
            yield record

    def rows(self) -> int | None:
        """Return the number of rows according to the dataset, or None if unknown."""
        n_rows = getattr(self.data, "num_rows", None)
        if n_rows is None:
            splits, split = self.data.info.splits or {}, str(self.data.split or "")
            n_rows = splits[split].num_examples if split in splits else None
        return int(n_rows) if n_rows else None

    def sha256(self) -> None:
        """Return None: a dataset is a stream of rows without a file of its own."""


def _load(name: str, path: Path, subset: str | None) -> Any:
    """Open the whole dataset, or its splits by name."""
    datasets = _library(name)
    with _silent(datasets):
        if (path / SPLITS_FILE).is_file() or (path / STATE_FILE).is_file():
            if subset is not None:
                raise ValueError(f"--subset={subset} for a folder that save_to_disk has written")
            for names in _saved_names(path):
                _check_inside(name, path, names)
            return datasets.load_from_disk(str(path))
        builder = datasets.load_dataset_builder(name, subset)
        files = chain.from_iterable((builder.config.data_files or {}).values())
        _check_inside(name, path, [str(file) for file in files])
        return builder.as_streaming_dataset()


def _saved_names(path: Path) -> Iterator[list[str]]:
    """Yield the names that a folder of save_to_disk gives: of splits, then of each split's files.

    The second list is made after the caller has checked the first.
    """
    splits = read_object(path / SPLITS_FILE).get("splits", [])
    yield [str(split) for split in splits]
    folders = ["", *map(str, splits)]
    yield [
        os.path.join(folder, str(file["filename"]))  # noqa: PTH118 - absolute names stay absolute
        for folder in folders
        for file in read_object(path / folder / STATE_FILE).get("_data_files", [])
    ]


def _check_inside(name: str, path: Path, files: Iterable[str]) -> None:
    """Refuse files outside a dataset: any file of the reader could become its sentences.

    Args:
        name: folder or id of the dataset.
        path: the same as a path.
        files: paths in the folder, or absolute ones; addresses, of a dataset of the hub.

    Raises:
        InputError: a file lies elsewhere; the message names it.
    """
    root, is_folder = path.resolve(), path.is_dir()
    for file in files:
        is_address = "://" in file and not file.startswith(("file:", "local:"))
        relative = os.path.relpath(root / file, root)
        if is_address == is_folder or (is_folder and leads_outside(root, relative)):
            raise InputError(
                name,
                None,
                found=f"a dataset that names {file}",
                expected="names of files inside the dataset",
            )


def _library(name: str) -> Any:
    """Import the library that reads datasets, for the dataset with a name.

    Raises:
        InputError: the library is not installed.
    """
    try:
        import datasets  # noqa: PLC0415 - an extra

        _ = datasets.load_dataset  # fails if a local folder named datasets was imported instead
    except (ImportError, AttributeError):
        is_folder = Path(name).is_dir()
        raise InputError(
            name,
            None,
            found="a folder" if is_folder else "no such file",
            expected=f"a file, or a dataset of Hugging Face and its library: {INSTALL_COMMAND}",
        ) from None
    return datasets


@contextmanager
def _silent(datasets: Any) -> Iterator[None]:
    """Disable the library's progress bars inside the block."""
    quiet = datasets.utils.are_progress_bars_disabled()
    datasets.utils.disable_progress_bars()
    try:
        yield
    finally:
        if not quiet:
            datasets.utils.enable_progress_bars()


@contextmanager
def _readable(name: str, row: int | None = None) -> Iterator[None]:
    """Turn any error of the library into an InputError of one line, and disable its log.

    Args:
        row: last row that could be read, counted from 1; None while the dataset is opened.
    """
    logger = logging.getLogger("datasets")
    level_before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - of many libraries, each with its own
        message = " ".join(str(error).split()) or type(error).__name__
        if len(message) > MAX_MESSAGE_CHARACTERS:
            message = f"{message[: MAX_MESSAGE_CHARACTERS - 1]}…"
        opening = row is None
        where = f"a dataset that cannot be {'opened' if opening else 'read to its end'}"
        expected = "a file, or a folder or id of a dataset; --subset names one of several"
        raise InputError(
            name,
            row or None,
            found=f"{where} ({message})",
            expected=expected if opening else "a whole dataset that can be reached; try again",
        ) from None
    finally:
        logger.setLevel(level_before)


def _chosen_split(dataset: Any, requested: str | None, name: str) -> tuple[Any, str]:
    """Return the requested split and its name; by default `DEFAULT_SPLIT` or the only one."""
    if not isinstance(dataset, dict):
        own_split = str(dataset.split or "")
        if requested not in {None, own_split}:
            available = f"only the split '{own_split}'" if own_split else "no named split"
            raise InputError(
                name,
                None,
                found=f"{available} in this folder",
                expected=f"the split '{requested}', as --split says; or no --split",
            )
        return dataset, own_split
    split = requested or (next(iter(dataset)) if len(dataset) == 1 else DEFAULT_SPLIT)
    if split not in dataset:
        available = ", ".join(f"'{known_split}'" for known_split in dataset) or "none"
        expected = f"'{split}'" if requested else "one of them by --split"
        raise InputError(name, None, found=f"splits {available}", expected=expected)
    return dataset[split], split


def _without_media(data: Any, features: Mapping[str, Any]) -> Any:
    """Return the data without image and audio columns, whose decoding would be slow."""
    columns = [name for name, feature in features.items() if not _has_media(feature)]
    plain = data.with_format(None)
    return plain.select_columns(columns) if len(columns) < len(features) else plain


def _has_media(feature: Any) -> bool:
    if isinstance(feature, Mapping):
        return any(map(_has_media, feature.values()))
    inner = getattr(feature, "feature", None)
    return hasattr(feature, "decode_example") or (inner is not None and _has_media(inner))


def _rows(
    data: Any, class_names: Mapping[str, Callable[[int], str]]
) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
    """Yield rows as Python values, with the names of classes, and the numbers of these classes.

    A row without a class has no number, and None for the name.
    """
    for batch in data.iter(batch_size=BATCH_ROWS):
        for values in zip(*batch.values(), strict=True):
            row = dict(zip(batch, values, strict=True))
            numbers = {
                column: int(row[column])
                for column in class_names
                if row.get(column) is not None and row[column] >= 0
            }
            names = {column: class_names[column](number) for column, number in numbers.items()}
            yield row | dict.fromkeys(class_names) | names, numbers
