"""Tables of pages: cells with intervals, rows, tables of layers.

Tables of numbers, which are files of a site, are defined in `headbook.study.tables`.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimate, Estimates
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.charts import Drawing
from headbook.metrics.base import Metric
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import is_share
from headbook.results.formats import MISSING, interval_text, number
from headbook.results.sentence import Link

COLOUR_STEPS = 21


@dataclass(frozen=True)
class NumberCell:
    """A number with its interval.

    Attributes:
        text: the value.
        interval: 95 % confidence interval; empty without one.
        note: numbers of sentences and observations, for a tooltip.
        too_few: whether there are too few observations to trust the number.
        number: the value with its row; None if the cell is no link.
    """

    text: str
    interval: str
    note: str
    too_few: bool
    number: LinkedNumber | None = None

    @classmethod
    def of(cls, value: Estimate, metric: Metric) -> "NumberCell":
        """Write a number the way its metric wants."""
        share = is_share(metric)
        if math.isnan(value.value):
            return cls(MISSING, "", "no data", too_few=False)
        thin = value.effective < MIN_EFFECTIVE
        behind = f"{value.sentences:,} sentences, {value.events:,.0f} observations"
        return cls(
            text=number(value.value, share=share),
            interval=interval_text(value.low, value.high, share=share),
            note=f"too few sentences: {behind}" if thin else behind,
            too_few=thin,
        )


def percentiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the other values below each value, ties half; NaN for missing values."""
    there = np.sort(values[~np.isnan(values)])
    if len(there) < 2:
        return np.full(values.shape, np.nan)
    below, upto = (np.searchsorted(there, values, side) for side in ("left", "right"))
    found: NDArray[np.float64] = (below + (upto - below - 1) / 2) / (len(there) - 1)
    return np.where(np.isnan(values), np.nan, found)


def domain(values: NDArray[np.float64], limits: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the colour scale: the lower bound, if there is one, and the largest value.

    Scales of values on both sides of 0 have 0 in the middle.
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
    """Return the step of a value on the colour scale, 0 to `COLOUR_STEPS` - 1; None for NaN."""
    if math.isnan(value):
        return None
    place = (value - ends[0]) / (ends[1] - ends[0])
    return round(min(max(place, 0.0), 1.0) * (COLOUR_STEPS - 1))


class MarkedText(NamedTuple):
    """Words in an element: ``small``, ``b``, ``bdi``, or ``hidden`` for screen readers."""

    text: str
    tag: str


@dataclass(frozen=True)
class HeatCell:
    """A number on a fill that shows its amount.

    Attributes:
        text: the number; `MISSING` without one.
        fill: class of the fill, as from `headbook.charts.theme.amount_class`, and further classes.
        number: the number with its row; None if no table holds it.
        note: interval and number of observations, for a tooltip.
    """

    text: str
    fill: str
    number: LinkedNumber | None = None
    note: str = ""


Part = str | Link | LinkedNumber | MarkedText


@dataclass(frozen=True)
class WordsCell:
    """A cell of words.

    Attributes:
        parts: words, links and marked words in order.
        style: class of the cell.
        foreign: whether the words are from the corpus, in any direction of writing.
    """

    parts: tuple[Part, ...]
    style: str = ""
    foreign: bool = False

    @property
    def text(self) -> str:
        """Words of the cell without their markup."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)


def words_cell(*parts: Part, style: str = "", foreign: bool = False) -> WordsCell:
    """Return a cell of words from its parts without the empty ones."""
    return WordsCell(tuple(p for p in parts if p and p[0]), style, foreign)


DASH = words_cell("–")

Title = str | int | Link | WordsCell  # an integer is the number of a layer
# Content of a cell: a string is a number without an interval, None an entry that does not apply.
Content = str | Link | WordsCell | NumberCell | HeatCell | Drawing | None


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        head: subject of the row; None in a row of numbers alone.
        cells: a cell for each other column.
        style: class of the row.
    """

    head: str | Link | WordsCell | None
    cells: tuple[Content, ...]
    style: str = ""

    @property
    def name(self) -> str:
        """Subject of the row as words."""
        return self.head if isinstance(self.head, str) else self.head.text if self.head else ""


@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    Attributes:
        columns: titles of the columns.
        rows: rows in order.
        caption: caption above the table; empty if a page writes one with links itself.
        style: class of the table.
        groups: titles above those of all columns but the first, and how many columns each spans.
    """

    columns: tuple[Title, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    style: str = "numbers"
    groups: tuple[tuple[Title, int], ...] = ()


def layer_frame(numbers: Estimates, series: str) -> pd.DataFrame:
    """Return the numbers of all layers, as one line of a chart."""
    frame = pd.DataFrame({"layer": range(len(numbers.value)), "series": series})
    for name in ("value", "low", "high"):
        frame[name] = getattr(numbers, name)
    return frame
