"""An output folder is written whole or not at all, and never over what is not ours."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from headbook import safe_files
from headbook.errors import OutputError
from headbook.output_folder import (
    OutputKind,
    check_output_folder,
    replace_file,
    replace_folder,
    reserve,
    temporary_folder,
)
from headbook.safe_files import NOTE
from machine import (
    FOREIGN,
    MANIFEST,
    disk,
    fill,
    left_in,
    made,
    ours,
    pages,
    replaced,
    small_files,
    workspace,
)

MOVES = {"os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def refusal(out: Path, *, force: bool = True) -> str:
    with pytest.raises(OutputError) as error:
        check_output_folder(out, OutputKind.SITE, force=force)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_new_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    with replace_folder(out, OutputKind.SITE, force=False) as draft:
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
    assert sorted(table["files"]) == sorted(found)
    listed = {name: digest for name, digest in table["files"].items() if digest}
    assert table["files"].keys() - listed.keys() == {"data/files.json"}
    for name, digest in listed.items():
        assert digest == hashlib.sha256((tmp_path / "site" / name).read_bytes()).hexdigest()
    assert sorted(table["folders"]) == ["data", "data/heads", "empty", "groups", "heads"]


def test_force_replaces_all_that_is_ours(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    replaced(out)
    assert pages(out) == made("new", tmp_path / "other")
    assert not (out / "groups").exists()
    shutil.rmtree(tmp_path / "other")
    assert left_in(tmp_path) == ["site"]


@pytest.mark.parametrize(("name", "named"), FOREIGN.items())
def test_a_folder_with_a_foreign_file_is_refused_and_stays_as_it_is(
    tmp_path: Path, name: str, named: str
) -> None:
    """Before anything slow begins, whatever the file is called."""
    out = ours(tmp_path / "site")
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("years of work")
    before = disk(out)
    message = refusal(out)
    assert message.startswith(f"{out}: holds {named}, which Headbook did not write; ")
    with pytest.raises(OutputError, match="which Headbook did not write"):
        replaced(out)
    assert disk(out) == before
    assert left_in(tmp_path) == ["site"]


@pytest.mark.parametrize("name", ["page.html", "data/manifest.json", "heads/1.html"])
def test_a_file_that_somebody_has_changed_is_theirs(tmp_path: Path, name: str) -> None:
    out = ours(tmp_path / "site")
    (out / name).write_text((out / name).read_text().replace("0.1", "0.2") + " ")
    before = disk(out)
    message = refusal(out)
    assert message.startswith(f"{out}: holds {name}, changed since Headbook wrote it; ")
    with pytest.raises(OutputError, match="changed since"):
        replaced(out)
    assert disk(out) == before
    assert left_in(tmp_path) == ["site"]


def test_a_file_of_the_same_size_that_is_changed_between_two_looks_is_theirs(
    tmp_path: Path,
) -> None:
    """The sum of a file is remembered, with its times."""
    out = ours(tmp_path / "site")
    check_output_folder(out, OutputKind.SITE, force=True)
    (out / "page.html").write_text("own")
    assert "holds page.html, changed since" in refusal(out)


def test_a_data_folder_that_was_copied_makes_no_other_file_ours(tmp_path: Path) -> None:
    """Beside it lie somebody's own pages, with names that its list has."""
    site, mine = ours(tmp_path / "site"), tmp_path / "mine"
    mine.mkdir()
    shutil.copytree(site / "data", mine / "data")
    (mine / "page.html").write_text("years of work")
    before = disk(mine)
    assert "holds page.html, changed since" in refusal(mine)
    with pytest.raises(OutputError, match="changed since"):
        replaced(mine)
    assert disk(mine) == before


@pytest.mark.parametrize("sum_of", [None, "", "0" * 64])
def test_a_list_that_names_files_of_somebody_makes_them_not_ours(
    tmp_path: Path, sum_of: str | None
) -> None:
    out = ours(tmp_path / "site")
    (out / "thesis.txt").write_text("years of work")
    table = json.loads((out / "data/files.json").read_text())
    table["files"]["thesis.txt"] = sum_of
    (out / "data/files.json").write_text(json.dumps(table))
    before = disk(out)
    assert ("list of files" if sum_of is None else "holds thesis.txt, changed") in refusal(out)
    assert disk(out) == before


