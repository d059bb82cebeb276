"""Stored studies still render; pages and tables change only when somebody means it."""

import json
from pathlib import Path

import pandas as pd
import pytest

from golden import tables as golden
from golden.refresh import COMMAND, PAGES, STUDY, collect_again, outline, stored
from golden.studies import CHECKPOINTS, CLASSIFIER, STEPS
from headbook import render
from headbook.study.study import Study
from same_tables import WITHIN, Difference, differences, stored_tables, tables

SINGLE, ROUNDED = {"exemplar_tokens"}, 1e-5  # of weights and outputs in single precision
LATER = {"exemplars", "importance", "top_tokens"}  # of which the stored study has less, or none

HEADS = pd.DataFrame({"layer": [0, 0, 1], "head": [0, 1, 0], "value": [0.5, 1.0, None]})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the stored study."""
    return render(STUDY, tmp_path_factory.mktemp("golden") / "site").index.parent


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_as_it_did(site: Path, name: str) -> None:
    expected = stored(name).read_text(encoding="utf-8").splitlines()
    found = outline(site / name).splitlines()
    assert found == expected, f"{name} changed; if that is meant, run: {COMMAND}"


def test_a_stored_study_is_read_as_it_was_written() -> None:
    study = Study.load(STUDY)
    assert study.manifest.title == "A stored study"
    assert len(study.heads) > 0
    assert len(study.sentence_data.maps) > 0


def test_stored_models_are_those_that_were_trained() -> None:
    folders = [CLASSIFIER, *(CHECKPOINTS / f"step-{step}" for step in STEPS)]
    configs = [json.loads((folder / "config.json").read_text()) for folder in folders]
    kinds = [config["architectures"] for config in configs]
    assert kinds == [["BertForSequenceClassification"], *[["LlamaForCausalLM"]] * len(STEPS)]
    assert {config["dtype"] for config in configs} == {"float16"}


def test_numbers_are_those_of_the_stored_study(tmp_path: Path) -> None:
    again = Study.load(collect_again(tmp_path))
    every: list[Difference] = []
    for within, single in ((WITHIN, False), (ROUNDED, True)):
        one, other = (
            {name: table for name, table in tables(study).items() if (name in SINGLE) == single}
            for study in (Study.load(STUDY), again)
        )
        every += differences(one, other, within)
    rows = [difference for difference in every if difference.table not in LATER]
    assert sum(difference.rows for difference in rows) > 1000
    assert not [str(difference) for difference in rows if difference.where]


def test_stored_tables_are_those_that_were_written(tmp_path: Path) -> None:
    golden.write({"heads": HEADS}, tmp_path / "encoder")
    stored = stored_tables(tmp_path / "encoder")
    equal, lines = golden.compare(stored, {"heads": HEADS})
    assert equal
    assert len(lines) == 1
    equal, lines = golden.compare(stored, {"heads": HEADS.assign(value=0.5)})
    assert not equal
    assert "value of layer=0 head=1: 1.0 and 0.5" in lines[0]


def test_renamed_tables_and_columns_are_compared_by_their_stored_names() -> None:
    found = {"head_values": HEADS.rename(columns={"value": "share"})}
    given = golden.stored_names(found, {"heads": "head_values"}, {"heads": {"value": "share"}})
    assert golden.compare({"heads": HEADS}, given)[0]
