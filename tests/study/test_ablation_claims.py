"""Rows of the table of tests about ablation: numbers that pages print of it, with their split."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ablation_results import LOSS, SENTENCES, TOKENS, ablation_results, around
from chosen_results import Fake, fake_results
from headbook.report.facts.tested.ablation import ablation_tests
from headbook.schema import AblationTarget, HeadKey, SinkView
from headbook.study.ablation.results import AblationResults, HeadSet, HeadSetKind
from headbook.study.study import Study

KEYS = (
    "claim", "stack", "layer", "head", "metric", "view", "label", "split", "value", "low", "high",
    "baseline", "baseline_value", "difference", "difference_low", "difference_high", "p",
    "n_sentences", "n_observations",
)  # fmt: skip


def study_of(given: AblationResults | None) -> Study:
    column = HeadKey("attention_to", SinkView.RAW, "next")
    study = fake_results({column: Fake([[0.2, 0.6, 0.1]])}).study
    return replace(study, corpus_sums=replace(study.corpus_sums, ablation=given))


def rows_of(given: AblationResults | None) -> pd.DataFrame:
    rows = [tested.columns for tested in ablation_tests(study_of(given))]
    assert all(tuple(row) == KEYS for row in rows)
    return pd.DataFrame(rows, columns=[*KEYS])


def with_sets(
    given: AblationResults, sets: list[HeadSet], members: list[list[bool]]
) -> AblationResults:
    more = around(*(0.02 * (k + 1) for k in range(len(sets))), seed=4)
    for place, each in enumerate(sets):
        if each.kind == HeadSetKind.ORDER:  # known on the second half alone
            more[given.half == 0, place] = np.nan
    changes = np.concatenate([given.changes[AblationTarget.LOSS], more * TOKENS], 1)
    return replace(
        given,
        sets=(*given.sets, *sets),
        members=np.concatenate([given.members, np.array(members)]),
        changes={AblationTarget.LOSS: changes},
    )


def test_there_are_no_rows_without_ablation() -> None:
    assert rows_of(None).empty


def test_heads_have_effects_and_shares_of_changed_sentences() -> None:
    changes = around(0.05, 0.0, -0.05, spread=0.003)
    rows = rows_of(ablation_results(changes))
    effects = rows[(rows["metric"] == "ablation_effect") & (rows["split"] == "all")]
    assert [*effects["head"]] == [0, 1, 2]
    np.testing.assert_allclose(effects["value"], changes.mean(0), atol=1e-12)
    assert (effects["low"] < effects["value"]).all()
    assert {*effects["label"]} == {"mean/loss"}
    assert [*(effects["p"] < 0.05)] == [False, False, True]
    assert (effects["n_observations"] == SENTENCES * TOKENS).all()
    shares = rows[rows["metric"] == "share_changed"]
    changed = (np.abs(changes) > 0.005 * LOSS).mean(0)
    np.testing.assert_allclose(shares["value"], changed)
    assert (shares["low"] <= shares["value"]).all()
    assert (shares["baseline_value"] == 0.2).all()


def test_the_largest_effect_stands_there_on_both_halves() -> None:
    given = ablation_results(around(0.05, 0.01))
    rows = rows_of(given)
    held = rows[(rows["metric"] == "ablation_effect") & (rows["split"] != "all")]
    assert [*held["split"]] == ["choice", "held_out"]
    assert {*held["head"]} == {0}
    for half, value in enumerate(held["value"]):
        own = given.changes[AblationTarget.LOSS][given.half == half, 0] / TOKENS
        assert value == pytest.approx(own.mean())
    assert held["n_sentences"].sum() == SENTENCES


def test_groups_stand_beside_their_random_sets_and_orders_beside_random_ones() -> None:
    sets = [HeadSet(HeadSetKind.GROUP, "self", "sink", 0, "zero")]
    sets += [HeadSet(HeadSetKind.RANDOM, "self", "sink", k, "zero") for k in range(2)]
    sets += [
        HeadSet(HeadSetKind.ORDER, "self", name, 3, "mean")
        for name in ("ablation_effect", "random-00")
    ]
    members = [[True, True, False], [True, False, True], [False, True, True], *[[True] * 3] * 2]
    given = with_sets(ablation_results(around(0.05, 0.02, 0.01)), sets, members)
    rows = rows_of(given)
    groups = rows[rows["label"] == "sink/zero/loss"]
    beside = groups[groups["baseline"].str.contains("random sets")]
    assert [*beside["value"]] == pytest.approx([0.02] * 2)
    assert {*beside["baseline_value"].round(9)} == {0.04, 0.06}
    np.testing.assert_allclose(beside["difference"], beside["value"] - beside["baseline_value"])
    assert groups["head"].isna().all()
    pruned = rows[rows["metric"] == "pruning"]
    assert {*pruned["label"]} == {"ablation_effect/0/mean/loss", "ablation_effect/1/mean/loss"}
    assert {*pruned["split"]} == {"held_out"}
    (can_go,) = rows[rows["metric"] == "share that can go"].to_dict("records")
    assert (can_go["value"], can_go["baseline_value"]) == (0, 0)


def test_the_audit_has_its_bound() -> None:
    effects = np.tile(np.array([0.05, 0.0, 0.03, 0.001, 0.0, 0.0]), (SENTENCES, 1))
    given = ablation_results(effects + around(*[0.0] * 6, spread=1e-3))
    some = replace(
        given, chosen=np.array([1, 2, 2, 2, 2, 0]), sets=given.sets[:5], members=given.members[:5],
        changes={AblationTarget.LOSS: given.changes[AblationTarget.LOSS][:, :5]},
    )  # fmt: skip
    (missed,) = rows_of(some).query("metric == 'audit: missed'").to_dict("records")
    assert (missed["value"], missed["low"]) == (0, 0)
    assert missed["high"] == pytest.approx(1 - 0.05 ** (1 / 4))
    (found,) = rows_of(some).query("metric == 'audit: correlation'").to_dict("records")
    assert found["value"] > 0.99
