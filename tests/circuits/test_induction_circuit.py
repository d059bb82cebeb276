"""Laws of circuits on a model built by hand that works by one induction circuit."""

import random
from pathlib import Path

import pandas as pd
import pytest

import headbook
import induction_model
from headbook.study.study import Study
from induction_model import INDUCTION, PREVIOUS


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    path = tmp_path_factory.mktemp("induction")
    induction_model.write(path / "model")
    rng = random.Random(0)  # noqa: S311 - not for secrets
    parts = (rng.sample(induction_model.WORDS, 10) for _ in range(24))
    (path / "texts.txt").write_text("".join(f"{' '.join([*part, *part])}\n" for part in parts))
    return headbook.collect(
        [path / "texts.txt"], model=str(path / "model"), annotator="none", language="none",
        sentence_pages=0, metrics="induction_score,previous_score", importance="off",
    )  # fmt: skip


def value_of(study: Study, metric: str, place: tuple[int, int]) -> float:
    table = study.heads
    rows = table[(table["metric"] == metric) & (table["label"] == "")]
    rows = rows[(rows["layer"] == place[0]) & (rows["head"] == place[1]) & (rows["view"] == "raw")]
    (value,) = rows["value"]
    return float(value)


def pair(study: Study, upper: tuple[int, int], lower: tuple[int, int], kind: str) -> pd.Series:
    table = study.composition
    places = ["layer", "head", "lower_layer", "lower_head"]
    rows = table[(table[places] == [*upper, *lower]).all(axis=1) & (table["kind"] == kind)]
    (row,) = (row for _, row in rows.iterrows())
    return row


def test_both_heads_do_what_they_were_built_for(study: Study) -> None:
    assert value_of(study, "previous_score", PREVIOUS) > 0.95
    assert value_of(study, "induction_score", INDUCTION) > 0.9


def test_its_keys_read_the_previous_token_head_most(study: Study) -> None:
    found = pair(study, INDUCTION, PREVIOUS, "k")
    assert found["rank"] == 1
    assert found["value"] == study.composition["value"].max()
    assert found["value"] > 1.5 * found["random"]
    for kind in "qv":
        assert pair(study, INDUCTION, PREVIOUS, kind)["value"] < found["value"] / 3


def test_without_the_previous_token_head_nothing_is_continued(study: Study) -> None:
    found, idle = (pair(study, INDUCTION, lower, "k") for lower in (PREVIOUS, (0, 1)))
    before = value_of(study, "induction_score", INDUCTION)
    assert before + found["intervention"] < 0.05
    assert found["high"] < -0.8
    assert abs(idle["intervention"]) < 0.05


def test_only_the_induction_head_copies(study: Study) -> None:
    assert value_of(study, "copying_score", INDUCTION) == pytest.approx(1, abs=0.02)
    assert value_of(study, "copy_rate", INDUCTION) > 0.95
    assert value_of(study, "copy_rate_negative", INDUCTION) < 0.2
    assert abs(value_of(study, "copying_score", (1, 1))) < 0.5
    assert value_of(study, "attended_rank", INDUCTION) == 1


def test_its_page_names_the_circuit(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "study")
    headbook.render(tmp_path / "study", out=tmp_path / "site")
    page = (tmp_path / "site/circuits.html").read_text()
    assert "An induction circuit:" in page
    assert page.index("L0·H0") < page.index("L1·H0")
