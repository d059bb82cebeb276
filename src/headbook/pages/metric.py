"""The page of each metric of heads, tokens and states, and the list of metrics."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
from headbook.pages.metrics.anchors import AnchorSection, anchor_sections
from headbook.pages.metrics.figures import figure_name, heat_caption
from headbook.pages.metrics.heads import HeadSection, head_section
from headbook.pages.metrics.states import StateSection, token_section
from headbook.pages.parts.page import AnalysisPage, SentenceParts, TemplatePage, gap_text
from headbook.report.answers.metric import (
    NOT_MEASURED,
    head_metric_answer,
    head_metric_scope,
    token_metric_answer,
    token_metric_scope,
    token_series,
)
from headbook.report.head_numbers import drawn_numbers
from headbook.report.results import StackResults, sample_size, study_of
from headbook.report.wording import capital, count_text, is_share
from headbook.results.formats import metric_page
from headbook.schema import TokenKey
from headbook.study.corpus_sums import PairColumn
from headbook.study.sums.state_geometry import CKA

Results = Mapping[str, StackResults]
Section = HeadSection | StateSection
# Metrics of two heads and of states are shown on the pages about them.
ON_OTHER_PAGES = (LayerMetric, LayerPairMetric, PairMetric)


@dataclass(frozen=True, kw_only=True)
class MetricPage(AnalysisPage):
    """The page of one metric.

    Attributes:
        metric: definition of the metric.
        variants: metrics that the page shows beside it.
        bounds: smallest and largest possible value, in words.
        taken_on: sentences or sequences behind a head metric, in words; else empty.
        file: name of the table that holds its numbers.
        anchors: tokens of heads by stack, if the metric is a token for each head.
        sections: results by stack.
        remarks: missing numbers with their reasons.
    """

    template: ClassVar[str] = "metric.html"
    scripts = ("metric",)
    styles = (*AnalysisPage.styles, "metric")
    metric: Metric
    variants: tuple[Metric, ...]
    bounds: str
    taken_on: str
    file: str
    anchors: tuple[AnchorSection, ...]
    sections: tuple[Section, ...]
    remarks: tuple[str, ...]

    @property
    def share(self) -> bool:
        """Whether the values are shares, printed in per cent."""
        return is_share(self.metric)


def metric_pages(results: Results, metrics: Sequence[Metric]) -> Iterator[MetricPage]:
    """Yield a page for each measured metric with its variants, unless another page shows it."""
    metrics = [metric for metric in metrics if has_page(results, metric)]
    by_page: dict[str, list[Metric]] = {}
    for metric in sorted(metrics, key=lambda metric: bool(metric.variant_of)):
        by_page.setdefault(metric.variant_of or metric.id, []).append(metric)
    for metric in metrics:
        first, *variants = by_page[metric.variant_of or metric.id]
        if metric is first:
            yield _page(results, metric, variants)


def has_page(results: Results, metric: Metric) -> bool:
    """Return whether a metric has a page of its own, or a part of that of its metric."""
    return not isinstance(metric, ON_OTHER_PAGES) and is_measured(results, metric)


def _page(results: Results, metric: Metric, variants: Sequence[Metric]) -> MetricPage:
    """Return the page of a metric; the first stack that has numbers answers."""
    made = {name: _section(result, metric, variants) for name, result in results.items()}
    first = next((results[name] for name, section in made.items() if section), None)
    return MetricPage(
        path=f"metrics/{metric.variant_of or metric.id}.html",
        title=metric.question or metric.title,
        description=metric.summary,
        topic=metric.title,
        answer=_answer(results, first, metric),
        scope=_scope(first, metric),
        metric=metric,
        variants=tuple(variants),
        bounds=_bounds(metric),
        taken_on=_taken_on(metric, next(iter(results.values()))),
        file=_file(metric),
        anchors=tuple(anchor_sections(results)) if isinstance(metric, AnchorMetric) else (),
        sections=tuple(section for section in made.values() if section),
        remarks=tuple(
            gap_text(gap)
            for name, result in results.items()
            for gap in result.study.manifest.gaps
            if gap.stack == name and made[name] is None
        ),
    )


def _section(results: StackResults, metric: Metric, variants: Sequence[Metric]) -> Section | None:
    """Return a metric in one stack; None if it has no numbers there."""
    if isinstance(metric, HeadMetric):
        heads = [each for each in variants if isinstance(each, HeadMetric)]
        return head_section(results, metric, heads)
    if isinstance(metric, LayerwiseMetric):
        return token_section(results, metric, variants)
    return None


def _answer(results: Results, first: StackResults | None, metric: Metric) -> SentenceParts:
    """Return the answer of a page, from the first stack that has numbers."""
    if isinstance(metric, AnchorMetric):
        return ("Each head has a token instead of a number; they are listed below.",)
    if first is None:
        return NOT_MEASURED
    if isinstance(metric, HeadMetric):
        return head_metric_answer(first, metric)
    assert isinstance(metric, LayerwiseMetric)
    return token_metric_answer(first, metric)


def _scope(results: StackResults | None, metric: Metric) -> tuple[tuple[str, str], ...]:
    if results is not None and isinstance(metric, HeadMetric):
        return head_metric_scope(results, metric)
    if results is not None and isinstance(metric, LayerwiseMetric):
        return token_metric_scope(results, metric)
    return ()


def _file(metric: Metric) -> str:
    """Return the name of the table that holds the numbers of a metric."""
    return "heads" if isinstance(metric, HeadMetric | AnchorMetric) else "words"


def study_metrics(results: Results) -> list[Metric]:
    """Return the metrics that a study has numbers for, in the order of lists."""
    there = {metric.id for r in results.values() for metric in r.metrics}
    corpus_sums = study_of(results).corpus_sums
    sums = [
        *corpus_sums.tokens.values(),
        *corpus_sums.vocabulary.values(),
        *corpus_sums.flows.values(),
    ]
    columns: list[TokenKey | PairColumn] = [c for table in sums for c in table.columns]
    columns += [c for table in corpus_sums.distances.values() for c in table.columns]
    there |= {column.metric for column in columns}
    there |= {c.metric for table in corpus_sums.geometry.values() for c in table.columns}
    there |= {column.metric for table in corpus_sums.anchors.values() for column in table.columns}
    there |= {CKA for table in corpus_sums.geometry.values() if table.products.size}
    return [metric for metric in all_metrics().values() if metric.id in there]


def _taken_on(metric: Metric, results: StackResults) -> str:
    """Return the sentences or sequences on which a head metric is measured, in words."""
    if not isinstance(metric, HeadMetric):
        return ""
    if metric.source is Source.RANDOM:
        return metric.source
    manifest = results.study.manifest
    count = count_text(manifest.counts["sentences"], manifest.text_noun)
    if metric.source is Source.ALL:
        return count
    return f"{sample_size(results):,} of {count}, chosen by a hash of their content"


def _bounds(metric: Metric) -> str:
    """Return the smallest and the largest possible value in words."""
    low, high = metric.limits
    top = "no upper bound" if math.isinf(high) else f"{high:.4g}"
    return f"{low:g} to {top}" if not math.isinf(high) else f"{low:g}, {top}"


class ListedMetric(NamedTuple):
    """A metric of the list.

    Attributes:
        metric: definition of the metric.
        href: address that shows it, from the site's root.
        name, caption: name and caption of the heat map of all heads; empty without one.
    """

    metric: Metric
    href: str
    name: str = ""
    caption: str = ""

    @property
    def heat_map(self) -> str:
        """Address of the heat map of all heads as PDF; empty without one."""
        return f"figures/{self.name}.pdf" if self.name else ""


@dataclass(frozen=True, kw_only=True)
class MetricsPage(TemplatePage):
    """The list of all metrics, which can be searched.

    Attributes:
        groups: sections with their metrics.
        missing: metrics without numbers in this study.
        amount: number of metrics.
    """

    template: ClassVar[str] = "metrics.html"
    scripts = ("filter_list",)
    styles = ("plots", "maps", "analysis", "metric")
    contents = False
    groups: tuple[tuple[str, tuple[ListedMetric, ...]], ...]
    missing: tuple[ListedMetric, ...]
    amount: int


def is_measured(results: Results, metric: Metric) -> bool:
    """Return whether any stack has numbers of a metric."""
    if isinstance(metric, HeadMetric):
        return any(drawn_numbers(result, metric) for result in results.values())
    if isinstance(metric, LayerwiseMetric):
        return any(next(token_series(result, metric), None) for result in results.values())
    return True


def metrics_page(metrics: Sequence[Metric], results: Results) -> MetricsPage:
    """Return the list of the study's metrics."""
    groups: dict[str, list[ListedMetric]] = {}
    missing = []
    for metric in metrics:
        listed = ListedMetric(metric, metric_page(metric.id), *_heat_map(results, metric))
        if is_measured(results, metric):
            groups.setdefault(metric.section, []).append(listed)
        else:
            missing.append(listed)
    return MetricsPage(
        path="metrics/index.html",
        title="Metrics",
        description="Every number of this site: what it means, its unit and its source.",
        groups=tuple((capital(name), tuple(each)) for name, each in groups.items()),
        missing=tuple(missing),
        amount=len(metrics) - len(missing),
    )


def _heat_map(results: Results, metric: Metric) -> tuple[str, ...]:
    """Return name and caption of the heat map in the first stack that has one, or nothing."""
    if not isinstance(metric, HeadMetric):
        return ()
    found = (drawn_numbers(result, metric) for result in results.values())
    numbers = next((each for each in found if each is not None), None)
    return (figure_name(numbers), heat_caption(numbers)) if numbers else ()
