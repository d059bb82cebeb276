"""The registry of all metrics: a file of this folder with a value ``METRIC`` is a metric.

The file may lie in a folder inside, by family. Other packages add metrics by entry points of the
group ``headbook.metrics``; see `headbook.plugins`.
"""

import math
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from headbook.errors import (
    ConfigError,
    HeadbookError,
    ModelError,
    is_device_lost,
    is_out_of_memory,
)
from headbook.metrics.base import (
    AnchorMetric,
    AttentionMetric,
    ChartKind,
    ContextMetric,
    FlowMetric,
    HeadMetric,
    LayerMetric,
    LayerPairMetric,
    Metric,
    PairMetric,
    Ratio,
    SampledMetric,
    Section,
    Source,
    TokenMetric,
)
from headbook.plugins import METRICS, load_plugins, package_of, warn_of
from headbook.schema import IntervalRule

if TYPE_CHECKING:
    import pandas as pd

    from headbook.analysis.arrays import Floats

__all__ = [
    "all_metrics",
    "anchor_metrics",
    "chosen_metrics",
    "context_metrics",
    "flow_metrics",
    "head_metrics",
    "layer_metrics",
    "layer_pair_metrics",
    "list_metrics",
    "pair_metrics",
    "sampled_metrics",
    "token_metrics",
]


@cache
def all_metrics() -> dict[str, Metric]:
    """Return every metric by id, in the order of lists: by section, then by title."""
    files = pkgutil.walk_packages(__path__, f"{__name__}.")
    modules = (import_module(file.name) for file in files)
    own = [module.METRIC for module in modules if hasattr(module, "METRIC")]
    found = {metric.id: metric for metric in own}
    for point, metric in load_plugins(METRICS, METRIC_KINDS):
        if fault := _fault(point.name, metric, found):
            warn_of(point, *fault)
            continue
        found[point.name] = replace(
            metric,
            name=point.name,
            text=metric.prose,
            package=package_of(point),
            measure=partial(_measured, replace(metric, name=point.name), package_of(point)),
        )
    order = list(Section)
    ordered = sorted(found.values(), key=lambda each: (order.index(each.section), each.title))
    return {metric.id: metric for metric in ordered}


def list_metrics() -> "pd.DataFrame":
    """Return a table with a row for each metric: its id, name, unit, section, and source.

    ``package`` names the package of a metric that another one adds.
    """
    import pandas as pd  # noqa: PLC0415 - slow to import

    columns = ("id", "name", "unit", "section", "source", "package")
    rows = [
        (
            metric.id,
            metric.title,
            metric.unit,
            str(metric.section),
            metric.reference,
            metric.package,
        )
        for metric in all_metrics().values()
    ]
    return pd.DataFrame(rows, columns=columns)


# Kinds of metrics whose pages need nothing but the metric; others have charts made for each.
EXTENSIBLE = (AttentionMetric, SampledMetric, ContextMetric, TokenMetric, FlowMetric)
METRIC_KINDS = f"an object of {', '.join(kind.__name__ for kind in EXTENSIBLE)}"
UNBOUNDED = (-np.inf, np.inf)
METRIC_ID = re.compile("[a-z][a-z0-9_]*")  # ids are names of files and parts of addresses


def _fault(name: str, metric: Any, known: Mapping[str, Metric]) -> tuple[str, str] | None:
    """Return the fault of another package's metric and what was expected; None without one."""
    if not isinstance(metric, EXTENSIBLE):
        return f"got a {type(metric).__name__}", METRIC_KINDS
    if not METRIC_ID.fullmatch(name):
        return "got this name", "small letters, digits and '_', since the name is the metric's id"
    if name in known:
        owner = f"package {known[name].package}" if known[name].package else "Headbook itself"
        return f"a metric of this id is in {owner}", "another name"
    for field, kind in (("section", Section), ("chart", ChartKind)):
        if not isinstance(getattr(metric, field), kind):
            return f"{field} {getattr(metric, field)!r:.50}", f"a value of {kind.__name__}"
    try:
        low, high = metric.limits
        valid = low < high
    except Exception as error:  # noqa: BLE001 - a function of another package
        return f"bounds: {type(error).__name__}: {error}", "the smallest and the largest value"
    return None if valid else (f"bounds {low}, {high}", "the smallest value first")


