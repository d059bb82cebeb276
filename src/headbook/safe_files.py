"""Single files: locks, JSON objects, and writing that a crash cannot leave half done.

A file is written under a temporary name, forced to the disk and renamed: a file that exists and
matches its hash is complete. The hash covers a label, so that a file copied under another label
does not match.
"""

import errno
import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from headbook.errors import OutputError

NOTE = b"Headbook works here; a later run removes this.\n"  # in lock files and owner files
HASH_BYTES = 16  # length of the hash at the beginning of a checked file
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Errors of disks and folders; any other error in a block that writes is a fault of the block.
DISK_ERRORS = {*DISK_FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENAMETOOLONG,
               errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ESTALE}  # fmt: skip

if sys.platform == "win32":
    import msvcrt

    def lock_stream(stream: BinaryIO) -> None:
        """Lock an open file against other runs, or raise an OSError."""
        msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock_stream(stream: BinaryIO) -> None:
        """Lock an open file against other runs, or raise an OSError."""
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_file(file: Path) -> BinaryIO | None:
    """Open and lock a lock file, creating the file if it is missing.

    Returns:
        The file, locked until it is closed, or None if another run holds the lock. On a file
        system without locks the file is open but excludes no other run.

    Raises:
        OSError: the file cannot be created.
        OutputError: the file is a link or has another name, or was not written by Headbook.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while _is_file_or_missing(file):
        lock = os.fdopen(os.open(file, flags, 0o666), "r+b", buffering=0)
        try:
            lock_stream(lock)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
                lock.close()
                return None
        content = lock.read(len(NOTE) + 1)
        # With two names, an empty file may be somebody's own.
        if not NOTE.startswith(content) or os.fstat(lock.fileno()).st_nlink > 1:
            lock.close()
            break
        if _is_open(lock, file):
            try:
                lock.write(NOTE[len(content) :])
            except OSError:  # the disk is full
                remove_lock(lock, file)
                raise
            return lock
        lock.close()  # the run that held the lock has removed the file
    raise OutputError(f"{file}: no lock of Headbook's; expected no such file, or another --out")


def _is_file_or_missing(file: Path) -> bool:
    r"""Whether a path is a regular file or does not exist.

    One system call decides, because another run may remove the file between two calls.
    """
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except FileNotFoundError:
        return True


def _is_open(lock: BinaryIO, file: Path) -> bool:
    """Whether an open file is still the file at this path."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), file.lstat())
    except FileNotFoundError:
        return False


def remove_lock(lock: BinaryIO, file: Path) -> None:
    """Remove a lock file and release its lock, in the order that excludes other runs."""
    with lock, suppress(OSError):
        if sys.platform == "win32":  # removes no open file, and so no lock file of another run
            lock.close()
        file.unlink()


def is_file(path: Path) -> bool:
    """Whether a path is a file, not a link to one."""
    return path.is_file() and not path.is_symlink()


def is_endless(path: Path, *, pipes: bool = True) -> bool:
    """Whether reading may never end: a device such as ``/dev/zero``, a socket, or a pipe.

    Args:
        pipes: whether pipes count; a pipe that the user names is read to its end.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISFIFO(mode) and not pipes))


def read_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if there is none."""
    if is_endless(file):
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def read_checked(file: Path, label: str = "") -> bytes | None:
    """Return the content of a checked file, or None if missing, damaged or of another label."""
    if is_endless(file):
        return None
    try:
        data = file.read_bytes()
    except OSError:
        return None
    body = data[HASH_BYTES:]
    return body if data[:HASH_BYTES] == _digest(label, body) else None


def write_checked(file: Path, body: bytes, label: str = "") -> None:
    """Write a file with a hash, to be read by `read_checked` with the same label.

    Folders above the file are created.

    Raises:
        OSError: the disk is full, or the file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, _digest(label, body), body)


def write_atomic(file: Path, *parts: bytes) -> None:
    """Write a file such that a crash leaves either the old file or the complete new one.

    Raises:
        OSError: the disk is full, or the file cannot be written.
    """
    draft = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)  # of a killed process of this number, or a link
        with draft.open("xb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
        _flush_folder(file.parent)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _flush_folder(folder: Path) -> None:
    """Force the entries of a folder to the disk, if the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _digest(label: str, body: bytes) -> bytes:
    digest = hashlib.blake2b(label.encode() + b"\0", digest_size=HASH_BYTES)
    digest.update(body)
    return digest.digest()
