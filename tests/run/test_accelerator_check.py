"""An accelerator that computes other numbers than the processor is found before a run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headbook.cli.main import main
from headbook.errors import ModelError
from headbook.model import load
from headbook.model.devices import pick_device
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer, probe_texts
from headbook.passes import model_checks
from headbook.passes.model_checks import check_accelerator
from headbook.run.collect import collect
from headbook.text.annotate import Annotator

SECOND = torch.device("cpu", 1)  # torch computes there as on the first, but it is another device


@pytest.fixture(params=["bert", "gpt2", "t5"])
def model(request: pytest.FixtureRequest, tiny_folder: Callable[[str], Path]) -> Model:
    return replace(load_model(str(tiny_folder(request.param)), device="cpu"), device=SECOND)


@contextmanager
def computing_wrongly(
    model: Model, wrong: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Change what one module of this network gives; a copy of the network computes rightly."""
    module = [each for each in model.network.modules() if isinstance(each, torch.nn.LayerNorm)]
    norm = (module or [m for m in model.network.modules() if "Norm" in type(m).__name__])[-1]

    def change(own: torch.nn.Module, _: Any, given: torch.Tensor) -> torch.Tensor:
        return wrong(given) if own is norm else given

    handle = norm.register_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()


def checked(model: Model) -> None:
    encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
    items = probe_texts(encoder)
    assert len(items) == 6
    check_accelerator(model, items)


def test_right_numbers_pass(model: Model) -> None:
    checked(model)
    with computing_wrongly(model, lambda given: given * (1 + 1e-5)):
        checked(model)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda given: given * 1.01,
        lambda given: given.roll(1, -1),
        lambda given: given * torch.nan,
        lambda given: given if given.shape[0] == 1 else given.roll(1, 0),  # in batches alone
    ],
)
def test_wrong_numbers_stop_the_run(
    model: Model, wrong: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    with (
        computing_wrongly(model, wrong),
        pytest.raises(ModelError, match=r"^device 'cpu:1': it computes other numbers") as caught,
    ):
        checked(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_parts_that_run_in_float32_may_round_so(
    name: str, tiny_folder: Callable[[str], Path]
) -> None:
    """Norms of these families run in float32 whatever the number format: 2e-7 on a GPU."""
    loaded = load_model(str(tiny_folder(name)), device="cpu", dtype="float64")
    model = replace(loaded, device=SECOND)
    with computing_wrongly(model, lambda given: given * (1 + 1e-6)):
        checked(model)


@pytest.mark.parametrize(("dtype", "passes"), [("float32", False), ("bfloat16", True)])
def test_the_tolerance_is_that_of_the_number_format(
    tiny_folder: Callable[[str], Path], dtype: str, *, passes: bool
) -> None:
    loaded = load_model(str(tiny_folder("bert")), device="cpu", dtype=dtype)
    model = replace(loaded, device=SECOND)
    with computing_wrongly(model, lambda given: given * 1.02):
        if passes:
            checked(model)
        else:
            with pytest.raises(ModelError, match=r"rounding to float32 explains 0\.001"):
                checked(model)


def test_a_collection_on_such_a_device_ends_in_one_line(
    tiny_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The whole command: the device that torch reports adds up the numbers of embeddings."""
    forward = torch.nn.Embedding.forward
    baseline_run = load_model(str(tiny_folder("bert")), device="cpu")
    right = [*baseline_run.network.modules()]

    def on_second(self: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = forward(self, ids)
        return found if any(self is each for each in right) else found.cumsum(-1)

    monkeypatch.setattr(load, "pick_device", lambda _: SECOND)
    monkeypatch.setattr(model_checks, "on_processor", lambda _: baseline_run)
    monkeypatch.setattr(torch.nn.Embedding, "forward", on_second)
    (tmp_path / "texts.txt").write_text("The dog sees the bird.\n")
    given = [str(tmp_path / "texts.txt"), f"--model={tiny_folder('bert')}", "--annotator=none"]
    monkeypatch.setattr(sys, "argv", ["headbook", "collect", *given, "-q", f"-o{tmp_path / 's'}"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(
        "headbook: device 'cpu:1': it computes other numbers than the processor"
    )
    assert message.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_the_processor_is_not_compared_with_itself(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(model_checks, "on_processor", refuse)
    (tmp_path / "texts.txt").write_text("The dog sees the bird.\n")
    some: dict[str, Any] = {"metrics": "attention_to", "annotator": "none", "importance": "off"}
    collect(tmp_path / "texts.txt", model=str(tiny_folder("bert")), **some)


@pytest.mark.parametrize("version", ["2.8.0", "2.6.1+cpu", "1.13"])
def test_torch_that_computes_wrongly_is_refused_on_mps(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "__version__", version)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(ModelError, match=rf"'mps': torch {version.replace('+', '.')} .* 2\.9 or"):
        pick_device("mps")


@pytest.mark.parametrize("version", ["2.9.0", "2.10.0+cpu", "3.0.0a0"])
def test_later_ones_are_chosen(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "__version__", version)
    assert pick_device("auto").type == "mps"
    assert pick_device("mps").type == "mps"
