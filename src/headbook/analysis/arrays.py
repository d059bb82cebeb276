"""Types of arrays, and quotients that are NaN without observations. Imports no torch."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

NOTHING = 1e-6  # smaller numerators of a sentence differ from 0 by rounding only

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def divide(top: ArrayLike, bottom: ArrayLike) -> Floats:
    """Return the quotient of two arrays, broadcast; NaN where the denominator is not above 0."""
    top, bottom = np.broadcast_arrays(top, bottom)
    found: Floats = np.full(bottom.shape, np.nan)
    np.divide(top, bottom, out=found, where=bottom > 0)
    return found


def effective_number(parts: Floats) -> float:
    """Return the exponential of the entropy of shares: the number of equal parts as spread out.

    Args:
        parts: sizes, which need not sum to 1; zeros and NaN are ignored.
    """
    there = parts[parts > 0]
    if not len(there):
        return float("nan")
    shares = there / there.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
