"""Runs of adjacent layers: where a number is highest and where it is lowest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.report.numbers.results import Estimate, Estimates, StackResults
from headbook.terms import View

PARTS = 4  # a run is this part of all layers


class Runs(NamedTuple):
    """The runs of layers with the lowest and the highest mean of a number."""

    low: tuple[int, ...]
    high: tuple[int, ...]


def runs(results: StackResults, name: str, view: View, label: str = "") -> Runs | None:
    """Both runs, chosen on one half of the sentences; None where they would overlap.

    A run is a quarter of the layers that have attention, at least one.
    """
    numbers = results.half(CHOICE, name, view, label, of="layers")
    layers = [n for n in results.stack.attention_layers if not np.isnan(numbers.value[n])]
    width = max(1, len(results.stack.attention_layers) // PARTS)
    windows = [tuple(layers[at : at + width]) for at in range(len(layers) - width + 1)]
    if not windows:
        return None
    means = [float(numbers.value[[*window]].mean()) for window in windows]
    found = Runs(windows[int(np.argmin(means))], windows[int(np.argmax(means))])
    return None if set(found.low) & set(found.high) else found


def mean(numbers: Estimates, run: Sequence[int]) -> Estimate:
    """The mean over layers of a number.

    Its interval is the mean of theirs: at least as wide as it need be, whatever the layers have in
    common, since no mean varies more than its parts do on average.
    """
    value, low, high = (float(number[[*run]].mean()) for number in numbers[:3])
    sentences, events = numbers.sentences[[*run]].min(), numbers.events[[*run]].sum()
    return Estimate(value, low, high, int(sentences), float(events))


def reported(results: StackResults, run: Sequence[int], name: str, view: View) -> Estimate:
    """That mean on the half of the sentences that is reported."""
    return mean(results.half(REPORT, name, view, of="layers"), run)


def even(results: StackResults, run: Sequence[int], name: str, view: View) -> Estimate:
    """The same for uniform attention."""
    return mean(results.half(REPORT, name, view, of="uniform"), run)


def named(run: Sequence[int]) -> str:
    """A run in words: ``layer 3``, ``layers 9–11``."""
    if len(run) == 1:
        return f"layer {run[0]}"
    if run[-1] - run[0] == len(run) - 1:
        return f"layers {run[0]}–{run[-1]}"
    return f"layers {', '.join(map(str, run))}"
