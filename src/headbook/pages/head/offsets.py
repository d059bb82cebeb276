"""Attention by offset on the page of a head."""

from dataclasses import dataclass, replace

import pandas as pd

from headbook.charts import Bar, Drawing, offset_profile
from headbook.metrics import ids
from headbook.pages.parts.table import Row, Table
from headbook.report.numbers.results import StackResults
from headbook.report.wording import VIEWS, counted, head_file, head_name
from headbook.study.sentencedata import HeadName

METRIC = ids.OFFSET_PROFILE
COLUMNS = ("Offset", "share", "interval", "uniform")
REACH = 8  # offsets that are shown on either side


@dataclass(frozen=True)
class Offsets:
    """Attention of one head by offset.

    Attributes:
        drawing: as bars.
        bars: their numbers.
    """

    drawing: Drawing
    bars: tuple[Bar, ...]

    @property
    def picture(self) -> Drawing:
        """The drawing with its numbers, to be written into files."""
        return replace(self.drawing, rows=pd.DataFrame(self.bars))

    @property
    def table(self) -> Table:
        """The numbers as text."""
        return Table(COLUMNS, tuple(Row(None, bar.cells) for bar in self.bars))


def profile_name(head: HeadName) -> str:
    """What files and links call the picture of a head."""
    return f"profile-{head_file(head)}"


def measured(results: StackResults) -> bool:
    """Whether a stack has attention by offset."""
    return results.has(METRIC, results.stack.default_view, "0")


def offsets(results: StackResults, head: HeadName) -> Offsets | None:
    """Attention by offset in the stack's default view; None where it was not measured."""
    if not measured(results):
        return None
    view = results.stack.default_view
    bars = []
    for offset in range(-REACH, (0 if results.stack.causal else REACH) + 1):
        estimate = results.heads(METRIC, view, str(offset)).at(head.layer, head.head)
        even = results.uniform(METRIC, view, str(offset)).at(head.layer)
        bars.append(Bar(offset, estimate.value, estimate.low, estimate.high, even.value))
    caption = (
        f"Share of the attention of head {head_name(head)} by distance from query to key, "
        f"{VIEWS[view]}, {counted(estimate.sentences, 'sentence')}. Lines: 95\u202f% intervals; "
        "dashed: uniform attention."
    )
    drawing = offset_profile(profile_name(head), caption, bars)
    return Offsets(drawing, tuple(bars))
