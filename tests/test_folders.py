"""An output folder is written whole or not at all, and never over what is not ours."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headbook.errors import OutputError
from headbook.folders import check_replaceable, settle, written_whole
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


def refusal(out: Path, *, force: bool = True) -> str:
    with pytest.raises(OutputError) as error:
        check_replaceable(out, Kind.SITE, force=force)
    message = str(error.value)
    assert "\n" not in message
    return message


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    with written_whole(out, Kind.SITE, force=False) as draft:
        fill(draft)
        assert not out.exists()
    assert left_in(out) == ["data", "empty", "heads", "neurons", "new.html", "page.html"]
    assert left_in(out.parent) == ["site"]
    assert out.stat().st_mode & 0o777 == 0o755


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir(mode=0o750)
    ours(tmp_path / "site")
    assert "page.html" in left_in(tmp_path / "site")
    assert (tmp_path / "site").stat().st_mode & 0o777 == 0o750


def test_every_file_is_listed_and_the_list_too(tmp_path: Path) -> None:
    table = json.loads((ours(tmp_path / "site") / "data/files.json").read_text())
    found = [p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*")
             if p.is_file()]  # fmt: skip
    assert table["files"] == sorted(found)
    assert table["folders"] == ["data", "data/heads", "empty", "groups", "heads"]


def test_force_replaces_all_that_is_ours(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    replaced(out)
    assert pages(out) == made("new", tmp_path / "other")
    assert not (out / "groups").exists()
    shutil.rmtree(tmp_path / "other")
    assert left_in(tmp_path) == ["site"]


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


def test_foreign_files_stay_where_and_as_they_are(tmp_path: Path) -> None:
    """Down to inodes and times, whatever they are, beside ours and among them."""
    out = ours(tmp_path / "site")
    names = mine(out)
    foreign(out)
    before = untouched(out, names)
    assert len(before) > len(FOREIGN) + 5
    for _ in range(2):
        inode = out.stat().st_ino
        with written_whole(out, Kind.SITE, force=True) as draft:
            fill(draft)
        assert untouched(out, names) == before
        assert out.stat().st_ino == inode
    assert pages(out) == made("new", tmp_path / "other")
    assert left_in(tmp_path) == ["other", "site"]


@pytest.mark.parametrize("name", ["new.html", "neurons/1.html", "neurons", "heads/2/1.html"])
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_a_foreign_file_with_a_name_of_ours_is_told_and_stays(
    tmp_path: Path, name: str, kind: str
) -> None:
    out = ours(tmp_path / "site")
    names = mine(out) - {name}
    (out / name).parent.mkdir(exist_ok=True)
    if kind == "file":
        (out / name).write_text("years of work")
    elif kind == "link":
        (out / name).symlink_to(tmp_path)
    else:
        (out / name).mkdir()
    before = untouched(out, names)
    if (kind, name) == ("folder", "neurons"):
        replaced(out)
        return
    if name == "heads/2/1.html":
        with written_whole(out, Kind.SITE, force=True) as draft:
            fill(draft)
    else:
        with pytest.raises(OutputError, match=rf"site: holds {name}, which Headbook did not"):
            replaced(out)
        assert pages(out)["page.html"] == "old"
    assert untouched(out, names) == before
    assert left_in(tmp_path) == ["site"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.SITE, "heads/L07-H11.html"),
        (Kind.SITE, "data/groups.csv"),
        (Kind.SITE, "sentences/0100.html"),
        (Kind.SITE, "robots.txt"),
        (Kind.STUDY, "demonstration.parquet"),
        (Kind.FIGURES, "figures.tex"),
    ],
)
def test_names_of_ours_are_told_before_anything_slow(tmp_path: Path, kind: Kind, name: str) -> None:
    out = tmp_path / "site"
    with written_whole(out, kind, force=False) as draft:
        for folder in ("data", "heads", "sentences"):
            (draft / folder).mkdir()
        (draft / kind.mark).write_text(MANIFEST)
    check_replaceable(out, kind, force=True, names=["robots.txt"])
    (out / name).write_text("mine")
    with pytest.raises(OutputError, match=f"holds {name}, which Headbook did not write"):
        check_replaceable(out, kind, force=True, names=["robots.txt"])


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    out = ours(tmp_path / "deep" / "site")
    (tmp_path / "link").symlink_to("deep/site")
    (tmp_path / "new").symlink_to("deep/fresh")
    replaced(tmp_path / "link")
    with written_whole(tmp_path / "new", Kind.SITE, force=False) as draft:
        fill(draft)
    assert (tmp_path / "link").readlink() == Path("deep/site")
    assert (tmp_path / "new").readlink() == Path("deep/fresh")
    assert pages(out) == pages(tmp_path / "deep/fresh")
    assert left_in(out.parent) == ["fresh", "site"]
    assert left_in(tmp_path) == ["deep", "link", "new"]


@contextmanager
def mounted(kind: str, source: Path, out: Path) -> Iterator[None]:
    """A file system, or a folder, that is mounted on another one."""
    command = ["mount", *{"file system": ["-t", "tmpfs"], "folder": ["--bind"]}[kind]]
    if subprocess.run([*command, source, out], check=False, capture_output=True).returncode:
        pytest.skip("only some users may mount")
    try:
        yield
    finally:
        subprocess.run(["umount", out], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount")
@pytest.mark.parametrize("kind", ["file system", "folder"])
def test_a_folder_that_is_mounted_is_written_from_inside(tmp_path: Path, kind: str) -> None:
    out, source = tmp_path / "site", tmp_path / "source"
    out.mkdir()
    source.mkdir()
    with mounted(kind, source, out):
        ours(out)
        (out / "CNAME").write_text("mine")
        replaced(out)
        assert set(left_in(out)) >= {"CNAME", "new.html", "page.html"}
        assert not [name for name in left_in(out) if name.startswith(".")]
        (out / "CNAME").unlink()
        assert pages(out) == made("new", tmp_path / "other")


def test_our_own_folder_is_not_replaced_without_force(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    assert refusal(out, force=False) == f"{out}: exists already; pass --force to replace it"
    check_replaceable(out, Kind.SITE, force=True)


@pytest.mark.parametrize(("name", "said"), [("manifest.json", "study"), ("data/manifest.json", "")])
def test_a_folder_without_a_list_is_not_touched(tmp_path: Path, name: str, said: str) -> None:
    """An older Headbook wrote none; nobody knows what in it is somebody's own."""
    out = tmp_path / "site"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text(MANIFEST)
    expected = f"holds Headbook's {said}; expected a new folder" if said else "by an older Headbook"
    assert expected in refusal(out)


