"""What an attention map looks like: stripes down columns, along diagonals, blocks, or neither.

Instead of a trained classifier of pictures (Kovaleva et al. 2019, arXiv:1908.08593, whose
annotations are not public), each head is compared with the best map that looks at the same *keys*
from everywhere (`column_residual`) and with the best that looks at the same *offsets*
(`offset_sums`, `fit_offsets`). Distances are Kullback–Leibler divergences KL(A_i ‖ fit_i) in
nats over ln k_i, k_i being the number of keys that query i sees; rows that see one key are
skipped. All results are sums over the rows of one sentence, for each head, so that they add up.

Throughout, attention is ``(head, query, key)``, in float64, and visible ``(query, key)`` says
what a query may see, padding excluded and special tokens kept on both sides. Rows of attention
sum to 1; what softmax left in lower precision is made up for. No rows give 0 rows, never a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Floats, Ints
from headbook.analysis.fits import Bools, Intervals, Listed, fit


@dataclass(frozen=True, eq=False)
class Columns:
    """How well one weight per key explains the maps of a sentence; sums over rows.

    Attributes:
        residual: Σ KL(A_i ‖ w/Z_i)/ln k_i. *Shape:* ``(head,)``.
        spread: Σ H(A_i)/ln k_i. *Shape:* ``(head,)``.
        rows: rows that see at least two keys.
        weights: w, summing to 1; the largest names the winning column. NaN without rows.
            *Shape:* ``(head, key)``.
    """

    residual: Floats
    spread: Floats
    rows: int
    weights: Floats


def column_residual(attention: Floats, visible: Bools, *, weighted: bool = False) -> Columns:
    """Fit one weight per key position of the sentence.

    The weights maximise the likelihood Π_ij (w_j/Z_i)^A_ij; for full attention they are the
    column means. With `weighted`, row i counts 1/ln k_i: the weights then minimise the residual
    itself, and since even weights would give ``rows - spread``, the mean residual is at most
    1 minus the mean spread. Without it that bound is certain only where all k_i are equal.
    """
    attention, visible, scale = _counted(attention, visible)
    entropy = _entropy(attention) @ scale
    if not len(scale):
        return Columns(entropy, entropy, 0, np.full(attention.shape[::2], np.nan))
    counts = scale if weighted else np.ones_like(scale)
    logs = fit(np.einsum("hij,i->hj", attention, counts), Listed(visible, counts))
    cross = _cross(np.einsum("hij,i->hj", attention, scale), logs)
    total = np.logaddexp.reduce(np.where(visible, logs[:, None], -np.inf), axis=2) @ scale
    weights = np.exp(logs)
    weights /= weights.sum(1, keepdims=True)
    return Columns(np.maximum(total - cross - entropy, 0), entropy, len(scale), weights)


@dataclass(frozen=True, eq=False)
class OffsetSums:
    """What one sentence tells about offsets; row i counts c_i = 1/ln k_i.

    Attributes:
        mass: Σ c_i·A_ij at each offset j − i from −r to r. *Shape:* ``(head, 2 r + 1)``.
        spread: Σ c_i·H(A_i). *Shape:* ``(head,)``.
        extents: how far back and how far ahead each row sees. *Shape:* ``(row, 2)``.
    """

    mass: Floats
    spread: Floats
    extents: Ints


def offset_sums(attention: Floats, visible: Bools) -> OffsetSums:
    """Sums of one sentence, all that the shared fit needs of it.

    Rows must see a run of keys that holds their own position, as with full, causal and windowed
    self-attention, padded on either side.

    Raises:
        ValueError: some row that sees two keys or more does not.
    """
    where = np.nonzero(visible.sum(1) > 1)[0]
    attention, visible, scale = _counted(attention, visible)
    back = where - visible.argmax(1)
    ahead = visible.shape[1] - 1 - visible[:, ::-1].argmax(1) - where
    holds = (back >= 0) & (ahead >= 0) & (back + ahead + 1 == visible.sum(1))
    if not holds.all():
        raise ValueError(f"query {where[~holds][0]} sees keys that are no run around itself")
    reach = int(max(back.max(initial=0), ahead.max(initial=0)))
    place = np.arange(visible.shape[1]) - where[:, None] + reach
    mass = np.zeros((len(attention), 2 * reach + 1))
    scaled = attention * scale[:, None]
    for row, seen in enumerate(visible):  # a row has each offset once
        mass[:, place[row, seen]] += scaled[:, row, seen]
    return OffsetSums(mass, _entropy(attention) @ scale, np.stack([back, ahead], axis=1))


@dataclass(frozen=True, eq=False)
class OffsetFit:
    """How well one weight per offset, shared by all sentences, explains each sentence's maps.

    Attributes:
        residual: Σ KL(A_i ‖ v/Z_i)/ln k_i. *Shape:* ``(sentence, head)``.
        rows: rows that see at least two keys. *Shape:* ``(sentence,)``.
        weights: v for the offsets −r to r, summing to 1. *Shape:* ``(head, 2 r + 1)``.
        top: the offset j − i with most mass; 0 without rows. *Shape:* ``(head,)``.
        share: its share of the mass, rows counted 1/ln k_i; NaN without rows.
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
    1 minus the mean spread. (A single sentence may lie above that: the weights are not its own.)
    At least one sentence; all with the same heads.
    """
    reach = max(one.mass.shape[1] for one in sentences) // 2
    mass = np.zeros((len(sentences[0].mass), 2 * reach + 1))
    for one in sentences:
        mass[:, _middle(one, reach)] += one.mass
    extents = np.concatenate([one.extents for one in sentences])
    counts = 1 / np.log(extents.sum(1) + 1)
    grid = np.zeros((reach + 1, reach + 1))
    np.add.at(grid, (extents[:, 0], extents[:, 1]), counts)
    sets = Intervals(grid)
    logs = fit(mass, sets)
    rows = np.array([len(one.extents) for one in sentences])
    total = np.zeros((len(sentences), len(mass)))
    for head, own in enumerate(logs):
        each = sets.totals(own).reshape(grid.shape)[extents[:, 0], extents[:, 1]]
        total[:, head] = np.bincount(
            np.repeat(np.arange(len(rows)), rows), each * counts, minlength=len(rows)
        )
    known = np.stack([_cross(s.mass, logs[:, _middle(s, reach)]) + s.spread for s in sentences])
    weights, all_mass = np.exp(logs), mass.sum(1)
    with np.errstate(invalid="ignore"):
        weights, share = weights / weights.sum(1, keepdims=True), mass.max(1) / all_mass
    top = np.where(all_mass > 0, mass.argmax(1) - reach, 0)
    return OffsetFit(np.maximum(total - known, 0), rows, weights, top, share)


def block_sums(attention: Floats, visible: Bools, segment: Ints) -> tuple[Floats, float]:
    """Mass inside the query's own segment, and what even attention would put there.

    *Shape:* segment ``(token,)``, a number per token; result ``(head,)`` and a number, both
    summed over rows. A sentence whose rows see only one segment gives 0 and 0.
    """
    attention, seen, _ = _counted(attention, visible)
    own = segment[visible.sum(1) > 1][:, None] == segment
    if not (seen & ~own).any():
        return np.zeros(len(attention)), 0.0
    mass: Floats = (attention * own).sum((1, 2))
    return mass, float(((seen & own).sum(1) / seen.sum(1)).sum())


def _counted(attention: Floats, visible: Bools) -> tuple[Floats, Bools, Floats]:
    """Rows that see two keys or more, nothing on hidden keys, each summing to 1; 1/ln k_i."""
    keys = visible.sum(1)
    rows = keys > 1
    kept = np.where(visible[rows], attention[:, rows], 0.0)
    return kept / kept.sum(2, keepdims=True), visible[rows], 1 / np.log(keys[rows])


def _entropy(attention: Floats) -> Floats:
    logs = np.zeros_like(attention)
    np.log(attention, out=logs, where=attention > 0)
    found: Floats = -np.einsum("hij,hij->hi", attention, logs)
    return found


def _cross(mass: Floats, logs: Floats) -> Floats:
    """Σ mass·ln weight; where there is no mass the weight may be 0."""
    found: Floats = (mass * np.where(mass > 0, logs, 0)).sum(1)
    return found


def _middle(one: OffsetSums, reach: int) -> slice:
    own = one.mass.shape[1] // 2
    return slice(reach - own, reach + own + 1)
