"""Sets of heads that are ablated together: groups, random sets, pruning orders and pairs."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.schema import Replacement
from headbook.study.ablation import HeadSet, HeadSetKind
from headbook.study.sentence_data import HeadName

RANDOM = 20  # random pruning orders
STEP = 5  # per cent of the heads that one pruning step adds
PAIRED = 10  # heads of largest effect, of which all pairs are ablated
ALL = "all"  # stack of pruning orders over several stacks

HeadSets = dict[HeadSet, tuple[HeadName, ...]]
"""Heads of each set."""


@dataclass(frozen=True)
class HeadGroup:
    """Heads with a common property, such as a type or a layer.

    Attributes:
        stack: stack of the heads.
        name: name of the group in tables and on pages.
        heads: heads of the group.
        replacements: replacements with which the group is ablated.
        banded: whether random sets are ablated for comparison.
        type: whether the group is all heads of one type.
        number: number of a random set that matches the group; None for the group itself.
    """

    stack: str
    name: str
    heads: tuple[HeadName, ...]
    replacements: tuple[Replacement, ...]
    banded: bool = False
    type: bool = False
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
        HeadSet(HeadSetKind.HEAD, h.stack, f"L{h.layer}-H{h.head}", 0, replacement): (h,)
        for replacement in replacements
        for h in heads
    }


def matched_random_sets(
    group: HeadGroup, heads: Sequence[HeadName], seed: int, sets: int
) -> list[HeadGroup]:
    """Return random sets with as many heads in each layer as a group; none if it is not banded.

    The first sets do not depend on how many are drawn.

    Args:
        group: the group whose numbers of heads per layer are matched.
        heads: all heads of the model.
        seed: seed of the run.
        sets: number of random sets.
    """
    if not group.banded:
        return []
    rng = np.random.default_rng([seed, zlib.crc32(f"{group.stack} {group.name}".encode())])
    wanted = Counter((head.stack, head.layer) for head in group.heads)
    layers = {
        place: [head for head in heads if (head.stack, head.layer) == place] for place in wanted
    }
    found = []
    for number in range(sets):
        drawn = [
            layers[place][k]
            for place, n in wanted.items()
            for k in rng.choice(len(layers[place]), n, replace=False)
        ]
        found.append(replace(group, heads=tuple(sorted(drawn)), number=number))
    return found


def pruning_orders(
    heads: Sequence[HeadName],
    effect: Mapping[HeadName, float],
    named: Mapping[str, Mapping[HeadName, float]],
    types: Sequence[HeadGroup],
    seed: int,
) -> HeadSets:
    """Return growing sets of heads, by ascending effect and by several other orders.

    Args:
        heads: all heads of the model.
        effect: effect of ablating each head alone.
        named: other importance scores of each head, by name of the order.
        types: groups of heads of one type, for an order that prunes type by type.
        seed: seed of the random orders.
    """
    stack = heads[0].stack if len({head.stack for head in heads}) == 1 else ALL
    rows: dict[str, list[HeadName]] = {}
    if effect:
        least = sorted(heads, key=lambda head: effect[head])
        rows = {"ablation_effect": least, "reversed": least[::-1]}
    for name, numbers in named.items():
        rows[name] = sorted(heads, key=lambda head, numbers=numbers: numbers[head])  # type: ignore[misc]
    if types:
        rows["type"] = _by_type(heads, effect, types)
    rng = np.random.default_rng(seed)
    for number in range(RANDOM):
        rows[f"random-{number:02d}"] = [heads[k] for k in rng.permutation(len(heads))]
    return {
        HeadSet(HeadSetKind.ORDER, stack, name, len(some), Replacement.MEAN): some
        for name, order in rows.items()
        for some in _steps(order)
    }


def n_dependent_sets(heads: int) -> int:
    """Estimate the number of sets that `pruning_orders` and `pair_sets` return.

    Args:
        heads: number of heads of the model.
    """
    first = min(heads, PAIRED)
    return (RANDOM + 4) * min(100 // STEP, heads) + first * (first - 1) // 2


def _by_type(
    heads: Sequence[HeadName], effect: Mapping[HeadName, float], types: Sequence[HeadGroup]
) -> list[HeadName]:
    """Order heads type by type, types of smallest mean effect first."""
    of = {head: group.name for group in types for head in group.heads}
    lost: dict[str, list[float]] = defaultdict(list)
    for head in heads:
        lost[of.get(head, "")].append(effect[head])
    mean = {name: float(np.mean(each)) for name, each in lost.items()}
    return sorted(heads, key=lambda h: (mean[of.get(h, "")], of.get(h, ""), effect[h]))


def _steps(order: Sequence[HeadName]) -> list[tuple[HeadName, ...]]:
    """Return the pruning steps of an order, each with all heads of the step before.

    Steps that add no head are left out.
    """
    numbers = {round(percent * len(order) / 100) for percent in range(STEP, 101, STEP)} - {0}
    return [tuple(sorted(order[:number])) for number in sorted(numbers)]


def pair_sets(heads: Sequence[HeadName], effect: Floats) -> HeadSets:
    """Return all pairs of the heads of largest effect.

    Args:
        heads: all heads of the model.
        effect: effect of ablating each head alone. *Shape:* ``(head,)``.
    """
    first = [heads[k] for k in np.argsort(-effect, kind="stable")[:PAIRED]]
    pairs: HeadSets = {}
    for some in combinations(sorted(first), 2):
        stacks = [*dict.fromkeys(head.stack for head in some)]
        name = " ".join(
            f"L{h.layer}-H{h.head}" if len(stacks) == 1 else f"{h.stack}-L{h.layer}-H{h.head}"
            for h in some
        )
        pairs[HeadSet(HeadSetKind.PAIR, "+".join(stacks), name, 0, Replacement.MEAN)] = some
    return pairs
