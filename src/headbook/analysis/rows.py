"""Rows of attention maps that stand by themselves, by view or between words. No torch.

`headbook.attention.layerattention` has the views of maps inside a model; these are the same of
arrays, for what compares the maps of two models.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.terms import DROPPED, View


class Rows(NamedTuple):
    """What the queries of one sentence look at.

    Attributes:
        weights: 0 for pairs that do not count. *Shape:* ``(head, query, key)``.
        counted: rows whose shape means something. *Shape:* ``(head, query)``.
    """

    weights: Floats
    counted: NDArray[np.bool_]


def in_view(
    weights: NDArray[np.floating], visible: NDArray[np.bool_], sink: NDArray[np.bool_], view: View
) -> Rows:
    """Rows in a view.

    A row counts where its query sees a key of the view; renormalised ones not where more than
    `DROPPED` of them lay on the sink.

    Args:
        weights: as the model computes them. *Shape:* ``(head, query, key)``.
        visible: pairs of queries that count and keys that they see. *Shape:* ``(query, key)``.
        sink: keys of the sink. *Shape:* ``(key,)``.
    """
    there = visible if view is View.RAW else visible & ~sink
    kept = np.where(there, weights, 0).astype(np.float64)
    counted = np.broadcast_to(there.any(-1), kept.shape[:2])
    return _renormalised(kept, counted) if view is View.RENORM else Rows(kept, counted)


def between_words(
    words: NDArray[np.floating], keys: NDArray[np.bool_], *, causal: bool = False
) -> Rows:
    """Renormalised rows between words that can be compared with those of another model.

    A row counts if it has a choice, at least two words to look at, and if at most `DROPPED` of it
    is lost.

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


def _renormalised(kept: Floats, counted: NDArray[np.bool_]) -> Rows:
    """Each row divided by what is left of it."""
    mass = kept.sum(-1)
    some = mass > np.finfo(np.float32).tiny  # what is less is too small to divide by
    left = np.where(some, mass, 1)[..., None]
    return Rows(np.where(some[..., None], kept / left, 0), counted & (1 - mass <= DROPPED))
