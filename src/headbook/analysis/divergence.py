"""How far apart the attention of two models is on the same tokens, head by head. No torch.

The *Jensen-Shannon divergence* of the rows of one query, with m = (a + b) / 2, is

    sum_j [ a_j ln(a_j / m_j) + b_j ln(b_j / m_j) ] / 2,   0 ln 0 = 0

in nats: 0 if both rows are the same and ln 2 if no key has weight in both. Each key's term is at
least 0, for rows that do not sum to 1, too. So without the sink, not renormalised, it is the part
of the whole divergence that is not the sink's, and at most ln 2 times the mean of both sums. The
number is that of `headbook.metrics.attention.head_distance`, which compares heads of one model.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py

from headbook.analysis.arithmetic import Floats
from headbook.analysis.rows import Rows

ROOM = 2**19  # weights that are compared at a time


class Drift(NamedTuple):
    """Divergence of one sentence, ready to be summed: the mean over queries is n over d.

    Attributes:
        n: added over the queries that count. *Shape:* ``(head,)``, nats.
        d: queries that count in both models. *Shape:* ``(head,)``.
    """

    n: Floats
    d: Floats


def jensen_shannon(a: NDArray[np.floating], b: NDArray[np.floating]) -> Floats:
    """Divergence of rows, exactly 0 of equal ones.

    Args:
        a, b: weights, not negative. *Shape:* ``(..., key)``.

    Returns:
        Nats. *Shape:* ``(...)``.
    """
    total = a.astype(np.float64) + b
    # With t = (a - b) / (a + b), a ln(a / m) = m (1 + t) ln(1 + t): small differences keep digits.
    tilt = np.divide(a.astype(np.float64) - b, total, out=np.zeros_like(total), where=total > 0)
    terms = xlog1py(1 + tilt, tilt) + xlog1py(1 - tilt, -tilt)
    found: Floats = (np.maximum(terms, 0) * total).sum(-1) / 4
    return np.minimum(found, np.log(2))


def pattern_drift(a: Rows, b: Rows) -> Drift:
    """Divergence of each head's rows in two models, over the queries that count in both.

    Args:
        a, b: of the same tokens or words, in the same view.
    """
    both = a.counted & b.counted
    heads, queries, keys = a.weights.shape
    apart, step = np.zeros((heads, queries)), max(1, ROOM // max(1, queries * keys))
    for start in range(0, heads, step):
        at = slice(start, start + step)
        apart[at] = jensen_shannon(a.weights[at], b.weights[at])
    return Drift((apart * both).sum(-1), both.sum(-1).astype(np.float64))
