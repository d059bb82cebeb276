r"""Half-rise steps of numbers over training checkpoints, with bootstrap intervals. No torch.

The *half-rise step* of a number is the first step at which the number is past the middle between
its first and its last value, upwards or downwards, regardless of later steps; between steps nothing
is interpolated. It exists only if the last value differs from the first beyond noise: if the 95 %
interval of their paired difference (`headbook.analysis.paired`) does not contain 0. This test is
made for each number by itself: of twenty that never change, one has a half-rise step by chance.

The interval comes from drawing clusters of sentences with replacement, the same ones for all steps
and cells (Efron's percentiles): it spans the steps that contain 95 % of the draws' half-rise steps.
It covers variation between samples of sentences, not between training runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis import multiple_testing
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.paired import ClusterSums, PairedDifferences, differences

NO_CELL = -1  # index if there is no best cell
ENDS = (0.025, 0.975)  # quantiles of the draws at both ends of an interval


@dataclass(frozen=True, eq=False)
class HalfRise:
    """Half-rise steps of numbers; arrays have the shape ``cells`` and hold indices of steps.

    Attributes:
        step: half-rise step; NaN where first and last value do not differ beyond noise.
        low, high: steps at both ends of the 95 % interval; NaN where ``step`` is NaN.
        change: difference of the last value from the first.
    """

    step: Floats
    low: Floats
    high: Floats
    change: PairedDifferences


@dataclass(frozen=True, eq=False)
class BestHeads:
    """Best cell for each of several functions at each step; arrays have no cell dimension.

    Attributes:
        cell: index of the best cell; `NO_CELL` if no value is known.
        value: value of the best cell on the sentences of ``report``; NaN if unknown.
    """

    cell: Ints
    value: Floats


def half_rise(values: Floats) -> Floats:
    """Return the half-rise step of each cell, whether or not the change is beyond noise.

    Args:
        values: numbers by step; steps with NaN are skipped. *Shape:* ``(step, *cells)``.

    Returns:
        *Shape:* ``cells``; NaN where the first or last value is unknown, or both are equal.
    """
    first, last = values[0], values[-1]
    sign, middle = np.sign(last - first), (first + last) / 2
    past = sign * (values - middle) > 0
    step = past.argmax(0).astype(np.float64)
    return np.where(past.any(0) & ~np.isnan(sign), step, np.nan)


def half_rises(n: NDArray[np.floating], d: NDArray[np.floating]) -> HalfRise:
    """Return half-rise steps of ratios of sums, with intervals.

    Args:
        n, d: numerators and denominators of each cluster, as in `headbook.analysis.paired`;
            clusters are equal at all steps. *Shape:* ``(step, cluster, *cells)``.

    Raises:
        ValueError: there are fewer than two steps, or the arrays differ in shape.
    """
    if len(n) < 2 or n.shape != d.shape:
        raise ValueError(
            f"sums: got shapes {n.shape} and {d.shape}, expected one shape of two steps or more"
        )
    cells = n.shape[2:]
    change = differences(ClusterSums(n[0], d[0]), ClusterSums(n[-1], d[-1]))
    moved = ((change.low > 0) | (change.high < 0)).reshape(-1)
    found = np.full((3, len(moved)), np.nan)
    places = np.flatnonzero(moved)
    if len(places):
        flat = [part.reshape(*n.shape[:2], len(moved)) for part in (n, d)]
        for block in _blocks(places, len(n)):
            found[:, block] = _interval(*(part[..., block].astype(np.float64) for part in flat))
    step, low, high = found.reshape(3, *cells)
    return HalfRise(step, low, high, change)


def best_heads(choice: Floats, report: Floats) -> BestHeads:
    """Choose the cell with the largest value on one split, and return its value on the other.

    Args:
        choice: values on the sentences that decide; NaN where unknown. *Shape:* ``(step, function,
            cell)``, or any other dimensions instead of the first two.
        report: values on the other sentences; NaN where unknown. *Shape:* that of ``choice``.

    Returns:
        The first of equal cells. *Shape:* ``(step, function)``.
    """
    if not choice.shape[-1]:
        return BestHeads(np.full(choice.shape[:-1], NO_CELL), np.full(choice.shape[:-1], np.nan))
    known = ~np.isnan(choice)
    cell = np.where(known, choice, -np.inf).argmax(-1)
    value = np.take_along_axis(report, cell[..., None], -1)[..., 0]
    there = known.any(-1)
    return BestHeads(np.where(there, cell, NO_CELL), np.where(there, value, np.nan))


def shares(types: NDArray[np.str_], names: Sequence[str]) -> Floats:
    """Return the share of heads of each type at each step.

    Args:
        types: type of each head; heads of types not in ``names`` do not count. *Shape:*
            ``(step, *heads)``.
        names: types in the order of the result.

    Returns:
        *Shape:* ``(step, name)``; NaN at steps where no head counts, else each row sums to 1.
    """
    flat = types.reshape(len(types), -1)
    counts = np.stack([(flat == name).sum(1) for name in names], 1)
    return divide(counts, counts.sum(1, keepdims=True))


def _blocks(places: Ints, steps: int) -> Iterator[Ints]:
    """Yield blocks of cells small enough to hold the values of all steps and draws."""
    size = max(1, multiple_testing.MAX_NUMBERS // (multiple_testing.DRAWS * steps))
    for start in range(0, len(places), size):
        yield places[start : start + size]


def _interval(n: Floats, d: Floats) -> Floats:
    """Return half-rise step and both ends of the interval of cells. *Shape:* ``(3, cell)``."""
    steps = np.arange(len(n))[:, None]
    drawn = multiple_testing.bootstrap_counts(n.shape[1])
    values = divide(np.matmul(drawn, n), np.matmul(drawn, d))  # (step, draw, cell)
    found = half_rise(values)
    counts = np.stack([(found == step).sum(0) for step in steps[:, 0]])
    share = divide(counts.cumsum(0), counts.sum(0))
    low, high = ((share >= end).argmax(0) for end in ENDS)
    return np.stack([half_rise(divide(n.sum(1), d.sum(1))), low, high])
