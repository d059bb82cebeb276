"""Similarity of a token's vectors in different sentences.

For each vocabulary token that occurs in two sentences of the sample or more, the mean cosine of
its vectors over all pairs of occurrences in different sentences; then the mean over vocabulary
tokens, each of which counts once. 1: the vector does not depend on the context. *adjusted* is that
minus the anisotropy of the same state.

Tokens are subword tokens, and punctuation does not count. Ethayarajh takes words with five
contexts or more and counts pairs inside one sentence, too.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.state_vectors import KindShares, mean_over_kinds
from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.state_vectors import Jackknife, StateVectors


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Mean over entries of the mean cosine of their occurrences, raw and minus the anisotropy."""
    cells, sentences = cloud.sample.cells, len(cloud.sample.counts)
    first = np.flatnonzero(np.diff(cells.kind, prepend=-1))  # cells of one kind are neighbours
    if not len(first):
        raw = mean_over_kinds(KindShares.none(), sentences)
        return {"raw": raw, "adjusted": raw.minus(cloud.anisotropy)}
    sums = np.add.reduceat(cloud.units[cells.tokens], cells.starts, axis=0)
    totals = np.add.reduceat(sums, first, axis=0)[cells.kind]
    sizes = np.add.reduceat(cells.size, first)[cells.kind]
    products = np.einsum("cd,cd->c", sums, totals - sums)
    pairs = cells.size * (sizes - cells.size)
    parts = KindShares(
        np.add.reduceat(products, first),
        np.add.reduceat(pairs, first).astype(float),
        cells.kind,
        cells.sentence,
        2 * products,
        2.0 * pairs,
    )
    raw = mean_over_kinds(parts, sentences)
    return {"raw": raw, "adjusted": raw.minus(cloud.anisotropy)}


METRIC = LayerMetric(
    title="Self-similarity",
    question="How similar are the vectors of a word across sentences?",
    unit="cosine",
    formula=r"\frac{1}{|W|} \sum_{w \in W} \frac{1}{|P_w|} \sum_{(i, j) \in P_w} \cos(x_i, x_j)",
    reference="Ethayarajh (2019), section 3.3, arXiv:1909.00512",
    bounds=lambda _: (-2, 2),
    section=Section.STATES,
    chart=ChartKind.STATES,
    labels=("raw", "adjusted"),
    headline="raw",
    measure=measure,
)
