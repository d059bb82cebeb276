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
