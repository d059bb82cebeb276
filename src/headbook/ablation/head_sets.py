"""Sets of heads that are ablated together: groups, random sets, growing sets and pairs."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.schema import HeadName, Replacement
from headbook.study.ablation.results import EFFECT_ORDER, REVERSED, HeadSet, HeadSetKind

N_RANDOM_ORDERS = 20  # random pruning orders
N_RANDOM_CURVES = 5  # random orders beside the short removal curve
CANDIDATES_PER_SET = 50  # random sets of which one is kept that matches a group by its effects
STEP_PERCENT = 5  # per cent of the heads that one pruning step adds
N_PAIRED_HEADS = 10  # heads of largest effect, of which all pairs are ablated
ALL_STACKS = "all"  # stack of pruning orders over several stacks

HeadSets = dict[HeadSet, tuple[HeadName, ...]]
"""Heads of each set."""


@dataclass(frozen=True)
class HeadGroup:
    """Heads with a common property, such as a family or a layer.

    Attributes:
        stack: stack of the heads.
        name: name of the group in tables and on pages.
        heads: heads of the group.
        replacements: replacements with which the group is ablated.
        banded: whether random sets are ablated for comparison.
        is_family: whether the heads are one family, or the sink heads.
        by_effect: whether random sets also have about the same sum of effects of single heads.
        number: number of a random set that matches the group; None for the group itself.
    """

    stack: str
    name: str
    heads: tuple[HeadName, ...]
    replacements: tuple[Replacement, ...]
    banded: bool = False
    is_family: bool = False
    by_effect: bool = False
    number: int | None = None

    @property
    def sets(self) -> HeadSets:
        """One set of heads for each replacement."""
        kind = HeadSetKind.GROUP if self.number is None else HeadSetKind.RANDOM
        return {
            HeadSet(kind, self.stack, self.name, self.number or 0, replacement): self.heads
            for replacement in self.replacements
        }


def single_head_sets(heads: Sequence[HeadName], replacements: Sequence[Replacement]) -> HeadSets:
    """Return one set for each head and replacement."""
    return {
        HeadSet(HeadSetKind.HEAD, head.stack, f"L{head.layer}-H{head.head}", 0, replacement): (
            head,
        )
        for replacement in replacements
        for head in heads
    }


def groups_with_random(
    groups: Sequence[HeadGroup],
    heads: Sequence[HeadName],
    effect: Mapping[HeadName, float] | None,
    *,
    seed: int,
    sets: int,
    replacements: Sequence[Replacement],
) -> list[HeadGroup]:
    """Return groups of heads, each followed by its random sets.

    Args:
        groups: the groups.
        heads, effect, seed, sets: as in `matched_random_sets`.
        replacements: replacements of random sets, as far as their group has them.
    """
    in_order: list[HeadGroup] = []
    for group in groups:
        of_sets = tuple(each for each in group.replacements if each in replacements)
        drawn = matched_random_sets(group, heads, seed, sets, effect)
        in_order += [group, *(replace(each, replacements=of_sets) for each in drawn)]
    return in_order


def matched_random_sets(
    group: HeadGroup,
    heads: Sequence[HeadName],
    seed: int,
    sets: int,
    effect: Mapping[HeadName, float] | None = None,
) -> list[HeadGroup]:
    """Return random sets with as many heads in each layer as a group; none if it is not banded.

    The first sets do not depend on how many are drawn. Of a group matched by effect, these are
    those of `CANDIDATES_PER_SET` times as many other sets with the nearest sums of effects.

    Args:
        group: the group whose numbers of heads per layer are matched.
        heads: all heads of the model.
        seed: seed of the run.
        sets: number of random sets.
        effect: effect of ablating each head alone, or an estimate of it; None before it is known.
    """
    if not group.banded:
        return []
    if group.by_effect and effect is not None:
        drawn = _random_sets(group, heads, seed, sets * CANDIDATES_PER_SET)
        others = {each.heads: each for each in drawn if each.heads != group.heads} or {
            each.heads: each for each in drawn
        }
        target = sum(effect[head] for head in group.heads)

        def distance(candidate: HeadGroup) -> float:
            return abs(sum(effect[head] for head in candidate.heads) - target)

        nearest = sorted(others.values(), key=distance)[:sets]
        return [replace(each, number=number) for number, each in enumerate(nearest)]
    return _random_sets(group, heads, seed, sets)


def _random_sets(
    group: HeadGroup, heads: Sequence[HeadName], seed: int, sets: int
) -> list[HeadGroup]:
    """Return random sets with as many heads in each layer as a group."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{group.stack} {group.name}".encode())])
    n_heads_by_layer = Counter((head.stack, head.layer) for head in group.heads)
    layers = {
        place: [head for head in heads if (head.stack, head.layer) == place]
        for place in n_heads_by_layer
    }
    random_groups = []
    for number in range(sets):
        drawn = [
            layers[place][index]
            for place, n_heads in n_heads_by_layer.items()
            for index in rng.choice(len(layers[place]), n_heads, replace=False)
        ]
        random_groups.append(replace(group, heads=tuple(sorted(drawn)), number=number))
    return random_groups


