"""Similarity of the tokens of one sentence.

The cosine of each token's vector with the mean vector of its sentence, averaged over tokens;
sentences of one token do not count. *adjusted* is that minus the anisotropy of the same state.
Both high: tokens take on the context they share. High, and adjusted near 0: all tokens are
similar, in one sentence or not.

The mean is over tokens, so long sentences count more; Ethayarajh averages over sentences. A token
is part of its sentence's mean, which raises the value in short sentences, as in the paper.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.state_vectors import mean_over_tokens, unit_vectors
from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.state_vectors import Jackknife, StateVectors


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Mean cosine of tokens with the mean of their sentence, raw and minus the anisotropy."""
    sample = cloud.sample
    middles = unit_vectors(sample.sums(cloud.vectors) / sample.counts[:, None])
    cosines = np.einsum("sd,sd->s", cloud.sums, middles)
    several = sample.counts > 1
    raw = mean_over_tokens(np.where(several, cosines, 0), np.where(several, sample.counts, 0))
    return {"raw": raw, "adjusted": raw.minus(cloud.anisotropy)}


METRIC = LayerMetric(
    title="Intra-sentence similarity",
    question="How alike are the words of a sentence?",
    unit="cosine",
    formula=r"\frac{1}{n} \sum_i \cos(x_i, \bar x_{s(i)})",
    reference="Ethayarajh (2019), section 3.3, arXiv:1909.00512",
    bounds=lambda _: (-2, 2),
    section=Section.STATES,
    chart=ChartKind.STATES,
    labels=("raw", "adjusted"),
    headline="raw",
    measure=measure,
)
