"""Values of head metrics on layers of single sentences, without accumulators."""

from collections.abc import Sequence

import numpy as np
import torch

from headbook.attention.head_outputs import HeadOutputs
from headbook.attention.views import LayerAttention
from headbook.metrics.base import (
    AttentionMetric,
    ContextMetric,
    FinishedRatios,
    HeadMetric,
    SampledMetric,
)


def values(metric: HeadMetric, layers: Sequence[LayerAttention]) -> torch.Tensor:
    """Value of each head and label, from sentences one by one; NaN where there is none."""
    n, d, _ = parts(metric, layers)
    n, d = (torch.where(d > 0, part, 0).sum(0) for part in (n, d))
    return torch.where(d > 0, n / d, torch.nan)


def parts(metric: HeadMetric, layers: Sequence[LayerAttention]) -> list[torch.Tensor]:
    """Numerators, denominators and events; *Shape:* ``(sentence, head, label)`` each."""
    if isinstance(metric, SampledMetric):
        return [torch.from_numpy(np.array(part)) for part in finished(metric, layers)]
    return [torch.cat([whole(metric, layer, place) for layer in layers]) for place in (0, 1, 2)]


def whole(metric: HeadMetric, layer: LayerAttention, place: int) -> torch.Tensor:
    """Numerators, denominators or events of one sentence, for all labels."""
    if isinstance(metric, ContextMetric):
        ratio = metric.measure(HeadOutputs(layer))
    else:
        assert isinstance(metric, AttentionMetric)
        ratio = metric.measure(layer)
    events = ratio.denominator if ratio.events is None else ratio.events
    part = (ratio.numerator, ratio.denominator, events)[place]
    part = part if part.ndim == 3 else part[..., None]
    shape = (1, layer.attention.shape[1], len(metric.labels))
    if ratio.labels is None or (place > 0 and part.shape[2] == 1):
        return part.expand(shape)
    every = part.new_zeros(shape)
    every[..., list(ratio.labels)] = part.expand(*shape[:2], -1)
    return every


def finished(metric: SampledMetric, layers: Sequence[LayerAttention]) -> FinishedRatios:
    """Return the values of a sampled metric on some sentences."""
    fits = []
    if metric.sample_fit is not None:
        gathered = [part for layer in layers for part in metric.sample_fit.gather(layer)]
        fits = [metric.sample_fit.fit(gathered)]
    stats = np.concatenate([metric.measure(layer, *fits).numpy() for layer in layers])
    stats = stats.astype(float)
    reported = [np.zeros((1, 0)) for _ in layers]
    if metric.sentence_statistics is not None:
        reported = [metric.sentence_statistics(layer.scope).numpy() for layer in layers]
    return metric.finish(stats, np.concatenate(reported))
