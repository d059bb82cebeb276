"""A self-check that fails is never passed over: exit code, line and banner."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import FEW, Output
from headbook.passes import self_checks
from headbook.study.manifest import Check
from headbook.study.study import Study

Run = Callable[..., Output]
NAME = "final output = output of the model without the hook"
BANNER = 'aria-label="Self-checks that failed"'


@pytest.fixture
def given(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> tuple[Path, str]:
    """A sentence to collect, and a model."""
    file = tmp_path / "text.txt"
    file.write_text("The cat sees the dog.\n", encoding="utf-8")
    return file, f"--model={tiny_folder('bert')}"


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """No difference is small enough, not even none."""
    monkeypatch.setattr(self_checks, "TOLERANCES", dict.fromkeys(self_checks.TOLERANCES, -1.0))


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
def test_a_failed_check_ends_with_code_three_and_the_site_says_so(
    run: Run, given: tuple[Path, str], tmp_path: Path
) -> None:
    out, kept = tmp_path / "site", tmp_path / "study"
    output = run("build", *given, "--out", out, "--keep-study", kept, *FEW, "--quiet")
    assert output.code == 3
    line = rf"headbook: \d+ self-checks failed: .*{NAME}.*--accept-failed-checks.*\n"
    assert re.fullmatch(line, output.err)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert BANNER in page
    assert NAME in page
    assert NAME in " ".join(Study.load(kept).manifest.failed)
    again = run("render", kept, "--out", tmp_path / "again", "--quiet")
    assert again == (0, "", "")
    assert BANNER in (tmp_path / "again" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
def test_a_failed_check_can_be_accepted_and_the_banner_stays(
    run: Run, given: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "site"
    output = run("build", *given, "--out", out, *FEW, "--quiet", "--accept-failed-checks")
    assert output.code == 0
    assert re.fullmatch(rf"warning: .*{NAME}.*accepted.*\n", output.err)
    assert BANNER in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("strict")
def test_a_study_with_a_failed_check_is_stored_and_told(
    run: Run, given: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "study"
    assert run("collect", *given, "--out", out, *FEW[:3], "--quiet").code == 3
    assert Study.load(out).manifest.failed


@pytest.mark.slow
def test_checks_that_hold_say_nothing(run: Run, given: tuple[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "site"
    assert run("build", *given, "--out", out, *FEW, "--quiet") == (0, "", "")
    assert BANNER not in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("error", [2e-4, float("nan"), float("inf")])
def test_no_number_and_too_large_a_number_both_fail(error: float) -> None:
    check = Check("what holds", "self", error, 1e-4)
    assert not check.passed
    assert check.message().startswith("what holds (self), difference ")
