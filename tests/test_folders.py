"""An output folder is written whole or not at all, and never over what is not ours."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from headbook.errors import OutputError
from headbook.folders import check_replaceable, written_whole
from headbook.listing import Kind
from outfolders import MANIFEST, fill, left_in, made, ours, pages, replaced


def refusal(out: Path, *, force: bool = True) -> str:
    with pytest.raises(OutputError) as error:
        check_replaceable(out, Kind.SITE, force=force)
    message = str(error.value)
    assert "\n" not in message
    return message


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


def test_our_own_folder_is_not_replaced_without_force(tmp_path: Path) -> None:
    out = ours(tmp_path / "site")
    assert refusal(out, force=False) == f"{out}: exists already; pass --force to replace it"
    check_replaceable(out, Kind.SITE, force=True)


@pytest.mark.parametrize(
    ("name", "message"), [("manifest.json", "study"), ("data/manifest.json", "")]
)
def test_a_folder_without_a_list_is_not_touched(tmp_path: Path, name: str, message: str) -> None:
    """An older Headbook wrote none; nobody knows what in it is somebody's own."""
    out = tmp_path / "site"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text(MANIFEST)
    expected = (
        f"holds Headbook's {message}; expected a new folder" if message else "by an older Headbook"
    )
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
