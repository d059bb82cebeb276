"""All metrics. The folder is the registry: a file with a value ``METRIC`` is a metric.

It may lie in a folder inside, by family.
"""

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module

from headbook.errors import ConfigError
from headbook.metrics.base import (
    AnchorMetric,
    AttentionMetric,
    ContextMetric,
    FlowMetric,
    HeadMetric,
    LayerMetric,
    LayerPairMetric,
    Metric,
    PairMetric,
    SampledMetric,
    Section,
    Source,
    TokenMetric,
)

__all__ = [
    "all_metrics",
    "anchor_metrics",
    "chosen_metrics",
    "context_metrics",
    "flow_metrics",
    "head_metrics",
    "layer_metrics",
    "layer_pair_metrics",
    "pair_metrics",
    "sampled_metrics",
    "token_metrics",
]


@cache
def all_metrics() -> dict[str, Metric]:
    """Every metric by id, in the order of lists: by section, then by title."""
    files = pkgutil.walk_packages(__path__, f"{__name__}.")
    modules = (import_module(file.name) for file in files)
    found = [module.METRIC for module in modules if hasattr(module, "METRIC")]
    order = list(Section)
    found.sort(key=lambda metric: (order.index(metric.section), metric.title))
    return {metric.id: metric for metric in found}


def chosen_metrics(names: str) -> dict[str, Metric]:
    """The metrics that an option names.

    Args:
        names: ids separated by commas, or ``all``.

    Raises:
        ConfigError: there is no such metric.
    """
    known = all_metrics()
    if names == "all":
        return known
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        came = f"'{unknown[0]}'" if unknown else "nothing"
        raise ConfigError(f"--metrics: {came} came; expected 'all' or some of {', '.join(known)}")
    return {name: metric for name, metric in known.items() if name in chosen}


def head_metrics(metrics: Iterable[Metric]) -> list[HeadMetric]:
    """Those that give a number for each head, of every kind."""
    return [metric for metric in metrics if isinstance(metric, HeadMetric)]


def attention_metrics(metrics: Iterable[Metric], source: Source) -> list[AttentionMetric]:
    """Those that give a number for each head from sums over its attention, taken on one source."""
    return [m for m in metrics if isinstance(m, AttentionMetric) and m.source == source]


def sampled_metrics(metrics: Iterable[Metric]) -> list[SampledMetric]:
    """Those that need all sentences of a sample at once."""
    return [metric for metric in metrics if isinstance(metric, SampledMetric)]


def context_metrics(metrics: Iterable[Metric]) -> list[ContextMetric]:
    """Those that give a number for each head from what it writes."""
    return [metric for metric in metrics if isinstance(metric, ContextMetric)]


def anchor_metrics(metrics: Iterable[Metric]) -> list[AnchorMetric]:
    """Those that give a token for each head."""
    return [metric for metric in metrics if isinstance(metric, AnchorMetric)]


def pair_metrics(metrics: Iterable[Metric]) -> list[PairMetric]:
    """Those that give a number for every two heads."""
    return [metric for metric in metrics if isinstance(metric, PairMetric)]


def token_metrics(metrics: Iterable[Metric]) -> list[TokenMetric]:
    """Those that give a number for each token."""
    return [metric for metric in metrics if isinstance(metric, TokenMetric)]


def flow_metrics(metrics: Iterable[Metric]) -> list[FlowMetric]:
    """Those that follow what attention carries from token to token."""
    return [metric for metric in metrics if isinstance(metric, FlowMetric)]


def layer_metrics(metrics: Iterable[Metric]) -> list[LayerMetric]:
    """Those that give a number for each state of a layer."""
    return [metric for metric in metrics if isinstance(metric, LayerMetric)]


def layer_pair_metrics(metrics: Iterable[Metric]) -> list[LayerPairMetric]:
    """Those that give a number for every two states."""
    return [metric for metric in metrics if isinstance(metric, LayerPairMetric)]
