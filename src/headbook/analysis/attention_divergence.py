"""Jensen-Shannon divergence of attention rows of two models on shared tokens or words.

`headbook.attention.views` has the views of maps inside a model; these are the same of
arrays, for what compares the maps of two models.

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

from headbook.analysis.arrays import Floats
from headbook.schema import MAX_SINK_MASS, SinkView


class AttentionRows(NamedTuple):
    """What the queries of one sentence look at.

    Attributes:
        weights: 0 for pairs that do not count. *Shape:* ``(head, query, key)``.
        counted: rows whose shape means something. *Shape:* ``(head, query)``.
    """

    weights: Floats
    counted: NDArray[np.bool_]


def rows_in_view(
    weights: NDArray[np.floating],
    visible: NDArray[np.bool_],
    sink: NDArray[np.bool_],
    view: SinkView,
) -> AttentionRows:
    """Rows in a view.

    A row counts where its query sees a key of the view; renormalised ones not where more than
    `MAX_SINK_MASS` of them lay on the sink.

    Args:
        weights: as the model computes them. *Shape:* ``(head, query, key)``.
        visible: pairs of queries that count and keys that they see. *Shape:* ``(query, key)``.
        sink: keys of the sink. *Shape:* ``(key,)``.
    """
    there = visible if view is SinkView.RAW else visible & ~sink
    kept = np.where(there, weights, 0).astype(np.float64)
    counted = np.broadcast_to(there.any(-1), kept.shape[:2])
    return _renormalised(kept, counted) if view is SinkView.RENORM else AttentionRows(kept, counted)


def rows_between_words(
    words: NDArray[np.floating], keys: NDArray[np.bool_], *, causal: bool = False
) -> AttentionRows:
    """Renormalised rows between words that can be compared with those of another model.

    A row counts if it has a choice, at least two words to look at, and if at most `MAX_SINK_MASS`
    of it is lost.

    Args:
        words: attention from each word (mean of its pieces) to each (sum); each row at most 1.
            *Shape:* ``(head, word, word)``.
        keys: words that are in the sink of neither model. *Shape:* ``(word,)``.
        causal: whether rows are cut to the word itself and those before it, as both models' must
            be where one of them sees no more.
    """
    visible = np.broadcast_to(keys, words.shape[1:])
    there = np.tril(visible) if causal else visible
    kept = np.where(there, words, 0).astype(np.float64)
    return _renormalised(kept, np.broadcast_to(there.sum(-1) > 1, kept.shape[:2]))


def _renormalised(kept: Floats, counted: NDArray[np.bool_]) -> AttentionRows:
    """Each row divided by what is left of it."""
    mass = kept.sum(-1)
    some = mass > np.finfo(np.float32).tiny  # what is less is too small to divide by
    left = np.where(some, mass, 1)[..., None]
    return AttentionRows(
        np.where(some[..., None], kept / left, 0), counted & (1 - mass <= MAX_SINK_MASS)
    )


MAX_WEIGHTS = 2**19  # weights that are compared at a time


class DivergenceSums(NamedTuple):
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


def attention_divergence(a: AttentionRows, b: AttentionRows) -> DivergenceSums:
    """Divergence of each head's rows in two models, over the queries that count in both.

    Args:
        a, b: of the same tokens or words, in the same view.
    """
    both = a.counted & b.counted
    heads, queries, keys = a.weights.shape
    apart, step = np.zeros((heads, queries)), max(1, MAX_WEIGHTS // max(1, queries * keys))
    for start in range(0, heads, step):
        at = slice(start, start + step)
        apart[at] = jensen_shannon(a.weights[at], b.weights[at])
    return DivergenceSums((apart * both).sum(-1), both.sum(-1).astype(np.float64))
