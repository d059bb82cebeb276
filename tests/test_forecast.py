"""What a run will take is said before it begins."""

import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headbook.collection.collect import collect
from headbook.collection.forecast import Forecast, forecast
from headbook.config import Config
from headbook.model.architecture import examine
from headbook.model.encode import Encoder
from headbook.model.model import load_model
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
    assert re.fullmatch(r"the run will take about \d+ (s|min) and [\d.]+ GB of memory", found)


def test_time_and_memory_grow_with_what_is_asked_for(tiny_folder: Callable[[str], Path]) -> None:
    model = load_model(str(tiny_folder("bert")))
    encoder = Encoder(
        model,
        limit=64,
        targets=Annotator.load("none"),
        rarities={Side.SOURCE: Rarity.load("none", ())},
    )
    alike, stacks = probes(encoder)[-ALIKE:], [*examine(model).stacks.values()]

    def found(seconds: float, sampled: int, copies: int) -> Forecast:
        stages = {"corpus": seconds, "sample": seconds}
        return forecast(model, alike, stages, stacks, sampled=sampled, copies=copies)

    one, large = found(1e3, 10, 0), found(1e6, 1000, 1)
    assert 30 < large.seconds / one.seconds < 30_000  # a thousand, but for what disturbs the clock
    assert one.memory is not None
    assert large.memory is not None
    assert large.memory > one.memory


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
