"""A metric of two models whose heads do not correspond: over relative depth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.charts import Figure
from headbook.charts.vega.pairs import depth_curves
from headbook.comparison.driftsummary import by_layer
from headbook.metrics.base import HeadMetric
from headbook.pages.metricpair.named import ComparedMetric
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.table import Row, Table
from headbook.report.numbers.claims import signed_points
from headbook.report.numbers.results import StackResults
from headbook.report.wording import VIEWS, number, unbroken
from headbook.terms import Stack, View

MOST_LABELS = 24
OF_HEADS, OF_LAYERS = "head", "layer"  # kinds of rows of the chart


@dataclass(frozen=True)
class DepthSection:
    """A metric in one kind of attention of each model.

    Attributes:
        title: the kinds of attention.
        drawn_text: what the chart shows, in words.
        figure: heads, medians and middle halves over relative depth.
        medians: of all heads of each model, by label.
        cut: whether one of the two sees earlier tokens only.
    """

    title: str
    drawn_text: str
    figure: Figure
    medians: Table
    cut: bool


def depth_section(both: BothStacks, metric: ComparedMetric) -> DepthSection | None:
    """Both models over relative depth; None where one of them has no numbers."""
    known = both.a.by_id.get(metric.id)
    if known is None or metric.id not in both.b.by_id:
        return None
    views = [view for view in known.views if _labels(both, known, view)]
    if not views:
        return None
    view = _first(both, views)
    labels = _labels(both, known, view)
    label = metric.headline if metric.headline in labels else labels[0]
    words = ", ".join(part for part in (metric.label(label), VIEWS[view]) if part)
    rows = [*_rows(both, metric, views, labels[:MOST_LABELS])]
    figure = depth_curves(
        f"{metric.id}-{both.stack}-depth",
        f"{metric.title} ({words}) over relative depth: points are heads, lines medians of layers, "
        "bands the middle half of their heads.",
        pd.concat(rows, ignore_index=True),
        title=metric.unit_title,
        show={"view": str(view), "label": metric.label(label)},
    )
    cut = both.pair.a.causal != both.pair.b.causal
    return DepthSection(both.title, words, figure, _medians(both, metric, view, labels), cut)


def depth(stack: Stack, layer: int) -> float:
    """Where a layer stands between the first and the last: its middle, 0 to 1."""
    return (layer + 0.5) / stack.n_layers


def _first(both: BothStacks, views: Sequence[View]) -> View:
    """The keys that both models show first; where they differ, those without the sink."""
    mine, theirs = both.pair.a.default_view, both.pair.b.default_view
    if mine == theirs and mine in views:
        return mine
    return View.RENORM if View.RENORM in views else views[0]


def _labels(both: BothStacks, metric: HeadMetric, view: View) -> list[str]:
    return [
        x
        for x in metric.labels
        if both.a.has(metric.id, view, x) and both.b.has(metric.id, view, x)
    ]


def _rows(
    both: BothStacks, metric: ComparedMetric, views: Sequence[View], labels: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Heads and layers of both models under every choice."""
    for name, results in zip(both.names, (both.a, both.b), strict=True):
        for view in views:
            for label in labels:
                if all(each.has(metric.id, view, label) for each in (both.a, both.b)):
                    yield _of(results, metric, view, label).assign(series=name)


def _of(results: StackResults, metric: ComparedMetric, view: View, label: str) -> pd.DataFrame:
    """One model under one choice."""
    values = results.heads(metric.id, view, label).value
    there = ~np.isnan(values)
    layers = np.nonzero(there)[0]
    heads = pd.DataFrame({"place": layers, "value": values[there], "kind": OF_HEADS})
    low, middle, high = by_layer(values)
    known = np.flatnonzero(~np.isnan(middle))
    medians = pd.DataFrame(
        {"place": known, "value": middle[known], "low": low[known], "high": high[known]}
    ).assign(kind=OF_LAYERS)
    found = pd.concat([medians, heads.assign(low=np.nan, high=np.nan)], ignore_index=True)
    depths = [depth(results.stack, int(place)) for place in found.pop("place")]
    return found.assign(depth=depths, view=str(view), label=metric.label(label))


def _medians(both: BothStacks, metric: ComparedMetric, view: View, labels: Sequence[str]) -> Table:
    rows = []
    for label in labels:
        one, other = (
            float(np.nanmedian(each.heads(metric.id, view, label).value))
            for each in (both.a, both.b)
        )
        gap = f"{signed_points(other - one)} points" if metric.share else _signed(other - one)
        values = (number(value, share=metric.share) for value in (one, other))
        rows.append(Row(unbroken(metric.label(label) or metric.title), (*values, gap)))
    caption = "Median over all heads of each model. No test: heads of one model are no sample."
    return Table(("Median of heads", *both.names, "difference"), tuple(rows), caption)


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)
