"""Rows of tables that several pages share."""

from dataclasses import dataclass

import pandas as pd

from headbook.metrics.base import Metric
from headbook.pages.parts.cells import Cell
from headbook.report.numbers.results import Estimate, Estimates
from headbook.report.wording import head_name, head_page
from headbook.study.sentencedata import HeadName


@dataclass(frozen=True)
class HeadRow:
    """One head in a table: its name, its page and its number."""

    name: str
    href: str
    cell: Cell

    @classmethod
    def of(cls, head: HeadName, value: Estimate, metric: Metric) -> "HeadRow":
        """A head with its number of a metric."""
        return cls(head_name(head), head_page(head), Cell.of(value, metric))


@dataclass(frozen=True)
class LayerRow:
    """One layer: a number for each column of the table."""

    layer: int
    cells: tuple[Cell, ...]


def layer_frame(numbers: Estimates, series: str) -> pd.DataFrame:
    """The numbers of all layers, as one line of a chart."""
    frame = pd.DataFrame({"layer": range(len(numbers.value)), "series": series})
    for name in ("value", "low", "high"):
        frame[name] = getattr(numbers, name)
    return frame
