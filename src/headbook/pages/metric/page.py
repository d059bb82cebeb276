"""The pages of metrics: one for each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headbook.metrics import all_metrics
from headbook.metrics.base import (
    AnchorMetric,
    HeadMetric,
    LayerMetric,
    LayerPairMetric,
    LayerwiseMetric,
    Metric,
    PairMetric,
    Source,
)
from headbook.pages.metric.sections import MetricSection, head_section
from headbook.pages.metric.tokensections import token_section
from headbook.pages.parts.page import Page, gap_text
from headbook.report.findings.finding import sample_size
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import counted
from headbook.study.summaries.columns import TokenColumn
from headbook.study.summaries.shapes import CKA
from headbook.study.summaries.sums import PairColumn

ELSEWHERE = (AnchorMetric, LayerMetric, LayerPairMetric, PairMetric)  # shown on pages of their own


@dataclass(frozen=True, kw_only=True)
class MetricPage(Page):
    """One metric.

    Attributes:
        metric: its name in tables.
        section: the group it belongs to.
        prose: what it means, in Markdown.
        formula: LaTeX.
        reference: where the definition comes from.
        unit: of the values, or empty.
        bounds: smallest and largest possible value, in words.
        taken_on: what a head metric is measured on, in words; else empty.
        pairs: whether it compares heads, so that another page shows it.
        anchors: whether it is a token for each head, which another page shows.
        states: whether it is of states, so that the page of their geometry shows it.
        sections: results by stack.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "metric.html"
    metric: str
    section: str
    prose: str
    formula: str
    reference: str
    unit: str
    bounds: str
    taken_on: str
    pairs: bool
    states: bool
    anchors: bool
    sections: tuple[MetricSection, ...]
    remarks: tuple[str, ...]


def _section(results: StackResults, metric: Metric) -> MetricSection | None:
    """What a metric says of one stack; None where it has no numbers there."""
    if isinstance(metric, HeadMetric):
        return head_section(results, metric)
    return token_section(results, metric) if isinstance(metric, LayerwiseMetric) else None


def metric_pages(
    results: Mapping[str, StackResults], metrics: Sequence[Metric]
) -> Iterator[MetricPage]:
    """A page for each metric of the study."""
    for metric in metrics:
        made = {name: _section(r, metric) for name, r in results.items()}
        yield MetricPage(
            path=f"metrics/{metric.id}.html",
            title=metric.title,
            description=metric.summary,
            metric=metric.id,
            section=metric.section,
            prose=metric.prose,
            formula=metric.formula,
            reference=metric.reference,
            unit=metric.unit,
            bounds=_bounds(metric),
            taken_on=_taken_on(metric, next(iter(results.values()))),
            pairs=isinstance(metric, PairMetric),
            anchors=isinstance(metric, AnchorMetric),
            states=isinstance(metric, LayerMetric | LayerPairMetric),
            sections=tuple(section for section in made.values() if section),
            remarks=tuple(
                gap_text(gap)
                for name, r in results.items()
                for gap in r.study.manifest.gaps
                if gap.stack == name and made[name] is None and not isinstance(metric, ELSEWHERE)
            ),
        )


def study_metrics(results: Mapping[str, StackResults]) -> list[Metric]:
    """The metrics that a study has numbers for, in the order of lists."""
    there = {metric.id for r in results.values() for metric in r.metrics}
    corpus_sums = study_of(results).corpus_sums
    sums = [
        *corpus_sums.tokens.values(),
        *corpus_sums.lookups.values(),
        *corpus_sums.flows.values(),
    ]
    columns: list[TokenColumn | PairColumn] = [c for table in sums for c in table.columns]
    columns += [c for table in corpus_sums.distances.values() for c in table.columns]
    there |= {column.metric for column in columns}
    there |= {c.metric for table in corpus_sums.geometry.values() for c in table.columns}
    there |= {column.metric for table in corpus_sums.anchors.values() for column in table.columns}
    there |= {CKA for table in corpus_sums.geometry.values() if table.products.size}
    return [metric for metric in all_metrics().values() if metric.id in there]


def _taken_on(metric: Metric, results: StackResults) -> str:
    if not isinstance(metric, HeadMetric):
        return ""
    if metric.source is Source.RANDOM:
        return metric.source
    count = counted(results.study.manifest.counts["sentences"], "sentence")
    if metric.source is Source.ALL:
        return count
    return f"{sample_size(results):,} of {count}, chosen by a hash of their content"


def _bounds(metric: Metric) -> str:
    low, high = metric.limits
    top = "no upper bound" if math.isinf(high) else f"{high:.4g}"
    return f"{low:g} to {top}" if not math.isinf(high) else f"{low:g}, {top}"
