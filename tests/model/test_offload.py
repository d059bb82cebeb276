"""Weights that stay on disk until they are needed: the same numbers, and nothing left behind."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

import same_tables
import treebank
from headbook.errors import ConfigError, ModelError
from headbook.model.devices import offload_place, read_parameter
from headbook.model.load import load_model
from headbook.run.collect import collect
from headbook.study.study import Study

Folder = Callable[[str], Path]


def study(model: Path, place: Path, **options: Any) -> Study:
    """A study of a few sentences with everything that reads weights."""
    file = treebank.write_trees(place / "trees.conllu")
    return collect(file, model=str(model), annotator="none", **options)


def left() -> set[Path]:
    """Folders of weights that are there."""
    return {*Path(gettempdir()).glob("headbook-offload-*")}


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "loader", "target"),
    [("bert", AutoModelForMaskedLM, "masked_loss"), ("llama", AutoModelForCausalLM, "loss")],
)
def test_layers_on_disk_give_the_same_numbers(
    family: str, loader: Any, target: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    before, model = left(), tmp_path / "model"
    shutil.copytree(tiny_folder(family), model)
    torch.manual_seed(0)
    loader.from_config(AutoConfig.from_pretrained(model)).save_pretrained(model)
    whole = study(model, tmp_path)
    assert target in {*whole.importance["target"]}
    moved = study(model, tmp_path, offload="disk")
    found = [*same_tables.differences(same_tables.tables(whole), same_tables.tables(moved))]
    assert sum(each.rows for each in found) > 0
    assert {each.table: each.largest for each in found if each.largest > 0} == {}
    assert left() == before


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5"])
def test_weights_on_disk_are_read_with_their_numbers(family: str, tiny_folder: Folder) -> None:
    whole = load_model(str(tiny_folder(family)), device="cpu")
    with offload_place("disk") as offload:
        moved = load_model(str(tiny_folder(family)), device="cpu", offload=offload)
        names = [name for name, each in moved.network.named_parameters() if each.is_meta]
        assert names
        for path, _, name in (each.rpartition(".") for each in names):
            wanted = read_parameter(whole.network.get_submodule(path), name)
            assert wanted is not None
            found = read_parameter(moved.network.get_submodule(path), name)
            assert found is not None
            assert found.equal(wanted)
        assert all(moved.network.get_parameter(name).is_meta for name in names)


@pytest.mark.soak
@pytest.mark.slow
def test_what_memory_does_not_hold_goes_to_disk(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load_model(str(tiny_folder("llama")), device="cpu")
    size = sum(each.nbytes for each in whole.network.parameters())
    # Room for all but the last layer, beside that for one which is read when it runs.
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: {"cpu": size})
    with offload_place("auto") as offload:
        moved = load_model(str(tiny_folder("llama")), device="cpu", offload=offload)
        kept = [not each.is_meta for each in moved.network.parameters()]
        assert 0 < sum(kept) < len(kept)
    one = study(tiny_folder("llama"), tmp_path)
    other = study(tiny_folder("llama"), tmp_path, offload="auto")
    found = same_tables.differences(same_tables.tables(one), same_tables.tables(other))
    assert [str(each) for each in found if each.largest > 0] == []


def test_the_folder_goes_when_a_run_fails() -> None:
    before = left()
    found: set[Path] = set()

    def fail() -> None:
        with offload_place("disk"):
            found.update(left() - before)
            raise ModelError("stopped")

    with pytest.raises(ModelError):
        fail()
    assert len(found) == 1
    assert left() == before


def test_a_missing_package_is_named(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headbook.model.devices.find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"needs the package accelerate; .*headbook\[large\]"):
        study(tiny_folder("bert"), tmp_path, offload="disk")


def test_what_needs_all_weights_is_refused(tiny_folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="offload: got 'disk', expected off beside control="):
        study(tiny_folder("bert"), tmp_path, offload="disk", control="untrained")
    with pytest.raises(ConfigError, match="offload: got 'ram', expected one of off, auto, disk"):
        study(tiny_folder("bert"), tmp_path, offload="ram")
