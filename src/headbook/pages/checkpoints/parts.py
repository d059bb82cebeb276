"""Parts that pages of checkpoints share: addresses, values, small lines, and times of changes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.analysis.arrays import Floats
from headbook.charts import Drawing
from headbook.charts.checkpoints import sparkline, step_axis
from headbook.charts.layers import CurveAxis
from headbook.comparison.checkpoint_claims import HEADS_PAGE, rises
from headbook.comparison.checkpoint_steps import CheckpointColumn
from headbook.comparison.checkpoints import BestHead, Checkpoints
from headbook.metrics import all_metrics
from headbook.report.wording import estimate, is_share
from headbook.results.formats import head_file, head_name, number
from headbook.schema import HeadName, Place

HEADS = HEADS_PAGE
MEASURES = "steps/"


def measure_page(column: CheckpointColumn) -> str:
    """Address of the page of a headline."""
    return f"{MEASURES}{column.key}.html"


def head_row(head: HeadName) -> str:
    """Address of a head's row."""
    return f"{HEADS}#{head_file(head)}"


def value_text(column: CheckpointColumn, value: float) -> str:
    """Return a value in few digits."""
    return number(value, share=is_share(all_metrics()[column.metric]))


def estimate_text(column: CheckpointColumn, value: Estimate) -> str:
    """Return a value with its interval."""
    return estimate(value, share=is_share(all_metrics()[column.metric]))


@dataclass(frozen=True)
class HalfRiseText:
    """When a number of a head changed.

    Attributes:
        place: of the half-rise step among the steps; None where there is none.
        text: the step; or that the number rises and falls, with the steps; or a dash.
        between: the steps between which it lies; empty without one.
        ends: its 95 % interval in steps; empty where it is one step or unknown.
    """

    place: int | None
    text: str
    between: str = ""
    ends: str = ""


NO_TURN = HalfRiseText(None, "–")


@dataclass(frozen=True, eq=False)
class DrawnCheckpoints:
    """The checkpoints of a training as pages ask for them."""

    checkpoints: Checkpoints

    @cached_property
    def axis(self) -> CurveAxis:
        """The axis of steps."""
        return step_axis(self.checkpoints.steps, named=self.checkpoints.named)

    def step(self, place: float) -> str:
        """Return a step as text."""
        return f"{self.checkpoints.step(place):,}"

    def at(self, place: int) -> str:
        """Return a step with its name."""
        return self.checkpoints.name(place)

    def turn(self, stack: str, column: CheckpointColumn, place: Place) -> HalfRiseText:
        """When a number of a head changed."""
        found = self.checkpoints.half_rises.get((stack, column))
        if found is not None and not np.isnan(found.returns[place]):
            passes, returns = (self.at(int(part[place])) for part in (found.passes, found.returns))
            up = found.change.value[place] > 0
            way = "rises and falls" if up else "falls and rises"
            return HalfRiseText(None, f"{way}: past the middle at {passes}, back at {returns}")
        if found is None or np.isnan(found.step[place]):
            return NO_TURN
        step, low, high = (float(each[place]) for each in (found.step, found.low, found.high))
        before = self.step(step - 1) if step >= 1 else ""
        between = f"between {before} and {self.step(step)}" if before else ""
        ends = "" if low == high or np.isnan(low) else f"{self.step(low)}–{self.step(high)}"
        return HalfRiseText(int(step), self.at(int(step)), between, ends)

    def rises(self, stack: str, column: CheckpointColumn, best: BestHead) -> bool:
        """Whether a head's number clearly rose to the threshold of its function."""
        return rises(self.checkpoints, stack, column, best)

    def first(self, stack: str, column: CheckpointColumn, place: Place) -> float:
        """Return a head's number at the first step."""
        return float(self.checkpoints.numbers(stack, column)[0].heads.value[place])

    def last(self, stack: str, column: CheckpointColumn, place: Place) -> str:
        """Return a head's number at the last step as text."""
        value = self.checkpoints.numbers(stack, column)[-1].heads.value[place]
        return value_text(column, float(value))

    def spark(self, stack: str, column: CheckpointColumn, place: Place) -> Drawing:
        """Return a head's number over steps, on the scale of all heads."""
        values = self.checkpoints.values(stack, column)
        svg = sparkline(
            values[:, place[0], place[1]],
            self.axis,
            _ends(values),
            self.turn(stack, column, place).place,
        )
        name = head_name(HeadName(stack, *place))
        return Drawing(f"spark-{name}-{column.key}", f"{column.name} of {name}", svg)


def _ends(values: Floats) -> tuple[float, float]:
    """Return the ends of the scale of all heads of a stack, from 0 if no value is below."""
    known = values[~np.isnan(values)]
    return min(0.0, float(known.min(initial=0.0))), float(known.max(initial=0.0)) or 1.0
