"""Verdicts on heads: tests of equivalence on numbers that do and do not support them."""

from dataclasses import replace

import numpy as np
import pytest

from headbook.analysis.accumulators import Ratios
from headbook.analysis.intervals import at_most
from headbook.analysis.resampled import family_wise_above
from headbook.study.importancetables import groups_table, importance_table
from headbook.study.summaries import verdicts
from headbook.study.summaries.removals import (
    Chosen,
    EstimateColumn,
    HeadPlace,
    Removals,
    RemovedSet,
    SetKind,
)
from headbook.study.summaries.verdicts import Verdict, audit, can_go, head_effects, margin
from headbook.terms import Target

SENTENCES, TOKENS, LOSS = 60, 10, 2.0  # the margin is 0.01 nats a token


def removals(
    effects: np.ndarray, target: str = Target.LOSS, guess: np.ndarray | None = None
) -> Removals:
    """Heads with given changes per token. *Shape* of the effects: ``(sentence, head)``."""
    sentences, heads = effects.shape
    key = np.sort(np.random.default_rng(1).integers(0, 2**63, sentences).astype(np.uint64))
    counts = np.full(sentences, float(TOKENS))
    guess = effects.mean(0) if guess is None else guess
    d = np.full((1, heads, 1), 1.0)
    return Removals(
        level="full",
        heads=tuple(HeadPlace("self", 0, head) for head in range(heads)),
        chosen=np.full(heads, int(Chosen.FIRST)),
        content_hash=key,
        counts={target: counts},
        full={} if target == Target.STATE else {target: counts * LOSS},
        sets=tuple(RemovedSet(SetKind.HEAD, "self", f"L0-H{h}", 0, "mean") for h in range(heads)),
        members=np.eye(heads, dtype=bool),
        changes={target: effects * TOKENS},
        direct=np.full(effects.shape, np.nan),
        columns=(EstimateColumn("attribution_estimate", "mean", target, ""),),
        estimates=Ratios.of(guess[None, :, None], d, d, np.zeros(1, np.int64)),
    )


def around(*means: float, spread: float = 0.01, seed: int = 0) -> np.ndarray:
    """Changes of all sentences, their mean exactly as given."""
    noise = np.random.default_rng(seed).normal(size=(SENTENCES, len(means))) * spread
    found: np.ndarray = noise - noise.mean(0) + np.array(means)
    return found


def test_verdicts_follow_from_intervals_and_the_margin() -> None:
    effects = head_effects(removals(around(0.05, 0.0, -0.05, 0.01, 0.008)), Target.LOSS, "mean")
    assert margin(removals(around(0.0)), Target.LOSS) == pytest.approx(0.01)
    assert effects.verdict == (
        Verdict.NEEDED, Verdict.REMOVABLE, Verdict.HARMFUL, Verdict.UNDECIDED, Verdict.UNDECIDED,
    )  # fmt: skip


def test_what_is_not_shown_is_undecided() -> None:
    """A wide interval around 0 is no proof that a head is for nothing."""
    effects = head_effects(removals(around(0.0, 0.05, spread=0.5)), Target.LOSS, "mean")
    assert {*effects.verdict} == {Verdict.UNDECIDED}


def test_harmful_holds_over_all_heads_at_once() -> None:
    """A head that would be below 0 alone is removable, not harmful, among many."""
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(SENTENCES, 400)) * 0.01
    noise[:, 0] += -0.0027 - noise[:, 0].mean()  # z of about 2.1
    alone = head_effects(removals(noise[:, :1]), Target.LOSS, "mean")
    among = head_effects(removals(noise), Target.LOSS, "mean")
    assert alone.high[0] < 0
    assert (alone.verdict[0], among.verdict[0]) == (Verdict.HARMFUL, Verdict.REMOVABLE)
    assert among.p[0] > alone.p[0]


@pytest.mark.parametrize("skewed", [False, True])
def test_max_t_errs_in_one_family_of_twenty(skewed: bool) -> None:
    """Of many heads that change nothing, any is called harmful about as often as said.

    Losses are skewed: most sentences lose little, a few much.
    """
    wrong = 0
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(size=(SENTENCES, 30))
        noise = np.exp(noise) - np.exp(0.5) if skewed else noise
        effects = head_effects(removals(noise * 0.01), Target.LOSS, "mean")
        wrong += bool((effects.p < 0.05).any())
    assert wrong <= 9  # binomial with 60 draws at 0.05: more in fewer than 1 of 400


def test_a_loss_below_0_is_found_among_many_heads() -> None:
    values = np.random.default_rng(3).normal(size=(SENTENCES, 40)) * 0.01
    values[:, 7] -= 0.01
    p = family_wise_above(-values)
    assert p.argmin() == 7
    assert p[7] < 0.01
    assert (p[np.arange(40) != 7] > 0.05).all()
    assert family_wise_above(np.zeros((20, 3))).tolist() == [1, 1, 1]


def test_a_head_that_never_changes_anything_is_removable() -> None:
    """Though an interval of nothing but zeros says nothing."""
    for target in (Target.LOSS, Target.KL, Target.STATE):
        still = removals(np.zeros((SENTENCES, 1)), target)
        if target is Target.KL:
            still = replace(still, full={Target.KL: still.counts[Target.KL] * LOSS})
        effects = head_effects(still, target, "mean")
        assert effects.verdict == (Verdict.REMOVABLE,)
        assert (effects.low[0], effects.high[0]) == (0, 0)
    few = head_effects(removals(np.zeros((5, 1))), Target.LOSS, "mean")
    assert few.verdict == (Verdict.UNDECIDED,)