@pytest.mark.parametrize("kind", ["link", "folder", "empty folder", "pipe"])
def test_a_foreign_thing_with_a_listed_name_is_refused(tmp_path: Path, kind: str) -> None:
    out = ours(tmp_path / "site")
    name = out / ("heads" if kind == "link" else "page.html")
    shutil.rmtree(name) if name.is_dir() else name.unlink()
    if kind == "link":
        (tmp_path / "mine").mkdir()
        name.symlink_to(tmp_path / "mine", target_is_directory=True)
    elif kind == "pipe":
        os.mkfifo(name)
    else:
        name.mkdir()
        if kind == "folder":
            (name / "mine.txt").write_text("years of work")
    before = disk(tmp_path)
    assert f"holds {name.name}, which Headbook did not write" in refusal(out)
    assert disk(out).keys() <= before.keys()


def test_a_file_that_is_added_meanwhile_stops_the_replacement(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")

    def add() -> None:
        with replace_folder(out, OutputKind.SITE, force=True) as draft:
            fill(draft)
            (out / "mine.txt").write_text("years of work")

    with pytest.raises(OutputError, match=r"holds mine\.txt"):
        add()
    assert (out / "mine.txt").read_text() == "years of work"
    assert (out / "page.html").read_text() == "old"
    assert left_in(tmp_path) == ["site"]


def test_our_own_folder_is_not_replaced_without_force(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    assert refusal(out, force=False) == f"{out}: exists already; pass --force to replace it"
    check_output_folder(out, OutputKind.SITE, force=True)


@pytest.mark.parametrize(
    ("name", "message"), [("manifest.json", "study"), ("data/manifest.json", "")]
)
def test_a_folder_without_a_list_is_not_touched(tmp_path: Path, name: str, message: str) -> None:
    """An older Headbook wrote none; nobody knows what in it is somebody's own."""
    out = tmp_path / "site"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text(MANIFEST)
    expected = f"holds Headbook's {message}; expected a new folder" if message else "list of files"
    assert expected in refusal(out)


@pytest.mark.parametrize("files", [[[1]], 5, None, {"page.html": 1}, "page.html"])
@pytest.mark.parametrize("key", ["files", "folders"])
def test_a_list_that_is_none_is_one_line(tmp_path: Path, key: str, files: object) -> None:
    out = ours(tmp_path / "site")
    table = json.loads((out / "data/files.json").read_text())
    (out / "data/files.json").write_text(json.dumps(table | {key: files}))
    assert "list of files" in refusal(out)


def test_a_list_that_is_nested_without_end_is_one_line(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    (out / "data/files.json").write_text("[" * 100_000)
    assert "list of files" in refusal(out)


def test_a_folder_without_our_manifest_is_refused(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    (out / "data/manifest.json").write_text("{}")
    assert "without a manifest" in refusal(out)


def test_only_the_same_kind_of_folder_is_replaced(tmp_path: Path) -> None:
    for kind in OutputKind:
        with replace_folder(tmp_path / kind, kind, force=False) as draft:
            (draft / kind.manifest).parent.mkdir(exist_ok=True)
            (draft / kind.manifest).write_text(MANIFEST)
    for kind in OutputKind:
        for other in OutputKind:
            if kind is other:
                check_output_folder(tmp_path / kind, other, force=True)
            else:
                with pytest.raises(OutputError, match=f"holds Headbook's {kind}; expected a new"):
                    check_output_folder(tmp_path / kind, other, force=True)


@pytest.mark.parametrize("name", ["n" * 300, "deep/" * 1000 + "site", "a\0b"])
def test_a_name_that_no_disk_takes_is_one_line(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path / name).endswith("; expected a folder that can be written")


@pytest.mark.parametrize("name", ["ä" * 127, os.fsdecode(b"\xe9" * 255)])
def test_the_longest_name_that_a_disk_takes_will_do(tmp_path: Path, name: str) -> None:
    out = ours(tmp_path / name)
    replaced(out)
    assert left_in(tmp_path) == [out.name]


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "\n" not in refusal(tmp_path / "a" / "site")


@pytest.mark.parametrize("target", ["site", "nowhere", "mine"])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, target: str) -> None:
    ours(tmp_path / "site")
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(target)
    before = disk(tmp_path)
    assert "a symbolic link" in refusal(tmp_path / "link")
    with (
        pytest.raises(OutputError, match="a symbolic link"),
        replace_file(tmp_path / "link", lambda: None),
    ):
        pass
    assert disk(tmp_path) == before


def test_links_above_a_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to("deep")
    ours(tmp_path / "link/site")
    replaced(tmp_path / "link/site")
    assert left_in(tmp_path / "deep") == ["site"]


@pytest.mark.parametrize(
    "manifest", [None, "", "not json", "{}", '{"name": "an app"}', "[]", "\udcff"]
)
def test_a_foreign_folder_is_refused_with_force_too(tmp_path: Path, manifest: str | None) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("years of work")
    if manifest is not None:
        (out / "manifest.json").write_bytes(manifest.encode(errors="surrogateescape"))
    before = disk(out)
    assert "holds something that Headbook did not write" in refusal(out)
    with pytest.raises(OutputError), replace_folder(out, OutputKind.SITE, force=True):
        pass
    assert disk(out) == before
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
    check_output_folder(Path("site"), OutputKind.SITE, force=False)


def test_the_home_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = ours(tmp_path / "home")
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    assert "the home folder" in refusal(home)
    assert "a symbolic link" in refusal(tmp_path / "link")


def test_a_mounted_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "site")
    assert "expected a folder inside it" in refusal(tmp_path / "site")
    check_output_folder(tmp_path / "site/inside", OutputKind.SITE, force=False)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount")
def test_a_folder_that_is_mounted_from_the_same_disk_stays_as_it_is(tmp_path: Path) -> None:
    out, source = tmp_path / "site", ours(tmp_path / "source")
    out.mkdir()
    if subprocess.run(
        ["mount", "--bind", source, out], check=False, capture_output=True
    ).returncode:
        pytest.skip("only some users may mount")
    try:
        before = disk(out)
        with pytest.raises(OutputError, match="; expected a folder that can be written"):
            replaced(out)
        assert disk(out) == before
        assert left_in(tmp_path) == ["site", "source"]
    finally:
        subprocess.run(["umount", out], check=True)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OutputError, match=r"; expected a folder that can be written$"),
        replace_folder(tmp_path / "file" / "site", OutputKind.SITE, force=False),
    ):
        pass


