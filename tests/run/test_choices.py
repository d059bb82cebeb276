"""Any choice of metrics and pages gives a whole study and a whole site."""

import stat
from pathlib import Path

import pytest

import headbook
import tiny
from headbook.resources import folder
from headbook.run.collect import collect

EVERY = ("bart", "pairs.tsv")  # metric: the one with all kinds of attention
FEW = 6  # sentences of a sample
SOME = "dependency_alignment,previous_score,segmentation,nearest_tokens,rollout_self,anisotropy"
TEXT = "The cat sat.\nThe dog that saw the cat and the dog ran home.\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write("bert", tmp_path_factory.mktemp("model"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metrics", "pages"),
    [("cosine_to_input", "0"), ("attention_distance", "1"), ("vocabulary_rank", "0")],
)
def test_a_choice_is_shown_as_it_is(model: Path, tmp_path: Path, metrics: str, pages: str) -> None:
    (tmp_path / "some.txt").write_text(TEXT)
    study = collect(
        [tmp_path / "some.txt"],
        model=str(model),
        metrics=metrics,
        sentence_pages=pages,
        exemplars=1,
        vocabulary_sentences=1,
    )
    heads = set(study.heads["metric"])
    assert heads == ({metrics} if metrics == "attention_distance" else set())
    assert set(study.layers["metric"]) == {metrics}
    headbook.render(study, tmp_path / "site")
    assert [p.stem for p in sorted((tmp_path / "site" / "metrics").iterdir())] == sorted(
        [metrics, "index"]
    )
    assert (tmp_path / "site" / "sentences").exists() == (
        pages == "1" or bool(study.sentence_data.exemplars)
    )


def test_others_may_read_a_stored_study(model: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text(TEXT)
    study = collect([tmp_path / "some.txt"], model=str(model), metrics="sink_share")
    study.save(tmp_path / "study")
    modes = {f.name: f.stat().st_mode for f in (tmp_path / "study").iterdir()}
    assert all(mode & stat.S_IRGRP for mode in modes.values())


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("name", ["sentences.txt", "sentences.conllu", "pairs.tsv"])
def test_every_sample_builds_with_every_kind_of_model(tmp_path: Path, kind: str, name: str) -> None:
    """The one with the most to read with all metrics, the others with some of every sort."""
    every = (kind, name) == EVERY
    study = collect(
        [beginning(name, tmp_path)],
        model=str(tiny.write(kind, tmp_path / "model")),
        metrics="all" if every else SOME,
        importance="auto" if every else "off",
        exemplars=1,
        sentence_pages="1",
    )
    summary = headbook.render(study, tmp_path / "site")
    assert summary.index.is_file()
    assert all(check.passed for check in study.manifest.checks)
    unread = "pairs not read" in summary.index.read_text(encoding="utf-8")
    assert unread == (name == "pairs.tsv" and kind != "bart")


def beginning(name: str, place: Path) -> Path:
    """The first sentences of a sample: lines, or blocks with an empty line after each."""
    text, end = (folder("sample_inputs") / name).read_text(encoding="utf-8"), "\n"
    end *= 2 if name.endswith(".conllu") else 1
    (place / name).write_text(end.join(text.split(end)[:FEW]) + end, encoding="utf-8")
    return place / name
