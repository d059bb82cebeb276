"""Pipes and devices where files are expected end with one line, and nothing is read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headbook.author import read_words
from headbook.config import Config
from headbook.errors import ConfigError, ModelError, StudyError
from headbook.model.checkpoint import check_name
from headbook.safe_files import is_endless, read_checked, read_object
from headbook.study.storage import STUDY_FILES
from headbook.study.study import Study
from sites import Site

ZERO = Path("/dev/zero")


def pipe(file: Path) -> Path:
    """Put a pipe that nobody writes to in the place of a file."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    return file


def test_files_and_folders_end_and_pipes_and_devices_may_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    for name in ("file", "link", "dangling", "none", "."):
        assert not is_endless(tmp_path / name)
    (tmp_path / "zero").symlink_to(ZERO)
    assert is_endless(tmp_path / "zero")
    assert is_endless(pipe(tmp_path / "pipe"))
    assert not is_endless(tmp_path / "pipe", pipes=False)
    assert read_object(tmp_path / "pipe") == {}
    assert read_checked(tmp_path / "zero") is None


@pytest.mark.parametrize("name", ["manifest.json", *STUDY_FILES])
def test_a_pipe_in_a_study_is_no_file(encoder_site: Site, tmp_path: Path, name: str) -> None:
    encoder_site.study.save(tmp_path / "study")
    pipe(tmp_path / "study" / name)
    with pytest.raises(StudyError, match=name):
        Study.load(tmp_path / "study")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt", "more.json"])
def test_a_pipe_in_the_folder_of_a_model_is_refused_before_it_is_read(
    tiny_folder: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_folder("bert").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    check_name(str(folder))
    pipe(folder / name)
    with pytest.raises(ModelError, match=f"{name} is a pipe or a device"):
        check_name(str(folder))


def test_a_device_is_no_file_of_options_or_notes() -> None:
    with pytest.raises(ConfigError, match="zero: a device"):
        Config.of(ZERO)
    with pytest.raises(ConfigError, match="--notes: /dev/zero: a device"):
        read_words(ZERO, ())
    with pytest.raises(ConfigError, match="--section: /dev/zero: a device"):
        read_words(None, [ZERO])
