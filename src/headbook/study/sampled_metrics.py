"""From the statistics of sampled sentences to numbers of heads. No torch."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import divide
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import FinishedRatios, SampledMetric
from headbook.schema import HeadKey, SinkView
from headbook.study.corpus_sums import HeadTable, SampleSums

VARIABILITY = ids.VARIABILITY
UNIFORM, ABOUT = -2, -1  # where they stand behind the heads


def finish_sampled(sums: SampleSums) -> HeadTable:
    """The sampled metrics of a stack, each from all of its sentences."""
    payload = sums.stats.payload
    tables = []
    start = 0
    for name, view, width in sums.columns:
        place = slice(start, start + width)
        start += width
        metric = all_metrics()[name]
        assert isinstance(metric, SampledMetric)
        columns = tuple(HeadKey(name, view, label) for label in metric.labels)
        layers = [  # one at a time: all of them in double precision are large
            _layer(metric, statistics(sums, metric, place, layer), sums.stats.half)
            for layer in range(payload.shape[1])
        ]
        heads, together, even = (
            RatioSums(np.stack([getattr(layer, part).sums for layer in layers], 2))
            for part in ("heads", "layers", "uniform")
        )
        tables.append(HeadTable(columns, heads, together, even))
    return join_columns(tables)


def statistics(
    sums: SampleSums, metric: SampledMetric, place: slice, layer: int
) -> NDArray[np.float64]:
    """Return the statistics of a metric in one layer, expectations by surface filled in.

    Args:
        place: where the metric's columns stand.

    Returns:
        *Shape:* ``(kept, head + 2, statistic)``.
    """
    found = sums.stats.payload[:, layer, :, place].astype(np.float64)
    if metric.expected_at is not None and sums.cells is not None:
        found[:, :ABOUT, metric.expected_at] = sums.cells.expected(layer)
    return found


def variability_contributions(sums: SampleSums) -> NDArray[np.float64] | None:
    """The share of each head's variability, sink masked, that each sampled sentence makes.

    *Shape:* ``(kept, layer, head)``; NaN where a head has none. None where it was not measured.
    """
    start = 0
    for name, view, width in sums.columns:
        if (name, view) == (VARIABILITY, SinkView.NOSINK):
            stats = sums.stats.payload[..., start : start + width]
            metric = all_metrics()[name]
            assert isinstance(metric, SampledMetric)
            made = [
                _numerators(metric, stats[:, layer].astype(np.float64))
                for layer in range(stats.shape[1])
            ]
            return np.stack(made, 1)
        start += width
    return None


def _numerators(metric: SampledMetric, stats: NDArray[np.float64]) -> NDArray[np.float64]:
    """What sentences add to a sampled metric, as parts of the whole. *Shape:* ``(kept, head)``."""
    above = metric.finish(stats[:, :ABOUT], stats[:, ABOUT]).numerator[:, :-1, 0]
    return divide(above, above.sum(0))


def _layer(metric: SampledMetric, stats: NDArray[np.float64], half: NDArray[np.int64]) -> HeadTable:
    """One layer: ``(sentence, head + 2, statistic)``."""
    parts = metric.finish(stats[:, :ABOUT], stats[:, ABOUT])
    # A layer's number is that of its heads together.
    together = FinishedRatios(*(part[:, :-1].sum(1) for part in parts))
    even = FinishedRatios(*(part[:, -1] for part in parts))
    heads = FinishedRatios(*(part[:, :-1] for part in parts))
    return HeadTable((), *(RatioSums.of(*each, half) for each in (heads, together, even)))


def join_columns(tables: Iterable[HeadTable]) -> HeadTable:
    """Tables of the same heads as one, column by column."""
    tables = list(tables)
    return HeadTable(
        tuple(column for table in tables for column in table.columns),
        *(
            RatioSums(np.concatenate([getattr(table, part).sums for table in tables], -1))
            for part in ("heads", "layers", "uniform")
        ),
    )
