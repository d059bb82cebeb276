"""Facts on the effect of heads: what the numbers do and do not support."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ablation_results import LOSS, SENTENCES, TOKENS, ablation_results, around
from block_parts import every
from headbook.report.ablation import (
    HEAVY_NAME,
    head_change,
    head_changes,
    layer_ratio,
    representative_verdicts,
)
from headbook.report.facts.importance import (
    clear_layer,
    estimates_note,
    harmful,
    heads_answer,
    largest,
    main_loss,
    pruning,
    pruning_steps,
    random_rank,
    removable_heads,
    sink_rows,
    sinks_dead,
    together,
    verdict_counter,
    verdicts,
)
from headbook.results.number import Number
from headbook.results.sentence import Link, Sentence
from headbook.schema import AblationTarget
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import AblationVerdict
from headbook.study.ablation.results import AblationReason, AblationResults, HeadSet, HeadSetKind
from headbook.study.ablation_tables import HEAD_GROUPS, PRUNING

STATE = AblationTarget.STATE
CHANGES, NONE_CHANGE, UNSURE = "changes", "no_change", "undecided"


def numbers(text: Sentence) -> list[Number]:
    return every(Number, text)


def heads(text: Sentence) -> list[str]:
    """Return the names of heads in a sentence."""
    return [part.text for part in text.parts if isinstance(part, Link) and "·" in part.text]


def with_layers(given: AblationResults, effects: np.ndarray) -> AblationResults:
    """Add one group for each layer. *Shape* of the effects: ``(sentence, layer)``."""
    target = effect_tests.ranked_target(given)
    groups = tuple(
        HeadSet(HeadSetKind.GROUP, "self", f"layer {n}", 0, "mean") for n in range(effects.shape[1])
    )
    members = np.ones((len(groups), len(given.heads)), bool)
    return replace(
        given,
        sets=(*given.sets, *groups),
        members=np.concatenate([given.members, members]),
        changes={target: np.concatenate([given.changes[target], effects * TOKENS], 1)},
    )


def test_a_layer_answers_if_its_effect_is_above_that_of_all_others() -> None:
    """The ratio is that of the numbers of the chart, which rest on all sentences."""
    single = ablation_results(around(0.05, 0.0), STATE)
    effects = around(0.02, 0.3, 0.03, 0.01, spread=0.002)
    given = with_layers(single, effects)
    clear = clear_layer(given)
    assert clear is not None
    stack, ratio = clear
    expected = effects[:, 1].sum() / effects[:, 2].sum()
    assert (stack, ratio.first, ratio.second) == ("self", 1, 2)
    assert ratio.value == pytest.approx(expected)
    assert ratio.low < expected < ratio.high
    assert main_loss(given, {}).holds
    assert "10 times" in main_loss(given, {}).text.text
    assert "without layer 2" in main_loss(given, {}).text.text
    for last, is_last in ((1, True), (3, False)):
        assert ("by construction" in main_loss(given, {"self": last}).text.text) == is_last
    alike = with_layers(single, around(0.3, 0.3, 0.03, spread=0.2))
    for unclear in (alike, single, with_layers(single, around(0.3))):
        assert clear_layer(unclear) is None
        assert not main_loss(unclear, {}).holds
        assert main_loss(unclear, {}).text == verdicts(unclear)
    assert layer_ratio(with_layers(single, around(0.3)), "self", STATE) is None


@pytest.mark.parametrize(
    ("means", "amount", "names"),
    [
        ((0.05, 0.0, 0.001), 2, ["L0·H1", "L0·H2"]),
        ((0.05, 0.0), 1, ["L0·H1"]),
        ((0.0,) * 7, 7, None),
        ((0.05, 0.05), 0, []),
    ],
)
def test_heads_that_could_go_are_named(
    means: tuple[float, ...], amount: int, names: list[str] | None
) -> None:
    """Those of smallest change come first, and at most five have a name."""
    given = ablation_results(around(*means, spread=0.0005))
    text = removable_heads(given)
    assert bool(text) == bool(amount)
    assert verdict_counter(given)[NONE_CHANGE] == amount
    assert len(heads(text)) == min(amount, 5)
    assert names is None or heads(text) == names
    assert amount < 2 or f"{amount} of the {len(means)} heads" in text.text


@pytest.mark.parametrize(
    ("means", "parts"),
    [
        ((0.05, 0.0, -0.05, 0.0, 0.0), ("2 of 5 heads change", "the others can go alone")),
        ((0.05, 0.05), ("Each head counts: 2 of 2 heads",)),
        ((0.0, 0.0), ("Little without any one head: 2 of 2 heads can go alone.",)),
    ],
)
def test_verdicts_answer_without_a_layer(means: tuple[float, ...], parts: tuple[str, ...]) -> None:
    given = ablation_results(around(*means, spread=0.003))
    assert main_loss(given, {}).text == verdicts(given)
    assert all(part in verdicts(given).text for part in parts)


def test_rarer_and_commoner_verdicts_are_told_apart() -> None:
    """A fifth of the sentences change: the bounds hold it."""
    changes = np.zeros((SENTENCES, 4))
    changes[::5] = 0.05
    assert verdicts(ablation_results(changes)).text.startswith("Not known: 60 sentences")
    changes[:, 0] = 0.05
    one = verdicts(ablation_results(changes)).text
    assert "1 of 4 heads changes the output; the others are undecided" in one
    changes[:, 1] = 0.0
    assert "most others are undecided" in verdicts(ablation_results(changes)).text
    none = replace(ablation_results(changes), sets=(), members=np.zeros((0, 4), bool),
                   changes={AblationTarget.LOSS: np.zeros((SENTENCES, 0))})  # fmt: skip
    assert "no head has a verdict" in main_loss(none, {}).text.text


def test_heads_of_large_estimates_say_nothing_of_the_others() -> None:
    """Where not all heads were replaced, those drawn at random are counted."""
    given = ablation_results(around(0.05, 0.06, 0.0, 0.0, 0.05, 0.0, spread=0.003))
    assert representative_verdicts(given)[0].count(AblationVerdict.CHANGES) == 3
    chosen = [AblationReason.SELECTED] * 2 + [AblationReason.AUDIT] * 3
    some = replace(given, chosen=np.array([*chosen, AblationReason.NOT_ABLATED]))
    verdicts_of_drawn, _ = representative_verdicts(some)
    assert sorted(verdicts_of_drawn) == sorted([NONE_CHANGE, NONE_CHANGE, AblationVerdict.CHANGES])
    assert "1 of 3 heads drawn at random" in verdicts(some).text
    without = replace(some, chosen=np.where(some.chosen == AblationReason.AUDIT, 1, some.chosen))
    assert representative_verdicts(without)[1] == " with the largest estimates"


def test_the_largest_head_is_reported_on_all_sentences() -> None:
    given = ablation_results(around(0.05, 0.0, 0.01, spread=0.003))
    reported = given.changes[AblationTarget.LOSS][:, 0].mean() / TOKENS
    text = largest(given)
    assert heads_answer(given) == text
    assert heads(text) == ["L0·H0"]
    (number,) = numbers(text)
    assert number.value == pytest.approx(reported)
    assert number.unit.factor == pytest.approx(100 / LOSS)
    assert (number.row.table, dict(number.row.key)["metric"]) == ("importance", "ablation_effect")
    small = ablation_results(around(0.0, 0.001, spread=0.003))
    assert not largest(small)
    layers = with_layers(ablation_results(around(0.05, 0.0), STATE), around(0.3, 0.01))
    for each in (small, layers):
        assert heads_answer(each) == verdicts(each)


def test_harmful_heads_are_named() -> None:
    given = ablation_results(around(0.05, 0.0, -0.05, 0.01, spread=0.003))
    assert heads(harmful(given)) == ["L0·H2"]
    assert not harmful(ablation_results(around(0.05, 0.0)))


def some_replaced(
    given: AblationResults, replaced: list[int], chosen: list[int]
) -> AblationResults:
    """Leave only some heads with exact changes."""
    changes = given.changes[AblationTarget.LOSS][:, replaced]
    return replace(
        given, chosen=np.array(chosen), sets=tuple(given.sets[n] for n in replaced),
        members=given.members[replaced], changes={AblationTarget.LOSS: changes},
    )  # fmt: skip


def test_exact_effects_are_told_from_estimates() -> None:
    given = some_replaced(ablation_results(around(0.05, 0.0, 0.01)), [0, 2], [1, 0, 2])
    rows = head_changes(given).to_dict("records")
    changes = [head_change(given, row, exact=row["method"] == "exact") for row in rows]
    assert [number.sign for number in changes] == ["", "≈", ""]
    assert [dict(number.row.key)["metric"] for number in changes] == [
        "ablation_effect", "attribution_estimate", "ablation_effect",
    ]  # fmt: skip


def test_the_audit_is_said_where_heads_have_estimates_alone() -> None:
    effects = np.tile(np.array([0.05, 0.0, 0.03, 0.001, 0.0, 0.0]), (SENTENCES, 1))
    given = ablation_results(effects + around(*[0.0] * 6, spread=1e-3))
    some = some_replaced(given, [0, 1, 2, 3, 4], [1, 2, 2, 2, 2, 0])
    note = estimates_note(some)
    assert note.text.startswith("On 4 heads picked at random")
    rho, missed = numbers(note)
    assert [rho.value, missed.value] == pytest.approx([1, 0.527], abs=5e-4)
    assert not estimates_note(given)


def steps(high: list[float]) -> pd.DataFrame:
    rows = []
    for order in ("ablation_effect", "random-00", "random-01"):
        bounds = high if order == "ablation_effect" else [0, 0.015, 0.5, 1]
        for share, bound in zip((0, 0.05, 0.1, 0.15), bounds, strict=True):
            rows.append(("self", order, "mean", AblationTarget.LOSS, share, 0.0, 0.0, bound))
    return pd.DataFrame(rows, columns=[*PRUNING.columns])


def test_how_many_heads_can_go_stands_beside_the_random_order() -> None:
    """At 1 % of the loss, which is 2 nats."""
    given = ablation_results(around(0.05, 0.0))
    text = pruning(given, steps([0, 0.01, 0.019, 0.03]))
    share, margin, random = numbers(text)
    assert (share.value, margin.value, random.value) == pytest.approx((0.1, 0.02, 0.05))
    assert share.row == random.row
    (margin,) = numbers(pruning(given, steps([0, 0.03, 0.01, 0.03])))
    assert margin.value == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("ends", "side"),
    [
        ((0.001, 0.019), "surely less"),
        ((0.03, 0.05), "surely more"),
        ((0.01, 0.05), "perhaps more"),
    ],
)
def test_the_curve_says_whether_heads_that_can_each_go_alone_can_go_together(
    ends: tuple[float, float], side: str
) -> None:
    """Three heads can go alone; the curve has steps of one, two and four heads."""
    given = ablation_results(around(0.05, 0.0, 0.0, 0.0, spread=0.0005))
    assert verdict_counter(given)[NONE_CHANGE] == 3
    curve = [(0, 0, 0, 0), (0.25, 0, 0, 0.001), (0.5, sum(ends) / 2, *ends), (1, 1.5, 1, 2)]
    rows = [("self", "ablation_effect", "mean", AblationTarget.LOSS, *step) for step in curve]
    table = pruning_steps(given, pd.DataFrame(rows, columns=[*PRUNING.columns]))
    text = together(given, table)
    assert "the 2 heads of smallest effect" in text.text
    assert f"{side} than 1.0" in text.text
    number, margin = numbers(text)
    assert (number.value, number.low, number.high) == (sum(ends) / 2, *ends)
    assert margin.value == pytest.approx(0.02)
    assert number.row.table == "tests"
    assert dict(number.row.key)["label"] == "ablation_effect/0.5/mean/loss"
    assert not together(ablation_results(around(0.05, 0.05, 0.05, 0.05)), table)
    random = table.assign(order="random-00")
    assert pruning_steps(given, random).empty
    assert not together(given, pruning_steps(given, random))


def heavy(mean: str, without: str, zero: float, band: float) -> pd.DataFrame:
    """Three lines of a group, whose verdicts and change by zero are given."""
    rows = []
    for name, verdict, value in (
        ("mean", mean, 0.05), ("without_sink", without, 0.001), ("zero", "changes", zero)
    ):  # fmt: skip
        rows.append({
            "stack": "self", "group": HEAVY_NAME, "heads": 3, "metric": "group_effect",
            "replacement": name, "target": AblationTarget.LOSS, "value": value,
            "low": value - 0.001,
            "high": value + 0.001, "n_sentences": SENTENCES,
            "sum_of_single_effects": value, "random_low": 0.0,
            "random_high": band, "random_sets": 20, "rank": 1 + 20 * (value < band),
            "margin": 0.01, "share_changed": 0.9, "share_low": 0.8, "share_high": 1.0,
            "verdict": verdict,
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*HEAD_GROUPS.columns])


@pytest.mark.parametrize(
    ("given_numbers", "start", "replacement"),
    [
        ((NONE_CHANGE, NONE_CHANGE, 0.1, 0.2), "Yes", "zero"),
        ((NONE_CHANGE, NONE_CHANGE, 0.5, 0.2), "All that is lost is a constant", "zero"),
        ((CHANGES, NONE_CHANGE, 0.5, 0.2), "No", "mean"),
        ((CHANGES, UNSURE, 0.5, 0.2), "No", "mean"),
        ((UNSURE, NONE_CHANGE, 0.1, 0.2), "Not known", ""),
        ((NONE_CHANGE, UNSURE, 0.1, 0.2), "Not known", ""),
        ((NONE_CHANGE, CHANGES, 0.1, 0.2), "Not known", ""),
    ],
)
def test_heads_on_the_sink_are_dead_only_by_all_three(
    given_numbers: tuple[str, str, float, float], start: str, replacement: str
) -> None:
    given = ablation_results(around(0.0, 0.001))
    text = sinks_dead(given, heavy(*given_numbers), "[CLS]")
    assert text.text.startswith(f"{start}:")
    assert ("hardly without" in text.text) == (given_numbers[:2] == (CHANGES, NONE_CHANGE))
    assert [dict(n.row.key)["replacement"] for n in numbers(text)] == [replacement] * bool(
        replacement
    )


def test_a_group_that_fills_its_layers_is_its_own_random_set() -> None:
    """The band is then no comparison: a large change by zero is inside it whatever it is."""
    rows = heavy(NONE_CHANGE, NONE_CHANGE, 0.5, 0.5)
    rows["random_low"] = rows["random_high"] = rows["value"]
    given = ablation_results(around(0.0, 0.001))
    assert "All that is lost is a constant" in sinks_dead(given, rows, "[CLS]").text
    rows["verdict"] = NONE_CHANGE
    assert sinks_dead(given, rows, "[CLS]").text.startswith("Yes:")
    rows.loc[rows["replacement"] == "zero", "verdict"] = UNSURE
    assert sinks_dead(given, rows, "[CLS]").text.startswith("Not known")
    assert random_rank(rows.iloc[0].to_dict()) == ("", False)


@pytest.mark.parametrize(
    ("rank", "sets", "expected"),
    [
        (1, 100, ("above all 100 random sets", True)),
        (101, 100, ("below all 100 random sets", True)),
        (2, 100, ("above 99 of 100 random sets", True)),
        (4, 100, ("above 97 of 100 random sets", False)),
        (21, 20, ("below all 20 random sets", False)),
        (11, 20, ("above 10 of 20 random sets", False)),
    ],
)
def test_a_rank_among_random_sets_is_clear_only_if_few_sets_lie_beyond(
    rank: int, sets: int, expected: tuple[str, bool]
) -> None:
    row = {"random_sets": sets, "random_low": 0.1, "random_high": 0.2, "rank": rank}
    assert random_rank(row) == expected


def test_all_sink_heads_answer_as_on_the_page_of_patterns() -> None:
    """The strictest group answers only where the group of all was not measured."""
    strict = heavy(CHANGES, NONE_CHANGE, 0.5, 0.2)
    both = pd.concat([strict.assign(group="sink"), strict])
    assert {*sink_rows(both, "self", AblationTarget.LOSS)["group"]} == {"sink"}
    assert {*sink_rows(strict, "self", AblationTarget.LOSS)["group"]} == {HEAVY_NAME}
    only = strict.assign(group="sink")
    assert sink_rows(only, "cross", AblationTarget.LOSS).empty
