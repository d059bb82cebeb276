"""What lies on a disk may have been put there to do harm: nobody's files are lost by it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import headbook
from headbook.cli import main as cli
from headbook.cli.actions import check_studies
from headbook.errors import HeadbookError, OutputError
from headbook.run.store import open_store
from headbook.site.archive import pack
from html_pages import tree
from machine import disk
from sites import Site

NOTES = (  # in the owner files of folders that Headbook works in, now and before
    b"Headbook works here; a later run removes this.\nstudy",
    b"A folder that Headbook works in; a later run removes it.\n",
)


def thesis(folder: Path) -> Path:
    """Make somebody's own folder."""
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years of work")
    (folder / "figures").mkdir()
    (folder / "figures/one.svg").write_text("more of it")
    return folder


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int | str | None:
    """Run a command here; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["headbook", *map(str, words)])
    try:
        cli.main()
    except SystemExit as error:
        return error.code
    return 0


@pytest.fixture
def packed(small_site: Site, tmp_path: Path) -> Path:
    """A study that somebody else has packed, beside a folder that is not theirs to touch."""
    shutil.copytree(small_site.stored, tmp_path / "package/study")
    thesis(tmp_path / "package/victim")
    thesis(tmp_path / "private")
    return tmp_path / "package"


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("attack", ["delete", "steal"])
def test_reading_a_study_changes_nothing_on_the_disk(
    packed: Path, note: bytes, attack: str
) -> None:
    """Whatever lies beside it: a journal of moves was followed once, out of the folder, too."""
    left = packed / ".study.headbook-aaaaaaaa"
    left.mkdir()
    (left / "owner").write_bytes(note)
    pieces = [["../victim", False, True]] if attack == "delete" else [["thesis.txt", True, False]]
    (left / "swap.json").write_text(json.dumps({"out": "study", "pieces": pieces}))
    if attack == "steal":
        (left / "old").symlink_to(packed.parent / "private")
    before = disk(packed.parent)
    check_studies(packed / "study")
    headbook.Study.load(packed / "study")
    assert disk(packed.parent) == before


@pytest.mark.slow
def test_rendering_a_study_changes_nothing_beside_it(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = packed / ".study.headbook-aaaaaaaa"
    left.mkdir()
    (left / "owner").write_bytes(NOTES[1])
    (left / "swap.json").write_text('{"out": "study", "pieces": [["../victim", false, true]]}')
    before, out = disk(packed), packed.parent / "site"
    assert command(monkeypatch, "render", packed / "study", "--out", out, "-q") == 0
    assert disk(packed) == before


def test_packing_a_site_changes_nothing_beside_it(packed: Path, small_site: Site) -> None:
    shutil.copytree(small_site.folder, packed / "site")
    left = packed / ".site.headbook-aaaaaaaa"
    left.mkdir()
    (left / "owner").write_bytes(NOTES[1])
    (left / "swap.json").write_text('{"out": "site", "pieces": [["../victim", false, true]]}')
    before = disk(packed)
    pack(packed / "site", packed.parent / "site.zip")
    assert disk(packed) == before


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["link", "folder", "folder with a lock", "link inside"])
def test_a_work_folder_that_may_be_anothers_is_neither_used_nor_cleared(
    tmp_path: Path, kind: str, restart: bool
) -> None:
    docs, folder = thesis(tmp_path / "docs"), tmp_path / ".site.headbook-work"
    if kind == "link":
        folder.symlink_to(docs, target_is_directory=True)
    elif kind == "link inside":
        with open_store(folder, {"input": "a"}, restart=False) as work:
            work.save("model/x", int, 3)
        (folder / "corpus").symlink_to(docs, target_is_directory=True)
    else:
        thesis(folder)
        if kind == "folder with a lock":
            (folder / "lock").write_text("mine")
            (folder / "plan.json").write_text('{"chapter": "one"}')
    before = disk(tmp_path)
    with pytest.raises(OutputError) as caught, open_store(folder, {"input": "a"}, restart=restart):
        pass
    assert "so it is neither used nor cleared" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert disk(tmp_path) == before


def test_a_work_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".site.headbook-work"
    with open_store(folder, {"input": "a"}, restart=False):
        pass
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with (
        pytest.raises(OutputError, match="no folder of this user"),
        open_store(folder, {"input": "a"}, restart=True),
    ):
        pass


def test_a_work_folder_that_was_hardly_begun_is_used(tmp_path: Path) -> None:
    """A run may be killed between any two files that it writes at first, and while it clears."""
    folder = tmp_path / ".site.headbook-work"
    with open_store(folder, {"input": "a"}, restart=False) as work:
        work.save("model/x", int, 3)
    (folder / "model/x.part").unlink()
    with open_store(folder, {"input": "b"}, restart=False):
        pass
    (folder / "plan.json").rename(folder / "plan.json.123.new")
    with open_store(folder, {"input": "c"}, restart=False):
        pass
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "lock").touch()
    with open_store(folder, {"input": "d"}, restart=False) as work:
        assert work.save("model/x", int, 4) == 4


@pytest.mark.parametrize("names", [("lock",), ("lock", "plan.json")])
def test_a_run_that_ends_well_removes_no_folder_of_anothers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_folder: Callable[[str], Path],
    names: tuple[str, ...],
) -> None:
    """Few sentences need no work folder; one of its name was removed at the end all the same."""
    (tmp_path / "texts.txt").write_text("the cat sees a dog\n")
    folder = thesis(tmp_path / ".study.headbook-work")
    for name in names:
        (folder / name).write_text('{"chapter": "one"}')
    before = disk(folder)
    given = ["collect", tmp_path / "texts.txt", "--out", tmp_path / "study", "-q"]
    given += ["--model", tiny_folder("bert"), "--metrics=attention_distance", "--annotator=none"]
    given += ["--importance=off", "--language=none", "--accept-failed-checks"]
    assert command(monkeypatch, *given) == 0
    assert disk(folder) == before


SAVES = """
import os, sys
from dataclasses import replace
from pathlib import Path
import headbook

