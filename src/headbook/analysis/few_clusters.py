"""Clusters that hold much of a numerator: a few long sentences may decide a number.

A mean distance weighs sentences by the square of their length: of 64 sentences of a treebank, three
hold half of the numerator. What pages say first then rests on the number without them
(`headbook.report.leaders`, `headbook.report.facts.depth`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints, divide

MOST_FEW = 5  # clusters that are few
MIN_SHARE = 1 / 3  # of a numerator; more than that decides a number
MIN_CLUSTERS = 3 * MOST_FEW  # of fewer clusters, five hold a third if all are alike


class FewClusters(NamedTuple):
    """The fewest clusters that hold more than `MIN_SHARE` of each numerator, if at most `MOST_FEW`.

    Attributes:
        share: share of the numerator that they hold; 0 if no few clusters hold so much. *Shape:*
            ``(*cells,)``.
        count: number of these clusters; 0 if none. *Shape:* ``(*cells,)``.
        mask: these clusters. *Shape:* ``(cluster, *cells)``.
    """

    share: Floats
    count: Ints
    mask: NDArray[np.bool_]


def few_clusters(n: Floats) -> FewClusters:
    """Return the few clusters that decide each number.

    Args:
        n: numerators; of signed ones the sizes count. *Shape:* ``(cluster, *cells)``.
    """
    size = np.abs(np.asarray(n, np.float64))
    order = np.argsort(-size, axis=0, kind="stable")[:MOST_FEW]
    held = divide(np.take_along_axis(size, order, 0).cumsum(0), size.sum(0))
    above = held > MIN_SHARE
    decides = above.any(0) & (len(size) >= MIN_CLUSTERS)
    last = np.where(decides, above.argmax(0), 0)
    count = np.where(decides, last + 1, 0)
    share = np.where(decides, np.take_along_axis(held, last[None], 0)[0], 0.0)
    mask = np.zeros(size.shape, np.bool_)
    taken = np.arange(len(order)).reshape(-1, *(1,) * (size.ndim - 1)) < count
    np.put_along_axis(mask, order, taken, 0)
    return FewClusters(share, count, mask)
