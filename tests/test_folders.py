"""An output folder is written whole or not at all, and never over what is not ours."""

import subprocess
import sys
from pathlib import Path

import pytest

from headbook.errors import OutputError
from headbook.folders import check_replaceable, written_whole


def fill(folder: Path, text: str = "new") -> None:
    """What a study leaves behind: a manifest and something else."""
    (folder / "manifest.json").write_text('{"headbook": "0.1.0"}')
    (folder / "page.html").write_text(text)


def ours(folder: Path, text: str = "old") -> Path:
    folder.mkdir(parents=True)
    fill(folder, text)
    return folder


def refusal(out: Path, *, force: bool = True) -> str:
    with pytest.raises(OutputError) as error:
        check_replaceable(out, force=force)
    message = str(error.value)
    assert "\n" not in message
    return message


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    with written_whole(out, force=False) as draft:
        fill(draft)
        assert not out.exists()
    assert left_in(out) == ["manifest.json", "page.html"]
    assert left_in(out.parent) == ["site"]
    assert out.stat().st_mode & 0o777 == 0o755


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    with written_whole(tmp_path / "site", force=False) as draft:
        fill(draft)
    assert left_in(tmp_path / "site") == ["manifest.json", "page.html"]


def test_force_replaces_the_whole_folder(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    (out / "stale.html").write_text("from an earlier run")
    with written_whole(out, force=True) as draft:
        fill(draft)
        assert (out / "page.html").read_text() == "old"
    assert left_in(out) == ["manifest.json", "page.html"]
    assert (out / "page.html").read_text() == "new"
    assert left_in(tmp_path) == ["site"]


def test_our_own_folder_is_not_replaced_without_force(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    assert refusal(out, force=False) == f"{out}: exists already; pass --force to replace it"
    check_replaceable(out, force=True)


def test_a_site_is_known_by_the_manifest_in_its_data(tmp_path: Path) -> None:
    (tmp_path / "site" / "data").mkdir(parents=True)
    fill(tmp_path / "site" / "data")
    check_replaceable(tmp_path / "site", force=True)


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
    with pytest.raises(OutputError), written_whole(out, force=True):
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
    check_replaceable(Path("site"), force=False)


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
        written_whole(tmp_path / "file" / "site", force=False),
    ):
        pass


@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_folder_and_nothing_else(
    tmp_path: Path, fault: BaseException
) -> None:
    out = ours(tmp_path / "site")

    def write_half() -> None:
        with written_whole(out, force=True) as draft:
            fill(draft)
            raise fault

    with pytest.raises(type(fault)):
        write_half()
    assert (out / "page.html").read_text() == "old"
    assert left_in(tmp_path) == ["site"]


KILLED = """
import os, sys
from pathlib import Path
from headbook.folders import written_whole
left = int(sys.argv[2])
def hook(event, _):
    global left
    if event == "os.rename":
        left -= 1
        if left < 0:
            os._exit(9)
with written_whole(Path(sys.argv[1]), force=True) as draft:
    (draft / "manifest.json").write_text('{"headbook": ""}')
    (draft / "page.html").write_text("new")
    sys.addaudithook(hook)
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_at_any_rename_leaves_old_and_new_content_on_the_disk(
    tmp_path: Path, renames: int
) -> None:
    out = ours(tmp_path / "site")
    command = [sys.executable, "-c", KILLED, str(out), str(renames)]
    assert subprocess.run(command, check=False).returncode == 9
    found = {file.read_text() for file in tmp_path.rglob("page.html")}
    assert found == {"old", "new"}
    assert out.exists() == (renames == 0)
