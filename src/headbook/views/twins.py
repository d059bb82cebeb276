"""What the model is compared with, beside its numbers."""

import numpy as np

from headbook.metrics.base import HeadMetric
from headbook.numbers.results import StackResults
from headbook.terms import Control
from headbook.wording import THIN, is_share, number


def control_title(results: StackResults, control: Control) -> str:
    """A control as pages call it, with the number of seeds."""
    seeds = len(results.twins[control])
    if control is Control.SHUFFLED:
        return "shuffled words"
    return "random weights" if seeds == 1 else f"random weights ({seeds} seeds)"


def beside(
    results: StackResults, control: Control, metric: HeadMetric, label: str, cell: tuple[int, int]
) -> str:
    """A control's number beside that of one head.

    Heads of an untrained twin are all alike, so that the number of the whole layer stands for
    each, with the smallest and the largest over seeds. With shuffled words it is the head's own.
    """
    view, share = results.view(metric, label), is_share(metric)
    if control is Control.SHUFFLED:
        twin = results.twins[control][0]
        return number(twin.heads(metric.id, view, label).at(*cell).value, share=share)
    found = results.band(control, metric.id, view, label).at(cell[0])
    text = number(found.value, share=share)
    if len(results.twins[control]) == 1 or np.isnan(found.value):
        return text
    ends = [number(end, share=share).removesuffix(f"{THIN}%") for end in (found.low, found.high)]
    return f"{text} ({ends[0]}–{ends[1]})"
