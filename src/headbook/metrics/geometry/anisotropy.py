"""Mean cosine of two tokens of different sentences.

0: directions are spread evenly; near 1: all vectors lie in a narrow cone, and a high cosine of two
tokens says little. It is the baseline of every other cosine of states. All pairs of tokens of the
sample count: the sum of all unit vectors, squared, minus the same of each sentence.

A few dimensions with large values can make it high on their own (Timkey & van Schijndel 2021),
hence three values. *raw*: vectors unchanged. *standardised*: every dimension with mean 0 and
deviation 1 over the sample. *without_outliers*: without the three dimensions that add most to it.

Special tokens are left out, and in causal models the first token, whose vector is often a hundred
times as long as others.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.state_vectors import Jackknife, StateVectors


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Mean cosine of all pairs of tokens of different sentences, by treatment of dimensions."""
    return {
        "raw": cloud.anisotropy,
        "standardised": cloud.mean_cosine(cloud.standardised),
        "without_outliers": cloud.mean_cosine(cloud.without_dimensions(cloud.outlier_dimensions)),
    }


METRIC = LayerMetric(
    title="Anisotropy",
    question="Do unrelated tokens point in the same direction?",
    unit="cosine",
    formula=r"\frac{1}{|P|} \sum_{(i, j) \in P} \cos(x_i, x_j), \quad"
    r" P = \{(i, j) : s(i) \ne s(j)\}",
    reference="Ethayarajh (2019), section 4.1, arXiv:1909.00512",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.STATES,
    labels=("raw", "standardised", "without_outliers"),
    headline="raw",
    measure=measure,
)
