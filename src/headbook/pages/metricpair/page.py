"""One metric in two models: heads or layers side by side, or both over relative depth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headbook.metrics import all_metrics
from headbook.pages.metricpair.depth import DepthSection, depth_section
from headbook.pages.metricpair.layers import LayerSection, layer_section
from headbook.pages.metricpair.named import ComparedMetric, compared_metric
from headbook.pages.metricpair.section import PairSection, pair_section
from headbook.pages.metricpair.tokendepth import token_depth_section
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.page import Page
from headbook.study.importancetables import EFFECT


@dataclass(frozen=True, kw_only=True)
class MetricPairPage(Page):
    """A metric in two models.

    Attributes:
        metric: what is compared.
        names: of the models.
        rounded: whether rounding floors were measured.
        pairs: by kind of attention, where heads correspond.
        depths: the same where they do not.
        layers: metrics of tokens, by kind of attention, where layers correspond.
    """

    template: ClassVar[str] = "metricpair.html"
    metric: ComparedMetric
    names: tuple[str, str]
    rounded: bool
    pairs: tuple[PairSection, ...]
    depths: tuple[DepthSection, ...]
    layers: tuple[LayerSection, ...]

    @property
    def short(self) -> str:
        """What differs in the first kind of attention, in few words; empty where nothing is known.

        Heads or layers of models that do not correspond are not set against each other.
        """
        texts = [*(each.short for each in self.pairs), *(each.short for each in self.layers)]
        return texts[0] if texts else ""


def metric_pair_pages(stacks: Sequence[BothStacks]) -> Iterator[MetricPairPage]:
    """A page for each metric that both models have."""
    for name in (*all_metrics(), EFFECT):
        metric = compared_metric(name)
        page = metric and _page(metric, stacks)
        if page and (page.pairs or page.depths or page.layers):
            yield page


def _page(metric: ComparedMetric, stacks: Sequence[BothStacks]) -> MetricPairPage:
    pairs = [pair_section(both, metric) for both in stacks]
    depths = [
        depth_section(both, metric) or token_depth_section(both, metric)
        for both in stacks
        if both.found is None
    ]
    layers = [layer_section(both, metric) for both in stacks]
    names = stacks[0].names
    return MetricPairPage(
        path=metric.path,
        title=metric.title,
        description=metric.about,
        metric=metric,
        names=names,
        rounded=any(both.found is not None and both.found.floor is not None for both in stacks),
        pairs=tuple(section for section in pairs if section),
        depths=tuple(section for section in depths if section),
        layers=tuple(section for section in layers if section),
    )
