r"""Reader of Hugging Face datasets, from a folder or by an id of the hub.

A folder contains the output of ``save_to_disk``, or files in the layout of the hub. A folder is
read as a stream, repeatedly and without network; a dataset of the hub is read once.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headbook.errors import InputError
from headbook.inputs.readers import record_of
from headbook.inputs.records import BlankLine, InputLayout, Records

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TRAIN = "train"
ROWS = 256  # rows in memory at a time
LONGEST = 300  # characters of the library's message that are printed
INSTALL = "pip install 'headbook[datasets]'"


def is_id(name: str) -> bool:
    """Whether a name has the form of a dataset id on the hub: an owner and a name."""
    return ID.fullmatch(name) is not None


@dataclass(frozen=True)
class DatasetSource:
    """One split of a dataset.

    Attributes:
        name: folder or id, with subset and split.
        label: name as the user gave it.
        data: a `datasets.Dataset` or `datasets.IterableDataset`.
        column: column of the text; None for a default column.
        remote: whether every reading needs the network.
    """

    name: str
    label: str
    data: Any
    column: str | None
    remote: bool

    @classmethod
    def of(cls, name: str, layout: InputLayout) -> "DatasetSource":
        """Open a dataset.

        Raises:
            InputError: the dataset cannot be opened, lacks the split, or its library is missing.
        """
        path = Path(name)
        with _readable(name):
            found = _open(name, path, layout.subset)
        data, split = _split(found, layout.split, name)
        own = path.resolve().name if path.is_dir() else name
        message = ", ".join(part for part in (layout.subset, split) if part)
        return cls(
            f"{own} ({message})" if message else own,
            name,
            data,
            layout.text_column,
            not path.is_dir(),
        )

    @property
    def kind(self) -> str:
        """Empty: a dataset has no file name extension."""
        return ""

    def records(self) -> Records:
        """Yield the rows as records; rows without text count as blank lines."""
        features = dict(self.data.features or {})
        number = 0
        names = {name: f.int2str for name, f in features.items() if hasattr(f, "int2str")}
        rows = _rows(_plain(self.data, features), names)
        while True:
            with _readable(self.name, number):
                row = next(rows, None)
            if row is None:
                return
            number += 1
            blank = self._text(row) in {None, ""}
            yield BlankLine(number) if blank else record_of(row, number, self.name, self.column)

    def _text(self, row: Mapping[str, Any]) -> Any:
        """Return the stripped text of a row; None if it is empty, False if it is no text."""
        names = (self.column,) if self.column else ("text", "source")
        value = next((row[name] for name in names if name in row), False)
        return value.strip() if isinstance(value, str) else (None if value is None else False)

    def rows(self) -> int | None:
        """Return the number of rows according to the dataset, or None if unknown."""
        known = getattr(self.data, "num_rows", None)
        if known is None:
            splits, split = self.data.info.splits or {}, str(self.data.split or "")
            known = splits[split].num_examples if split in splits else None
        return int(known) if known else None

    def sha256(self) -> None:
        """Return None: a dataset is a stream of rows without a file of its own."""


def _open(name: str, path: Path, subset: str | None) -> Any:
    """Open the whole dataset, or its splits by name."""
    datasets = _library(name)
    with _silent(datasets):
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            if subset is not None:
                raise ValueError(f"--subset {subset} for a folder that save_to_disk has written")
            return datasets.load_from_disk(str(path))
        return datasets.load_dataset(name, subset, streaming=True)


def _library(name: str) -> Any:
    try:
        import datasets  # noqa: PLC0415 - an extra

        _ = datasets.load_dataset  # fails if a local folder named datasets was imported instead
    except (ImportError, AttributeError):
        folder = Path(name).is_dir()
        raise InputError(
            name,
            None,
            found="a folder" if folder else "no such file",
            expected=f"a file, or a dataset of Hugging Face and its library: {INSTALL}",
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
    log = logging.getLogger("datasets")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - of many libraries, each with its own
        message = " ".join(str(error).split()) or type(error).__name__
        message = message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"
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
        log.setLevel(before)


def _split(found: Any, asked: str | None, name: str) -> tuple[Any, str]:
    """Return the requested split and its name; by default `TRAIN` or the only one."""
    if not isinstance(found, dict):
        own = str(found.split or "")
        if asked not in {None, own}:
            there = f"'{own}'" if own else "no split"
            raise InputError(name, None, found=there, expected=f"--split '{asked}', or do not ask")
        return found, own
    split = asked or (next(iter(found)) if len(found) == 1 else TRAIN)
    if split not in found:
        there = ", ".join(f"'{each}'" for each in found) or "none"
        wanted = f"'{split}'" if asked else "one of them by --split"
        raise InputError(name, None, found=f"splits {there}", expected=wanted)
    return found[split], split


def _plain(data: Any, features: Mapping[str, Any]) -> Any:
    """Return the data without image and audio columns, whose decoding would be slow."""
    kept = [name for name, feature in features.items() if not _media(feature)]
    plain = data.with_format(None)
    return plain.select_columns(kept) if len(kept) < len(features) else plain


def _media(feature: Any) -> bool:
    if isinstance(feature, Mapping):
        return any(map(_media, feature.values()))
    inner = getattr(feature, "feature", None)
    return hasattr(feature, "decode_example") or (inner is not None and _media(inner))


def _rows(data: Any, names: Mapping[str, Callable[[int], str]]) -> Iterator[dict[str, Any]]:
    """Yield rows as Python values, with the names of classes; None for a row without class."""
    for batch in data.iter(batch_size=ROWS):
        for values in zip(*batch.values(), strict=True):
            row = dict(zip(batch, values, strict=True))
            for column, named in names.items():
                value = row.get(column)
                row[column] = None if value is None or value < 0 else named(value)
            yield row
