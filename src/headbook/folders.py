"""Writing output folders: whole or not at all, and never over what is not ours."""

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headbook.errors import OutputError
from headbook.listing import NAMES, NOTHING, Kind, Listing, kind_of, walked
from headbook.swap import NEW, obstacles, swap, undo
from headbook.workspace import JOURNAL, MARK, left_over, workspace

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What disks and folders answer; anything else that happens in a block is a fault of its own.
DISKS = {*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENAMETOOLONG,
         errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ESTALE}  # fmt: skip


@contextmanager
def written_whole(out: Path, kind: Kind, *, force: bool) -> Iterator[Path]:
    """A folder to write into that takes the place of ``out`` when the block ends well.

    Until then the old folder stands untouched; after an error the new one is removed. Of the old
    one only what its own list names is replaced, see `headbook.swap`. A link to a folder stays.

    Raises:
        OutputError: ``out`` may not be replaced, or cannot be written.
    """
    path = check_replaceable(out, kind, force=force)
    with ExitStack() as stack:
        try:
            room = stack.enter_context(_room(path))
            draft = room / NEW
            draft.mkdir()
            draft.chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o755)
        except OSError as error:
            raise _cannot(out, error) from error
        try:
            yield draft
        except OSError as error:
            if error.errno not in DISKS:
                raise
            raise _cannot(out, error) from error
        try:
            Listing.write(draft, kind)
            check_replaceable(out, kind, force=force)
            swap(room, path)
        except OSError as error:
            raise _cannot(out, error) from error


def check_replaceable(out: Path, kind: Kind, *, force: bool, names: Collection[str] = ()) -> Path:
    """Refuse folders that are not ours to replace, before anything slow begins.

    Args:
        kind: what is going to stand there.
        names: of files that it will have, beside those that all of its kind have.

    Returns:
        The folder without links on the way to it.

    Raises:
        OutputError: with what to do instead.
    """
    try:
        path = out.resolve()
        _check_own(out, path)
        settle(out)
        if path.exists() and not (path.is_dir() and _is_empty(path)):
            _check_kind(out, kind)
            if not force:
                raise OutputError(f"{out}: exists already; pass --force to replace it")
            _check_names(out, kind, names)
        _check_writable(path)
    except (OSError, ValueError, RuntimeError) as error:  # too long; with a null; links in a circle
        raise _cannot(out, error) from error
    return path


def settle(out: Path) -> None:
    """Undo what a killed run has left half done, and remove what it has left beside a folder.

    Raises:
        OutputError: something cannot be put back.
    """
    path = out.resolve()
    for where in (path.parent, path):
        for room in left_over(where, path.name):
            if (room / JOURNAL).exists():
                undo(room, path)


def _check_own(out: Path, place: Path) -> None:
    """Never a folder that everything else lies in."""
    here = Path.cwd().resolve()
    if place in {here, Path.home().resolve(), *here.parents} or place == place.parent:
        raise OutputError(
            f"{out}: the current folder, one above it or the home folder; "
            "expected a folder of its own, for example --out site"
        )


def _check_kind(out: Path, kind: Kind) -> None:
    found = kind_of(out) if out.is_dir() else None
    if found is None:
        raise OutputError(
            f"{out}: holds something that Headbook did not write; expected a new folder"
        )
    if found is not kind:
        raise OutputError(
            f"{out}: holds Headbook's {found}; expected a new folder, or one with a {kind}"
        )


def _check_names(out: Path, kind: Kind, names: Collection[str]) -> None:
    """Refuse foreign files where ours would come to stand."""
    listing = Listing.read(out)
    if listing is None:
        raise OutputError(
            f"{out}: written by an older Headbook, which kept no list of its files; expected a new "
            "folder; or move what is yours out of it and delete it"
        )
    for name in listing.strays(out):
        if name in names or NAMES[kind].fullmatch(name):
            raise obstacles(out, name)


def _check_writable(place: Path) -> None:
    """Tell before a run of hours what its end would tell."""
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_empty(place: Path) -> bool:
    """Whether nothing is there but, perhaps, a workspace."""
    return all(MARK in name for name, _ in walked(place, NOTHING))


@contextmanager
def _room(out: Path) -> Iterator[Path]:
    """A workspace beside a folder, from which everything can be moved into it.

    Inside the folder where that is not so: in one that is mounted, or below one that is protected.
    """
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            room = stack.enter_context(workspace(out.parent, out.name))
            if out.exists():
                probe = room / "probe"
                probe.mkdir()
                probe.rename(out / room.name)
                (out / room.name).rmdir()
        except OSError:
            if not out.exists():
                raise
            stack.close()
            room = stack.enter_context(workspace(out, out.name))
        yield room


def _cannot(out: Path, error: Exception) -> OutputError:
    """What is said where the disk or the system refuses."""
    why = (getattr(error, "strerror", None) or str(error)).rstrip(".")
    if getattr(error, "errno", None) in FULL:
        return OutputError(
            f"{out}: {why}; expected room for all of it, beside what is there now; nothing was "
            "changed"
        )
    return OutputError(f"{out}: {why}; expected a folder that can be written")
