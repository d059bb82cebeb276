"""Importance of a whole collection: a model whose heads are known, options, and storage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hand_model
import headbook
from headbook.errors import ConfigError
from headbook.report.tables import STUDY_TABLES
from headbook.site.export import write_tables
from headbook.study.ablation.results import HeadSetKind
from headbook.study.study import Study, merge
from machine import Lines

TABLES = ("importance", "head_groups", "pruning")
FEW = {
    "annotator": "none",
    "language": "none",
    "sentence_pages": "0",
    "metrics": "type_shares,sink_share,relative_entropy",
    "circuits": "off",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wired")
    hand_model.write(path / "model")
    (path / "texts.txt").write_text(hand_model.texts())
    return path


@pytest.fixture(scope="module")
def collected(path: Path) -> Callable[..., Study]:
    def collect(file: str = "texts.txt", **options: Any) -> Study:
        return headbook.collect([path / file], model=str(path / "model"), **(FEW | options))

    return collect


@pytest.fixture(scope="module")
def full(collected: Callable[..., Study]) -> Study:
    return collected(importance="full")


def verdict(study: Study, head: int, target: str, replacement: str = "mean") -> str:
    t = study.importance
    here = (t["head"] == head) & (t["target"] == target) & (t["replacement"] == replacement)
    (found,) = t[here & (t["metric"] == "ablation_effect")]["verdict"]
    return str(found)


def test_a_head_that_copies_changes_the_output_and_an_idle_one_can_go(full: Study) -> None:
    """Whatever stands in its place; without the sink it only loses the first word."""
    for target in ("loss", "kl"):
        for replacement in ("mean", "zero", "uniform", "without_sink"):
            assert verdict(full, hand_model.IDLE, target, replacement) == "no_change"
        for replacement in ("mean", "uniform"):
            assert verdict(full, hand_model.COPIES, target, replacement) == "changes"
    table = full.importance
    lost = table[(table["head"] == hand_model.COPIES) & (table["target"] == "loss")]
    value = lost[(lost["replacement"] == "mean") & (lost["method"] == "exact")]["value"].iloc[0]
    assert 1 < value < np.log(9)  # from nearly sure to a guess among eight words


def test_pruning_loses_nothing_until_the_copying_head_goes(full: Study) -> None:
    table = full.pruning
    steps = table[(table["order"] == "ablation_effect") & (table["target"] == "loss")]
    assert [*steps["share"]] == [0, 0.5, 1]
    assert steps["value"].iloc[1] == pytest.approx(0, abs=1e-5)
    assert steps["value"].iloc[2] > 1
    worst = table[(table["order"] == "reversed") & (table["target"] == "loss")]
    assert worst["value"].iloc[1] > 1


def test_groups_are_families_and_layers(full: Study) -> None:
    table = full.head_groups
    assert {"layer 0", "position"} <= {*table["group"]}
    one = table[(table["group"] == "position") & (table["target"] == "loss")]
    assert {*one["replacement"]} == {"mean", "without_sink", "zero"}
    np.testing.assert_allclose(one["sum_of_single_effects"], one["value"], rtol=1e-5, atol=1e-5)
    assert (one["random_low"] <= one["value"]).all()
    ablation = full.corpus_sums.ablation
    assert ablation is not None
    assert {each.kind for each in ablation.sets} == {*HeadSetKind}


def test_the_auto_level_replaces_layers_and_compares_with_what_rounding_does(
    collected: Callable[..., Study],
) -> None:
    study = collected(margin=0.7)
    ablation = study.corpus_sums.ablation
    assert ablation is not None
    (layer,) = study.head_groups.query("target == 'kl'").to_dict("records")
    assert (layer["group"], layer["heads"], layer["replacement"]) == ("layer 0", 2, "mean")
    copies = study.importance.query(
        f"metric == 'ablation_effect' and target == 'kl' and head == {hand_model.COPIES}"
    )
    assert layer["value"] == pytest.approx(float(copies["value"].iloc[0]), rel=1e-5, abs=1e-5)
    assert (study.importance.query("verdict != ''")["margin"] == 0.7).all()
    # Weights of this model are 0, 1, 30 and 0.6, of which bfloat16 has all but the last.
    assert {*ablation.rounding} == {"loss", "kl", "logit"}
    assert 0 < np.abs(ablation.rounding["kl"]).max() < 1e-3
    assert len(ablation.rounding["kl"]) == len(ablation.content_hash)
    assert ablation.sentence_distance == {}


def test_the_sample_does_not_depend_on_the_order_of_the_input(
    collected: Callable[..., Study], path: Path
) -> None:
    lines = (path / "texts.txt").read_text().splitlines()
    (path / "turned.txt").write_text("\n".join(lines[::-1]) + "\n")
    one, other = (
        collected(file, importance_sentences=20, batch_tokens=tokens)
        for file, tokens in (("texts.txt", 2048), ("turned.txt", 50))
    )
    assert (one.importance.query("label != 'top_2_percent'")["n_sentences"] == 20).all()
    pd.testing.assert_frame_equal(one.importance, other.importance, rtol=1e-4, atol=1e-5)


def test_the_plan_is_said_and_nothing_runs_when_it_is_off(
    collected: Callable[..., Study], path: Path
) -> None:
    reported = Lines()
    collected(progress=reported, importance="full", importance_sentences=12)
    (line,) = [line for line in reported.lines if "importance" in line]
    assert line.startswith("importance, full: about ")
    assert line.endswith(" forward passes over 12 sentences")
    none = collected(importance="off")
    assert none.corpus_sums.ablation is None
    assert all(getattr(none, name).empty for name in TABLES)


def test_what_was_stored_comes_back(full: Study, tmp_path: Path) -> None:
    full.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(full, name), getattr(again, name))
    assert write_tables(STUDY_TABLES.values(), again, tmp_path) == []
    for name in TABLES:
        assert set(STUDY_TABLES[name].columns) == {*getattr(full, name)}
        stored = pd.read_parquet(tmp_path / f"{name}.parquet")
        pd.testing.assert_frame_equal(getattr(again, name), stored, check_dtype=False)
        assert len(pd.read_csv(tmp_path / f"{name}.csv")) == len(stored) > 0


def test_studies_add_up(collected: Callable[..., Study], path: Path) -> None:
    lines = (path / "texts.txt").read_text().splitlines()
    for name, some in (("one.txt", lines[:28]), ("other.txt", lines[28:])):
        (path / name).write_text("\n".join(some) + "\n")
    both = merge([collected("one.txt"), collected("other.txt")])
    top = both.importance["label"] == "top_2_percent"
    assert (both.importance[~top]["n_sentences"] == 56).all()
    assert (both.importance[top]["n_sentences"] < 56).all()
    assert verdict(both, hand_model.COPIES, "loss") == "changes"
    assert verdict(both, hand_model.IDLE, "loss") == "no_change"


@pytest.mark.parametrize("family", ["xlnet", "mpnet", "albert", "t5"])
def test_other_models_have_it_or_say_why_not(
    family: str, tiny_folder: Callable[[str], Path], path: Path
) -> None:
    """Heads beyond reach; in an attention of its own; shared weights; layers handing on more."""
    given: dict[str, Any] = {**FEW, "importance_sentences": 4, "model": str(tiny_folder(family))}
    study = headbook.collect([path / "texts.txt"], **given)
    gaps = [gap.why for gap in study.manifest.gaps if gap.what == "importance of heads"]
    if family == "xlnet":
        assert study.corpus_sums.ablation is None
        (why,) = gaps
        assert why.endswith("its heads cannot be replaced")
    else:
        assert not gaps
        assert (study.importance["n_sentences"] == 4).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"importance": "some"}, "importance: got 'some', expected one of off, auto, full"),
        ({"importance_sentences": 1}, "importance_sentences: got 1, expected 2 to 2000"),
        ({"margin": 0.0}, "margin: got 0.0, expected a number above 0"),
    ],
)
def test_wrong_options_are_one_line(
    options: Any, message: str, collected: Callable[..., Study]
) -> None:
    with pytest.raises(ConfigError, match=message):
        collected(**options)
