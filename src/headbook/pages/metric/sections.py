"""A metric of heads in one stack, for its page: charts and tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from headbook.charts import Figure, heat_map, layer_curve
from headbook.charts.vega.draw import UNIFORM
from headbook.metrics import ids
from headbook.metrics.base import Chart, HeadMetric, Metric, Source
from headbook.pages.parts.cells import Cell, domain
from headbook.pages.parts.rows import layer_table
from headbook.pages.parts.table import Row, Table, words
from headbook.pages.parts.twins import baseline_title
from headbook.report.findings.finding import Link, head_link
from headbook.report.numbers.extremes import tie_note, tied_places
from headbook.report.numbers.results import Estimates, StackResults, descending
from headbook.report.wording import (
    STACKS,
    VIEWS,
    choice_file,
    counted,
    head_name,
    is_share,
    label_name,
    number,
    unbroken,
)
from headbook.study.sentencedata import HeadName
from headbook.terms import View

MOST_HEADS = 150  # lines of a table of heads; the files have them all
DRAWN_OFFSETS = tuple(map(str, range(-5, 6)))  # a profile's labels that the heat map offers
DRAWN_DISTANCES = ("all", "1", "2", "3", "4", "6", "8", "12", "16", "24", "32+")
# Numbers that grow with the length of sentences, and the same over uniform attention: only these
# are drawn beside it, for the intervals of the others overlap whatever heads do.
PAIRED = {ids.ATTENTION_DISTANCE: ids.DISTANCE_RATIO}
MOST_DRAWN = 24  # labels that charts offer: those with most observations


@dataclass(frozen=True)
class MetricSection:
    """A metric in one stack.

    Attributes:
        title: the kind of attention.
        drawn_text: what figures and tables show, in words.
        figures: heat map and curve.
        layers: table of layers; None where a metric has no numbers of them.
        labels: for metrics that have several the head with the highest value of each, or None.
        heads: heads with their numbers, highest first; ``left_out`` more are in the files.
    """

    title: str
    drawn_text: str
    figures: tuple[Figure, ...]
    layers: Table | None
    labels: Table | None = None
    heads: tuple[tuple[Link, Cell], ...] = ()
    left_out: int = 0


def _unit_title(metric: Metric) -> str:
    return f"{metric.title.lower()} ({metric.unit})" if metric.unit else metric.title.lower()


def head_section(results: StackResults, metric: HeadMetric) -> MetricSection | None:
    """What a metric says of the heads of one stack; None where it has no numbers there."""
    stack = results.stack
    metric = results.by_id.get(metric.id, metric)
    drawn = results.drawn(metric)
    if drawn is None:
        return None
    labels, (view, label) = results.drawable(metric), drawn
    about = f"{label_name(label)}, " if label else ""
    heads = _heads(results, metric, view, label)
    return MetricSection(
        title=STACKS[stack.name],
        drawn_text=f"{about}{VIEWS[view]}",
        figures=(*head_figures(results, metric, view, label), *_ratio_curve(results, metric)),
        layers=_layers(results, metric, label) if metric.layerwide else None,
        labels=_labels(results, metric, labels, view) if len(labels) > 1 else None,
        heads=tuple(heads[:MOST_HEADS]),
        left_out=max(0, len(heads) - MOST_HEADS),
    )


def head_figures(
    results: StackResults, metric: HeadMetric, view: View, label: str
) -> tuple[Figure, ...]:
    """Return the heat map and the curve of a metric, showing one view and label.

    Names of figures that show another choice than the site's end with it.
    """
    labels = _drawn(results, metric, results.drawable(metric), label)
    name = f"{metric.id}-{results.stack.name}"
    usual_view, usual_label = results.drawn(metric) or (view, label)
    other_view = "" if view == usual_view else str(view)
    name = choice_file(name, other_view, "" if label == usual_label else label)
    heat = _heat_map(results, metric, labels, view, label, name=name)
    if not metric.layerwide:
        return (heat,)
    return heat, _curve(results, metric, labels, view, label, name=f"{name}-layers")


def _layers(results: StackResults, metric: HeadMetric, label: str) -> Table:
    numbers = [results.layers(metric.id, view, label) for view in metric.views]
    return layer_table(
        results.stack.attention_layers,
        [(VIEWS[v], n, metric) for v, n in zip(metric.views, numbers, strict=True)],
    )


def _drawn(
    results: StackResults, metric: HeadMetric, labels: Sequence[str], drawn_text: str
) -> list[str]:
    """The labels that charts offer, in their own order: near offsets, or those often seen."""
    if metric.chart is Chart.PROFILE:
        return [x for x in labels if x in DRAWN_OFFSETS or x == drawn_text]
    if metric.chart is Chart.DISTANCES:
        return [x for x in labels if x in DRAWN_DISTANCES or x == drawn_text]
    seen = {x: results.heads(metric.id, results.view(metric), x).events.max() for x in labels}
    most = sorted(labels, key=lambda x: (x != drawn_text, -seen[x]))[:MOST_DRAWN]
    return [x for x in labels if x in most]


def _heads(
    results: StackResults, metric: HeadMetric, view: View, label: str
) -> list[tuple[Link, Cell]]:
    """All heads that have a number, the highest first."""
    numbers = results.heads(metric.id, view, label)
    return [_head(results, metric, numbers, *cell) for cell in descending(numbers.value)]


def _head(
    results: StackResults, metric: HeadMetric, numbers: Estimates, layer: int, head: int
) -> tuple[Link, Cell]:
    name = HeadName(results.stack.name, layer, head)
    return head_link(name), Cell.of(numbers.at(layer, head), metric)


def _labels(results: StackResults, metric: HeadMetric, labels: Sequence[str], view: View) -> Table:
    rows, written = [], partial(number, share=is_share(metric))
    for label in labels:
        numbers = results.heads(metric.id, view, label)
        if not np.isnan(numbers.value).all():
            (layer, head), *others = tied_places(numbers.value, written)
            link, best = _head(results, metric, numbers, layer, head)
            note = tie_note([head_name(HeadName(results.stack.name, *each)) for each in others])
            even = Cell.of(results.uniform(metric.id, view, label).at(layer), metric)
            cells = (words(link, note) if note else link, best, even)
            rows.append(Row(unbroken(label_name(label)), cells))
    caption = "The head with the highest value for each label, and uniform attention in its layer."
    return Table(("Label", "Head", "value", "uniform attention"), tuple(rows), caption)


def _table(
    results: StackResults, metric: HeadMetric, labels: Sequence[str], name: str
) -> pd.DataFrame:
    """Numbers of heads, layers or uniform attention, in all views and labels."""
    return _rows(metric, labels, getattr(results, name))


def _rows(
    metric: HeadMetric, labels: Sequence[str], numbers_of: Callable[[str, View, str], Estimates]
) -> pd.DataFrame:
    """The same for anything that gives numbers by metric, view and label."""
    parts: dict[str, list[Any]] = {}
    for view in metric.views:
        for label in labels:
            numbers = numbers_of(metric.id, view, label)
            cells = np.nonzero(~np.isnan(numbers.value))
            columns: dict[str, Any] = dict(zip(("layer", "head"), cells, strict=False))
            columns |= {n: getattr(numbers, n)[cells] for n in ("value", "low", "high")}
            columns |= {"view": [str(view)] * len(cells[0])}
            columns |= {"label": [label_name(label)] * len(cells[0])}
            for column, values in columns.items():
                parts.setdefault(column, []).append(values)
    return pd.DataFrame({column: np.concatenate(values) for column, values in parts.items()})


def _heat_map(
    results: StackResults,
    metric: HeadMetric,
    labels: Sequence[str],
    view: View,
    label: str,
    *,
    name: str,
) -> Figure:
    rows = _table(results, metric, labels, "heads")
    caption = (
        f"{metric.title}{_of(label)} of every head, {VIEWS[view]}"
        f"{_behind(results, metric, view, label)}. Rows: layers, columns: heads."
    )
    return heat_map(
        name,
        caption,
        rows,
        title=_unit_title(metric),
        domain=domain(rows["value"].to_numpy(), metric.limits),
        show={"view": str(view), "label": label_name(label)},
        share=is_share(metric),
    )


def _curve(
    results: StackResults,
    metric: HeadMetric,
    labels: Sequence[str],
    view: View,
    label: str,
    *,
    name: str,
) -> Figure:
    series = [_table(results, metric, labels, "layers").assign(series="model")]
    titles = []
    if metric.id not in PAIRED or PAIRED[metric.id] not in results.by_id:
        series.append(_table(results, metric, labels, "uniform").assign(series=UNIFORM))
        titles.append(UNIFORM)
    for baseline in results.twins:
        titles.append(baseline_title(results, baseline))
        twin = partial(results.band, baseline)
        series.append(_rows(metric, labels, twin).assign(series=titles[-1]))
    caption = (
        f"{metric.title}{_of(label)} by layer, all heads, {VIEWS[view]}"
        f"{_behind(results, metric, view, label)}; 95 % intervals clustered by sentence."
        + (f" Baselines: {', '.join(titles)}." if titles else "")
    )
    return layer_curve(
        name,
        caption,
        pd.concat(series, ignore_index=True),
        title=_unit_title(metric),
        show={"view": str(view), "label": label_name(label)},
        share=is_share(metric),
    )


def _ratio_curve(results: StackResults, metric: HeadMetric) -> Iterator[Figure]:
    """The same as a ratio to uniform attention on the same sentences, where lengths cancel."""
    ratio = results.by_id.get(PAIRED.get(metric.id, ""))
    if ratio is not None:
        name = f"{ratio.id}-{results.stack.name}-layers"
        yield _curve(results, ratio, [""], results.view(ratio, ""), "", name=name)


def _behind(results: StackResults, metric: HeadMetric, view: View, label: str) -> str:
    """What numbers rest on, where that is not every sentence of the study."""
    found = int(results.heads(metric.id, view, label).sentences.max())
    if metric.source is Source.RANDOM:
        return f", on {counted(found, 'random sequence')}"
    return results.some(found, ", on")


def _of(label: str) -> str:
    name = label_name(label) if label else ""
    return f", {name}," if name.endswith(")") else f" ({name})" if name else ""
