"""Files that are there whole or not at all, and begin with a hash of their label and content.

They are written under a temporary name, forced to the disk and renamed: one that is there and fits
its hash is whole. The label is in the hash, so that a copy under another label does not fit.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

DIGEST = 16  # bytes


def read_sealed(file: Path, label: str = "") -> bytes | None:
    """Return the content of a sealed file, or None if missing, damaged or of another label."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    body = data[DIGEST:]
    return body if data[:DIGEST] == _digest(label, body) else None


def write_sealed(file: Path, body: bytes, label: str = "") -> None:
    """Write a file that `read_sealed` reads with the same label, and the folders above it.

    Raises:
        OSError: there is no room for it, or it may not be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, _digest(label, body), body)


def write_whole(file: Path, *parts: bytes) -> None:
    """Write a file without a hash, whatever happens meanwhile.

    Raises:
        OSError: there is no room for it, or it may not be written.
    """
    draft = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        with draft.open("wb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
        _settle(file.parent)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _settle(folder: Path) -> None:
    """Force a folder's list of names to the disk, where the system can."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _digest(label: str, body: bytes) -> bytes:
    found = hashlib.blake2b(label.encode() + b"\0", digest_size=DIGEST)
    found.update(body)
    return found.digest()
