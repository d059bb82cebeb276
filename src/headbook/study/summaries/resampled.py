"""Tests of means for all heads at once, by resampling sentences.

Flips of signs take for granted that differences are symmetric, which losses are not: most sentences
lose little, a few much, and of many heads that change nothing flips then call some harmful nearly
always (`benchmarks/removal.py`). Here whole sentences are drawn with replacement, for all heads
together, from differences whose means are moved to 0; what is compared is Student's t, and of each
draw the largest among all heads (Westfall & Young 1993; Hall 1988, on t under resampling).
"""

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats

DRAWS = 2000
ROUNDING = 1e-12  # share of the mean square below which what is left of a variance is rounding


def family_wise_above(values: Floats) -> Floats:
    """Family-wise p of each mean being above 0.

    Args:
        values: of sentences in an order that is always the same. *Shape:* ``(sentence, head)``.

    Returns:
        *Shape:* ``(head,)``.
    """
    n = len(values)
    draws = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), DRAWS).astype(np.float64)
    centred = values - values.mean(0)
    drawn = _t(draws @ centred / n, draws @ centred**2 / n, n).max(1, initial=0.0)
    observed = _t(values.mean(0), (values**2).mean(0), n)
    above = DRAWS - np.searchsorted(np.sort(drawn), observed)
    found: Floats = (1 + above) / (1 + DRAWS)
    return found


def _t(mean: Floats, square: Floats, n: int) -> Floats:
    """Student's t from means and mean squares; 0 where nothing varies."""
    spread = square - mean**2
    varies: NDArray[np.bool_] = spread > ROUNDING * square
    error = np.sqrt(np.where(varies, spread, 1) / max(n - 1, 1))
    found: Floats = np.where(varies, mean / error, 0.0)
    return found
