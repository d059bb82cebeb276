"""How a metric differs between two models, cell by cell, as pages write it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from headbook.comparison.modeldifferences import ModelDifferences
from headbook.pages.metricpair.named import ComparedMetric
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.groupvalues import difference_cell
from headbook.report.numbers.results import Estimate
from headbook.report.wording import MAYBE, counted, counted_if, floor_text, number, p_text

WEAK = "weak"  # style of what is not supported
Found = TypeVar("Found", bound=ModelDifferences)


@dataclass(frozen=True)
class Compared(Generic[Found]):
    """A metric in one kind of attention of two models; places end with a column of ``found``."""

    both: BothStacks
    found: Found
    metric: ComparedMetric

    def cells(self, *place: int) -> tuple[str, str, Cell, str]:
        """Both values, the difference and its p."""
        found, share = self.found, self.metric.share
        a, b = (number(float(side[place]), share=share) for side in (found.a, found.b))
        value, low, high = (float(part[place]) for part in (found.value, found.low, found.high))
        sentences = int(found.sentences[place])
        gap = Estimate(value, low, high, sentences, 0.0)
        behind = counted(sentences, "sentence")
        return a, b, difference_cell(gap, share=share, behind=behind), p_text(float(found.p[place]))

    def stated(self, *place: int) -> str:
        """Both values and the difference, in words."""
        a, b, gap, _ = self.cells(*place)
        names = self.both.names
        return f"{a} in {names[0]}, {b} in {names[1]}, {gap.text} {gap.interval}"

    def style(self, *place: int) -> str:
        """Of a row."""
        return "" if self.found.supported[place] else WEAK

    def summary(self, column: int, what: str) -> str:
        """In how many cells, which are heads or layers, the difference is supported.

        Where it is in any, to be continued with the largest.
        """
        value, sure = self.found.value[..., column], self.found.supported[..., column]
        total = counted(int((~np.isnan(value)).sum()), what)
        if not np.nan_to_num(value).any():
            return f"Both models are exactly equal in all {total}."
        if not sure.any():
            floor = float(self.found.floors[column])
            known = "" if np.isnan(floor) else f" ({floor_text(floor, share=self.metric.share)})"
            return f"No clear difference in any of {total}{known}."
        return f"Of {total}, {int(sure.sum()):,} differ ({self.rule(column)}); most "

    def short(self, column: int, what: str) -> str:
        """The same in few words."""
        value, sure = self.found.value[..., column], self.found.supported[..., column]
        if not np.nan_to_num(value).any():
            return "exactly equal"
        unsure = sure.any() and np.isnan(self.found.floors[column])
        return (
            f"{int(sure.sum()):,} of {int((~np.isnan(value)).sum()):,} {what}s differ"
            f"{f' ({MAYBE})' if unsure else ''}"
        )

    def rule(self, column: int) -> str:
        """Return when a cell counts as different, with the rounding floor."""
        return counted_if(float(self.found.floors[column]), share=self.metric.share)