@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_folder_and_nothing_else(
    tmp_path: Path, fault: BaseException
) -> None:
    out = ours(tmp_path / "site")

    def write_half() -> None:
        with replace_folder(out, OutputKind.SITE, force=True) as draft:
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
        replace_folder(out, OutputKind.SITE, force=True),
    ):
        raise OSError(code, os.strerror(code))
    assert left_in(tmp_path) == ["site"]


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_an_interrupt_at_a_rename_leaves_one_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    out = ours(tmp_path / "site")
    rename, left = Path.rename, [{"before": 0, "between": 1, "after": 2}[moment]]

    def interrupted(path: Path, target: Path) -> Path:
        if path.name in {"site", "new"}:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            if path.name == "new" and not left[0]:
                rename(path, target)
                raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replaced(out)
    assert (out / "page.html").read_text() == ("new" if moment == "after" else "old")
    assert left_in(tmp_path) == ["site"]


def test_one_run_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    """From the check to the last rename; a run may reserve its own output as often as it likes."""
    out = ours(tmp_path / "site")
    with reserve(out), reserve(out), replace_folder(out, OutputKind.SITE, force=True) as draft:
        fill(draft)
        messages: list[str] = []
        other = threading.Thread(target=lambda: messages.append(refusal(out)))
        other.start()
        other.join()
        assert messages == [f"{out}: another run writes here; wait for it, or choose another --out"]
        ours(tmp_path / "another")
    assert (out / "page.html").read_text() == "new"
    assert left_in(tmp_path) == ["another", "site"]


SAVES = """
import sys, time
from pathlib import Path
from headbook.errors import OutputError
from headbook.output_folder import OutputKind, replace_folder
from machine import fill

out, text, until = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
while time.time() < until:
    try:
        with replace_folder(out, OutputKind.SITE, force=True) as draft:
            fill(draft, text)
        print("done")
    except OutputError as error:
        print(error)
"""


def test_many_runs_at_once_leave_the_pages_of_one(tmp_path: Path) -> None:
    out, until = ours(tmp_path / "site"), str(time.time() + 4)
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SAVES, out, f"text {n}", until],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent / "support",
        )
        for n in range(4)
    ]  # fmt: skip
    lines = [line for run in runs for line in run.communicate()[0].splitlines()]
    assert {run.returncode for run in runs} == {0}
    assert lines.count("done") > 4
    assert {*lines} <= {
        "done", f"{out}: another run writes here; wait for it, or choose another --out"
    }  # fmt: skip
    assert len({*pages(out).values()}) == 1
    assert left_in(tmp_path) == ["site"]