study, left = headbook.Study.load(sys.argv[1]), [int(sys.argv[3])]

def dying(event, _):
    left[0] -= event in {"os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
    if left[0] < 0:
        os._exit(9)

sys.addaudithook(dying)
study.save(sys.argv[2], force=True)
"""


@pytest.mark.soak
@pytest.mark.slow
def test_what_somebody_makes_after_a_kill_is_not_deleted(small_site: Site, tmp_path: Path) -> None:
    """Wherever the run was killed: a replacement was undone once, over somebody's own files."""
    for moves in range(50):
        out = tmp_path / str(moves) / "study"
        shutil.copytree(small_site.stored, out)
        given = [sys.executable, "-c", SAVES, str(small_site.stored), str(out), str(moves)]
        code = subprocess.run(given, check=False, capture_output=True).returncode
        shutil.rmtree(out, ignore_errors=True)
        thesis(out)
        before = disk(out)
        with pytest.raises(HeadbookError) as caught:
            headbook.Study.load(out)
        with pytest.raises(HeadbookError) as caught:
            headbook.Study.load(small_site.stored).save(out, force=True)
        assert "\n" not in str(caught.value)
        assert disk(out) == before
        if code == 0:
            break
    assert code == 0
    assert moves > 2


@pytest.mark.soak
@pytest.mark.slow
def test_several_renders_of_one_site_at_once_leave_the_pages_of_one(
    small_site: Site, tmp_path: Path
) -> None:
    """The others end with one line, and a later run replaces the site as if nothing had been."""
    out = tmp_path / "site"
    shutil.copytree(small_site.folder, out)
    studies = []
    for n in range(3):
        studies.append(tmp_path / f"study-{n}")
        study = small_site.study
        titled = replace(study, manifest=replace(study.manifest, title=f"Run {n}."))
        titled.save(studies[-1])
    given = [sys.executable, "-m", "headbook", "render", "-fq", "--processes=1", f"--out={out}"]
    runs = []
    for folder in studies:
        runs.append(subprocess.Popen([*given, str(folder)], stderr=subprocess.PIPE, text=True))
        time.sleep(0.3)
    outputs = [run.communicate()[1] for run in runs]
    codes = [run.returncode for run in runs]
    assert sorted(codes) == [0, 2, 2]
    for code, text in zip(codes, outputs, strict=True):
        line = f"headbook: {out}: another run writes here; wait for it, or choose another --out\n"
        assert text == (line if code else "")
    pages = [content for name, content in tree(out).items() if name.endswith(".html")]
    for n, code in enumerate(codes):
        assert {f"Run {n}.".encode() in page for page in pages} == {code == 0}
    headbook.render(studies[0], out, force=True)
    assert [path.name for path in tmp_path.glob(".*")] == []
