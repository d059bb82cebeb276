"""What is lost without heads: tables of the pass, against one sentence and one hook at a time."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.special
import torch
from test_ablator import FAMILIES, KEYS, SMALL, TEXTS, Case, Naive, batch_of, case, scored

import tiny
from bare_model import Bare
from headbook.ablation import importance as module
from headbook.ablation.attribution import gradient_estimates
from headbook.ablation.costs import AblationCosts, costs_of
from headbook.ablation.head_sets import HeadGroup, matched_random_sets
from headbook.ablation.importance import AblationPlan, NotEnoughMemory
from headbook.ablation.replacements import OutputSums
from headbook.ablation.sample import AblationSample
from headbook.model.probe import hidden_states_of
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.results import AUTO, FULL, AblationReason, AblationResults, HeadSetKind
from headbook.study.ablation_tables import head_groups_table, importance_table, pruning_table
from headbook.text.batch import Batch

__all__ = ["case"]
pytestmark = pytest.mark.usefixtures("of_any_number")
EVERY = range(len(TEXTS))
REPORTED = [number for number in EVERY if KEYS[number] % 2]


def sentences(it: Case, numbers: Sequence[int]) -> Batch:
    basic = Bare.load(it.folder, pairs=tiny.ALL[it.family].pairs)
    return batch_of(basic, it.family, numbers)


def asked(it: Case, level: str, *groups: HeadGroup, **more: Any) -> AblationPlan:
    def one_batch(_: object) -> Batch:
        raise AssertionError("nobody is out of memory")

    sample = AblationSample(it.batches, [sentences(it, REPORTED)], it.batches, one_batch)
    costs = costs_of(it.ablator, 10_000, (60, 32))
    return AblationPlan(it.ablator, costs, level, sample, 0, groups, **more)


class Lost:
    """Changes of loss and divergence per scored token, by hooks."""

    def __init__(self, it: Case) -> None:
        self.true = scored(it)
        self.masked = it.family == "bert"
        masked = [[*row] if self.masked else [] for row in self.true]
        self.naive = Naive(it, masked)
        self.names = it.ablator.functions.targets
        self._logs = cache(self._without)

    def __call__(
        self, heads: Sequence[HeadName], replacement: Replacement, numbers: Sequence[int]
    ) -> dict[AblationTarget, float]:
        loss = kl = tokens = 0.0
        for number in numbers:
            one = self._logs((), replacement, number)
            other = self._logs(tuple(heads), replacement, number)
            for i, t in self.true[number].items():
                loss += one[i, t] - other[i, t]
                kl += float((np.exp(one[i]) * (one[i] - other[i])).sum())
                tokens += 1
        return dict(zip(self.names, (loss / tokens, kl / tokens), strict=True))

    def by_token(self, head: HeadName) -> list[tuple[float, int, int, float]]:
        """Change of the loss, sentence, position of the true token, and loss before; by rank."""
        rows = []
        for number in EVERY:
            one = self._logs((), Replacement.MEAN, number)
            other = self._logs((head,), Replacement.MEAN, number)
            for i, t in self.true[number].items():
                position = i if self.masked else i + 1
                rows.append((one[i, t] - other[i, t], number, position, -one[i, t]))
        return sorted(rows, key=lambda row: -row[0])

    def _without(
        self, heads: tuple[HeadName, ...], replacement: Replacement, number: int
    ) -> np.ndarray:
        r = {head: self.naive.instead(head, number, replacement) for head in heads}
        found: np.ndarray = scipy.special.log_softmax(self.naive.run(number, r)[0], -1)
        return found


def only(table: pd.DataFrame, **wanted: object) -> pd.Series:
    for column, value in wanted.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def some_set(
    ablation: AblationResults, kind: HeadSetKind, **wanted: object
) -> tuple[int, list[HeadName]]:
    """The first set of a kind, and its heads."""
    position = next(
        k
        for k, each in enumerate(ablation.sets)
        if each.kind == kind and all(getattr(each, n) == v for n, v in wanted.items())
    )
    return position, [ablation.heads[k] for k in np.flatnonzero(ablation.members[position])]


def assert_same(one: AblationResults, other: AblationResults) -> None:
    tables = [importance_table(ablation) for ablation in (one, other)]
    pd.testing.assert_frame_equal(tables[0], tables[1], rtol=1e-7)


def _assert_missed(ablation: AblationResults, head: HeadName, lost: Lost) -> None:
    """The tokens of largest change, and the one in the middle, are those of plain hooks."""
    naive = lost.by_token(head)
    place = ablation.heads.index(head)
    found = [missed for missed in ablation.missed if missed.head == place]
    middle = (len(naive) - 1) // 2
    assert [missed.rank - 1 for missed in found] == sorted({*range(min(10, len(naive))), middle})
    for missed in found:
        change, sentence, position, before = naive[missed.rank - 1]
        assert missed.tokens == len(naive)
        assert missed.change == pytest.approx(change, rel=SMALL, abs=SMALL)
        assert missed.before == pytest.approx(before, rel=SMALL, abs=SMALL)
        assert (missed.sentence, missed.position) == (sentence, position)


@pytest.mark.parametrize("family", FAMILIES)
def test_tables_equal_plain_hooks(family: str, case: Callable[..., Case]) -> None:
    it = case(family)
    heads, lost = asked(it, FULL).heads, Lost(it)
    group = HeadGroup("", "some", (heads[0], heads[1], heads[5]), (Replacement.ZERO,))
    ablation = asked(it, FULL, group).run()
    table, groups, pruned = (
        make(ablation) for make in (importance_table, head_groups_table, pruning_table)
    )
    exact = table[table["metric"] == "ablation_effect"]
    assert len(exact) == len(heads) * 4 * 2
    zero = Replacement.ZERO
    for head, replacement in ((heads[2], Replacement.MEAN), (heads[-1], zero)):
        for target, value in lost([head], replacement, EVERY).items():
            series = only(exact, **head._asdict(), replacement=replacement, target=target)
            assert series["value"] == pytest.approx(value, rel=SMALL, abs=SMALL)
            assert (series["method"], series["n_sentences"]) == ("exact", len(TEXTS))
    for target, value in lost(group.heads, zero, EVERY).items():
        series = only(groups, group="some", target=target)
        alone = sum(lost([head], zero, EVERY)[target] for head in group.heads)
        assert series["value"] == pytest.approx(value, rel=SMALL, abs=SMALL)
        assert series["sum_of_single_effects"] == pytest.approx(alone, rel=SMALL, abs=SMALL)
        assert series["heads"] == len(group.heads)
    _assert_missed(ablation, heads[2], lost)
    # Pairs and orders: chosen on one half of the sentences, reported on the other.
    first = {h: lost([h], Replacement.MEAN, [0, 3])[lost.names[1]] for h in heads}
    position, two = some_set(ablation, HeadSetKind.PAIR)
    assert {*two} <= {*sorted(heads, key=lambda h: -first[h])[:10]}
    together = lost(two, Replacement.MEAN, REPORTED)
    for target in lost.names:
        apart = sum(lost([head], Replacement.MEAN, REPORTED)[target] for head in two)
        pair = ablation.sets[position]
        series = only(groups, stack=pair.stack, group=pair.name, target=target)
        assert series["value"] == pytest.approx(together[target] - apart, rel=SMALL, abs=SMALL)
        assert series["sum_of_single_effects"] == pytest.approx(apart, rel=SMALL, abs=SMALL)
    _, least = some_set(ablation, HeadSetKind.ORDER, name="ablation_effect", number=len(heads) // 2)
    assert sorted(least) == sorted(sorted(heads, key=lambda h: first[h])[: len(heads) // 2])
    for target, value in lost(least, Replacement.MEAN, REPORTED).items():
        series = only(pruned, order="ablation_effect", share=0.5, target=target)
        assert series["value"] == pytest.approx(value, rel=SMALL, abs=SMALL)


def test_orders_begin_with_nothing_and_end_with_all(case: Callable[..., Case]) -> None:
    ablation = asked(case("gpt2"), FULL).run()
    table = pruning_table(ablation)
    for _, steps in table.groupby(["order", "target"]):
        assert (steps["share"].is_monotonic_increasing, steps["share"].iloc[-1]) == (True, 1.0)
        assert [*steps.iloc[0][["share", "value", "low", "high"]]] == [0, 0, 0, 0]
    ends = table[table["share"] == 1].groupby("target")["value"]
    assert (ends.max() - ends.min()).max() < 1e-9
    orders = {*table["order"]}
    assert {"ablation_effect", "reversed", "gradient_importance", "random-00"} <= orders
    assert sum(order.startswith("random") for order in orders) == 20


def test_gradients_are_those_of_each_sentence_alone(case: Callable[..., Case]) -> None:
    """Absolute values of sentences, over all scored tokens."""
    it = case("bert")
    table = importance_table(asked(it, AUTO).run())
    means, loss = it.means, it.ablator.functions.targets[0]
    alone = [
        gradient_estimates(it.ablator, sentences(it, [n]), module.FULL_REPLACEMENTS, means)
        for n in EVERY
    ]
    tokens = sum(len(each) for each in scored(it))
    head = HeadName("self", 1, 2)
    column = alone[0].heads.index(head)
    g = np.array([each.gradient["sentence"][0, column] for each in alone])
    expected = {
        "": np.abs(g).sum(),
        "signed": -g.sum(),
        "per_token": sum(each.gradient["token"][0, column] for each in alone),
    }
    mine = table[table["metric"] == "gradient_importance"]
    for label, value in expected.items():
        series = only(mine, **head._asdict(), label=label)
        assert series["value"] == pytest.approx(value / tokens)
        assert series["method"] == "exact"
    layer = mine[(mine["layer"] == 1) & (mine["label"] == "layer_normalised")]["value"]
    assert (layer**2).sum() == pytest.approx(1)
    guess = only(
        table, **head._asdict(), metric="attribution_estimate", replacement="mean", target=loss
    )
    reported = sum(each.estimates[loss, Replacement.MEAN][0, column] for each in alone)
    assert guess["value"] == pytest.approx(reported / tokens)
    assert guess["method"] == "estimated"
    assert np.isnan(guess["low"])
    assert guess["verdict"] == ""


def test_where_the_other_half_has_no_sentences_means_are_those_of_their_own() -> None:
    """Not zero, which would be another replacement."""
    output = torch.randn(2, 3, 1, 4, dtype=torch.float64)
    group, half = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    sums = OutputSums.of(output, group, torch.ones(2, 3, dtype=torch.bool), half, groups=3)
    found = sums.other_half(group, half)
    torch.testing.assert_close(found, output.mean((0, 1)).expand_as(found))


def test_random_sets_have_as_many_heads_in_each_layer() -> None:
    heads = [HeadName("self", layer, head) for layer in range(3) for head in range(6)]
    group = HeadGroup("self", "some", (*heads[:3], heads[7]), (Replacement.MEAN,), banded=True)
    head_groups = matched_random_sets(group, heads, seed=0, sets=20)
    assert len(head_groups) == 20
    for each in head_groups:
        assert Counter(head.layer for head in each.heads) == {0: 3, 1: 1}
        assert len({*each.heads}) == 4
    assert len({head_group.heads for head_group in head_groups}) > 10
    assert head_groups == matched_random_sets(group, heads, seed=0, sets=100)[:20]


def test_sets_matched_by_effect_have_the_nearest_sums_of_single_effects() -> None:
    """The nearest of all sets with as many heads in each layer, which a plain search lists."""
    heads = [HeadName("self", layer, head) for layer in range(2) for head in range(5)]
    effect = {head: (7 * n % 11) / 11 for n, head in enumerate(heads)}
    group = HeadGroup(
        "self", "same_keys", (*heads[:2], heads[6]), (Replacement.MEAN,), banded=True,
        by_effect=True,
    )  # fmt: skip
    target = sum(effect[head] for head in group.heads)
    every = [
        tuple(sorted((*pair, one))) for pair in combinations(heads[:5], 2) for one in heads[5:]
    ]
    distances = sorted(
        abs(sum(effect[head] for head in each) - target) for each in every if each != group.heads
    )
    drawn = matched_random_sets(group, heads, seed=0, sets=10, effect=effect)
    assert [each.number for each in drawn] == [*range(10)]
    assert len({each.heads for each in drawn} - {group.heads}) == 10
    found = [abs(sum(effect[head] for head in each.heads) - target) for each in drawn]
    assert found == pytest.approx(distances[:10])
    before = matched_random_sets(group, heads, seed=0, sets=10)  # effects are not known yet
    assert [Counter(head.layer for head in each.heads) for each in before] == [{0: 2, 1: 1}] * 10


def test_the_auto_level_ablates_every_head_as_the_full_level_does(
    case: Callable[..., Case],
) -> None:
    it = case("gpt2")
    ablation, full = (asked(it, level).run() for level in (AUTO, FULL))
    assert (ablation.chosen == AblationReason.SELECTED).all()
    query = "metric == 'ablation_effect' and replacement == 'mean'"
    mine, theirs = (importance_table(each).query(query) for each in (ablation, full))
    assert len(mine) == len(ablation.heads) * len(ablation.targets)
    assert (mine["method"] == "exact").all()
    columns = ["stack", "layer", "head", "target", "value", "low", "high", "verdict"]
    keys = columns[:4]
    pd.testing.assert_frame_equal(
        mine[columns].sort_values(keys, ignore_index=True),
        theirs[columns].sort_values(keys, ignore_index=True),
        rtol=1e-7,
    )


def test_beyond_the_limit_heads_of_largest_estimates_and_as_many_others_are_ablated(
    case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = case("gpt2")
    monkeypatch.setattr(module, "MAX_PASSES", 4.2)
    few = asked(it, AUTO)
    ablation = few.run()
    exact = [h for h, why in zip(ablation.heads, ablation.chosen, strict=True) if why]
    assert 0 < len(exact) <= few.n_single < len(few.heads)
    assert sum(few.costs.of([head]) for head in exact) <= 4.2
    assert {*ablation.chosen} == {*AblationReason}
    selected, audited = (
        int((ablation.chosen == reason).sum())
        for reason in (AblationReason.SELECTED, AblationReason.AUDIT)
    )
    assert 0 < audited <= selected
    position = [c[:3] for c in ablation.columns].index(("attribution_estimate", "mean", "kl"))
    guess = ablation.estimates.value[:, position]
    first = guess[ablation.chosen == AblationReason.SELECTED]
    assert first.min() > guess[ablation.chosen != AblationReason.SELECTED].max()
    table = importance_table(ablation)
    alone = table[table["metric"] == "ablation_effect"]
    assert len(alone) == 2 * len(exact)
    estimated = table[table["metric"] == "attribution_estimate"]
    assert len(estimated) == len(table["replacement"].unique()[1:]) * 2 * len(few.heads)
    assert estimated["low"].isna().all()


def test_heads_of_least_effect_go_together_beside_random_orders(
    case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders come from one half of the sentences, of heads without exact effect by estimates."""
    it = case("gpt2")
    lost, kl = Lost(it), AblationTarget.KL
    heads = asked(it, AUTO).heads
    for limit in (module.MAX_PASSES, 4.2):
        monkeypatch.setattr(module, "MAX_PASSES", limit)
        ablation = asked(it, AUTO).run()
        column = [c[:3] for c in ablation.columns].index(("attribution_estimate", "mean", "kl"))
        guess = ablation.estimates.split(0).value[:, column]
        exact = [lost([head], Replacement.MEAN, [0, 3])[kl] for head in heads]
        effect = dict(zip(heads, np.where(ablation.chosen > 0, exact, guess), strict=True))
        ascending = sorted(heads, key=lambda head: effect[head])
        table = pruning_table(ablation)
        for number in (1, 2, 4, 8):
            _, least = some_set(ablation, HeadSetKind.ORDER, name="ablation_effect", number=number)
            assert sorted(least) == sorted(ascending[:number])
            for target, value in lost(least, Replacement.MEAN, REPORTED).items():
                share = number / len(heads)
                row = only(table, order="ablation_effect", share=share, target=target)
                assert row["value"] == pytest.approx(value, rel=SMALL, abs=SMALL)
    orders = {*table["order"]} - {"ablation_effect"}
    assert orders == {f"random-{number:02d}" for number in range(5)}
    full = asked(it, FULL).run()
    for order in sorted(orders):
        drawn = [
            some_set(each, HeadSetKind.ORDER, name=order, number=4)[1] for each in (ablation, full)
        ]
        assert drawn[0] == drawn[1]


