"""Contribution of single dimensions to the cosine of any two tokens.

The mean cosine of two tokens of different sentences is a sum over dimensions: the product of the
two unit vectors in each. *largest* is the contribution of the largest dimension, *three* that of
the three largest; their sum over all is the anisotropy. If one dimension of hundreds contributes
most of it, cosines of that layer mostly say whether tokens agree in that dimension; compare the
values that are standardised or without outliers.

The page *Geometry* names the dimensions; the files have the ten largest of each state. They come
from the same sample.
"""

from typing import TYPE_CHECKING

from headbook.analysis.state_vectors import mean_cross_sentence_product
from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.state_vectors import Jackknife, StateVectors


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Return the contribution of the largest dimensions to the anisotropy."""
    counts = cloud.sample.counts
    return {
        "largest": mean_cross_sentence_product(cloud.sums[:, cloud.outlier_dimensions[:1]], counts),
        "three": mean_cross_sentence_product(cloud.sums[:, cloud.outlier_dimensions], counts),
    }


METRIC = LayerMetric(
    title="Outlier dimensions",
    question="How much of the cosine comes from single dimensions?",
    unit="cosine",
    formula=r"\frac{1}{|P|} \sum_{(i, j) \in P} \frac{x_{i,d}\, x_{j,d}}{\|x_i\|\, \|x_j\|}",
    reference="Timkey & van Schijndel (2021), arXiv:2109.04404",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.STATES,
    labels=("largest", "three"),
    headline="largest",
    measure=measure,
)
