"""A model of somebody else whose files contradict each other is refused in one line, at once."""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from headbook.cli.main import main
from headbook.cli.terminal import user_error
from headbook.errors import ModelError, ResourceError
from headbook.model import load
from headbook.model.load import load_model
from headbook.model.tokenizer import sequence_limit
from headbook.model.weights import check_folder, check_layers

Damage = Callable[[Path], object]


def config(**values: object) -> Damage:
    """Change the configuration of a model."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return change


def written(text: str) -> Damage:
    """Write another configuration."""
    return lambda folder: (folder / "config.json").write_text(text)


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


FAULTS: dict[str, tuple[str, Damage, str]] = {
    "a billion layers": (
        "bert", config(num_hidden_layers=10**9), "num_hidden_layers = 1000000000, but",
    ),
    "a billion layers of a decoder": ("gpt2", config(n_layer=10**9), "n_layer = 1000000000, but"),
    "a billion layers of a list": (
        "gemma3", config(num_hidden_layers=10**9), "num_hidden_layers = 1000000000, but",
    ),
    "a billion layers that share weights": (
        "albert", config(num_hidden_layers=10**9), "num_hidden_layers = 1000000000, but",
    ),
    "a billion layers of a pair": ("bart", config(decoder_layers=10**9), "decoder_layers = 10000"),
    "a billion numbers a token": (
        "bert", config(hidden_size=10**9), "hidden_size = 1000000000, but its",
    ),
    "a billion entries": ("bert", config(vocab_size=10**9), "vocab_size = 1000000000, but its"),
    "no heads": ("bert", config(num_attention_heads=0), "num_attention_heads = 0, expected"),
    "fewer than no layers": ("bert", config(num_hidden_layers=-1), "_layers = -1, expected a"),
    "a width that is a text": ("bert", config(hidden_size="16"), "hidden_size = '16', expected a"),
    "half a layer": ("bert", config(num_hidden_layers=1.5), "num_hidden_layers = 1.5, expected"),
    "a configuration that is a list": ("bert", written("[]"), "config.json: a JSON list, exp"),
    "a configuration that is cut": ("bert", written('{"model_type"'), "config.json: Expecting"),
    "a configuration nested deeply": ("bert", written("[" * 100_000), "config.json: nested too"),
    "weights that are cut": ("bert", cut, "model.safetensors: cut off, damaged"),
    "weights of nothing": (
        "bert", lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors: cut off",
    ),
    "an activation that nobody knows": ("bert", config(hidden_act=5), "got int (value: 5); exp"),
    "a type that is a list": ("bert", config(model_type=[1]), "expected config.json"),
    "heads that do not fit": ("bert", config(num_attention_heads=3), "expected config.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_files_of_a_model_that_do_not_fit_are_one_line_at_once(tmp_path: Path, name: str) -> None:
    family, damage, message = FAULTS[name]
    folder = tiny.write(family, tmp_path / "model")
    damage(folder)
    start = time.monotonic()
    with pytest.raises(ModelError) as caught:
        load_model(str(folder), device="cpu")
    assert time.monotonic() - start < 5
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["albert", "bert", "gpt2", "bart", "t5", "gemma3", "jamba"])
def test_what_fits_passes(tiny_folder: Callable[[str], Path], family: str) -> None:
    check_folder(tiny_folder(family), family)


def test_a_gguf_file_of_a_billion_layers_is_one_line() -> None:
    check_layers("small", 30, 272)
    with pytest.raises(ModelError, match="1,000,000,000 layers, but 272 tensors"):
        check_layers("small", 10**9, 272)


def test_memory_that_ends_while_a_model_is_loaded_is_no_matter_of_batches(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4e18")

    monkeypatch.setattr(load, "_network", full)
    with pytest.raises(ResourceError, match="'bert': out of memory while it is loaded") as caught:
        load_model(str(tiny_folder("bert")), device="cpu")
    message = str(user_error(caught.value))
    assert "--offload auto" in message
    assert "batch" not in message


Refused = Callable[..., str]


@pytest.fixture
def refused(
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Refused:
    """Run ``collect`` with a tiny model, and return the line with which it is refused."""

    def run(*options: str, folder: Path | None = None) -> str:
        (tmp_path / "texts.txt").write_text("The dog sees the bird.\n" * 3)
        given: list[Any] = [tmp_path / "texts.txt", "-o", tmp_path / "study", "-q", *options]
        given += ["--model", folder or tiny_folder("bert"), "--annotator", "none"]
        monkeypatch.setattr(sys, "argv", ["headbook", "collect", *map(str, given)])
        with pytest.raises(SystemExit) as stopped:
            main()
        message = capsys.readouterr().err
        assert stopped.value.code == 2, message
        assert message.count("\n") == 1
        return message

    return run


def test_options_that_the_model_does_not_take_are_one_line(refused: Refused) -> None:
    assert "--max-length: got 999999999, expected at most 72, the positions that" in refused(
        "--max-length", "999999999"
    )
    assert "--max-length: got 1, expected at least 4: 2 tokens of a text, and 2 that" in refused(
        "--max-length", "1"
    )
    assert "--revision: got 'x' with the model" in refused("--revision", "x")
    assert "--seed: got -1, expected 0 to 4294967295" in refused("--seed", "-1")
    assert "--seed: got 99999999999999999999999, expected at most" in refused(
        "--seed", "99999999999999999999999"
    )


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_rotations_and_distances_have_no_last_position(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    assert sequence_limit(load_model(str(tiny_folder(family)), device="cpu"), 1500) == 1500


def test_a_command_says_of_such_a_model_one_line(
    refused: Refused, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder("bert"), tmp_path / "model"))
    config(num_hidden_layers=10**9)(folder)
    message = refused(folder=folder)
    assert message.startswith("headbook: model 'model': config.json: num_hidden_layers")
