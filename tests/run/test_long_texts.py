"""Texts so long that tables of all pairs of their tokens do not fit into memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headbook
import tiny
from headbook.config import Config
from headbook.errors import ConfigError
from headbook.memory import MIN_FITTING_TOKENS, longest_text, map_memory
from headbook.metrics import all_metrics
from headbook.schema import AttentionStack, Side
from headbook.study.study import Study
from sites import make_study

WORDS = ("the", "old", "cat", "sees", "a", "small", "red", "bird", "near", "the", "house", ".")
LENGTH = 1500  # tokens of a long text
LONGER = 800  # than what has room, too
MEMORY = "100MB"
COLLECT = """
import json, resource, sys
import headbook
from headbook.model.load import load_model
text, model, study, options = sys.argv[1:]
load_model(model)
peaks = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
headbook.collect([text], model=model, **json.loads(options)).save(study)
peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(json.dumps(peaks))
"""
METRICS = "attention_distance,cosine_to_input,head_distance,variability,context_similarity"
OPTIONS = {
    "max_length": LENGTH, "memory": MEMORY, "metrics": METRICS, "annotator": "none",
    "language": "none", "importance": "auto",
}  # fmt: skip


def long_text(tokens: int) -> str:
    """A text of about so many tokens."""
    return " ".join(WORDS[place % len(WORDS)] for place in range(tokens))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes texts of any length."""
    return tiny.write("llama", tmp_path_factory.mktemp("long") / "model")


@pytest.fixture(scope="module")
def alone(model: Path) -> tuple[Study, float]:
    """A study of one long text, collected by a process of its own, and bytes above the model."""
    folder = model.parent
    text = folder / "long.txt"
    text.write_text(long_text(LENGTH) + "\n", encoding="utf-8")
    given = (str(text), str(model), str(folder / "study"), json.dumps(OPTIONS))
    ran = subprocess.run(
        [sys.executable, "-c", COLLECT, *given],
        check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    before, after = json.loads(ran.stdout.splitlines()[-1])
    unit = 1 if sys.platform == "darwin" else 1024
    return Study.load(folder / "study"), (after - before) * unit


@pytest.mark.soak
@pytest.mark.slow
def test_memory_grows_with_a_layer_not_with_all_tables(alone: tuple[Study, float]) -> None:
    """A table of all pairs and a layer's heads takes 36 MB; with room for all it is 960 MB."""
    _, peak = alone
    assert peak < 500e6


def test_what_has_no_room_is_named_and_the_rest_is_there(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text(long_text(LONGER) + "\n", encoding="utf-8")
    study = make_study(text, model, **OPTIONS)
    gaps = {gap.what: gap.why for gap in study.manifest.gaps}
    for name in ("head_distance", "variability", "context_similarity"):
        assert "--memory allows more" in gaps[all_metrics()[name].title]
    for name in ("maps and pages of long texts", "importance of heads"):
        assert "every text has more than 721 tokens" in gaps[name]
    assert study.corpus_sums.ablation is None
    assert not study.sentence_data.maps
    assert not study.sentence_data.exemplars
    assert all(check.passed for check in study.manifest.checks)
    headbook.render(study, tmp_path / "site")
    methods = (tmp_path / "site" / "methods.html").read_text(encoding="utf-8")
    assert "every text has more than 721 tokens" in methods
    assert len([*(tmp_path / "site" / "heads").glob("*.html")]) == tiny.LAYERS * tiny.HEADS


@pytest.mark.slow
def test_short_texts_are_shown_beside_long_ones(model: Path, tmp_path: Path) -> None:
    """The long one counts among all texts; pages and the sample are of the others."""
    inputs = tmp_path / "some.txt"
    short = [long_text(n) for n in (7, 9, 12)]
    inputs.write_text("\n".join([long_text(LONGER), *short]) + "\n", encoding="utf-8")
    options = OPTIONS | {"sentence_pages": "all"}
    mixed = make_study(inputs, model, **options)
    assert [s.index for s in mixed.sentence_data.listed] == [1, 2, 3]
    assert {exemplar.index for exemplar in mixed.sentence_data.exemplars} == {1, 2, 3}
    assert mixed.manifest.counts["sentences"] == 4
    inputs.write_text("\n".join(short) + "\n", encoding="utf-8")
    others = make_study(inputs, model, **options)
    (sampled,) = mixed.corpus_sums.sampled.values()
    (expected,) = others.corpus_sums.sampled.values()
    assert sampled.stats.payload.tolist() == expected.stats.payload.tolist()
    (why,) = {gap.why for gap in mixed.manifest.gaps if gap.what == "long texts in the sample"}
    assert "1 text has more than 721 tokens" in why


def stack(layers: int, heads: int) -> AttentionStack:
    """One with attention in every layer."""
    return AttentionStack(
        "self", layers, tuple(range(layers)), heads, heads, 8, False, Side.SOURCE, Side.SOURCE
    )


def test_texts_may_be_longer_with_more_memory_and_fewer_heads() -> None:
    small, large = longest_text([stack(12, 12)], 4e9), longest_text([stack(12, 12)], 16e9)
    assert MIN_FITTING_TOKENS < small < large
    assert small < longest_text([stack(6, 12)], 4e9)
    assert longest_text([stack(6, 12), stack(12, 12)], 4e9) == small


def test_usual_texts_always_have_room() -> None:
    assert longest_text([stack(32, 32)], 1e6) == MIN_FITTING_TOKENS


def test_room_follows_from_the_machine_and_from_a_limit_of_its_container(tmp_path: Path) -> None:
    limit, none = tmp_path / "memory.max", tmp_path / "unlimited"
    limit.write_text("800000000\n", encoding="utf-8")
    none.write_text("max\n", encoding="utf-8")
    assert map_memory(None, [str(limit), str(none), str(tmp_path / "missing")]) == 1e8
    assert map_memory(None, [str(none)]) > 1e8
    assert map_memory(3e9, [str(limit)]) == 3e9


def test_memory_is_a_size() -> None:
    assert Config(memory="1.5GB").memory_bytes == 1.5e9
    assert Config().memory_bytes is None
    with pytest.raises(ConfigError, match="memory: got 'much', expected"):
        Config(memory="much")
