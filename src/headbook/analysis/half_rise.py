r"""Half-rise steps of numbers over training checkpoints, with bootstrap intervals. No torch.

The *half-rise step* of a number is the first step at which the number is past the middle between
its first and its last value, upwards or downwards, regardless of later steps. Values between steps
are not interpolated. The half-rise step exists only if the last value differs from the first beyond
noise: if the 95 % interval of their paired difference (`headbook.analysis.paired`) does not contain
0. Each number is tested by itself: of twenty numbers that never change, one has a half-rise step by
chance.

For the interval, clusters of sentences are drawn with replacement, with equal draws for all steps
and cells (Efron's percentiles). The interval spans the steps that contain 95 % of the draws'
half-rise steps. It covers variation between samples of sentences, not between training runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis import multiple_testing
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.paired import ClusterSums, PairedDifferences, differences

NO_CELL = -1  # index if there is no best cell
INTERVAL_QUANTILES = (0.025, 0.975)  # quantiles of the draws at both ends of an interval


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
        value: value of the best cell on the held-out sentences; NaN if unknown.
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
    changed = ((change.low > 0) | (change.high < 0)).reshape(-1)
    rises = np.full((3, len(changed)), np.nan)
    changed_cells = np.flatnonzero(changed)
    if len(changed_cells):
        flat_sums = [sums.reshape(*n.shape[:2], len(changed)) for sums in (n, d)]
        for block in _blocks(changed_cells, len(n)):
            n_block, d_block = (sums[..., block].astype(np.float64) for sums in flat_sums)
            rises[:, block] = _interval(n_block, d_block)
    step, low, high = rises.reshape(3, *cells)
    return HalfRise(step, low, high, change)


def best_heads(selection: Floats, held_out: Floats) -> BestHeads:
    """Choose the cell with the largest value on one split, and return its value on the other.

    Args:
        selection: values on the sentences that decide; NaN where unknown. *Shape:* ``(step,
            function, cell)``, or any other dimensions instead of the first two.
        held_out: values on the other sentences; NaN where unknown. *Shape:* that of
            ``selection``.

    Returns:
        The first of equal cells. *Shape:* ``(step, function)``.
    """
    if not selection.shape[-1]:
        shape = selection.shape[:-1]
        return BestHeads(np.full(shape, NO_CELL), np.full(shape, np.nan))
    known = ~np.isnan(selection)
    cell = np.where(known, selection, -np.inf).argmax(-1)
    value = np.take_along_axis(held_out, cell[..., None], -1)[..., 0]
    has_value = known.any(-1)
    return BestHeads(np.where(has_value, cell, NO_CELL), np.where(has_value, value, np.nan))


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


def _blocks(cells: Ints, steps: int) -> Iterator[Ints]:
    """Yield blocks of cells small enough to hold the values of all steps and draws."""
    size = max(1, multiple_testing.MAX_NUMBERS // (multiple_testing.DRAWS * steps))
    for start in range(0, len(cells), size):
        yield cells[start : start + size]


def _interval(n: Floats, d: Floats) -> Floats:
    """Return half-rise step and both ends of the interval of cells. *Shape:* ``(3, cell)``."""
    draw_counts = multiple_testing.bootstrap_counts(n.shape[1])
    values = divide(np.matmul(draw_counts, n), np.matmul(draw_counts, d))  # (step, draw, cell)
    rises = half_rise(values)
    counts = np.stack([(rises == step).sum(0) for step in range(len(n))])
    share = divide(counts.cumsum(0), counts.sum(0))
    low, high = ((share >= quantile).argmax(0) for quantile in INTERVAL_QUANTILES)
    return np.stack([half_rise(divide(n.sum(1), d.sum(1))), low, high])
