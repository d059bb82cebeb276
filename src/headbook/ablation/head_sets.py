"""Which heads are taken away together: groups, random sets like them, orders and pairs."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.schema import Replacement
from headbook.study.ablation import HeadSet, HeadSetKind
from headbook.study.sentence_data import HeadName

RANDOM = 20  # orders
STEP = 5  # percent of the heads
PAIRED = 10  # heads of largest effect
ALL = "all"  # stacks


class Removed(NamedTuple):
    """One set of heads and what it is."""

    set: HeadSet
    heads: tuple[HeadName, ...]


@dataclass(frozen=True)
class HeadGroup:
    """Heads with something in common.

    Attributes:
        replacements: what is put in their place.
        banded: whether random sets are taken beside it.
        type: whether it is all heads of one type.
        number: of a random set like it; None of the group itself.
    """

    stack: str
    name: str
    heads: tuple[HeadName, ...]
    replacements: tuple[Replacement, ...]
    banded: bool = False
    type: bool = False
    number: int | None = None

    def removed(self) -> list[Removed]:
        """One set for each replacement."""
        kind = HeadSetKind.GROUP if self.number is None else HeadSetKind.RANDOM
        return [
            Removed(HeadSet(kind, self.stack, self.name, self.number or 0, replacement), self.heads)
            for replacement in self.replacements
        ]


def single_head_sets(
    heads: Sequence[HeadName], replacements: Sequence[Replacement]
) -> list[Removed]:
    """Each head alone."""
    return [
        Removed(HeadSet(HeadSetKind.HEAD, h.stack, f"L{h.layer}-H{h.head}", 0, replacement), (h,))
        for replacement in replacements
        for h in heads
    ]


def matched_random_sets(
    group: HeadGroup, heads: Sequence[HeadName], seed: int, sets: int
) -> list[HeadGroup]:
    """Return random sets with as many heads in each layer as a group; none without a band.

    The first sets are the same, however many there are.
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
) -> list[Removed]:
    """Ever more heads: those that lose least first, and in other orders beside it.

    Args:
        effect: what is lost without each head.
        named: other numbers of importance, by name.
        types: heads of each type, for an order of whole types.
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
    return [
        Removed(HeadSet(HeadSetKind.ORDER, stack, name, len(some), Replacement.MEAN), some)
        for name, order in rows.items()
        for some in _steps(order)
    ]


def n_dependent_sets(heads: int) -> int:
    """How many sets `pruning_orders` and `pair_sets` give for so many heads, about."""
    first = min(heads, PAIRED)
    return (RANDOM + 4) * min(100 // STEP, heads) + first * (first - 1) // 2


def _by_type(
    heads: Sequence[HeadName], effect: Mapping[HeadName, float], types: Sequence[HeadGroup]
) -> list[HeadName]:
    """Type by type, those that lose least for each head first."""
    of = {head: group.name for group in types for head in group.heads}
    lost: dict[str, list[float]] = defaultdict(list)
    for head in heads:
        lost[of.get(head, "")].append(effect[head])
    mean = {name: float(np.mean(each)) for name, each in lost.items()}
    return sorted(heads, key=lambda h: (mean[of.get(h, "")], of.get(h, ""), effect[h]))


def _steps(order: Sequence[HeadName]) -> list[tuple[HeadName, ...]]:
    """The first of an order, a step more each time; steps that add no head are left out."""
    numbers = {round(percent * len(order) / 100) for percent in range(STEP, 101, STEP)} - {0}
    return [tuple(sorted(order[:number])) for number in sorted(numbers)]


def pair_sets(heads: Sequence[HeadName], effect: Floats) -> list[Removed]:
    """Every two of the heads of largest effect."""
    first = [heads[k] for k in np.argsort(-effect, kind="stable")[:PAIRED]]
    return [
        Removed(HeadSet(HeadSetKind.PAIR, _stacks(some), _names(some), 0, Replacement.MEAN), some)
        for some in combinations(sorted(first), 2)
    ]


def _stacks(heads: Sequence[HeadName]) -> str:
    return "+".join(dict.fromkeys(head.stack for head in heads))


def _names(heads: Sequence[HeadName]) -> str:
    """Names of heads, with their stacks where these differ."""
    one = len({head.stack for head in heads}) == 1
    return " ".join(
        f"L{h.layer}-H{h.head}" if one else f"{h.stack}-L{h.layer}-H{h.head}" for h in heads
    )
