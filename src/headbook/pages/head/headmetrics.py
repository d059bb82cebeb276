"""The numbers of a head as tables, for its page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.analysis.arithmetic import Floats
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import Chart, HeadMetric
from headbook.pages.parts.cells import Cell, percentiles
from headbook.pages.parts.table import Mark, Row, Words, words
from headbook.pages.parts.twins import beside
from headbook.report.findings.finding import metric_link
from headbook.report.numbers.relationnames import TAG_NAMES
from headbook.report.numbers.results import Estimates, StackResults
from headbook.report.numbers.tagshares import TAG_VIEW
from headbook.report.wording import MISSING, is_share, label_name, number, unbroken
from headbook.study.sentencedata import HeadName
from headbook.terms import View

ELSEWHERE = {ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.POS_GIVEN}  # in tables of tags
ELSEWHERE |= {ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR}  # in those of relations
ELSEWHERE |= {ids.SURFACE_RULE}  # on the metric's own page: too many rules
LONGEST = 98  # per cent of a bar's room; a mark at its end needs the rest
WHOLE = {ids.ATTENTION_TO}  # all labels stand in the first table


@dataclass(frozen=True)
class TagRow:
    """Attention to one part of speech.

    Attributes:
        tag: part of speech, a universal one by its name.
        share: of the head's attention to ordinary keys.
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
    title: Words
    numbers: tuple[Estimates | None, ...]
    even: Floats
    percentiles: Floats


def metric_rows(results: StackResults, head: HeadName, *, first: bool) -> Iterator[Row]:
    """Its numbers: of metrics with many labels the first one, or the others."""
    for line in results.once(_lines):
        if line.first == first:
            yield _row(results, (head.layer, head.head), line)


def _lines(results: StackResults) -> tuple[_Line, ...]:
    """The rows of both tables."""
    found = []
    for metric in results.metrics:
        if metric.chart is Chart.PROFILE or metric.id in ELSEWHERE:
            continue  # these have a figure or a table of their own
        for label in metric.listed:
            first = label == metric.headline or metric.id in WHOLE
            if metric.chart is Chart.DISTANCES and not first:
                continue  # their distances are on the metric's page
            if any(results.has(metric.id, view, label) for view in metric.views):
                found.append(_line(results, metric, label, first=first))
    return tuple(found)


def _line(results: StackResults, metric: HeadMetric, label: str, *, first: bool) -> _Line:
    view = results.view(metric, label)
    about = f": {unbroken(label_name(label))}" if label_name(label) else ""
    unit = (" ", Mark(f"({metric.unit})", "small")) if metric.unit else ()
    return _Line(
        metric=metric,
        label=label,
        first=first,
        title=words(metric_link(metric.id, metric.title) if first else metric.title, about, *unit),
        numbers=tuple(
            results.heads(metric.id, v, label) if v in metric.views else None for v in View
        ),
        even=results.uniform(metric.id, view, label).value,
        percentiles=percentiles(results.heads(metric.id, view, label).value),
    )


def _row(results: StackResults, cell: tuple[int, int], line: _Line) -> Row:
    """By view the head's number, then uniform attention and what it is compared with."""
    metric, share = line.metric, float(line.percentiles[cell])
    cells = (
        *(None if each is None else Cell.of(each.at(*cell), metric) for each in line.numbers),
        number(float(line.even[cell[0]]), share=is_share(metric)),
        *(beside(results, control, metric, line.label, cell) for control in results.twins),
        MISSING if math.isnan(share) else str(round(100 * share)),
    )
    return Row(line.title, cells)


def tag_rows(results: StackResults, head: HeadName) -> Iterator[TagRow]:
    """Attention to parts of speech among ordinary keys, the largest share first."""
    view = TAG_VIEW
    share, ratio = all_metrics()[ids.POS_RECEIVED], all_metrics()[ids.POS_RECEIVED_RATIO]
    tags = [tag for tag in results.labels(share.id) if results.has(share.id, view, tag)]
    tags = [tag for tag in tags if results.has(ratio.id, view, tag)]
    numbers = {tag: results.heads(share.id, view, tag).at(head.layer, head.head) for tag in tags}
    even = {tag: results.uniform(share.id, view, tag).at(head.layer).value for tag in tags}
    most = max([n.value for n in numbers.values() if n.value == n.value] + [*even.values(), 1e-9])
    for tag in sorted(tags, key=lambda t: -numbers[t].value):
        times = results.heads(ratio.id, view, tag).at(head.layer, head.head)
        yield TagRow(
            tag=TAG_NAMES.get(tag, tag),
            share=Cell.of(numbers[tag], share),
            width=round(LONGEST * numbers[tag].value / most, 1),
            uniform=number(even[tag], share=True),
            uniform_width=round(LONGEST * even[tag] / most, 1),
            ratio=Cell.of(times, ratio),
        )
