"""All numbers of a head, as rows of two tables."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.metrics import ids
from headbook.metrics.base import ChartKind, HeadMetric
from headbook.pages.parts.baselines import baseline_text
from headbook.pages.parts.table import (
    MarkedText,
    NumberCell,
    Row,
    WordsCell,
    percentiles,
    words_cell,
)
from headbook.report.results import StackResults
from headbook.report.wording import is_share, label_name, unbroken
from headbook.results.formats import MISSING, number
from headbook.results.sentence import metric_link
from headbook.schema import HeadName, SinkView

ELSEWHERE = {ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.POS_GIVEN}  # in tables of tags
ELSEWHERE |= {ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR}  # in tables of relations
ELSEWHERE |= {ids.SURFACE_RULE}  # on the metric's own page: there are too many rules
WHOLE = {ids.ATTENTION_TO}  # metrics whose labels are all in the first table


@dataclass(frozen=True)
class _Line:
    """The parts of a row of numbers that are computed once for all heads.

    Attributes:
        first: whether the row belongs to the first table.
        title: metric, label and unit.
        numbers: numbers of all heads by view; None for a view that the metric lacks.
        even: numbers under uniform attention. *Shape:* ``(layer,)``.
        percentiles: ranks among all heads in the stack's default view, 0 to 1.
            *Shape:* ``(layer, head)``.
    """

    metric: HeadMetric
    label: str
    first: bool
    title: WordsCell
    numbers: tuple[Estimates | None, ...]
    even: Floats
    percentiles: Floats


def metric_rows(results: StackResults, head: HeadName, *, first: bool) -> Iterator[Row]:
    """Yield the numbers of a head, a row for each metric and label of one table.

    Args:
        first: whether the rows are those of the first table, with one label of most metrics, or
            those of the second table, with the other labels.
    """
    for line in results.cached(_lines):
        if line.first == first:
            yield _metric_row(results, (head.layer, head.head), line)


def _lines(results: StackResults) -> tuple[_Line, ...]:
    """Return the rows of both tables, without the numbers of single heads."""
    lines = []
    for metric in results.metrics:
        if metric.chart is ChartKind.PROFILE or metric.id in ELSEWHERE:
            continue  # the page has another figure or table of this metric
        for label in metric.listed:
            first = label == metric.headline or metric.id in WHOLE
            if metric.chart is ChartKind.DISTANCES and not first:
                continue  # the metric's page lists all distances
            if any(results.has_value(metric.id, view, label) for view in metric.views):
                lines.append(_line(results, metric, label, first=first))
    return tuple(lines)


def _line(results: StackResults, metric: HeadMetric, label: str, *, first: bool) -> _Line:
    view = results.view(metric, label)
    about = f": {unbroken(label_name(label))}" if label_name(label) else ""
    unit = (" ", MarkedText(f"({metric.unit})", "small")) if metric.unit else ()
    return _Line(
        metric=metric,
        label=label,
        first=first,
        title=words_cell(
            metric_link(metric.id, metric.title) if first else metric.title, about, *unit
        ),
        numbers=tuple(
            results.heads(metric.id, v, label) if v in metric.views else None for v in SinkView
        ),
        even=results.uniform(metric.id, view, label).value,
        percentiles=percentiles(results.heads(metric.id, view, label).value),
    )


def _metric_row(results: StackResults, cell: tuple[int, int], line: _Line) -> Row:
    """Return the row of a head: number by view, uniform attention, baselines, and percentile."""
    metric, share = line.metric, float(line.percentiles[cell])
    cells = (
        *(None if each is None else NumberCell.of(each.at(*cell), metric) for each in line.numbers),
        number(float(line.even[cell[0]]), share=is_share(metric)),
        *(
            baseline_text(results, control, metric, line.label, cell)
            for control in results.baselines
        ),
        MISSING if math.isnan(share) else str(round(100 * share)),
    )
    return Row(line.title, cells)
