"""Films: the same numbers at several steps of training, one checkpoint after the other. No torch.

The *half-rise step* of a number is the first step at which it is past the middle between its first
and its last value, upwards or downwards, wherever it goes later; between steps nothing is
interpolated. There is one only where the last value differs from the first beyond noise: where the
95 % interval of their paired difference (`headbook.analysis.paired`) does not hold 0. That is said
of each number by itself: of twenty that never change, one has a half-rise step by chance.

Its interval comes from drawing clusters of sentences with replacement, the same ones for all steps
and cells (Efron's percentiles): the steps between which 95 % of draws have theirs. It tells other
sentences, not other runs of training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis import multiple_testing
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.paired import ClusterSums, PairedDifferences, differences

NO_CELL = -1  # in place of a cell
ENDS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class HalfRise:
    """When numbers changed; the arrays have the shape ``cells`` and hold places of steps.

    Attributes:
        step: the half-rise step; NaN where first and last value do not differ beyond noise.
        low, high: the steps at both ends of its 95 % interval; NaN likewise.
        change: the last value minus the first.
    """

    step: Floats
    low: Floats
    high: Floats
    change: PairedDifferences


@dataclass(frozen=True, eq=False)
class BestHeads:
    """The best cell for each of several functions, at each step; arrays without the cells.

    Attributes:
        cell: its place; `NO_CELL` where no value is known.
        value: its value on sentences that had no part in the choice; NaN where unknown.
    """

    cell: Ints
    value: Floats


def half_rise(values: Floats) -> Floats:
    """The half-rise step of each cell, whether or not the change is more than noise.

    Args:
        values: NaN where unknown; such steps are passed over. *Shape:* ``(step, *cells)``.

    Returns:
        *Shape:* ``cells``; NaN where the first or last value is unknown, or both are the same.
    """
    first, last = values[0], values[-1]
    way, middle = np.sign(last - first), (first + last) / 2
    past = way * (values - middle) > 0
    found = past.argmax(0).astype(np.float64)
    return np.where(past.any(0) & ~np.isnan(way), found, np.nan)


def half_rises(n: NDArray[np.floating], d: NDArray[np.floating]) -> HalfRise:
    """Half-rise steps of ratios of sums, with intervals.

    Args:
        n, d: numerators and denominators of each cluster, as in `headbook.analysis.paired`; the
            same clusters at every step. *Shape:* ``(step, cluster, *cells)``.

    Raises:
        ValueError: there are fewer than two steps, or the arrays differ in shape.
    """
    if len(n) < 2 or n.shape != d.shape:
        raise ValueError(
            f"expected sums of one shape, of two steps or more; came {n.shape} and {d.shape}"
        )
    cells = n.shape[2:]
    change = differences(ClusterSums(n[0], d[0]), ClusterSums(n[-1], d[-1]))
    moved = ((change.low > 0) | (change.high < 0)).reshape(-1)
    found = np.full((3, len(moved)), np.nan)
    places = np.flatnonzero(moved)
    if len(places):
        flat = [part.reshape(*n.shape[:2], len(moved)) for part in (n, d)]
        for some in _blocks(places, len(n)):
            found[:, some] = _some(*(part[..., some].astype(np.float64) for part in flat))
    step, low, high = found.reshape(3, *cells)
    return HalfRise(step, low, high, change)


def best_heads(choice: Floats, report: Floats) -> BestHeads:
    """The cell with the largest value, chosen on one half of the sentences, told on the other.

    Args:
        choice, report: NaN where unknown. *Shape:* ``(step, function, cell)``, or any other
            dimensions in place of the first two.

    Returns:
        Arrays ``(step, function)``; the first of equal cells.
    """
    if not choice.shape[-1]:
        return BestHeads(np.full(choice.shape[:-1], NO_CELL), np.full(choice.shape[:-1], np.nan))
    known = ~np.isnan(choice)
    cell = np.where(known, choice, -np.inf).argmax(-1)
    value = np.take_along_axis(report, cell[..., None], -1)[..., 0]
    there = known.any(-1)
    return BestHeads(np.where(there, cell, NO_CELL), np.where(there, value, np.nan))


def shares(types: NDArray[np.str_], names: Sequence[str]) -> Floats:
    """Share of heads of each type at each step.

    Args:
        types: of each head; those that have none of the names do not count. *Shape:*
            ``(step, *heads)``.
        names: in the order wanted.

    Returns:
        *Shape:* ``(step, name)``; NaN at steps where no head counts, else each row sums to 1.
    """
    flat = types.reshape(len(types), -1)
    counts = np.stack([(flat == name).sum(1) for name in names], 1)
    return divide(counts, counts.sum(1, keepdims=True))


def _blocks(places: Ints, steps: int) -> Iterator[Ints]:
    """Some cells at a time, so that values of all steps and draws have room."""
    size = max(1, multiple_testing.MAX_NUMBERS // (multiple_testing.DRAWS * steps))
    for start in range(0, len(places), size):
        yield places[start : start + size]


def _some(n: Floats, d: Floats) -> Floats:
    """Step, and both ends of its interval, of some cells. *Shape:* ``(3, cell)``."""
    steps = np.arange(len(n))[:, None]
    drawn = multiple_testing.bootstrap_counts(n.shape[1])
    values = divide(np.matmul(drawn, n), np.matmul(drawn, d))  # (step, draw, cell)
    found = half_rise(values)
    counts = np.stack([(found == step).sum(0) for step in steps[:, 0]])
    share = divide(counts.cumsum(0), counts.sum(0))
    low, high = ((share >= end).argmax(0) for end in ENDS)
    return np.stack([half_rise(divide(n.sum(1), d.sum(1))), low, high])
