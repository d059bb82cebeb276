r"""P values over all heads: sign-flip tests, bootstrap-t, and the bootstrap of the largest t.

Sign flips assume that differences are symmetric. Losses are not: an ablation raises the loss of
most sentences a little and of a few sentences much. Among many heads without any effect, sign
flips then nearly always find a head that seems harmful (`benchmarks/removal.py`). For losses, whole
sentences are therefore drawn with replacement, for all heads together, from differences centred at
0. The statistic is Student's t, and the largest t of each draw among all heads is compared
(Westfall & Young 1993; Hall 1988, on t under resampling).

Differences of two models have a p value of their own in each cell (`bootstrap_t_p`), because some
draws of a cell that few sentences have vary so little that the largest t of a draw says nothing of
the other cells (`headbook.analysis.paired`).

Draws depend on the number of sentences only, so that equal input gives equal results.

*Null hypothesis of sign flips:* in each sentence, or pair of sentences, the differences of all
heads and labels together are as likely as the differences with the opposite sign. The signs of
whole sentences are therefore flipped at random, and each flip gives the largest statistic among all
heads and labels. The p value of a head is the share of flips with a largest statistic that reaches
the head's statistic: family-wise over all heads and labels (Westfall & Young 1993; Nichols & Holmes
2002, doi:10.1002/hbm.1058).
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats

DRAWS = 2000  # bootstrap samples
MAX_NUMBERS = 2**21  # numbers that a step over all draws may hold at once
ROUNDING = 1e-12  # share of the mean square below which a variance is rounding
TOLERANCE = 1e-9  # relative; statistics that differ by less are equal


@lru_cache(maxsize=8)
def bootstrap_counts(clusters: int) -> Floats:
    """Return how often each bootstrap sample contains each cluster; the array is read-only.

    *Shape:* ``(draw, cluster)``.
    """
    uniform = np.full(clusters, 1 / clusters)
    counts = np.random.default_rng(clusters).multinomial(clusters, uniform, DRAWS)
    draw_counts: Floats = counts.astype(np.float64)
    draw_counts.setflags(write=False)  # every caller gets the same array
    return draw_counts


def bootstrap_t(
    n: Floats, d: Floats, limits: tuple[float, float], level: float = 0.95
) -> tuple[Floats, Floats]:
    """Return bootstrap-t confidence intervals of ratios of sums, sentences as clusters.

    In each draw of sentences, the ratio's distance from the observed ratio is divided by the
    standard error of that draw; the quantiles of these quotients take the place of Student's t
    (Efron & Tibshirani 1993, section 12.5). A rare large effect, which a linearised interval
    misses, then widens the upper end: draws without it have a small standard error.

    Args:
        n, d: numerators and denominators; sentences with denominator 0 take no part.
            *Shape:* ``(sentence, cell)``.
        limits: smallest and largest possible ratio, at which the ends are cut.

    Returns:
        Both ends, *shape* ``(cell,)``; NaN if nothing varies or an end would be infinite.
    """
    count = len(n)
    draw_counts = bootstrap_counts(count)
    low, high = (np.full(n.shape[1], np.nan) for _ in range(2))
    tail = max(1, round(DRAWS * (1 - level) / 2))
    step = max(1, MAX_NUMBERS // DRAWS)
    for start in range(0, n.shape[1], step):
        block = slice(start, start + step)
        value, error = _ratio(np.ones((1, count)), n[:, block], d[:, block])
        drawn_values, drawn_errors = _ratio(draw_counts, n[:, block], d[:, block])
        with np.errstate(invalid="ignore", divide="ignore"):
            t = (drawn_values - value) / drawn_errors
        t[np.isnan(t)] = 0.0  # 0 / 0: the draw equals the sample
        t.sort(axis=0)
        with np.errstate(invalid="ignore"):
            bounds = value - t[[-tail, tail - 1]] * error
        valid = np.isfinite(bounds).all(0) & (error[0] > 0)
        for end, bound in zip((low, high), bounds, strict=True):
            end[block] = np.where(valid, np.clip(bound, *limits), np.nan)
    return low, high


def _ratio(draw_counts: Floats, n: Floats, d: Floats) -> tuple[Floats, Floats]:
    """Return ratios of sums and linearised standard errors by draw. *Shape:* ``(draw, cell)``."""
    count = draw_counts @ (d != 0)
    total = draw_counts @ d
    with np.errstate(invalid="ignore", divide="ignore"):
        value = draw_counts @ n / total
        square = draw_counts @ n**2
        spread = square - 2 * value * (draw_counts @ (n * d)) + value**2 * (draw_counts @ d**2)
        spread = np.where(spread > ROUNDING * square, spread, 0.0)
        error = np.sqrt(count / np.maximum(count - 1, 1) * spread) / total
    return value, error


def bootstrap_p_above(values: Floats) -> Floats:
    """Return the family-wise p value of each mean being above 0.

    Args:
        values: values of sentences in a reproducible order. *Shape:* ``(sentence, head)``.

    Returns:
        *Shape:* ``(head,)``.
    """
    n, draw_counts = len(values), bootstrap_counts(len(values))
    largest = np.zeros(DRAWS)
    for _, centred in _column_blocks(values - values.mean(0)):
        np.maximum(largest, _drawn_t(draw_counts, centred).max(1, initial=0.0), out=largest)
    return _exceedance_p(largest, _t(values.mean(0), (values**2).mean(0), n))


def bootstrap_t_p(sums: Floats, centred: Floats) -> Floats:
    """Return two-sided, equal-tailed bootstrap-t p values of sums being different from 0.

    The statistic of each draw is compared with that of the sample in both directions, and the
    smaller tail counts twice. Skewness thus needs no correction, and a cell's p does not depend on
    other cells.

    Args:
        sums: observed sums. *Shape:* ``(cell,)``.
        centred: contributions of the clusters to ``sums``, centred so that they sum to 0; 0 for
            clusters that take no part. *Shape:* ``(cluster, cell)``, clusters in a reproducible
            order.

    Returns:
        *Shape:* ``(cell,)``; 1 where nothing varies.
    """
    n, draw_counts, p = len(centred), bootstrap_counts(len(centred)), np.ones(len(sums))
    observed = _t(sums / n, (centred**2).mean(0) + (sums / n) ** 2, n)
    for start, columns in _column_blocks(centred):
        block = slice(start, start + columns.shape[1])
        drawn, t = _drawn_t(draw_counts, columns), observed[block]
        margin = TOLERANCE * np.abs(t)
        tails = [(drawn >= t - margin).sum(0), (drawn <= t + margin).sum(0)]
        p[block] = np.minimum(2 * (1 + np.minimum(*tails)) / (1 + DRAWS), 1.0)
    return p


def holm(p: Floats) -> Floats:
    """Return p values adjusted for the family-wise error rate (Holm 1979). *Shape:* ``(test,)``."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _column_blocks(centred: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield blocks of columns small enough to hold the values of all draws, with their start."""
    step = max(1, MAX_NUMBERS // DRAWS)
    for start in range(0, centred.shape[1], step):
        yield start, centred[:, start : start + step]


def step_down_t_p(sums: Floats, centred: Floats) -> Floats:
    """Return the family-wise p value of each sum being different from 0, two-sided.

    Each cell's t is taken in the direction that was observed, and the tail beyond it counts twice
    (equal-tailed): skewed cells have drawn t far in the other direction, which say nothing of this
    one. The largest t of each draw among the cells that remain is compared with the largest
    observed one; then without that cell, and so on (step-down; Romano & Wolf 2005,
    doi:10.1198/016214504000000539).

    Args:
        sums, centred: as in `bootstrap_t_p`.

    Returns:
        *Shape:* ``(cell,)``. Where nothing varies, the least possible p for a sum that is not 0,
        and 1 for one that is 0.
    """
    n = len(centred)
    square = (centred**2).mean(0)
    varies = square > ROUNDING * (sums / n) ** 2
    differs = np.abs(sums) > TOLERANCE
    observed = np.where(differs, np.inf, 0.0)
    error = np.sqrt(square[varies] / max(n - 1, 1))
    observed[varies] = np.abs(sums[varies] / n) / error
    drawn = np.zeros((DRAWS, len(sums)))
    drawn[:, varies] = np.sign(sums[varies]) * _drawn_t(bootstrap_counts(n), centred[:, varies])
    order = np.argsort(-observed, kind="stable")
    largest = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
    reaching = (largest >= observed[order] * (1 - TOLERANCE)).sum(0)
    steps = np.minimum(2 * np.maximum.accumulate(1 + reaching) / (1 + DRAWS), 1)
    p = np.empty(len(sums))
    p[order] = np.where(differs[order], steps, 1.0)
    return p


def _drawn_t(draw_counts: Floats, centred: Floats) -> Floats:
    """Return Student's t in each draw. *Shape:* ``(draw, cell)``."""
    n = len(centred)
    return _t(draw_counts @ centred / n, draw_counts @ centred**2 / n, n)


def _exceedance_p(largest: Floats, observed: Floats) -> Floats:
    """Return the share of draws or flips whose largest statistic reaches the observed one."""
    n_reaching = len(largest) - np.searchsorted(np.sort(largest) * (1 + TOLERANCE), observed)
    p: Floats = (1 + n_reaching) / (1 + len(largest))
    return p


def _t(mean: Floats, square: Floats, n: int) -> Floats:
    """Return Student's t from means and mean squares; 0 where nothing varies."""
    spread = square - mean**2
    varies: NDArray[np.bool_] = spread > ROUNDING * square
    error = np.sqrt(np.where(varies, spread, 1) / max(n - 1, 1))
    t: Floats = np.where(varies, mean / error, 0.0)
    return t


FLIPS = 2000  # sign flips of a test
FLIPS_PER_HASH = 64  # flips at a time: the number of bits of a hash

ALPHA = 0.05  # family-wise p value below which pages call a difference significant
# Constants of the generator splitmix64.
SPLITMIX_INCREMENT, SPLITMIX_FACTORS = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def sign_flip_p(
    differences: NDArray[np.floating],
    present: NDArray[np.bool_],
    keys: NDArray[np.uint64],
    *,
    two_sided: bool = False,
) -> Floats:
    """Return the family-wise p value of each head and label by the largest statistic of flips.

    The statistic is the sum of the differences over the root of the sum of their squares, which
    does not change by flips; p = (1 + flips that reach it) / (1 + flips).

    Args:
        differences: whole numbers in single precision, others in double; 0 if a sentence has none.
            *Shape:* ``(sentence, layer, head, label)``.
        present: heads that take part. *Shape:* ``(layer, head)``.
        keys: hashes of the sentences, which determine the signs. *Shape:* ``(sentence,)``.
        two_sided: whether large statistics below 0 count as well.

    Returns:
        *Shape:* ``(layer, head, label)``; NaN where a head does not take part.
    """
    p = np.full(differences.shape[1:], np.nan)
    n_heads, n_labels = p[present].shape
    flat = differences[:, present].reshape(len(keys), n_heads * n_labels)
    root = np.sqrt(np.square(flat).sum(0, dtype=np.float64))
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    magnitude = np.abs if two_sided else np.positive
    observed = magnitude(flat.sum(0, dtype=np.float64) * scale)
    largest = np.concatenate(
        # Sums of whole numbers are exact, in whatever order a machine adds them.
        [magnitude(signs @ flat * scale).max(1, initial=0.0) for signs in _signs(keys)]
    )
    p[present] = _exceedance_p(largest, observed).reshape(n_heads, n_labels)
    return p


def _signs(keys: NDArray[np.uint64]) -> Iterator[NDArray[np.float32]]:
    """Yield the signs of the sentences in each flip, from their hashes by splitmix64.

    *Shape:* ``(flip, sentence)``, with at most `FLIPS_PER_HASH` flips.
    """
    for start in range(0, FLIPS, FLIPS_PER_HASH):
        z = keys + np.uint64(SPLITMIX_INCREMENT * (start // FLIPS_PER_HASH + 1) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(SPLITMIX_FACTORS[0])
        z = (z ^ (z >> np.uint64(27))) * np.uint64(SPLITMIX_FACTORS[1])
        z ^= z >> np.uint64(31)
        flips = np.arange(min(FLIPS_PER_HASH, FLIPS - start), dtype=np.uint64)
        bits = (z >> flips[:, None]) & np.uint64(1)
        yield np.where(bits, np.float32(1), np.float32(-1))
