"""What is asked for is checked without using it up."""

import os
from pathlib import Path

import pytest

from headbook.author import read_notes
from headbook.config import Config
from headbook.errors import ConfigError
from headbook.resources import folder
from headbook.run.arguments import check_arguments

INPUT = str(folder("sample_inputs") / "sentences.txt")


def test_notes_from_a_pipe_are_left_to_the_run() -> None:
    """As a shell gives them for ``--notes <(command)``."""
    theirs, mine = os.pipe()
    os.write(mine, b"seen by nobody else")
    os.close(mine)
    notes = Path(f"/dev/fd/{theirs}")
    try:
        check_arguments([INPUT], Config(notes=notes), "demo")
        assert read_notes(notes)["notes"] == "seen by nobody else"
    finally:
        os.close(theirs)


def test_notes_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--notes: .*no\.md"):
        check_arguments([INPUT], Config(notes=tmp_path / "no.md"), "demo")
