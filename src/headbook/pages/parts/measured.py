"""Shares of heads beside their baselines, as lists of pages show them (`templates/macros.html`)."""

from dataclasses import dataclass

from headbook.charts import Drawing
from headbook.charts.drawn.dots import interval_dot
from headbook.report.findings.finding import Link, head_link
from headbook.report.numbers.claims import value_and_interval
from headbook.report.numbers.results import Estimate
from headbook.study.sentencedata import HeadName


@dataclass(frozen=True)
class Measured:
    """A share of a head beside its baseline.

    Attributes:
        text: what is measured.
        baseline: what it is set against, and whether it was tested.
        behind: what it rests on, or the head where the page is not its own; may be empty.
        value, interval: the share; the interval is empty without one.
        dot: the same as a picture.
        supported: whether it differs from the baseline as a test has it.
    """

    text: str
    baseline: str
    behind: str | Link
    value: str
    interval: str
    dot: Drawing
    supported: bool


def measured(
    text: str,
    baseline: str,
    value: Estimate,
    other: float,
    *,
    behind: str | HeadName = "",
    supported: bool,
) -> Measured:
    """A share with its picture; ``other`` is NaN where there is no baseline."""
    dot = interval_dot(value.value, value.low, value.high, other, supported=supported)
    link = behind if isinstance(behind, str) else head_link(behind)
    name = f"dot-{text}" if isinstance(link, str) else f"dot-{link.text}-{text}"
    picture = Drawing(name, text, dot)
    return Measured(text, baseline, link, *value_and_interval(value), picture, supported)
