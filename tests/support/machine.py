"""A nearly full disk, output folders with foreign files, and captured messages."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headbook.output_folder import OutputKind, replace_folder
from headbook.progress import NoProgress
from headbook.safe_files import NOTE


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Yield a disk that takes files of a number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


MANIFEST = '{"headbook": "0.1.0"}'


def fill(folder: Path, text: str = "new", *, more: bool = True) -> None:
    """Write the manifest and pages of a site; a new site has other pages than the old."""
    for name in ("data/heads", "heads", "neurons" if more else "groups"):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.html").write_text(text)
    (folder / "data/manifest.json").write_text(MANIFEST)
    (folder / f"{text}.html").write_text(text)
    (folder / "page.html").write_text(text)
    (folder / "empty").mkdir()


def ours(folder: Path, text: str = "old") -> Path:
    """Return an existing site."""
    with replace_folder(folder, OutputKind.SITE, force=False) as draft:
        fill(draft, text, more=False)
    return folder


def replaced(out: Path) -> None:
    """Put a new site in the place of the one of `ours`."""
    with replace_folder(out, OutputKind.SITE, force=True) as draft:
        fill(draft)
        assert (out / "page.html").read_text() == "old"


def pages(out: Path) -> dict[str, str]:
    """Return the pages of a site, by their names."""
    found = {path.relative_to(out).as_posix(): path for path in out.rglob("*.html")}
    return {n: path.read_text() for n, path in sorted(found.items()) if path.is_file()}


def made(text: str, place: Path) -> dict[str, str]:
    """Return the pages that `fill` leaves behind."""
    fill(place / text, text, more=text == "new")
    return pages(place / text)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


FOREIGN = {  # what somebody may have put into a site, and how its name is told
    "CNAME": "CNAME",
    ".git/objects/ab/cd": ".git",
    "heads/notes.txt": "heads/notes.txt",
    "data/heads/mine/notes.txt": "data/heads/mine",
    "groups/notes.txt": "groups/notes.txt",
    "new.html": "new.html",
    "importance.html": "importance.html",
    "data/importance.csv": "data/importance.csv",
    "assets/heads.js": "assets",
    os.fsdecode(b"caf\xe9.txt"): os.fsdecode(b"caf\xe9.txt"),
}


def disk(folder: Path) -> dict[str, object]:
    """Return all that is below a folder as the disk has it: the same file, not a copy of it."""
    found: dict[str, object] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        plain = path.is_file() and not path.is_symlink()
        content = path.read_bytes() if plain else path.is_symlink() and path.readlink()
        times = status.st_mtime_ns, status.st_ctime_ns
        found[os.fspath(path)] = status.st_ino, status.st_mode, times, content
    return found


def workspace(folder: Path, name: str, note: bytes = NOTE) -> Path:
    """Make a folder beside an output that looks as if a killed run had left it."""
    (folder / f".{name}.headbook-aaaaaaaa").mkdir()
    owner = folder / f".{name}.headbook-aaaaaaaa/owner"
    owner.write_bytes(note + name.encode())
    return owner.parent


class Lines(NoProgress):
    """Keeps the lines that a run prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)
