"""Hidden folders to work in, which a later run removes after one that was killed.

Each holds a file that its process keeps locked. The system lets the lock go when the process ends,
however it ends, so a folder whose file can be locked by others has nobody left who works in it: no
number of a process is compared, which another process may have got meanwhile.
"""

import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

MARK = ".headbook-"  # in the name of every such folder
OWNER = "owner"  # the file that is locked
NOTE = b"A folder that Headbook works in; a later run removes it.\n"
JOURNAL = "swap.json"  # while it is there, the folder holds what must be put back
LOCK = "lock"  # in a folder of work that is kept from one run to the next
LONGEST = 200  # bytes of a name that is taken over; file systems take 255


if sys.platform == "win32":
    import msvcrt

    def _lock(stream: BinaryIO) -> None:
        msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(stream: BinaryIO) -> None:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(file: Path) -> BinaryIO | None:
    """A file that is locked until it is closed; None where another process holds it.

    Raises:
        OSError: it cannot be made.
    """
    owner = file.open("ab")
    try:
        _lock(owner)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            owner.close()
            return None
    return owner  # a file system without locks: nobody can be kept out


@contextmanager
def workspace(place: Path, name: str) -> Iterator[Path]:
    """An empty folder in another one; it is gone when the block ends.

    It stays where a journal is left in it.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=_prefix(name), dir=place))
    try:
        with (folder / OWNER).open("wb") as owner:
            with suppress(OSError):  # a file system without locks: nobody will take it for left
                _lock(owner)
                owner.write(NOTE)  # only now do others believe it, so it is never seen unlocked
                owner.flush()
            try:
                yield folder
            finally:
                _empty(folder)
    finally:
        _remove(folder)


@contextmanager
def temporary(name: str) -> Iterator[Path]:
    """The same where the system has such folders; removes what killed runs have left there."""
    path = Path(tempfile.gettempdir())
    for _ in left_over(path, name):
        pass
    with workspace(path, name) as folder:
        yield folder


def left_over(place: Path, name: str) -> Iterator[Path]:
    """Folders of that name whose processes have ended; each is removed after its turn."""
    form = re.compile(re.escape(_prefix(name)) + r"[a-z0-9_]{8}")
    try:
        paths = [Path(entry) for entry in os.scandir(place) if form.fullmatch(entry.name)]
    except OSError:  # no such folder, or none that can be read
        return
    for folder in paths:
        with suppress(OSError):
            folder.rmdir()  # an empty one: a run was killed just before it did this itself
            continue
        owner = _taken_over(folder)
        if owner is None:
            continue
        with owner:  # no other process takes it meanwhile
            yield folder
            _empty(folder)
        _remove(folder)


def _taken_over(folder: Path) -> BinaryIO | None:
    """The locked file of a folder that is surely ours and in which nobody works."""
    file = folder / OWNER
    try:
        if folder.is_symlink() or file.is_symlink() or file.read_bytes() != NOTE:
            return None
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return None
        owner = file.open("r+b")
    except OSError:
        return None
    try:
        _lock(owner)
    except OSError:
        owner.close()
        return None
    return owner


def _prefix(name: str) -> str:
    while len(os.fsencode(name)) > LONGEST:
        name = name[:-1]
    return f".{name}{MARK}"


def _empty(folder: Path) -> None:
    """Remove all but the mark, so that what cannot be removed now is known as ours later."""
    if (folder / JOURNAL).exists():
        return
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != OWNER:
            with suppress(OSError):
                Path(entry).unlink()


def _remove(folder: Path) -> None:
    """Remove a folder that holds nothing but the mark."""
    with suppress(OSError):
        if [entry.name for entry in os.scandir(folder)] == [OWNER]:
            (folder / OWNER).unlink()
            folder.rmdir()


def work_folder(out: Path) -> Path:
    """Where the work on an output is kept."""
    path = out.resolve()
    return path.parent / f".{path.name}.headbook-work"


def forget(folder: Path) -> None:
    """Remove a folder of work, if it is one."""
    if (folder / LOCK).is_file() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
