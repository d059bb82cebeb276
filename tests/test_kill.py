"""A run that ends badly leaves the site that stood there."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headbook
from headbook.errors import OutputError
from headbook.writing import site as writer
from pages import differing, tree
from sites import Site


def copied(site: Site, place: Path) -> Path:
    """A site of somebody's own, with a mark of its age."""
    shutil.copytree(site.folder, place / "site")
    (place / "site/index.html").write_text("the old site")
    return place / "site"


def files_below(place: Path) -> int:
    """Files, in drafts too; some may go while they are counted."""
    return sum(len(names) for _, _, names in os.walk(place))


def killed_after(files: int, command: list[str], place: Path) -> bool:
    """Run a command and kill it when so many files are new; False if it ends before that."""
    start = files_below(place)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            if files_below(place) >= start + files:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return True
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return False


@pytest.mark.slow
def test_a_kill_while_pages_are_written_leaves_the_old_site(
    small_site: Site, tmp_path: Path
) -> None:
    out = copied(small_site, tmp_path)
    before = tree(out)
    command = [sys.executable, "-m", "headbook", "render", "--force", "--quiet"]
    command += ["--out", str(out), str(small_site.stored)]
    assert killed_after(len(before) * 2 // 3, command, tmp_path)
    assert tree(out) == before
    headbook.render(small_site.stored, out, force=True)
    assert differing(small_site.folder, out) == []


@pytest.mark.slow
def test_a_kill_of_a_build_leaves_the_old_site(small_site: Site, tmp_path: Path) -> None:
    out = copied(small_site, tmp_path)
    before = tree(out)
    inputs = small_site.place / "trees.conllu"
    command = [sys.executable, "-m", "headbook", "build", str(inputs), "--force", "--quiet"]
    command += ["--model", str(small_site.model), "--out", str(out), "--annotator", "none"]
    assert killed_after(20, command, tmp_path)
    assert tree(out) == before


@pytest.mark.slow
@pytest.mark.parametrize("fault", [ValueError("a bug"), KeyboardInterrupt()])
def test_a_fault_while_pages_are_made_leaves_the_old_site_and_nothing_else(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    out = copied(small_site, tmp_path)
    before = tree(out)

    def broken(_: object) -> None:
        raise fault

    monkeypatch.setattr(writer, "metrics_page", broken)
    with pytest.raises(type(fault)):
        headbook.render(small_site.study, out, force=True)
    assert tree(out) == before
    assert os.listdir(tmp_path) == ["site"]  # noqa: PTH208 - hidden ones too


def test_a_site_is_not_replaced_without_force(small_site: Site, tmp_path: Path) -> None:
    out = copied(small_site, tmp_path)
    with pytest.raises(OutputError, match="pass --force to replace it"):
        headbook.render(small_site.stored, out)
    assert (out / "index.html").read_text() == "the old site"
