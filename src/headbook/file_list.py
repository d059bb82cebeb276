"""Lists of the files that Headbook wrote into an output folder, with their SHA-256 sums.

A file that is not in the list, or that differs from its sum, is somebody's own. The list names
itself without a sum. A folder may come from somebody else, and so may its list: names are looked up
among the entries of the folder, and never lead anywhere else.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headbook import __version__
from headbook.errors import StudyError, warn
from headbook.resources import sha256
from headbook.safe_files import read_object

FILES, FOLDERS, OTHERS = "files", "folders", "others"  # types of entries; others: links and pipes
KEPT_SUMS = 1 << 16  # files whose sums are remembered, with their size and times


@dataclass(frozen=True)
class FileList:
    """The list of an output folder.

    Attributes:
        name: path of the list in the folder.
        sums: SHA-256 sum of each file by its path; empty for the list.
        folders: paths of all folders.
    """

    name: str
    sums: Mapping[str, str]
    folders: frozenset[str]

    def has(self, folder: Path, name: str, entry: str) -> bool:
        """Whether an entry of the folder is as it was listed."""
        if entry == FOLDERS:
            return name in self.folders
        if entry != FILES or name not in self.sums:
            return False
        return name == self.name or _sum_of(folder / name) == self.sums[name]


def write_file_list(folder: Path, name: str, kind: str) -> None:
    """Write the list of all files in a new output folder, the list itself included."""
    (folder / name).touch()
    names: dict[str, list[str]] = {FILES: [], FOLDERS: []}
    for path, entry in walk_entries(folder):
        if entry in names:
            names[entry].append(path)
    sums = {path: "" if path == name else _sum_of(folder / path) for path in names[FILES]}
    content = {"headbook": __version__, "kind": kind, FILES: sums, FOLDERS: names[FOLDERS]}
    text = json.dumps(content, indent=1)
    (folder / name).write_text(text + "\n", encoding="utf-8", newline="\n")


def read_file_list(folder: Path, name: str, kind: str) -> FileList | None:
    """Return the list of a folder, or None if the folder has none of this kind."""
    content = read_object(folder / name)
    sums, folders = content.get(FILES), content.get(FOLDERS)
    if content.get("kind") != kind or "headbook" not in content:
        return None
    if not isinstance(sums, dict) or not all(isinstance(each, str) for each in sums.values()):
        return None
    if not isinstance(folders, list) or not all(isinstance(each, str) for each in folders):
        return None
    return FileList(name, sums, frozenset(folders))


def first_foreign(folder: Path, listed: FileList | None) -> str | None:
    """Describe the first path in an output folder that is not as its list says; None if all are.

    Raises:
        OSError: a folder or file cannot be read.
    """
    known = listed or FileList("", {}, frozenset())
    for name, entry in walk_entries(folder):
        if not known.has(folder, name, entry):
            changed = entry == FILES and name in known.sums
            reason = (
                "changed since Headbook wrote it" if changed else "which Headbook did not write"
            )
            return f"{name}, {reason}"
    return None


def listed_files(folder: Path, listed: FileList | None) -> dict[str, Path]:
    """Return the files of an output folder by their paths in its list, in order.

    Other files are left out with a warning, hidden ones such as a version history without.

    Raises:
        StudyError: the folder has no list, lacks a file of the list, or has a link or pipe; the
            message names it.
    """
    if listed is None:
        raise StudyError(
            f"{folder}: without a list of files that this Headbook can read; expected one that "
            "this Headbook wrote"
        )
    found, others = {}, []
    for name, entry in walk_entries(folder):
        hidden = name not in listed.sums and any(part[:1] == "." for part in name.split("/"))
        if entry == OTHERS and not hidden:
            raise StudyError(
                f"{folder}: holds {name}, a link or no plain file; expected the files that "
                "Headbook wrote; nothing was packed"
            )
        if entry == FILES and name in listed.sums:
            found[name] = folder / name
        elif entry == FILES and not hidden:
            others.append(name)
    if missing := next((name for name in listed.sums if name not in found), None):
        raise StudyError(f"{folder}: without {missing}; expected one rendered anew")
    if others:
        more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
        warn(f"{folder}: {others[0]}{more}, which Headbook did not write, left out")
    return found


def leads_outside(folder: Path, name: str | Path) -> bool:
    """Whether a name that a file of a folder gives leads to something outside the folder.

    Links are followed, those of the hub's cache out of the folder, too: its folders of models and
    datasets have links to files that several revisions share.

    Args:
        folder: a folder, perhaps of somebody else.
        name: path from the folder.
    """
    path, place = Path(os.path.normpath(folder / name)), Path(os.path.realpath(folder / name))
    if Path(name).is_absolute() or not path.is_relative_to(os.path.normpath(folder)):
        return True
    if place.is_relative_to(os.path.realpath(folder)):
        return False
    shared, repository = place.parent.name, place.parent.parent.name
    return shared != "blobs" or not repository.startswith(("models--", "datasets--"))


def walk_entries(folder: Path, subfolder: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths in a folder in order, each with ``files``, ``folders`` or ``others``.

    A folder precedes its content. Symbolic links are of type ``others`` and are not followed.
    """
    with os.scandir(folder / subfolder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        name = f"{subfolder}/{entry.name}" if subfolder else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield name, FOLDERS
            yield from walk_entries(folder, name)
        else:
            yield name, FILES if entry.is_file(follow_symlinks=False) else OTHERS


def _sum_of(file: Path) -> str:
    """Return the SHA-256 sum of a file, which is read once until it changes."""
    status = file.stat()
    times = status.st_mtime_ns, status.st_ctime_ns
    return _stored_sum(file, (status.st_dev, status.st_ino, status.st_size, *times))


@lru_cache(KEPT_SUMS)
def _stored_sum(file: Path, _: tuple[int, ...]) -> str:
    return sha256(file)
