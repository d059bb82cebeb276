"""Names of the hook in transformers: there while a network needs them, and not afterwards."""

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

import headbook
from headbook.errors import HeadbookError
from headbook.model import attention_hook
from headbook.model.load import load_model
from headbook.progress import NoProgress

TEXTS = ["the cat sees the dog .", "the old fisher sleeps in the garden ."]
QUICK: dict[str, Any] = {
    "annotator": "none", "language": "none", "importance": "off", "circuits": "off",
    "control": "untrained", "control_seeds": 1, "sentence_pages": "0",
}  # fmt: skip
Tiny = Callable[[str], Path]


def registered() -> tuple[dict[str, Any], ...]:
    """All functions of both interfaces, by name."""
    return tuple({**each._global_mapping} for each in (AttentionInterface, AttentionMaskInterface))


@pytest.fixture(autouse=True)
def without_other_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count only the networks of one test, under a name of its own."""
    monkeypatch.setattr(attention_hook, "NAME", "headbook_alone")
    monkeypatch.setattr(attention_hook, "_users", set())
    monkeypatch.setattr(attention_hook, "_earlier", {})


class AtStage(NoProgress):
    """Calls a function when a stage begins."""

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self.name, self.call = name, call

    def stage(self, name: str, amount: int) -> None:
        """Call the function at its stage."""
        if name == self.name:
            self.call()


def collect(model: Path, progress: NoProgress | bool = False) -> headbook.Study:
    return headbook.collect(TEXTS, model=str(model), progress=progress, **QUICK)


def fails() -> None:
    raise RuntimeError("stop")


@pytest.mark.parametrize("family", ["bert", "t5", "gpt_neo"])
def test_names_are_there_during_a_run_only(family: str, tiny_folder: Tiny) -> None:
    before, during = registered(), list[Any]()
    texts = [(text, "the dog .") for text in TEXTS] if family == "t5" else TEXTS
    study = headbook.collect(
        texts, model=str(tiny_folder(family)),
        progress=AtStage("sample", lambda: during.append(registered())), **QUICK,
    )  # fmt: skip
    assert during
    assert all("headbook_alone" in each for each in during[0])
    assert len(study.baselines) == 1  # its random network had the hook as well
    assert registered() == before


def test_names_are_gone_after_ablations_and_comparisons(tiny_folder: Tiny, tmp_path: Path) -> None:
    before, model = registered(), str(tiny_folder("gpt2"))
    assert len(headbook.ablate(TEXTS, model, heads=["L0-H1"])) > 0
    assert registered() == before
    options: Any = {**QUICK, "control": "none", "metrics": "attention_distance"}
    headbook.compare(TEXTS, models=(model, "untrained"), out=tmp_path / "site", **options)
    assert registered() == before


def test_names_are_gone_after_an_error(tiny_folder: Tiny) -> None:
    before = registered()
    with pytest.raises(RuntimeError, match="stop") as stopped:
        collect(tiny_folder("bert"), AtStage("sentences", fails))
    assert registered() == before  # while the traceback holds the network
    assert stopped.value.__traceback__ is not None
    with pytest.raises(HeadbookError, match="L9-H1"):
        headbook.ablate(TEXTS, str(tiny_folder("bert")), heads=["L9-H1"])
    assert registered() == before


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_run_inside_another_leaves_it_the_names(in_thread: bool, tiny_folder: Tiny) -> None:
    before, inner = registered(), list[headbook.Study]()

    def run() -> None:
        inner.append(collect(tiny_folder("bert")))

    def begin() -> None:
        if not in_thread:
            run()
            return
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    outer = collect(tiny_folder("bert"), AtStage("corpus", begin))
    assert len(inner) == 1
    assert outer.heads.equals(inner[0].heads)
    assert registered() == before


def test_runs_that_overlap_in_two_threads_end_with_the_last(tiny_folder: Tiny) -> None:
    before, first_waits, second_done = registered(), threading.Event(), threading.Event()
    studies: dict[str, headbook.Study] = {}

    def wait() -> None:
        first_waits.set()
        assert second_done.wait(60)

    def first() -> None:
        studies["first"] = collect(tiny_folder("bert"), AtStage("sample", wait))

    thread = threading.Thread(target=first)
    thread.start()
    assert first_waits.wait(60)
    studies["second"] = collect(tiny_folder("bert"))
    assert "headbook_alone" in registered()[0]
    second_done.set()
    thread.join()
    assert studies["first"].heads.equals(studies["second"].heads)
    assert registered() == before


def test_a_network_that_is_still_held_keeps_working(tiny_folder: Tiny) -> None:
    before = registered()
    model = load_model(str(tiny_folder("bert")), device="cpu")
    ids = torch.tensor([[5, 6, 7]])
    expected = model.base_model(ids).last_hidden_state
    collect(tiny_folder("bert"))
    assert torch.equal(model.base_model(ids).last_hidden_state, expected)
    del model
    gc.collect()
    assert registered() == before


def test_a_function_of_the_same_name_comes_back(
    tiny_folder: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AttentionInterface._global_mapping, "headbook_alone", fails)
    before = registered()
    collect(tiny_folder("bert"))
    assert registered() == before
    assert registered()[0]["headbook_alone"] is fails
