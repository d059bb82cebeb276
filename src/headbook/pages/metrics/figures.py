"""Figures of head metrics, which are files for papers, too: heat map, and curve over layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.charts import Figure, Plot, heat_map
from headbook.charts.axes import UNIFORM
from headbook.charts.plots import LABEL_DISTANCE, Line, Scale, Series, even_ticks, layer_plot
from headbook.metrics.base import ChartKind, HeadMetric, Notable, Source
from headbook.pages.parts.baselines import baseline_title
from headbook.pages.parts.table import domain
from headbook.report.head_numbers import HeadMetricNumbers
from headbook.report.results import StackResults
from headbook.report.wording import VIEWS, choice_file, count_text, label_name
from headbook.results.formats import number
from headbook.results.number import SHARE, Number, Unit
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
        share=metric.is_share,
        dark_low=numbers.notable is Notable.LOW,
    )


def map_data(numbers: HeadMetricNumbers) -> dict[str, list[Any]]:
    """Return the heat map in all views and offered labels, as columns; None if missing."""
    results, metric = numbers.results, numbers.metric
    parts = [
        _rows(results.heads(metric.id, view, label)).assign(
            view=str(view), label=choice_name(metric, label)
        )
        for view in metric.views
        for label in offered_labels(numbers)
    ]
    rows = pd.concat(parts, ignore_index=True).astype(object)
    columns = rows.where(rows.notna(), None).to_dict("list")  # scripts have no NaN
    return {str(name): values for name, values in columns.items()}


def choice_name(metric: HeadMetric, label: str) -> str:
    """Return the name of a label among others; of a number without one, the metric's title."""
    return label_name(label) if label else metric.title.lower()


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


def curve_plot(numbers: HeadMetricNumbers) -> Plot:
    """Return the curve of a metric over layers, beside uniform attention and baselines."""
    results, metric, view, label = numbers
    layers = results.stack.attention_layers
    named: list[tuple[str, str, list[Number]]] = [
        ("model", "model", [numbers.layer(layer) for layer in layers]),
        (UNIFORM, "baseline", [numbers.uniform(layer) for layer in layers]),
    ]
    known = [line for line in named if any(number.known for number in line[2])]
    lines: list[Line | Series] = [number_line(*line) for line in known]
    for baseline in results.baselines:
        band = results.baseline_band(baseline, metric.id, view, label)
        values, low, high = (part[[*layers]] for part in (band.value, band.low, band.high))
        if not np.isnan(values).all():  # baselines of layers have no table
            texts = [number(float(value), share=metric.is_share) for value in values]
            title = baseline_title(results, baseline)
            lines.append(Series(title, "control", values, low, high, texts))
    names = ", ".join(line.name for line in lines[1:])
    caption = (
        f"{metric.title}{_of(label)} by layer, all heads, {VIEWS[view]}{_behind(numbers)}; "
        f"95 % intervals clustered by sentence.{names and f' Baselines: {names}.'}"
    )
    unit = numbers.layer(layers[0]).unit
    return curves(figure_name(numbers, "-layers"), caption, lines, [*map(str, layers)], unit)


def number_line(name: str, kind: str, numbers: Sequence[Number]) -> Line:
    """Return numbers over layers as a line; its unit stands above the axis, but for shares."""
    return Line(name, kind, numbers, "" if numbers[0].unit == SHARE else "bare")


def curves(
    name: str, caption: str, lines: Sequence[Line | Series], points: Sequence[str], unit: Unit
) -> Plot:
    """Return lines over layers on a scale that holds all of them, from 0 if 0 is near."""
    share = unit == SHARE
    drawn = [line.series if isinstance(line, Line) else line for line in lines]
    known = np.concatenate([line_part for line in drawn for line_part in line[2:5]])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if share:
        low, high = min(low, 0.0), max(high, 0.0)
    if 0 < low < high / 2:
        low = 0.0
    high = high if high > low else low + 1

    def tick(value: float) -> str:
        return f"{100 * value:.10g}\u202f%" if share else f"{value:,.10g}"

    above = "" if share else unit.name.strip()
    height = max(CURVE_HEIGHT, LABEL_DISTANCE * (len(lines) + 1) + UNIT_TOP + 26)
    scale = Scale(low, high, height, top=UNIT_TOP) if above else Scale(low, high, height)
    return layer_plot(
        name, caption, lines, points, scale=scale, ticks=even_ticks(low, high, tick, 4),
        label_width=200, unit=above,
    )  # fmt: skip


def _behind(numbers: HeadMetricNumbers) -> str:
    """Return the sentences behind a figure in words; empty for every sentence of the study."""
    n_sentences = int(numbers.heads.sentences.max())
    if numbers.metric.source is Source.RANDOM:
        return f", on {count_text(n_sentences, 'random sequence')}"
    return numbers.results.sample_note(n_sentences, ", on")


def _of(label: str) -> str:
    name = label_name(label) if label else ""
    return f", {name}," if name.endswith(")") else f" ({name})" if name else ""
