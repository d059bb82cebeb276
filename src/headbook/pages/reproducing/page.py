"""Published results beside what this study computes for them, and how to compute them again."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headbook.metrics import all_metrics
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.coverage import coverage
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Mark, Part, Row, Table, words
from headbook.report.findings.finding import metric_link
from headbook.report.numbers.published import Group, Published
from headbook.report.numbers.publishedcausal import EVERY
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import (
    MISSING,
    VIEWS,
    counted,
    interval,
    label_name,
    unbroken,
)
from headbook.terms import View

COLUMNS = ("Quantity", "published", "this study", "computed from", "where published")
NOTHING = Cell(MISSING, "", "", thin=False)


@dataclass(frozen=True)
class FigureGroup:
    """Figures of one paper about one model.

    Attributes:
        title, source: of the group and of the paper.
        model: the paper's model, as the command names it.
        same: whether this study is of that model.
        command: what computes all rows.
        differs: what differs between the paper and this site.
        table: the figures, each with this study's value; a dash where it is of another model, or
            has none.
    """

    title: str
    source: str
    model: str
    same: bool
    command: str
    differs: tuple[str, ...]
    table: Table


@dataclass(frozen=True, kw_only=True)
class ReproducingPage(Page):
    """Published figures and this study's.

    Attributes:
        model: the study's model.
        sentences: how many sentences the study has, in words.
        annotators: what tagged and parsed them.
        groups: the figures by paper.
    """

    template: ClassVar[str] = "reproducing.html"
    model: str
    sentences: str
    annotators: tuple[str, ...]
    groups: tuple[FigureGroup, ...]


def reproducing_page(results: Mapping[str, StackResults]) -> ReproducingPage:
    """The page of published results."""
    manifest = study_of(results).manifest
    return ReproducingPage(
        path="reproducing.html",
        title="Reproducing published results",
        description="Figures that papers print about attention heads, what this site computes for "
        "them, and the commands to run.",
        model=manifest.model.name,
        sentences=coverage(manifest),
        annotators=tuple(manifest.annotators.values()),
        groups=tuple(_group(group, results) for group in EVERY),
    )


def _group(group: Group, results: Mapping[str, StackResults]) -> FigureGroup:
    manifest = study_of(results).manifest
    same = manifest.model.name in group.names and "self" in results
    return FigureGroup(
        title=group.title,
        source=group.source,
        model=group.model,
        same=same,
        command=group.command,
        differs=group.differs,
        table=Table(
            COLUMNS,
            tuple(_rows(group, results, same=same)),
            f"Published figures about {group.model}, and values of this study.",
            "numbers reproducing",
        ),
    )


def _rows(group: Group, results: Mapping[str, StackResults], *, same: bool) -> Iterator[Row]:
    there = {metric.id for r in results.values() for metric in r.metrics}
    for figure in group.figures:
        differs = unbroken(figure.differs)
        cells = (
            figure.value,
            _own(figure, results["self"]) if same else NOTHING,
            words(*_used(figure, there), figure.quantity.how),
            words(figure.where),
        )
        yield Row(words(figure.what, differs and " ", Mark(differs, "small")), cells)


def _own(figure: Published, results: StackResults) -> Cell:
    """The study's value with its interval."""
    estimate, quantity = figure.quantity.number(results), figure.quantity
    if math.isnan(estimate.value):
        return NOTHING
    ends = interval(estimate.low, estimate.high, share=quantity.share)
    behind = counted(estimate.sentences, "sentence")
    return Cell(quantity.written(estimate.value), ends, behind, thin=False)


def _used(figure: Published, there: set[str]) -> Iterator[Part]:
    """Each metric and view once, with its labels where there are few."""
    labels: dict[tuple[str, str], list[str]] = {}
    for column in figure.quantity.columns:
        labels.setdefault((column.metric, column.view), []).append(column.label)
    for n, ((metric, view), names) in enumerate(labels.items()):
        written = label_name(names[0]) if len(names) == 1 else "every tag"
        about = VIEWS[View(view)] + (f", {written}" if written else "")
        title = all_metrics()[metric].title
        yield " and " if n else ""
        yield metric_link(metric, title) if metric in there else title
        yield " "
        yield Mark(f"({about})", "small")
    if labels:
        yield ": "
