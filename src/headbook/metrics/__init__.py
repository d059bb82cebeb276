"""The registry of all metrics: a file of this folder with a value ``METRIC`` is a metric.

The file may lie in a folder inside, by family.
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
    """Return every metric by id, in the order of lists: by section, then by title."""
    files = pkgutil.walk_packages(__path__, f"{__name__}.")
    modules = (import_module(file.name) for file in files)
    found = [module.METRIC for module in modules if hasattr(module, "METRIC")]
    order = list(Section)
    found.sort(key=lambda metric: (order.index(metric.section), metric.title))
    return {metric.id: metric for metric in found}


def chosen_metrics(names: str) -> dict[str, Metric]:
    """Return the metrics that an option names.

    Args:
        names: ids separated by commas, or ``all``.

    Raises:
        ConfigError: a metric is unknown, or none is named.
    """
    known = all_metrics()
    if names == "all":
        return known
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        value = f"'{unknown[0]}'" if unknown else "nothing"
        raise ConfigError(f"--metrics: got {value}, expected 'all' or some of {', '.join(known)}")
    return {name: metric for name, metric in known.items() if name in chosen}


def head_metrics(metrics: Iterable[Metric]) -> list[HeadMetric]:
    """Return the metrics that give a number for each head, of every kind."""
    return [metric for metric in metrics if isinstance(metric, HeadMetric)]


def attention_metrics(metrics: Iterable[Metric], source: Source) -> list[AttentionMetric]:
    """Return the metrics that are sums over each head's attention, measured on one source."""
    return [m for m in metrics if isinstance(m, AttentionMetric) and m.source == source]


def sampled_metrics(metrics: Iterable[Metric]) -> list[SampledMetric]:
    """Return the metrics that are computed from all sampled sentences at once."""
    return [metric for metric in metrics if isinstance(metric, SampledMetric)]


def context_metrics(metrics: Iterable[Metric]) -> list[ContextMetric]:
    """Return the metrics that give a number for each head from the head's output."""
    return [metric for metric in metrics if isinstance(metric, ContextMetric)]


def anchor_metrics(metrics: Iterable[Metric]) -> list[AnchorMetric]:
    """Return the metrics that give a token for each head."""
    return [metric for metric in metrics if isinstance(metric, AnchorMetric)]


def pair_metrics(metrics: Iterable[Metric]) -> list[PairMetric]:
    """Return the metrics that give a number for every two heads."""
    return [metric for metric in metrics if isinstance(metric, PairMetric)]


def token_metrics(metrics: Iterable[Metric]) -> list[TokenMetric]:
    """Return the metrics that give a number for each token, from the token's states."""
    return [metric for metric in metrics if isinstance(metric, TokenMetric)]


def flow_metrics(metrics: Iterable[Metric]) -> list[FlowMetric]:
    """Return the metrics that follow attention from token to token."""
    return [metric for metric in metrics if isinstance(metric, FlowMetric)]


def layer_metrics(metrics: Iterable[Metric]) -> list[LayerMetric]:
    """Return the metrics that give a number for each state of a stack."""
    return [metric for metric in metrics if isinstance(metric, LayerMetric)]


def layer_pair_metrics(metrics: Iterable[Metric]) -> list[LayerPairMetric]:
    """Return the metrics that give a number for every two states of a stack."""
    return [metric for metric in metrics if isinstance(metric, LayerPairMetric)]
