"""Inputs that a Python program holds: texts, pairs, records, tables and datasets in memory.

A list of `str` may hold texts or paths; `input_sources` tells them apart.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.huggingface import DatasetSource, is_id
from headbook.inputs.records import (
    DEFAULT_TEXTS,
    InputLayout,
    Record,
    Records,
    TextColumns,
    suffix_of,
)
from headbook.inputs.rows import SOURCE, TARGET, TEXT, check_header, record_of
from headbook.inputs.sources import KINDS, STDIN, InputSource

TEXTS, PAIRS, RECORDS, TABLE = (
    f"in-memory {kind}" for kind in ("texts", "pairs", "records", "table")
)
PATHS = "paths"  # kind of items that name files
SINGULAR = {TEXTS: "text", PAIRS: "pair", RECORDS: "dict", PATHS: "path"}
ACCEPTED = (
    "a path, a list of texts, of paths, of pairs of texts or of dicts, a pandas DataFrame, "
    "or a dataset of Hugging Face"
)
TABLE_ROWS = 1024  # rows of a DataFrame that are converted at a time


@dataclass(frozen=True, eq=False)
class ObjectSource:
    """Items in memory as a source of sentences.

    Attributes:
        name: kind of the items, such as ``in-memory texts``.
        items: texts, pairs or dicts; or a `pandas.DataFrame`.
        chosen: columns of the texts in dicts and tables.
    """

    name: str
    items: Any
    chosen: TextColumns = DEFAULT_TEXTS

    @property
    def kind(self) -> str:
        """Empty: items in memory have no file name extension."""
        return ""

    @property
    def label(self) -> str:
        """Name of the items, for messages."""
        return self.name

    @property
    def has_columns(self) -> bool:
        """Whether each item has named columns, so that one may be chosen as the text."""
        return self.name in {RECORDS, TABLE}

    def records(self) -> Records:
        """Yield sentences in order; items without text count as blank lines.

        Raises:
            InputError: the column of the text is missing, or a value is no text.
        """
        rows: Iterator[Mapping[str, Any]] = map(_row_of, self.items)
        if self.name == TABLE:
            check_header([*map(str, self.items.columns)], self.name, self.chosen)
            rows = _table_rows(self.items)
        for number, row in enumerate(rows, start=1):
            record = record_of(row, number, self.name, self.chosen)
            if isinstance(record, Record) and self.name == PAIRS:
                record = replace(record, second=record.target)
            yield record

    def rows(self) -> int:
        """Return the number of items."""
        return len(self.items)

    def sha256(self) -> None:
        """Return None: items in memory are hashed as they are read."""


def _row_of(item: Any) -> Mapping[str, Any]:
    """Return an item as named columns."""
    if isinstance(item, str):
        return {TEXT: item}
    if isinstance(item, Mapping):
        return {str(name): value for name, value in item.items()}
    return dict(zip((SOURCE, TARGET), item, strict=True))


def _table_rows(table: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a `pandas.DataFrame` as Python values; missing values are None."""
    for start in range(0, len(table), TABLE_ROWS):
        rows = table.iloc[start : start + TABLE_ROWS].astype(object)
        for row in rows.where(rows.notna(), None).to_dict("records"):
            yield {str(name): value for name, value in row.items()}


def input_sources(inputs: Any, layout: InputLayout) -> tuple[str | InputSource, ...]:
    """Return the inputs of a Python call as names of files and datasets, or as a source in memory.

    A list of `str` holds paths if all items are existing files, folders or ``-``, and texts if none
    is. `Path` objects and a lone `str` are always paths or ids of datasets.

    Args:
        inputs: a path, an id of a dataset, a list of texts, paths, pairs of texts or dicts, a
            `pandas.DataFrame`, or a dataset of the library datasets.
        layout: column of the text, and split of a dataset.

    Raises:
        InputError: the inputs mix several kinds, or are none of these; in one line.
    """
    if isinstance(inputs, str | Path):
        return (_checked_name(inputs),)
    if isinstance(inputs, Mapping) and not isinstance(inputs, _classes("datasets", "DatasetDict")):
        raise _refused(inputs)
    if isinstance(inputs, _classes("datasets", *DATASETS)):
        return (DatasetSource.of_object(inputs, layout),)
    if isinstance(inputs, _classes("pandas", "DataFrame")):
        return (ObjectSource(TABLE, inputs, layout.texts),)
    if not isinstance(inputs, Iterable) or isinstance(inputs, bytes | set | frozenset):
        raise _refused(inputs)
    items = tuple(inputs)
    kind = _kind_of_all(items)
    if kind == PATHS:
        return tuple(map(str, items))
    return (ObjectSource(kind, items, layout.texts if kind == RECORDS else DEFAULT_TEXTS),)


DATASETS = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")


def _classes(library: str, *names: str) -> tuple[type, ...]:
    """Return classes of a library, or none if the program has not imported it."""
    module = sys.modules.get(library)
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


def _refused(inputs: Any) -> InputError:
    found = f"got an object of type {type(inputs).__name__}"
    return InputError("inputs", None, found=found, expected=ACCEPTED)


def _checked_name(inputs: str | Path) -> str:
    """Return the name of a file, folder or dataset.

    Raises:
        InputError: a `str` that is no name, so probably a text.
    """
    name = str(inputs)
    is_name = name == STDIN or os.path.exists(name) or suffix_of(name) in KINDS or is_id(name)  # noqa: PTH110 - accepts any characters
    if isinstance(inputs, str) and not is_name:
        raise InputError(
            "inputs",
            None,
            found=f"got {_short(name)}, which is neither a file nor the id of a dataset",
            expected=f"a list for texts, here [{_short(name)}]",
        )
    return name


def _kind_of_all(items: Sequence[Any]) -> str:
    """Return the kind of all items of a list; an empty list has texts.

    Raises:
        InputError: an item is of no known kind, or two items are of different kinds.
    """
    first: dict[str, str] = {}  # the first item of each kind, in words
    for number, item in enumerate(items):
        kind = _kind_of(item, number)
        first.setdefault(kind, f"the {SINGULAR[kind]} inputs[{number}] = {_short(item)}")
        if len(first) > 1:
            found = f"got {' and '.join(first.values())}"
            expected = "items of one kind; texts and files need two calls"
            raise InputError("inputs", None, found=found, expected=expected)
    return next(iter(first), TEXTS)


def _kind_of(item: Any, number: int) -> str:
    """Return the kind of one item of a list.

    Raises:
        InputError: the item is of no known kind, or names a file that does not exist.
    """
    if isinstance(item, str):
        if item == STDIN or os.path.exists(item):  # noqa: PTH110 - accepts any characters
            return PATHS
        if suffix_of(item) in KINDS and not any(map(str.isspace, item)):
            raise InputError(
                item,
                None,
                found="no such file",
                expected=f"a file that exists; a text of one word may not end in {suffix_of(item)}",
            )
        return TEXTS
    if isinstance(item, Path):
        return PATHS
    if isinstance(item, Mapping):
        return RECORDS
    is_pair = isinstance(item, tuple | list) and len(item) == 2
    if is_pair and all(isinstance(text, str) for text in item):
        return PAIRS
    expected = "a text, a path, a pair of texts, or a dict"
    raise InputError(f"inputs[{number}]", None, found=f"got {_short(item)}", expected=expected)


def _short(value: Any) -> str:
    """Return the representation of a value, shortened for a message."""
    text = f"'{value}'" if isinstance(value, Path) else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
