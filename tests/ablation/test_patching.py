"""Patching on a model built by hand, of whose two heads one carries the answer."""

import json
from collections.abc import Callable
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hand_model
import headbook
from headbook.study.ablation.tasks import CLEAN, CORRUPT, patching_effects, rests_on, success
from headbook.study.study import Study, merge

FEW: dict[str, Any] = {
    "annotator": "none", "language": "none", "sentence_pages": "0", "metrics": "type_shares",
    "circuits": "off",
}  # fmt: skip


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """Collect prompts whose last word but one is the answer, which the copying head reads."""
    path = tmp_path_factory.mktemp("patched")
    hand_model.write(path / "model")

    @cache
    def of(level: str, *, long: bool = False) -> Study:
        rows = [
            {
                "text": f"{one} {other} sleeps",
                "answer": other,
                "wrong": one,
                "corrupt": f"{other} {one} sleeps{' old' * (long and one < 'h')}",
            }
            for one, other in permutations(hand_model.WORDS[:6], 2)
        ]
        file = path / f"{level}-{long}.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return headbook.collect([file], model=str(path / "model"), importance=level, **FEW)

    return of


@pytest.mark.parametrize("level", ["auto", "full"])
def test_the_head_that_carries_the_answer_restores_and_destroys_all(
    level: str, collected: Callable[..., Study]
) -> None:
    study = collected(level)
    effects = patching_effects(study.corpus_sums.tasks["patching"])
    assert len(effects) == 2 * 4
    for row in effects.to_dict("records"):
        expected = float(row["head"] == hand_model.COPIES)
        assert row["value"] == pytest.approx(expected, abs=1e-5)
        assert row["low"] <= row["value"] <= row["high"]
    rows = study.importance.query("target == 'patching'")
    assert {*rows["metric"]} == {"patching_effect"}
    assert {*zip(rows["replacement"], rows["label"], strict=True)} == {
        (way, at) for way in ("denoising", "noising") for at in ("all", "last")
    }
    assert (rows["verdict"] == "").all()
    assert rows["margin"].isna().all()


def test_differences_are_those_of_both_runs(collected: Callable[..., Study]) -> None:
    """Which are equal but for their sign, since both texts have the same words."""
    task = collected("full").corpus_sums.tasks["patching"]
    np.testing.assert_allclose(task.unablated[CLEAN], -task.unablated[CORRUPT], rtol=1e-5)
    assert (task.unablated[CLEAN] > 1).all()
    assert success(task).value == 1


def test_only_the_last_position_carries_it(collected: Callable[..., Study]) -> None:
    """Other positions differ between the runs as well, and no later layer reads them."""
    effects = patching_effects(collected("full").corpus_sums.tasks["patching"])
    both = effects.pivot_table(index=["head", "direction"], columns="label", values="value")
    np.testing.assert_allclose(both["all"], both["last"], atol=1e-5)


def test_the_answer_rests_on_that_head(collected: Callable[..., Study]) -> None:
    study = collected("auto")
    table = study.importance.query("target == 'answer' and metric == 'ablation_effect'")
    verdicts = dict(zip(table["head"], table["verdict"], strict=True))
    assert verdicts == {hand_model.COPIES: "changes", hand_model.IDLE: "no_change"}
    found = rests_on(study.corpus_sums.tasks["answer"])
    assert found is not None
    assert [head.head for head in found["heads"]] == [hand_model.COPIES]
    assert found["before"] == 1
    assert found["after"] < 0.75


def test_texts_of_unequal_length_are_left_out_and_counted(collected: Callable[..., Study]) -> None:
    study = collected("auto", long=True)
    task = study.corpus_sums.tasks["patching"]
    n_long = sum(one < "h" for one, _ in permutations(hand_model.WORDS[:6], 2))
    assert len(task.content_hash) == 30 - n_long
    assert len(study.corpus_sums.tasks["answer"].content_hash) == 30
    assert f"{n_long} prompts left out: not as many tokens" in " ".join(task.notes)


def test_patched_studies_come_back_and_add_up(
    collected: Callable[..., Study], tmp_path: Path
) -> None:
    study = collected("full")
    study.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    both = merge([again, again])
    effects = patching_effects(both.corpus_sums.tasks["patching"])
    assert (effects["n_sentences"] == 60).all()
    np.testing.assert_allclose(
        effects["value"], patching_effects(study.corpus_sums.tasks["patching"])["value"]
    )
    assert success(both.corpus_sums.tasks["answer"]).n_sentences == 60
    assert len(both.task_facets) == len(again.task_facets) == 0
