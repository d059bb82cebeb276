"""Maximum-likelihood weights for choices among visible items (Luce's choice model).

A row i sees a set of items and spreads its attention A_i over them. Weights w explain it when
A_ij = w_j / Z_i with Z_i the sum of the weights that row i sees. The likelihood is concave in
ln w. Its step is w_j ← Σ_i A_ij / Σ_{i sees j} 1/Z_i (Hunter 2004, Annals of Statistics 32(1),
MM algorithms for generalized Bradley–Terry models), which has the same fixed points as what is
used here but needs thousands of rounds where a mask makes weights grow from key to key:

- sets that contain one another (full and causal attention) have a closed form, exact in one pass;
- other sets (windows; the offsets of full attention) take Newton's method in ln w.

Rows with the same set are pooled: what counts is the mass on each item and the number of rows
(or their summed weight) behind each set.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats

Bools = NDArray[np.bool_]

STEPS = 200  # Newton steps at most; a dozen do for most heads
TOLERANCE = 1e-10  # of the mean log-likelihood per row, in nats
REACH = 8.0  # a log-weight moves no further in one step
FLOOR = 1e-300  # stands for a share of 0, whose logarithm is never used


class Sets(Protocol):
    """Which items rows see, and how many rows see the same."""

    @property
    def counts(self) -> Floats:
        """Rows, or their summed weight, behind each set. *Shape:* ``(set,)``."""

    def nested(self) -> bool:
        """Whether of every two sets one contains the other."""

    def depth(self) -> Floats:
        """Number of sets that hold an item. *Shape:* ``(item,)``."""

    def seen(self) -> Floats:
        """Summed weight of the sets that hold an item. *Shape:* ``(item,)``."""

    def totals(self, logs: Floats) -> Floats:
        """Ln Z of each set, from log-weights ``(item,)``. *Shape:* ``(set,)``."""

    def pairs(self, logs: Floats) -> Floats:
        """Σ over sets of count·p_a·p_b, p the fitted shares. *Shape:* ``(item, item)``."""


@dataclass(frozen=True, eq=False)
class Listed:
    """Sets of any kind, each written out.

    Attributes:
        member: *Shape:* ``(set, item)``.
        counts: *Shape:* ``(set,)``.
    """

    member: Bools
    counts: Floats

    def nested(self) -> bool:
        """Whether of every two sets one contains the other."""
        order = self.member[np.argsort(self.member.sum(1))]
        return bool((order[1:] >= order[:-1]).all())

    def depth(self) -> Floats:
        """Number of sets that hold an item."""
        found: Floats = self.member.sum(0, dtype=np.float64)
        return found

    def seen(self) -> Floats:
        """Summed weight of the sets that hold an item."""
        found: Floats = self.counts @ self.member
        return found

    def totals(self, logs: Floats) -> Floats:
        """Ln Z of each set."""
        totals: Floats = np.logaddexp.reduce(np.where(self.member, logs, -np.inf), axis=1)
        return totals

    def pairs(self, logs: Floats) -> Floats:
        """Σ over sets of count·p_a·p_b."""
        share = np.where(self.member, np.exp(logs - self.totals(logs)[:, None]), 0)
        pairs: Floats = (share.T * self.counts) @ share
        return pairs


@dataclass(frozen=True, eq=False)
class Intervals:
    """Runs of offsets, all of which hold offset 0: from ``-back`` to ``+ahead``.

    Item ``reach`` is offset 0. All is done on the grid (back, ahead), in logarithms, so that
    weights may differ by any factor.

    Attributes:
        grid: summed weight of the rows with that extent. *Shape:* ``(reach + 1, reach + 1)``.
    """

    grid: Floats

    @property
    def reach(self) -> int:
        """Largest offset either way."""
        return len(self.grid) - 1

    @property
    def counts(self) -> Floats:
        """Rows behind each extent, back by back."""
        return self.grid.ravel()

    def nested(self) -> bool:
        """Whether of every two extents one contains the other."""
        ahead = np.nonzero(self.grid)[1]  # in the order of back, then ahead
        return bool((np.diff(ahead) >= 0).all())

    def depth(self) -> Floats:
        """Number of extents that hold an offset."""
        return self._holding((self.grid > 0).astype(np.float64))

    def seen(self) -> Floats:
        """Summed weight of the rows that see an offset."""
        return self._holding(self.grid)

    def totals(self, logs: Floats) -> Floats:
        """Ln Z of each extent."""
        back = np.logaddexp.accumulate(logs[self.reach :: -1])
        ahead = np.logaddexp.accumulate(np.append(-np.inf, logs[self.reach + 1 :]))
        totals: Floats = np.logaddexp(back[:, None], ahead).ravel()
        return totals

    def pairs(self, logs: Floats) -> Floats:
        """Σ over extents of count·p_a·p_b."""
        rows = np.full(self.counts.shape, -np.inf)
        used = self.counts > 0
        rows[used] = np.log(self.counts[used]) - 2 * self.totals(logs)[used]
        # Rows that reach at least so far back, and at least so far ahead.
        far = rows.reshape(self.grid.shape)[::-1, ::-1]
        far = np.logaddexp.accumulate(np.logaddexp.accumulate(far, axis=0), axis=1)[::-1, ::-1]
        offset = np.arange(-self.reach, self.reach + 1)
        back = np.maximum(-np.minimum(offset[:, None], offset), 0)
        ahead = np.maximum(np.maximum(offset[:, None], offset), 0)
        pairs: Floats = np.exp(logs[:, None] + logs + far[back, ahead])
        return pairs

    def _holding(self, grid: Floats) -> Floats:
        back = grid.sum(1)[::-1].cumsum()
        ahead = grid.sum(0)[::-1].cumsum()[:-1]
        return np.concatenate([back, ahead[::-1]])


def fit(mass: Floats, sets: Sets) -> Floats:
    """Log-weights that make the mass on the items most likely, for each head.

    *Shape:* mass ``(head, item)``, summed over rows with the rows' weights, each row's own
    attention summing to 1; result ``(head, item)``, each head's largest being 0. An item
    without mass has weight 0 (−inf). Accurate to `TOLERANCE`, or after `STEPS` steps.
    """
    if sets.nested():
        logs = _nested(mass, sets.seen(), sets.depth())
    else:
        logs = np.stack([_newton(row, sets) for row in mass]) if len(mass) else mass
    top = logs.max(1, keepdims=True, initial=-np.inf)
    found: Floats = logs - np.where(np.isfinite(top), top, 0)
    return found


def _nested(mass: Floats, seen: Floats, depth: Floats) -> Floats:
    """Closed form for sets of which one contains the other.

    Items held by the same sets form a ring around those held by more. A set whose outermost
    ring is r gives the ring the share q_r of its total, and the likelihood parts into one
    factor for each ring: q_r is the mass on the ring over the mass on it and on all inside, of
    the rows that see the ring. With full attention there is one ring: the column mean.
    """
    rings, place = np.unique(-depth, return_inverse=True)  # innermost first
    belongs = place[:, None] == np.arange(len(rings))
    ring = mass @ belongs
    rows = np.array([seen[place == number][0] for number in range(len(rings))])
    outside = ring[:, ::-1].cumsum(1)[:, ::-1] - ring
    within = np.maximum(rows - outside, ring)  # each row's mass is 1
    stay = np.log(np.maximum((within - ring) / np.maximum(within, FLOOR), FLOOR))
    total = stay[:, ::-1].cumsum(1)[:, ::-1] - stay
    found: Floats = _log(mass / np.maximum(within, FLOOR)[:, place]) + total[:, place]
    return found


def _newton(mass: Floats, sets: Sets) -> Floats:
    """Newton's method with halved steps; one head.

    The Hessian is the Laplacian of a graph, scaled here to a unit diagonal; the ridge settles
    what the likelihood leaves free, the common factor above all.
    """
    has = mass > 0
    logs = _log(mass / np.maximum(sets.seen(), FLOOR))
    enough = TOLERANCE * max(float(sets.counts.sum()), FLOOR)
    loss = _loss(mass, sets, logs)
    for _ in range(STEPS):
        pairs = sets.pairs(logs)
        slope = pairs.sum(1) - mass
        scale = 1 / np.sqrt(np.where(has, np.maximum(pairs.sum(1), FLOOR), 1))
        hessian = np.eye(len(mass)) * (1 + 1e-10) - scale[:, None] * pairs * scale
        move = -scale * np.linalg.solve(hessian, scale * slope)
        if -slope @ move <= 2 * enough:
            break
        move *= min(1.0, REACH / np.abs(move).max())
        tried, logs, before = 0, logs + move, logs
        while (new := _loss(mass, sets, logs)) > loss + 1e-4 * (slope @ move) * 0.5**tried:
            tried += 1
            if tried > 40:  # nothing better within rounding
                return before
            logs = before + move * 0.5**tried
        loss = new
    return logs


def _loss(mass: Floats, sets: Sets, logs: Floats) -> float:
    has, used = mass > 0, sets.counts > 0
    return float(sets.counts[used] @ sets.totals(logs)[used] - mass[has] @ logs[has])


def _log(values: Floats) -> Floats:
    found: Floats = np.full(values.shape, -np.inf)
    np.log(values, out=found, where=values > 0)
    return found
