"""Shards that cannot be measured are set aside, and those that need too much memory are split."""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from headbook.cli.main import _check_outcome
from headbook.config import Config
from headbook.errors import ModelError, NonFiniteStateError, OutputError, PartialResultError
from headbook.model import forward
from headbook.progress import NoProgress
from headbook.run.collect import collect
from headbook.run.prepare import Run, RunLog, prepare
from headbook.run.retries import MAX_HALVINGS, measure_part
from headbook.run.shards import MAX_TRIES, SHARD_SENTENCES
from headbook.run.store import Part
from headbook.site.sites import render
from headbook.study.corpus_sums import CorpusSums
from headbook.study.study import Study, merge

LAST = 60  # tokens of a text that the model can take; at the next position it has no numbers
OPTIONS: dict[str, Any] = {
    "metrics": "attention_to,cosine_to_input,head_distance",
    "annotator": "none",
    "language": "none",
    "importance": "off",
    "sample_sentences": 20,
    "sentence_pages": "3",
    "exemplars": 1,
    "dtype": "float64",
}
SENTENCES = SHARD_SENTENCES + 40


def damaged(folder: Path, source: Path, name: str, place: int) -> str:
    """A copy of a model of whose weights some are NaN."""
    folder.mkdir(exist_ok=True)
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (found,) = [each for each in weights if each.endswith(name)]
    weights[found][place] = torch.nan
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    return damaged(folder, tiny_folder("bert"), "position_embeddings.weight", LAST)


