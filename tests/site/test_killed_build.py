"""A run that ends badly leaves the site that stood there."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import headbook
from headbook.errors import OutputError, StudyError
from headbook.site import export, sites
from html_pages import differing, tree
from sites import Site


def copied(site: Site, place: Path) -> Path:
    """A site of somebody's own, with a mark of its age."""
    shutil.copytree(site.folder, place / "site")
    (place / "site/index.html").write_text("the old site")
    table = json.loads((place / "site/data/files.json").read_text())
    table["files"]["index.html"] = hashlib.sha256(b"the old site").hexdigest()
    (place / "site/data/files.json").write_text(json.dumps(table))
    return place / "site"


def files_below(place: Path) -> int:
    """Files, in drafts too; some may go while they are counted."""
    return sum(len(names) for _, _, names in os.walk(place))


def killed_after(files: int, command: list[str], place: Path, number: int = signal.SIGKILL) -> bool:
    """Run a command and kill it when so many files are new; False if it ends before that.

    The processes that it began end with it.
    """
    start = files_below(place)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            if files_below(place) >= start + files:
                workers = psutil.Process(process.pid).children(recursive=True)
                process.send_signal(number)
                process.wait()
                _, alive = psutil.wait_procs(workers, timeout=5)
                assert alive == []
                return True
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return False


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_while_pages_are_written_leaves_the_old_site(
    small_site: Site, tmp_path: Path, number: int
) -> None:
    """And no process; a polite one leaves nothing, the next run removes what another has."""
    out = copied(small_site, tmp_path)
    before = tree(out)
    command = [sys.executable, "-m", "headbook", "render", "--force", "--quiet"]
    command += ["--out", str(out), "--processes", "2", str(small_site.stored)]
    assert killed_after(len(before) * 2 // 3, command, tmp_path, number)
    assert tree(out) == before
    drafts = [name for name in os.listdir(tmp_path) if name != "site"]  # noqa: PTH208
    assert len(drafts) == 2 * (number == signal.SIGKILL)
    with pytest.raises(StudyError):
        headbook.render(tmp_path, out, force=True)
    assert os.listdir(tmp_path) == ["site"]  # noqa: PTH208 - hidden ones too


@pytest.mark.soak
@pytest.mark.slow
def test_a_kill_of_a_build_leaves_the_old_site(small_site: Site, tmp_path: Path) -> None:
    out = copied(small_site, tmp_path)
    before = tree(out)
    inputs = small_site.place / "trees.conllu"
    command = [sys.executable, "-m", "headbook", "build", str(inputs), "--force", "--quiet"]
    command += ["--model", str(small_site.model), "--out", str(out), "--annotator", "none"]
    assert killed_after(20, command, tmp_path)
    assert tree(out) == before


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt()])
def test_a_fault_while_pages_are_made_leaves_the_old_site_and_nothing_else(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    out = copied(small_site, tmp_path)
    before = tree(out)

    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(sites, "about_page", broken)
    with pytest.raises(type(fault)):
        headbook.render(small_site.study, out, force=True)
    assert tree(out) == before
    assert os.listdir(tmp_path) == ["site"]  # noqa: PTH208 - hidden ones too


def test_the_overview_is_there_before_tables_and_figures_are_made(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object, __: object, data: Path) -> None:
        assert "</html>" in (data.parent / "index.html").read_text()
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "write_tables", broken)
    with pytest.raises(KeyboardInterrupt):
        headbook.render(small_site.study, tmp_path / "site")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - no half site, and hidden ones neither


def test_a_site_is_not_replaced_without_force(small_site: Site, tmp_path: Path) -> None:
    out = copied(small_site, tmp_path)
    with pytest.raises(OutputError, match="pass force=True to replace it"):
        headbook.render(small_site.stored, out)
    assert (out / "index.html").read_text() == "the old site"


MINE = {"CNAME": "heads.example.org\n", "heads/notes.txt": "mine", ".git/HEAD": "ref: mine\n"}


NAMES = [*MINE, "robots.txt", "importance.html", "data/importance.csv", "assets/heads.js"]


@pytest.mark.parametrize("name", NAMES)
def test_a_site_with_a_foreign_file_is_refused_before_it_is_drawn(
    small_site: Site, tmp_path: Path, name: str
) -> None:
    """Whatever the file is called, names that other sites have of us included."""
    out = copied(small_site, tmp_path)
    listed = json.loads((out / "data/files.json").read_text())
    listed["files"].pop(name, None)
    (out / "data/files.json").write_text(json.dumps(listed))
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text(MINE.get(name, "mine"))
    before = tree(out)
    named = ".git" if name == ".git/HEAD" else re.escape(name)
    with pytest.raises(OutputError, match=f"holds {named}, which Headbook did not write"):
        headbook.render(tmp_path / "no", out, force=True)
    assert tree(out) == before
    assert os.listdir(tmp_path) == ["site"]  # noqa: PTH208 - hidden ones too


def test_a_site_lists_every_file_that_was_written(any_site: Site) -> None:
    listed = json.loads((any_site.folder / "data/files.json").read_text())
    assert sorted(listed["files"]) == sorted(tree(any_site.folder))
    assert "assets/heads.js" in listed["files"]


def test_a_study_with_a_model_in_its_folder_is_refused(small_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(small_site.stored, out)
    shutil.copytree(small_site.model, out / "model")
    before = tree(out)
    study = headbook.Study.load(out)
    with pytest.raises(OutputError, match="holds model, which Headbook did not write"):
        study.save(out, force=True)
    assert tree(out) == before
    shutil.rmtree(out / "model")
    study.save(out, force=True)
    assert differing(small_site.stored, out) == []


def test_neither_a_model_nor_a_study_gives_way_to_a_site(small_site: Site, tmp_path: Path) -> None:
    for folder in (small_site.model, small_site.stored):
        out = tmp_path / folder.name
        shutil.copytree(folder, out)
        with pytest.raises(OutputError, match="; expected a new folder"):
            headbook.render(small_site.stored, out, force=True)
        assert differing(folder, out) == []
    study = headbook.Study.load(small_site.stored)
    with pytest.raises(OutputError, match="holds Headbook's site; expected a new folder"):
        study.save(copied(small_site, tmp_path), force=True)
