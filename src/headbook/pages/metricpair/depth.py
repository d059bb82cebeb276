"""A metric of two models whose heads do not correspond: over relative depth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.analysis.medians import Ends
from headbook.charts import Figure
from headbook.charts.vega.pairs import depth_curves
from headbook.comparison.driftsummary import by_layer
from headbook.comparison.modeldifferences import ComparedColumn
from headbook.metrics.base import HeadMetric
from headbook.pages.metricpair.named import ComparedMetric
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.groupvalues import difference_cell
from headbook.pages.parts.table import Row, Table
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import VIEWS, choice_file, counted, interval, number, unbroken
from headbook.terms import Stack, View

MOST_LABELS = 24
CUT = (
    "One model sees earlier tokens only: numbers that depend on how many keys a query has, such as "
    "distance and entropy, differ for that alone."
)
OF_HEADS, OF_LAYERS = "head", "layer"  # kinds of rows of the chart


@dataclass(frozen=True)
class DepthSection:
    """A metric in one kind of attention of each model.

    Attributes:
        title: the kinds of attention.
        drawn_text: what the chart shows, in words.
        figure: heads, medians and middle halves over relative depth.
        medians: of all heads, or layers, of each model, by label.
        cells: which of the two.
        note: why both may differ for another reason; empty without one.
    """

    title: str
    drawn_text: str
    figure: Figure
    medians: Table
    cells: str
    note: str = ""


def depth_section(both: BothStacks, metric: ComparedMetric) -> DepthSection | None:
    """Both models over relative depth; None where one of them has no numbers."""
    choices = depth_choices(both, metric)
    if not choices:
        return None
    view, label = choices[0]
    labels = [x for v, x in choices if v == view]
    named = [(metric.label(x) or metric.title, ComparedColumn(metric.id, view, x)) for x in labels]
    return DepthSection(
        title=both.title,
        drawn_text=_words(metric, view, label),
        figure=depth_figure(both, metric, view, label),
        medians=median_table(both, metric, named, "heads"),
        cells="heads",
        note=CUT if both.pair.a.causal != both.pair.b.causal else "",
    )


def depth_choices(both: BothStacks, metric: ComparedMetric) -> list[tuple[View, str]]:
    """Return the views and labels that both models have numbers for, the site's choice first."""
    known = both.a.by_id.get(metric.id)
    if known is None or metric.id not in both.b.by_id:
        return []
    labels = {view: _labels(both, known, view) for view in known.views}
    views = [view for view in labels if labels[view]]
    if not views:
        return []
    first = _first(both, views)
    label = metric.headline if metric.headline in labels[first] else labels[first][0]
    rest = [(view, x) for view in (first, *views) for x in labels[view]]
    return [*dict.fromkeys([(first, label), *rest])]


def depth_figure(both: BothStacks, metric: ComparedMetric, view: View, label: str) -> Figure:
    """Return the chart of both models over relative depth, showing one view and label.

    The name of a chart that shows another choice than the site's ends with it.
    """
    choices = depth_choices(both, metric)
    usual_view, usual_label = choices[0]
    labels = [x for v, x in choices if v == view]
    labels = sorted(labels, key=lambda x: x not in {label, usual_label})[:MOST_LABELS]
    rows = [*_rows(both, metric, [*dict.fromkeys(v for v, _ in choices)], labels)]
    name = choice_file(
        f"{metric.id}-{both.stack}",
        "" if view == usual_view else str(view),
        "" if label == usual_label else label,
    )
    return depth_curves(
        f"{name}-depth",
        f"{metric.title} ({_words(metric, view, label)}) over relative depth: points are heads, "
        "lines medians of layers, bands the middle half of their heads.",
        pd.concat(rows, ignore_index=True),
        title=metric.unit_title,
        show={"view": str(view), "label": metric.label(label)},
    )


def _words(metric: ComparedMetric, view: View, label: str) -> str:
    return ", ".join(part for part in (metric.label(label), VIEWS[view]) if part)


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
        for x in metric.listed
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


def median_table(
    both: BothStacks,
    metric: ComparedMetric,
    columns: Sequence[tuple[str, ComparedColumn]],
    cells: str,
) -> Table:
    """Medians of both models with their difference, those that there are.

    Args:
        columns: what rows are called, and which number that is.
        cells: heads or layers.
    """
    behind = counted(both.a.study.manifest.counts["sentences"], "sentence")
    rows = []
    for title, column in columns:
        found = both.medians.get(column)
        if found is None or np.isnan(found.difference.value):
            continue
        sides = (_cell(ends, share=metric.share, behind=behind) for ends in (found.a, found.b))
        gap = Estimate(*found.difference, 0, 0.0)
        difference = difference_cell(gap, share=metric.share, behind=behind)
        rows.append(Row(unbroken(title), (*sides, difference)))
    caption = (
        f"Median over all {cells} of each model, with 95 % intervals for other sentences; that of "
        f"the difference is paired by sentence. {cells.capitalize()} of one model are no sample."
    )
    return Table((f"Median of {cells}", *both.names, "difference"), tuple(rows), caption)


def _cell(ends: Ends, *, share: bool, behind: str) -> Cell:
    return Cell(
        number(ends.value, share=share), interval(ends.low, ends.high, share=share), behind,
        thin=False,
    )  # fmt: skip
