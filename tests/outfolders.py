"""Output folders as Headbook writes them, what somebody puts into them, and how both look."""

import os
from pathlib import Path

from headbook.folders import written_whole
from headbook.listing import Kind

MANIFEST = '{"headbook": "0.1.0"}'


def fill(folder: Path, text: str = "new", *, more: bool = True) -> None:
    """What a site leaves behind: its manifest and pages; the new one has others than the old."""
    for name in ("data/heads", "heads", "neurons" if more else "groups"):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.html").write_text(text)
    (folder / "data/manifest.json").write_text(MANIFEST)
    (folder / f"{text}.html").write_text(text)
    (folder / "page.html").write_text(text)
    (folder / "empty").mkdir()


def ours(folder: Path, text: str = "old") -> Path:
    """A site that stands there."""
    with written_whole(folder, Kind.SITE, force=False) as draft:
        fill(draft, text, more=False)
    return folder


def replaced(out: Path) -> None:
    """The same with a new site in its place."""
    with written_whole(out, Kind.SITE, force=True) as draft:
        fill(draft)
        assert (out / "page.html").read_text() == "old"


def pages(out: Path) -> dict[str, str]:
    """The pages of a site, by their names."""
    found = {path.relative_to(out).as_posix(): path for path in out.rglob("*.html")}
    return {n: path.read_text() for n, path in sorted(found.items()) if path.is_file()}


def made(text: str, place: Path) -> dict[str, str]:
    """The pages that `fill` leaves behind."""
    fill(place / text, text, more=text == "new")
    return pages(place / text)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


FOREIGN = {
    "a file": "CNAME",
    "a hidden folder": ".git/objects/ab/cd",
    "a file in a folder of ours": "heads/notes.txt",
    "one deep in it": "data/heads/mine/notes.txt",
    "one in a folder that goes": "groups/notes.txt",
    "a folder that ours comes into": "neurons/mine.txt",
    "a name that is not UTF-8": os.fsdecode(b"caf\xe9.txt"),
}


def foreign(out: Path) -> None:
    """What somebody may have put into a site."""
    for text in FOREIGN.values():
        (out / text).parent.mkdir(parents=True, exist_ok=True)
        (out / text).write_text(f"years of work in {text!a}")
    (out / "CNAME").chmod(0o400)
    (out / ".git").chmod(0o500)
    os.utime(out / "heads/notes.txt", (1, 1))
    (out / "drafts/empty").mkdir(parents=True)
    (out / "heads/empty").mkdir()
    (out / "link").symlink_to("heads/notes.txt")
    (out / "dangling").symlink_to("nowhere")
    (out / "outside").symlink_to(out.parent, target_is_directory=True)
    os.mkfifo(out / "pipe")


def untouched(out: Path, old: set[str]) -> dict[str, object]:
    """All but our files, as the disk has them: the same file, not a copy of it."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(out):
        for name in (*folders, *files):
            path = Path(folder, name)
            stat = path.lstat()
            place = path.relative_to(out).as_posix()
            if place in old:
                continue
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            link = path.readlink() if path.is_symlink() else None
            times = None if path.is_dir() else (stat.st_mtime_ns, stat.st_ctime_ns)
            found[place] = stat.st_ino, stat.st_mode, times, content, link
    return found


def mine(out: Path) -> set[str]:
    """What stands in a site, with the names of the new one."""
    names = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    return names | {"neurons", "neurons/1.html", "new.html", "data/files.json"}
