"""Vega's script is bundled once and kept; what was kept is used only if it is whole."""

from pathlib import Path

import pytest
import vl_convert

from headbook.charts import figure
from machine import small_files

SCRIPT = "one();\r\ntwo('é');"


class Bundler:
    """Stands for vl-convert; counts how often it was asked."""

    asked = 0

    def javascript_bundle(self, entry: str) -> str:
        """A script that is told apart from the real one."""
        assert entry == figure.ENTRY
        self.asked += 1
        return SCRIPT


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figure, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "headbook"


@pytest.fixture
def bundler(monkeypatch: pytest.MonkeyPatch) -> Bundler:
    bundler = Bundler()
    monkeypatch.setattr(figure, "vl_convert", bundler)
    return bundler


def again() -> str:
    """The script, as a new process asks for it."""
    return figure.vega_bundle.__wrapped__()


def test_what_is_kept_is_what_vl_convert_bundles() -> None:
    assert again() == vl_convert.javascript_bundle(figure.ENTRY)


def test_a_second_process_reads_what_the_first_has_kept(place: Path, bundler: Bundler) -> None:
    assert [again(), again(), bundler.asked] == [SCRIPT, SCRIPT, 1]
    assert len([*place.iterdir()]) == 1


@pytest.mark.parametrize("damage", [b"", b"// 0\none();", b"\xff\xfe", SCRIPT.encode()])
def test_what_is_damaged_is_made_again(place: Path, bundler: Bundler, damage: bytes) -> None:
    again()
    (file,) = place.iterdir()
    whole = file.read_bytes()
    for content in (damage, whole[:-1]):
        file.write_bytes(content)
        assert again() == SCRIPT
        assert file.read_bytes() == whole
    assert bundler.asked == 3


def test_a_folder_that_cannot_be_written_costs_time_and_no_more(
    place: Path, bundler: Bundler
) -> None:
    place.write_text("a file, not a folder")
    assert [again(), again(), bundler.asked] == [SCRIPT, SCRIPT, 2]
    assert place.read_text() == "a file, not a folder"


def test_without_a_home_nothing_is_kept(
    tmp_path: Path, bundler: Bundler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything written into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figure, "user_cache_path", lambda name: Path("~/.cache") / name)
    assert [again(), again(), bundler.asked] == [SCRIPT, SCRIPT, 2]
    assert [*tmp_path.iterdir()] == []


def test_a_disk_that_is_full_keeps_no_half_of_it(place: Path, bundler: Bundler) -> None:
    with small_files(10):
        assert again() == SCRIPT
    assert [*place.iterdir()] == []
