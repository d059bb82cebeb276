"""Arithmetic that says NaN where there is nothing to count. No torch."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

NOTHING = 1e-6  # numerators of sentences that are less differ from 0 by rounding

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def divide(top: ArrayLike, bottom: ArrayLike) -> Floats:
    """One over the other, broadcast; NaN where there is nothing to divide by."""
    top, bottom = np.broadcast_arrays(top, bottom)
    found: Floats = np.full(bottom.shape, np.nan)
    np.divide(top, bottom, out=found, where=bottom > 0)
    return found


def effective_number(parts: Floats) -> float:
    """Number of equal parts that would be as spread out: exp of the entropy of their shares.

    Args:
        parts: they need not add up to 1; those that are 0 or NaN take no part.
    """
    there = parts[parts > 0]
    if not len(there):
        return float("nan")
    shares = there / there.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
