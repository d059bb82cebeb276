"""Progress on a terminal, in a log, and what a run reports."""

import io
import re
from collections.abc import Callable
from contextlib import closing
from functools import partialmethod
from pathlib import Path

import pytest
from rich.console import Console

import treebank
from headbook.ablation.importance import parameters_of
from headbook.errors import ConfigError
from headbook.model.load import load_model
from headbook.progress import Display, Messages, NoProgress, NotebookBar, reporter
from headbook.run.collect import collect


def run(displayed: Display, stages: tuple[str, ...] = ("corpus", "sentences")) -> None:
    """Two stages of four batches, of which the first is longer than was estimated."""
    with displayed:
        for name in stages:
            displayed.stage(name, 3_000)
            for _ in range(4):
                displayed.advance(1_000, 1_000)


def printed(*, terminal: bool, verbose: bool = False) -> str:
    """What a run prints."""
    file = io.StringIO()
    run(Display(Console(file=file, force_terminal=terminal, width=120), verbose=verbose))
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", file.getvalue())


@pytest.mark.parametrize("terminal", [True, False])
def test_speed_is_known_to_those_who_ask(terminal: bool) -> None:
    for verbose in (False, True):
        assert ("tokens/s" in printed(terminal=terminal, verbose=verbose)) == verbose


def test_a_terminal_has_one_bar_for_the_current_stage() -> None:
    lines = [line for line in re.split(r"[\r\n]+", printed(terminal=True)) if line.strip()]
    assert re.fullmatch(r" +sentences ━+ 100% 0:00:00 4,000 tokens *", lines[-1])
    assert not [line for line in lines if "corpus" in line and "sentences" in line]


def test_a_log_has_a_line_at_the_begin_and_the_end_of_each_stage() -> None:
    assert printed(terminal=False).splitlines() == [
        "corpus: 0 %", "corpus: 100 %, 3,000 tokens",
        "sentences: 0 %", "sentences: 100 %, 3,000 tokens",
    ]  # fmt: skip


def test_a_log_has_lines_now_and_then_with_the_time_left() -> None:
    """Every ten seconds; 30 batches of two seconds each take a minute."""
    now, file = 100.0, io.StringIO()
    displayed = Display(Console(file=file, get_time=lambda: now))
    displayed.stage("corpus", 300)
    for _ in range(30):
        now += 2
        displayed.advance(10, 10)
    *lines, last = file.getvalue().splitlines()
    assert lines == ["corpus: 0 %"] + [
        f"corpus: {round(100 * done / 30)} %, {10 * done} tokens, 0:00:{60 - 2 * done} left"
        for done in (5, 10, 15, 20, 25)
    ]
    assert last == "corpus: 100 %, 300 tokens"


def test_lines_keep_their_brackets() -> None:
    file = io.StringIO()
    Display(Console(file=file)).message("overview: site[bold]/index.html")
    assert file.getvalue() == "overview: site[bold]/index.html\n"


def test_a_call_shows_a_bar_where_one_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    own = NoProgress()
    for given, kind in ((False, NoProgress), (own, NoProgress), (True, Messages)):
        with reporter(given) as used:
            assert type(used) is kind
    with reporter(own) as used:
        assert used is own
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", terminal)
    with reporter(True) as used:
        assert isinstance(used, Display)
    with pytest.raises(ConfigError, match="progress: got an object of type str"), reporter("yes"):  # type: ignore[arg-type]
        pass


def test_messages_alone_reach_a_program_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with reporter(True) as used:
        used.stage("corpus", 10)
        used.advance(10, 10)
        used.message("resuming: 1 of 2 shards done")
    assert capsys.readouterr().err == "resuming: 1 of 2 shards done\n"


class Cell:
    """The output of a cell of a notebook."""

    def __init__(self) -> None:
        self.htmls: list[str] = []

    def __call__(self, html: str, *, display_id: bool) -> "Cell":
        """Show an output that can be updated."""
        assert display_id
        self.htmls.append(html)
        return self

    update = partialmethod(__call__, display_id=True)


def test_a_notebook_has_a_bar_that_leaves_messages_alone() -> None:
    cell = Cell()
    with closing(NotebookBar(cell, str)) as bar:
        bar.message("resuming: <1>")
        bar.stage("corpus", 400)
        for _ in range(400):
            bar.advance(1, 1)
    values = [int(value) for html in cell.htmls for value in re.findall(r'value="(\d+)"', html)]
    assert values == [*range(101)]  # once for each per cent
    assert "corpus" in cell.htmls[-2]
    assert cell.htmls[-1] == "<div>resuming: &lt;1&gt;</div>"


class Recorder(NoProgress):
    """Keeps the stages that a run reports, with the amount announced and the amount done."""

    def __init__(self) -> None:
        self.stages: dict[str, list[int]] = {}

    def stage(self, name: str, amount: int) -> None:
        """Keep the amount."""
        self.stages[name] = [amount, 0]

    def advance(self, amount: int, tokens: int) -> None:
        """Count."""
        self.stages[[*self.stages][-1]][1] += amount


def test_stages_take_about_as_much_as_they_announce(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
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
    assert [*reported.stages] == [
        "corpus", "random sequences", "sample", "sample again", "sentences", "shuffled 0",
        "importance", "what heads write",
    ]  # fmt: skip
    for name in ("sample", "sample again", "sentences"):
        expected, done = reported.stages[name]
        assert done == expected > 0
    for expected, done in reported.stages.values():
        assert 0 < done < 3 * expected


def test_parameters_are_counted_without_the_vocabulary(tiny_folder: Callable[[str], Path]) -> None:
    model = load_model(str(tiny_folder("bert")))
    words = model.base_model.get_input_embeddings().weight
    every = sum(each.numel() for each in model.network.parameters())
    assert parameters_of(model) == (every - words.numel(), tuple(words.shape))