def test_only_the_same_kind_of_folder_is_replaced(tmp_path: Path) -> None:
    for kind in Kind:
        with written_whole(tmp_path / kind, kind, force=False) as draft:
            (draft / kind.mark).parent.mkdir(exist_ok=True)
            (draft / kind.mark).write_text(MANIFEST)
    for kind in Kind:
        for other in Kind:
            if kind is other:
                check_replaceable(tmp_path / kind, other, force=True)
            else:
                with pytest.raises(OutputError, match=f"holds Headbook's {kind}; expected a new"):
                    check_replaceable(tmp_path / kind, other, force=True)


@pytest.mark.parametrize("name", ["n" * 300, "deep/" * 1000 + "site", "a\0b"])
def test_a_name_that_no_disk_takes_is_one_line(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path / name).endswith("; expected a folder that can be written")


def test_the_longest_name_that_a_disk_takes_will_do(tmp_path: Path) -> None:
    out = ours(tmp_path / ("ä" * 127))
    replaced(out)
    assert left_in(tmp_path) == [out.name]


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "\n" not in refusal(tmp_path / "a" / "site")


@pytest.mark.parametrize(
    "manifest", [None, "", "not json", "{}", '{"name": "an app"}', "[]", "\udcff"]
)
def test_a_foreign_folder_is_refused_with_force_too(tmp_path: Path, manifest: str | None) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    if manifest is not None:
        (out / "manifest.json").write_bytes(manifest.encode(errors="surrogateescape"))
    assert "holds something that Headbook did not write" in refusal(out)
    with pytest.raises(OutputError), written_whole(out, Kind.SITE, force=True):
        pass
    assert (out / "chapter.txt").read_text() == "years of work"
    assert left_in(tmp_path) == ["thesis"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    assert "holds something that Headbook did not write" in refusal(tmp_path / "notes.md")


def test_the_current_folder_and_those_above_it_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = ours(tmp_path / "a" / "b")
    monkeypatch.chdir(inside)
    for out in (Path(), Path(".."), inside, tmp_path / "a", Path("/"), Path("../b/../../a")):
        assert "the current folder, one above it or the home folder" in refusal(out)
    check_replaceable(Path("site"), Kind.SITE, force=False)


def test_the_home_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = ours(tmp_path / "home")
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    assert "the home folder" in refusal(home)
    assert "the home folder" in refusal(tmp_path / "link")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OutputError, match=r"; expected a folder that can be written$"),
        written_whole(tmp_path / "file" / "site", Kind.SITE, force=False),
    ):
        pass