def test_as_many_passes_are_announced_as_run(case: Callable[..., Case]) -> None:
    """Of growing sets, which may begin at a later layer, the largest number is announced."""
    it = case("gpt2")
    heads = asked(it, AUTO).heads
    group = HeadGroup(
        "self", "some", (heads[1], heads[-1]), (Replacement.MEAN, Replacement.ZERO), banded=True
    )
    costs = costs_of(it.ablator, 10**15, (60, 32))  # the language-model head costs nothing
    plan = replace(asked(it, AUTO, group), costs=costs)
    (layers,) = it.ablator.heads.architecture.layers.values()
    rows: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, out: rows.append(len(hidden_states_of(out))))
        for layer in layers
    ]
    ablation = plan.run()
    for hook in hooks:
        hook.remove()
    backward = costs.backward_passes + costs.direct
    run = sum(rows) / len(layers) / len(TEXTS) + backward
    growing = [
        costs.of([head for head, is_member in zip(heads, members, strict=True) if is_member])
        for each, members in zip(ablation.sets, ablation.members, strict=True)
        if each.kind == HeadSetKind.ORDER
    ]
    assert len(growing) == 6 * 4
    share = len(REPORTED) / len(TEXTS)
    most, of_growing = (len(growing) + 1) / 2, share * (sum(growing) + 1)
    assert run == pytest.approx(plan.passes - most + of_growing)
    assert f"at most {np.ceil(plan.passes):.0f} forward passes over 5 sentences" in plan.message


