"""All numbers of a head, in rows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.metrics import ids
from headbook.metrics.base import ChartKind, HeadMetric
from headbook.pages.parts.baselines import (
    baseline_text,
)
from headbook.pages.parts.table import (
    MarkedText,
    NumberCell,
    Row,
    WordsCell,
    percentiles,
    words_cell,
)
from headbook.report.findings.finding import metric_link
from headbook.report.results import StackResults
from headbook.report.wording import (
    MISSING,
    is_share,
    label_name,
    number,
    unbroken,
)
from headbook.schema import SinkView
from headbook.study.sentence_data import HeadName

ELSEWHERE = {ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.POS_GIVEN}  # in tables of tags
ELSEWHERE |= {ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR}  # in those of relations
ELSEWHERE |= {ids.SURFACE_RULE}  # on the metric's own page: too many rules
WHOLE = {ids.ATTENTION_TO}  # all labels stand in the first table


@dataclass(frozen=True)
class _Line:
    """What a row of numbers has that is the same for all heads, or made for all at once.

    Attributes:
        first: whether it stands in the first table.
        title: metric, label and unit.
        numbers: by view; None where the metric has no such view.
        even: of uniform attention, by layer.
        percentiles: places among all heads of the stack in the stack's default view, 0 to 1.
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
    """Its numbers: of metrics with many labels the first one, or the others."""
    for line in results.cached(_lines):
        if line.first == first:
            yield _metric_row(results, (head.layer, head.head), line)


def _lines(results: StackResults) -> tuple[_Line, ...]:
    """The rows of both tables."""
    found = []
    for metric in results.metrics:
        if metric.chart is ChartKind.PROFILE or metric.id in ELSEWHERE:
            continue  # these have a figure or a table of their own
        for label in metric.listed:
            first = label == metric.headline or metric.id in WHOLE
            if metric.chart is ChartKind.DISTANCES and not first:
                continue  # their distances are on the metric's page
            if any(results.has_value(metric.id, view, label) for view in metric.views):
                found.append(_line(results, metric, label, first=first))
    return tuple(found)


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
    """By view the head's number, then uniform attention and what it is compared with."""
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