def write(file: Path, sentences: list[str]) -> Path:
    file.write_text("\n".join(sentences), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Two shards of sentences."""
    draw = np.random.default_rng(0)
    words = ("the", "cat", "dog", "sees", "small", "bird", "house", "old", "runs")
    return [" ".join(draw.choice(words, draw.integers(2, 9))) for _ in range(SENTENCES)]


@pytest.fixture(scope="module")
def poisoned(lines: list[str]) -> list[str]:
    """The same; twenty cannot be measured, of which most are in one shard."""
    return [*(f"{'the ' * (LAST + 2)}cat{' dog' * more}" for more in range(20)), *lines[20:]]


@pytest.fixture(scope="module")
def study(model: str, poisoned: list[str], tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("texts")
    options = OPTIONS | {"control": "shuffled"}
    return collect(write(folder / "texts.txt", poisoned), model=model, **options)


@pytest.mark.slow
def test_the_other_shards_are_measured_and_their_numbers_are_right(
    study: Study, model: str, poisoned: list[str], tmp_path: Path
) -> None:
    # What the model is compared with is not tried on them.
    assert not any(each.baseline for each in study.manifest.not_measured)
    (whole,) = [each for each in study.manifest.not_measured if len(each.sentences) > 1]
    assert len(whole.sentences) == SHARD_SENTENCES
    lost = not_measured(study)
    assert lost > {*range(20)}
    assert len(lost) == SHARD_SENTENCES + len(study.manifest.not_measured) - 1
    assert study.manifest.places == SENTENCES
    rest = [text for place, text in enumerate(poisoned) if place not in lost]
    alone = collect(write(tmp_path / "rest.txt", rest), model=model, **OPTIONS)
    assert study.manifest.counts == alone.manifest.counts
    mine, theirs = (
        each.heads.query("metric != 'head_distance'").reset_index(drop=True)
        for each in (study, alone)
    )
    np.testing.assert_allclose(mine["value"], theirs["value"], atol=1e-12)
    np.testing.assert_allclose(mine["low"], theirs["low"], atol=1e-12)
    assert not lost & {each.index for each in study.sentence_data.listed}


def not_measured(study: Study) -> set[int]:
    """Places of the sentences without numbers."""
    names = chain.from_iterable(each.sentences for each in study.manifest.not_measured)
    return {int(name.rpartition(":")[2]) - 1 for name in names}


def test_one_sentence_costs_no_other(model: str, lines: list[str], tmp_path: Path) -> None:
    options = OPTIONS | {"control": "shuffled"}
    few = [*lines[:30], "the " * (LAST + 5), *lines[30:40]]
    study = collect(write(tmp_path / "texts.txt", few), model=model, **options)
    (alone,) = study.manifest.not_measured
    assert alone.sentences == ("texts.txt:31",)
    message = rf"sentence texts\.txt:31: token {LAST} has .*stack self, input"
    assert re.match(message, alone.why)
    (line,) = study.manifest.lacking
    assert line == f"1 of 41 sentences could not be measured: {alone.why}"
    del few[30]
    rest = collect(write(tmp_path / "rest.txt", few), model=model, **options)
    assert study.manifest.counts == rest.manifest.counts
    np.testing.assert_allclose(study.heads["value"], rest.heads["value"], atol=1e-12)
    np.testing.assert_allclose(study.compared["value"], rest.compared["value"], atol=1e-12)


def test_sentence_and_layer_are_named(model: str, tmp_path: Path) -> None:
    file = write(tmp_path / "texts.txt", ["the " * (LAST + 5)])
    message = rf"sentence texts\.txt:1: token {LAST} has .*stack self, input"
    with pytest.raises(ModelError, match=message) as caught:
        collect(file, model=model, **OPTIONS)
    assert "\n" not in str(caught.value)


def test_a_layer_that_gives_no_numbers_is_named(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Of the last one no attention tells, of the first one it does before a sentence is read."""
    file = write(tmp_path / "texts.txt", ["the cat"])
    for layer, message in (
        (1, "sentence texts.txt:1: .*layer 1, state 'out'"),
        (0, "weights of attention in stack self, layer 1 are NaN"),
    ):
        name = f"layer.{layer}.output.dense.bias"
        folder = damaged(tmp_path / f"model{layer}", tiny_folder("bert"), name, 3)
        with pytest.raises(ModelError, match=message):
            collect(file, model=folder, **OPTIONS)


@pytest.mark.soak
@pytest.mark.slow
def test_workers_set_the_same_aside(
    study: Study, model: str, poisoned: list[str], tmp_path: Path
) -> None:
    """Of two shards; one device of three has nothing to do."""
    options = OPTIONS | {"control": "shuffled", "device": "cpu,cpu,cpu"}
    file = write(tmp_path / "texts.txt", poisoned)
    other = collect(file, model=model, work=tmp_path / "work", **options)
    for folder, each in (("one", study), ("two", other)):
        each.save(tmp_path / folder)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


@pytest.mark.slow
def test_pages_and_the_exit_say_what_is_missing(study: Study, tmp_path: Path) -> None:
    render(study, tmp_path / "site")
    (line, *_) = study.manifest.lacking
    assert line.startswith(f"{len(not_measured(study)):,} of {SENTENCES:,} sentences could not be")
    assert "could not be measured" in (tmp_path / "site/index.html").read_text(encoding="utf-8")
    methods = (tmp_path / "site/methods.html").read_text(encoding="utf-8")
    assert "texts.txt:1, " in methods
    with pytest.raises(PartialResultError, match="could not be measured"):
        _check_outcome(Config(), (), study.manifest.lacking)


@pytest.mark.slow
def test_merged_studies_keep_what_is_missing(study: Study, model: str, tmp_path: Path) -> None:
    file = write(tmp_path / "more.txt", ["the old house", "the dog runs"])
    more = collect(file, model=model, **OPTIONS, control="shuffled")
    whole = merge([study, more])
    assert whole.manifest.not_measured == study.manifest.not_measured
    assert max(each.index for each in whole.sentence_data.listed) == SENTENCES + 1


def test_less_memory_gives_smaller_batches_and_the_same_numbers(
    model: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU that is full at a quarter of the tokens that were asked for."""
    file = write(tmp_path / "texts.txt", lines[:300])
    options = OPTIONS | {"sample_sentences": 150}  # more than 512 tokens
    whole = collect(file, model=model, **options)
    inputs, sizes = forward.model_inputs, list[int]()

    def small(batch: Any) -> dict[str, torch.Tensor]:
        given = inputs(batch)
        sizes.append(given["input_ids"].numel())
        if sizes[-1] > Config().batch_tokens // 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return given

    monkeypatch.setattr(forward, "model_inputs", small)
    split = collect(file, model=model, **options)
    ending = "at most 512 tokens in a batch, not 2,048, as memory ran out."
    parts = ("corpus/000000", "sample", "sentences")
    assert split.manifest.fallbacks == tuple(f"model, {part}: {ending}" for part in parts)
    np.testing.assert_allclose(split.heads["value"], whole.heads["value"], atol=1e-12)


@pytest.fixture
def run(model: str, lines: list[str], tmp_path: Path) -> Iterator[Run]:
    """A run whose parts are measured with at most 2,048 tokens in a batch."""
    file = write(tmp_path / "few.txt", lines[:3])
    config = Config.of(model=model, **OPTIONS)
    with prepare([str(file)], config, NoProgress(), None) as prepared:
        yield prepared


class Failing:
    """Measures nothing: raises errors in turn, then returns empty sums; keeps the budgets."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.budgets = [*errors], list[int]()

    def __call__(self, budget: int, _: object) -> CorpusSums:
        """Raise the next error."""
        self.budgets.append(budget)
        if self.errors:
            raise self.errors.pop(0)
        return CorpusSums()


def test_smaller_batches_have_an_end(run: Run) -> None:
    full = Failing(*(MemoryError() for _ in range(99)))
    with pytest.raises(MemoryError):
        measure_part(run, "x", CorpusSums, full)
    assert full.budgets == [2048 >> halved for halved in range(MAX_HALVINGS + 1)]


def test_smaller_batches_stay_for_the_next_attempts(run: Run) -> None:
    """And at the smallest ones each error of memory is one of the attempts."""
    some = Failing(MemoryError(), ValueError("odd"), MemoryError(), ValueError("odd"))
    part = measure_part(run, "x", CorpusSums, some, tries=MAX_TRIES)
    assert some.budgets == [2048, 1024, 1024, 512, 512]
    assert (part.halvings, part.error) == (2, "")
    assert run.log.halvings == {"x": 2}
    full = Failing(*(MemoryError() for _ in range(99)))
    failed = measure_part(run, "y", CorpusSums, full, tries=MAX_TRIES)
    assert full.budgets == [2048 >> h for h in range(MAX_HALVINGS)] + [32] * MAX_TRIES
    assert failed.error == "MemoryError: "
    assert run.log.halvings == {"x": 2}


def test_another_error_is_not_about_memory(run: Run) -> None:
    wrong = Failing(RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes"):
        measure_part(run, "x", CorpusSums, wrong)
    assert wrong.budgets == [2048]


def test_what_is_no_fault_of_a_shard_ends_the_run(run: Run) -> None:
    for error in (OutputError("no room"), RuntimeError("CUDA error: device-side assert")):
        ends = Failing(error)
        with pytest.raises(type(error)):
            measure_part(run, "x", CorpusSums, ends, tries=MAX_TRIES)
        assert len(ends.budgets) == 1
    odd = Failing(*(ValueError("odd\nline") for _ in range(99)))
    part = measure_part(run, "x", CorpusSums, odd, tries=MAX_TRIES)
    assert part.error == "ValueError: odd line"
    assert len(odd.budgets) == MAX_TRIES


def test_a_shard_without_numbers_is_not_tried_again(run: Run) -> None:
    """Up to sixteen of its sentences are excluded one by one, but never all."""
    for number, size, excluded in ((16, 17, 16), (17, 99, 16), (4, 4, 3), (1, 1, 0)):
        errors = [NonFiniteStateError({index: f"of {index}"}) for index in range(number)]
        broken = Failing(*errors)
        part = measure_part(run, "x", CorpusSums, broken, size=size, tries=MAX_TRIES)
        fails = excluded < number
        assert len(broken.budgets) == excluded + 1
        assert part.error == (f"of {excluded}" if fails else "")
        assert len(part.failed_sentences) == (0 if fails else number)


def test_where_every_shard_fails_the_run_ends() -> None:
    failing = [(number, Part(CorpusSums(), error="odd")) for number in range(9)]
    came = list[int]()

    def results() -> Any:
        for number, result in failing:
            came.append(number)
            yield number, result

    with pytest.raises(ModelError, match="no shard could be measured; of shard 0: odd"):
        list(RunLog().measured(results()))
    assert came == [0, 1, 2]
    with pytest.raises(ModelError, match="no shard"):
        list(RunLog().measured(failing[:2]))
