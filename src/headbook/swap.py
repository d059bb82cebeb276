"""A finished draft takes the place of an old folder; what others put there is never touched.

Three ways were open. Replacing the whole folder and carrying foreign files over takes them from
their place for a moment, and what a killed run leaves behind then holds somebody's only copy.
Linking them into the new folder does not work everywhere, nor for folders. So what is ours is moved
out from between them, piece by piece, and the new pieces move in: each piece is the largest folder
that is wholly ours, the whole output folder where nobody put anything in. A journal beside the
draft says which pieces there are before the first moves; with it a later run, or whoever reads the
folder, puts the old ones back after a kill. The foreign files are in their place at every moment.
"""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headbook.errors import OutputError
from headbook.listing import NOTHING, Listing
from headbook.workspace import JOURNAL, OWNER

NEW, OLD = "new", "old"  # in a workspace: the draft, and what it takes the place of


class Piece(NamedTuple):
    """What moves as a whole: a file, or a folder that is wholly ours.

    Attributes:
        name: its way from the output folder; ``.`` is that folder itself.
        old, new: whether the old output has it, and the new one.
    """

    name: str
    old: bool
    new: bool


def swap(room: Path, out: Path) -> None:
    """Put the draft in a workspace in the place of an output folder, which is ours or empty.

    Raises:
        OutputError: a foreign file is in the way; nothing has changed.
        OSError: something cannot be moved; nothing has changed.
    """
    listing = Listing.read(out) or NOTHING
    pieces = [*_pieces(room, out, listing)]
    with (room / JOURNAL).open("w", encoding="utf-8") as journal:
        json.dump({"out": out.name, "pieces": pieces}, journal)
        journal.flush()
        os.fsync(journal.fileno())
    try:
        for piece in pieces:
            if piece.old:
                _move(out, room / OLD, piece.name)
            if piece.new:
                _move(room / NEW, out, piece.name)
        _check_ours(room / OLD, listing, out)
    except BaseException:
        undo(room, out)
        raise
    (room / JOURNAL).unlink()


def undo(room: Path, out: Path) -> None:
    """Put back what an unfinished swap has moved; it may be done again if it ends in the middle.

    Raises:
        OutputError: something cannot be put back, or was added to what the swap had put there.
    """
    try:
        journal = json.loads((room / JOURNAL).read_text(encoding="utf-8"))
        if journal["out"] != out.name:
            return
        for piece in reversed([Piece(*each) for each in journal["pieces"]]):
            if piece.new and not _there(room / NEW, piece.name) and _there(out, piece.name):
                _move(out, room / NEW, piece.name)
            if piece.old and _there(room / OLD, piece.name):
                _move(room / OLD, out, piece.name)
        _check_nothing_added(room, out)
        (room / JOURNAL).unlink()
    except ValueError:  # it ended while the journal was written; nothing had moved
        (room / JOURNAL).unlink()
    except OSError as error:
        raise OutputError(
            f"{out}: a run ended while it replaced this folder, and its files cannot be put back "
            f"({error.strerror}); expected {out} and {room} to be writable"
        ) from error


def _pieces(room: Path, out: Path, listing: Listing) -> Iterator[Piece]:
    """What has to move.

    Raises:
        OutputError: a foreign file is in the way.
    """
    if not out.exists():
        yield Piece(".", old=False, new=True)
    elif room.parent != out and not any(listing.strays(out)):
        yield Piece(".", old=True, new=True)
    else:
        yield from _between(room / NEW, out, listing, "")


def _between(new: Path, out: Path, listing: Listing, at: str) -> Iterator[Piece]:
    """The same below a folder that is not ours alone."""
    names = {entry.name for folder in (new / at, out / at) if folder.is_dir()
             for entry in os.scandir(folder)}  # fmt: skip
    for name in sorted(f"{at}/{each}" if at else each for each in names):
        piece = Piece(name, _there(out, name), _there(new, name))
        if not piece.old or listing.alone(out, name):
            yield piece
        elif _is_folder(out / name) and (_is_folder(new / name) or not piece.new):
            if piece.new or listing.has(out, name):  # else it is foreign, and nothing goes there
                yield from _between(new, out, listing, name)
        elif piece.new:
            raise obstacles(out, name)


def obstacles(out: Path, name: str) -> OutputError:
    """What is said of a foreign file that has a name of ours."""
    return OutputError(
        f"{out}: holds {name}, which Headbook did not write and which would be replaced; "
        "expected another name for it, or another folder; nothing was changed"
    )


def _check_ours(old: Path, listing: Listing, out: Path) -> None:
    """What was moved out is ours to the last file; somebody may have added one meanwhile."""
    stray = next(listing.strays(old), None) if old.exists() else None
    if stray is not None:
        raise OutputError(
            f"{out}: {stray} came into it while it was being replaced; nothing was changed, "
            "run the command again"
        )


def _check_nothing_added(room: Path, out: Path) -> None:
    """A draft that goes back into its workspace is ours to the last file, or it stays for good."""
    listing = Listing.read(room / NEW)
    stray = None if listing is None else next(listing.strays(room / NEW), None)
    if stray is not None:
        (room / OWNER).unlink(missing_ok=True)
        raise OutputError(
            f"{out}: a run ended while it replaced this folder, which is as before now; {stray}, "
            f"added since, is kept in {room / NEW}; run the command again"
        )


def _move(start: Path, end: Path, name: str) -> None:
    """Rename, over nothing that is there."""
    target = end / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    (start / name).rename(target)


def _there(folder: Path, name: str) -> bool:
    return os.path.lexists(folder / name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