def _measured(metric: Metric, package: str, *arguments: Any) -> Any:
    """Return what another package's metric measures.

    Raises:
        ModelError: the metric fails, or returns sums of another shape; the message names it.
    """
    try:
        value = metric.measure(*arguments)
        if isinstance(metric, AttentionMetric | ContextMetric):
            _check_sums(metric, value)
    except Exception as error:
        if isinstance(error, HeadbookError) or is_out_of_memory(error) or is_device_lost(error):
            raise
        raise ModelError(
            f"metric '{metric.id}' of package {package}: {type(error).__name__}: {error}; repair "
            "the package, or name other metrics with --metrics"
        ) from error
    return value


def _check_sums(metric: Metric, value: Any) -> None:
    """Refuse sums that are not one number for each sentence and head, or label."""
    if not isinstance(value, Ratio):
        raise TypeError(f"measure returned a {type(value).__name__}, expected a Ratio")
    labels = metric.labels if value.labels is None else value.labels
    sizes = {(), (len(labels),)} if len(labels) == 1 else {(len(labels),)}
    shape = tuple(value.numerator.shape)
    if len(shape) < 2 or (shape[2:] not in sizes and metric.named is None):
        expected = "(sentence, head" + (f", {len(labels)} labels)" if len(labels) > 1 else ")")
        raise ValueError(f"measure returned sums of shape {shape}, expected {expected}")


def interval_rules(
    columns: Sequence[Any],
) -> "tuple[tuple[Floats, Floats], list[IntervalRule]]":
    """Return the bounds and the rules of the confidence intervals of columns.

    A metric that is not installed, or that only another version has, is taken as unbounded.

    Args:
        columns: keys with the fields ``metric`` and ``label``.

    Returns:
        Smallest and largest values, and rules. *Shape:* ``(column,)`` each.
    """
    metrics = [all_metrics().get(column.metric) for column in columns]
    limits = np.array([UNBOUNDED if metric is None else metric.limits for metric in metrics])
    lowest, highest = limits.reshape(-1, 2).T
    rules = [
        IntervalRule.USUAL if metric is None else metric.spread(column.label)
        for metric, column in zip(metrics, columns, strict=True)
    ]
    return (lowest, highest), rules


def limits_in_texts(metric: str, tokens: float) -> tuple[float, float]:
    """Return the bounds of a metric in texts of at most so many tokens.

    Random sequences are no texts: their metrics have the bounds of any length.

    Args:
        metric: id of the metric; one that is not installed is unbounded.
        tokens: number of tokens of the longest text; may be infinite.
    """
    definition = all_metrics().get(metric)
    if definition is None:
        return -math.inf, math.inf
    random = isinstance(definition, HeadMetric) and definition.source is Source.RANDOM
    return definition.limits if random else definition.bounds(tokens)


def missing_metric(name: str) -> HeadbookError:
    """Return the error to raise if a study has a metric that is not installed."""
    return ConfigError(
        f"metric '{name}': not installed, so its numbers cannot be computed; expected the package "
        "that measured it, which the study's manifest.json names"
    )


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


def metrics_without_outliers(metrics: Iterable[Metric]) -> list[TokenMetric]:
    """Return the token metrics that are also measured without outlier dimensions."""
    return [metric for metric in token_metrics(metrics) if metric.without_outliers]


def flow_metrics(metrics: Iterable[Metric]) -> list[FlowMetric]:
    """Return the metrics that follow attention from token to token."""
    return [metric for metric in metrics if isinstance(metric, FlowMetric)]


def layer_metrics(metrics: Iterable[Metric]) -> list[LayerMetric]:
    """Return the metrics that give a number for each state of a stack."""
    return [metric for metric in metrics if isinstance(metric, LayerMetric)]


def layer_pair_metrics(metrics: Iterable[Metric]) -> list[LayerPairMetric]:
    """Return the metrics that give a number for every two states of a stack."""
    return [metric for metric in metrics if isinstance(metric, LayerPairMetric)]
