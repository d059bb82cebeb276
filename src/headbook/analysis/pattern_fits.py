"""Fits of Luce's choice model to attention maps: one weight per key, or one per offset.

A row i sees a set of items and spreads its attention A_i over them. Weights w explain it when
A_ij = w_j / Z_i with Z_i the sum of the weights that row i sees. The likelihood is concave in
ln w. Its step is w_j ← Σ_i A_ij / Σ_{i sees j} 1/Z_i (Hunter 2004, Annals of Statistics 32(1),
MM algorithms for generalized Bradley–Terry models), which has the same fixed points as the methods
used here but needs thousands of rounds if a mask makes weights grow from key to key:

- sets that contain one another (full and causal attention) have a closed form, exact in one pass;
- other sets (windows; the offsets of full attention) take Newton's method in ln w.

Rows with the same set are pooled: the fit depends only on the mass on each item and the number of
rows (or their summed weight) with each set.

Kovaleva et al. (2019, arXiv:1908.08593) train a classifier of pictures, but their annotations are
not public. Here, each head is compared with the best map that attends to the same *keys* from all
queries (`column_residual`) and with the best map that attends to the same *offsets* (`offset_sums`,
`fit_offsets`). Distances are Kullback–Leibler divergences KL(A_i ‖ fit_i) in nats over ln k_i, with
k_i the number of keys that query i sees. Rows that see one key are skipped. All results are sums
over the rows of one sentence, for each head, so that sentences add up.

Throughout, attention is ``(head, query, key)``, in float64, and visible ``(query, key)`` says
which keys a query may see, padding excluded and special tokens kept on both sides. Rows of
attention sum to 1; rounding of a softmax in lower precision is corrected. Without rows, sums are 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints

Bools = NDArray[np.bool_]

MAX_STEPS = 200  # Newton steps at most; a dozen suffice for most heads
TOLERANCE = 1e-10  # of the mean log-likelihood per row, in nats
MAX_LOG_CHANGE = 8.0  # largest change of a log-weight in one step
MIN_SHARE = 1e-300  # replaces a share of 0, whose logarithm is never used


class ChoiceSets(Protocol):
    """Sets of items that rows see, with the number of rows for each set."""

    @property
    def counts(self) -> Floats:
        """Number of rows, or their summed weight, for each set. *Shape:* ``(set,)``."""

    def nested(self) -> bool:
        """Whether one of any two sets contains the other."""

    def depth(self) -> Floats:
        """Return the number of sets that contain an item. *Shape:* ``(item,)``."""

    def seen(self) -> Floats:
        """Return the summed weight of the sets that contain an item. *Shape:* ``(item,)``."""

    def totals(self, logs: Floats) -> Floats:
        """Return ln Z of each set, from log-weights ``(item,)``. *Shape:* ``(set,)``."""

    def pairs(self, logs: Floats) -> Floats:
        """Return Σ over sets of count·p_a·p_b, p the fitted shares. *Shape:* ``(item, item)``."""


@dataclass(frozen=True, eq=False)
class ExplicitSets:
    """Sets of any kind, each as a row of a boolean table.

    Attributes:
        member: whether a set contains an item. *Shape:* ``(set, item)``.
        counts: number of rows, or their summed weight, for each set. *Shape:* ``(set,)``.
    """

    member: Bools
    counts: Floats

    def nested(self) -> bool:
        """Whether one of any two sets contains the other."""
        order = self.member[np.argsort(self.member.sum(1))]
        return bool((order[1:] >= order[:-1]).all())

    def depth(self) -> Floats:
        """Return the number of sets that contain an item. *Shape:* ``(item,)``."""
        depth: Floats = self.member.sum(0, dtype=np.float64)
        return depth

    def seen(self) -> Floats:
        """Return the summed weight of the sets that contain an item. *Shape:* ``(item,)``."""
        weight: Floats = self.counts @ self.member
        return weight

    def totals(self, logs: Floats) -> Floats:
        """Return ln Z of each set, from log-weights ``(item,)``. *Shape:* ``(set,)``."""
        totals: Floats = np.logaddexp.reduce(np.where(self.member, logs, -np.inf), axis=1)
        return totals

    def pairs(self, logs: Floats) -> Floats:
        """Return Σ over sets of count·p_a·p_b, p the fitted shares. *Shape:* ``(item, item)``."""
        share = np.where(self.member, np.exp(logs - self.totals(logs)[:, None]), 0)
        pairs: Floats = (share.T * self.counts) @ share
        return pairs


@dataclass(frozen=True, eq=False)
class OffsetRanges:
    """Ranges of offsets that contain offset 0: from ``-back`` to ``+ahead``.

    Item ``reach`` is offset 0. All sums are computed on the grid (back, ahead), in logarithms, so
    that weights may differ by any factor.

    Attributes:
        grid: summed weight of the rows with each extent. *Shape:* ``(reach + 1, reach + 1)``.
    """

    grid: Floats

    @property
    def reach(self) -> int:
        """Largest offset in either direction."""
        return len(self.grid) - 1

    @property
    def counts(self) -> Floats:
        """Summed weight of the rows of each extent, ordered by back, then ahead."""
        return self.grid.ravel()

    def nested(self) -> bool:
        """Whether one of any two ranges contains the other."""
        ahead = np.nonzero(self.grid)[1]  # in the order of back, then ahead
        return bool((np.diff(ahead) >= 0).all())

    def depth(self) -> Floats:
        """Return the number of ranges that contain an offset. *Shape:* ``(2 reach + 1,)``."""
        return self._sums_by_offset((self.grid > 0).astype(np.float64))

    def seen(self) -> Floats:
        """Return the summed weight of the rows that see an offset. *Shape:* ``(2 reach + 1,)``."""
        return self._sums_by_offset(self.grid)

    def totals(self, logs: Floats) -> Floats:
        """Return ln Z of each range."""
        back = np.logaddexp.accumulate(logs[self.reach :: -1])
        ahead = np.logaddexp.accumulate(np.append(-np.inf, logs[self.reach + 1 :]))
        totals: Floats = np.logaddexp(back[:, None], ahead).ravel()
        return totals

    def pairs(self, logs: Floats) -> Floats:
        """Return Σ over ranges of count·p_a·p_b, p the fitted shares."""
        rows = np.full(self.counts.shape, -np.inf)
        used = self.counts > 0
        rows[used] = np.log(self.counts[used]) - 2 * self.totals(logs)[used]
        # Sums over the rows that reach at least as far back and at least as far ahead.
        far = rows.reshape(self.grid.shape)[::-1, ::-1]
        far = np.logaddexp.accumulate(np.logaddexp.accumulate(far, axis=0), axis=1)[::-1, ::-1]
        offset = np.arange(-self.reach, self.reach + 1)
        back = np.maximum(-np.minimum(offset[:, None], offset), 0)
        ahead = np.maximum(np.maximum(offset[:, None], offset), 0)
        pairs: Floats = np.exp(logs[:, None] + logs + far[back, ahead])
        return pairs

    def _sums_by_offset(self, grid: Floats) -> Floats:
        back = grid.sum(1)[::-1].cumsum()
        ahead = grid.sum(0)[::-1].cumsum()[:-1]
        return np.concatenate([back, ahead[::-1]])


def fit_choice_model(mass: Floats, sets: ChoiceSets) -> Floats:
    """Return the log-weights that make the mass on the items most likely, for each head.

    *Shape:* mass ``(head, item)``, summed over rows with the rows' weights, each row's own
    attention summing to 1; result ``(head, item)``, each head's largest being 0. An item
    without mass has weight 0 (−inf). Accurate to `TOLERANCE`, or after `MAX_STEPS` steps.
    """
    if sets.nested():
        logs = _nested(mass, sets.seen(), sets.depth())
    else:
        logs = np.stack([_newton(row, sets) for row in mass]) if len(mass) else mass
    top = logs.max(1, keepdims=True, initial=-np.inf)
    normalised: Floats = logs - np.where(np.isfinite(top), top, 0)
    return normalised


def _nested(mass: Floats, seen: Floats, depth: Floats) -> Floats:
    """Return the log-weights in closed form for nested sets.

    Items in the same sets form a ring around the items that are in more sets. A set whose
    outermost ring is r gives that ring the share q_r of its total, and the likelihood splits into
    one factor for each ring: q_r is the mass on the ring divided by the mass on the ring and on
    all rings inside, of the rows that see the ring. With full attention there is one ring, and
    the weights are the column means.
    """
    rings, ring_of_item = np.unique(-depth, return_inverse=True)  # innermost first
    in_ring = ring_of_item[:, None] == np.arange(len(rings))
    ring_mass = mass @ in_ring
    rows = np.array([seen[ring_of_item == number][0] for number in range(len(rings))])
    outside = ring_mass[:, ::-1].cumsum(1)[:, ::-1] - ring_mass
    within = np.maximum(rows - outside, ring_mass)  # each row's mass is 1
    divisor = np.maximum(within, MIN_SHARE)
    log_remaining = np.log(np.maximum((within - ring_mass) / divisor, MIN_SHARE))
    total = log_remaining[:, ::-1].cumsum(1)[:, ::-1] - log_remaining
    logs: Floats = _log(mass / divisor[:, ring_of_item]) + total[:, ring_of_item]
    return logs


def _newton(mass: Floats, sets: ChoiceSets) -> Floats:
    """Return the log-weights of one head by Newton's method with halved steps.

    The Hessian is the Laplacian of a graph, scaled here to a unit diagonal. A ridge fixes the
    directions in which the likelihood does not change, such as the common factor of all weights.
    """
    has_mass = mass > 0
    logs = _log(mass / np.maximum(sets.seen(), MIN_SHARE))
    tolerance = TOLERANCE * max(float(sets.counts.sum()), MIN_SHARE)
    loss = _loss(mass, sets, logs)
    for _ in range(MAX_STEPS):
        pairs = sets.pairs(logs)
        slope = pairs.sum(1) - mass
        scale = 1 / np.sqrt(np.where(has_mass, np.maximum(pairs.sum(1), MIN_SHARE), 1))
        hessian = np.eye(len(mass)) * (1 + 1e-10) - scale[:, None] * pairs * scale
        move = -scale * np.linalg.solve(hessian, scale * slope)
        if -slope @ move <= 2 * tolerance:
            return logs + move  # the last step halves the digits that are wrong
        move *= min(1.0, MAX_LOG_CHANGE / np.abs(move).max())
        halvings, logs, start = 0, logs + move, logs
        while (new := _loss(mass, sets, logs)) > loss + 1e-4 * (slope @ move) * 0.5**halvings:
            halvings += 1
            if halvings > 40:  # no step improves the loss beyond rounding
                return start
            logs = start + move * 0.5**halvings
        loss = new
    return logs


def _loss(mass: Floats, sets: ChoiceSets, logs: Floats) -> float:
    has_mass, used = mass > 0, sets.counts > 0
    return float(sets.counts[used] @ sets.totals(logs)[used] - mass[has_mass] @ logs[has_mass])


def _log(values: Floats) -> Floats:
    logs: Floats = np.full(values.shape, -np.inf)
    np.log(values, out=logs, where=values > 0)
    return logs


@dataclass(frozen=True, eq=False)
class ColumnFit:
    """Fit of one weight per key to the maps of a sentence, as sums over rows.

    Attributes:
        residual: Σ KL(A_i ‖ w/Z_i)/ln k_i. *Shape:* ``(head,)``.
        spread: Σ H(A_i)/ln k_i. *Shape:* ``(head,)``.
        rows: number of rows that see at least two keys.
        weights: w, summing to 1; the largest belongs to the best column. NaN without rows.
            *Shape:* ``(head, key)``.
    """

    residual: Floats
    spread: Floats
    rows: int
    weights: Floats


def column_residual(attention: Floats, visible: Bools, *, weighted: bool = False) -> ColumnFit:
    """Fit one weight per key position of the sentence.

    The weights maximise the likelihood Π_ij (w_j/Z_i)^A_ij; for full attention they are the
    column means. With `weighted`, row i counts 1/ln k_i: the weights then minimise the residual
    itself, and since uniform weights would give ``rows - spread``, the mean residual is at most
    1 minus the mean spread. Without `weighted` this bound is certain only if all k_i are equal.
    """
    attention, visible, scale = _normalised_rows(attention, visible)
    entropy = _entropy(attention) @ scale
    if not len(scale):
        return ColumnFit(entropy, entropy, 0, np.full(attention.shape[::2], np.nan))
    counts = scale if weighted else np.ones_like(scale)
    logs = fit_choice_model(
        np.einsum("hij,i->hj", attention, counts), ExplicitSets(visible, counts)
    )
    cross = _cross(np.einsum("hij,i->hj", attention, scale), logs)
    total = np.logaddexp.reduce(np.where(visible, logs[:, None], -np.inf), axis=2) @ scale
    weights = np.exp(logs)
    weights /= weights.sum(1, keepdims=True)
    return ColumnFit(np.maximum(total - cross - entropy, 0), entropy, len(scale), weights)


@dataclass(frozen=True, eq=False)
class OffsetSums:
    """Sums of one sentence for the fit of offsets; row i is weighted by c_i = 1/ln k_i.

    Attributes:
        mass: Σ c_i·A_ij at each offset j − i from −r to r. *Shape:* ``(head, 2 r + 1)``.
        spread: Σ c_i·H(A_i). *Shape:* ``(head,)``.
        extents: number of tokens that each row sees back and ahead. *Shape:* ``(row, 2)``.
    """

    mass: Floats
    spread: Floats
    extents: Ints


def offset_sums(attention: Floats, visible: Bools) -> OffsetSums:
    """Return the sums of one sentence that `fit_offsets` needs.

    Rows must see a contiguous range of keys that contains their own position, as with full, causal
    and windowed self-attention, padded on either side.

    Raises:
        ValueError: a row that sees two keys or more sees another set of keys.
    """
    queries = np.nonzero(visible.sum(1) > 1)[0]
    attention, visible, scale = _normalised_rows(attention, visible)
    back = queries - visible.argmax(1)
    ahead = visible.shape[1] - 1 - visible[:, ::-1].argmax(1) - queries
    contiguous = (back >= 0) & (ahead >= 0) & (back + ahead + 1 == visible.sum(1))
    if not contiguous.all():
        raise ValueError(f"query {queries[~contiguous][0]} sees keys that are no run around itself")
    reach = int(max(back.max(initial=0), ahead.max(initial=0)))
    offset_index = np.arange(visible.shape[1]) - queries[:, None] + reach
    mass = np.zeros((len(attention), 2 * reach + 1))
    scaled = attention * scale[:, None]
    for row, visible_keys in enumerate(visible):  # row by row: += would drop repeated offsets
        mass[:, offset_index[row, visible_keys]] += scaled[:, row, visible_keys]
    return OffsetSums(mass, _entropy(attention) @ scale, np.stack([back, ahead], axis=1))


@dataclass(frozen=True, eq=False)
class OffsetFit:
    """Fit of one weight per offset, shared by all sentences, to the maps of each sentence.

    Attributes:
        residual: Σ KL(A_i ‖ v/Z_i)/ln k_i. *Shape:* ``(sentence, head)``.
        rows: number of rows that see at least two keys. *Shape:* ``(sentence,)``.
        weights: v for the offsets −r to r, summing to 1. *Shape:* ``(head, 2 r + 1)``.
        top: offset j − i with most mass; 0 without rows. *Shape:* ``(head,)``.
        share: share of the top offset in the mass, rows weighted by 1/ln k_i; NaN without rows.
            *Shape:* ``(head,)``.
    """

    residual: Floats
    rows: Ints
    weights: Floats
    top: Ints
    share: Floats


def fit_offsets(sentences: Sequence[OffsetSums]) -> OffsetFit:
    """Fit one weight per offset to all sentences at once.

    Row i counts c_i = 1/ln k_i, by choice: the weights are then exactly those with the least
    Σ KL(A_i ‖ v/Z_i)/ln k_i over all rows, the number that is reported, and its mean is at most
    1 minus the mean spread. (A single sentence may lie above this bound, since the weights are
    fitted to all sentences.)

    Args:
        sentences: at least one; all with the same heads.
    """
    reach = max(sentence.mass.shape[1] for sentence in sentences) // 2
    mass = np.zeros((len(sentences[0].mass), 2 * reach + 1))
    for sentence in sentences:
        mass[:, _offsets_within(sentence, reach)] += sentence.mass
    extents = np.concatenate([sentence.extents for sentence in sentences])
    counts = 1 / np.log(extents.sum(1) + 1)
    grid = np.zeros((reach + 1, reach + 1))
    np.add.at(grid, (extents[:, 0], extents[:, 1]), counts)
    sets = OffsetRanges(grid)
    logs = fit_choice_model(mass, sets)
    rows = np.array([len(sentence.extents) for sentence in sentences])
    total = np.zeros((len(sentences), len(mass)))
    for head, head_logs in enumerate(logs):
        row_totals = sets.totals(head_logs).reshape(grid.shape)[extents[:, 0], extents[:, 1]]
        total[:, head] = np.bincount(
            np.repeat(np.arange(len(rows)), rows), row_totals * counts, minlength=len(rows)
        )
    explained = np.stack(
        [
            _cross(sentence.mass, logs[:, _offsets_within(sentence, reach)]) + sentence.spread
            for sentence in sentences
        ]
    )
    weights, all_mass = np.exp(logs), mass.sum(1)
    with np.errstate(invalid="ignore"):
        weights, share = weights / weights.sum(1, keepdims=True), mass.max(1) / all_mass
    top = np.where(all_mass > 0, mass.argmax(1) - reach, 0)
    return OffsetFit(np.maximum(total - explained, 0), rows, weights, top, share)


def block_sums(attention: Floats, visible: Bools, segment: Ints) -> tuple[Floats, float]:
    """Return the mass inside the query's own segment, and that of uniform attention.

    *Shape:* segment ``(token,)``, a number per token; result ``(head,)`` and a number, both
    summed over rows. A sentence whose rows see only one segment gives 0 and 0.
    """
    attention, seen, _ = _normalised_rows(attention, visible)
    same_segment = segment[visible.sum(1) > 1][:, None] == segment
    if not (seen & ~same_segment).any():
        return np.zeros(len(attention)), 0.0
    mass: Floats = (attention * same_segment).sum((1, 2))
    return mass, float(((seen & same_segment).sum(1) / seen.sum(1)).sum())


def _normalised_rows(attention: Floats, visible: Bools) -> tuple[Floats, Bools, Floats]:
    """Return rows that see two or more keys, normalised, with visible keys and 1/ln k_i."""
    keys = visible.sum(1)
    rows = keys > 1
    weights = np.where(visible[rows], attention[:, rows], 0.0)
    return weights / weights.sum(2, keepdims=True), visible[rows], 1 / np.log(keys[rows])


def _entropy(attention: Floats) -> Floats:
    logs = np.zeros_like(attention)
    np.log(attention, out=logs, where=attention > 0)
    entropy: Floats = -np.einsum("hij,hij->hi", attention, logs)
    return entropy


def _cross(mass: Floats, logs: Floats) -> Floats:
    """Return Σ mass·ln weight, with 0 for items without mass, whose weight may be 0."""
    cross: Floats = (mass * np.where(mass > 0, logs, 0)).sum(1)
    return cross


def _offsets_within(sums: OffsetSums, reach: int) -> slice:
    own_reach = sums.mass.shape[1] // 2
    return slice(reach - own_reach, reach + own_reach + 1)
