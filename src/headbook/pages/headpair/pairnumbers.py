"""The difference of every number of two heads, strong ones first."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.comparison.drift import PATTERN_DRIFT
from headbook.comparison.headdifferences import HeadDifferences
from headbook.comparison.modeldifferences import ComparedColumn
from headbook.comparison.pairs import HeadPair, PairedStack
from headbook.metrics import all_metrics
from headbook.metrics.base import Section
from headbook.pages.comparison.moved import METRICS
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.groupvalues import difference_cell
from headbook.pages.parts.table import Mark, Row, Table, words
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import (
    MAYBE,
    MISSING,
    VIEWS,
    counted,
    is_share,
    label_name,
    number,
    p_text,
    unbroken,
)
from headbook.study.importancetables import EFFECT
from headbook.study.sentencedata import HeadName
from headbook.terms import View

LEAST = 0.05  # a family-wise p below which a difference is supported
FIRST = 6  # differences that the page begins with
TITLES = {EFFECT: "Change without the head"}
WEAK = "weak"  # of a row without support
STYLE = "numbers all"
BESIDE = {PATTERN_DRIFT} | METRICS  # of both models at once: said in sentences


@dataclass(frozen=True)
class SectionTable:
    """The numbers of one kind of metrics, and how many of them differ with support."""

    title: str
    about: str
    table: Table


@dataclass(frozen=True)
class PairNumbers:
    """All numbers of two heads.

    Attributes:
        first: the differences with support that are largest in standard errors; None without any.
        largest: the first of them in words; empty without any.
        supported, total: how many differ with support, of how many.
        rule: when a number counts as different.
        equal: whether every number of both is exactly equal.
        sections: all of them.
    """

    first: Table | None
    largest: str
    supported: int
    total: int
    rule: str
    equal: bool
    sections: tuple[SectionTable, ...]


@dataclass(frozen=True)
class _Number:
    """One number of two heads.

    Attributes:
        column: metric, view and label.
        a, b: value of each head.
        difference: second minus first, with its interval.
        p: family-wise.
        supported: whether the heads count as different.
    """

    column: ComparedColumn
    a: float
    b: float
    difference: Estimate
    p: float
    supported: bool

    @property
    def size(self) -> float:
        """The difference in standard errors, or what is proportional to it."""
        reach = self.difference.high - self.difference.low
        return abs(self.difference.value) / reach if reach > 0 else 0.0

    @property
    def share(self) -> bool:
        metric = all_metrics().get(self.column.metric)
        return metric is not None and is_share(metric)

    @property
    def section(self) -> Section:
        metric = all_metrics().get(self.column.metric)
        return metric.section if metric else Section.CONTRIBUTES


def pair_numbers(paired: PairedStack, pair: HeadPair) -> PairNumbers:
    """The numbers of a pair; of heads that do not correspond each by itself."""
    if paired.differences is None:
        return PairNumbers(None, "", 0, 0, "", equal=False, sections=_by_themselves(paired, pair))
    found = [*_numbers(paired.differences, pair.a.layer, pair.a.head)]
    strong = sorted((each for each in found if each.supported), key=lambda each: -each.size)
    columns = ("Metric", *paired.names, "difference")
    first = Table(columns, tuple(_row(each, short=True) for each in strong[:FIRST]), style=STYLE)
    return PairNumbers(
        first=first if strong else None,
        largest=_in_words(strong[0]) if strong else "",
        supported=len(strong),
        total=len(found),
        rule=_rule(paired.differences),
        equal=all(each.difference.value == 0 for each in found),
        sections=tuple(_sections(found, paired.names)),
    )


def _rule(found: HeadDifferences) -> str:
    """Return when a number counts as different; floors differ from number to number."""
    if np.isnan(found.floors).all():
        return f"with p < {LEAST} family-wise; consistent across sentences; {MAYBE}"
    return f"with p < {LEAST} family-wise and an interval beyond the rounding floor"


def _numbers(found: HeadDifferences, layer: int, head: int) -> Iterator[_Number]:
    parts = (found.a, found.b, found.value, found.low, found.high, found.p, found.supported)
    a, b, value, low, high, p, sure = (part[layer, head].tolist() for part in parts)
    behind = found.sentences[layer, head].tolist()
    for n, column in enumerate(found.columns):
        if column.metric not in BESIDE and not np.isnan(value[n]):
            difference = Estimate(value[n], low[n], high[n], behind[n], 0.0)
            yield _Number(column, a[n], b[n], difference, p[n], sure[n])


def _sections(found: list[_Number], names: tuple[str, str]) -> Iterator[SectionTable]:
    columns = ("Metric", "Keys", *names, "difference", "p")
    for section in Section:
        own = [each for each in found if each.section == section]
        if not own:
            continue
        strong = sorted((each for each in own if each.supported), key=lambda each: -each.size)
        rest = [each for each in own if not each.supported]
        about = f"{len(strong)} of {counted(len(own), 'number')} differ"
        rows = tuple(_row(each) for each in (*strong, *rest))
        yield SectionTable(section, about, Table(columns, rows, style=STYLE))


def _row(each: _Number, *, short: bool = False) -> Row:
    """One difference; ``short``: with its keys in its name, and without its p."""
    share, view = each.share, _view(each.column.view)
    cell = difference_cell(
        each.difference, share=share, behind=counted(each.difference.sentences, "sentence")
    )
    values = number(each.a, share=share), number(each.b, share=share), cell
    style = "" if each.supported else WEAK
    if short:
        keys = f", {view}" if view else ""
        return Row(words(_title(each.column), Mark(keys, "small")), values, style)
    return Row(_title(each.column), (words(view, style="what"), *values, p_text(each.p)), style)


def _in_words(each: _Number) -> str:
    """One difference: what of, by how much."""
    cell = difference_cell(each.difference, share=each.share, behind="")
    keys = f", {view}" if (view := _view(each.column.view)) else ""
    return f"{_title(each.column)}{keys}: {cell.text} {cell.interval}".strip()


def _view(view: str) -> str:
    return VIEWS[View(view)] if view else ""


def _title(column: ComparedColumn) -> str:
    metric = all_metrics().get(column.metric)
    label = unbroken(label_name(column.label))
    unit = f" ({metric.unit})" if metric and metric.unit else ""
    title = metric.title if metric else TITLES.get(column.metric, column.metric)
    return f"{title}{f': {label}' if label else ''}{unit}"


def _by_themselves(paired: PairedStack, pair: HeadPair) -> tuple[SectionTable, ...]:
    """Metrics of both heads in the view that pages show first, without a test."""
    found = []
    for section in Section:
        rows = []
        for metric in paired.a.metrics:
            if metric.section != section or metric.headline not in metric.labels:
                continue
            sides = ((paired.a, pair.a), (paired.b, pair.b))
            cells = tuple(
                _cell(results, metric.id, metric.headline, head) for results, head in sides
            )
            if not all(cell == MISSING for cell in cells):
                label = unbroken(label_name(metric.headline))
                rows.append(Row(f"{metric.title}{f': {label}' if label else ''}", cells))
        if rows:
            table = Table(("Metric", *paired.names), tuple(rows), style=STYLE)
            found.append(SectionTable(section, counted(len(rows), "number"), table))
    return tuple(found)


def _cell(results: StackResults, metric: str, label: str, head: HeadName | None) -> Cell | str:
    known = results.by_id.get(metric)
    if known is None or head is None:
        return MISSING
    view = results.view(known, label)
    if not results.has(metric, view, label):
        return MISSING
    return Cell.of(results.heads(metric, view, label).at(head.layer, head.head), known)
