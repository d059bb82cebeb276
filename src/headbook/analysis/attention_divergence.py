"""Jensen-Shannon divergence of attention rows of two models on shared tokens or words.

`headbook.attention.views` computes the views of maps inside a model; this module computes them for
arrays, to compare the maps of two models.

The *Jensen-Shannon divergence* of the rows of one query, with m = (a + b) / 2, is

    sum_j [ a_j ln(a_j / m_j) + b_j ln(b_j / m_j) ] / 2,   0 ln 0 = 0

in nats: 0 if both rows are equal and ln 2 if no key has weight in both. Each key's term is at least
0, also for rows that do not sum to 1. So without the sink, not renormalised, the divergence is the
part of the whole divergence that is not due to the sink, and at most ln 2 times the mean of both
sums. `headbook.metrics.attention.head_distance` compares heads of one model by the same formula.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py

from headbook.analysis.arrays import Floats
from headbook.schema import MAX_SINK_MASS, SinkView


class AttentionRows(NamedTuple):
    """Attention rows of one sentence, with a mask of the rows that count.

    Attributes:
        weights: 0 for pairs that do not count. *Shape:* ``(head, query, key)``.
        counted: rows that are compared. *Shape:* ``(head, query)``.
    """

    weights: Floats
    counted: NDArray[np.bool_]


def rows_in_view(
    weights: NDArray[np.floating],
    visible: NDArray[np.bool_],
    sink: NDArray[np.bool_],
    view: SinkView,
) -> AttentionRows:
    """Return the attention rows in a sink view.

    A row counts if its query sees a key of the view. In the renormalised view, rows with more than
    `MAX_SINK_MASS` on the sink do not count.

    Args:
        weights: as the model computes them. *Shape:* ``(head, query, key)``.
        visible: pairs of queries that count and keys that they see. *Shape:* ``(query, key)``.
        sink: keys of the sink. *Shape:* ``(key,)``.
    """
    counted_pairs = visible if view is SinkView.RAW else visible & ~sink
    view_weights = np.where(counted_pairs, weights, 0).astype(np.float64)
    counted = np.broadcast_to(counted_pairs.any(-1), view_weights.shape[:2])
    if view is SinkView.RENORM:
        return _renormalised(view_weights, counted)
    return AttentionRows(view_weights, counted)


def rows_between_words(
    words: NDArray[np.floating], keys: NDArray[np.bool_], *, causal: bool = False
) -> AttentionRows:
    """Return renormalised rows between words, comparable between two models.

    A row counts if its word sees at least two words and at most `MAX_SINK_MASS` of the row lies
    elsewhere.

    Args:
        words: attention from each word (mean of its pieces) to each (sum); each row at most 1.
            *Shape:* ``(head, word, word)``.
        keys: words that are in the sink of neither model. *Shape:* ``(word,)``.
        causal: whether rows are restricted to the word itself and earlier words, as is necessary
            for both models if one of them is causal.
    """
    visible = np.broadcast_to(keys, words.shape[1:])
    counted_pairs = np.tril(visible) if causal else visible
    word_weights = np.where(counted_pairs, words, 0).astype(np.float64)
    counted = np.broadcast_to(counted_pairs.sum(-1) > 1, word_weights.shape[:2])
    return _renormalised(word_weights, counted)


def _renormalised(weights: Floats, counted: NDArray[np.bool_]) -> AttentionRows:
    """Return rows divided by their sums; rows that lost too much mass do not count."""
    mass = weights.sum(-1)
    has_mass = mass > np.finfo(np.float32).tiny  # a smaller sum is too small to divide by
    divisor = np.where(has_mass, mass, 1)[..., None]
    return AttentionRows(
        np.where(has_mass[..., None], weights / divisor, 0), counted & (1 - mass <= MAX_SINK_MASS)
    )


MAX_WEIGHTS = 2**19  # number of weights compared at a time, which bounds the memory


class DivergenceSums(NamedTuple):
    """Divergence of one sentence as sums over queries: the mean is n over d.

    Attributes:
        n: sum over the queries that count in both models, in nats. *Shape:* ``(head,)``.
        d: number of these queries. *Shape:* ``(head,)``.
    """

    n: Floats
    d: Floats


def jensen_shannon(a: NDArray[np.floating], b: NDArray[np.floating]) -> Floats:
    """Return the Jensen-Shannon divergence of rows; exactly 0 for equal rows.

    Args:
        a, b: weights, not negative. *Shape:* ``(..., key)``.

    Returns:
        Nats. *Shape:* ``(...)``.
    """
    total = a.astype(np.float64) + b
    # With t = (a - b) / (a + b), a ln(a / m) = m (1 + t) ln(1 + t): small differences keep digits.
    tilt = np.divide(a.astype(np.float64) - b, total, out=np.zeros_like(total), where=total > 0)
    terms = xlog1py(1 + tilt, tilt) + xlog1py(1 - tilt, -tilt)
    divergence: Floats = (np.maximum(terms, 0) * total).sum(-1) / 4
    return np.minimum(divergence, np.log(2))


def attention_divergence(a: AttentionRows, b: AttentionRows) -> DivergenceSums:
    """Return the divergence of each head's rows in two models, over queries that count in both.

    Args:
        a, b: rows of both models for the same tokens or words, in the same view.
    """
    counted = a.counted & b.counted
    heads, queries, keys = a.weights.shape
    divergence = np.zeros((heads, queries))
    step = max(1, MAX_WEIGHTS // max(1, queries * keys))
    for start in range(0, heads, step):
        block = slice(start, start + step)
        divergence[block] = jensen_shannon(a.weights[block], b.weights[block])
    return DivergenceSums((divergence * counted).sum(-1), counted.sum(-1).astype(np.float64))
