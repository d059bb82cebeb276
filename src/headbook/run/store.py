"""What is done of a run, kept beside its output: a later run goes on from there.

Files are the state. Each holds one finished part: one that is there is whole
(`headbook.output_folder`). The folder has a name that anybody can guess, so it is used or cleared
only if it is ours.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headbook.errors import OutputError
from headbook.memory import trim_memory
from headbook.output_folder import (
    DISK_ERRORS,
    NOTE,
    clear_folder,
    is_file,
    is_own_folder,
    lock_file,
    read_checked,
    read_object,
    remove_lock,
    walk_entries,
    write_atomic,
    write_checked,
)
from headbook.study.storage import (
    UNREADABLE,
    PackedArrays,
    arrays,
    from_bytes,
    from_layout,
    to_bytes,
    to_layout,
    write_arrays,
)

LOCK, PLAN, SUFFIX = "lock", "plan.json", ".part"
BEGUN = re.compile(r"lock|plan\.json(?:\.\d+\.new)?")  # files that a run writes before its parts
SPILLED = "aside.safetensors"
MOST = 3  # differences that are named
MISPLACED = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST}  # a folder instead of a file, or reversed


@dataclass(frozen=True)
class Store:
    """A folder of finished parts.

    Attributes:
        folder: where they are.
    """

    folder: Path

    def load_or_compute(self, kind: Any, name: str, make: Callable[[], Any]) -> Any:
        """A part as it was stored; it is made where it is not there.

        It is read back in any case, so that a run that was stopped and one that was not go on from
        the same values.

        Args:
            kind: its type, which `from_layout` takes.
            name: of its file, with folders.

        Raises:
            OutputError: there is no room for it.
        """
        body = self._body(name)
        if body is not None:
            with suppress(*UNREADABLE, MemoryError):  # whole, but no value: made again
                return from_bytes(kind, body)
        body = to_bytes(make())
        self._write(name, body)
        return from_bytes(kind, body)

    def spill(self, kind: Any, value: Any) -> Callable[[], Any]:
        """Let a value stand in a file instead of in memory, as long as nobody else holds it.

        Returns:
            What reads it, once.

        Raises:
            OutputError: there is no room for it.
        """
        file, packed = self.folder / SPILLED, PackedArrays()
        layout = to_layout(value, "", packed)
        with self._written():
            write_arrays(file, packed.arrays, "")
        tables = packed.tables

        def taken() -> Any:
            trim_memory()
            found = arrays(file)
            file.unlink()
            return from_layout(kind, layout, PackedArrays(found, tables))

        return taken

    def has(self, name: str) -> bool:
        """Whether a part is done."""
        return self._body(name) is not None

    def count(self, folder: str) -> int:
        """How many parts of a folder have been written."""
        return len([*(self.folder / folder).glob(f"*{SUFFIX}")])

    def _body(self, name: str) -> bytes | None:
        """What was written; None where it is not there, or not whole."""
        return read_checked(self.folder / (name + SUFFIX), name)

    def _write(self, name: str, body: bytes) -> None:
        with self._written():
            write_checked(self.folder / (name + SUFFIX), body, name)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in MISPLACED:
                place = error.filename2 or error.filename or self.folder
                raise OutputError(
                    f"{os.fsdecode(place)}: {error.strerror}; expected files and folders as a run "
                    "has left them; --restart begins anew"
                ) from error
            if error.errno not in DISK_ERRORS:
                raise
            raise OutputError(
                f"{self.folder}: {error.strerror}; expected room for what is done; all before it "
                "is kept, the same command goes on from there"
            ) from error


@contextmanager
def open_store(folder: Path, plan: Mapping[str, str], *, restart: bool) -> Iterator[Store]:
    """A folder in which nobody else works meanwhile, with what a run of the same plan has left.

    Args:
        plan: all that decides what the parts hold, in words.
        restart: whether what is there is thrown away.

    Raises:
        OutputError: another run works there, or it was begun with another plan; or the folder is
            not ours.
    """
    with _locked(folder):
        if restart:
            _clear(folder)
        known = read_object(folder / PLAN)
        if next(folder.rglob(f"*{SUFFIX}"), None) is None:
            _clear(folder)
            _write_plan(folder, plan)
        else:
            check_same_plan(folder, known, plan)
        yield Store(folder)


def check_same_plan(folder: Path, known: Mapping[str, str], plan: Mapping[str, str]) -> None:
    """Go on with what was begun, and nothing else.

    Raises:
        OutputError: two plans differ.
    """
    if known != plan:
        raise OutputError(
            f"{folder}: begun with {_difference(known, plan)}; expected the same; "
            "--restart begins anew"
        )


def remove_store(folder: Path) -> None:
    """Remove the folder of a run's finished parts, if there is one and it is ours."""
    with suppress(OutputError, OSError):
        if is_file(folder / PLAN):
            lock = _locked(folder)
            clear_folder(folder, LOCK, PLAN)  # which go last, in case of a kill
            (folder / PLAN).unlink()
            remove_lock(lock, folder / LOCK)
            folder.rmdir()


def _locked(folder: Path) -> BinaryIO:
    """Lock a folder for finished parts, which is made if it is missing.

    Returns:
        The lock file; the lock is released when it is closed.

    Raises:
        OutputError: another run works there, or the folder is not ours.
    """
    try:
        if not folder.is_symlink():
            folder.mkdir(parents=True, exist_ok=True)
        why = _foreign(folder)
        lock = None if why else lock_file(folder / LOCK)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}; expected a folder to work in") from error
    if why:
        raise OutputError(
            f"{folder}: {why}, so it is neither used nor cleared; expected a folder that a run has "
            "left, or none; move it elsewhere, or choose another --out"
        )
    if lock is None:
        raise OutputError(f"{folder}: another run works here; wait for it, or choose another --out")
    return lock


def _foreign(folder: Path) -> str:
    """Return why a folder is not ours to use or clear; empty if it is ours, or nothing is in it."""
    if not is_own_folder(folder):
        return "a link, or no folder of this user"
    marked = is_file(folder / LOCK) and (folder / LOCK).read_bytes() == NOTE
    ours = marked and is_file(folder / PLAN) and bool(read_object(folder / PLAN))
    for name, kind in walk_entries(folder):
        if kind == "others":
            return f"holds {name}, a link or no plain file"
        if not ours and not BEGUN.fullmatch(name):
            return f"holds {name} without the lock and the plan of a run"
    return ""


def _write_plan(folder: Path, plan: Mapping[str, str]) -> None:
    try:
        write_atomic(folder / PLAN, json.dumps(plan, indent=1).encode())
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}; expected a folder to work in") from error


def _difference(known: Mapping[str, str], plan: Mapping[str, str]) -> str:
    """What two plans differ in, with both values."""
    names = dict.fromkeys([*plan, *known])
    found = [
        f"{name} {known.get(name, 'nothing')}, not {plan.get(name, 'nothing')}"
        for name in names
        if known.get(name) != plan.get(name)
    ]
    return "; ".join(found[:MOST] + [f"{len(found) - MOST} more"] * (len(found) > MOST))


def _clear(folder: Path) -> None:
    """Remove all parts; the plan stays, so that the folder is known as ours after a kill."""
    for entry in folder.iterdir():
        if entry.name in {LOCK, PLAN}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