def test_cosines_have_a_margin_of_their_own() -> None:
    """They cannot be negative, so none is harmful."""
    each = np.abs(around(0.01, 0.0002, spread=0.0001))
    effects = head_effects(removals(each, Target.STATE), Target.STATE, "mean")
    assert effects.verdict == (Verdict.NEEDED, Verdict.REMOVABLE)
    assert np.isnan(effects.p).all()


def test_an_audit_tells_what_estimates_miss() -> None:
    effects = np.array([0.05, 0.04, 0.0, 0.03, 0.0005, 0.002, 0.0, 0.0])
    guess = np.array([0.06, 0.05, 0.0, 0.0015, 0.002, 0.002, 0.0, 0.001])
    given = removals(np.tile(effects, (SENTENCES, 1)), guess=guess)
    # Two come first, five are audited, and the last was not taken away.
    chosen = np.array([1, 1, 2, 2, 2, 2, 2, 0])
    given = replace(
        given, chosen=chosen, sets=given.sets[:7], members=given.members[:7],
        changes={Target.STATE: given.changes[Target.LOSS][:, :7]},
        counts={Target.STATE: given.counts[Target.LOSS]}, full={},
        columns=(EstimateColumn("attribution_estimate", "mean", Target.STATE, ""),),
    )  # fmt: skip
    found = audit(given, Target.STATE)
    assert (found.heads, found.rest, found.above, found.missed) == (5, 1, 2, 0)
    assert found.pearson == pytest.approx(np.corrcoef(effects[2:7], guess[2:7])[0, 1])
    assert found.spearman == pytest.approx(
        np.corrcoef([0.5, 4, 2, 3, 0.5], [0.5, 2, 3.5, 3.5, 0.5])[0, 1]
    )
    assert found.share == pytest.approx(1 - 0.05 ** (1 / 5))
    ratios = Ratios.of(guess[None, :, None] * 0.1, np.ones((1, 8, 1)), np.ones((1, 8, 1)),
                       np.zeros(1, np.int64))  # fmt: skip
    low = replace(given, estimates=ratios)
    assert audit(low, Target.STATE).missed == 2


def test_bounds_of_shares_are_those_of_clopper_and_pearson() -> None:
    assert at_most(0, 20) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert at_most(20, 20) == 1
    assert at_most(3, 20) == pytest.approx(0.344, abs=1e-3)  # their table


def test_what_can_go_ends_at_the_first_bound_that_is_too_high() -> None:
    shares = (0, 0.05, 0.1, 0.15)
    assert can_go(shares, (0, 0.01, 0.03, 0.01), 0.02) == 0.05
    assert can_go(shares, (0, 0.01, np.nan, 0.01), 0.02) == 0.05
    assert can_go(shares, (0, 0.01, 0.01, 0.02), 0.02) == 0.15


def test_merged_samples_keep_what_both_have_taken_away() -> None:
    one = removals(around(0.05, 0.0, seed=1))
    other = replace(
        removals(around(0.03, 0.01, seed=2)), content_hash=one.content_hash + np.uint64(1)
    )
    both = one + other
    effects = head_effects(both, Target.LOSS, "mean")
    np.testing.assert_allclose(effects.value, [0.04, 0.005], atol=1e-12)
    assert (effects.sentences == 2 * SENTENCES).all()
    fewer = replace(
        other, sets=other.sets[1:], members=other.members[1:], chosen=np.array([0, 1]),
        changes={name: change[:, 1:] for name, change in other.changes.items()},
    )  # fmt: skip
    some = one + fewer
    assert [each.name for each in some.sets] == ["L0-H1"]
    assert [*some.chosen] == [0, 1]
    assert importance_table(some)["kind"].value_counts().to_dict() == {"estimated": 2, "exact": 1}


def test_groups_stand_beside_random_sets_and_their_singles() -> None:
    given = removals(around(0.05, 0.02, 0.01))
    more = around(0.09, 0.04, 0.06, seed=4)
    sets = [RemovedSet(SetKind.GROUP, "self", "some", 0, "mean")]
    sets += [RemovedSet(SetKind.RANDOM, "self", "some", k, "mean") for k in range(2)]
    members = np.array([[True, True, False], [True, False, True], [False, True, True]])
    given = replace(
        given, sets=(*given.sets, *sets), members=np.concatenate([given.members, members]),
        changes={Target.LOSS: np.concatenate([given.changes[Target.LOSS], more * TOKENS], 1)},
    )  # fmt: skip
    (found,) = groups_table(given).to_dict("records")
    assert found["value"] == pytest.approx(0.09)
    assert found["singles"] == pytest.approx(0.07)
    assert (found["random_low"], found["random_high"]) == pytest.approx((0.04, 0.06))
    assert (found["group"], found["heads"], found["metric"]) == ("some", 2, "group_effect")


def test_nothing_makes_empty_tables() -> None:
    assert importance_table(None).empty
    assert groups_table(None).empty
    assert not importance_table(removals(around(0.0))).empty
    assert verdicts.ranked_target(removals(around(0.0), Target.STATE)) == Target.STATE
