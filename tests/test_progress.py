"""One bar for a run: it knows its end from sizes alone, and corrects itself by what is done."""

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import treebank
from headbook.cli.console import Bar, Lines
from headbook.collection.collect import collect
from headbook.progress import Estimate, Silent

STAGES = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(0.1, 100), min_size=1)


class Clock:
    """Tells whatever time it is set to."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@given(STAGES, st.floats(0.01, 50), st.integers(1, 7))
def test_a_plan_whose_parts_are_right_tells_the_time_left_on_any_machine(
    stages: dict[str, float], slowness: float, steps: int
) -> None:
    """However much slower it is: seconds are learnt from what is done."""
    clock = Clock()
    estimate, end = Estimate(clock), clock.now + slowness * sum(stages.values())
    estimate.plan(stages)
    assert estimate.left is None
    shares = [estimate.share]
    for name, seconds in stages.items():
        estimate.stage(name, steps)
        for _ in range(steps):
            clock.now += slowness * seconds / steps
            estimate.advance(1)
            assert estimate.left == pytest.approx(end - clock.now, abs=1e-6 * end)
            shares.append(estimate.share)
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == pytest.approx(1)


def test_stages_that_are_left_out_count_as_done_and_unforeseen_ones_begin_anew() -> None:
    estimate = Estimate(Clock())
    estimate.plan({"corpus": 1.0, "sample": 2.0, "pages": 1.0})
    estimate.stage("pages", 10)
    assert estimate.share == 0.75
    estimate.advance(20)  # more than was said
    assert estimate.share == 1
    estimate.stage("figures", 4)
    estimate.advance(1)
    assert estimate.share == 0.25


def run(displayed: Bar | Lines) -> None:
    """Two stages of a plan of three."""
    with displayed:
        displayed.plan({"corpus": 1.0, "sentences": 1.0, "pages": 2.0})
        for name in ("corpus", "sentences"):
            displayed.stage(name, 4)
            for _ in range(4):
                displayed.advance(1, 1000)


@pytest.mark.parametrize("kind", [Bar, Lines])
def test_speed_is_told_to_those_who_ask(kind: type[Bar | Lines]) -> None:
    for verbose in (False, True):
        file = io.StringIO()
        run(kind(Console(file=file, force_terminal=kind is Bar, width=120), verbose=verbose))
        assert ("tokens/s" in file.getvalue()) == verbose


def test_a_terminal_has_one_bar_whose_end_is_the_end_of_the_command() -> None:
    """What a command leaves out of the plan is not waited for."""
    for without, last in (((), "50 %"), (("pages",), "100 %")):
        file = io.StringIO()
        run(Bar(Console(file=file, force_terminal=True, width=120), without=without))
        *_, drawn = re.findall(r"(?:corpus|sentences)[^\n]*?(\d+ %)", file.getvalue())
        assert drawn == last
        assert "corpus" not in file.getvalue().splitlines()[-1]


class Recorder(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.planned: list[str] = []
        self.stages: dict[str, list[int]] = {}

    def plan(self, stages: Mapping[str, float]) -> None:
        """Keep the names."""
        assert all(seconds >= 0 for seconds in stages.values())
        self.planned += stages

    def stage(self, name: str, amount: int) -> None:
        """Keep the amount."""
        self.stages[name] = [amount, 0]

    def advance(self, amount: int, tokens: int) -> None:
        """Count."""
        self.stages[[*self.stages][-1]][1] += amount


def test_a_run_keeps_to_its_plan(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    file, reported = treebank.write_trees(tmp_path / "trees.conllu"), Recorder()
    collect(
        file,
        model=str(tiny_folder("bert")),
        annotator="none",
        vocabulary_sentences=1,
        sentence_pages="2",
        control="shuffled",
        progress=reported,
    )
    assert reported.planned[-1] == "pages"
    assert [*reported.stages] == reported.planned[:-1]
    assert "shuffled 0" in reported.stages
    for name in ("sample", "sample again", "sentences"):
        expected, done = reported.stages[name]
        assert done == expected > 0
    for expected, done in reported.stages.values():
        assert 0 < done < 3 * expected
