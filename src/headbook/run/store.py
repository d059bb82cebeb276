"""Store of finished parts of a run: one file per part, a plan that must match, and a lock.

The files are the only state of a run: a later run with the same plan continues from them. The file
of a part exists only if it is complete (`headbook.output_folder`). Anybody can guess the name of
the folder, so it is used or cleared only if an earlier run of this user made it.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from headbook.errors import OutputError
from headbook.file_list import OTHERS, walk_entries
from headbook.memory import trim_memory
from headbook.output_folder import clear_folder, is_own_folder
from headbook.safe_files import (
    DISK_ERRORS,
    NOTE,
    is_file,
    lock_file,
    read_checked,
    read_object,
    remove_lock,
    write_atomic,
    write_checked,
)
from headbook.study.storage import (
    READ_ERRORS,
    PackedArrays,
    arrays,
    from_bytes,
    from_layout,
    to_bytes,
    to_layout,
    write_arrays,
)

T = TypeVar("T")
LOCK_FILE, PLAN_FILE, PART_SUFFIX = "lock", "plan.json", ".part"  # names of files of a store
# Names of files that a run writes before its parts.
START_FILES = re.compile(r"lock|plan\.json(?:\.\d+\.new)?")
SPILL_FILE = "spilled.safetensors"  # arrays that were moved from memory to the disk
MAX_DIFFERENCES = 3  # differences between two plans that a message lists
# Errors of a folder in the place of a file, or of a file in the place of a folder.
WRONG_TYPE_ERRORS = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST}


@dataclass(frozen=True, eq=False)
class Part(Generic[T]):
    """Measured part of a run, and what it took.

    Attributes:
        value: result; the empty one if the part failed for good.
        halvings: number of times the token budget of a batch was halved.
        failed_sentences: error of each sentence that was excluded, by index.
        error: error of the last attempt if the part failed for good, else empty.
    """

    value: T
    halvings: int = 0
    failed_sentences: dict[int, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Store:
    """Folder of finished parts; without a folder, a store that keeps nothing on the disk.

    Attributes:
        folder: folder of the files, or None.
    """

    folder: Path | None = None

    def load(self, name: str, kind: type[T]) -> T | None:
        """Return a stored value, or None if its file is missing or damaged.

        Args:
            name: name of the file, with folders.
            kind: type of the value, for `from_layout`.
        """
        body = self._read(name)
        if body is not None:
            # A complete file without a value of this type is no reason to stop: measure again.
            with suppress(*READ_ERRORS, MemoryError):
                value: T = from_bytes(kind, body)
                return value
        return None

    def save(self, name: str, kind: type[T], value: T) -> T:
        """Store a value and return it as a later run will read it.

        A run that was stopped and one that was not then continue with the same values.

        Args:
            name: name of the file, with folders.
            kind: type of the value, for `from_layout`.
            value: the value; the caller should hold no other reference to it, to free its memory.

        Raises:
            OutputError: the disk is full, or a folder is in the file's place.
        """
        if self.folder is None:
            return value
        body = to_bytes(value)
        del value
        self._write(name, body)
        stored: T = from_bytes(kind, body)
        return stored

    def spill(self, kind: type[T], value: T) -> Callable[[], T]:
        """Move a value from memory to the disk, if the caller drops its own references.

        Returns:
            A function that reads the value back, once.

        Raises:
            OutputError: the disk is full.
        """
        if self.folder is None:
            return lambda: value
        file, packed = self.folder / SPILL_FILE, PackedArrays()
        layout = to_layout(value, "", packed)
        with self._disk_errors():
            write_arrays(file, packed.arrays, "")
        tables = packed.tables

        def read_back() -> T:
            trim_memory()
            arrays_by_name = arrays(file)
            file.unlink()
            stored: T = from_layout(kind, layout, PackedArrays(arrays_by_name, tables))
            return stored

        return read_back

    def has(self, name: str) -> bool:
        """Whether a complete file of this name is stored."""
        return self._read(name) is not None

    def count(self, folder: str) -> int:
        """Count the files of a folder inside the store."""
        return 0 if self.folder is None else len([*(self.folder / folder).glob(f"*{PART_SUFFIX}")])

    def _read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing or incomplete."""
        if self.folder is None:
            return None
        return read_checked(self.folder / (name + PART_SUFFIX), name)

    def _write(self, name: str, body: bytes) -> None:
        assert self.folder is not None
        with self._disk_errors():
            write_checked(self.folder / (name + PART_SUFFIX), body, name)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Raise errors of the disk as `OutputError` with one line."""
        try:
            yield
        except OSError as error:
            if error.errno in WRONG_TYPE_ERRORS:
                place = error.filename2 or error.filename or str(self.folder)
                raise OutputError(
                    f"{os.fsdecode(place)}: {error.strerror}; expected the files and folders of an "
                    "earlier run; --restart begins anew"
                ) from error
            if error.errno not in DISK_ERRORS:
                raise
            raise OutputError(
                f"{self.folder}: {error.strerror}; expected free space for a finished part; "
                "earlier parts are kept, the same command goes on from there"
            ) from error


@contextmanager
def open_store(folder: Path, plan: Mapping[str, str], *, restart: bool) -> Iterator[Store]:
    """Lock the folder of a store, and check that its parts were measured with the same plan.

    Args:
        folder: folder of the store, which is made if it is missing.
        plan: everything that the parts depend on, in words.
        restart: whether to remove the parts that are stored.

    Raises:
        OutputError: another run works in the folder, the plan differs, or the folder belongs to
            somebody else.
    """
    with _lock(folder):
        if restart:
            _clear(folder)
        stored_plan = read_object(folder / PLAN_FILE)
        if next(folder.rglob(f"*{PART_SUFFIX}"), None) is None:
            _clear(folder)
            _write_plan(folder, plan)
        else:
            check_same_plan(folder, stored_plan, plan)
        yield Store(folder)


def check_same_plan(folder: Path, stored_plan: Mapping[str, str], plan: Mapping[str, str]) -> None:
    """Refuse to continue a run with another plan than it was begun with.

    Raises:
        OutputError: the plans differ.
    """
    if stored_plan != plan:
        raise OutputError(
            f"{folder}: begun with {_differences(stored_plan, plan)}; expected the same "
            "options, inputs and versions; --restart begins anew"
        )


def remove_store(folder: Path) -> None:
    """Remove the folder of a store, if it exists and a run of this user made it."""
    with suppress(OutputError, OSError):
        if is_file(folder / PLAN_FILE):
            lock = _lock(folder)
            # Lock and plan go last: after a kill they still mark the folder as ours.
            clear_folder(folder, LOCK_FILE, PLAN_FILE)
            (folder / PLAN_FILE).unlink()
            remove_lock(lock, folder / LOCK_FILE)
            folder.rmdir()


def _lock(folder: Path) -> BinaryIO:
    """Lock the folder of a store, which is made if it is missing.

    Returns:
        The lock file; closing it releases the lock.

    Raises:
        OutputError: another run works in the folder, or it belongs to somebody else.
    """
    try:
        if not folder.is_symlink():
            folder.mkdir(parents=True, exist_ok=True)
        reason = _reason_against(folder)
        lock = None if reason else lock_file(folder / LOCK_FILE)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}; expected a folder to work in") from error
    if reason:
        raise OutputError(
            f"{folder}: {reason}, so it is neither used nor cleared; expected a folder that a run "
            "has left, or none; move it elsewhere, or choose another --out"
        )
    if lock is None:
        raise OutputError(f"{folder}: another run works here; wait for it, or choose another --out")
    return lock


def _reason_against(folder: Path) -> str:
    """Return why a folder must not be used or cleared; empty if it is ours, or empty."""
    if not is_own_folder(folder):
        return "a link, or no folder of this user"
    has_lock = is_file(folder / LOCK_FILE) and (folder / LOCK_FILE).read_bytes() == NOTE
    is_ours = has_lock and is_file(folder / PLAN_FILE) and bool(read_object(folder / PLAN_FILE))
    for name, kind in walk_entries(folder):
        if kind == OTHERS:
            return f"holds {name}, a link or no plain file"
        if not is_ours and not START_FILES.fullmatch(name):
            return f"holds {name} without the lock and the plan of a run"
    return ""


def _write_plan(folder: Path, plan: Mapping[str, str]) -> None:
    try:
        write_atomic(folder / PLAN_FILE, json.dumps(plan, indent=1).encode())
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}; expected a folder to work in") from error


def _differences(stored_plan: Mapping[str, str], plan: Mapping[str, str]) -> str:
    """List the entries in which two plans differ, with both values."""
    names = dict.fromkeys([*plan, *stored_plan])
    differences = [
        f"{name} {stored_plan.get(name, 'nothing')}, not {plan.get(name, 'nothing')}"
        for name in names
        if stored_plan.get(name) != plan.get(name)
    ]
    n_more = len(differences) - MAX_DIFFERENCES
    listed = differences[:MAX_DIFFERENCES]
    if n_more > 0:
        listed.append(f"{n_more} more")
    return "; ".join(listed)


def _clear(folder: Path) -> None:
    """Remove all parts, but not the plan: after a kill it still marks the folder as ours."""
    for entry in folder.iterdir():
        if entry.name in {LOCK_FILE, PLAN_FILE}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
