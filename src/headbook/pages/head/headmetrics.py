"""The numbers of a head as tables, for its page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.metrics import all_metrics, ids
from headbook.metrics.base import Chart, HeadMetric
from headbook.pages.parts.cells import Cell, percentile
from headbook.pages.parts.table import Mark, Row, words
from headbook.pages.parts.twins import beside
from headbook.report.findings.finding import metric_link
from headbook.report.numbers.results import StackResults
from headbook.report.wording import MISSING, is_share, label_name, number, unbroken
from headbook.study.sentencedata import HeadName
from headbook.terms import View

ELSEWHERE = {ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.POS_GIVEN}  # in tables of tags
ELSEWHERE |= {ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR}  # in those of relations
LONGEST = 98  # per cent of a bar's room; a mark at its end needs the rest
WHOLE = {ids.ATTENTION_TO}  # all labels stand in the first table


@dataclass(frozen=True)
class TagRow:
    """Attention to one part of speech.

    Attributes:
        tag: Universal part of speech.
        share: of the head's attention.
        width: the same as a bar, in per cent of its room.
        uniform: what uniform attention would give; ``uniform_width`` as a mark on the bar.
        ratio: of the two.
    """

    tag: str
    share: Cell
    width: float
    uniform: str
    uniform_width: float
    ratio: Cell


def metric_rows(results: StackResults, head: HeadName, *, first: bool) -> Iterator[Row]:
    """Its numbers: of metrics with many labels the first one, or the others."""
    for metric in results.metrics:
        if metric.chart is Chart.PROFILE or metric.id in ELSEWHERE:
            continue  # these have a figure or a table of their own
        if metric.chart is Chart.DISTANCES and not first:
            continue  # their distances are on the metric's page
        for label in metric.labels:
            leads = label == metric.headline or metric.id in WHOLE
            there = any(results.has(metric.id, view, label) for view in metric.views)
            if there and leads == first:
                yield _row(results, head, metric, label, linked=first)


def _row(
    results: StackResults, head: HeadName, metric: HeadMetric, label: str, *, linked: bool
) -> Row:
    """By view the head's number, then those of uniform attention and of what it is compared with.

    The percentile is the place among all heads of the stack in the stack's default view.
    """
    view, cell = results.view(metric, label), (head.layer, head.head)
    values = results.heads(metric.id, view, label).value
    share = percentile(values, float(values[cell]))
    even = results.uniform(metric.id, view, label).at(head.layer).value
    title = metric_link(metric.id, metric.title) if linked else metric.title
    about = f": {unbroken(label_name(label))}" if label_name(label) else ""
    unit = (" ", Mark(f"({metric.unit})", "small")) if metric.unit else ()
    numbers = (
        Cell.of(results.heads(metric.id, v, label).at(*cell), metric) if v in metric.views else None
        for v in View
    )
    cells = (
        *numbers,
        number(even, share=is_share(metric)),
        *(beside(results, control, metric, label, cell) for control in results.twins),
        MISSING if math.isnan(share) else str(round(100 * share)),
    )
    return Row(words(title, about, *unit), cells)


def tag_rows(results: StackResults, head: HeadName) -> Iterator[TagRow]:
    """Attention to parts of speech, the largest share first."""
    view = results.stack.default_view
    share, ratio = all_metrics()[ids.POS_RECEIVED], all_metrics()[ids.POS_RECEIVED_RATIO]
    tags = [tag for tag in results.labels(share.id) if results.has(share.id, view, tag)]
    tags = [tag for tag in tags if results.has(ratio.id, view, tag)]
    numbers = {tag: results.heads(share.id, view, tag).at(head.layer, head.head) for tag in tags}
    even = {tag: results.uniform(share.id, view, tag).at(head.layer).value for tag in tags}
    most = max([n.value for n in numbers.values() if n.value == n.value] + [*even.values(), 1e-9])
    for tag in sorted(tags, key=lambda t: -numbers[t].value):
        times = results.heads(ratio.id, view, tag).at(head.layer, head.head)
        yield TagRow(
            tag=tag,
            share=Cell.of(numbers[tag], share),
            width=round(LONGEST * numbers[tag].value / most, 1),
            uniform=number(even[tag], share=True),
            uniform_width=round(LONGEST * even[tag] / most, 1),
            ratio=Cell.of(times, ratio),
        )
