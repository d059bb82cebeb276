"""A new site takes the place of an old one; what others put there is never touched."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headbook.errors import OutputError
from headbook.folders import settle, written_whole
from headbook.listing import Kind
from outfolders import FOREIGN, fill, foreign, left_in, made, mine, ours, pages, replaced, untouched


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
