"""A classifier that one known head makes able: it is found, saved, merged and shown by group."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import classifier
import headbook
from headbook.report.tables import STUDY_TABLES
from headbook.site.export import write_tables
from headbook.study.ablation.effect_tests import rounding_change
from headbook.study.ablation.tasks import rests_on, success
from headbook.study.study import Study, merge

FEW: dict[str, Any] = {
    "annotator": "none", "language": "none", "sentence_pages": "2", "metrics": "type_shares",
    "facet": "where", "circuits": "off",
}  # fmt: skip
MARKER_HEAD = (classifier.LAYER, classifier.HEAD)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classifier")
    classifier.write(path / "model")
    return path


@pytest.fixture(scope="module")
def collected(path: Path) -> Callable[..., Study]:
    @cache
    def of(level: str, number: int = 80, seed: int = 0, **more: Any) -> Study:
        file = classifier.write_texts(path / f"{number}-{seed}.jsonl", number, seed)
        options = FEW | {"importance": level} | more
        return headbook.collect([file], model=str(path / "model"), **options)

    return of


def effects(study: Study, target: str = "label") -> pd.DataFrame:
    table = study.importance.query(f"target == '{target}' and metric == 'ablation_effect'")
    return table[table["replacement"] == "mean"].set_index(["layer", "head"])


@pytest.mark.parametrize("level", ["auto", "full"])
def test_the_head_that_reads_the_marker_is_found(
    level: str, collected: Callable[..., Study]
) -> None:
    study = collected(level)
    whole = success(study.corpus_sums.tasks["label"])
    assert whole.beats_chance
    assert whole.value > 0.95
    assert whole.chance == 0.5
    table = effects(study)
    values = {place: float(value) for place, value in table["value"].items()}
    assert max(values, key=values.__getitem__) == MARKER_HEAD
    assert table.loc[MARKER_HEAD, "verdict"] == "changes"
    task = study.corpus_sums.tasks["label"]
    least = max(0.005 * task.loss("label"), 10 * rounding_change(task, "label"))
    assert table.loc[MARKER_HEAD, "margin"] == pytest.approx(least)
    largest = values.pop(MARKER_HEAD)
    assert max(values.values()) < largest / 5
    accuracy = effects(study, "accuracy")
    assert accuracy["value"].idxmax() == MARKER_HEAD
    assert dict(accuracy["low"].items())[MARKER_HEAD] > 0.2
    assert (accuracy["verdict"] == "").all()


def test_the_task_rests_on_that_head(collected: Callable[..., Study]) -> None:
    found = rests_on(collected("auto").corpus_sums.tasks["label"])
    assert found is not None
    assert [(head.layer, head.head) for head in found["heads"]] == [MARKER_HEAD]
    assert found["before"] - found["after"] > 0.25
    rows = collected("auto").tests.query("metric == 'share right'")
    assert {*rows["claim"]} == {"whole model", "ablation"}


def test_texts_are_told_apart_by_group(collected: Callable[..., Study]) -> None:
    table = collected("auto").task_facets
    assert {*table["facet"]} == {"where"}
    assert {*table["target"]} == {"label", "accuracy"}
    own = table.query(f"layer == {MARKER_HEAD[0]} and head == {MARKER_HEAD[1]}")
    by_group = own[own["target"] == "label"].set_index("group")
    assert {*by_group.index} == {"early", "late"}
    n_sentences = by_group["n_sentences"]
    whole = effects(collected("auto")).loc[MARKER_HEAD, "value"]
    mean = (by_group["value"] * n_sentences).sum() / n_sentences.sum()
    assert mean == pytest.approx(whole)
    assert (own["low"] <= own["value"]).all()


def test_a_study_with_a_task_comes_back_and_adds_up(
    collected: Callable[..., Study], tmp_path: Path
) -> None:
    one, other = collected("auto"), collected("auto", 40, 1)
    one.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    for name in ("importance", "head_groups", "pruning", "effect_tokens", "task_facets"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(again, name))
    assert write_tables(STUDY_TABLES.values(), again, tmp_path) == []
    assert len(pd.read_csv(tmp_path / "task_facets.csv")) == len(one.task_facets) > 0
    both = merge([again, other])
    task = both.corpus_sums.tasks["label"]
    assert success(task).n_sentences == 120
    assert sum(counts.sum() for counts in task.truth.values()) == 120
    assert effects(both)["value"].idxmax() == MARKER_HEAD
    where = dict(zip(task.content_hash, task.facets["where"], strict=True))
    for part in (one, other):
        own = part.corpus_sums.tasks["label"]
        assert all(
            where[key] == value
            for key, value in zip(own.content_hash, own.facets["where"], strict=True)
        )


def test_tokens_of_the_task_name_probabilities_of_the_true_label(
    collected: Callable[..., Study],
) -> None:
    table = collected("auto").effect_tokens.query("target == 'label'")
    first = table[(table["layer"] == MARKER_HEAD[0]) & (table["head"] == MARKER_HEAD[1])]
    assert first["change"].is_monotonic_decreasing
    assert ((first["before"] > 0) & (first["before"] <= 1)).all()
    assert first["after"].iloc[0] < 0.5 < first["before"].iloc[0]


def test_a_site_shows_the_study(collected: Callable[..., Study], tmp_path: Path) -> None:
    headbook.render(collected("auto"), tmp_path / "site")
    assert (tmp_path / "site" / "index.html").is_file()
    assert (tmp_path / "site" / "data" / "task_facets.csv").is_file()


def test_a_model_at_chance_has_no_verdicts(path: Path, tmp_path: Path) -> None:
    """Here, since all labels are the other way round in half of the texts."""
    file = tmp_path / "texts.jsonl"
    lines = classifier.write_texts(file, 60, 3).read_text().splitlines()
    swapped = [
        line.replace('"warm"', '"?"').replace('"cold"', '"warm"').replace('"?"', '"cold"')
        if number % 4 < 2
        else line
        for number, line in enumerate(lines)
    ]
    file.write_text("\n".join(swapped) + "\n")
    study = headbook.collect([file], model=str(path / "model"), **FEW)
    task = study.corpus_sums.tasks["label"]
    assert not success(task).beats_chance
    assert rests_on(task) is None
    assert (effects(study)["verdict"] == "").all()
    assert effects(study)["margin"].isna().all()