@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_folder_and_nothing_else(
    tmp_path: Path, fault: BaseException
) -> None:
    out = ours(tmp_path / "site")

    def write_half() -> None:
        with written_whole(out, Kind.SITE, force=True) as draft:
            fill(draft)
            raise fault

    with pytest.raises(type(fault)):
        write_half()
    assert (out / "page.html").read_text() == "old"
    assert left_in(tmp_path) == ["site"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line(tmp_path: Path, code: int) -> None:
    out = ours(tmp_path / "site")
    with (
        pytest.raises(OutputError, match=f"site: {os.strerror(code)}; expected room"),
        written_whole(out, Kind.SITE, force=True),
    ):
        raise OSError(code, os.strerror(code))
    assert left_in(tmp_path) == ["site"]


MOVES = {"os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def killed(out: Path, moves: int) -> bool:
    """Replace a site, and die before so many-th move; False if there are fewer."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = moves

    def hook(event: str, _: object) -> None:
        nonlocal left
        left -= event in MOVES
        if left < 0:
            os._exit(9)

    with written_whole(out, Kind.SITE, force=True) as draft:
        fill(draft)
        sys.addaudithook(hook)
    os._exit(0)


@pytest.mark.parametrize("among", [False, True])
def test_after_a_kill_at_any_move_the_old_site_or_the_new_one_is_whole(
    tmp_path: Path, among: bool
) -> None:
    """Foreign files stay where they are all the time; the next look puts the rest in order."""
    whole = {text: made(text, tmp_path / "other") for text in ("old", "new")}
    found = []
    for moves in range(100):
        out = ours(tmp_path / str(moves) / "site")
        names = mine(out)
        if among:
            foreign(out)
        before = untouched(out, names) if among else {}
        alive = not killed(out, moves)
        if among:
            assert untouched(out, names) == before
        settle(out)
        assert not among or untouched(out, names) == before
        found.append(next(text for text, all_pages in whole.items() if pages(out) == all_pages))
        assert left_in(out.parent) == ["site"]
        if alive:
            break
    assert alive
    assert found == sorted(found, reverse=True)
    assert found[0] == "old"
    assert found[-1] == "new"
    assert len(found) > (20 if among else 5)


def test_who_reads_a_folder_after_a_kill_sees_the_old_one(tmp_path: Path) -> None:
    """And what was added to it meanwhile is kept."""
    out = ours(tmp_path / "a" / "site")
    (out / "CNAME").write_text("mine")
    old = pages(out)
    assert killed(out, 7)
    assert pages(out) != old
    (out / "data/added.txt").write_text("mine, too")
    with pytest.raises(OutputError, match=r"added\.txt, added since, is kept in"):
        settle(out)
    assert pages(out) == old
    settle(out)
    assert pages(out) == old
    kept = [path.read_text() for path in out.parent.rglob("added.txt")]
    assert kept == ["mine, too"]


def test_a_draft_whose_process_lives_is_left_alone(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    with written_whole(out, Kind.SITE, force=True) as draft:
        fill(draft)
        settle(out)
        replaced(out)
        assert pages(draft) == made("new", tmp_path / "other")


def test_only_what_is_surely_ours_is_removed(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    for name in (".site.headbook-abcdefgh", ".site-abcdefgh", ".site.headbook-notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner").write_text("me")
    before = left_in(tmp_path)
    settle(out)
    assert left_in(tmp_path) == before
