r"""Half-rise steps of numbers over training checkpoints, with bootstrap intervals. No torch.

The *half-rise step* of a number is the first step at which the number is past the middle between
its first and its last value, upwards or downwards, if the number stays past the middle at all later
steps. A number that comes back has none: it *rises and falls*. Values between steps are not
interpolated. The half-rise step exists only if the last value differs from the first with support:
by the q of their paired difference over all heads and labels of a metric, and by its 95 % interval
(`headbook.analysis.paired`).

For the interval, clusters of sentences are drawn with replacement, with equal draws for all steps
and cells (Efron's percentiles). The interval spans the steps that contain 95 % of the half-rise
steps of draws that stay past the middle; there is none if fewer than 90 % of the draws do. It
covers variation between samples of sentences, not between training runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis import multiple_testing
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.multiple_testing import ALPHA
from headbook.analysis.paired import ClusterSums, PairedDifferences, differences

NO_CELL = -1  # index if there is no best cell
INTERVAL_QUANTILES = (0.025, 0.975)  # quantiles of the draws at both ends of an interval
MIN_STAYING = 0.9  # share of draws that stay past the middle, for an interval


@dataclass(frozen=True, eq=False)
class HalfRise:
    """Half-rise steps of numbers; arrays have the shape ``cells`` and hold indices of steps.

    Attributes:
        step: half-rise step; NaN where first and last value do not differ with support, or where a
            later value is not past the middle.
        low, high: steps at both ends of the 95 % interval; NaN where ``step`` is NaN, or where
            fewer than `MIN_STAYING` of the draws stay past the middle.
        passes, returns: first step past the middle, and first later step that is not, where there
            is one and first and last value differ with support; else NaN.
        change: difference of the last value from the first.
        q: p of the change, adjusted for all heads and labels of the metric.
    """

    step: Floats
    low: Floats
    high: Floats
    passes: Floats
    returns: Floats
    change: PairedDifferences
    q: Floats


class Crossings(NamedTuple):
    """Indices of steps. *Shape:* that of the cells.

    Attributes:
        passes: first step past the middle between first and last value; NaN without one.
        returns: first later step that is not past the middle; NaN without one.
    """

    passes: Floats
    returns: Floats

    @property
    def step(self) -> Floats:
        """Half-rise step: ``passes`` where there is no return; else NaN."""
        return np.where(np.isnan(self.returns), self.passes, np.nan)


@dataclass(frozen=True, eq=False)
class BestHeads:
    """Best cell for each of several functions at each step; arrays have no cell dimension.

    Attributes:
        cell: index of the best cell; `NO_CELL` if no value is known.
        value: value of the best cell on the held-out sentences; NaN if unknown.
    """

    cell: Ints
    value: Floats


def crossings(values: Floats) -> Crossings:
    """Return when each cell passes the middle, whether or not the change is supported.

    Args:
        values: numbers by step; steps with NaN are skipped. *Shape:* ``(step, *cells)``.

    Returns:
        NaN where the first or last value is unknown, or both are equal.
    """
    first, last = values[0], values[-1]
    sign, middle = np.sign(last - first), (first + last) / 2
    past = sign * (values - middle) > 0
    passes = past.argmax(0).astype(np.float64)
    steps = np.arange(len(values)).reshape(-1, *[1] * first.ndim)
    back = ~past & ~np.isnan(values) & (steps > passes)
    known = past.any(0) & ~np.isnan(sign)
    returns = np.where(known & back.any(0), back.argmax(0), np.nan)
    return Crossings(np.where(known, passes, np.nan), returns)


def half_rises(n: NDArray[np.floating], d: NDArray[np.floating], q: Floats) -> HalfRise:
    """Return half-rise steps of ratios of sums, with intervals.

    Args:
        n, d: numerators and denominators of each cluster, as in `headbook.analysis.paired`;
            clusters are equal at all steps. *Shape:* ``(step, cluster, *cells)``.
        q: adjusted p of the difference of last and first value (`paired_tests`). *Shape:*
            ``cells``.

    Raises:
        ValueError: there are fewer than two steps, or the arrays differ in shape.
    """
    if len(n) < 2 or n.shape != d.shape:
        raise ValueError(
            f"sums: got shapes {n.shape} and {d.shape}, expected one shape of two steps or more"
        )
    cells = n.shape[2:]
    change = differences(ClusterSums(n[0], d[0]), ClusterSums(n[-1], d[-1]))
    with np.errstate(invalid="ignore"):
        changed = ((q < ALPHA) & ((change.low > 0) | (change.high < 0))).reshape(-1)
    rises = np.full((5, len(changed)), np.nan)
    changed_cells = np.flatnonzero(changed)
    if len(changed_cells):
        flat_sums = [sums.reshape(*n.shape[:2], len(changed)) for sums in (n, d)]
        for block in _blocks(changed_cells, len(n)):
            n_block, d_block = (sums[..., block].astype(np.float64) for sums in flat_sums)
            rises[:, block] = _rises(n_block, d_block)
    step, low, high, passes, returns = rises.reshape(5, *cells)
    return HalfRise(step, low, high, passes, returns, change, q)


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


def _rises(n: Floats, d: Floats) -> Floats:
    """Return step, both ends of its interval, passes and returns. *Shape:* ``(5, cell)``."""
    draw_counts = multiple_testing.bootstrap_counts(n.shape[1])
    values = divide(np.matmul(draw_counts, n), np.matmul(draw_counts, d))  # (step, draw, cell)
    drawn = crossings(values).step
    counts = np.stack([(drawn == step).sum(0) for step in range(len(n))])
    share = divide(counts.cumsum(0), counts.sum(0))
    observed = crossings(divide(n.sum(1), d.sum(1)))
    staying = ~np.isnan(observed.step) & (counts.sum(0) >= MIN_STAYING * len(draw_counts))
    low, high = (
        np.where(staying, (share >= quantile).argmax(0), np.nan) for quantile in INTERVAL_QUANTILES
    )
    there = np.isnan(observed.returns)
    passes = np.where(there, np.nan, observed.passes)
    return np.stack([observed.step, low, high, passes, observed.returns])
