"""A site as an archive: whole, checked, the same every time, and without names where asked."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headbook.errors import HeadbookWarning, OutputError, StudyError
from headbook.site import archive
from headbook.site.archive import ARCHIVE_FOLDER, CHECKSUM_FILE, VENUE_LIMITS, PackedSite, pack
from html_pages import tree
from sites import Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packed(small_site: Site, tmp_path_factory: pytest.TempPathFactory) -> PackedSite:
    """The archive of the smallest site."""
    return pack(small_site.folder, tmp_path_factory.mktemp("packed") / "supplement.zip")


def unpacked(path: Path, place: Path) -> Path:
    """The one folder of an archive."""
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        file.extractall(place)
    assert [path.name for path in place.iterdir()] == [ARCHIVE_FOLDER]
    return place / ARCHIVE_FOLDER


def test_an_archive_holds_the_site_as_it_is(
    small_site: Site, packed: PackedSite, tmp_path: Path
) -> None:
    path = unpacked(packed.path, tmp_path)
    assert tree(path / "site") == tree(small_site.folder)
    assert set(tree(path)) == {
        "README.txt",
        CHECKSUM_FILE,
        *(f"site/{n}" for n in tree(small_site.folder)),
    }
    assert "Open site/index.html" in (path / "README.txt").read_text()


def test_the_sums_are_those_of_all_other_files(packed: PackedSite, tmp_path: Path) -> None:
    files = tree(unpacked(packed.path, tmp_path))
    lines = files.pop(CHECKSUM_FILE).decode().splitlines()
    found = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert found == {name: hashlib.sha256(file).hexdigest() for name, file in files.items()}


def test_an_archive_is_known_with_its_own_sizes(packed: PackedSite, tmp_path: Path) -> None:
    files = tree(unpacked(packed.path, tmp_path))
    assert packed.files == len(files)
    assert packed.unpacked == sum(map(len, files.values()))
    assert packed.size == packed.path.stat().st_size


def test_packing_again_gives_the_same_bytes(
    small_site: Site, packed: PackedSite, tmp_path: Path
) -> None:
    """Whatever the disk says of dates and rights, and whatever the folder is called."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(small_site.folder, copy)
    for file in copy.rglob("*"):
        os.utime(file, (1, 1))
        file.chmod(0o700)
    again = pack(copy, tmp_path / "other.zip")
    assert again.path.read_bytes() == packed.path.read_bytes()
    with zipfile.ZipFile(again.path) as stored:
        names = stored.namelist()
    assert names == sorted(names)


