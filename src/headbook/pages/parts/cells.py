"""Numbers as pages print them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.intervals import FEW
from headbook.metrics.base import Metric
from headbook.report.numbers.results import Estimate
from headbook.report.wording import MISSING, interval, is_share, number

COLOUR_STEPS = 21


@dataclass(frozen=True)
class Cell:
    """A number with its interval.

    Attributes:
        text: the value.
        interval: 95 % confidence interval; empty where there is none.
        note: what stands behind it, for a tooltip.
        thin: whether too few observations stand behind it to be trusted.
    """

    text: str
    interval: str
    note: str
    thin: bool

    @classmethod
    def of(cls, value: Estimate, metric: Metric) -> "Cell":
        """Write a number the way its metric wants."""
        share = is_share(metric)
        if math.isnan(value.value):
            return cls(MISSING, "", "no data", thin=False)
        thin = value.effective < FEW
        behind = f"{value.sentences:,} sentences, {value.events:,.0f} observations"
        return cls(
            text=number(value.value, share=share),
            interval=interval(value.low, value.high, share=share),
            note=f"too few sentences: {behind}" if thin else behind,
            thin=thin,
        )


def percentiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each value the share of the others that lie below, ties half; NaN where there is none."""
    there = np.sort(values[~np.isnan(values)])
    if len(there) < 2:
        return np.full(values.shape, np.nan)
    below, upto = (np.searchsorted(there, values, side) for side in ("left", "right"))
    found: NDArray[np.float64] = (below + (upto - below - 1) / 2) / (len(there) - 1)
    return np.where(np.isnan(values), np.nan, found)


def domain(values: NDArray[np.float64], limits: tuple[float, float]) -> tuple[float, float]:
    """Ends of the colour scale: from the lower bound, where there is one, to the largest value.

    What may lie on both sides of 0 has its 0 in the middle.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    if limits[0] < 0 < limits[1]:
        end = float(np.abs(finite).max()) or 1.0
        return -end, end
    least = limits[0] if math.isfinite(limits[0]) and limits[0] >= 0 else float(finite.min())
    most = float(finite.max())
    return (least, most) if most > least else (least, least + 1)


def colour_step(value: float, ends: tuple[float, float]) -> int | None:
    """Place of a value on the colour scale, 0 to `COLOUR_STEPS` - 1; None where it is missing."""
    if math.isnan(value):
        return None
    place = (value - ends[0]) / (ends[1] - ends[0])
    return round(min(max(place, 0.0), 1.0) * (COLOUR_STEPS - 1))
