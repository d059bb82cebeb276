"""The tables `tests` and `words` hold what a naive computation gives."""

import subprocess
import sys

import numpy as np
import pytest

import headbook.report.tables
from headbook.analysis.accumulators import HELD_OUT, SELECTION, RatioSums
from headbook.analysis.arrays import Floats
from headbook.analysis.intervals import MIN_EFFECTIVE, has_value
from headbook.metrics import all_metrics
from headbook.report.results import stack_results
from headbook.report.tables.tests_table import TESTS
from headbook.schema import SinkView
from headbook.study.study import Study
from headbook.study.tables import TABLES_OF_REPORT
from headbook.study.token_tables import WORDS
from sites import Site

ISSUED = (
    "claim, stack, layer, head, metric, view, label, split, value, low, high, baseline, "
    "baseline_value, difference, difference_low, difference_high, p, n_sentences, n_observations"
)


@pytest.fixture(scope="module")
def study(encoder_site: Site) -> Study:
    return encoder_site.study


def test_columns_are_those_that_are_documented(study: Study) -> None:
    assert [*study.tests] == [*TESTS.columns] == ISSUED.split(", ")
    assert [*study.words] == [*WORDS.columns]
    assert {*study.tests["split"]} == {"choice", "held_out", "all"}
    assert headbook.report.tables.Study is Study


def test_a_chosen_head_is_the_best_of_one_half_with_its_value_on_the_other(study: Study) -> None:
    """Sums over the sentences of a half, by hand, for every metric and label of the table."""
    table = study.head_tables["self"]
    n, d, effective = (  # (half, layer, head, column)
        np.stack([sums_of(table.heads.split(half), name) for half in (SELECTION, HELD_OUT)])
        for name in ("n", "d", "effective")
    )
    n_sentences = np.stack([table.heads.split(half).n_sentences for half in (SELECTION, HELD_OUT)])
    rows = study.tests.query("claim == 'highest of all heads, on the choice half'")
    columns = {tuple(map(str, column)): k for k, column in enumerate(table.columns)}
    asked = 0
    for row in rows.to_dict("records"):
        k = columns[row["metric"], row["view"], row["label"]]
        half = {"choice": SELECTION, "held_out": HELD_OUT}[row["split"]]
        with np.errstate(invalid="ignore", divide="ignore"):
            values = n[..., k] / d[..., k]
        rule = all_metrics()[row["metric"]].spread(row["label"])
        values = np.where(has_value(n_sentences[..., k], rule), values, np.nan)
        is_trusted = (effective[SELECTION, ..., k] >= MIN_EFFECTIVE) & ~np.isnan(values[SELECTION])
        trusted = np.where(is_trusted, values[SELECTION], -np.inf)
        best = np.unravel_index(int(trusted.argmax()), trusted.shape)
        assert (row["layer"], row["head"]) == best
        np.testing.assert_allclose(row["value"], values[half][best], rtol=1e-12)
        asked += 1
    assert asked > 300
    assert len(rows) == 2 * len(rows[rows["split"] == "held_out"])


@pytest.mark.parametrize(("claim", "sign"), [("highest", 1), ("lowest", -1)])
def test_no_highest_head_contradicts_the_table_of_heads(
    study: Study, claim: str, sign: int
) -> None:
    """And the baseline is lower, or higher, than it, if a test tells any head from it."""
    rows = study.tests.query(f"claim == '{claim} of all heads'")
    results = stack_results(study)["self"]
    for row in rows.to_dict("records"):
        values = results.heads(row["metric"], SinkView(row["view"]), row["label"])
        place = int(row["layer"]), int(row["head"])
        assert row["value"] == pytest.approx(values.value[place])
        assert row["value"] == pytest.approx(sign * np.nanmax(sign * values.trusted))
        assert bool(row["baseline"]) == (row["p"] < 0.05)
        if row["baseline"]:
            assert sign * row["difference"] > 0
    assert {*rows["split"]} == {"all"}
    assert len(rows) > 10


def sums_of(ratios: RatioSums, name: str) -> Floats:
    return ratios.n_effective if name == "effective" else ratios.total[name]


def test_differences_are_values_minus_baselines(study: Study) -> None:
    table = study.tests
    both = table.dropna(subset=["value", "baseline_value", "difference"])
    tested = both["difference_low"].notna()
    assert len(both) > 300
    np.testing.assert_allclose(
        both["difference"], both["value"] - both["baseline_value"], atol=1e-12
    )
    ends = both[tested]
    assert ((ends["difference_low"] <= ends["difference"] + 1e-12)
            & (ends["difference"] <= ends["difference_high"] + 1e-12)).all()  # fmt: skip
    assert (table["baseline"] != "").where(table["baseline_value"].notna(), other=True).all()


def test_words_are_the_token_metrics_of_layers_taken_apart(study: Study) -> None:
    words, layers = study.words, study.layers
    spaces = words["space"].map(lambda space: f"{space}/" if space else "")
    keys = words.assign(label=words["state"] + "/" + spaces + words["class"], view="")
    found = keys.merge(
        layers, on=["stack", "layer", "metric", "view", "label"], suffixes=("", "_of_layer")
    )
    assert len(found) == len(words) > 100
    for name in ("value", "low", "high"):
        np.testing.assert_array_equal(found[name], found[f"{name}_of_layer"])
    np.testing.assert_array_equal(found["n_sentences"], found["n_sentences_of_layer"])
    assert {*words["class"]} >= {"all", "content", "function", "NOUN"}
    assert {*words["metric"]} <= {*all_metrics()}


@pytest.mark.parametrize("name", ["tests", "functions"])
def test_every_study_that_a_reader_gets_has_the_table(encoder_site: Site, name: str) -> None:
    """By the public door, in a process of its own; without the report there is one clear line."""
    stored = str(encoder_site.stored)
    public = f"import headbook; print(len(headbook.Study.load({stored!r}).{name}))"
    private = (
        "from headbook.study.study import Study; from headbook.errors import StudyError\n"
        f"try:\n    Study.load({stored!r}).{name}\n"
        "except StudyError as error:\n    print(error)"
    )
    lines = [
        subprocess.check_output([sys.executable, "-c", code], text=True).strip()
        for code in (public, private)
    ]
    assert lines[0] == str(len(getattr(encoder_site.study, name)))
    assert lines[1] == f"study.{name}: import headbook.report.tables, or use headbook.Study"
    assert {*TABLES_OF_REPORT} == {"tests", "functions"}


def test_relation_rows_are_tested_against_a_named_rule(any_site: Site) -> None:
    table = any_site.study.tests.query("claim == 'relation'")
    assert table["p"].dropna().between(0, 1).all()
    assert (table["baseline"] != "").all()
    assert {*table["split"]} <= {"all", "choice", "held_out"}
