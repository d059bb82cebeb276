"""The list of all metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headbook.metrics.base import Metric
from headbook.pages.parts.page import Page


@dataclass(frozen=True, kw_only=True)
class MetricsPage(Page):
    """The list of all metrics.

    Attributes:
        groups: metrics by section, in order.
    """

    template: ClassVar[str] = "metrics.html"
    groups: tuple[tuple[str, tuple[Metric, ...]], ...]


def metrics_page(metrics: Sequence[Metric]) -> MetricsPage:
    """The list of the study's metrics."""
    groups: dict[str, list[Metric]] = {}
    for metric in metrics:
        groups.setdefault(metric.section, []).append(metric)
    return MetricsPage(
        path="metrics/index.html",
        title="Metrics",
        description="Every number of this site: what it means, its unit and its source.",
        groups=tuple((name, tuple(each)) for name, each in groups.items()),
    )