def pruning_orders(
    heads: Sequence[HeadName],
    effect: Mapping[HeadName, float],
    scores_by_name: Mapping[str, Mapping[HeadName, float]],
    families: Sequence[HeadGroup],
    seed: int,
) -> HeadSets:
    """Return growing sets of heads, by ascending effect and by several other orders.

    Args:
        heads: all heads of the model.
        effect: effect of ablating each head alone.
        scores_by_name: other importance scores of each head, by name of the order.
        families: groups of heads that are families, for an order family by family.
        seed: seed of the random orders.
    """
    ascending = sorted(heads, key=lambda head: effect[head])
    orders = {EFFECT_ORDER: ascending, REVERSED: ascending[::-1]}
    for name, scores in scores_by_name.items():
        orders[name] = sorted(heads, key=lambda head, scores=scores: scores[head])  # type: ignore[misc]
    if families:
        orders["family"] = _by_family(heads, effect, families)
    orders |= _random_orders(heads, seed, N_RANDOM_ORDERS)
    return _growing_sets(orders, _even_steps(len(heads)))


def least_sets(heads: Sequence[HeadName], effect: Mapping[HeadName, float], seed: int) -> HeadSets:
    """Return the 1, 2, 4, 8, ... heads of least effect, and as many heads of random orders.

    Args:
        heads: all heads of the model.
        effect: effect of ablating each head alone, or an estimate of it.
        seed: seed of the random orders.
    """
    orders = {EFFECT_ORDER: sorted(heads, key=lambda head: effect[head])}
    orders |= _random_orders(heads, seed, N_RANDOM_CURVES)
    return _growing_sets(orders, _doubling_steps(len(heads)))


def n_least_sets(heads: int) -> int:
    """Return the number of sets of `least_sets`.

    Args:
        heads: number of heads of the model.
    """
    return (1 + N_RANDOM_CURVES) * len(_doubling_steps(heads))


def _random_orders(heads: Sequence[HeadName], seed: int, orders: int) -> dict[str, list[HeadName]]:
    """Return random orders of heads by name; the first ones do not depend on how many there are."""
    rng = np.random.default_rng(seed)
    return {
        f"random-{number:02d}": [heads[index] for index in rng.permutation(len(heads))]
        for number in range(orders)
    }


def _growing_sets(orders: Mapping[str, Sequence[HeadName]], steps: Sequence[int]) -> HeadSets:
    """Return the first heads of each order.

    Args:
        orders: heads in the order in which they are removed, by name of the order.
        steps: numbers of heads, ascending.
    """
    stacks = {head.stack for order in orders.values() for head in order}
    stack = ALL_STACKS if len(stacks) > 1 else "".join(stacks)
    return {
        HeadSet(HeadSetKind.ORDER, stack, name, number, Replacement.MEAN): tuple(
            sorted(order[:number])
        )
        for name, order in orders.items()
        for number in steps
    }


def largest_sets(effect: Mapping[HeadName, float], n_heads: int) -> HeadSets:
    """Return growing sets of the heads of largest effect, as the first steps of an order.

    Args:
        effect: effect of ablating each head alone, of some heads.
        n_heads: number of heads of the largest set.
    """
    order = sorted(effect, key=lambda head: -effect[head])
    return _growing_sets({REVERSED: order}, range(1, min(len(order), n_heads) + 1))


def n_dependent_sets(heads: int) -> int:
    """Estimate the number of sets that `pruning_orders` and `pair_sets` return.

    Args:
        heads: number of heads of the model.
    """
    n_paired = min(heads, N_PAIRED_HEADS)
    return (N_RANDOM_ORDERS + 4) * min(100 // STEP_PERCENT, heads) + n_paired * (n_paired - 1) // 2


def _by_family(
    heads: Sequence[HeadName], effect: Mapping[HeadName, float], families: Sequence[HeadGroup]
) -> list[HeadName]:
    """Order heads family by family, those of smallest mean effect first."""
    family_of = {head: group.name for group in families for head in group.heads}
    effects_by_family: dict[str, list[float]] = defaultdict(list)
    for head in heads:
        effects_by_family[family_of.get(head, "")].append(effect[head])
    mean_effect = {name: float(np.mean(effects)) for name, effects in effects_by_family.items()}
    return sorted(
        heads,
        key=lambda head: (
            mean_effect[family_of.get(head, "")],
            family_of.get(head, ""),
            effect[head],
        ),
    )


def _even_steps(heads: int) -> list[int]:
    """Return the numbers of heads of 5, 10, ... 100 per cent; steps that add none are left out."""
    percents = range(STEP_PERCENT, 101, STEP_PERCENT)
    return sorted({round(percent * heads / 100) for percent in percents} - {0})


def _doubling_steps(heads: int) -> list[int]:
    """Return the powers of two below the number of heads, and that number."""
    return [*(2**power for power in range((heads - 1).bit_length())), heads]


def pair_sets(heads: Sequence[HeadName], effect: Floats) -> HeadSets:
    """Return all pairs of the heads of largest effect.

    Args:
        heads: all heads of the model.
        effect: effect of ablating each head alone. *Shape:* ``(head,)``.
    """
    largest = [heads[index] for index in np.argsort(-effect, kind="stable")[:N_PAIRED_HEADS]]
    pairs: HeadSets = {}
    for pair in combinations(sorted(largest), 2):
        stacks = [*dict.fromkeys(head.stack for head in pair)]
        name = " ".join(
            f"L{head.layer}-H{head.head}"
            if len(stacks) == 1
            else f"{head.stack}-L{head.layer}-H{head.head}"
            for head in pair
        )
        pairs[HeadSet(HeadSetKind.PAIR, "+".join(stacks), name, 0, Replacement.MEAN)] = pair
    return pairs
