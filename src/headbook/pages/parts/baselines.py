"""A share beside its baseline, and a head's number beside its controls."""

from dataclasses import dataclass

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.charts import Drawing
from headbook.charts.drawing import interval_dot
from headbook.metrics.base import HeadMetric
from headbook.report.results import StackResults
from headbook.report.wording import is_share, value_and_interval
from headbook.results.formats import in_hundred, number
from headbook.results.sentence import Link, head_link
from headbook.schema import Baseline, HeadName


@dataclass(frozen=True)
class ShareWithBaseline:
    """A share of a head beside its baseline.

    Attributes:
        text: name of the share.
        baseline: the baseline with its value, and the result of a test if there was one.
        behind: number of observations, or the head if the page is not its own; may be empty.
        value, interval: the share; the interval is empty without one.
        dot: picture of share, interval and baseline.
        supported: whether a test supports the difference from the baseline.
    """

    text: str
    baseline: str
    behind: str | Link
    value: str
    interval: str
    dot: Drawing
    supported: bool


def share_with_baseline(
    text: str,
    baseline: str,
    value: Estimate,
    other: float,
    *,
    behind: str | HeadName = "",
    supported: bool,
) -> ShareWithBaseline:
    """Return a share with its picture; ``other`` is NaN without a baseline."""
    dot = interval_dot(value.value, value.low, value.high, other, supported=supported)
    link = behind if isinstance(behind, str) else head_link(behind)
    name = f"dot-{text}" if isinstance(link, str) else f"dot-{link.text}-{text}"
    picture = Drawing(name, text, dot)
    return ShareWithBaseline(text, baseline, link, *value_and_interval(value), picture, supported)


CHANGED_TEXTS = {  # controls with the model itself
    Baseline.SHUFFLED: "shuffled words", Baseline.NO_SEPARATORS: "no separators",
}  # fmt: skip


def baseline_title(results: StackResults, baseline: Baseline) -> str:
    """Return the name of a control on pages, with the number of seeds."""
    seeds = len(results.baselines[baseline])
    if baseline in CHANGED_TEXTS:
        return CHANGED_TEXTS[baseline]
    return "random weights" if seeds == 1 else f"random weights ({seeds} seeds)"


def baseline_text(
    results: StackResults, baseline: Baseline, metric: HeadMetric, label: str, cell: tuple[int, int]
) -> str:
    """Return a control's number, to be printed beside that of one head.

    Heads with random weights are all alike, so the number is that of the whole layer, with the
    smallest and the largest over seeds. With changed texts it is the head's own.
    """
    view, share = results.view(metric, label), is_share(metric)
    if baseline in CHANGED_TEXTS:
        baseline_run = results.baselines[baseline][0]
        return number(baseline_run.heads(metric.id, view, label).at(*cell).value, share=share)
    estimate = results.baseline_band(baseline, metric.id, view, label).at(cell[0])
    text = number(estimate.value, share=share)
    if len(results.baselines[baseline]) == 1 or np.isnan(estimate.value):
        return text
    low, high = map(in_hundred if share else number, (estimate.low, estimate.high))
    return f"{text} ({low}–{high})"
