"""Effective number of dimensions of the states.

The vectors of 256 tokens, minus their mean, make a matrix. Its singular values divided by their
sum are a distribution; the value is e to the power of its entropy: 1 if all vectors lie on one
line, and at most 255, or the width where that is less, if all directions are equally strong.

The value grows with the number of tokens until there are far more of them than dimensions, so it
is always taken on 256 and averaged over the sample's minibatches of that size, whose tokens come
from as many sentences as possible. Compare layers, and models of one width; a sample of fewer
tokens has no value. There is no interval, since minibatches share sentences.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.arrays import effective_number
from headbook.analysis.state_vectors import MINIBATCH, Jackknife
from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.state_vectors import StateVectors


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Mean effective rank of the minibatches."""
    values = [_rank(cloud.vectors[tokens]) for tokens in cloud.sample.minibatches]
    value = float(np.mean(values)) if values else float("nan")
    without = np.full(len(cloud.sample.counts), np.nan)
    return {"": Jackknife(value, without, float(len(values) * MINIBATCH))}


def _rank(vectors: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    centred = vectors - vectors.mean(0)
    if not np.isfinite(centred).all():
        return float("nan")
    sizes = np.linalg.svd(centred, compute_uv=False)
    return effective_number(sizes)


METRIC = LayerMetric(
    title="Effective rank",
    question="How many dimensions do the states fill?",
    unit="dimensions",
    formula=r"\exp\left(-\sum_k p_k \ln p_k\right), \quad p_k = \frac{\sigma_k}{\sum_m \sigma_m}",
    reference="Roy & Vetterli (2007), The effective rank, EUSIPCO",
    bounds=lambda n: (1, n + 1),
    section=Section.STATES,
    chart=ChartKind.STATES,
    measure=measure,
)
