"""The list of all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headbook.metrics.base import Metric
from headbook.pages.parts.page import Page


@dataclass(frozen=True)
class MetricLine:
    """One metric in the list of all."""

    title: str
    href: str
    summary: str
    unit: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class MetricsPage(Page):
    """The list of all metrics.

    Attributes:
        groups: metrics by section, in order.
    """

    template: ClassVar[str] = "metrics.html"
    groups: tuple[tuple[str, tuple[MetricLine, ...]], ...]


def metrics_page(metrics: Sequence[Metric]) -> MetricsPage:
    """The list of the study's metrics."""
    groups: dict[str, list[MetricLine]] = {}
    for m in metrics:
        line = MetricLine(m.title, f"metrics/{m.id}.html", m.summary, m.unit, m.reference)
        groups.setdefault(m.section, []).append(line)
    return MetricsPage(
        path="metrics/index.html",
        title="Metrics",
        description="Every number of this site: what it means, its unit and its source.",
        groups=tuple((name, tuple(lines)) for name, lines in groups.items()),
    )
