"""What a model may be called."""

from pathlib import Path

import pytest

from headbook.errors import ModelError
from headbook.model.checkpoint import check_name


@pytest.mark.parametrize("name", ["demo", "demo-causal", "owner/name", "name", ".", "README.md"])
def test_names_that_something_can_stand_behind(name: str) -> None:
    check_name(name)


def test_a_folder_may_be_called_anything(tmp_path: Path) -> None:
    folder = tmp_path / "-- my model.gguf"
    folder.mkdir()
    check_name(str(folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.gguf", "model 'none.gguf': there is no such file"),
        ("./none", "model './none': neither a folder nor a hub model"),
        ("/none/at/all", "neither a folder nor a hub model"),
        ("a/b/c", "expected 'demo', a local folder or file or a hub id"),
        ("n" * 5_000, "neither a folder nor a hub model"),
        ("n\0", "neither a folder nor a hub model"),
    ],
)
def test_others_are_one_line(name: str, message: str) -> None:
    with pytest.raises(ModelError) as refusal:
        check_name(name)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
