"""Parts of a head's departure from even attention: distance, the key, and the pair.

The departure of row i from even attention is ln k_i − H(A_i), with k_i its visible keys. It is
compared with two maps:

- E has one weight per offset, shared by all sentences (`fitted_offsets`);
- P is E times one weight per key of the sentence. The weights that are tested on a query come from
  the queries of the other parity, so that noise explains nothing.

What E explains is due to distance, what P explains beyond E to the key, and the rest to the pair of
query and key. Key weights without distance would explain every causal head that looks nearby: under
the mask, a weight that grows with the position is an exponential decay with distance.

Throughout, attention is ``(head, query, key)`` in float64, rows that count summing to 1; visible
``(query, key)`` says which keys a query may see; weights ``(head, query)`` are 0 for rows that do
not count, else 1/ln k_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.pattern_fits import MIN_SHARE, Bools, fit_choice_model

REACH = 32  # offsets beyond count as this one
N_UPDATES = 60  # of the weights per key
MIN_LOG = -700.0  # where all weights are 0
MIN_EXPECTED = 1e-12  # smallest expected weight, which bounds a divergence


@dataclass(frozen=True, eq=False)
class PooledSets:
    """Sets in which several items may share one weight, such as keys at far offsets.

    Attributes:
        multiples: number of items of each weight in a set. *Shape:* ``(set, weight)``.
        counts: number of rows, or their summed weight, for each set. *Shape:* ``(set,)``.
    """

    multiples: Floats
    counts: Floats

    def nested(self) -> bool:
        """Whether the closed form holds, which needs weights of single items: no."""
        return False

    def depth(self) -> Floats:
        """Return the number of sets that contain a weight. *Shape:* ``(weight,)``."""
        depth: Floats = (self.multiples > 0).sum(0, dtype=np.float64)
        return depth

    def seen(self) -> Floats:
        """Return the summed weight of rows by items that they see. *Shape:* ``(weight,)``."""
        weight: Floats = self.counts @ self.multiples
        return weight

    def totals(self, logs: Floats) -> Floats:
        """Return ln Z of each set, from log-weights ``(weight,)``. *Shape:* ``(set,)``."""
        top = logs.max(initial=MIN_LOG)
        totals: Floats = top + np.log(np.maximum(self.multiples @ np.exp(logs - top), MIN_SHARE))
        return totals

    def pairs(self, logs: Floats) -> Floats:
        """Return Σ over sets of count·p_a·p_b, p the fitted shares."""
        share = self.multiples * np.exp(logs - self.totals(logs)[:, None])
        pairs: Floats = (share.T * self.counts) @ share
        return pairs


class OffsetCounts(NamedTuple):
    """Sums over sentences from which one weight per offset is fitted.

    Attributes:
        keys_at: how many keys a row sees at each offset, for each kind of row. *Shape:*
            ``(kind, offset)``.
        weight: summed weight of the rows of each kind. *Shape:* ``(head, kind)``.
        mass: weighted attention at each offset. *Shape:* ``(head, offset)``.
    """

    keys_at: Floats
    weight: Floats
    mass: Floats

    @classmethod
    def of(cls, attention: Floats, visible: Bools, weights: Floats, reach: int = REACH) -> Self:
        """Return the counts of one sentence; offsets beyond ``reach`` count as this one."""
        place = _offset_places(visible, reach)
        at_offset = (place[..., None] == np.arange(2 * reach + 1)).astype(np.float64)
        keys_at = (at_offset * visible[..., None]).sum(1)
        mass = (attention * weights[..., None]).reshape(len(attention), -1) @ at_offset.reshape(
            -1, 2 * reach + 1
        )
        rows = weights.any(0)
        return cls(keys_at[rows], weights[:, rows], mass)

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Return the counts of several sentences, with each kind of row once."""
        kinds, index = np.unique(
            np.concatenate([part.keys_at for part in parts]), axis=0, return_inverse=True
        )
        weight = np.zeros((len(parts[0].mass), len(kinds)))
        np.add.at(weight.T, index.ravel(), np.concatenate([part.weight.T for part in parts]))
        return cls(kinds, weight, np.sum([part.mass for part in parts], axis=0))


def fitted_offsets(counts: OffsetCounts) -> Floats:
    """Return the logarithms of one weight per offset of the highest likelihood.

    *Shape:* ``(head, offset)``, each head's largest being 0; −inf for offsets without attention.
    """
    fits = [
        fit_choice_model(mass[None], PooledSets(counts.keys_at, weight))[0]
        for mass, weight in zip(counts.mass, counts.weight, strict=True)
    ]
    return np.stack(fits)


def expected_by_distance(logs: Floats, visible: Bools) -> Floats:
    """Return the map of one weight per offset. *Shape:* ``(head, query, key)``.

    Args:
        logs: log-weights of as many offsets before the query as behind it, and of the query
            itself. *Shape:* ``(head, offset)``.
    """
    place = _offset_places(visible, logs.shape[-1] // 2)
    return _normalised(np.where(visible, np.exp(logs[:, place]), 0.0))


def _offset_places(visible: Bools, reach: int) -> Ints:
    """Return the place of each pair among the offsets. *Shape:* ``(query, key)``."""
    n, m = visible.shape
    places: Ints = np.clip(np.arange(m) - np.arange(n)[:, None], -reach, reach) + reach
    return places


def departure_sums(
    attention: Floats, visible: Bools, weights: Floats, logs: Floats | None
) -> Floats:
    """Return the departure from even attention, and what distance and key explain of it.

    Sums over the rows of one sentence: Σ c_i (ln k_i − H(A_i)), Σ c_i (ln k_i − H(A_i) −
    KL(A_i ‖ E_i)) and Σ c_i (KL(A_i ‖ E_i) − KL(A_i ‖ P_i)), with c the weights.

    Args:
        logs: log-weights by offset; None if there are no offsets, so that E is even.

    Returns:
        *Shape:* ``(head, 3)``.
    """
    from headbook.analysis.key_weights_loop import (  # noqa: PLC0415 - pages need no compiler
        key_weights_loop,
    )

    if logs is None:
        expected = np.repeat(_normalised(visible.astype(np.float64))[None], len(attention), axis=0)
    else:
        expected = expected_by_distance(logs, visible)
    product = expected.copy()
    keys = np.flatnonzero(visible.any(0))
    key_weights_loop(expected, attention, weights, keys, N_UPDATES, product)
    even = np.log(np.maximum(visible.sum(1), 1))
    own = _cross(attention, attention)
    departure, by_distance, by_key = (
        (weights * parts).sum(1)
        for parts in (
            even + own, even + _cross(attention, expected),
            _cross(attention, product) - _cross(attention, expected),
        )
    )  # fmt: skip
    return np.stack([departure, by_distance, by_key], axis=1)


def _cross(attention: Floats, model: Floats) -> Floats:
    """Return Σ_j A_ij ln M_ij. *Shape:* ``(head, query)``."""
    logs = np.log(np.maximum(model, MIN_EXPECTED))
    cross: Floats = np.einsum("hij,hij->hi", attention, logs)
    return cross


def _normalised(strength: Floats) -> Floats:
    total = strength.sum(-1, keepdims=True)
    share: Floats = np.divide(strength, total, out=np.zeros_like(strength), where=total > 0)
    return share
