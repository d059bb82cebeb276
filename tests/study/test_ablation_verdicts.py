"""Verdicts on heads: shares of changed sentences, on numbers that do and do not support them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from ablation_results import APART, LOSS, SENTENCES, TOKENS, ablation_results, around
from headbook.analysis.accumulators import RatioSums
from headbook.analysis.intervals import share_upper_bound
from headbook.analysis.multiple_testing import bootstrap_p_above, bootstrap_t
from headbook.schema import AblationTarget
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import (
    AblationVerdict,
    audit,
    effect_interval,
    equivalence_margin,
    head_effects,
    removable_share,
)
from headbook.study.ablation.results import AttributionKey, HeadSet, HeadSetKind
from headbook.study.ablation_tables import head_groups_table, importance_table


def naive_verdict(own: list[float], margin: float, heads: int) -> tuple[int, float, float, str]:
    """Count changed sentences, bound their share by quantiles of the beta distribution, decide."""
    n, k = len(own), sum(abs(each) > margin for each in own)
    error = 0.05 / heads
    low = float(scipy.stats.beta.ppf(error, k, n - k + 1)) if k else 0.0
    high = float(scipy.stats.beta.ppf(1 - error, k + 1, n - k)) if k < n else 1.0
    if low > 0.2:
        return k, low, high, "changes"
    return k, low, high, "no_change" if high < 0.2 else "undecided"


def test_verdicts_follow_from_the_share_of_changed_sentences() -> None:
    """Some sentences change much, the rest little; the mean alone would call them all needed."""
    rng = np.random.default_rng(4)
    changes = rng.normal(size=(SENTENCES, 9)) * 0.003
    for head, changed in enumerate((0, 1, 2, 3, 8, 20, 30, 45, 60)):
        changes[rng.permutation(SENTENCES)[:changed], head] = 0.05
    given = ablation_results(changes)
    assert equivalence_margin(given, AblationTarget.LOSS) == pytest.approx(0.01)
    effects = head_effects(given, AblationTarget.LOSS, "mean")
    for head in range(9):
        k, low, high, verdict = naive_verdict([*changes[:, head]], 0.01, 9)
        assert effects.changed[head] == k
        assert effects.share_changed[head] == pytest.approx(k / SENTENCES)
        assert effects.share_low[head] == pytest.approx(low, abs=1e-12)
        assert effects.share_high[head] == pytest.approx(high, abs=1e-12)
        assert effects.verdict[head] == verdict
    assert {*effects.verdict} == {"changes", "no_change", "undecided"}


def test_bounds_hold_for_all_heads_together() -> None:
    """The more heads were replaced, the less is decided of one."""
    one = np.zeros((SENTENCES, 1))
    one[:3] = 0.05
    many = np.concatenate([one, np.zeros((SENTENCES, 199))], 1)
    alone, among = (
        head_effects(ablation_results(each), AblationTarget.LOSS, "mean") for each in (one, many)
    )
    assert (alone.verdict[0], among.verdict[0]) == (
        AblationVerdict.NO_CHANGE,
        AblationVerdict.UNDECIDED,
    )


def test_changes_in_both_directions_do_not_cancel() -> None:
    """A mean of 0 is no proof that a head is for nothing."""
    effects = head_effects(
        ablation_results(around(0.0, 0.05, spread=0.5)), AblationTarget.LOSS, "mean"
    )
    assert {*effects.verdict} == {AblationVerdict.CHANGES}


def test_too_few_sentences_decide_nothing() -> None:
    effects = head_effects(ablation_results(np.zeros((13, 1))), AblationTarget.LOSS, "mean")
    assert [*effects.verdict] == [
        AblationVerdict.UNDECIDED,
    ]
    effects = head_effects(ablation_results(np.zeros((14, 1))), AblationTarget.LOSS, "mean")
    assert [*effects.verdict] == [
        AblationVerdict.NO_CHANGE,
    ]


def test_an_empty_half_has_no_effect_and_no_interval() -> None:
    """One sentence or two may all be in the half on which heads are chosen."""
    few = ablation_results(around(0.5)[:2])
    few = replace(few, content_hash=np.zeros(2, np.uint64))
    assert not (few.half == 1).any()
    assert np.isnan(effect_tests.held_out(few, AblationTarget.LOSS, 0)).all()


def test_harmful_changes_sentences_and_holds_over_all_heads_at_once() -> None:
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(SENTENCES, 400)) * 0.04
    noise[:, 0] += -0.0108 - noise[:, 0].mean()  # z of about 2.1
    alone = head_effects(ablation_results(noise[:, :1]), AblationTarget.LOSS, "mean")
    among = head_effects(ablation_results(noise), AblationTarget.LOSS, "mean")
    assert alone.high[0] < 0
    assert (alone.verdict[0], among.verdict[0]) == (
        AblationVerdict.HARMFUL,
        AblationVerdict.CHANGES,
    )
    assert among.p[0] > alone.p[0]
    small = head_effects(ablation_results(noise[:, :1] / 10), AblationTarget.LOSS, "mean")
    assert small.p[0] < 0.05
    assert [*small.verdict] == [AblationVerdict.NO_CHANGE]


def test_the_margin_is_never_below_ten_times_rounding() -> None:
    given = ablation_results(around(0.0))
    counts = given.counts[AblationTarget.LOSS]
    rounded = np.resize([0.003, -0.005], SENTENCES) * counts
    coarse = replace(given, rounding={AblationTarget.LOSS: rounded})
    assert equivalence_margin(coarse, AblationTarget.LOSS) == pytest.approx(0.04)
    fine = replace(given, rounding={AblationTarget.LOSS: rounded / 100})
    assert equivalence_margin(fine, AblationTarget.LOSS) == pytest.approx(0.01)
    asked = replace(fine, asked_margin=0.3)
    assert equivalence_margin(asked, AblationTarget.LOSS) == 0.3
    assert equivalence_margin(
        replace(coarse, asked_margin=0.02), AblationTarget.LOSS
    ) == pytest.approx(0.04)
    assert np.isnan(equivalence_margin(given, AblationTarget.LOGIT))


def test_without_a_margin_there_is_no_verdict() -> None:
    given = replace(ablation_results(around(0.01), AblationTarget.STATE), sentence_distance={})
    effects = head_effects(given, AblationTarget.STATE, "mean")
    assert [*effects.verdict] == [
        "",
    ]
    assert np.isnan(effects.share_changed).all()
    table = importance_table(given)
    assert {*table["verdict"]} == {""}
    assert table[["margin", "share_changed", "share_low", "share_high"]].isna().all(axis=None)


def test_intervals_of_effects_are_bootstrap_t_up_to_500_sentences() -> None:
    rng = np.random.default_rng(8)
    changes, counts = rng.lognormal(size=(501, 2)), rng.integers(5, 20, size=501).astype(float)
    changes *= counts[:, None]
    low, high = effect_interval(changes[:500], counts[:500], AblationTarget.LOSS)
    tokens = np.broadcast_to(counts[:500, None], (500, 2))
    ends = bootstrap_t(changes[:500], tokens, (-np.inf, np.inf))
    np.testing.assert_array_equal((low, high), ends)
    tokens = np.broadcast_to(counts[:, None], (501, 2))
    ratios = RatioSums.of(changes, tokens, tokens, np.zeros(501, np.int64))
    found = effect_interval(changes, counts, AblationTarget.LOSS)
    np.testing.assert_array_equal(found, ratios.interval())


@pytest.mark.parametrize("skewed", [False, True])
def test_max_t_errs_in_one_family_of_twenty(skewed: bool) -> None:
    """Of many heads that change nothing, any is called harmful about as often as said.

    Losses are skewed: most sentences lose little, a few much.
    """
    wrong = 0
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(size=(SENTENCES, 30))
        noise = np.exp(noise) - np.exp(0.5) if skewed else noise
        effects = head_effects(ablation_results(noise * 0.01), AblationTarget.LOSS, "mean")
        wrong += bool((effects.p < 0.05).any())
    assert wrong <= 9  # binomial with 60 draws at 0.05: more in fewer than 1 of 400


def test_a_loss_below_0_is_found_among_many_heads() -> None:
    values = np.random.default_rng(3).normal(size=(SENTENCES, 40)) * 0.01
    values[:, 7] -= 0.01
    p = bootstrap_p_above(-values)
    assert p.argmin() == 7
    assert p[7] < 0.01
    assert (p[np.arange(40) != 7] > 0.05).all()
    assert bootstrap_p_above(np.zeros((20, 3))).tolist() == [1, 1, 1]


def test_a_head_that_never_changes_anything_can_go() -> None:
    """Though an interval of nothing but zeros says nothing."""
    for target in (AblationTarget.LOSS, AblationTarget.KL, AblationTarget.STATE):
        still = ablation_results(np.zeros((SENTENCES, 1)), target)
        if target is AblationTarget.KL:
            still = replace(
                still, unablated={AblationTarget.KL: still.counts[AblationTarget.KL] * LOSS}
            )
        effects = head_effects(still, target, "mean")
        assert [*effects.verdict] == [
            AblationVerdict.NO_CHANGE,
        ]
        assert (effects.low[0], effects.high[0]) == (0, 0)
    few = head_effects(ablation_results(np.zeros((5, 1))), AblationTarget.LOSS, "mean")
    assert [*few.verdict] == [AblationVerdict.UNDECIDED]


def test_cosines_have_a_margin_of_their_own() -> None:
    """They cannot be negative, so none is harmful."""
    each = np.abs(around(0.01, 0.0002, spread=0.0001))
    effects = head_effects(
        ablation_results(each, AblationTarget.STATE), AblationTarget.STATE, "mean"
    )
    assert equivalence_margin(
        ablation_results(each, AblationTarget.STATE), AblationTarget.STATE
    ) == pytest.approx(0.01 * APART)
    assert [*effects.verdict] == [AblationVerdict.CHANGES, AblationVerdict.NO_CHANGE]
    assert np.isnan(effects.p).all()


def test_an_audit_tells_what_estimates_miss() -> None:
    effects = np.array([0.05, 0.04, 0.0, 0.03, 0.0005, 0.002, 0.0, 0.0])
    guess = np.array([0.06, 0.05, 0.0, 0.0015, 0.002, 0.002, 0.0, 0.001])
    given = ablation_results(np.tile(effects, (SENTENCES, 1)), guess=guess)
    # Two come first, five are audited, and the last was not taken away.
    chosen = np.array([1, 1, 2, 2, 2, 2, 2, 0])
    given = replace(
        given, chosen=chosen, sets=given.sets[:7], members=given.members[:7],
        changes={AblationTarget.STATE: given.changes[AblationTarget.LOSS][:, :7]},
        counts={AblationTarget.STATE: given.counts[AblationTarget.LOSS]}, unablated={},
        sentence_distance={AblationTarget.STATE: 0.1},
        columns=(AttributionKey("attribution_estimate", "mean", AblationTarget.STATE, ""),),
    )  # fmt: skip
    found = audit(given, AblationTarget.STATE)
    assert (found.heads, found.rest, found.above, found.missed) == (5, 1, 2, 0)
    assert found.pearson == pytest.approx(np.corrcoef(effects[2:7], guess[2:7])[0, 1])
    assert found.spearman == pytest.approx(
        np.corrcoef([0.5, 4, 2, 3, 0.5], [0.5, 2, 3.5, 3.5, 0.5])[0, 1]
    )
    assert found.share == pytest.approx(1 - 0.05 ** (1 / 5))
    ratios = RatioSums.of(guess[None, :, None] * 0.1, np.ones((1, 8, 1)), np.ones((1, 8, 1)),
                       np.zeros(1, np.int64))  # fmt: skip
    low = replace(given, estimates=ratios)
    assert audit(low, AblationTarget.STATE).missed == 2


def test_bounds_of_shares_are_those_of_clopper_and_pearson() -> None:
    assert share_upper_bound(0, 20) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert share_upper_bound(20, 20) == 1
    assert share_upper_bound(3, 20) == pytest.approx(0.344, abs=1e-3)  # their table


def test_what_can_go_ends_at_the_first_bound_that_is_too_high() -> None:
    shares = (0, 0.05, 0.1, 0.15)
    assert removable_share(shares, (0, 0.01, 0.03, 0.01), 0.02) == 0.05
    assert removable_share(shares, (0, 0.01, np.nan, 0.01), 0.02) == 0.05
    assert removable_share(shares, (0, 0.01, 0.01, 0.02), 0.02) == 0.15


def test_merged_samples_keep_what_both_have_taken_away() -> None:
    one = ablation_results(around(0.05, 0.0, seed=1))
    other = replace(
        ablation_results(around(0.03, 0.01, seed=2)), content_hash=one.content_hash + np.uint64(1)
    )
    both = one + other
    effects = head_effects(both, AblationTarget.LOSS, "mean")
    np.testing.assert_allclose(effects.value, [0.04, 0.005], atol=1e-12)
    assert (effects.n_sentences == 2 * SENTENCES).all()
    fewer = replace(
        other, sets=other.sets[1:], members=other.members[1:], chosen=np.array([0, 1]),
        changes={name: change[:, 1:] for name, change in other.changes.items()},
    )  # fmt: skip
    some = one + fewer
    assert [each.name for each in some.sets] == ["L0-H1"]
    assert [*some.chosen] == [0, 1]
    assert importance_table(some)["method"].value_counts().to_dict() == {"estimated": 2, "exact": 1}


def test_a_tidy_table_of_changes_sums_to_the_effects_of_all_sets() -> None:
    """Sentences of the half on which an order was chosen have no rows."""
    given = ablation_results(around(0.05, 0.0, -0.02))
    known = given.half == 1
    some = given.changes[AblationTarget.LOSS].copy()
    some[~known, 1] = np.nan
    counts = np.arange(3, SENTENCES + 3).astype(np.float64)
    given = replace(
        given,
        sets=(given.sets[0], HeadSet(HeadSetKind.ORDER, "self", "type", 1, "mean"), given.sets[2]),
        changes={AblationTarget.LOSS: some},
        counts={AblationTarget.LOSS: counts},
    )
    assert [*given.select(HeadSetKind.HEAD, "mean")] == [0, 2]
    assert not len(given.select(HeadSetKind.HEAD, "zero"))
    rows = given.frame(AblationTarget.LOSS, np.array([1, 2]))
    assert {*rows.loc[rows["set"] == 1, "sentence"]} == {*np.flatnonzero(known)}
    assert len(rows) == known.sum() + SENTENCES
    (one,) = rows.query("set == 2 and sentence == 7").to_dict("records")
    assert (one["stack"], one["layer"], one["head"]) == ("self", 0, 2)
    assert (one["change"], one["n_tokens"]) == (some[7, 2], 10)
    sums = rows.groupby("set")[["change", "n_tokens"]].sum()
    ratios = given.ratios(AblationTarget.LOSS, np.array([1, 2]))
    np.testing.assert_allclose(sums["change"] / sums["n_tokens"], ratios.value)
    assert [*ratios.n_sentences] == [known.sum(), SENTENCES]


def test_random_sets_that_differ_by_rounding_alone_do_not_rank_above_a_group() -> None:
    """As where a group has all heads of its layers, so that every random set is the group."""
    given = ablation_results(around(0.05, 0.02))
    sets = [HeadSet(HeadSetKind.GROUP, "self", "all", 0, "mean")]
    sets += [HeadSet(HeadSetKind.RANDOM, "self", "all", k, "mean") for k in range(3)]
    same = around(0.07, seed=4)
    changes = np.concatenate([same * factor for factor in (1, 1 + 1e-12, 1 - 1e-12, 1.1)], 1)
    given = replace(
        given, sets=(*given.sets, *sets),
        members=np.concatenate([given.members, np.ones((4, 2), bool)]),
        changes={
            AblationTarget.LOSS: np.concatenate(
                [given.changes[AblationTarget.LOSS], changes * TOKENS], 1
            )
        },
    )  # fmt: skip
    (found,) = head_groups_table(given).to_dict("records")
    assert (found["random_sets"], found["rank"]) == (3, 2)


def test_groups_stand_beside_random_sets_and_their_singles() -> None:
    given = ablation_results(around(0.05, 0.02, 0.01))
    more = around(0.09, 0.04, 0.06, seed=4)
    sets = [HeadSet(HeadSetKind.GROUP, "self", "some", 0, "mean")]
    sets += [HeadSet(HeadSetKind.RANDOM, "self", "some", k, "mean") for k in range(2)]
    members = np.array([[True, True, False], [True, False, True], [False, True, True]])
    given = replace(
        given, sets=(*given.sets, *sets), members=np.concatenate([given.members, members]),
        changes={
            AblationTarget.LOSS: np.concatenate(
                [given.changes[AblationTarget.LOSS], more * TOKENS], 1
            )
        },
    )  # fmt: skip
    (found,) = head_groups_table(given).to_dict("records")
    assert found["value"] == pytest.approx(0.09)
    assert found["sum_of_single_effects"] == pytest.approx(0.07)
    assert (found["random_low"], found["random_high"]) == pytest.approx((0.04, 0.06))
    assert (found["group"], found["heads"], found["metric"]) == ("some", 2, "group_effect")
    assert (found["random_sets"], found["rank"]) == (2, 1)
    k, low, high, verdict = naive_verdict([*more[:, 0]], 0.01, 1)
    assert found["margin"] == pytest.approx(0.01)
    assert found["share_changed"] == pytest.approx(k / SENTENCES)
    assert (found["share_low"], found["share_high"]) == pytest.approx((low, high))
    assert found["verdict"] == verdict == "changes"


def test_nothing_makes_empty_tables() -> None:
    assert importance_table(None).empty
    assert head_groups_table(None).empty
    assert not importance_table(ablation_results(around(0.0))).empty
    assert (
        effect_tests.ranked_target(ablation_results(around(0.0), AblationTarget.STATE))
        == AblationTarget.STATE
    )
