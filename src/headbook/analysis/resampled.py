"""Tests for all heads at once, by resampling sentences.

Flips of signs take for granted that differences are symmetric, which losses are not: most sentences
lose little, a few much, and of many heads that change nothing flips then call some harmful nearly
always (`benchmarks/removal.py`). Here whole sentences are drawn with replacement, for all heads
together, from differences whose means are moved to 0; what is compared is Student's t, and of each
draw the largest among all heads (Westfall & Young 1993; Hall 1988, on t under resampling).

Draws follow from the number of sentences alone, so the same input always gives the same.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats

DRAWS = 2000
ROOM = 2**21  # numbers that a step over all draws may hold at once
ROUNDING = 1e-12  # share of the mean square below which what is left of a variance is rounding
TOLERANCE = 1e-9  # relative; statistics that differ by less are equal


def draws(clusters: int) -> Floats:
    """How often each draw has each cluster. *Shape:* ``(draw, cluster)``."""
    even = np.full(clusters, 1 / clusters)
    return np.random.default_rng(clusters).multinomial(clusters, even, DRAWS).astype(np.float64)


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
    drawn = draws(count)
    low, high = (np.full(n.shape[1], np.nan) for _ in range(2))
    tail = max(1, round(DRAWS * (1 - level) / 2))
    step = max(1, ROOM // DRAWS)
    for start in range(0, n.shape[1], step):
        some = slice(start, start + step)
        value, error = _ratio(np.ones((1, count)), n[:, some], d[:, some])
        again, errors = _ratio(drawn, n[:, some], d[:, some])
        with np.errstate(invalid="ignore", divide="ignore"):
            t = (again - value) / errors
        t[np.isnan(t)] = 0.0  # 0 / 0: the draw equals the sample
        t.sort(axis=0)
        with np.errstate(invalid="ignore"):
            found = value - t[[-tail, tail - 1]] * error
        sure = np.isfinite(found).all(0) & (error[0] > 0)
        for end, each in zip((low, high), found, strict=True):
            end[some] = np.where(sure, np.clip(each, *limits), np.nan)
    return low, high


def _ratio(drawn: Floats, n: Floats, d: Floats) -> tuple[Floats, Floats]:
    """Ratio of sums and its linearised standard error in each draw. *Shape:* ``(draw, cell)``."""
    count = drawn @ (d != 0)
    total = drawn @ d
    with np.errstate(invalid="ignore", divide="ignore"):
        value = drawn @ n / total
        square = drawn @ n**2
        spread = square - 2 * value * (drawn @ (n * d)) + value**2 * (drawn @ d**2)
        spread = np.where(spread > ROUNDING * square, spread, 0.0)
        error = np.sqrt(count / np.maximum(count - 1, 1) * spread) / total
    return value, error


def family_wise_above(values: Floats) -> Floats:
    """Family-wise p of each mean being above 0.

    Args:
        values: of sentences in an order that is always the same. *Shape:* ``(sentence, head)``.

    Returns:
        *Shape:* ``(head,)``.
    """
    n, drawn = len(values), draws(len(values))
    largest = np.zeros(DRAWS)
    for centred in _parts(values - values.mean(0)):
        np.maximum(largest, _drawn_t(drawn, centred).max(1, initial=0.0), out=largest)
    return _reached(largest, _t(values.mean(0), (values**2).mean(0), n))


def family_wise(parts: Iterable[tuple[Floats, Floats]], clusters: int) -> Floats:
    """Family-wise p, two-sided, of sums being different from 0.

    Args:
        parts: some cells at a time, their sums, ``(cell,)``, and what each cluster adds, moved so
            that all of them add up to 0; 0 for clusters that take no part. *Shape:*
            ``(cluster, cell)``.
        clusters: how many there are, in an order that is always the same.

    Returns:
        *Shape:* ``(cell,)``, of all parts in their order; 1 where nothing varies.
    """
    drawn, largest = draws(clusters), np.zeros(DRAWS)
    observed = [np.zeros(0)]
    for sums, centred in parts:
        mean = sums / clusters
        square = (centred**2).mean(0) + mean**2
        observed.append(np.abs(_t(mean, square, clusters)))
        for some in _parts(centred):
            size = np.abs(_drawn_t(drawn, some)).max(1, initial=0.0)
            np.maximum(largest, size, out=largest)
    return _reached(largest, np.concatenate(observed))


def _parts(centred: Floats) -> Iterator[Floats]:
    """Some columns at a time, so that what is made for all draws has room."""
    step = max(1, ROOM // DRAWS)
    for start in range(0, centred.shape[1], step):
        yield centred[:, start : start + step]


def _drawn_t(drawn: Floats, centred: Floats) -> Floats:
    """Student's t in each draw. *Shape:* ``(draw, cell)``."""
    n = len(centred)
    return _t(drawn @ centred / n, drawn @ centred**2 / n, n)


def _reached(largest: Floats, observed: Floats) -> Floats:
    """Shares of draws whose largest statistic reaches what was observed."""
    above = DRAWS - np.searchsorted(np.sort(largest) * (1 + TOLERANCE), observed)
    found: Floats = (1 + above) / (1 + DRAWS)
    return found


def _t(mean: Floats, square: Floats, n: int) -> Floats:
    """Student's t from means and mean squares; 0 where nothing varies."""
    spread = square - mean**2
    varies: NDArray[np.bool_] = spread > ROUNDING * square
    error = np.sqrt(np.where(varies, spread, 1) / max(n - 1, 1))
    found: Floats = np.where(varies, mean / error, 0.0)
    return found
