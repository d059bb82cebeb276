"""Options and paths that cannot be used are found before torch is imported."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Run
from headbook.model import checkpoint
from headbook.run import models

# Runs a command, and tells its exit code and whether torch was imported.
COMMAND = """
import json, sys
from headbook.cli import main as cli
sys.argv = ["headbook", *sys.argv[1:]]
code = 0
try:
    cli.main()
except SystemExit as end:
    code = end.code
print(json.dumps([code, "torch" in sys.modules]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with sentences, a model, and folders that hold something else."""
    (tmp_path / "texts.txt").write_text("the cat sees a dog\nthe dog sleeps\n")
    for name in ("model", "weightless", "blank"):
        (tmp_path / name).mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "model/model.safetensors").write_bytes(b"")
    (tmp_path / "weightless/config.json").write_text("{}")
    for taken in ("kept/a", "studies/b", "kept-checkpoints/1"):
        (tmp_path / taken).mkdir(parents=True)
        (tmp_path / taken / "thesis.txt").write_text("years of work")
    (tmp_path / "checkpoints/1").mkdir(parents=True)
    (tmp_path / "checkpoints/1/config.json").write_text("{}")
    (tmp_path / "checkpoints/1/model.safetensors").write_bytes(b"")
    return tmp_path


PAIR = ("compare", "texts.txt", "--models", "model", "model")
ONE = ("collect", "texts.txt", "--model", "model")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*PAIR, "--keep-studies", "kept"), "kept/a: holds something"),
        ((*PAIR, "--keep-studies", "studies"), "studies/b: holds something"),
        (
            ("compare", "texts.txt", "--models", "model", "blank"),
            "model 'blank': the folder has no",
        ),
        (("compare", "texts.txt", "--models", "model", "no folder"), "model 'no folder'"),
        (
            ("checkpoints", "texts.txt", "-m", "checkpoints", "--keep-studies", "kept-checkpoints"),
            "kept-checkpoints/1: holds",
        ),
        (("collect", "texts.txt", "--model", "blank"), "no config.json"),
        (("collect", "texts.txt", "--model", "weightless"), "no weights"),
        ((*ONE, "--tokenizer", "a b"), "tokenizer 'a b'"),
        ((*ONE, "--annotator", "no_such_pipeline"), "annotator 'no_such_pipeline'"),
        ((*ONE, "--target-annotator", "no_such_pipeline"), "annotator 'no_such_pipeline'"),
        ((*ONE, "--adapter", "blank"), "adapter 'blank': it has no adapter_config.json"),
        ((*ONE, "--metrics", "no_such_metric"), "no_such_metric"),
        ((*ONE, "--notes", "none.md"), "none.md"),
        (("collect", "none.txt", "--model", "model"), "none.txt: no such file"),
    ],
)
def test_a_fault_is_found_before_torch_is_imported(
    place: Path, words: tuple[str, ...], named: str
) -> None:
    given = [sys.executable, "-c", COMMAND, *words, "--out", "out"]
    done = subprocess.run(given, cwd=place, check=False, capture_output=True, text=True)
    assert json.loads(done.stdout) == [2, False]
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (place / "out").exists()


@pytest.mark.parametrize("keeps", ["a", "b"])
def test_a_folder_of_kept_studies_that_is_taken_is_found_before_models_are_measured(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch, keeps: str
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(models, "collect_pair", pytest.fail)
    folder = "kept" if keeps == "a" else "studies"
    done = run(*PAIR, "--keep-studies", folder, "--out", "site")
    assert done.code == 2
    assert f"{folder}/{keeps}" in done.err


def test_a_second_model_that_is_missing_is_found_before_the_first_is_measured(
    place: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tiny_folder: Callable[[str], Path],
) -> None:
    """Its name may be that of a model of the hub, which only the hub or its cache knows."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(checkpoint, "is_offline_mode", lambda: True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(models, "collect_study", pytest.fail)
    done = run(
        "compare", "texts.txt", "--models", tiny_folder("bert"), "nobody/nothing", "--out", "site"
    )
    assert done.code == 2
    assert "model 'nobody/nothing'" in done.err