@pytest.mark.parametrize("content", [b"years of work", NOTE + b"and more"])
def test_a_foreign_file_with_the_name_of_the_lock_is_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".site.headbook-lock").write_bytes(content)
    before = disk(tmp_path)
    assert "no lock of Headbook's" in refusal(tmp_path / "site")
    assert disk(tmp_path) == before


def test_a_lock_that_goes_while_it_is_looked_at_is_not_called_foreign(tmp_path: Path) -> None:
    """As where another run ends at that moment."""
    file, over = tmp_path / "lock", threading.Event()

    def other_runs() -> None:
        while not over.is_set():
            file.write_bytes(b"")
            with suppress(FileNotFoundError):
                file.unlink()

    thread = threading.Thread(target=other_runs)
    thread.start()
    try:
        for _ in range(3000):
            lock = safe_files.lock_file(file)
            if lock is not None:
                lock.close()
    finally:
        over.set()
        thread.join()


def test_a_lock_that_a_full_disk_does_not_take_is_removed(tmp_path: Path) -> None:
    with small_files(0):
        assert "File too large" in refusal(tmp_path / "site")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - hidden ones too


def test_a_lock_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"")
    (tmp_path / ".site.headbook-lock").symlink_to(tmp_path / "mine")
    before = disk(tmp_path)
    assert "no lock of Headbook's" in refusal(tmp_path / "site")
    assert disk(tmp_path) == before


@pytest.mark.parametrize("content", [b"", NOTE[:9], NOTE])
def test_a_lock_is_not_written_into_a_file_that_has_another_name(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "mine").write_bytes(content)
    (tmp_path / ".site.headbook-lock").hardlink_to(tmp_path / "mine")
    before = disk(tmp_path)
    assert "no lock of Headbook's" in refusal(tmp_path / "site")
    assert disk(tmp_path) == before


def test_a_draft_is_not_written_through_a_link(tmp_path: Path) -> None:
    """The name of the draft of a file is known before."""
    for mine, link in (("a", os.symlink), ("b", os.link)):
        (tmp_path / mine).write_bytes(b"years of work")
        link(tmp_path / mine, tmp_path / f"plan.json.{os.getpid()}.new")
        safe_files.write_atomic(tmp_path / "plan.json", b"new")
        assert (tmp_path / mine).read_bytes() == b"years of work"
        assert not (tmp_path / "plan.json").is_symlink()
        assert (tmp_path / "plan.json").read_bytes() == b"new"


def allowed(_: Path) -> None:
    """Let a file be replaced."""


