"""What a run will take is said before it begins."""

import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headbook.collection import forecast as module
from headbook.collection.collect import collect
from headbook.collection.costs import CORPUS, Sizes, parameters_of, plan
from headbook.collection.forecast import Forecast, forecast, speed_of
from headbook.config import Config
from headbook.model.architecture import examine
from headbook.model.encode import Encoder
from headbook.model.model import Model, load_model
from headbook.model.sequences import ALIKE, probes
from headbook.progress import lasting
from headbook.room import taken
from headbook.terms import Side
from headbook.text.annotate import Annotator
from headbook.text.rarity import Rarity
from printed import Lines


def test_a_run_says_what_it_will_take(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("the cat sees\nthe dog runs\n")
    lines = Lines()
    few = Config(model=str(tiny_folder("bert")), metrics="attention_to", importance="off")
    collect(file, few, progress=lines)
    (found,) = [line for line in lines.lines if "run will take" in line]
    wanted = r"the run will take about \d+ s and [\d.]+ GB of memory; its pages \d+ s more"
    assert re.fullmatch(wanted, found)


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> Model:
    return load_model(str(tiny_folder("bert")))


def test_time_and_memory_grow_with_what_is_asked_for(model: Model) -> None:
    stacks = [*examine(model).stacks.values()]

    def found(seconds: float, sampled: int, copies: int) -> Forecast:
        stages = {"corpus": seconds, "sample": 2 * seconds, "pages": 7.0}
        return forecast(model, stages, stacks, sampled=sampled, copies=copies)

    one, large = found(10, 10, 0), found(1e4, 1000, 1)
    assert (one.seconds, large.seconds) == (30, 3e4)
    assert one.pages == large.pages == 7
    assert one.memory is not None
    assert large.memory is not None
    assert large.memory > one.memory


def test_speed_is_that_of_the_fastest_pass(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    none = {Side.SOURCE: Rarity.load("none", ())}
    encoder = Encoder(model, limit=64, targets=Annotator.load("none"), rarities=none)
    alike = probes(encoder)[-ALIKE:]
    monkeypatch.setattr(module, "_passes", lambda *_: iter([3.0, 0.5, 2.0]))
    tokens = sum(len(item.tokens[Side.SOURCE]) for item in alike)
    network = sum(p.numel() for p in model.network.parameters())
    vocabulary = model.body.get_input_embeddings().weight.numel()
    assert speed_of(model, alike) == pytest.approx(2 * (network - vocabulary) * tokens / 0.5)


def test_a_slower_model_takes_longer_and_its_pages_do_not(model: Model) -> None:
    parameters, vocabulary = parameters_of(model)
    sizes = Sizes(
        tokens=20.0, sentences=1000, listed=50, metrics=60, spaces=2, twins=("shuffled",),
        random=5000, parameters=parameters, vocabulary=vocabulary,
    )  # fmt: skip
    stacks = examine(model).stacks
    fast, slow = (plan(sizes, stacks, Config(), speed) for speed in (1e9, 1e6))
    assert [*fast] == [*slow]
    assert {stage for stage in fast if fast[stage] == slow[stage]} == {"pages"}
    passes = CORPUS * 2 * parameters * 20 * 1000
    assert slow["corpus"] - fast["corpus"] == pytest.approx(passes * (1e-6 - 1e-9))
    assert slow["importance"] == pytest.approx(1000 * fast["importance"])


@pytest.mark.skipif(sys.platform == "win32", reason="nobody counts there")
def test_what_is_taken_is_what_the_system_says() -> None:
    unit = 1 if sys.platform == "darwin" else 1024
    now = taken()
    assert now is not None
    assert 0 <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - now < 1e8


def test_times_in_words() -> None:
    assert [lasting(s) for s in (42, 99.4, 101, 3600, 36_000)] == [
        "42 s", "99 s", "2 min", "60 min", "10 h"
    ]  # fmt: skip
