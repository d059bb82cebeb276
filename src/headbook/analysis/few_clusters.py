"""Clusters that hold much of a numerator: a few long sentences may decide a number.

A mean distance weighs sentences by the square of their length: of 64 sentences of a treebank, three
hold half of the numerator. What pages say first then rests on the number without them
(`headbook.report.leaders`, `headbook.report.facts.depth`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints, divide

MOST_FEW = 5  # sentences that are few
MOST_FEW_SHARE = 0.05  # of the sentences that are few if clusters are buckets of several
MIN_SHARE = 1 / 3  # of a numerator; more than that decides a number
MIN_CLUSTERS = 3 * MOST_FEW  # of fewer clusters, five hold a third if all are alike


class FewClusters(NamedTuple):
    """The fewest clusters that hold more than `MIN_SHARE` of each numerator, if they are few.

    Attributes:
        share: share of the numerator that they hold; 0 if no few clusters hold so much. *Shape:*
            ``(*cells,)``.
        sentences: number of sentences in these clusters; 0 if none. *Shape:* ``(*cells,)``.
        mask: these clusters. *Shape:* ``(cluster, *cells)``.
    """

    share: Floats
    sentences: Ints
    mask: NDArray[np.bool_]


def few_clusters(n: Floats, sentences: Ints | None = None) -> FewClusters:
    """Return the few clusters that decide each number.

    Few are at most `MOST_FEW` clusters of as many sentences, or, of a large corpus, whose buckets
    hold several, of at most `MOST_FEW_SHARE` of all sentences.

    Args:
        n: numerators; of a number with any below 0, no clusters hold a share. *Shape:*
            ``(cluster, *cells)``.
        sentences: number of sentences in each cluster; 0 if unknown, and then no clusters are few.
            *Shape:* ``(cluster,)``; by default one in each.
    """
    size = np.where((n < 0).any(0), 0, np.asarray(n, np.float64))
    sentences = np.ones(len(size), np.int64) if sentences is None else sentences
    # Equal numerators keep the order of clusters, however their sums were rounded.
    comparable = np.round(divide(size, size.sum(0)), 9)
    order = np.argsort(-comparable, axis=0, kind="stable")[:MOST_FEW]
    held = divide(np.take_along_axis(size, order, 0).cumsum(0), size.sum(0))
    within = sentences[order].cumsum(0)
    decides = (held > MIN_SHARE) & (within <= max(MOST_FEW, MOST_FEW_SHARE * sentences.sum()))
    if len(size) < MIN_CLUSTERS or not sentences.all():
        decides[:] = False
    last = decides.argmax(0)
    is_few = decides.any(0)
    share, n_sentences = (np.take_along_axis(x, last[None], 0)[0] for x in (held, within))
    rank = np.arange(len(order)).reshape(-1, *(1,) * (size.ndim - 1))
    mask = np.zeros(size.shape, np.bool_)
    np.put_along_axis(mask, order, (rank <= last) & is_few, 0)
    return FewClusters(np.where(is_few, share, 0.0), np.where(is_few, n_sentences, 0), mask)
