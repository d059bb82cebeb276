"""What the model is compared with, beside its numbers."""

import numpy as np

from headbook.metrics.base import HeadMetric
from headbook.report.numbers.results import StackResults
from headbook.report.wording import in_hundred, is_share, number
from headbook.terms import Baseline


def baseline_title(results: StackResults, baseline: Baseline) -> str:
    """A control as pages call it, with the number of seeds."""
    seeds = len(results.twins[baseline])
    if baseline is Baseline.SHUFFLED:
        return "shuffled words"
    return "random weights" if seeds == 1 else f"random weights ({seeds} seeds)"


def beside(
    results: StackResults, baseline: Baseline, metric: HeadMetric, label: str, cell: tuple[int, int]
) -> str:
    """A control's number beside that of one head.

    Heads of an untrained twin are all alike, so that the number of the whole layer stands for
    each, with the smallest and the largest over seeds. With shuffled words it is the head's own.
    """
    view, share = results.view(metric, label), is_share(metric)
    if baseline is Baseline.SHUFFLED:
        twin = results.twins[baseline][0]
        return number(twin.heads(metric.id, view, label).at(*cell).value, share=share)
    estimate = results.band(baseline, metric.id, view, label).at(cell[0])
    text = number(estimate.value, share=share)
    if len(results.twins[baseline]) == 1 or np.isnan(estimate.value):
        return text
    low, high = map(in_hundred if share else number, (estimate.low, estimate.high))
    return f"{text} ({low}–{high})"