@pytest.mark.parametrize(
    ("layers", "n_heads", "lm_head_share", "passes"),
    [(6, 12, 0, 42), (12, 12, 0, 78), (12, 12, 0.214, 92), (12, 12, 0.31, 98), (30, 9, 0.21, 167)],
)
def test_every_head_of_common_models_is_ablated(
    layers: int, n_heads: int, lm_head_share: float, passes: float
) -> None:
    """Those of MiniLM, BERT-base without and with a head, GPT-2, and SmolLM2."""
    costs = AblationCosts({"self": layers}, True, lm_head_share, 1, False)
    heads = [HeadName("self", layer, head) for layer in range(layers) for head in range(n_heads)]
    assert sum(costs.of([head]) for head in heads) == pytest.approx(passes, abs=0.5)
    assert costs.n_single(heads, module.MAX_PASSES) == len(heads)


def test_nothing_depends_on_batches(case: Callable[..., Case]) -> None:
    it = case("gpt2")
    one = asked(it, AUTO).run()
    order = (4, 1, 0, 3, 2)
    batches = [sentences(it, order[:2]), sentences(it, order[2:])]
    other = asked(Case(it.ablator, batches, it.folder, it.family), AUTO).run()
    assert_same(one, other)


def test_smaller_batches_where_memory_does_not_suffice(
    case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = case("gpt2")
    whole = asked(it, AUTO).run()

    def scarce(ablator: Any, batch: Batch, *rest: Any) -> Any:
        if len(batch.content_hash) > most:
            raise RuntimeError("not enough memory: you tried to allocate 1 byte")
        return gradient_estimates(ablator, batch, *rest)

    # Sentences go by their numbers here, so that `AblationSample.batch` can make them anew.
    small: Any = [Batch(tuple(map(int, b.index)), *rest(b)) for b in it.batches]  # type: ignore[arg-type]
    again: Any = lambda numbers: Batch(numbers, *rest(sentences(it, numbers)))  # noqa: E731
    sample = AblationSample(it.batches, [sentences(it, REPORTED)], small, again)
    few = AblationPlan(it.ablator, costs_of(it.ablator, 10_000, (60, 32)), AUTO, sample, 0)
    monkeypatch.setattr(module, "gradient_estimates", scarce)
    most = 1
    assert_same(whole, few.run())
    most = 0
    with pytest.raises(NotEnoughMemory, match="memory does not suffice"):
        few.run()


def rest(batch: Batch) -> tuple[Any, ...]:
    return batch.texts, batch.index, batch.content_hash
