"""Curves over layers of several metrics of what heads write."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.charts import Figure, layer_curve
from headbook.report.findings.finding import metric
from headbook.report.numbers.results import StackResults
from headbook.report.wording import STACKS, VIEWS, is_share
from headbook.terms import View


class Line(NamedTuple):
    """One line of a curve: its name, the metric and the label."""

    name: str
    metric: str
    label: str


def curve(
    results: StackResults, name: str, what: str, title: str, lines: Sequence[Line]
) -> Figure | None:
    """Numbers of layers in all views that the metrics have; None where there are none."""
    lines = [line for line in lines if line.metric in results.by_id]
    frames = [
        _rows(results, line, view)
        for line in lines
        for view in metric(line.metric).views
        if results.has(line.metric, view, line.label)
    ]
    if not frames:
        return None
    rows = pd.concat(frames, ignore_index=True)
    view = str(rows["view"][0])
    sentences = _sentences(results, lines, View(view))
    caption = (
        f"{what}. All heads of a layer, 95 % intervals clustered by sentence; {VIEWS[View(view)]}, "
        f"{STACKS[results.stack.name]}{results.some(sentences, ', on')}."
    )
    share = all(is_share(metric(line.metric)) for line in lines)
    return layer_curve(name, caption, rows, title=title, show={"view": view}, share=share)


def _sentences(results: StackResults, lines: Sequence[Line], view: View) -> int:
    """How many sentences the shown lines rest on, at most."""
    there = [line for line in lines if results.has(line.metric, view, line.label)]
    each = [results.layers(line.metric, view, line.label).sentences for line in there]
    return max(int(sentences.max()) for sentences in each)


def _rows(results: StackResults, line: Line, view: View) -> pd.DataFrame:
    numbers = results.layers(line.metric, view, line.label)
    layers = np.flatnonzero(~np.isnan(numbers.value))
    parts = {n: getattr(numbers, n)[layers] for n in ("value", "low", "high")}
    return pd.DataFrame({"layer": layers, **parts}).assign(series=line.name, view=str(view))
