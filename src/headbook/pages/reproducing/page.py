"""Published results beside what this study computes for them, and how to compute them again."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headbook.metrics import all_metrics
from headbook.pages.parts.page import Page
from headbook.report.numbers.published import GROUPS, Group, Published
from headbook.report.numbers.results import StackResults
from headbook.report.wording import MISSING, VIEWS, counted, interval, is_share, label_name
from headbook.terms import View


@dataclass(frozen=True)
class Used:
    """What a figure is computed from.

    Attributes:
        title, href: the metric and its page; the address is empty where the study lacks it.
        about: view and label.
    """

    title: str
    href: str
    about: str


@dataclass(frozen=True)
class FigureRow:
    """A published figure.

    Attributes:
        what, value, where: as in `headbook.report.numbers.published.Published`.
        used: what it is computed from.
        how: what of that it takes.
        own: this study's value; a dash where it is of another model, or has none.
        interval: of that value, or empty.
        behind: how many sentences are behind it, or empty.
        differs: what differs for this figure alone.
    """

    what: str
    value: str
    where: str
    used: tuple[Used, ...]
    how: str
    own: str
    interval: str
    behind: str
    differs: str


@dataclass(frozen=True)
class FigureGroup:
    """Figures of one paper about one model.

    Attributes:
        title, source: of the group and of the paper.
        model: the paper's model, as the command names it.
        same: whether this study is of that model.
        command: what computes all rows.
        differs: what differs between the paper and this site.
        rows: the figures.
    """

    title: str
    source: str
    model: str
    same: bool
    command: str
    differs: tuple[str, ...]
    rows: tuple[FigureRow, ...]


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
    manifest = next(iter(results.values())).study.manifest
    return ReproducingPage(
        path="reproducing.html",
        title="Reproducing published results",
        description="Figures that papers print about attention heads, what this site computes for "
        "them, and the commands to run.",
        model=manifest.model.name,
        sentences=counted(manifest.counts["sentences"], "sentence"),
        annotators=tuple(manifest.annotators.values()),
        groups=tuple(_group(group, results) for group in GROUPS),
    )


def _group(group: Group, results: Mapping[str, StackResults]) -> FigureGroup:
    manifest = next(iter(results.values())).study.manifest
    same = manifest.model.name in group.names and "self" in results
    return FigureGroup(
        title=group.title,
        source=group.source,
        model=group.model,
        same=same,
        command=group.command,
        differs=group.differs,
        rows=tuple(_rows(group, results, same=same)),
    )


def _rows(group: Group, results: Mapping[str, StackResults], *, same: bool) -> Iterator[FigureRow]:
    there = {metric.id for r in results.values() for metric in r.metrics}
    for figure in group.figures:
        own, ends, behind = _own(figure, results["self"]) if same else (MISSING, "", "")
        yield FigureRow(
            what=figure.what,
            value=figure.value,
            where=figure.where,
            used=tuple(_used(figure, there)),
            how=figure.quantity.how,
            own=own,
            interval=ends,
            behind=behind,
            differs=figure.differs,
        )


def _own(figure: Published, results: StackResults) -> tuple[str, str, str]:
    """The study's value, its interval and the number of sentences, in words."""
    estimate, quantity = figure.quantity.number(results), figure.quantity
    if math.isnan(estimate.value):
        return MISSING, "", ""
    share = is_share(all_metrics()[quantity.columns[0].metric])
    ends = interval(estimate.low, estimate.high, share=share)
    return quantity.written(estimate.value), ends, counted(estimate.sentences, "sentence")


def _used(figure: Published, there: set[str]) -> Iterator[Used]:
    """Each metric and view once, with its labels where there are few."""
    labels: dict[tuple[str, str], list[str]] = {}
    for column in figure.quantity.columns:
        labels.setdefault((column.metric, column.view), []).append(column.label)
    for (metric, view), names in labels.items():
        written = label_name(names[0]) if len(names) == 1 else "every tag"
        yield Used(
            title=all_metrics()[metric].title,
            href=f"metrics/{metric}.html" if metric in there else "",
            about=VIEWS[View(view)] + (f", {written}" if written else ""),
        )
