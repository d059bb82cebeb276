"""Cosine to the input embedding, without the effect of a few dimensions.

The cosine of each token's vector to the vector with which it entered layer 0, averaged over the
sample, three times. *raw*: unchanged. *standardised*: every dimension of either state with mean 0
and deviation 1 over the sample, so that no dimension dominates and the common part is gone.
*without_outliers*: without the three dimensions of either state that add most to its anisotropy.

If raw jumps between two layers and standardised does not, the jump is due to a few dimensions. At
the input it is 1.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.state_vectors import mean_over_tokens
from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.state_vectors import Jackknife, StateVectors


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Mean cosine of tokens to their input, by treatment of dimensions."""
    start = cloud.start or cloud
    outliers = np.union1d(cloud.outlier_dimensions, start.outlier_dimensions)
    pairs = {
        "raw": (cloud.units, start.units),
        "standardised": (cloud.standardised, start.standardised),
        "without_outliers": (
            cloud.without_dimensions(outliers),
            start.without_dimensions(outliers),
        ),
    }
    return {
        label: mean_over_tokens(
            cloud.sample.sums(np.einsum("td,td->t", *pair)), cloud.sample.counts
        )
        for label, pair in pairs.items()
    }


METRIC = LayerMetric(
    title="Cosine to the input embedding, standardised",
    question="How similar does a token stay without outlier dimensions?",
    unit="cosine",
    formula=r"\cos(z^{(l)}_i,\ z^{\mathrm{input}}_i), \quad"
    r" z_{i,d} = \frac{x_{i,d} - \mu_d}{\sigma_d}",
    reference="Timkey & van Schijndel (2021), arXiv:2109.04404",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.STATES,
    labels=("raw", "standardised", "without_outliers"),
    headline="standardised",
    measure=measure,
)