def not_mine(out: Path) -> None:
    raise OutputError(f"{out}: mine")


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_file_that_appears_meanwhile_is_replaced_only_if_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    def no_links(_: Path, __: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not hard_links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    out = tmp_path / "s.zip"
    with replace_file(out, lambda: not_mine(out)) as draft:
        draft.write_text("first")
    assert out.read_text() == "first"
    for check, content in ((not_mine, "mine"), (allowed, "second")):
        out.unlink()
        with suppress(OutputError), replace_file(out, partial(check, out)) as draft:
            draft.write_text("second")
            out.write_text("mine")
        assert out.read_text() == content
        assert left_in(tmp_path) == ["s.zip"]
        assert out.stat().st_nlink == 1


def test_a_disk_without_locks_is_written_and_nothing_on_it_taken_for_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows there whether another run is at work."""

    def without_locks(_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(safe_files, "lock_stream", without_locks)
    out = ours(tmp_path / "site")
    left = workspace(tmp_path, "site")
    replaced(out)
    assert left_in(tmp_path) == [left.name, "site"]


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

    with replace_folder(out, OutputKind.SITE, force=True) as draft:
        fill(draft)
        sys.addaudithook(hook)
    os._exit(0)


def tidy(out: Path) -> bool:
    """Whether nothing is left beside an output, but for an empty folder of a run that was killed.

    Without its owner file nobody knows that such a folder is ours.
    """
    return all(path == out or not any(path.iterdir()) for path in out.parent.iterdir())


@pytest.mark.soak
def test_after_a_kill_at_any_move_the_old_site_or_the_new_one_is_whole(tmp_path: Path) -> None:
    """Between the two renames nothing is in its place; the next run puts the old one back."""
    whole = {text: made(text, tmp_path / "other") for text in ("old", "new")}
    found, missing = [], 0
    for moves in range(100):
        out = ours(tmp_path / str(moves) / "site")
        alive = not killed(out, moves)
        missing += not out.exists()
        with reserve(out):
            found.append(next(text for text, all_pages in whole.items() if pages(out) == all_pages))
        assert tidy(out)
        if alive:
            break
    assert alive
    assert missing == 1
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == ("old", "new")
    assert len(found) > 5


@pytest.mark.soak
def test_what_somebody_makes_after_a_kill_is_never_deleted(tmp_path: Path) -> None:
    """Nor what they wrote into pages of ours, whatever the killed run had done."""
    kept = 0
    for moves in range(100):
        out = ours(tmp_path / str(moves) / "site")
        alive = not killed(out, moves)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")
        before = disk(out)
        message = refusal(out)
        assert disk(out) == before
        if "kept in" in message:
            kept += 1
            (old,) = out.parent.glob(".site.headbook-*/old")
            assert str(old) in message
            assert pages(old) == made("old", tmp_path / "other" / str(moves))
        else:
            assert "holds something that Headbook did not write" in message
            assert tidy(out)
        if alive:
            break
    assert alive
    assert kept == 1


def test_a_page_that_somebody_edits_after_a_kill_stays_edited(tmp_path: Path) -> None:
    for moves in range(100):
        out = ours(tmp_path / str(moves) / "site")
        alive = not killed(out, moves)
        if out.exists():
            (out / "page.html").write_text("edited")
            assert "exists already" in refusal(out, force=False)
            assert (out / "page.html").read_text() == "edited"
        if alive:
            break
    assert alive


def test_a_draft_whose_process_lives_is_left_alone(tmp_path: Path) -> None:
    with temporary_folder("rows") as first:
        (first / "rows.jsonl").write_text("mine")
        with temporary_folder("rows") as second:
            assert first != second
            assert (first / "rows.jsonl").read_text() == "mine"
    assert not first.exists()
    assert not second.exists()


@pytest.mark.parametrize("inside", ["new", "old"])
def test_a_left_workspace_is_removed_or_put_back(tmp_path: Path, inside: str) -> None:
    left = workspace(tmp_path, "site")
    (left / "new").mkdir()
    (left / "new/page.html").write_text("draft")
    if inside == "old":
        (left / "old").mkdir()
        (left / "old/page.html").write_text("old")
    with reserve(tmp_path / "site") as path:
        assert path.exists() == (inside == "old")
    assert left_in(tmp_path) == ["site"] * (inside == "old")


def test_only_what_is_surely_ours_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a name alone, nor through a link, nor if it is another user's or another output's."""
    workspace(tmp_path, "mine", b"me")
    workspace(tmp_path, "link").rename(tmp_path / "elsewhere")
    (tmp_path / ".link.headbook-aaaaaaaa").symlink_to("elsewhere")
    workspace(tmp_path, "another").rename(tmp_path / ".other.headbook-aaaaaaaa")
    for name in (".mine-abcdefgh", ".mine.headbook-notes", ".mine.headbook-bbbbbbbb"):
        (tmp_path / name).mkdir()
    before = left_in(tmp_path)
    for name in ("mine", "link", "other"):
        check_output_folder(tmp_path / name, OutputKind.SITE, force=False)
    assert left_in(tmp_path) == before
    workspace(tmp_path, "site")
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    check_output_folder(tmp_path / "site", OutputKind.SITE, force=False)
    assert left_in(tmp_path) == sorted([*before, ".site.headbook-aaaaaaaa"])


@pytest.mark.parametrize("there", ["site", "nothing"])
def test_a_crafted_workspace_touches_nothing_outside_it(tmp_path: Path, there: str) -> None:
    """Neither by a journal, which is of no use now, nor by links."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/thesis.txt").write_text("years of work")
    out = ours(tmp_path / "site") if there == "site" else tmp_path / "site"
    left = workspace(tmp_path, "site")
    pieces = [["../private", False, True], ["../../private", True, True], [".", True, True]]
    (left / "swap.json").write_text(json.dumps({"out": "site", "pieces": pieces}))
    (left / "old").symlink_to(tmp_path / "private")
    (left / "new").symlink_to(tmp_path / "private")
    before = disk(tmp_path / "private"), there == "site" and disk(out)
    for _ in range(2):
        with suppress(OutputError):
            check_output_folder(out, OutputKind.SITE, force=True)
    assert (there == "site") == os.path.lexists(out)
    assert (disk(tmp_path / "private"), there == "site" and disk(out)) == before
