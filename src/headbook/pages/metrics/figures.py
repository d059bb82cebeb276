"""Figures of head metrics, which are files for papers, too: heat map, and curve over layers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.charts import Figure, Plot, heat_map
from headbook.charts.axes import UNIFORM
from headbook.charts.plots import LABEL_DISTANCE, Scale, Series, even_ticks, layer_plot
from headbook.metrics.base import ChartKind, HeadMetric, Metric, Source
from headbook.pages.parts.baselines import baseline_title
from headbook.pages.parts.table import domain
from headbook.report.head_numbers import HeadMetricNumbers
from headbook.report.results import StackResults
from headbook.report.wording import VIEWS, choice_file, count_text, is_share, label_name
from headbook.results.formats import number
from headbook.schema import SinkView

DRAWN_OFFSETS = tuple(map(str, range(-5, 6)))  # a profile's labels that pages offer
DRAWN_DISTANCES = ("all", "1", "2", "3", "4", "6", "8", "12", "16", "24", "32+")
MOST_DRAWN = 24  # labels that pages offer: those with most observations
CURVE_HEIGHT = 260  # pixels
UNIT_TOP = 28  # pixels above the highest value of a curve with a unit, which stands there


def head_figures(
    results: StackResults, metric: HeadMetric, view: SinkView, label: str
) -> tuple[Figure | Plot, ...]:
    """Return the heat map and the curve of a metric, showing one view and label.

    Names of figures end with the view and the label if the site shows another choice first.
    """
    numbers = HeadMetricNumbers(results, metric, view, label)
    if not metric.has_layer_value:
        return (heat_figure(numbers),)
    return heat_figure(numbers), curve_plot(numbers)


def figure_name(numbers: HeadMetricNumbers, part: str = "") -> str:
    """Return the name of a figure, which ends with a view or a label that is not the site's.

    Args:
        part: end of the name, such as ``-layers``.
    """
    results, metric, view, label = numbers
    usual_view, usual_label = results.drawn(metric) or (view, label)
    other_view = "" if view == usual_view else str(view)
    other_label = "" if label == usual_label else label
    return choice_file(f"{metric.id}-{results.stack.name}", other_view, other_label) + part


def offered_labels(numbers: HeadMetricNumbers) -> list[str]:
    """Return the labels that pages offer, in their own order: near offsets, or the most frequent.

    The label of ``numbers`` is always among the offered ones.
    """
    results, metric, _, own = numbers
    labels = results.drawable(metric)
    if metric.chart is ChartKind.PROFILE:
        return [x for x in labels if x in DRAWN_OFFSETS or x == own]
    if metric.chart is ChartKind.DISTANCES:
        return [x for x in labels if x.rpartition(":")[2] in DRAWN_DISTANCES or x == own]
    seen = {x: results.heads(metric.id, results.view(metric), x).events.max() for x in labels}
    most = sorted(labels, key=lambda x: (x != own, -seen[x]))[:MOST_DRAWN]
    return [x for x in labels if x in most]


def heat_figure(numbers: HeadMetricNumbers) -> Figure:
    """Return the heat map of a metric."""
    results, metric, view, label = numbers
    rows = _rows(results.heads(metric.id, view, label)).assign(
        view=str(view), label=label_name(label)
    )
    return heat_map(
        figure_name(numbers),
        heat_caption(numbers),
        rows,
        title=_legend(metric, label),
        domain=domain(rows["value"].to_numpy(), metric.limits),
        share=numbers.share,
    )


def map_data(numbers: HeadMetricNumbers) -> dict[str, list[Any]]:
    """Return the heat map in all views and offered labels, as columns; None if missing."""
    results, metric = numbers.results, numbers.metric
    parts = [
        _rows(results.heads(metric.id, view, label)).assign(view=str(view), label=label_name(label))
        for view in metric.views
        for label in offered_labels(numbers)
    ]
    rows = pd.concat(parts, ignore_index=True).astype(object)
    columns = rows.where(rows.notna(), None).to_dict("list")  # scripts have no NaN
    return {str(name): values for name, values in columns.items()}


def heat_caption(numbers: HeadMetricNumbers) -> str:
    """Return the caption of the heat map of a metric."""
    _, metric, view, label = numbers
    return (
        f"{metric.title}{_of(label)} of every head, {VIEWS[view]}{_behind(numbers)}. "
        "Rows: layers, columns: heads."
    )


def _legend(metric: HeadMetric, label: str) -> str:
    """Return the title of the legend of a heat map: the label, or the metric if it has none."""
    name = label_name(label) if label else metric.title.lower()
    return f"{name} ({metric.unit})" if metric.unit else name


def _rows(numbers: Estimates) -> pd.DataFrame:
    """Return the known numbers of heads as a table."""
    cells = np.nonzero(~np.isnan(numbers.value))
    columns = dict(zip(("layer", "head"), cells, strict=True))
    return pd.DataFrame(
        columns | {name: getattr(numbers, name)[cells] for name in ("value", "low", "high")}
    )


def curve_plot(numbers: HeadMetricNumbers, root: str = "") -> Plot:
    """Return the curve of a metric over layers, beside uniform attention and baselines."""
    results, metric, view, label = numbers
    layers = results.stack.attention_layers
    lines = [("model", "model", numbers.layers), (UNIFORM, "baseline", numbers.uniform)]
    for baseline in results.baselines:
        band = results.baseline_band(baseline, metric.id, view, label)
        lines.append((baseline_title(results, baseline), "control", band))
    lines = [each for each in lines if not np.isnan(each[2].value[[*layers]]).all()]
    names = ", ".join(name for name, *_ in lines[1:])
    caption = (
        f"{metric.title}{_of(label)} by layer, all heads, {VIEWS[view]}{_behind(numbers)}; "
        f"95 % intervals clustered by sentence.{names and f' Baselines: {names}.'}"
    )
    hrefs = [numbers.layer_number(layer, "").href for layer in layers]
    series = []
    for name, kind, estimates in lines:
        value, low, high = (
            part[[*layers]] for part in (estimates.value, estimates.low, estimates.high)
        )
        texts = [number(float(each), share=numbers.share) for each in value]
        linked = hrefs if kind == "model" else ()
        series.append(Series(name, kind, value, low, high, texts, linked))
    points = [str(layer) for layer in layers]
    return curves(figure_name(numbers, "-layers"), caption, series, points, metric, root=root)


def curves(
    name: str,
    caption: str,
    series: Sequence[Series],
    points: Sequence[str],
    metric: Metric,
    *,
    root: str = "",
    unit: str = "",
) -> Plot:
    """Return lines over layers on a scale that holds all of them, from 0 if 0 is near."""
    share = is_share(metric)
    known = np.concatenate([*_finite(series), np.array([0.0] if share else [])])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if 0 < low < high / 2:
        low = 0.0
    high = high if high > low else low + 1

    def tick(value: float) -> str:
        return f"{100 * value:.10g}\u202f%" if share else f"{value:,.10g}"

    unit = unit or metric.unit
    height = max(CURVE_HEIGHT, LABEL_DISTANCE * (len(series) + 1) + UNIT_TOP + 26)
    scale = Scale(low, high, height, top=UNIT_TOP) if unit else Scale(low, high, height)
    return layer_plot(
        name, caption, series, points, scale=scale, ticks=even_ticks(low, high, tick, 4),
        label_width=200, unit=unit, root=root,
    )  # fmt: skip


def _finite(series: Sequence[Series]) -> Iterator[Floats]:
    """Yield the known numbers and ends of intervals of lines."""
    for line in series:
        for part in (line.values, line.low, line.high):
            values = np.asarray(part, float)
            yield values[np.isfinite(values)]


def _behind(numbers: HeadMetricNumbers) -> str:
    """Return the sentences behind a figure in words; empty for every sentence of the study."""
    n_sentences = int(numbers.heads.sentences.max())
    if numbers.metric.source is Source.RANDOM:
        return f", on {count_text(n_sentences, 'random sequence')}"
    return numbers.results.sample_note(n_sentences, ", on")


def _of(label: str) -> str:
    name = label_name(label) if label else ""
    return f", {name}," if name.endswith(")") else f" ({name})" if name else ""