def test_a_history_of_versions_stays_out(
    small_site: Site, packed: PackedSite, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(small_site.folder, copy)
    for name in (".git/config", "data/.DS_Store", ".env"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("private")
    assert pack(copy, tmp_path / "s.zip").path.read_bytes() == packed.path.read_bytes()


@pytest.mark.parametrize("limit", VENUE_LIMITS)
def test_the_size_is_set_against_limits(limit: int) -> None:
    def message(size: int) -> str:
        return "\n".join(PackedSite(Path("s.zip"), 1, size, 1, ()).report())

    displayed = f"{limit // 1_000_000} MB"
    assert f"within {displayed}: " in message(limit)
    assert f"larger than {displayed}: " in message(limit + 1)


def refusal(kind: type[Exception], *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as error:
        pack(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_headbook_did_not_write_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/index.html").write_text("my page")
    for name in ("mine", "nowhere"):
        message = refusal(StudyError, tmp_path / name, tmp_path / "s.zip")
        assert "neither a site nor a study" in message
    assert not (tmp_path / "s.zip").exists()


def test_an_archive_is_replaced_only_with_force(
    small_site: Site, packed: PackedSite, tmp_path: Path
) -> None:
    shutil.copy(packed.path, tmp_path / "s.zip")
    before = tree(tmp_path)
    message = refusal(OutputError, small_site.folder, tmp_path / "s.zip")
    assert "pass force=True" in message
    assert tree(tmp_path) == before
    pack(small_site.folder, tmp_path / "s.zip", force=True)
    assert tree(tmp_path) == before


def test_a_foreign_file_is_never_replaced(small_site: Site, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as file:
        file.writestr("data.csv", "years of work")
    (tmp_path / "folder").mkdir()
    before = tree(tmp_path)
    for name in ("thesis.txt", "data.zip", "folder"):
        message = refusal(OutputError, small_site.folder, tmp_path / name, force=True)
        assert "expected a new file" in message
    assert tree(tmp_path) == before


def rewritten(path: Path, change: str) -> None:
    """Change an archive of Headbook's as somebody who keeps notes in it would."""
    with zipfile.ZipFile(path) as file:
        files = {entry.filename: file.read(entry) for entry in file.infolist()}
    if change == "a file more":
        files[f"{ARCHIVE_FOLDER}/notes.txt"] = b"years of work"
    elif change == "another text":
        files[f"{ARCHIVE_FOLDER}/site/index.html"] = b"years of work"
    elif change == "a file less":
        del files[f"{ARCHIVE_FOLDER}/site/index.html"]
    else:
        files = {"thesis.txt": b"years of work", f"{ARCHIVE_FOLDER}/{CHECKSUM_FILE}": b""}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)


@pytest.mark.parametrize("change", ["a file more", "another text", "a file less", "only a list"])
def test_an_archive_that_somebody_has_changed_is_theirs(
    small_site: Site, packed: PackedSite, tmp_path: Path, change: str
) -> None:
    shutil.copy(packed.path, tmp_path / "s.zip")
    rewritten(tmp_path / "s.zip", change)
    before = tree(tmp_path)
    message = refusal(OutputError, small_site.folder, tmp_path / "s.zip", force=True)
    assert "s.zip: not an archive of Headbook's, or changed since" in message
    assert tree(tmp_path) == before


def test_an_archive_that_would_inflate_without_end_is_not_ours(
    small_site: Site, tmp_path: Path
) -> None:
    content = bytes(50_000_000)
    sums = f"{hashlib.sha256(content).hexdigest()}  zeros\n"
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(f"{ARCHIVE_FOLDER}/{CHECKSUM_FILE}", sums)
        file.writestr(f"{ARCHIVE_FOLDER}/zeros", content)
    before = tree(tmp_path)
    message = refusal(OutputError, small_site.folder, tmp_path / "s.zip", force=True)
    assert "not an archive" in message
    assert tree(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("single_file", [False, True])
def test_a_file_that_appears_while_pages_are_drawn_stays(
    small_site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    force: bool,
    single_file: bool,
) -> None:
    out = tmp_path / "out"

    def drawn(_study: object, folder: Path, **_: object) -> None:
        shutil.copytree(small_site.folder, folder)
        out.write_text("years of work")

    monkeypatch.setattr(archive, "render", drawn)
    given = {"force": force, "single_file": single_file}
    assert "expected a new file" in refusal(OutputError, small_site.stored, out, **given)
    assert tree(tmp_path) == {"out": b"years of work"}


LINKED = ["heads/secret.txt", "index.html", "data/heads.csv", "data", "assets/gunzip.js"]


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("single_file", [False, True])
def test_a_link_in_a_site_is_refused_by_name(
    small_site: Site, tmp_path: Path, name: str, single_file: bool
) -> None:
    """Listed or not, to a file or a folder: what it leads to may be private."""
    copy, private = tmp_path / "site", tmp_path / "private"
    shutil.copytree(small_site.folder, copy)
    link = next(iter(copy.glob(f"{name}*")), copy / name)
    if link.exists():
        link.rename(private)
    else:
        private.write_text("a secret")
        listed = json.loads((copy / "data/files.json").read_text())
        listed["files"][name] = hashlib.sha256(b"a secret").hexdigest()
        (copy / "data/files.json").write_text(json.dumps(listed))
    link.symlink_to(private)
    message = refusal(StudyError, copy, tmp_path / "s", single_file=single_file)
    assert f"holds {link.relative_to(copy)}, a link" in message
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["../private.txt", "{private}", "heads/../../private.txt"])
def test_a_list_leads_to_no_file_outside_its_site(
    small_site: Site, tmp_path: Path, name: str
) -> None:
    copy, private = tmp_path / "site", tmp_path / "private.txt"
    private.write_text("a secret")
    shutil.copytree(small_site.folder, copy)
    listed = json.loads((copy / "data/files.json").read_text())
    named = name.format(private=private)
    listed["files"][named] = hashlib.sha256(b"a secret").hexdigest()
    (copy / "data/files.json").write_text(json.dumps(listed))
    assert f"without {named}" in refusal(StudyError, copy, tmp_path / "s.zip")


def test_a_site_without_a_list_is_refused(small_site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "site"
    shutil.copytree(small_site.folder, copy)
    (copy / "data/files.json").unlink()
    assert "without a list of files" in refusal(StudyError, copy, tmp_path / "s.zip")


def test_a_file_that_is_not_of_the_site_is_left_out_and_named(
    small_site: Site, packed: PackedSite, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(small_site.folder, copy)
    (copy / "CNAME").write_text("heads.example.org")
    with pytest.warns(HeadbookWarning, match="CNAME, which Headbook did not write, left out"):
        again = pack(copy, tmp_path / "s.zip")
    assert again.path.read_bytes() == packed.path.read_bytes()


def test_an_archive_does_not_land_in_what_it_packs(small_site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "site"
    shutil.copytree(small_site.folder, copy)
    before = tree(copy)
    assert "lies in the folder" in refusal(OutputError, copy, copy / "data/s.zip")
    assert tree(copy) == before


def test_a_full_disk_leaves_the_old_archive(
    small_site: Site, packed: PackedSite, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk."""
    shutil.copy(packed.path, tmp_path / "s.zip")
    before = tree(tmp_path)
    code = (
        "import resource, sys; from headbook.site.archive import pack;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "pack(sys.argv[1], sys.argv[2], force=True)"
    )
    command = [sys.executable, "-c", code, str(small_site.folder), str(tmp_path / "s.zip")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "OutputError" in done.stderr.splitlines()[-1]
    assert tree(tmp_path) == before
